//! A gate that opens when a number of events have happened.

use std::future::Future;

use super::call::Target;
use super::counting::{WaitCall, count};
use crate::backend::{CountOp, Counted, LatchOp};
use crate::error::{Error, ErrorKind, Result};
use crate::session::Session;

/// A gate that opens when a number of events have happened.
///
/// A latch that was never set is open, and so is one whose count reached zero; it may be set again then.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// let client = lockkeeper::Client::connect("memory:").await?;
/// let ready = client.latch("shards-loaded");
/// assert!(ready.try_set(2).await?);
/// ready.count_down().await?;
/// assert_eq!(ready.count_down().await?, 0);
/// ready.wait().await?;
/// # Ok(()) }
/// ```
#[doc(alias = "RCountDownLatch")]
#[derive(Clone, Debug)]
pub struct CountDownLatch(Target);

impl CountDownLatch {
    /// The latch `name` at the session's store.
    #[doc(hidden)]
    pub fn new(session: &Session, name: impl AsRef<str>) -> Self {
        Self(Target::new(session, name))
    }

    /// Closes the latch with `count` events to go, only if it is open; tells whether it did.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for zero; `WrongKind` if another kind lives there; the store's errors.
    ///
    /// # Cancel safety
    ///
    /// It may or may not have happened.
    #[doc(alias = "trySetCount")]
    pub fn try_set(&self, count: u32) -> impl Future<Output = Result<bool>> + Send + use<> {
        let counted = self.count_op(LatchOp::Init(count));
        async move {
            if count == 0 {
                return Err(Error::new(ErrorKind::InvalidArgument, "a latch of 0 would be open; set at least 1"));
            }
            Ok(counted.await?.done)
        }
    }

    /// One event happened; gives how many are still to go. Does nothing to an open latch.
    ///
    /// # Errors
    ///
    /// `WrongKind` if another kind lives there; the store's errors.
    ///
    /// # Cancel safety
    ///
    /// It may or may not have happened.
    #[doc(alias = "countDown")]
    pub fn count_down(&self) -> impl Future<Output = Result<u32>> + Send + use<> {
        let counted = self.count_op(LatchOp::Down);
        async move { counted.await.map(to_go) }
    }

    /// How many events are still to go; 0 is open.
    ///
    /// # Errors
    ///
    /// `WrongKind` if another kind lives there; the store's errors.
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    #[doc(alias = "getCount")]
    pub fn count(&self) -> impl Future<Output = Result<u32>> + Send + use<> {
        let counted = self.count_op(LatchOp::Read);
        async move { counted.await.map(to_go) }
    }

    /// Waits until the latch is open.
    #[doc(alias = "await")]
    pub fn wait(&self) -> WaitCall {
        WaitCall::new(&self.0, CountOp::Latch(LatchOp::Read))
    }

    /// Opens the latch, however many events were to go; tells whether it was closed. Those who wait go on.
    ///
    /// # Errors
    ///
    /// `WrongKind` if another kind lives there; the store's errors.
    ///
    /// # Cancel safety
    ///
    /// It may or may not have happened.
    pub fn remove(&self) -> impl Future<Output = Result<bool>> + Send + use<> {
        let counted = self.count_op(LatchOp::Remove);
        async move { Ok(counted.await?.done) }
    }

    fn count_op(&self, op: LatchOp) -> impl Future<Output = Result<Counted>> + Send + use<> {
        count(&self.0, CountOp::Latch(op))
    }
}

fn to_go(counted: Counted) -> u32 {
    u32::try_from(counted.value).unwrap_or(0)
}
