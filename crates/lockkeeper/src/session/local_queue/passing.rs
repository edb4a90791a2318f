//! What a process settles by itself: a guard that is released leaves its hold to the first waiter, without a request.

use std::sync::Arc;

use super::turn::{Offer, Passed, Wish};
use super::{LocalQueue, State};
use crate::runtime::Instant;
use crate::session::{WireHold, lock};

/// A call wants the name and may not stand in its queue, as long as this lives.
///
/// One that waits for several names at once never stands in all their queues, so to each name it is like a waiter of another process: the name is
/// released to the store now and then. A writer is seen from its first request on: no reader joins the hold of another one.
#[derive(Debug)]
pub(crate) struct Wanted(Arc<LocalQueue>);

impl Drop for Wanted {
    fn drop(&mut self) {
        lock(&self.0.state).wanted -= 1;
    }
}

impl LocalQueue {
    /// A call wants this name, until the answer is dropped.
    pub(crate) fn wanted(self: &Arc<Self>) -> Wanted {
        lock(&self.state).wanted += 1;
        Wanted(Arc::clone(self))
    }

    /// Leaves a hold to the first waiter. False if the store has to be asked: the hold has passed on often enough, nobody waits, the first waiter
    /// wants a lease of its own, or others are to have their turn.
    pub(in crate::session) fn pass(&self, hold: &WireHold, now: Instant) -> bool {
        let Some(next) = hold.next(now) else { return false };
        let mut state = lock(&self.state);
        if state.held_by != Some(hold.owner) || state.closed {
            return false;
        }
        let Some(first) = state.first() else { return false };
        let mut slot = lock(&first.slot);
        let is_asking = state.asker.is_some_and(|asker| asker.owner.number == slot.number);
        if !matches!(slot.offer, Offer::Ready(Wish { plain: true, .. })) || is_asking {
            return false;
        }
        let (waiters, contested) = (state.waiters.len(), state.is_contested());
        if contested && !state.sharing.may_pass(waiters, now) {
            return false;
        }
        slot.offer = Offer::Passed(Box::new(Passed { hold: next, since: now }));
        drop(slot);
        state.gives(&first);
        state.passes = true;
        drop(state);
        first.wake.notify_one();
        true
    }
}

impl State {
    /// Whether others than the waiters in this queue want the name, as far as is known.
    pub(super) fn is_contested(&self) -> bool {
        self.sharing.is_contested() || self.wanted > 0
    }
}
