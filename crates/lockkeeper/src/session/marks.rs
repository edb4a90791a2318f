//! What calls may have left in the store, by the number of their owner: undone if the client closes, and taken back from a call that does not run.
//!
//! Where holds live in a session the keeper keeps alive what the client has in the store, also for a call that is not polled any more: a place at
//! the head of the queue, or a grant that nobody reads. It would keep everybody else from the lock. So a call is marked there while it sleeps and
//! while its request is out, with a time by which it has to run again.

use std::collections::BTreeMap;

use super::{Core, Undo, lock};
use crate::owner::WireOwner;
use crate::runtime::Instant;
use crate::runtime::sync::{Mutex, atomic::Ordering};

/// What one call may have left.
#[derive(Debug)]
struct Mark {
    undo: Undo,
    /// It is taken back if the call has not run until then.
    until: Instant,
    /// No request of the call is out.
    sleeps: bool,
}

#[derive(Debug)]
pub(super) struct Marks(Mutex<State>);

#[derive(Debug)]
struct State {
    by_number: BTreeMap<u64, Mark>,
    /// When the keeper looks at them next. Nothing has to be taken back before.
    next: Instant,
}

impl Default for Marks {
    fn default() -> Self {
        Self(Mutex::new(State { by_number: BTreeMap::new(), next: Instant::NEVER }))
    }
}

impl Marks {
    /// All that is there, and nothing is left.
    pub(super) fn take_all(&self) -> impl Iterator<Item = Undo> + use<> {
        std::mem::take(&mut lock(&self.0).by_number).into_values().map(|mark| mark.undo)
    }

    /// How many there are.
    #[cfg(feature = "conformance")]
    pub(super) fn count(&self) -> usize {
        lock(&self.0).by_number.len()
    }

    /// Calls that were woken and did not run: what they left is taken back at the keeper's next look, unless a request of theirs is out.
    pub(super) fn is_over(&self, numbers: &[u64], now: Instant) {
        if numbers.is_empty() {
            return;
        }
        let mut state = lock(&self.0);
        for number in numbers {
            if let Some(mark) = state.by_number.get_mut(number).filter(|mark| mark.sleeps && mark.until < Instant::NEVER) {
                mark.until = now;
                state.next = now;
            }
        }
    }
}

impl Core {
    /// A call sleeps, or its request is out, and it may have left this in the store: undone if the client closes, or is closed already. Where that does
    /// not end by itself it is taken back if the call has not run before `until`. `again`: it is marked already; false if that was taken back.
    pub(crate) fn mark(&self, undo: Undo, until: Instant, sleeps: bool, again: bool) -> bool {
        let until = if self.capabilities.liveness.session().is_some() { until } else { Instant::NEVER };
        let mut marks = lock(&self.marks.0);
        if self.closed.load(Ordering::SeqCst) {
            drop(marks);
            self.undo(undo);
            return true;
        }
        let number = undo.release.owner.number;
        if again && !marks.by_number.contains_key(&number) {
            return false;
        }
        marks.by_number.insert(number, Mark { undo, until, sleeps });
        if until < marks.next {
            marks.next = until;
            drop(marks);
            self.keeper_wake.notify_one();
        }
        true
    }

    /// A marked call looks after that itself from here on; false if it was taken back: then nothing that its owner gets counts. One step, because a grant
    /// that the keeper undoes must never become a guard.
    pub(crate) fn unmark(&self, owner: WireOwner) -> bool {
        // A thread of the parent process may have held the lock when this process was forked off.
        self.is_forked() || lock(&self.marks.0).by_number.remove(&owner.number).is_some() || self.closed.load(Ordering::SeqCst)
    }

    /// Whether what a marked call has left was taken back: its owner id must not be used any more.
    pub(crate) fn is_taken_back(&self, owner: WireOwner) -> bool {
        !self.closed.load(Ordering::SeqCst) && !lock(&self.marks.0).by_number.contains_key(&owner.number)
    }

    /// The keeper's part: undoes what calls have left that did not run in time. Tells when to come again.
    pub(super) fn take_back(&self, now: Instant) -> Instant {
        let marks = lock(&self.marks.0);
        if now < marks.next {
            return marks.next;
        }
        let over = |(_, mark): &(&u64, &Mark)| now >= mark.until;
        let over: Vec<_> = marks.by_number.iter().filter(over).map(|(_, mark)| mark.undo.release.clone()).collect();
        drop(marks);
        for release in over {
            // First: a release of this process must not hand over to this owner from here on.
            let revoked = self.queues.revoke(&release, now);
            let mut marks = lock(&self.marks.0);
            let number = release.owner.number;
            let Some(mark) = marks.by_number.get_mut(&number).filter(|mark| now >= mark.until) else { continue };
            if !revoked {
                // It is just getting the lock; the local queue takes that back.
                mark.until = now.plus(super::local_queue::CHECK_EVERY);
            } else if let Some(mark) = marks.by_number.remove(&number) {
                // Before the lock is given up: `close` must see the mark or the undo.
                self.undo(mark.undo);
            }
        }
        let mut marks = lock(&self.marks.0);
        marks.next = marks.by_number.values().map(|mark| mark.until).min().unwrap_or(Instant::NEVER);
        marks.next
    }
}
