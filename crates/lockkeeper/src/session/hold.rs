//! What was granted: a lease with a deadline on the local clock, and how its end is told.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use super::line::Line;
use super::owner::Place;
use super::registry::Slot;
use super::{Core, Session};
use crate::backend::{Claim, Event, LossReason, Release, Renew, Renewed, drift};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::owner::WireOwner;
use crate::runtime::Instant;
use crate::token::Token;

/// One outermost hold, shared by the guards that re-entered it.
pub(crate) struct Hold {
    pub(super) session: Session,
    slot: Slot,
    pub(super) grounds: Grounds,
    granted_at: Instant,
    /// Not valid from here on, in nanoseconds of the local clock. Moves only forward, by renewals counted from when they were sent.
    deadline: AtomicU64,
    state: AtomicU8,
    guards: AtomicUsize,
    told: Notify,
}

/// What a hold was granted for.
pub(crate) struct Grounds {
    pub(crate) name: Name,
    pub(crate) claim: Claim,
    pub(crate) owner: WireOwner,
    pub(crate) token: Option<u64>,
    pub(crate) lease: Duration,
    /// How long the hold is safe, counted from `sent`: what the store answered.
    pub(crate) good_for: Duration,
    /// Renewed by the keeper; else it ends by itself and is only looked at.
    pub(crate) kept: bool,
    /// When the granting request was sent: the lease began no earlier.
    pub(crate) sent: Instant,
    /// Requests of this owner without an answer may still arrive until then.
    pub(crate) unsettled_until: Instant,
    pub(crate) line: Option<Arc<Line>>,
    /// The place with the [`Owner`](super::Owner) that may re-enter it.
    pub(crate) place: Option<Place>,
}

/// The states of a hold; it leaves `HELD` once.
const HELD: u8 = 0;
const RELEASED: u8 = 1;
const LOST_GONE: u8 = 2;
const LOST_EXPIRED: u8 = 3;
const LOST_CLOSED: u8 = 4;

/// An explicit lease is looked at for loss from this length on.
const PROBED_FROM: Duration = Duration::from_secs(3);

impl Hold {
    /// Registers what was granted with the keeper.
    pub(crate) fn new(session: &Session, grounds: Grounds) -> Arc<Self> {
        let core = session.core();
        let deadline = deadline(grounds.sent, grounds.good_for);
        let third = grounds.lease / 3;
        let due = if grounds.watched() { grounds.sent.plus(third).min(deadline) } else { deadline };
        // A tenth of the renewal period: at most ten rounds in one.
        let slack = if grounds.watched() { third / 10 } else { Duration::ZERO };
        let granted_at = grounds.sent;
        // Before the keeper can know of it, so that no loss comes first.
        if grounds.claim.is_exclusive()
            && let Some(line) = &grounds.line
        {
            line.taken(grounds.owner);
        }
        let (hold, hurry) = core.registry().register(due, slack, |slot| Self {
            session: session.clone(),
            slot,
            grounds,
            granted_at,
            deadline: AtomicU64::new(deadline.as_nanos()),
            state: AtomicU8::new(HELD),
            guards: AtomicUsize::new(1),
            told: Notify::new(),
        });
        if hurry {
            core.keeper_wake.notify_one();
        }
        // Closed meanwhile: `close` has seen it in the registry, or we see here that it did not.
        if core.closed.load(Ordering::SeqCst) {
            hold.lose(LossReason::Closed);
        }
        hold
    }

    pub(super) fn slot(&self) -> Slot {
        self.slot
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        self.session.core()
    }

    pub(super) fn deadline(&self) -> Instant {
        Instant::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    /// A renewal sent at `sent` was answered.
    pub(super) fn renewed(&self, sent: Instant, lease: Duration) {
        self.deadline.fetch_max(deadline(sent, lease).as_nanos(), Ordering::AcqRel);
    }

    pub(super) fn is_held(&self) -> bool {
        self.state.load(Ordering::Acquire) == HELD
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.is_held() && self.core().runtime.now() < self.deadline() && !self.core().is_forked()
    }

    /// Ends the hold as lost and tells everybody who waits for that. Does nothing if it has ended before.
    pub(super) fn lose(&self, reason: LossReason) {
        let state = match reason {
            LossReason::Gone => LOST_GONE,
            LossReason::Expired => LOST_EXPIRED,
            LossReason::Closed => LOST_CLOSED,
        };
        if self.state.compare_exchange(HELD, state, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            let Grounds { name, claim, owner, .. } = &self.grounds;
            self.core().backend.note(&Event::Lost { name, claim: *claim, owner: *owner, reason });
            self.told.notify_waiters();
            self.leave_line();
        }
    }

    fn lost_by(&self) -> Option<LossReason> {
        match self.state.load(Ordering::Acquire) {
            LOST_GONE => Some(LossReason::Gone),
            LOST_EXPIRED => Some(LossReason::Expired),
            LOST_CLOSED => Some(LossReason::Closed),
            _ => None,
        }
    }

    fn lost_error(&self, reason: LossReason) -> Error {
        Error::new(ErrorKind::Lost, format!("the hold on {:?} is lost: {reason}", self.grounds.name))
    }

    /// How it ended, if it did: told by the store, or by the local clock.
    fn ended(&self) -> Option<LossReason> {
        self.ended_by(self.core().runtime.now())
    }

    fn ended_by(&self, now: Instant) -> Option<LossReason> {
        if self.is_held() && now >= self.deadline() {
            self.lose(LossReason::Expired);
        }
        self.lost_by()
    }

    async fn lost(&self) -> LossReason {
        if self.core().is_forked() {
            return LossReason::Closed;
        }
        loop {
            let mut told = std::pin::pin!(self.told.notified());
            told.as_mut().enable();
            if let Some(reason) = self.ended() {
                return reason;
            }
            // The deadline may move while we sleep; then we look again and sleep on.
            tokio::select! {
                () = told => {}
                () = self.core().runtime.sleep_until(self.deadline()) => {}
            }
        }
    }

    async fn extend(&self, lease: Duration) -> Result<()> {
        let core = self.core();
        core.check_process()?;
        core.capabilities.check_lease(lease)?;
        if let Some(reason) = self.ended() {
            return Err(self.lost_error(reason));
        }
        let sent = core.runtime.now();
        let request = self.renewal(Some(lease));
        let mut answers = core.call(core.settings.limit(lease), core.backend.renew(vec![request])).await?;
        match answers.pop() {
            Some(Ok(Renewed::Kept { good_for })) => {
                self.renewed(sent, good_for);
                Ok(())
            }
            Some(Ok(Renewed::Gone)) => {
                self.lose(LossReason::Gone);
                Err(self.lost_error(LossReason::Gone))
            }
            Some(Err(error)) => Err(error),
            None => Err(Error::new(ErrorKind::Protocol, "the store left a renewal without an answer")),
        }
    }

    pub(super) fn renewal(&self, lease: Option<Duration>) -> Renew {
        let Grounds { name, claim, owner, .. } = &self.grounds;
        Renew { name: name.clone(), claim: *claim, owner: *owner, lease }
    }

    pub(super) fn release_request(&self) -> Release {
        let Grounds { name, claim, owner, .. } = &self.grounds;
        Release { name: name.clone(), claim: *claim, owner: *owner, then: None, settle: false }
    }

    /// The first guard.
    pub(crate) fn enter(self: Arc<Self>) -> Held {
        Held { hold: self, live: true }
    }

    /// One more guard; `None` if the last one is just giving it back.
    pub(crate) fn reenter(self: &Arc<Self>) -> Result<Option<Held>> {
        self.core().check_process()?;
        if let Some(reason) = self.ended() {
            return Err(self.lost_error(reason));
        }
        let more = |guards| if guards > 0 { Some(guards + 1) } else { None };
        let entered = self.guards.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok();
        Ok(entered.then(|| Held { hold: Arc::clone(self), live: true }))
    }

    /// One guard less; whether it was the last, which then has to give it back.
    fn leave(&self) -> bool {
        let last = self.guards.fetch_sub(1, Ordering::AcqRel) == 1;
        if last && let Some(place) = &self.grounds.place {
            place.vacate(self);
        }
        last
    }

    /// Ends the hold as given back; `None` if it had not been lost before.
    pub(super) fn end(&self) -> Option<LossReason> {
        let now = self.core().runtime.now();
        let reason = self.ended_by(now);
        if self.state.compare_exchange(HELD, RELEASED, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            let Grounds { name, claim, owner, .. } = &self.grounds;
            let held = now.since(self.granted_at);
            self.core().backend.note(&Event::Released { name, claim: *claim, owner: *owner, held });
        }
        self.core().registry().leave(self);
        reason
    }

    /// The local queue no longer counts on this hold.
    fn leave_line(&self) {
        if let Some(line) = &self.grounds.line {
            line.left(self.grounds.owner);
        }
    }
}

impl Grounds {
    /// Whether the keeper asks the store about it.
    pub(super) fn watched(&self) -> bool {
        self.kept || self.lease >= PROBED_FROM
    }
}

/// When a grant stops being good: counted from before it was sent, less what clocks may drift apart (P3).
fn deadline(sent: Instant, lease: Duration) -> Instant {
    sent.plus(lease.saturating_sub(drift(lease)))
}

/// A hold on something: what all guards have in common.
///
/// A guard derefs to this. Dropping it gives the hold back in the background; it never blocks and never panics, with or
/// without an executor. `release()` of the guard gives it back now and tells the result.
#[must_use = "if unused the lock is released at once"]
pub struct Held {
    hold: Arc<Hold>,
    /// False once given back.
    live: bool,
}

impl Held {
    /// What is held.
    #[must_use]
    pub fn name(&self) -> &str {
        self.hold.grounds.name.as_str()
    }

    /// Under which owner the store knows it.
    #[must_use]
    pub fn owner(&self) -> WireOwner {
        self.hold.grounds.owner
    }

    /// Whether the hold is still good: not known to be lost, and its deadline not reached.
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
    /// [`ErrorKind::Lost`] if the hold was lost before `work` ended.
    ///
    /// # Cancel safety
    ///
    /// As safe as `work`.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output> {
        tokio::select! {
            biased;
            reason = self.hold.lost() => Err(self.hold.lost_error(reason)),
            output = work => Ok(output),
        }
    }

    /// Asks that the hold last at least `lease` from now. It is never shortened.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] if it is lost; [`ErrorKind::InvalidArgument`] for a lease that the store cannot keep; the store's errors, after
    /// which the hold is as good as before.
    ///
    /// # Cancel safety
    ///
    /// Safe: the hold may or may not have been extended.
    pub async fn extend(&self, lease: Duration) -> Result<()> {
        self.hold.extend(lease).await
    }

    pub(crate) fn token(&self) -> Token {
        Token::new(self.hold.grounds.token.unwrap_or(0), self.hold.grounds.owner)
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
            return Ok(());
        }
        match self.hold.core().release_now(&self.hold).await? {
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

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Grounds { name, claim, owner, token, .. } = &self.grounds;
        f.debug_struct("Hold")
            .field("name", name)
            .field("claim", claim)
            .field("owner", owner)
            .field("token", token)
            .finish_non_exhaustive()
    }
}
