//! How a hold passes on inside this process: from a guard that is released, or from a waiter that goes away before it uses it; and how readers
//! join one.

use std::sync::Arc;

use super::local_queue::Unused;
use super::{Core, Grounds, Held, Hold, Left, LocalQueue, Undo, WireHold};
use crate::backend::{Claim, LossReason, Release};
use crate::name::Name;
use crate::owner::WireOwner;
use crate::runtime::Instant;
use crate::runtime::sync::atomic::Ordering;

impl Core {
    /// Whether holds of mutexes pass from guard to guard of this process. The store must tell whether others wait, and reserve tokens.
    pub(crate) fn passes_holds(&self) -> bool {
        let can = &self.capabilities;
        can.hand_over_if_alone && can.token_ranges && can.fencing && can.push && can.refuses_late
    }

    /// Leaves the hold of a guard that was released to the next waiter of this process, if that may be.
    pub(super) fn pass(&self, hold: &Hold) -> bool {
        // Without a token for the next holder nothing passes on: so it is where nobody waited when the store was asked.
        if hold.grounds.spare_tokens == 0 || self.is_forked() {
            return false;
        }
        let (Some(queue), Some(wire)) = (&hold.grounds.queue, hold.as_wire_hold()) else { return false };
        self.passes_holds() && queue.pass(&wire, self.runtime.now())
    }

    /// One more guard of the read hold that readers of this process share, if there is one to join now.
    pub(crate) fn join_readers(&self, queue: &LocalQueue) -> Option<Held> {
        if self.closed.load(Ordering::SeqCst) {
            return None;
        }
        // One that was lost meanwhile is not joined.
        queue.shared_hold(self.runtime.now())?.reenter().ok().flatten()
    }

    /// Others may join the hold of this reader. Not where it has a lease or a limit of its own, belongs to an owner, or came beside a writer.
    pub(crate) fn share(&self, queue: &LocalQueue, hold: &Arc<Hold>) {
        let Grounds { claim, kept, until, place, sent, unsettled_until, .. } = &hold.grounds;
        let plain = *kept && *until == Instant::NEVER && place.is_none() && *unsettled_until == Instant::default();
        if *claim == Claim::Read && plain {
            queue.share(hold, *sent);
        }
    }

    /// A waiter goes away with a hold that it did not use: the next one gets it, or it is released.
    pub(crate) fn pass_on(&self, queue: &Arc<LocalQueue>, name: &Name, hold: &WireHold) {
        if self.is_forked() || !queue.pass(hold, self.runtime.now()) {
            self.release_unused(queue, name, hold.owner);
        }
    }

    /// The store had forgotten what it granted to this owner, and let another one in since. It has granted it anew, but the guard has the older
    /// token, which a fence refuses: the hold is lost.
    pub(super) fn lose_stale(&self, owner: WireOwner) {
        // Taken out first: what is told to observers may lock the registry itself.
        let holds = self.registry().of_owners(&[owner]);
        for hold in holds.iter().filter(|hold| hold.grounds.owner == owner) {
            hold.lose(LossReason::Gone);
        }
    }

    /// Releases what is held under an owner that nobody uses.
    pub(crate) fn release_unused(&self, queue: &Arc<LocalQueue>, name: &Name, owner: WireOwner) {
        self.undo_unused(queue, name, (owner, Left::default()));
    }

    /// Has the keeper release what this owner has or may have.
    pub(super) fn undo_unused(&self, queue: &Arc<LocalQueue>, name: &Name, (owner, left): Unused) {
        let Left { settled_after, unanswered } = left;
        let release = Release::new(name.clone(), Claim::Mutex, owner);
        let (lease, queue) = (self.settings.lease, Some(Arc::clone(queue)));
        self.undo(Undo { release, lease, settled_after, unanswered, queue });
    }
}
