//! One waiter in the local queue: its place, and what others may do on its behalf.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::places::Position;
use super::{LocalQueue, SHOWS_UP_WITHIN};
use crate::backend::{Acquire, Attempt, Claim, Subscription};
use crate::owner::WireOwner;
use crate::runtime::Instant;
use crate::runtime::sync::{Mutex, Notify};
use crate::session::stand::Stand;
use crate::session::{Moved, WireHold, lock};

#[derive(Debug, Default)]
pub(super) struct Waiter {
    pub(super) wake: Notify,
    pub(super) slot: Mutex<Slot>,
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) offer: Offer,
    /// Under which number of this client it last looked.
    pub(super) number: u64,
    /// By when it has to look again if it is first; `NEVER` while it is not known to be first.
    pub(super) due: Instant,
    /// It did not: others act in its place until it runs.
    pub(super) passed_over: bool,
    /// Its request is out.
    pub(super) asking: bool,
    /// A release of this process is freeing what it wants: it may ask beside others.
    pub(super) may_ask: bool,
}

impl Default for Slot {
    fn default() -> Self {
        Self { offer: Offer::Nothing, number: 0, due: Instant::NEVER, passed_over: false, asking: false, may_ask: false }
    }
}

/// What a waiter lets a local release ask for on its behalf. Most waiters wait for others: what few have is boxed.
#[derive(Debug)]
pub(super) enum Offer {
    Nothing,
    /// A request for the mutex. Every waiter leaves one, not only the first: the next first may not have run when the release comes.
    Ready(Wish),
    /// On its way to the store with a release; the waiter asks nothing itself meanwhile.
    Sent(Box<Sent>),
    Answered(Box<Answered>),
    /// A guard left it the hold, without a request.
    Passed(Box<Passed>),
    /// The keeper took it back.
    Revoked,
    /// The waiter is gone.
    Closed,
}

impl Offer {
    /// Whether the waiter has something to pick up, or will have.
    pub(super) const fn is_given(&self) -> bool {
        matches!(self, Self::Sent(_) | Self::Answered(_) | Self::Passed(_))
    }

    /// The owner other than the waiter's own under which it was given something.
    pub(super) fn given_under(&self) -> Option<WireOwner> {
        match self {
            Self::Answered(answered) if !answered.own => Some(answered.to),
            Self::Passed(passed) => Some(passed.hold.owner),
            _ => None,
        }
    }
}

/// What sets one request for a mutex apart from another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) lease: Duration,
    pub(super) since: Instant,
    /// A hold that others had may pass to it: it wants no lease and no limit of its own.
    pub(super) plain: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// To which owner; `own` if that is the waiter's.
    pub(super) to: WireOwner,
    pub(super) own: bool,
    /// Whose release carries it.
    pub(super) from: WireOwner,
    pub(super) not_after: Instant,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    pub(super) to: WireOwner,
    pub(super) own: bool,
    pub(super) attempt: Option<Attempt>,
    pub(super) sent: Instant,
    pub(super) not_after: Instant,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Passed {
    pub(super) hold: WireHold,
    pub(super) since: Instant,
}

/// What a waiter that leaves its queue was just getting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    Nothing,
    /// Something for its own owner, which may arrive until then.
    OnItsWay(Instant),
    /// A hold under another owner.
    Has(WireHold),
}

/// A waiter's place in the local queue; leaves it when dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    queue: Arc<LocalQueue>,
    pub(super) waiter: Arc<Waiter>,
    place: Position,
}

impl Turn {
    pub(super) fn new(queue: Arc<LocalQueue>, waiter: Arc<Waiter>, place: Position) -> Self {
        Self { queue, waiter, place }
    }

    /// Where this waiter stands now. The `request` is left to be handed over; if it is `plain`, the hold of another guard may pass to it.
    pub(crate) fn stand(&self, request: &Acquire, plain: bool, now: Instant) -> Stand {
        let state = lock(&self.queue.state);
        let mut slot = lock(&self.waiter.slot);
        slot.passed_over = false;
        slot.number = request.owner.number;
        slot.due = Instant::NEVER;
        slot.asking = false;
        // In every case: a `try_lock` of this process may be the one that gets the name, and releases it here.
        let ready = match request.claim {
            Claim::Mutex => Offer::Ready(Wish { lease: request.lease, since: request.since, plain }),
            _ => Offer::Nothing,
        };
        match std::mem::replace(&mut slot.offer, Offer::Nothing) {
            Offer::Answered(answered) => {
                let Answered { to, own, attempt, sent, not_after } = *answered;
                let moved = if own { None } else { Some(Moved { owner: to, passes: 0 }) };
                return Stand::HandedOver { attempt, sent, not_after, moved };
            }
            Offer::Passed(passed) => return Stand::Passed { hold: passed.hold, since: passed.since },
            Offer::Sent(sent) => {
                slot.offer = Offer::Sent(sent);
                return Stand::Wait;
            }
            Offer::Revoked => return Stand::Revoked,
            Offer::Nothing | Offer::Ready(_) | Offer::Closed => slot.offer = ready,
        }
        let may_ask = std::mem::take(&mut slot.may_ask);
        drop(slot);
        // Also during a back-off: its share beside other processes was counted when it was told.
        if may_ask {
            lock(&self.waiter.slot).due = now.plus(SHOWS_UP_WITHIN);
            return Stand::Ask;
        }
        if !state.first().is_some_and(|first| Arc::ptr_eq(&first, &self.waiter)) {
            return Stand::Wait;
        }
        lock(&self.waiter.slot).due = now.plus(SHOWS_UP_WITHIN);
        if state.asker.is_some_and(|asker| asker.owner != request.owner) {
            Stand::Wait
        } else if state.held_by.is_some() {
            Stand::Behind
        } else if let Some(until) = state.back_off_until(now) {
            Stand::BackOff { until }
        } else {
            Stand::Ask
        }
    }

    /// It sends its request: others wait for the answer, if it is first.
    ///
    /// Tells whether the keeper has to check the queue from now on.
    pub(crate) fn asks(&self, request: &Acquire, not_after: Instant) -> bool {
        let mut state = lock(&self.queue.state);
        lock(&self.waiter.slot).asking = true;
        let first = state.first().is_some_and(|first| Arc::ptr_eq(&first, &self.waiter));
        if first {
            state.asks(request, not_after);
        }
        first && !std::mem::replace(&mut state.checked, true)
    }

    /// Whether a hand-over to it was revoked while its own request was out.
    pub(crate) fn was_revoked(&self) -> bool {
        let mut slot = lock(&self.waiter.slot);
        let revoked = matches!(slot.offer, Offer::Revoked);
        if revoked {
            slot.offer = Offer::Nothing;
        }
        revoked
    }

    /// Resolves when where it stands may have changed.
    pub(crate) fn changed(&self) -> impl Future<Output = ()> + Send {
        self.waiter.wake.notified()
    }

    pub(crate) fn subscription(&self) -> Option<Arc<Subscription>> {
        lock(&self.queue.state).subscription.clone()
    }

    pub(crate) fn set_subscription(&self, subscription: Arc<Subscription>) {
        let mut state = lock(&self.queue.state);
        state.subscription = Some(subscription);
        // What was notified before is not known.
        state.heard_before = None;
    }

    /// Takes no hand-over from now on. Tells what is, or may be, on its way or here.
    pub(crate) fn close(&self) -> Closing {
        match std::mem::replace(&mut lock(&self.waiter.slot).offer, Offer::Closed) {
            Offer::Sent(sent) if sent.own => Closing::OnItsWay(sent.not_after),
            Offer::Answered(answered) if answered.own => Closing::OnItsWay(answered.not_after),
            Offer::Answered(answered) => match answered.attempt {
                Some(Attempt::Granted(grant)) => Closing::Has(WireHold::granted(answered.to, grant, answered.sent)),
                _ => Closing::Nothing,
            },
            Offer::Passed(passed) => Closing::Has(passed.hold),
            // A grant to another owner that comes now finds nobody, and is released.
            Offer::Sent(_) | Offer::Nothing | Offer::Ready(_) | Offer::Revoked | Offer::Closed => Closing::Nothing,
        }
    }

    /// Whether others of this process wait behind it, to which a hold can pass.
    pub(crate) fn is_followed(&self) -> bool {
        lock(&self.queue.state).waiters.len() > 1
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = lock(&self.queue.state);
        // One that was passed over is not first: without this, each of many that leave together would look at all the others.
        let passed_over = lock(&self.waiter.slot).passed_over;
        let was_first = !passed_over && state.first().is_some_and(|first| Arc::ptr_eq(&first, &self.waiter));
        state.waiters.remove(self.place);
        if was_first && let Some(first) = state.first() {
            first.wake.notify_one();
        }
        // Without a clock: if a back-off has ended meanwhile, the keeper drops the subscription.
        let unused = state.take_unused_subscription(Instant::default());
        drop(state);
        drop(unused);
    }
}
