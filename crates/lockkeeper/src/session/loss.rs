//! Telling that a hold is lost, to tasks and threads that do not have the guard.

use std::fmt;
use std::future::IntoFuture;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::Hold;
use crate::backend::LossReason;
use crate::runtime::{self, BoxFuture};

/// Tells when a hold is lost. It is `Clone + Send + 'static`, so it can go to another task or thread while the guard stays.
///
/// Awaited, it gives the reason as soon as the hold is lost, or `None` when the guard was released or dropped first. A loss is told
/// within a third of the lease and a round trip while the store answers, and otherwise when the deadline is reached.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// let client = lockkeeper::Client::connect("memory:").await?;
/// let guard = client.mutex("orders").lock().await?;
/// let loss = guard.loss();
/// let watching = tokio::spawn(async move {
///     if let Some(reason) = loss.await {
///         eprintln!("stop working: {reason}");
///     }
/// });
/// guard.release().await?;
/// watching.await.unwrap();
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Loss(Arc<Hold>);

impl Loss {
    pub(super) fn new(hold: &Arc<Hold>) -> Self {
        Self(Arc::clone(hold))
    }

    /// How the hold was lost, if it is known now.
    #[must_use]
    pub fn reason(&self) -> Option<LossReason> {
        self.0.ended()
    }

    /// Whether the hold is known to be lost.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.reason().is_some()
    }

    /// Blocks this thread until the hold is lost, the guard is gone, or `limit` has passed; the reason if it is lost.
    ///
    /// For threads; in a task await it instead.
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// let guard = client.mutex("orders").lock()?;
    /// let loss = guard.loss();
    /// let watching = std::thread::spawn(move || loss.wait_timeout(std::time::Duration::from_millis(5)));
    /// assert_eq!(watching.join().unwrap(), None, "still held");
    /// assert_eq!(guard.loss().reason(), None);
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    #[must_use]
    pub fn wait_timeout(&self, limit: Duration) -> Option<LossReason> {
        let hold = &self.0;
        let clock = &hold.core().runtime;
        let end = clock.now().plus(limit);
        loop {
            let mut told = pin!(hold.told());
            told.as_mut().enable();
            let now = clock.now();
            let reason = hold.ended();
            if reason.is_some() || !hold.is_held() || now >= end {
                return reason;
            }
            runtime::park_on(hold.deadline().min(end).since(now), told);
        }
    }

    async fn told(self) -> Option<LossReason> {
        let hold = &self.0;
        loop {
            let mut told = pin!(hold.told());
            told.as_mut().enable();
            let reason = hold.ended();
            if reason.is_some() || !hold.is_held() {
                return reason;
            }
            // The deadline may have moved when the timer fires.
            tokio::select! {
                biased;
                () = told => {}
                () = hold.core().runtime.sleep_until(hold.deadline()) => {}
            }
        }
    }
}

impl IntoFuture for Loss {
    type Output = Option<LossReason>;
    type IntoFuture = BoxFuture<'static, Option<LossReason>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.told())
    }
}

impl fmt::Debug for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loss").field("hold", &self.0).field("reason", &self.reason()).finish()
    }
}
