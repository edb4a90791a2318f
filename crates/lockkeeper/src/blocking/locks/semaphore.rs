//! Permits: several at a time, and the number of them.

use std::future::IntoFuture;

use super::Semaphore;
use crate::blocking::LockGuard;
use crate::error::Result;
use crate::sync::{Acquiring, Permit};

impl Semaphore {
    /// Acquires `count` permits together, waiting for them.
    ///
    /// # Errors
    ///
    /// As [`Acquiring`](crate::sync::Acquiring).
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// let two = client.semaphore("workers", 3).acquire_many(2)?;
    /// two.release()?;
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn acquire_many(&self, count: u32) -> Result<LockGuard<Permit>> {
        self.acquire_many_with(count, |call| call)
    }

    /// Acquires `count` permits together with options: `|call| call.timeout(limit).lease(length)`.
    ///
    /// # Errors
    ///
    /// As [`Acquiring`](crate::sync::Acquiring).
    pub fn acquire_many_with(
        &self,
        count: u32,
        options: impl FnOnce(Acquiring<Permit>) -> Acquiring<Permit>,
    ) -> Result<LockGuard<Permit>> {
        self.client.block_on(options(self.inner.acquire_many(count)).into_future()).map(|guard| self.guard(guard))
    }

    /// Acquires `count` permits together if they are free now; returns `None` otherwise.
    ///
    /// # Errors
    ///
    /// As [`TryAcquiring`](crate::sync::TryAcquiring).
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// let workers = client.semaphore("workers", 3);
    /// let two = workers.try_acquire_many(2)?.expect("all are free");
    /// assert!(workers.try_acquire_many(2)?.is_none());
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn try_acquire_many(&self, count: u32) -> Result<Option<LockGuard<Permit>>> {
        let guard = self.client.block_on(self.inner.try_acquire_many(count).into_future())?;
        Ok(guard.map(|guard| self.guard(guard)))
    }

    /// `count` permits as a part of a [`MultiLock`](super::MultiLock).
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// let workers = client.semaphore("workers", 3);
    /// client.multi_lock(["orders"]).and(workers.permits_part(2)).lock()?.release()?;
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn permits_part(&self, count: u32) -> Acquiring<Permit> {
        self.inner.acquire_many(count)
    }

    /// How many permits are free.
    ///
    /// # Errors
    ///
    /// As [`lockkeeper::Semaphore::available`](crate::Semaphore::available).
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// assert_eq!(client.semaphore("workers", 3).available()?, 3);
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn available(&self) -> Result<i64> {
        self.client.block_on(self.inner.available())
    }

    /// The same semaphore with whatever size it has at the store; see [`lockkeeper::Semaphore::any_size`](crate::Semaphore::any_size).
    #[must_use]
    pub fn any_size(self) -> Self {
        Self { inner: self.inner.any_size(), ..self }
    }

    /// Sets how many permits there are in all, and gives the handle for that.
    ///
    /// # Errors
    ///
    /// As [`lockkeeper::Semaphore::resize`](crate::Semaphore::resize).
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// let five = client.semaphore("workers", 3).resize(5)?;
    /// assert_eq!(five.available()?, 5);
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn resize(&self, permits: u32) -> Result<Self> {
        let inner = self.client.block_on(self.inner.resize(permits))?;
        Ok(Self { inner, client: self.client.clone() })
    }

    /// Removes the semaphore if nobody holds a permit; tells whether it did.
    ///
    /// # Errors
    ///
    /// As [`lockkeeper::Semaphore::remove`](crate::Semaphore::remove).
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// assert!(!client.semaphore("workers", 3).remove()?, "it was never used");
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn remove(&self) -> Result<bool> {
        self.client.block_on(self.inner.remove())
    }
}
