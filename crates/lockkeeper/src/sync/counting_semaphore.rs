//! A bare shared number of permits.

use std::future::Future;

use super::call::Target;
use super::counting::{WaitCall, count};
use crate::backend::{CountOp, Counted, CounterOp};
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
    pub fn try_acquire(&self, permits: u32) -> impl Future<Output = Result<bool>> + Send + use<> {
        let counted = self.count(CounterOp::Take(permits));
        async move { Ok(counted.await?.done) }
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
    pub fn release(&self, permits: u32) -> impl Future<Output = Result<i64>> + Send + use<> {
        let counted = self.count(CounterOp::Give(permits));
        async move {
            if permits == 0 {
                return Err(Error::new(ErrorKind::InvalidArgument, "cannot release 0 permits; release at least 1"));
            }
            Ok(counted.await?.value)
        }
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
    pub fn try_set(&self, permits: u32) -> impl Future<Output = Result<bool>> + Send + use<> {
        let counted = self.count(CounterOp::Init(permits));
        async move { Ok(counted.await?.done) }
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
    pub fn add(&self, permits: i32) -> impl Future<Output = Result<i64>> + Send + use<> {
        let counted = self.count(CounterOp::Add(permits));
        async move { Ok(counted.await?.value) }
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
    pub fn drain(&self) -> impl Future<Output = Result<i64>> + Send + use<> {
        let counted = self.count(CounterOp::Drain);
        async move { Ok(counted.await?.value) }
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
    pub fn available(&self) -> impl Future<Output = Result<i64>> + Send + use<> {
        let counted = self.count(CounterOp::Read);
        async move { Ok(counted.await?.value) }
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
    pub fn remove(&self) -> impl Future<Output = Result<bool>> + Send + use<> {
        let counted = self.count(CounterOp::Remove);
        async move { Ok(counted.await?.done) }
    }

    fn count(&self, op: CounterOp) -> impl Future<Output = Result<Counted>> + Send + use<> {
        count(&self.0, CountOp::Counter(op))
    }
}
