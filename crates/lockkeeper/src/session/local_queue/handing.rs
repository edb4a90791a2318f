//! A hand-over on its way: the request for a waiter that travels with a release.

use std::sync::Arc;

use super::turn::{Answered, Offer, Waiter};
use super::{LocalQueue, RUNS_WITHIN};
use crate::backend::{Acquire, Attempt};
use crate::owner::WireOwner;
use crate::runtime::Instant;
use crate::session::{Left, lock};

/// If it is dropped unanswered the waiter learns that its outcome is unknown.
#[derive(Debug)]
pub(in crate::session) struct Handing {
    queue: Arc<LocalQueue>,
    waiter: Arc<Waiter>,
    /// Whose release carries it, and the token of that hold.
    from: WireOwner,
    after: Option<u64>,
    request: Acquire,
    sent: Instant,
    /// The store grants it only if no other client waits, and to a new owner that nobody else names.
    keeps: bool,
    delivered: bool,
}

/// What became of a hand-over.
#[derive(Clone, Copy, Debug)]
pub(in crate::session) enum Delivered {
    /// The store answered for the successor; `None`: it granted nothing.
    Answered(Option<Attempt>),
    Unknown,
}

/// An owner of this process that has, or may have, something at the store that nobody uses.
pub(in crate::session) type Unused = (WireOwner, Left);

/// A grant that the waiter does not pick up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::session) enum Unclaimed {
    /// It is gone: what its owner has or may have is to be released.
    Unused(Unused),
    /// It got the name by a request of its own that was out at the same time, with a token that is older than that of the holder whose release
    /// handed it over. So the store had forgotten that grant when it let the other one in.
    Stale(WireOwner),
}

impl Handing {
    pub(super) fn new(
        queue: Arc<LocalQueue>,
        waiter: Arc<Waiter>,
        (from, after): (WireOwner, Option<u64>),
        request: Acquire,
        sent: Instant,
        keeps: bool,
    ) -> Self {
        Self { queue, waiter, from, after, request, sent, keeps, delivered: false }
    }

    pub(in crate::session) fn request(&self) -> &Acquire {
        &self.request
    }

    pub(in crate::session) fn keeps(&self) -> bool {
        self.keeps
    }

    /// Gives the answer to the waiter. Tells what became of it if nobody waits for it any more.
    pub(in crate::session) fn deliver(mut self, delivered: Delivered, now: Instant) -> Option<Unclaimed> {
        self.answer(delivered, now)
    }

    fn answer(&mut self, delivered: Delivered, now: Instant) -> Option<Unclaimed> {
        self.delivered = true;
        let attempt = if let Delivered::Answered(attempt) = delivered { attempt } else { None };
        let granted = matches!(attempt, Some(Attempt::Granted(_)));
        let mut state = lock(&self.queue.state);
        let mut slot = lock(&self.waiter.slot);
        let Acquire { owner: to, not_after, .. } = self.request;
        // A hand-over that was revoked may be answered when another one is on its way to the same waiter.
        let waits = matches!(&slot.offer, Offer::Sent(sent) if sent.to == to);
        if waits && (granted || !self.keeps) {
            slot.offer = Offer::Answered(Box::new(Answered { to, own: !self.keeps, attempt, sent: self.sent, not_after }));
            slot.due = now.plus(RUNS_WITHIN);
        } else if waits {
            // Its own owner asked for nothing: it asks anew.
            slot.offer = Offer::Nothing;
        }
        drop(slot);
        if state.held_by == Some(self.from) {
            state.held_by = (waits && granted).then_some(to);
        }
        self.waiter.wake.notify_one();
        if !waits {
            state.wake_first(now);
        }
        match delivered {
            Delivered::Answered(_) if state.held_by == Some(to) => {
                // Else the same grant was told twice, and is in use.
                let is_older = state.held_token.zip(self.after).is_some_and(|(token, after)| token < after);
                (granted && !waits && is_older).then_some(Unclaimed::Stale(to))
            }
            Delivered::Answered(_) => (granted && !waits).then_some(Unclaimed::Unused((to, Left::default()))),
            Delivered::Unknown => self.keeps.then_some(Unclaimed::Unused((to, Left { settled_after: not_after, unanswered: 1 }))),
        }
    }
}

impl Drop for Handing {
    fn drop(&mut self) {
        if !self.delivered {
            self.answer(Delivered::Unknown, self.sent);
        }
    }
}
