//! What was granted: a lease with a deadline on the local clock, and how its end is told.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::futures::Notified;

use super::reach::AskedUntil;
use super::registry::Slot;
use super::{Core, Grounds, Held, Session, Undo, WireHold};
use crate::backend::{Claim, Event, LossReason, Release, Renew, Renewed, drift};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::sync::{
    Notify,
    atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering},
};
use crate::runtime::{Instant, caught, log};

/// One outermost hold, shared by the guards that re-entered it.
pub(crate) struct Hold {
    pub(super) session: Session,
    slot: Slot,
    pub(super) grounds: Grounds,
    granted_at: Instant,
    /// Not valid from here on, in nanoseconds of the local clock. Moves only forward, by renewals counted from when they were sent.
    deadline: AtomicU64,
    /// Where holds live in a session: when an explicit lease ends, in nanoseconds of the local clock. The store does not end it, the keeper does.
    ends: AtomicU64,
    pub(super) asked_until: AskedUntil,
    /// The lease, in nanoseconds: longer than the one granted after `extend`.
    lease: AtomicU64,
    state: AtomicU8,
    guards: AtomicUsize,
    told: Notify,
}

/// The states of a hold; it leaves `HELD` once.
const HELD: u8 = 0;
const RELEASED: u8 = 1;
const LOST_GONE: u8 = 2;
const LOST_EXPIRED: u8 = 3;
const LOST_CLOSED: u8 = 4;
const LOST_MAX_HOLD: u8 = 5;

/// An explicit lease is looked at for loss from this length on.
const PROBED_FROM: Duration = Duration::from_secs(3);

impl Hold {
    /// Registers what was granted with the keeper.
    pub(crate) fn new(session: &Session, grounds: Grounds) -> Arc<Self> {
        let core = session.core();
        let in_session = core.capabilities.liveness.session().is_some();
        let explicit = in_session && !grounds.kept;
        let ends = if explicit { deadline(grounds.sent, grounds.lease) } else { Instant::NEVER };
        let safe_until = deadline(grounds.sent, grounds.good_for).min(grounds.until);
        let deadline = safe_until.min(ends);
        let (third, watched) = (grounds.lease / 3, is_watched(core, grounds.kept, grounds.lease));
        let due = if watched { grounds.sent.plus(third).min(deadline) } else { deadline };
        // A tenth of the renewal period: at most ten rounds in one.
        let slack = if watched { third / 10 } else { Duration::ZERO };
        let lease = grounds.lease;
        let asked_until = AskedUntil::new(grounds.sent.plus(lease.max(grounds.good_for)));
        let granted_at = if grounds.passes > 0 { core.runtime.now() } else { grounds.sent };
        // Before the keeper can know of it, so that no loss comes first.
        if grounds.claim.is_exclusive()
            && let Some(queue) = &grounds.queue
            && queue.taken((grounds.owner, grounds.token), grounds.handed_over, grounds.sent)
        {
            core.check_queue(&grounds.name, queue);
        }
        let (hold, hurry) = core.registry().register(due, slack, |slot| Self {
            session: session.clone(),
            slot,
            grounds,
            granted_at,
            deadline: AtomicU64::new(safe_until.as_nanos()),
            ends: AtomicU64::new(ends.as_nanos()),
            asked_until,
            lease: AtomicU64::new(nanos(lease)),
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
        // Told before it was registered.
        if core.ended.includes(hold.grounds.owner, hold.grounds.session) {
            hold.lose(LossReason::Gone);
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
        Instant::from_nanos(self.deadline.load(Ordering::Acquire).min(self.ends.load(Ordering::Acquire)))
    }

    /// A renewal sent at `sent` was answered. After the deadline it revives nothing: a hold that did not look valid never does again.
    pub(super) fn renewed(&self, sent: Instant, lease: Duration) -> Option<LossReason> {
        let ended = self.ended();
        if ended.is_none() {
            self.deadline.fetch_max(deadline(sent, lease).min(self.grounds.until).as_nanos(), Ordering::AcqRel);
        }
        ended
    }

    /// The lease, as it was extended.
    pub(super) fn lease(&self) -> Duration {
        Duration::from_nanos(self.lease.load(Ordering::Acquire))
    }

    /// Whether the keeper asks the store about it.
    pub(super) fn is_watched(&self) -> bool {
        is_watched(self.core(), self.grounds.kept, self.lease())
    }

    pub(super) fn is_held(&self) -> bool {
        self.state.load(Ordering::Acquire) == HELD
    }

    pub(crate) fn is_valid(&self) -> bool {
        // It ends the hold whose deadline has come: once false, it stays false.
        self.ended().is_none() && self.is_held()
    }

    /// Ends the hold as lost and tells everybody who waits for that. Does nothing if it has ended before.
    pub(super) fn lose(&self, reason: LossReason) {
        let state = match reason {
            LossReason::Gone => LOST_GONE,
            LossReason::Expired => LOST_EXPIRED,
            LossReason::Closed => LOST_CLOSED,
            LossReason::MaxHold => LOST_MAX_HOLD,
        };
        if self.state.compare_exchange(HELD, state, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            let Grounds { name, claim, owner, .. } = &self.grounds;
            self.core().notify(&Event::Lost { name, claim: *claim, owner: *owner, reason });
            // Wakers are code of the user's: one that panics must not keep the rest from being done.
            let (told, left) = (caught(|| self.told.notify_waiters()), caught(|| self.leave_queue()));
            if told.and(left).is_none() {
                log!(error, %name, "the waker of a task that waits for this lock panicked");
            }
            // Where holds live in a session, nothing else ends it as long as the client lives.
            if matches!(reason, LossReason::Expired | LossReason::MaxHold)
                && self.core().capabilities.liveness.session().is_some()
            {
                self.core().undo(Undo::of(self));
            }
        }
    }

    /// Ends the hold because its deadline has come.
    pub(super) fn expire(&self, now: Instant) {
        self.lose(if now >= self.grounds.until { LossReason::MaxHold } else { LossReason::Expired });
    }

    /// Resolves when the hold has ended.
    pub(super) fn told(&self) -> Notified<'_> {
        self.told.notified()
    }

    fn lost_by(&self) -> Option<LossReason> {
        match self.state.load(Ordering::Acquire) {
            LOST_GONE => Some(LossReason::Gone),
            LOST_EXPIRED => Some(LossReason::Expired),
            LOST_CLOSED => Some(LossReason::Closed),
            LOST_MAX_HOLD => Some(LossReason::MaxHold),
            _ => None,
        }
    }

    pub(super) fn lost_error(&self, reason: LossReason) -> Error {
        Error::new(ErrorKind::Lost, format!("the hold on {:?} is lost: {reason}", self.grounds.name))
    }

    /// How it ended, if it did: told by the store, or by the local clock.
    pub(super) fn ended(&self) -> Option<LossReason> {
        if self.core().is_forked() {
            return Some(LossReason::Closed);
        }
        self.ended_by(self.core().runtime.now())
    }

    fn ended_by(&self, now: Instant) -> Option<LossReason> {
        if self.is_held() && now >= self.deadline() {
            self.expire(now);
        }
        self.lost_by()
    }

    pub(super) async fn lost(&self) -> LossReason {
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
                biased;
                () = told => {}
                () = self.core().runtime.sleep_until(self.deadline()) => {}
            }
        }
    }

    pub(super) async fn extend(&self, lease: Duration) -> Result<()> {
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
                // Answered after the deadline: another owner may have held it meanwhile.
                if let Some(reason) = self.renewed(sent, good_for) {
                    return Err(self.lost_error(reason));
                }
                self.ends.fetch_max(deadline(sent, lease).as_nanos(), Ordering::AcqRel);
                self.probe_from(sent, lease);
                Ok(())
            }
            Some(Ok(Renewed::Gone)) => {
                self.lose(LossReason::Gone);
                Err(self.lost_error(LossReason::Gone))
            }
            Some(Err(error)) => Err(error),
            None => Err(Error::new(ErrorKind::Protocol, "store returned 0 answers for 1 renewal")),
        }
    }

    /// A short lease that was extended is probed for loss from now on.
    fn probe_from(&self, sent: Instant, lease: Duration) {
        if self.is_watched() || lease < PROBED_FROM {
            return;
        }
        self.lease.fetch_max(nanos(lease), Ordering::AcqRel);
        let due = sent.plus(lease / 3).min(self.deadline());
        let hurry = self.core().registry().reschedule(self, due, Duration::ZERO);
        if hurry {
            self.core().keeper_wake.notify_one();
        }
    }

    pub(super) fn renewal(&self, lease: Option<Duration>) -> Renew {
        let Grounds { name, claim, owner, .. } = &self.grounds;
        let lease = lease.map(|lease| self.clipped(lease));
        Renew::new(name.clone(), *claim, *owner, lease).with_reach(self.asked_until.with(lease, &self.core().runtime))
    }

    /// A lease that does not outlast the longest time that it may be held.
    fn clipped(&self, lease: Duration) -> Duration {
        let until = self.grounds.until;
        if until == Instant::NEVER {
            return lease;
        }
        let core = self.core();
        let left = until.since(core.runtime.now());
        // Longer by what is subtracted for the drift of clocks: it ends at its limit, not before.
        lease.min(left + drift(left) * 2).max(core.capabilities.min_lease)
    }

    /// Where late requests are not refused, one that got no answer could still be granted after the release: the release has to settle it.
    pub(super) fn release_request(&self) -> Release {
        let Grounds { name, claim, owner, unsettled_until, .. } = &self.grounds;
        let settle = *unsettled_until != Instant::default() && !self.core().capabilities.refuses_late;
        Release::new(name.clone(), *claim, *owner).with_settle(settle)
    }

    /// The hold as it may pass to another guard. Not one with a lease or a limit of its own, one that was extended, and none that may be released
    /// once more by a request that is still on its way.
    pub(super) fn as_wire_hold(&self) -> Option<WireHold> {
        let Grounds { claim, owner, token, spare_tokens, passes, kept, until, unsettled_until, sent, good_for, .. } =
            self.grounds;
        let extended = self.deadline() > deadline(sent, good_for);
        let plain = kept && until == Instant::NEVER && !extended;
        let settled = unsettled_until == Instant::default();
        let hold = WireHold { owner, token, spare_tokens, passes, confirmed: sent, good_for };
        (claim == Claim::Mutex && plain && settled).then_some(hold)
    }

    /// The first guard.
    pub(crate) fn enter(self: Arc<Self>) -> Held {
        Held::new(self)
    }

    /// One more guard; `None` if the last one is being released.
    pub(crate) fn reenter(self: &Arc<Self>) -> Result<Option<Held>> {
        self.core().check_process()?;
        if let Some(reason) = self.ended() {
            return Err(self.lost_error(reason));
        }
        let more = |guards| if guards > 0 { Some(guards + 1) } else { None };
        let entered = self.guards.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok();
        Ok(entered.then(|| Held::new(Arc::clone(self))))
    }

    /// One guard less; whether it was the last, which then has to release the hold.
    pub(super) fn leave(&self) -> bool {
        let last = self.guards.fetch_sub(1, Ordering::AcqRel) == 1;
        if last && let Some(place) = &self.grounds.place {
            place.vacate(self);
        }
        last
    }

    /// Ends the hold as released; `None` if it had not been lost before.
    pub(super) fn end(&self) -> Option<LossReason> {
        let now = self.core().runtime.now();
        let reason = self.ended_by(now);
        if self.state.compare_exchange(HELD, RELEASED, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            let Grounds { name, claim, owner, .. } = &self.grounds;
            let held = now.since(self.granted_at);
            self.core().notify(&Event::Released { name, claim: *claim, owner: *owner, held });
            self.told.notify_waiters();
        }
        self.core().registry().leave(self);
        reason
    }

    /// The local queue no longer counts on this hold.
    fn leave_queue(&self) {
        if let Some(queue) = &self.grounds.queue {
            queue.left(self.grounds.owner, self.core().runtime.now());
        }
    }
}

/// Whether the keeper asks the store about a hold. It does not where the session is kept alive for all holds, and the store tells of a hold
/// that was deleted.
fn is_watched(core: &Core, kept: bool, lease: Duration) -> bool {
    let told = core.capabilities.liveness.session().is_some() && core.capabilities.events;
    !told && (kept || lease >= PROBED_FROM)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// When a grant stops being good: counted from before it was sent, less what clocks may drift apart (P3).
fn deadline(sent: Instant, lease: Duration) -> Instant {
    sent.plus(lease.saturating_sub(drift(lease)))
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
