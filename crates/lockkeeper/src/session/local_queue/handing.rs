//! A hand-over on its way: the request of a waiter that travels with a release.

use std::sync::Arc;

use super::turn::{Offer, Waiter, Wish};
use super::{LocalQueue, RUNS_WITHIN};
use crate::backend::{Acquire, Attempt};
use crate::owner::WireOwner;
use crate::runtime::Instant;
use crate::session::lock;

/// If it is dropped unanswered the waiter learns that its outcome is unknown.
#[derive(Debug)]
pub(in crate::session) struct Handing {
    queue: Arc<LocalQueue>,
    waiter: Arc<Waiter>,
    from: WireOwner,
    request: Acquire,
    sent: Instant,
    delivered: bool,
}

impl Handing {
    pub(super) fn new(queue: Arc<LocalQueue>, waiter: Arc<Waiter>, from: WireOwner, request: Acquire, sent: Instant) -> Self {
        Self { queue, waiter, from, request, sent, delivered: false }
    }

    pub(in crate::session) fn request(&self) -> &Acquire {
        &self.request
    }

    /// Gives the answer to the waiter. The owner, if it was granted and nobody waits for it any more: to be released at once.
    pub(in crate::session) fn deliver(mut self, attempt: Option<Attempt>, now: Instant) -> Option<WireOwner> {
        self.answer(attempt, now)
    }

    fn answer(&mut self, attempt: Option<Attempt>, now: Instant) -> Option<WireOwner> {
        self.delivered = true;
        let mut state = lock(&self.queue.state);
        let mut slot = lock(&self.waiter.slot);
        let waits = matches!(slot.offer, Offer::Sent { .. });
        let Acquire { owner, lease, since, not_after, .. } = self.request;
        if waits {
            slot.offer = Offer::Answered { wish: Wish { owner, lease, since }, attempt, sent: self.sent, not_after };
            slot.due = now.plus(RUNS_WITHIN);
        }
        drop(slot);
        let granted = matches!(attempt, Some(Attempt::Granted(_)));
        if state.held_by == Some(self.from) {
            state.held_by = (waits && granted).then_some(owner);
        }
        self.waiter.wake.notify_one();
        if !waits {
            state.wake_first(now);
        }
        (granted && !waits).then_some(owner)
    }
}

impl Drop for Handing {
    fn drop(&mut self) {
        if !self.delivered {
            self.answer(None, self.sent);
        }
    }
}
