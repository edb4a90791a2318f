//! A guard's part of a hold: what users see of it.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::{Grounds, Hold, Loss, Owner, Session};
use crate::backend::{Claim, LossReason};
use crate::error::{Error, Result};
use crate::name::Name;
use crate::owner::WireOwner;
use crate::token::Token;

/// A hold on something: what all guards have in common.
///
/// A guard derefs to this. Dropping it releases the hold in the background; that never blocks and never panics, with or
/// without an executor. `release()` of the guard releases it now and returns the result.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// # let client = lockkeeper::Client::connect("memory:").await?;
/// use lockkeeper::Held;
///
/// async fn report(held: &Held) -> lockkeeper::Result<()> {
///     let loss = held.loss(); // for another task or thread
///     held.run(async { /* dropped if the hold is lost */ }).await?;
///     tokio::select! {
///         reason = held.lost() => eprintln!("stop working: {reason}"),
///         () = async { /* the work */ } => assert!(held.is_valid() && !loss.is_lost()),
///     }
///     Ok(())
/// }
///
/// let guard = client.mutex("orders").lock().await?;
/// report(&guard).await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "if unused the lock is released at once"]
pub struct Held {
    hold: Arc<Hold>,
    /// False once released.
    live: bool,
}

impl Held {
    pub(super) fn new(hold: Arc<Hold>) -> Self {
        Self { hold, live: true }
    }

    /// What is held.
    #[must_use]
    pub fn name(&self) -> &str {
        self.hold.grounds.name.as_str()
    }

    /// Under which owner the store knows it. Guards of one process to which a mutex passed in turn share it; their
    /// [tokens](Self::token) have owners of their own.
    #[must_use]
    pub fn owner(&self) -> WireOwner {
        self.hold.grounds.owner
    }

    /// Whether the hold is still good: not known to be lost, and its deadline not reached. Once false, it stays false.
    ///
    /// Computed on the local boot clock, so it also tells the truth right after the process was paused. It is a check, not a promise:
    /// the next moment may be too late. Only a [fence](crate::fence) on the resource makes it safe.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.hold.is_valid()
    }

    /// How long the hold is good if no renewal gets through; zero when it is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        if self.hold.is_held() && !self.hold.core().is_forked() {
            self.hold.deadline().since(self.hold.core().runtime.now())
        } else {
            Duration::ZERO
        }
    }

    /// Waits until the hold is lost, and tells how that is known.
    ///
    /// While the store answers, a loss is told within a third of the lease and a round trip; otherwise when the deadline is reached.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing happens when it is dropped.
    pub async fn lost(&self) -> LossReason {
        self.hold.lost().await
    }

    /// Runs `work`, and drops it when the hold is lost.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the hold was lost before `work` ended.
    ///
    /// # Cancel safety
    ///
    /// As safe as `work`.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output> {
        tokio::select! {
            biased;
            reason = self.hold.lost() => Err(self.hold.lost_error(reason)),
            // The last poll of the work may have crossed the deadline.
            output = work => self.hold.ended().map_or(Ok(output), |reason| Err(self.hold.lost_error(reason))),
        }
    }

    /// Asks that the hold last at least `lease` from now. It is never shortened.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) if it is lost; [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for a
    /// lease that the store cannot keep; the store's errors, after which the hold is as good as before.
    ///
    /// # Cancel safety
    ///
    /// Safe: the hold may or may not have been extended.
    pub async fn extend(&self, lease: Duration) -> Result<()> {
        self.hold.extend(lease).await
    }

    /// The fencing token of this hold: give it to the resource, see [`fence`](crate::fence). `None` for permits of a semaphore, and on
    /// stores without fencing.
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        let Grounds { token, owner, id, .. } = self.hold.grounds;
        token.map(|token| Token::new(token, WireOwner { number: id, ..owner }))
    }

    /// Tells when the hold is lost, to a task or thread that does not have the guard.
    #[must_use]
    pub fn loss(&self) -> Loss {
        Loss::new(&self.hold)
    }

    pub(crate) fn full_name(&self) -> &Name {
        &self.hold.grounds.name
    }

    pub(crate) fn claim(&self) -> Claim {
        self.hold.grounds.claim
    }

    /// The owner that may re-enter it, if it was acquired for one.
    pub(crate) fn reentrant_owner(&self) -> Option<Owner> {
        self.hold.grounds.place.as_ref()?.owner()
    }

    pub(crate) fn session(&self) -> &Session {
        &self.hold.session
    }

    /// Leaves the hold at the store, without a guard and without renewals.
    pub(crate) fn detach(mut self) {
        self.live = false;
        if !self.hold.core().is_forked() && self.hold.leave() {
            self.hold.end();
        }
    }

    pub(crate) fn reenter(&self) -> Result<Self> {
        // This guard is one, so there is a hold to re-enter.
        self.hold.reenter()?.ok_or_else(|| self.hold.lost_error(LossReason::Closed))
    }

    /// Gives this guard's part back; the last one frees the name.
    pub(crate) async fn release(mut self) -> Result<()> {
        self.live = false;
        self.hold.core().check_process()?;
        if !self.hold.leave() {
            return self.hold.ended().map_or(Ok(()), |reason| Err(self.hold.lost_error(reason)));
        }
        match self.hold.core().release_now(&self.hold).await.map_err(Error::into_final)? {
            None => Ok(()),
            Some(reason) => Err(self.hold.lost_error(reason)),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // In a forked child the hold is the parent's.
        if self.live && !self.hold.core().is_forked() && self.hold.leave() {
            self.hold.core().release_later(&self.hold);
        }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.hold.fmt(f)
    }
}
