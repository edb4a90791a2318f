//! One guard for several holds.

use std::fmt;
use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

use crate::backend::LossReason;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::{self, log};
use crate::session::{Held, Loss};
use crate::token::Token;

/// Holds all locks of a [`MultiLock`](crate::MultiLock).
///
/// It is lost when one of them is. Dropping it gives all of them back in the background.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// # let client = lockkeeper::Client::connect("memory:").await?;
/// let both = client.multi_lock(["account:7", "account:9"]).lock().await?;
/// assert!(both.is_valid() && both.tokens().count() == 2);
/// both.run(async { /* dropped if one of them is lost */ }).await?;
/// tokio::select! {
///     reason = both.lost() => eprintln!("stop working: {reason}"),
///     () = async { /* the work */ } => {}
/// }
/// both.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "if unused the locks are released at once"]
#[clippy::has_significant_drop]
pub struct MultiLockGuard(Vec<Held>);

impl MultiLockGuard {
    pub(super) fn new(held: Vec<Held>) -> Self {
        Self(held)
    }

    /// The holds, in the order in which the locks were named.
    pub fn holds(&self) -> &[Held] {
        &self.0
    }

    /// The fencing token of each lock that has one, by name, in the order in which they were named. Permits have none.
    pub fn tokens(&self) -> impl Iterator<Item = (&str, Token)> {
        self.0.iter().filter_map(|held| Some((held.name(), held.token()?)))
    }

    /// Whether all holds are still good: see [`Held::is_valid`].
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.0.iter().all(Held::is_valid)
    }

    /// How long all of them are good if no renewal gets through; zero when one is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.iter().map(Held::remaining).min().unwrap_or_default()
    }

    /// Waits until one of the holds is lost, and tells how that is known.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing happens when it is dropped.
    pub async fn lost(&self) -> LossReason {
        let mut losses: Vec<_> = self.0.iter().map(|held| Box::pin(held.lost())).collect();
        poll_fn(|context| {
            let lost = losses.iter_mut().map(|loss| loss.as_mut().poll(context)).find(Poll::is_ready);
            lost.unwrap_or(Poll::Pending)
        })
        .await
    }

    /// Tells for each hold when it is lost, in the order in which the locks were named: see [`Held::loss`].
    pub fn losses(&self) -> impl Iterator<Item = Loss> + '_ {
        self.0.iter().map(Held::loss)
    }

    /// Runs `work`, and drops it when one of the holds is lost.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] if one was lost before `work` ended.
    ///
    /// # Cancel safety
    ///
    /// As safe as `work`.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output> {
        tokio::select! {
            biased;
            reason = self.lost() => Err(Error::new(ErrorKind::Lost, format!("one of {} holds is lost: {reason}", self.0.len()))),
            output = work => {
                // The last poll of the work may have crossed a deadline.
                if self.is_valid() { Ok(output) } else { Err(Error::new(ErrorKind::Lost, "one of the holds ended before the work did")) }
            }
        }
    }

    /// Asks that all holds last at least `lease` from now, one after the other. They are never shortened.
    ///
    /// # Errors
    ///
    /// As [`Held::extend`]; some may have been extended.
    ///
    /// # Cancel safety
    ///
    /// Safe: some may have been extended.
    pub async fn extend(&self, lease: Duration) -> Result<()> {
        for held in &self.0 {
            held.extend(lease).await?;
        }
        Ok(())
    }

    /// Gives all of them back now, all at once.
    ///
    /// # Errors
    ///
    /// The first error of one of them, as [`MutexGuard::release`](crate::MutexGuard::release): `Lost` comes before others.
    ///
    /// # Cancel safety
    ///
    /// Safe: the releases go on in the background.
    pub async fn release(self) -> Result<()> {
        let released: Vec<_> = self.0.into_iter().map(|held| runtime::beside(held.release())).collect();
        let mut all = Ok(());
        for released in released {
            let gone = || Err(Error::new(ErrorKind::Indeterminate, "the executor that released it is gone"));
            match (&all, released.await.unwrap_or_else(gone)) {
                (Ok(()), Err(error)) => all = Err(error),
                (Err(_), Err(error)) if error.kind() == ErrorKind::Lost => all = Err(error),
                _ => {}
            }
        }
        all
    }

    /// Gives back what was taken in vain. What a store does not take the keeper sees to.
    pub(super) async fn give_up(self) {
        if let Err(error) = self.release().await {
            log!(debug, %error, "a lock that was not kept was not released at once");
        }
    }
}

impl fmt::Debug for MultiLockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MultiLockGuard").field(&self.0).finish()
    }
}
