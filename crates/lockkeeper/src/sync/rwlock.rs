//! Many readers or one writer.

use super::acquire::downgrade;
use super::options::{Acquiring, Guard, TryAcquiring};
use super::target::Target;
use super::{fenced_guard, guard};
use crate::backend::{Claim, Kind};
use crate::error::{Error, ErrorKind, Result};
use crate::session::{Held, Owner, Session};

/// A lock for many readers or one writer.
///
/// *Fairness:* a reader yields to writers that were waiting before it came, and to no others: neither side starves.
///
/// A writer may become a reader without letting another writer in between ([`downgrade`](Self::downgrade)). The other way does not
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
/// let reader = prices.downgrade(writer).await?;
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

/// Shares a [`RwLock`] with other readers.
#[must_use = "if unused the lock is released at once"]
#[clippy::has_significant_drop]
pub struct RwLockReadGuard(Held);

/// Has a [`RwLock`] to itself.
#[must_use = "if unused the lock is released at once"]
#[clippy::has_significant_drop]
pub struct RwLockWriteGuard(Held);

impl RwLock {
    /// The read-write lock `name` at the session's store.
    pub fn new(session: &Session, name: impl AsRef<str>) -> Self {
        let reading = Target::new(session, name);
        Self { writing: reading.clone().lined(Kind::RwLock), reading }
    }

    /// The same lock for this owner, who may take a side again while holding it, and read while writing.
    #[must_use]
    pub fn owned_by(&self, owner: &Owner) -> Self {
        Self { reading: self.reading.owned_by(owner), writing: self.writing.owned_by(owner) }
    }

    /// Takes a share, waiting for it.
    pub fn read(&self) -> Acquiring<'_, RwLockReadGuard> {
        Acquiring::new(&self.reading, Ok(Claim::Read))
    }

    /// Takes a share if there is neither a writer nor one that waits.
    pub fn try_read(&self) -> TryAcquiring<'_, RwLockReadGuard> {
        TryAcquiring::new(&self.reading, Ok(Claim::Read))
    }

    /// Takes all of it, waiting for it.
    pub fn write(&self) -> Acquiring<'_, RwLockWriteGuard> {
        Acquiring::new(&self.writing, Ok(Claim::Write))
    }

    /// Takes all of it if nobody has a part of it now.
    pub fn try_write(&self) -> TryAcquiring<'_, RwLockWriteGuard> {
        TryAcquiring::new(&self.writing, Ok(Claim::Write))
    }

    /// Goes from writing to reading, with no other writer in between. Waiting readers come in.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for the guard of another lock; `Lost` if the hold is gone; the store's errors. In each case the write guard is
    /// dropped.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropped, it releases both.
    pub async fn downgrade(&self, writer: RwLockWriteGuard) -> Result<RwLockReadGuard> {
        let name = self.reading.name()?;
        if writer.name() != name.as_str() {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("the guard holds {:?}, not {name:?}", writer.name())));
        }
        // A read hold of our own under the writer's owner; re-entered guards of it stay what they are.
        let reader = downgrade(&self.reading, &writer, None).await?;
        let reader = reader
            .ok_or_else(|| Error::new(ErrorKind::Lost, format!("the hold on {name:?} was lost before it was downgraded")))?;
        writer.release().await?;
        Ok(RwLockReadGuard::new(reader))
    }
}

guard!(RwLockReadGuard);
fenced_guard!(RwLockReadGuard);
guard!(RwLockWriteGuard);
fenced_guard!(RwLockWriteGuard);
