//! One holder, and a queue of those who asked to be served in order.

use serde::{Deserialize, Serialize};

use super::record::Hold;
use super::{Now, Wake};
use crate::backend::{Acquire, Attempt, Busy, Claim, Grant, Holder, Waiter};
use crate::owner::WireOwner;
use crate::runtime::Instant;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) holder: Option<(WireOwner, Hold)>,
    /// In order of arrival. A place ends unless its owner asks again in time, so a dead waiter does not block the others.
    /// A part of the queue begins with its first place and has no gaps.
    pub(super) queue: Vec<QueuePlace>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct QueuePlace {
    pub(super) owner: WireOwner,
    pub(super) expires: Instant,
    /// Larger than those of all places before it.
    #[serde(default)]
    pub(super) seq: u64,
}

impl State {
    pub(super) fn is_empty(&self) -> bool {
        self.holder.is_none() && self.queue.is_empty()
    }

    pub(super) fn expire(&mut self, at: Instant) {
        self.holder = self.holder.take().filter(|(_, hold)| hold.expires > at);
        self.queue.retain(|place| place.expires > at);
    }

    pub(super) fn acquire(&mut self, request: &Acquire, now: Now) -> Attempt {
        let owner = request.owner;
        if let Some(hold) = self.hold_of(owner) {
            return hold.again(request, now);
        }
        let fair = request.claim == Claim::Fair;
        let first = !fair || self.queue.first().is_none_or(|head| head.owner == owner);
        if self.holder.is_none() && first {
            self.queue.retain(|place| place.owner != owner);
            let hold = Hold::granted(request, now);
            self.holder = Some((owner, hold));
            return Attempt::Granted(Grant::new(hold.token, request.lease));
        }
        if fair && let Some(patience) = request.place {
            self.stand(owner, now.at.plus(patience));
        }
        let ahead = if fair { self.queue.iter().position(|place| place.owner == owner) } else { None };
        // Free, but another waiter is first: it acquires the lock soon, or its place ends.
        let next_change = match &self.holder {
            Some((_, hold)) => Some(hold.expires),
            None => self.queue.first().map(|head| head.expires),
        };
        Attempt::Busy(Busy {
            retry_in: next_change.map(|end| end.since(now.at)),
            ahead: ahead.and_then(|place| u32::try_from(place).ok()),
            placed: ahead.is_some(),
            unseen: false,
        })
    }

    /// Extends the owner's place, or appends one to the queue.
    fn stand(&mut self, owner: WireOwner, until: Instant) {
        match self.queue.iter_mut().find(|place| place.owner == owner) {
            Some(place) => place.expires = place.expires.max(until),
            None => {
                // A row that others wrote may have the largest number there is: no overflow, and nobody gets before it.
                let seq = self.queue.last().map_or(0, |last| last.seq.saturating_add(1));
                self.queue.push(QueuePlace { owner, expires: until, seq });
            }
        }
    }

    pub(super) fn release(&mut self, owner: WireOwner) -> (bool, Wake) {
        let head_before = self.head();
        self.queue.retain(|place| place.owner != owner);
        let held = self.hold_of(owner).is_some();
        if held {
            self.holder = None;
        }
        // The first waiter leaves while the lock is free: the next one must be woken.
        let passed_on = self.holder.is_none() && head_before != self.head();
        (held, if held || passed_on { Wake { all: held, head: self.head() } } else { Wake::NOBODY })
    }

    /// All owners in it, the holder first.
    pub(super) fn owners(&self) -> Vec<WireOwner> {
        let holder = self.holder.iter().map(|(owner, _)| *owner);
        holder.chain(self.queue.iter().map(|place| place.owner)).collect()
    }

    /// The owners that block this one, which does not hold it. Waiters have different blockers, so the death of one client wakes one waiter.
    pub(super) fn blockers(&self, owner: WireOwner) -> Vec<WireOwner> {
        let holder = self.holder.map(|(holder, _)| holder);
        match self.queue.iter().position(|place| place.owner == owner) {
            None | Some(0) => holder.or(self.head()).into_iter().filter(|other| *other != owner).collect(),
            Some(place) => {
                let head = if holder.is_none() { self.head() } else { None };
                let before = self.queue[place - 1].owner;
                head.filter(|head| *head != before).into_iter().chain([before]).collect()
            }
        }
    }

    pub(super) fn forget(&mut self, gone: &dyn Fn(WireOwner) -> bool) -> Wake {
        let head_before = self.head();
        let held = self.holder.take_if(|(owner, _)| gone(*owner)).is_some();
        self.queue.retain(|place| !gone(place.owner));
        let passed_on = self.holder.is_none() && head_before != self.head();
        if held || passed_on { Wake { all: held, head: self.head() } } else { Wake::NOBODY }
    }

    pub(super) fn force(&mut self) -> Wake {
        match self.holder.take() {
            Some(_) => Wake { all: true, head: self.head() },
            None => Wake::NOBODY,
        }
    }

    fn head(&self) -> Option<WireOwner> {
        self.queue.first().map(|place| place.owner)
    }

    pub(super) fn hold_of(&mut self, owner: WireOwner) -> Option<&mut Hold> {
        self.holder.as_mut().filter(|(holder, _)| *holder == owner).map(|(_, hold)| hold)
    }

    pub(super) fn holders(&self, at: Instant) -> Vec<Holder> {
        self.holder.iter().map(|(owner, hold)| hold.describe(*owner, Claim::Mutex, at)).collect()
    }

    pub(super) fn waiting(&self, at: Instant) -> Vec<Waiter> {
        self.queue
            .iter()
            .map(|place| Waiter {
                owner: place.owner.to_string(),
                claim: Claim::Fair,
                expires_in: Some(place.expires.since(at)),
                client: None,
            })
            .collect()
    }
}
