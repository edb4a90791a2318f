//! Which holds the keeper has to look after, and when.
//!
//! Registering and leaving are a few instructions under one short lock, because every acquire and release pays them. A round
//! walks all entries: 100,000 take under a millisecond, and rounds are gathered so that there are few.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Hold;
use crate::owner::WireOwner;
use crate::runtime::Instant;

/// Where a hold is registered.
pub(super) type Slot = usize;

#[derive(Debug)]
struct Entry {
    hold: Weak<Hold>,
    /// The number of its owner.
    number: u64,
    /// When the keeper has to do something about it; while it is doing it, its deadline.
    due: Instant,
    /// It may be done this much earlier, together with others.
    slack: Duration,
}

#[derive(Debug)]
pub(super) struct Registry {
    entries: Vec<Option<Entry>>,
    free: Vec<Slot>,
    /// The slots by the numbers of the owners, where the store names the owner of a deleted hold.
    by_owner: Option<HashMap<u64, Slot>>,
    /// When the keeper looks next.
    wake_at: Instant,
}

impl Registry {
    /// Nothing is registered yet. `by_owner`: holds will be looked up by their owners.
    pub(super) fn new(by_owner: bool) -> Self {
        let by_owner = by_owner.then(HashMap::new);
        Self { entries: Vec::new(), free: Vec::new(), by_owner, wake_at: Instant::NEVER }
    }

    /// Makes a hold that knows its slot. Also tells whether the keeper has to be woken for it.
    pub(super) fn register(&mut self, due: Instant, slack: Duration, make: impl FnOnce(Slot) -> Hold) -> (Arc<Hold>, bool) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() - 1
        });
        let hold = Arc::new(make(slot));
        let number = hold.grounds.owner.number;
        self.entries[slot] = Some(Entry { hold: Arc::downgrade(&hold), number, due, slack });
        if let Some(by_owner) = &mut self.by_owner {
            by_owner.insert(number, slot);
        }
        (hold, self.hurry(due))
    }

    /// The hold ended. Says nothing if it left before: its slot may be another's by now.
    pub(super) fn leave(&mut self, hold: &Hold) {
        if self.entry_of(hold).is_some() {
            self.entries[hold.slot()] = None;
            self.free.push(hold.slot());
            if let Some(by_owner) = &mut self.by_owner {
                by_owner.remove(&hold.grounds.owner.number);
            }
        }
    }

    /// The hold of this owner of this client, if it is registered.
    pub(super) fn of_owner(&self, owner: WireOwner) -> Option<Arc<Hold>> {
        let slot = *self.by_owner.as_ref()?.get(&owner.number)?;
        self.entries[slot].as_ref()?.hold.upgrade().filter(|hold| hold.grounds.owner == owner)
    }

    /// The holds of these owners of this client that are registered, in one walk.
    pub(super) fn of_owners(&self, owners: &[WireOwner]) -> Vec<Arc<Hold>> {
        let numbers: HashSet<u64> = owners.iter().map(|owner| owner.number).collect();
        self.entries
            .iter()
            .flatten()
            .filter(|entry| numbers.contains(&entry.number))
            .filter_map(|entry| entry.hold.upgrade())
            .collect()
    }

    fn entry_of(&mut self, hold: &Hold) -> Option<&mut Entry> {
        self.entries[hold.slot()].as_mut().filter(|entry| std::ptr::eq(entry.hold.as_ptr(), hold))
    }

    /// Looks after the hold again at `due`, or up to `slack` earlier, unless it left meanwhile. Tells whether the keeper has to be
    /// woken for it.
    pub(super) fn reschedule(&mut self, hold: &Hold, due: Instant, slack: Duration) -> bool {
        match self.entry_of(hold) {
            Some(entry) => {
                entry.due = due;
                entry.slack = slack;
                self.hurry(due)
            }
            None => false,
        }
    }

    fn hurry(&mut self, due: Instant) -> bool {
        let sooner = due < self.wake_at;
        if sooner {
            self.wake_at = due;
        }
        sooner
    }

    /// Takes out what is due, or nearly, and says when to come again.
    pub(super) fn round(&mut self, now: Instant) -> (Vec<Arc<Hold>>, Instant) {
        let mut due = Vec::new();
        // A time that was planned stays, also if what it was planned for has ended: repeated acquires and releases would otherwise wake the
        // keeper each time.
        let mut next = if self.wake_at > now { self.wake_at } else { Instant::NEVER };
        for entry in self.entries.iter_mut().flatten() {
            if entry.due <= now.plus(entry.slack) {
                entry.due = Instant::NEVER;
                if let Some(hold) = entry.hold.upgrade() {
                    // Whatever becomes of the round, the deadline is not missed.
                    if now < hold.deadline() {
                        entry.due = hold.deadline();
                        entry.slack = Duration::ZERO;
                        next = next.min(entry.due);
                    }
                    due.push(hold);
                }
            } else {
                next = next.min(entry.due);
            }
        }
        self.wake_at = next;
        (due, next)
    }

    /// Whether nothing is registered.
    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.entries.len()
    }

    /// How many are registered.
    #[cfg(feature = "conformance")]
    pub(super) fn count(&self) -> usize {
        self.entries.iter().flatten().count()
    }

    /// All that are registered.
    pub(super) fn holds(&self) -> Vec<Arc<Hold>> {
        self.entries.iter().flatten().filter_map(|entry| entry.hold.upgrade()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_comes_again_need_not_wake_the_keeper_again() {
        let (mut registry, start) = (Registry::new(false), Instant::from_nanos(1_000_000_000));
        let after = |seconds| start.plus(Duration::from_secs(seconds));
        assert!(registry.hurry(after(10)), "the first has to be planned for");
        // The keeper comes, and what it was woken for has left meanwhile.
        assert_eq!(registry.round(start).1, after(10));
        assert!(!registry.hurry(after(11)), "it comes at ten anyway");
        assert!(registry.hurry(after(5)), "that is sooner");
        assert_eq!(registry.round(after(1)).1, after(5));
        // What was planned has come, and nothing was left to do: it rests.
        assert_eq!(registry.round(after(5)).1, Instant::NEVER);
        assert!(registry.hurry(after(15)));
    }
}
