//! The local queue of one name: of all waiters of this process one at a time asks the store, and the release of a mutex hands it to
//! the next of them in the same request. So a thousand local waiters cost the store as much as one.
//!
//! Other processes must not starve by it: `sharing.rs` bounds the hand-overs in a row, and lets waiters of other processes go first after a
//! true release that woke them.
//!
//! No waiter depends on another caller's future being polled: the keeper [checks](LocalQueue::check) queues that have waiters. It
//! passes over a first waiter that does not run, and revokes requests and hand-overs whose time is over.

mod check;
mod handing;
mod passing;
mod permits;
mod places;
mod reading;
mod sharing;
mod turn;

pub(super) use check::{CHECK_EVERY, Checked, Orphan};
pub(super) use handing::{Delivered, Handing, Unclaimed, Unused};
pub(crate) use passing::Wanted;
pub(crate) use turn::{Closing, Turn};

use std::sync::Arc;
use std::time::Duration;

use super::{Core, MOST_PASSES, lock};
use crate::backend::{Acquire, Attempt, Capabilities, Claim, Kind, Release, Subscription};
use crate::name::Name;
use crate::owner::WireOwner;
use crate::runtime::Instant;
use crate::runtime::sync::Mutex;
use places::Places;
use sharing::Sharing;
use turn::{Offer, Sent, Waiter, Wish};

/// How soon a waiter that was woken has to run before the next one acts in its place.
const RUNS_WITHIN: Duration = Duration::from_millis(100);

/// The first waiter looks at least this often, because it polls the store within a second.
const SHOWS_UP_WITHIN: Duration = Duration::from_millis(2_500);

#[derive(Debug, Default)]
pub(crate) struct LocalQueue {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiters: Places<Arc<Waiter>>,
    /// Waiters that were given something, or are about to be. The keeper takes it back if they do not use it, wherever they stand.
    given: Vec<Arc<Waiter>>,
    /// The owner of this process that holds the name, as far as is known here.
    held_by: Option<WireOwner>,
    /// Its token, as far as it is known.
    held_token: Option<u64>,
    /// Whose request is out; others wait for its answer.
    asker: Option<Asker>,
    /// Owners whose requests were not answered in time, until they learn that.
    revoked: Vec<WireOwner>,
    /// How the name is shared with other processes.
    sharing: Sharing,
    /// Shared by one first waiter after the other.
    subscription: Option<Arc<Subscription>>,
    /// How many notifications it had had when this process last asked for the name. Later ones are about the hold of this process; `None`: some may
    /// have been missed.
    heard_before: Option<u64>,
    /// How many calls of this process want the name and may not stand in this queue: those that want several names, and writers.
    wanted: u32,
    /// The read hold that readers of this process share.
    shared: Option<reading::Shared>,
    /// Of a semaphore: the size that the store last agreed to.
    agreed_size: Option<u32>,
    /// A hold passed on since the last check.
    passes: bool,
    /// The keeper checks this queue.
    checked: bool,
    /// The client was closed: nothing is handed over any more.
    closed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Asker {
    owner: WireOwner,
    claim: Claim,
    /// When it is revoked.
    until: Instant,
}

impl LocalQueue {
    /// What is allowed beyond `not_after` before a request that was not answered is revoked.
    pub(crate) const MARGIN: Duration = Duration::from_millis(100);

    /// Whether a newcomer may ask the store at once: nobody here waits or holds it, and nobody asks, except for permits of which several may be
    /// free. If so its request is the one that is out, or one beside it, until it is [answered](Self::answered).
    pub(crate) fn ask_alone(&self, request: &Acquire, now: Instant, limit: Duration) -> bool {
        let mut state = lock(&self.state);
        let none_asks = state.asker.is_none() || request.claim.kind() == Kind::Semaphore;
        let clear = state.waiters.is_empty() && state.held_by.is_none() && none_asks && state.back_off_until(now).is_none();
        if clear {
            state.asks(request, now.plus(limit));
        }
        clear
    }

    /// The request of `owner` ended, with this answer if there was one. False if it had been revoked: its answer does not count.
    pub(crate) fn answered(&self, request: &Acquire, answer: Option<&Attempt>, now: Instant) -> bool {
        let owner = request.owner;
        let mut state = lock(&self.state);
        if let Some(revoked) = state.revoked.iter().position(|revoked| *revoked == owner) {
            state.revoked.swap_remove(revoked);
            return false;
        }
        match answer {
            Some(Attempt::Busy(busy)) if !busy.unseen => state.sharing.saw_another_holder(),
            Some(Attempt::Granted(grant)) if request.claim.is_exclusive() => {
                (state.held_by, state.held_token) = (Some(owner), grant.token);
            }
            _ => {}
        }
        if let (Claim::Permits { of, .. }, Some(Attempt::Granted(_) | Attempt::Busy(_)), false) =
            (request.claim, answer, request.any_size)
        {
            state.agreed_size = Some(of);
        }
        if state.asker.is_some_and(|asker| asker.owner == owner) {
            state.asker = None;
            state.wake_first_but(owner, now);
        }
        true
    }

    /// What is left in it, in words; `None` if nobody waits, and nothing is on its way.
    #[cfg(feature = "conformance")]
    pub(super) fn remains(&self) -> Option<String> {
        let state = lock(&self.state);
        let left = [
            ("a waiter", !state.waiters.is_empty()),
            ("something handed over", !state.given.is_empty()),
            ("a request", state.asker.is_some()),
            ("a revoked request", !state.revoked.is_empty()),
            ("a call elsewhere", state.wanted > 0),
            ("a subscription", state.subscription.is_some()),
        ];
        let left: Vec<&str> = left.into_iter().filter(|(_, is_left)| *is_left).map(|(what, _)| what).collect();
        (!left.is_empty()).then(|| left.join(", "))
    }

    /// Whether woken waiters of other processes go first just now.
    pub(crate) fn is_backing_off(&self, now: Instant) -> bool {
        lock(&self.state).back_off_until(now).is_some()
    }

    /// How many notifications the subscription has had, if there is one.
    pub(super) fn heard(&self) -> Option<u64> {
        lock(&self.state).heard()
    }

    /// A true release, sent at `sent`, notified so many listeners; before, the subscription had had `heard` notifications. Tells whether a
    /// back-off begins.
    pub(super) fn woke(self: &Arc<Self>, listeners: u32, heard: Option<u64>, sent: Instant, core: &Core, name: &Name) -> bool {
        let mut state = lock(&self.state);
        let own = heard.is_some() || state.subscription.is_some();
        let others = listeners > u32::from(own);
        let now = core.runtime.now();
        // The release also notifies our own subscription, which says nothing about others.
        let (seen_with, heard_now) = (heard.map_or(1, |heard| heard + 2), state.heard());
        state.sharing.notified_within(core.capabilities.notifies_within);
        state.sharing.released(others, seen_with, heard_now, sent, now);
        // The subscription is kept until the back-off ends, and then dropped by the keeper.
        let check = others && state.subscription.is_some() && !std::mem::replace(&mut state.checked, true);
        drop(state);
        if check {
            core.queues.check_soon(core, name, self);
        }
        others
    }

    pub(crate) fn join(self: &Arc<Self>, core: &Core, name: &Name) -> Turn {
        let waiter = Arc::new(Waiter::default());
        let mut state = lock(&self.state);
        let place = state.waiters.push(Arc::clone(&waiter));
        let check = !std::mem::replace(&mut state.checked, true);
        drop(state);
        if check {
            core.queues.check_soon(core, name, self);
        }
        Turn::new(Arc::clone(self), waiter, place)
    }

    /// An owner of this process has it now, by a request sent at `sent`. Tells whether the keeper has to check the queue from now on.
    pub(super) fn taken(&self, (owner, token): (WireOwner, Option<u64>), handed_over: bool, sent: Instant) -> bool {
        let mut state = lock(&self.state);
        (state.held_by, state.held_token) = (Some(owner), token);
        if !handed_over {
            let heard = state.heard();
            state.sharing.row_begins(sent, heard);
        }
        if state.asker.is_some_and(|asker| asker.owner == owner) {
            state.asker = None;
            // The first waiter leaves its request to be handed over.
            state.wake_first(sent);
        }
        !state.waiters.is_empty() && !std::mem::replace(&mut state.checked, true)
    }

    /// The owner no longer has it: the first waiter may ask.
    pub(crate) fn left(&self, owner: WireOwner, now: Instant) {
        let mut state = lock(&self.state);
        if state.held_by == Some(owner) {
            state.held_by = None;
            state.wake_first(now);
            let unused = state.take_unused_subscription(now);
            drop(state);
            drop(unused);
        }
    }

    /// The first waiter's request, to travel with `release`; `None` if nobody waits or others are to have their chance.
    pub(super) fn hand_over(self: &Arc<Self>, release: &Release, core: &Core) -> Option<Box<Handing>> {
        let now = core.runtime.now();
        let Capabilities { hand_over, push, .. } = core.capabilities;
        let mut state = lock(&self.state);
        // A release that is repeated, or comes after a loss, has nothing to hand on.
        if state.held_by != Some(release.owner) || !hand_over || state.closed {
            return None;
        }
        let first = state.first()?;
        let mut slot = lock(&first.slot);
        let Offer::Ready(wish) = slot.offer else { return None };
        let waiters = state.waiters.len();
        let keeps = core.passes_holds() && !state.is_contested();
        let may = if keeps { state.sharing.may_keep(waiters, now) } else { state.sharing.may_hand_over(waiters, push, now) };
        if !may {
            return None;
        }
        let Wish { lease, since, .. } = wish;
        let (from, not_after) = (release.owner, now.plus(core.settings.limit(lease)));
        // A hold that is kept moves to an owner that no other request names: a late copy of this one finds its owner gone, and does nothing.
        let to = if keeps { core.next_owner() } else { WireOwner { number: slot.number, ..from } };
        slot.offer = Offer::Sent(Box::new(Sent { to, own: !keeps, from, not_after }));
        drop(slot);
        state.gives(&first);
        state.heard_before = state.heard();
        let spare_tokens = if keeps && waiters > 1 { MOST_PASSES } else { 0 };
        let request = Acquire::new(release.name.clone(), Claim::Mutex, to, lease).with_times(since, not_after);
        let from = (from, state.held_token);
        Some(Box::new(Handing::new(Arc::clone(self), first, from, request.with_spare_tokens(spare_tokens), now, keeps)))
    }
}

impl State {
    /// The request that is out from now on, if no other is.
    fn asks(&mut self, request: &Acquire, not_after: Instant) {
        let asker = Asker { owner: request.owner, claim: request.claim, until: not_after.plus(LocalQueue::MARGIN) };
        self.asker.get_or_insert(asker);
        self.heard_before = self.heard();
    }

    /// This waiter is given something. There are few at a time: one that has used what it got is forgotten here.
    fn gives(&mut self, waiter: &Arc<Waiter>) {
        self.given.retain(|given| lock(&given.slot).offer.is_given());
        self.given.push(Arc::clone(waiter));
    }

    fn heard(&self) -> Option<u64> {
        self.subscription.as_ref().map(|subscription| subscription.count())
    }

    fn back_off_until(&self, now: Instant) -> Option<Instant> {
        self.sharing.back_off_until(self.heard(), now)
    }

    /// The subscription, if nobody needs it any more. While others contend it outlives the waiters: from it this process learns that another one
    /// held the name during a back-off.
    fn take_unused_subscription(&mut self, now: Instant) -> Option<Arc<Subscription>> {
        let needed = !self.waiters.is_empty()
            || self.sharing.is_contested()
                && (self.held_by.is_some() || self.asker.is_some() || self.sharing.ends_at().is_some_and(|end| now < end));
        if needed { None } else { self.subscription.take() }
    }

    /// The first waiter that runs.
    fn first(&self) -> Option<Arc<Waiter>> {
        self.waiters.iter().find(|waiter| !lock(&waiter.slot).passed_over).cloned()
    }

    fn wake_first(&self, now: Instant) {
        if let Some(first) = self.first() {
            lock(&first.slot).due = now.plus(RUNS_WITHIN);
            first.wake.notify_one();
        }
    }

    /// Wakes all waiters that run as far as is known; each has to look soon.
    fn wake_all(&self, now: Instant) {
        for waiter in self.waiters.iter() {
            let mut slot = lock(&waiter.slot);
            if !slot.passed_over {
                slot.due = now.plus(RUNS_WITHIN);
                drop(slot);
                waiter.wake.notify_one();
            }
        }
    }

    /// Wakes the first waiter, unless it is this owner, which runs just now.
    fn wake_first_but(&self, owner: WireOwner, now: Instant) {
        let Some(first) = self.first() else { return };
        let mut slot = lock(&first.slot);
        if slot.number == owner.number {
            slot.due = now.plus(SHOWS_UP_WITHIN);
            return;
        }
        slot.due = now.plus(RUNS_WITHIN);
        drop(slot);
        first.wake.notify_one();
    }
}

#[cfg(test)]
mod leaving_tests;
#[cfg(test)]
mod passing_tests;
#[cfg(test)]
mod tests;
