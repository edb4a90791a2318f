//! The keeper's look at a queue: whatever waits for a caller that does not run goes on without it.

use std::sync::Arc;
use std::time::Duration;

use super::turn::{Answered, Offer, Sent, Waiter};
use super::{Asker, LocalQueue, RUNS_WITHIN, State};
use crate::backend::{Attempt, Claim};
use crate::owner::WireOwner;
use crate::runtime::Instant;
use crate::session::wire_hold::PICKED_UP_WITHIN as PASSED_WITHIN;
use crate::session::{Left, lock};

/// How soon a hand-over has to be picked up before it is taken back. Nobody renews it meanwhile.
const PICKED_UP_WITHIN: Duration = Duration::from_millis(500);

/// How often a queue with waiters is checked, and how often while holds pass from guard to guard: one that is not picked up is renewed by nobody.
pub(in crate::session) const CHECK_EVERY: Duration = Duration::from_millis(100);
const CHECK_PASSES_EVERY: Duration = Duration::from_millis(25);

/// An owner of this process that may hold something it will never use: to be released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) struct Orphan {
    pub(in crate::session) owner: WireOwner,
    pub(in crate::session) claim: Claim,
}

/// What a check found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::session) struct Checked {
    /// Owners that may hold something for nobody.
    pub(in crate::session) orphans: Vec<Orphan>,
    /// Waiters that did not run when it was their turn, by the numbers of their owners.
    pub(in crate::session) passed_over: Vec<u64>,
    /// The owner that holds the name as far as is known here, and perhaps not at the store: somebody released it, and this process did not.
    pub(in crate::session) doubtful: Option<WireOwner>,
    /// When the queue has to be checked again.
    pub(in crate::session) again: Option<Instant>,
}

impl LocalQueue {
    /// The client closes. Tells which owners may hold the name by a hand-over that was not picked up.
    pub(in crate::session) fn close(&self) -> Vec<(Orphan, Left)> {
        let mut orphans = Vec::new();
        let mut state = lock(&self.state);
        state.closed = true;
        for waiter in state.waiters.iter() {
            let mut slot = lock(&waiter.slot);
            let on_its_way = |settled_after| Left { settled_after, unanswered: 1 };
            let unused = match &slot.offer {
                Offer::Sent(sent) => Some((sent.to, on_its_way(sent.not_after))),
                Offer::Answered(answered) => match answered.attempt {
                    None => Some((answered.to, on_its_way(answered.not_after))),
                    Some(Attempt::Granted(_)) => Some((answered.to, Left::default())),
                    Some(_) => None,
                },
                Offer::Passed(passed) => Some((passed.hold.owner, Left::default())),
                _ => None,
            };
            if let Some((owner, left)) = unused {
                slot.offer = Offer::Closed;
                orphans.push((Orphan { owner, claim: Claim::Mutex }, left));
            }
        }
        let subscription = state.subscription.take();
        drop(state);
        drop(subscription);
        orphans
    }

    /// The keeper takes back what the call of `owner` may have in the store: others go first, and it goes on under a new owner. False if it is just
    /// being given something, which is taken back by itself.
    pub(in crate::session) fn revoke(&self, owner: WireOwner, now: Instant) -> bool {
        let state = lock(&self.state);
        let is_its_own = |waiter: &&Arc<Waiter>| lock(&waiter.slot).number == owner.number;
        let Some(waiter) = state.waiters.iter().find(is_its_own) else { return true };
        let mut slot = lock(&waiter.slot);
        let may = matches!(slot.offer, Offer::Nothing | Offer::Ready(_));
        if may {
            (slot.offer, slot.passed_over) = (Offer::Revoked, true);
            drop(slot);
            // It may have been the first.
            state.wake_first(now);
        }
        may
    }

    /// The keeper's look at the queue.
    pub(in crate::session) fn check(&self, now: Instant) -> Checked {
        let mut orphans = Vec::new();
        let mut state = lock(&self.state);
        if let Some(Asker { owner, claim, .. }) = state.asker.take_if(|asker| now >= asker.until) {
            state.revoked.push(owner);
            for waiter in state.waiters.iter() {
                let mut slot = lock(&waiter.slot);
                if slot.number == owner.number {
                    // Its release names the next waiter, so the name counts as held until then.
                    orphans.extend(slot.offer.given_under().map(|owner| Orphan { owner, claim: Claim::Mutex }));
                    slot.offer = Offer::Nothing;
                    slot.passed_over = true;
                }
            }
            orphans.push(Orphan { owner, claim });
            state.wake_first(now);
        }
        let (mut wakes_all, revoked) = state.take_back(now, &mut orphans);
        let mut passed_over = Vec::new();
        // One pass: those that were passed over before stay in the queue.
        for waiter in state.waiters.iter() {
            let mut slot = lock(&waiter.slot);
            if slot.passed_over {
                continue;
            }
            if slot.offer.is_given() {
                break;
            } else if slot.due == Instant::NEVER {
                // It has just become first.
                slot.due = now.plus(RUNS_WITHIN);
                break;
            } else if state.asker.is_some() || now < slot.due {
                break;
            }
            slot.passed_over = true;
            passed_over.push(slot.number);
            wakes_all = true;
        }
        if revoked {
            state.wake_first(now);
        }
        if wakes_all {
            // Those behind it may belong to the same executor. All are woken now, and those that have not run by the next check are passed over together.
            state.wake_all(now);
        }
        let unused = state.take_unused_subscription(now);
        // A subscription that is kept while this process holds the name is dropped by the release.
        let lingers = state.subscription.is_some() && state.held_by.is_none();
        let passes = std::mem::take(&mut state.passes);
        // While a hold passes from guard to guard the store is asked about it all the time.
        let doubtful = if passes { None } else { state.doubtful_holder() };
        let every = if passes { CHECK_PASSES_EVERY } else { CHECK_EVERY };
        let again = if state.rests() {
            None
        } else if !state.waiters.is_empty() || state.asker.is_some() && lingers {
            Some(now.plus(every))
        } else {
            state.sharing.ends_at().filter(|_| lingers)
        };
        state.checked = again.is_some();
        drop(state);
        drop(unused);
        Checked { orphans, passed_over, doubtful, again }
    }
}

impl State {
    /// Whether one waiter waits for other processes, and nobody for it: nothing can go wrong until it asks, another one joins, or a call of this
    /// process gets the name. These have the queue checked again. A process that only waits is not woken ten times a second.
    fn rests(&self) -> bool {
        let nothing_is_sent = || self.waiters.iter().all(|one| matches!(lock(&one.slot).offer, Offer::Nothing | Offer::Ready(_)));
        let alone = self.waiters.len() == 1 && self.held_by.is_none() && self.asker.is_none();
        alone && !self.sharing.is_contested() && nothing_is_sent()
    }

    /// The holder, if a notification came that is about its hold: only a release that was forced explains it, or one that the store had
    /// notified late. Told once for each.
    fn doubtful_holder(&mut self) -> Option<WireOwner> {
        let heard = self.heard().filter(|_| self.held_by.is_some() && !self.waiters.is_empty())?;
        let before = self.heard_before.replace(heard);
        self.held_by.filter(|_| before != Some(heard))
    }
}

impl State {
    /// Takes back what waiters were given and did not use in time, wherever they stand: one that was passed over and runs again may stand before
    /// them. Tells whether waiters were passed over, and whether a hand-over was revoked.
    fn take_back(&mut self, now: Instant, orphans: &mut Vec<Orphan>) -> (bool, bool) {
        let (mut passed_over, mut revoked) = (false, false);
        let Self { given, held_by, .. } = self;
        given.retain(|waiter| {
            let mut slot = lock(&waiter.slot);
            match &slot.offer {
                // The release that carries it is not polled. It may not have been sent: then the old holder is released too. The waiter asks by
                // itself, under a new owner id.
                Offer::Sent(sent) if now >= sent.not_after.plus(LocalQueue::MARGIN) => {
                    let Sent { to, own, from, .. } = **sent;
                    slot.offer = if own { Offer::Revoked } else { Offer::Nothing };
                    *held_by = None;
                    orphans.extend([to, from].map(|owner| Orphan { owner, claim: Claim::Mutex }));
                    revoked = true;
                }
                Offer::Answered(answered) if now >= slot.due.plus(PICKED_UP_WITHIN) => {
                    let Answered { to, own, .. } = **answered;
                    slot.offer = if own { Offer::Revoked } else { Offer::Nothing };
                    slot.passed_over = true;
                    if *held_by == Some(to) {
                        *held_by = None;
                    }
                    orphans.push(Orphan { owner: to, claim: Claim::Mutex });
                    passed_over = true;
                }
                // Its release names the next waiter as the successor, so the name counts as held until then.
                Offer::Passed(passed) if now >= passed.since.plus(PASSED_WITHIN) => {
                    orphans.push(Orphan { owner: passed.hold.owner, claim: Claim::Mutex });
                    slot.offer = Offer::Nothing;
                    slot.passed_over = true;
                    passed_over = true;
                }
                _ => {}
            }
            slot.offer.is_given()
        });
        (passed_over, revoked)
    }
}
