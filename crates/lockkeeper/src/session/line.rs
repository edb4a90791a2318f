//! The local queue of one name: of all who wait for it in this process one at a time asks the store, and the release of a mutex hands
//! it to the next of them in one request.
//!
//! So a thousand local waiters cost the store as much as one. Others must not starve by it: after [`IN_A_ROW`] hand-overs comes a true
//! release. After a release that woke waiters of other clients, this process backs off for a moment: otherwise its next request would
//! reach the store before theirs.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use super::{Core, lock};
use crate::backend::{Acquire, Attempt, Claim, Release, Subscription};
use crate::owner::WireOwner;
use crate::runtime::Instant;

/// Hand-overs before a true release.
const IN_A_ROW: u32 = 16;

/// The back-off lasts a multiple of the time that the release took, within these bounds: a waiter that has not asked by then is slow.
const BACK_OFF: (u32, Duration, Duration) = (4, Duration::from_millis(1), Duration::from_millis(100));

#[derive(Debug, Default)]
pub(crate) struct Line {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// First come first; the first one asks the store.
    spots: VecDeque<Arc<Spot>>,
    /// The owner of this process that holds it, as far as is known here.
    held_by: Option<WireOwner>,
    /// The owner that found nobody in its way and asks the store just now; whoever comes meanwhile waits for its answer.
    asking: Option<WireOwner>,
    in_a_row: u32,
    /// Others go first until then: see the head of this file.
    back_off_until: Option<Instant>,
    /// Shared by one first waiter after the other.
    subscription: Option<Arc<Subscription>>,
}

#[derive(Debug)]
struct Spot {
    wake: Notify,
    offer: Mutex<Offer>,
}

/// What a waiter lets a local release ask for on its behalf.
#[derive(Clone, Copy, Debug)]
enum Offer {
    Nothing,
    /// Of the mutex. In every waiter's spot, not only in the first one's: who becomes first may not have run again when it is released.
    Ready(Wish),
    /// On its way to the store; the waiter asks nothing itself meanwhile.
    Sent {
        not_after: Instant,
    },
    Answered {
        attempt: Option<Attempt>,
        sent: Instant,
        not_after: Instant,
    },
    /// The waiter is gone.
    Closed,
}

/// What sets one request for a mutex apart from another.
#[derive(Clone, Copy, Debug)]
struct Wish {
    owner: WireOwner,
    lease: Duration,
    since: Instant,
}

/// A waiter's place in the line; leaves it when dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    line: Arc<Line>,
    spot: Arc<Spot>,
}

/// Where a waiter stands.
#[derive(Debug)]
pub(crate) enum Stand {
    /// Wait for a local signal.
    Wait,
    /// First, behind an owner of this process that holds it, as far as is known here: wait for a local signal, but not for that alone.
    Behind,
    /// First, and nobody here holds it: ask the store.
    Ask,
    /// As `Ask`, when others had their chance.
    AskLater,
    /// A local release asked for us: its answer, if it came, and when it was sent.
    Handed { attempt: Option<Attempt>, sent: Instant, not_after: Instant },
}

impl Line {
    /// Whether a newcomer may ask the store at once: nobody here waits, asks or holds it. If so it is the one who asks, until it
    /// has it or [stops](Self::stop_asking).
    pub(crate) fn ask_alone(&self, owner: WireOwner, now: Instant) -> bool {
        let mut state = lock(&self.state);
        let clear = state.spots.is_empty() && state.held_by.is_none() && state.asking.is_none() && !state.is_backing_off(now);
        if clear {
            state.asking = Some(owner);
        }
        clear
    }

    /// The one who asked alone did not get it: the first of those who came meanwhile may ask.
    pub(crate) fn stop_asking(&self, owner: WireOwner) {
        let mut state = lock(&self.state);
        if state.asking == Some(owner) {
            state.asking = None;
            state.wake_first();
        }
    }

    /// Whether others are to go first just now.
    pub(crate) fn is_backing_off(&self, now: Instant) -> bool {
        lock(&self.state).is_backing_off(now)
    }

    /// A release that was sent at `sent` woke so many listeners: if others than we, they go first. Tells if so.
    pub(super) fn woke(&self, listeners: u32, sent: Instant, now: Instant) -> bool {
        let mut state = lock(&self.state);
        let others = listeners > u32::from(state.subscription.is_some());
        if others {
            let (times, least, most) = BACK_OFF;
            state.back_off_until = Some(now.plus((now.since(sent) * times).clamp(least, most)));
        }
        others
    }

    pub(crate) fn join(self: &Arc<Self>) -> Turn {
        let spot = Arc::new(Spot { wake: Notify::new(), offer: Mutex::new(Offer::Nothing) });
        lock(&self.state).spots.push_back(Arc::clone(&spot));
        Turn { line: Arc::clone(self), spot }
    }

    /// An owner of this process has it now.
    pub(super) fn taken(&self, owner: WireOwner) {
        let mut state = lock(&self.state);
        state.held_by = Some(owner);
        if state.asking == Some(owner) {
            state.asking = None;
            // The first one leaves its request to be handed over.
            state.wake_first();
        }
    }

    /// The owner no longer has it: the first waiter may ask.
    pub(super) fn left(&self, owner: WireOwner) {
        let mut state = lock(&self.state);
        if state.held_by == Some(owner) {
            state.held_by = None;
            state.wake_first();
        }
    }

    /// The first waiter's request, to travel with `release`; `None` if nobody waits or others are to have their chance.
    pub(super) fn hand_over(self: &Arc<Self>, release: &Release, core: &Core) -> Option<Box<Handing>> {
        let mut state = lock(&self.state);
        // A release that is repeated, or comes after a loss, has nothing to hand on.
        if state.held_by != Some(release.owner) {
            return None;
        }
        let front = state.spots.front().map(Arc::clone);
        let mut offer = front.as_ref().map(|spot| lock(&spot.offer));
        let Some(Offer::Ready(Wish { owner, lease, since })) = offer.as_deref().copied() else {
            state.in_a_row = 0;
            return None;
        };
        if !core.capabilities.hand_over {
            return None;
        }
        if state.in_a_row >= IN_A_ROW {
            state.in_a_row = 0;
            return None;
        }
        state.in_a_row += 1;
        let sent = core.runtime.now();
        let not_after = sent.plus(core.settings.limit(lease));
        if let Some(offer) = offer.as_deref_mut() {
            *offer = Offer::Sent { not_after };
        }
        drop(offer);
        let (name, claim) = (release.name.clone(), Claim::Mutex);
        let request = Acquire { name, claim, owner, lease, not_after, since, beside: None, place: None, any_size: false };
        Some(Box::new(Handing { line: Arc::clone(self), spot: front?, from: release.owner, request, sent, delivered: false }))
    }
}

impl State {
    fn is_backing_off(&self, now: Instant) -> bool {
        self.back_off_until.is_some_and(|until| now < until)
    }

    fn wake_first(&self) {
        if let Some(first) = self.spots.front() {
            first.wake.notify_one();
        }
    }
}

impl Turn {
    /// Where we stand now. A `request` for a mutex is left to be handed over.
    pub(crate) fn stand(&self, request: &Acquire, now: Instant) -> Stand {
        let state = lock(&self.line.state);
        let mut offer = lock(&self.spot.offer);
        match *offer {
            Offer::Answered { attempt, sent, not_after } => {
                *offer = Offer::Nothing;
                return Stand::Handed { attempt, sent, not_after };
            }
            Offer::Sent { .. } => return Stand::Wait,
            Offer::Nothing | Offer::Ready(_) | Offer::Closed => {}
        }
        // Ready in every case: a `try_lock` beside us may be the one that gets it, and releases it here.
        if let Acquire { claim: Claim::Mutex, owner, lease, since, .. } = *request {
            *offer = Offer::Ready(Wish { owner, lease, since });
        }
        if !state.spots.front().is_some_and(|first| Arc::ptr_eq(first, &self.spot)) {
            return Stand::Wait;
        }
        if state.held_by.is_some() {
            Stand::Behind
        } else if state.asking.is_some() {
            Stand::Wait
        } else if state.is_backing_off(now) {
            Stand::AskLater
        } else {
            Stand::Ask
        }
    }

    /// Others had their chance.
    pub(crate) fn end_back_off(&self) {
        lock(&self.line.state).back_off_until = None;
    }

    /// Resolves when where we stand may have changed.
    pub(crate) fn changed(&self) -> impl Future<Output = ()> + Send {
        self.spot.wake.notified()
    }

    pub(crate) fn subscription(&self) -> Option<Arc<Subscription>> {
        lock(&self.line.state).subscription.clone()
    }

    pub(crate) fn set_subscription(&self, subscription: Arc<Subscription>) {
        lock(&self.line.state).subscription = Some(subscription);
    }

    /// Takes no hand-over from now on; `Some` if one is, or may be, on its way or here.
    pub(crate) fn close(&self) -> Option<Instant> {
        match std::mem::replace(&mut *lock(&self.spot.offer), Offer::Closed) {
            Offer::Sent { not_after } | Offer::Answered { not_after, .. } => Some(not_after),
            Offer::Nothing | Offer::Ready(_) | Offer::Closed => None,
        }
    }

    /// What was handed over is not wanted: the line must not count on it.
    pub(crate) fn refuse(&self, owner: WireOwner) {
        self.line.left(owner);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = lock(&self.line.state);
        let was_first = state.spots.front().is_some_and(|first| Arc::ptr_eq(first, &self.spot));
        state.spots.retain(|spot| !Arc::ptr_eq(spot, &self.spot));
        if was_first {
            state.wake_first();
        }
        if state.spots.is_empty() {
            state.subscription = None;
        }
    }
}

/// A hand-over on its way; if it is dropped unanswered the waiter learns that its outcome is unknown.
#[derive(Debug)]
pub(super) struct Handing {
    line: Arc<Line>,
    spot: Arc<Spot>,
    from: WireOwner,
    request: Acquire,
    sent: Instant,
    delivered: bool,
}

impl Handing {
    pub(super) fn request(&self) -> &Acquire {
        &self.request
    }

    pub(super) fn deliver(mut self, attempt: Option<Attempt>) {
        self.answer(attempt);
    }

    fn answer(&mut self, attempt: Option<Attempt>) {
        self.delivered = true;
        let mut state = lock(&self.line.state);
        let mut offer = lock(&self.spot.offer);
        let waits = matches!(*offer, Offer::Sent { .. });
        if waits {
            *offer = Offer::Answered { attempt, sent: self.sent, not_after: self.request.not_after };
        }
        drop(offer);
        let granted = waits && matches!(attempt, Some(Attempt::Granted(_)));
        if state.held_by == Some(self.from) {
            state.held_by = granted.then_some(self.request.owner);
        }
        self.spot.wake.notify_one();
        if !waits {
            state.wake_first();
        }
    }
}

impl Drop for Handing {
    fn drop(&mut self) {
        if !self.delivered {
            self.answer(None);
        }
    }
}
