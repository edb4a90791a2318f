//! What is held: each call runs the asynchronous one to its end, for the thread that calls.

mod semaphore;

use std::future::IntoFuture;

use super::{Client, LockGuard};
use crate::backend::Holder;
use crate::error::Result;
use crate::sync::{
    self, Acquiring, AcquiringAll, Lockable, MultiLockGuard, MutexGuard, Permit, RwLockReadGuard, RwLockWriteGuard, TryAcquiring,
    TryAcquiringAll,
};

/// A handle of the façade: the asynchronous one, and the client that runs it.
macro_rules! handle {
    ($(#[$doc:meta])* $handle:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $handle {
            inner: sync::$handle,
            client: Client,
        }

        impl $handle {
            pub(super) fn new(client: &Client, inner: sync::$handle) -> Self {
                Self { inner, client: client.clone() }
            }

            fn guard<G>(&self, guard: G) -> LockGuard<G> {
                LockGuard::new(guard, &self.client)
            }
        }
    };
}

/// Acquiring something: waiting, trying, each with options. `$us` is the handle for the thread that calls.
macro_rules! acquiring {
    ($handle:ident, $guard:ident, |$this:ident| $us:expr, $lock:ident, $lock_with:ident, $try_lock:ident, $try_lock_with:ident) => {
        impl $handle {
            /// Acquires it, waiting as long as it takes; it is renewed until it is released.
            ///
            /// # Errors
            ///
            /// As [`Acquiring`](crate::sync::Acquiring).
            pub fn $lock(&self) -> Result<LockGuard<$guard>> {
                self.$lock_with(|call| call)
            }

            /// Acquires it with options: `|call| call.timeout(limit).lease(length)`.
            ///
            /// # Errors
            ///
            /// As [`Acquiring`](crate::sync::Acquiring).
            pub fn $lock_with(&self, options: impl FnOnce(Acquiring<$guard>) -> Acquiring<$guard>) -> Result<LockGuard<$guard>> {
                let $this = self;
                let guard = self.client.block_on(options($us.$lock()).into_future())?;
                Ok(self.guard(guard))
            }

            /// Acquires it if it is free now; returns `None` otherwise.
            ///
            /// # Errors
            ///
            /// As [`TryAcquiring`](crate::sync::TryAcquiring).
            pub fn $try_lock(&self) -> Result<Option<LockGuard<$guard>>> {
                self.$try_lock_with(|call| call)
            }

            /// Acquires it if it is free now, with options: `|call| call.lease(length)`.
            ///
            /// # Errors
            ///
            /// As [`TryAcquiring`](crate::sync::TryAcquiring).
            pub fn $try_lock_with(
                &self,
                options: impl FnOnce(TryAcquiring<$guard>) -> TryAcquiring<$guard>,
            ) -> Result<Option<LockGuard<$guard>>> {
                let $this = self;
                let guard = self.client.block_on(options($us.$try_lock()).into_future())?;
                Ok(guard.map(|guard| self.guard(guard)))
            }
        }
    };
}

/// Who holds it.
macro_rules! inspecting {
    ($($handle:ident),*) => {
        $(impl $handle {
            /// Who holds it now; see the asynchronous method of this name.
            ///
            /// # Errors
            ///
            /// As there.
            pub fn holders(&self) -> Result<Vec<Holder>> {
                self.client.block_on(self.inner.holders())
            }

            /// Whether anyone holds it now; see the asynchronous method of this name.
            ///
            /// # Errors
            ///
            /// As there.
            pub fn is_locked(&self) -> Result<bool> {
                self.client.block_on(self.inner.is_locked())
            }
        })*
    };
}

handle!(
    /// A lock for one holder at a time; see [`lockkeeper::Mutex`](crate::Mutex). The thread that holds it may acquire it again.
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// let mutex = client.mutex("orders:42");
    /// let guard = mutex.lock()?;
    /// let again = mutex.try_lock()?.expect("this thread holds it");
    /// # drop(again);
    /// guard.release()?;
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    Mutex
);
handle!(
    /// A lock for one holder at a time, first come first served; see [`lockkeeper::FairMutex`](crate::FairMutex). The thread that
    /// holds it may acquire it again.
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// let guard = client.fair_mutex("printer").lock()?;
    /// guard.release()?;
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    FairMutex
);
handle!(
    /// A lock for many readers or one writer; see [`lockkeeper::RwLock`](crate::RwLock). A thread may acquire a side again that it
    /// holds, and read while it writes.
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// use std::time::Duration;
    /// let prices = client.rwlock("prices");
    /// let (one, two) = (prices.read()?, prices.try_read()?.expect("nobody writes"));
    /// one.release()?;
    /// two.release()?;
    /// let writer = prices.write()?;
    /// let reader = prices.read()?; // the thread that writes may read
    /// drop((reader, writer));
    ///
    /// let reader = prices.read_with(|call| call.timeout(Duration::from_secs(3)))?;
    /// assert!(prices.try_read_with(|call| call.max_hold(Duration::from_secs(60)))?.is_some());
    /// reader.release()?;
    /// let writer = prices.write_with(|call| call.timeout(Duration::from_secs(3)))?;
    /// writer.release()?;
    /// if let Some(writer) = prices.try_write_with(|call| call.lease(Duration::from_secs(10)))? {
    ///     writer.release()?;
    /// }
    /// assert!(prices.try_write()?.is_some());
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    RwLock
);
handle!(
    /// A semaphore of leased permits; see [`lockkeeper::Semaphore`](crate::Semaphore).
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// use std::time::Duration;
    /// let workers = client.semaphore("workers", 3);
    /// let two = workers.acquire_many(2)?;
    /// let one = workers.try_acquire_with(|call| call.lease(Duration::from_secs(10)))?;
    /// assert!(one.is_some() && workers.try_acquire()?.is_none());
    /// two.release()?;
    /// assert_eq!(workers.available()?, 2);
    /// assert_eq!(client.semaphore("workers", 1).any_size().acquire()?.count(), 1); // whatever its size is
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    Semaphore
);
handle!(
    /// All of several locks, or none; see [`lockkeeper::MultiLock`](crate::MultiLock). The holds are its own: the thread cannot
    /// acquire one of them again.
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// let both = client.multi_lock(["account:7", "account:9"]).lock()?;
    /// for (name, token) in both.tokens() {
    ///     println!("{name}: {token}");
    /// }
    /// both.release()?;
    ///
    /// let (order, stock, workers) = (client.fair_mutex("order"), client.rwlock("stock"), client.semaphore("workers", 3));
    /// let all = client.multi_lock(["account:7"]).and(&order).and(stock.write_part()).and(workers.permits_part(2));
    /// all.lock()?.release()?;
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    MultiLock
);

acquiring!(Mutex, MutexGuard, |this| this.inner.owned_by(&this.client.thread()), lock, lock_with, try_lock, try_lock_with);
acquiring!(FairMutex, MutexGuard, |this| this.inner.owned_by(&this.client.thread()), lock, lock_with, try_lock, try_lock_with);
acquiring!(RwLock, RwLockReadGuard, |this| this.inner.owned_by(&this.client.thread()), read, read_with, try_read, try_read_with);
acquiring!(
    RwLock,
    RwLockWriteGuard,
    |this| this.inner.owned_by(&this.client.thread()),
    write,
    write_with,
    try_write,
    try_write_with
);
acquiring!(Semaphore, Permit, |this| this.inner, acquire, acquire_with, try_acquire, try_acquire_with);
inspecting!(Mutex, FairMutex, RwLock, Semaphore);

impl sync::guard::sealed::Sealed for Mutex {}

impl Lockable for Mutex {
    fn part(&self) -> sync::lockable::Part {
        self.inner.part()
    }
}

impl sync::guard::sealed::Sealed for FairMutex {}

impl Lockable for FairMutex {
    fn part(&self) -> sync::lockable::Part {
        self.inner.part()
    }
}

impl RwLock {
    /// The read side as a part of a [`MultiLock`].
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// let prices = client.rwlock("prices");
    /// client.multi_lock(["orders"]).and(prices.read_part()).lock()?.release()?;
    /// client.multi_lock(["orders"]).and(prices.write_part()).lock()?.release()?;
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn read_part(&self) -> Acquiring<RwLockReadGuard> {
        self.inner.read()
    }

    /// The write side as a part of a [`MultiLock`].
    pub fn write_part(&self) -> Acquiring<RwLockWriteGuard> {
        self.inner.write()
    }
}

impl MultiLock {
    /// Adds a lock, also of another client: `&mutex`, `rwlock.read_part()`, `semaphore.permits_part(2)`.
    #[must_use]
    pub fn and(self, lock: impl Lockable) -> Self {
        Self { inner: self.inner.and(lock), client: self.client }
    }

    /// Acquires all of them, waiting until they are free together.
    ///
    /// # Errors
    ///
    /// As [`AcquiringAll`].
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// let both = client.multi_lock(["account:7", "account:9"]).lock()?;
    /// both.release()?;
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn lock(&self) -> Result<LockGuard<MultiLockGuard>> {
        self.lock_with(|call| call)
    }

    /// Acquires all of them with options: `|call| call.timeout(limit).lease(length)`.
    ///
    /// # Errors
    ///
    /// As [`AcquiringAll`].
    pub fn lock_with(&self, options: impl FnOnce(AcquiringAll) -> AcquiringAll) -> Result<LockGuard<MultiLockGuard>> {
        self.client.block_on(options(self.inner.lock()).into_future()).map(|guard| self.guard(guard))
    }

    /// Acquires all of them if they are free now; returns `None` otherwise.
    ///
    /// # Errors
    ///
    /// As [`TryAcquiringAll`].
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// let both = client.multi_lock(["account:7", "account:9"]);
    /// assert!(both.try_lock()?.is_some(), "both are free");
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn try_lock(&self) -> Result<Option<LockGuard<MultiLockGuard>>> {
        self.try_lock_with(|call| call)
    }

    /// Acquires all of them if they are free now, with options: `|call| call.lease(length)`.
    ///
    /// # Errors
    ///
    /// As [`TryAcquiringAll`].
    pub fn try_lock_with(
        &self,
        options: impl FnOnce(TryAcquiringAll) -> TryAcquiringAll,
    ) -> Result<Option<LockGuard<MultiLockGuard>>> {
        let guard = self.client.block_on(options(self.inner.try_lock()).into_future())?;
        Ok(guard.map(|guard| self.guard(guard)))
    }
}
