//! A fixed number of permits, each held by an owner under a lease: a crash gives them back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::record::Hold;
use super::{Now, Wake};
use crate::backend::{Acquire, Attempt, Busy, Claim, Counted, Grant, Holder, SemaphoreOp};
use crate::error::{Error, ErrorKind, Result};
use crate::owner::WireOwner;
use crate::runtime::Instant;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    /// `None` until somebody sets the size.
    pub(super) total: Option<u32>,
    #[serde(with = "super::pairs")]
    pub(super) held: BTreeMap<WireOwner, Permits>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Permits {
    pub(super) count: u32,
    pub(super) hold: Hold,
}

impl State {
    /// A semaphore keeps its size when all permits are back; it ends when it is removed.
    pub(super) fn is_empty(&self) -> bool {
        self.total.is_none()
    }

    pub(super) fn expire(&mut self, at: Instant) {
        self.held.retain(|_, permits| permits.hold.expires > at);
    }

    pub(super) fn total(&self) -> u32 {
        self.total.unwrap_or(0)
    }

    /// Negative after the size was set below what is held.
    pub(super) fn free(&self) -> i64 {
        let used: i64 = self.held.values().map(|permits| i64::from(permits.count)).sum();
        i64::from(self.total()) - used
    }

    pub(super) fn acquire(&mut self, request: &Acquire, take: u32, of: u32, now: Now) -> Result<Attempt> {
        let total = self.total.unwrap_or(of);
        let checked = request.any_size;
        if total != of && !checked {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("the semaphore {:?} has {total} permits, not {of}; ask for {total}, or resize it", request.name),
            ));
        }
        // A hold from before the semaphore shrank is given again.
        let again = checked && self.held.contains_key(&request.owner);
        if take == 0 || take > total && !again {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("cannot take {take} of {total} permits of {:?}; take 1 to {total}", request.name),
            ));
        }
        self.total = Some(total);
        if let Some(hold) = self.hold_of(request.owner) {
            return Ok(hold.again(request, now));
        }
        if self.free() < i64::from(take) {
            let next_change = self.held.values().map(|permits| permits.hold.expires).min();
            return Ok(Attempt::Busy(Busy {
                retry_in: next_change.map(|end| end.since(now.at)),
                ahead: None,
                placed: false,
                unseen: false,
            }));
        }
        let hold = Hold { since: now.at, expires: now.at.plus(request.lease), token: None };
        self.held.insert(request.owner, Permits { count: take, hold });
        Ok(Attempt::Granted(Grant::new(None, request.lease)))
    }

    pub(super) fn release(&mut self, owner: WireOwner) -> (bool, Wake) {
        let held = self.held.remove(&owner).is_some();
        (held, if held { Wake::ALL } else { Wake::NOBODY })
    }

    pub(super) fn apply(&mut self, op: SemaphoreOp) -> (Counted, Wake) {
        let before = self.total;
        let done = match op {
            SemaphoreOp::Read => return (Counted { done: before.is_some(), value: self.free() }, Wake::NOBODY),
            SemaphoreOp::Init(total) => before.is_none() && self.set(total),
            SemaphoreOp::Resize(total) => self.set(total),
            SemaphoreOp::Remove => self.held.is_empty() && self.total.take().is_some(),
        };
        let grew = self.total > before;
        (Counted { done, value: i64::from(self.total()) }, if grew { Wake::ALL } else { Wake::NOBODY })
    }

    fn set(&mut self, total: u32) -> bool {
        self.total = Some(total);
        true
    }

    pub(super) fn owners(&self) -> Vec<WireOwner> {
        self.held.keys().copied().collect()
    }

    pub(super) fn forget(&mut self, gone: &dyn Fn(WireOwner) -> bool) -> Wake {
        let before = self.held.len();
        self.held.retain(|owner, _| !gone(*owner));
        if self.held.len() < before { Wake::ALL } else { Wake::NOBODY }
    }

    pub(super) fn force(&mut self) -> Wake {
        if std::mem::take(&mut self.held).is_empty() { Wake::NOBODY } else { Wake::ALL }
    }

    pub(super) fn hold_of(&mut self, owner: WireOwner) -> Option<&mut Hold> {
        self.held.get_mut(&owner).map(|permits| &mut permits.hold)
    }

    pub(super) fn holders(&self, at: Instant) -> Vec<Holder> {
        let of = self.total();
        self.held
            .iter()
            .map(|(owner, permits)| permits.hold.describe(*owner, Claim::Permits { take: permits.count, of }, at))
            .collect()
    }
}
