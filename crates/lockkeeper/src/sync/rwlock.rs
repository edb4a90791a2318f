//! Many readers or one writer.

use super::call::{Acquiring, Target, TryAcquiring};
use super::downgrade::downgrade;
use super::{hold_guard, inspectable, reentrant_guard};
use crate::backend::{Claim, Kind};
use crate::error::{Error, ErrorKind, Result};
use crate::session::{Held, Owner, Session};

/// A lock for many readers or one writer.
///
/// *Fairness:* a reader yields to writers that were waiting before it came, and to no others: neither side starves.
///
/// Readers of one client share a hold at the store: a reader joins one that was asked for less than 50 ms ago, unless a writer of the same
/// client waits. Their tokens are equal, and they lose it together. Readers with a lease or a limit of their own, and those of an [`Owner`],
/// have holds of their own.
///
/// A writer may become a reader without letting another writer in between ([`downgrade`](RwLockWriteGuard::downgrade)). The other way does not
/// exist: two readers that both want to write would wait for each other for ever. An [`Owner`] that reads and asks to write is
/// told so at once (`Deadlock`).
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// let client = lockkeeper::Client::connect("memory:").await?;
/// let prices = client.rwlock("prices");
///
/// let (one, two) = (prices.read().await?, prices.read().await?);
/// assert!(prices.try_write().await?.is_none());
/// one.release().await?;
/// two.release().await?;
/// let writer = prices.write().await?;
/// let reader = writer.downgrade().await?;
/// assert!(prices.try_read().await?.is_some());
/// # drop(reader);
/// # Ok(()) }
/// ```
#[doc(alias = "RReadWriteLock")]
#[derive(Clone, Debug)]
pub struct RwLock {
    reading: Target,
    writing: Target,
}

/// Holds the read side of a [`RwLock`], beside other readers.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// # let client = lockkeeper::Client::connect("memory:").await?;
/// let reader = client.rwlock("prices").read().await?;
/// assert!(reader.is_valid());
/// reader.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "if unused the lock is released at once"]
#[clippy::has_significant_drop]
pub struct RwLockReadGuard(Held);

/// Holds the write side of a [`RwLock`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// # let client = lockkeeper::Client::connect("memory:").await?;
/// let writer = client.rwlock("prices").write().await?;
/// let reader = writer.downgrade().await?; // no other writer in between
/// reader.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "if unused the lock is released at once"]
#[clippy::has_significant_drop]
pub struct RwLockWriteGuard(Held);

impl RwLock {
    /// The read-write lock `name` at the session's store.
    #[doc(hidden)]
    pub fn new(session: &Session, name: impl AsRef<str>) -> Self {
        let reading = Target::new(session, name);
        let writing = reading.clone().queued(Kind::RwLock);
        Self { reading: reading.beside_writers(&writing), writing }
    }

    /// The same lock for this owner. It may acquire a side again that it holds, and read while it writes.
    #[must_use]
    pub fn owned_by(&self, owner: &Owner) -> Self {
        Self { reading: self.reading.owned_by(owner), writing: self.writing.owned_by(owner) }
    }

    /// Acquires the read side, waiting until no writer holds it.
    pub fn read(&self) -> Acquiring<RwLockReadGuard> {
        Acquiring::new(&self.reading, Ok(Claim::Read))
    }

    /// Acquires the read side if no writer holds the lock or waits for it; returns `None` otherwise.
    pub fn try_read(&self) -> TryAcquiring<RwLockReadGuard> {
        TryAcquiring::new(&self.reading, Ok(Claim::Read))
    }

    /// Acquires the write side, waiting until nobody holds either side.
    pub fn write(&self) -> Acquiring<RwLockWriteGuard> {
        Acquiring::new(&self.writing, Ok(Claim::Write))
    }

    /// Acquires the write side if nobody holds either side now; returns `None` otherwise.
    pub fn try_write(&self) -> TryAcquiring<RwLockWriteGuard> {
        TryAcquiring::new(&self.writing, Ok(Claim::Write))
    }

    /// As [`RwLockWriteGuard::downgrade`], for a guard of this lock.
    ///
    /// # Errors
    ///
    /// As there; `InvalidArgument` for the guard of another lock.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub fn downgrade(&self, writer: RwLockWriteGuard) -> impl Future<Output = Result<RwLockReadGuard>> + Send + use<> {
        let target = self.reading.clone();
        async move {
            let name = target.name()?;
            if writer.name() != name.as_str() {
                let message = format!("the guard holds {:?}, not {name:?}", writer.name());
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
            writer.downgrade().await
        }
    }
}

impl RwLockWriteGuard {
    /// Goes from writing to reading, with no other writer in between. Waiting readers are let in.
    ///
    /// Other guards that re-entered the write hold keep it until they are gone.
    ///
    /// # Errors
    ///
    /// `Lost` if the hold is gone; the store's errors. In each case the write guard is dropped, and so released.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropped, it releases both.
    pub async fn downgrade(self) -> Result<RwLockReadGuard> {
        // A read hold of its own under the writer's owner.
        let reader = downgrade(&self.0).await?;
        let lost = || Error::new(ErrorKind::Lost, format!("the hold on {:?} was lost before it was downgraded", self.0.name()));
        let reader = RwLockReadGuard(reader.ok_or_else(lost)?);
        self.release().await?;
        Ok(reader)
    }
}

inspectable!(RwLock, Kind::RwLock, |this| &this.reading);
hold_guard!(RwLockReadGuard);
reentrant_guard!(RwLockReadGuard);
hold_guard!(RwLockWriteGuard);
reentrant_guard!(RwLockWriteGuard);
