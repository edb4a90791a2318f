//! The guard of what a thread holds.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use super::Client;
use crate::error::Result;
use crate::sync::{Guard, MultiLockGuard, Permit, PermitId, RwLockReadGuard, RwLockWriteGuard};

/// A guard of the blocking façade. Derefs to the guard it wraps, for `token()`, `is_valid()`, `remaining()`, `loss()`.
///
/// Dropping it releases in the background and does not block.
///
/// ```
/// # let client = lockkeeper::blocking::Client::connect("memory:")?;
/// let writer = client.rwlock("prices").write()?;
/// println!("{} for {:?}, token {:?}", writer.name(), writer.remaining(), writer.token());
/// let reader = writer.downgrade()?; // no other writer in between
/// reader.release()?;
///
/// let permit = client.semaphore("workers", 2).acquire()?;
/// let id = permit.detach(); // held without a guard, until somebody adopts it
/// client.adopt(id)?.release()?;
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[must_use = "if unused the lock is released at once"]
pub struct LockGuard<G> {
    guard: G,
    client: Client,
}

impl<G> LockGuard<G> {
    pub(super) fn new(guard: G, client: &Client) -> Self {
        Self { guard, client: client.clone() }
    }
}

impl<G: Guard> LockGuard<G> {
    /// Releases it now; see [`MutexGuard::release`](crate::MutexGuard::release).
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// let guard = client.mutex("orders:42").lock()?;
    /// guard.release()?;
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn release(self) -> Result<()> {
        let Self { guard, client } = self;
        client.block_on(guard.into_held().release())
    }

    /// Asks that the hold last at least `lease` from now; see [`Held::extend`](crate::Held::extend).
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// use std::time::Duration;
    ///
    /// let guard = client.mutex("orders:42").lock_with(|call| call.lease(Duration::from_secs(5)))?;
    /// guard.extend(Duration::from_secs(10))?;
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn extend(&self, lease: Duration) -> Result<()> {
        self.client.block_on(self.guard.held().extend(lease))
    }
}

impl LockGuard<RwLockWriteGuard> {
    /// Goes from writing to reading; see [`RwLockWriteGuard::downgrade`](crate::RwLockWriteGuard::downgrade).
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// let writer = client.rwlock("prices").write()?;
    /// let reader = writer.downgrade()?; // no other writer in between
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn downgrade(self) -> Result<LockGuard<RwLockReadGuard>> {
        let Self { guard, client } = self;
        let guard = client.block_on(guard.downgrade())?;
        Ok(LockGuard { guard, client })
    }
}

impl LockGuard<Permit> {
    /// Leaves the permits to whoever adopts them; see [`Permit::detach`](crate::Permit::detach).
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// let id = client.semaphore("workers", 2).acquire()?.detach();
    /// let permit = client.adopt(id)?;
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    #[must_use = "the id is the only way to the permits before their lease ends"]
    pub fn detach(self) -> PermitId {
        self.guard.detach()
    }
}

impl LockGuard<MultiLockGuard> {
    /// Releases all of them now; see [`MultiLockGuard::release`].
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// let both = client.multi_lock(["account:7", "account:9"]).lock()?;
    /// both.release()?;
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn release(self) -> Result<()> {
        let Self { guard, client } = self;
        client.block_on(guard.release())
    }

    /// Asks that all holds last at least `lease` from now; see [`MultiLockGuard::extend`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn extend(&self, lease: Duration) -> Result<()> {
        self.client.block_on(self.guard.extend(lease))
    }
}

impl<G> Deref for LockGuard<G> {
    type Target = G;

    fn deref(&self) -> &G {
        &self.guard
    }
}

impl<G: fmt::Debug> fmt::Debug for LockGuard<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}

impl Client {
    /// Adopts permits that were [detached](crate::Permit::detach); see [`lockkeeper::Client::adopt`](crate::Client::adopt).
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// let id = client.semaphore("workers", 2).acquire()?.detach(); // send it to another process as text
    /// let permit = client.adopt(id.to_string().parse()?)?;
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn adopt(&self, id: PermitId) -> Result<LockGuard<Permit>> {
        self.block_on(self.inner.adopt(id)).map(|guard| LockGuard::new(guard, self))
    }
}
