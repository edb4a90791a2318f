//! The keeper's look at a queue: whatever waits for a caller that does not run goes on without it.

use std::time::Duration;

use super::turn::Offer;
use super::{Asker, LocalQueue, MARGIN, RUNS_WITHIN, State};
use crate::backend::{Attempt, Claim};
use crate::owner::WireOwner;
use crate::runtime::Instant;
use crate::session::{Left, lock};

/// How soon a hand-over has to be picked up before it is taken back. Nobody renews it meanwhile.
const PICKED_UP_WITHIN: Duration = Duration::from_millis(500);

/// How often a queue with waiters is checked.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// An owner of this process that may hold something it will never use: to be released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) struct Orphan {
    pub(in crate::session) owner: WireOwner,
    pub(in crate::session) claim: Claim,
}

impl LocalQueue {
    /// The client closes. Tells which owners may hold the name by a hand-over that was not picked up.
    pub(in crate::session) fn close(&self) -> Vec<(Orphan, Left)> {
        let mut orphans = Vec::new();
        let mut state = lock(&self.state);
        state.closed = true;
        for waiter in state.waiters.iter() {
            let mut slot = lock(&waiter.slot);
            let (wish, left) = match slot.offer {
                Offer::Sent { wish, not_after, .. } | Offer::Answered { wish, attempt: None, not_after, .. } => {
                    (Some(wish), Left { settled_after: not_after, unanswered: 1 })
                }
                Offer::Answered { wish, attempt: Some(Attempt::Granted(_)), .. } => (Some(wish), Left::default()),
                _ => (None, Left::default()),
            };
            if let Some(wish) = wish {
                slot.offer = Offer::Closed;
                orphans.push((Orphan { owner: wish.owner, claim: Claim::Mutex }, left));
            }
        }
        let subscription = state.subscription.take();
        drop(state);
        drop(subscription);
        orphans
    }

    /// Tells which owners may hold something for nobody, and when the queue has to be checked again.
    pub(in crate::session) fn check(&self, now: Instant) -> (Vec<Orphan>, Option<Instant>) {
        let mut orphans = Vec::new();
        let mut state = lock(&self.state);
        if let Some(Asker { owner, claim, .. }) = state.asker.take_if(|asker| now >= asker.until) {
            state.revoked.push(owner);
            for waiter in state.waiters.iter() {
                let mut slot = lock(&waiter.slot);
                if slot.number == owner.number {
                    slot.offer = Offer::Nothing;
                    slot.passed_over = true;
                }
            }
            orphans.push(Orphan { owner, claim });
            state.wake_first(now);
        }
        let (mut passed_over, mut revoked) = (false, false);
        let State { waiters, held_by, asker, .. } = &mut *state;
        // One pass: those that were passed over before stay in the queue.
        for waiter in waiters.iter() {
            let mut slot = lock(&waiter.slot);
            if slot.passed_over {
                continue;
            }
            match slot.offer {
                // The release that carries it is not polled. It may not have been sent: then the old holder is released too. The waiter asks by
                // itself, under a new owner id.
                Offer::Sent { wish, from, not_after } if now >= not_after.plus(MARGIN) => {
                    slot.offer = Offer::Revoked;
                    *held_by = None;
                    orphans.extend([wish.owner, from].map(|owner| Orphan { owner, claim: Claim::Mutex }));
                    revoked = true;
                    break;
                }
                Offer::Answered { wish, .. } if now >= slot.due.plus(PICKED_UP_WITHIN) => {
                    slot.offer = Offer::Revoked;
                    slot.passed_over = true;
                    if *held_by == Some(wish.owner) {
                        *held_by = None;
                    }
                    orphans.push(Orphan { owner: wish.owner, claim: Claim::Mutex });
                }
                Offer::Sent { .. } | Offer::Answered { .. } => break,
                // It has just become first.
                _ if slot.due == Instant::NEVER => {
                    slot.due = now.plus(RUNS_WITHIN);
                    break;
                }
                _ if asker.is_none() && now >= slot.due => slot.passed_over = true,
                _ => break,
            }
            passed_over = true;
        }
        if revoked {
            state.wake_first(now);
        }
        if passed_over {
            // Those behind it may belong to the same executor. All are woken now, and those that have not run by the next check are passed over together.
            state.wake_all(now);
        }
        let unused = state.take_unused_subscription(now);
        // A subscription that is kept while this process holds the name is dropped by the release.
        let lingers = state.subscription.is_some() && state.held_by.is_none();
        let next = if !state.waiters.is_empty() || state.asker.is_some() && lingers {
            Some(now.plus(CHECK_EVERY))
        } else {
            state.sharing.ends_at().filter(|_| lingers)
        };
        state.checked = next.is_some();
        drop(state);
        drop(unused);
        (orphans, next)
    }
}
