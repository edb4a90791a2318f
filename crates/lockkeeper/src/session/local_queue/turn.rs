//! One waiter in the local queue: its place, and what others may do on its behalf.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use super::places::Place;
use super::{LocalQueue, SHOWS_UP_WITHIN};
use crate::backend::{Acquire, Attempt, Claim, Subscription};
use crate::owner::WireOwner;
use crate::runtime::Instant;
use crate::session::acquisition::Stand;
use crate::session::lock;

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
}

impl Default for Slot {
    fn default() -> Self {
        Self { offer: Offer::Nothing, number: 0, due: Instant::NEVER, passed_over: false }
    }
}

/// What a waiter lets a local release ask for on its behalf.
#[derive(Clone, Copy, Debug)]
pub(super) enum Offer {
    Nothing,
    /// A request for the mutex. Every waiter leaves one, not only the first: the next first may not have run when the release comes.
    Ready(Wish),
    /// On its way to the store, with the release of `from`; the waiter asks nothing itself meanwhile.
    Sent {
        wish: Wish,
        from: WireOwner,
        not_after: Instant,
    },
    Answered {
        wish: Wish,
        attempt: Option<Attempt>,
        sent: Instant,
        not_after: Instant,
    },
    /// The keeper took it back.
    Revoked,
    /// The waiter is gone.
    Closed,
}

/// What sets one request for a mutex apart from another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) owner: WireOwner,
    pub(super) lease: Duration,
    pub(super) since: Instant,
}

/// A waiter's place in the local queue; leaves it when dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    queue: Arc<LocalQueue>,
    waiter: Arc<Waiter>,
    place: Place,
}

impl Turn {
    pub(super) fn new(queue: Arc<LocalQueue>, waiter: Arc<Waiter>, place: Place) -> Self {
        Self { queue, waiter, place }
    }

    /// Where this waiter stands now. The `request` is left to be handed over.
    pub(crate) fn stand(&self, request: &Acquire, now: Instant) -> Stand {
        let state = lock(&self.queue.state);
        let mut slot = lock(&self.waiter.slot);
        slot.passed_over = false;
        slot.number = request.owner.number;
        slot.due = Instant::NEVER;
        match slot.offer {
            Offer::Answered { attempt, sent, not_after, .. } => {
                slot.offer = Offer::Nothing;
                return Stand::HandedOver { attempt, sent, not_after };
            }
            Offer::Sent { .. } => return Stand::Wait,
            Offer::Revoked => {
                slot.offer = Offer::Nothing;
                return Stand::Revoked;
            }
            Offer::Nothing | Offer::Ready(_) | Offer::Closed => {}
        }
        // In every case: a `try_lock` of this process may be the one that gets the name, and releases it here.
        slot.offer = match request.claim {
            Claim::Mutex => Offer::Ready(Wish { owner: request.owner, lease: request.lease, since: request.since }),
            _ => Offer::Nothing,
        };
        drop(slot);
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
    pub(crate) fn asks(&self, request: &Acquire, not_after: Instant) {
        let mut state = lock(&self.queue.state);
        if state.first().is_some_and(|first| Arc::ptr_eq(&first, &self.waiter)) {
            state.asks(request, not_after);
        }
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
        lock(&self.queue.state).subscription = Some(subscription);
    }

    /// Takes no hand-over from now on; `Some` if one is, or may be, on its way or here.
    pub(crate) fn close(&self) -> Option<Instant> {
        match std::mem::replace(&mut lock(&self.waiter.slot).offer, Offer::Closed) {
            Offer::Sent { not_after, .. } | Offer::Answered { not_after, .. } => Some(not_after),
            Offer::Nothing | Offer::Ready(_) | Offer::Revoked | Offer::Closed => None,
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = lock(&self.queue.state);
        let was_first = state.first().is_some_and(|first| Arc::ptr_eq(&first, &self.waiter));
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
