//! A bare shared number of permits.

use super::call::Target;
use super::counting::{WaitCall, count};
use crate::backend::{CountOp, CounterOp};
use crate::error::{Error, ErrorKind, Result};
use crate::session::Session;

/// A bare shared number of permits: nobody owns them, nothing comes back by itself.
///
/// Good for signalling ("three more jobs"), not for limiting: a crash keeps what it took. For limiting use
/// [`Semaphore`](crate::Semaphore). A counting semaphore that was never set has 0 permits.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// let client = lockkeeper::Client::connect("memory:").await?;
/// let jobs = client.counting_semaphore("jobs");
/// jobs.release(3).await?;
/// jobs.acquire(2).await?;
/// assert!(!jobs.try_acquire(2).await?);
/// assert_eq!(jobs.available().await?, 1);
/// # Ok(()) }
/// ```
#[doc(alias = "RSemaphore")]
#[derive(Clone, Debug)]
pub struct CountingSemaphore(Target);

impl CountingSemaphore {
    /// The counting semaphore `name` at the session's store.
    #[doc(hidden)]
    pub fn new(session: &Session, name: impl AsRef<str>) -> Self {
        Self(Target::new(session, name))
    }

    /// Takes `permits`, waiting until there are as many. Taking 0 is immediate.
    ///
    /// # Cancel safety
    ///
    /// Dropped while its request is on its way, the permits may be gone: see [`WaitCall`].
    pub fn acquire(&self, permits: u32) -> WaitCall {
        WaitCall::new(&self.0, CountOp::Counter(CounterOp::Take(permits)))
    }

    /// Takes `permits` if there are as many now; tells whether it did.
    ///
    /// # Errors
    ///
    /// `WrongKind` if another kind lives there; the store's errors.
    ///
    /// # Cancel safety
    ///
    /// Dropped while its request is on its way, the permits may be gone.
    pub async fn try_acquire(&self, permits: u32) -> Result<bool> {
        Ok(self.count(CounterOp::Take(permits)).await?.done)
    }

    /// Adds `permits` and wakes those who wait; gives the number afterwards.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for zero; `WrongKind` if another kind lives there; the store's errors.
    ///
    /// # Cancel safety
    ///
    /// It may or may not have happened.
    pub async fn release(&self, permits: u32) -> Result<i64> {
        if permits == 0 {
            return Err(Error::new(ErrorKind::InvalidArgument, "cannot release 0 permits; release at least 1"));
        }
        Ok(self.count(CounterOp::Give(permits)).await?.value)
    }

    /// Sets the number, only if it was never set; tells whether it did.
    ///
    /// # Errors
    ///
    /// `WrongKind` if another kind lives there; the store's errors.
    ///
    /// # Cancel safety
    ///
    /// It may or may not have happened.
    #[doc(alias = "trySetPermits")]
    pub async fn try_set(&self, permits: u32) -> Result<bool> {
        Ok(self.count(CounterOp::Init(permits)).await?.done)
    }

    /// Adds to the number, or takes away also below zero; gives the number afterwards.
    ///
    /// # Errors
    ///
    /// `WrongKind` if another kind lives there; the store's errors.
    ///
    /// # Cancel safety
    ///
    /// It may or may not have happened.
    #[doc(alias = "addPermits")]
    pub async fn add(&self, permits: i32) -> Result<i64> {
        Ok(self.count(CounterOp::Add(permits)).await?.value)
    }

    /// Sets the number to 0 and returns what it was, which may be negative.
    ///
    /// # Errors
    ///
    /// `WrongKind` if another kind lives there; the store's errors.
    ///
    /// # Cancel safety
    ///
    /// Dropped while its request is on its way, the permits may be gone.
    #[doc(alias = "drainPermits")]
    pub async fn drain(&self) -> Result<i64> {
        Ok(self.count(CounterOp::Drain).await?.value)
    }

    /// How many there are.
    ///
    /// # Errors
    ///
    /// `WrongKind` if another kind lives there; the store's errors.
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    #[doc(alias = "availablePermits")]
    pub async fn available(&self) -> Result<i64> {
        Ok(self.count(CounterOp::Read).await?.value)
    }

    /// Removes it; tells whether it was there.
    ///
    /// # Errors
    ///
    /// `WrongKind` if another kind lives there; the store's errors.
    ///
    /// # Cancel safety
    ///
    /// It may or may not have happened.
    pub async fn remove(&self) -> Result<bool> {
        Ok(self.count(CounterOp::Remove).await?.done)
    }

    async fn count(&self, op: CounterOp) -> Result<crate::backend::Counted> {
        count(&self.0, CountOp::Counter(op)).await
    }
}
