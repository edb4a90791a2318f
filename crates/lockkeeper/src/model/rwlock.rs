//! Many readers or one writer. Neither side starves: a reader yields to the writers that came before it, and to no others.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::record::Hold;
use super::{Now, Wake};
use crate::backend::{Acquire, Attempt, Busy, Claim, Grant, Holder, Waiter};
use crate::owner::WireOwner;
use crate::runtime::Instant;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) writer: Option<(WireOwner, Hold)>,
    /// May include the writer itself: a downgrade acquires the read hold before it releases the write hold.
    #[serde(with = "super::pairs")]
    pub(super) readers: BTreeMap<WireOwner, Hold>,
    /// Writers that wait. A mark ends unless its owner asks again in time.
    #[serde(with = "super::pairs")]
    pub(super) pending: BTreeMap<WireOwner, Pending>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pending {
    pub(super) since: Instant,
    pub(super) expires: Instant,
}

impl State {
    pub(super) fn is_empty(&self) -> bool {
        self.writer.is_none() && self.readers.is_empty() && self.pending.is_empty()
    }

    pub(super) fn expire(&mut self, at: Instant) {
        self.writer = self.writer.take().filter(|(_, hold)| hold.expires > at);
        self.readers.retain(|_, hold| hold.expires > at);
        self.pending.retain(|_, mark| mark.expires > at);
    }

    pub(super) fn read(&mut self, request: &Acquire, now: Now) -> Attempt {
        let owner = request.owner;
        if let Some(hold) = self.readers.get_mut(&owner) {
            return hold.again(request, now);
        }
        let blocked_until = match &self.writer {
            Some((writer, _)) if *writer == owner || request.beside == Some(*writer) => None,
            Some((_, hold)) => Some(hold.expires),
            None => self
                .pending
                .iter()
                .filter(|(writer, mark)| **writer != owner && mark.since <= request.since)
                .map(|(_, mark)| mark.expires)
                .max(),
        };
        match blocked_until {
            Some(until) => Attempt::Busy(Busy { retry_in: Some(until.since(now.at)), ahead: None, placed: false, unseen: false }),
            None => {
                let hold = Hold::granted(request, now);
                self.readers.insert(owner, hold);
                Attempt::Granted(Grant::new(hold.token, request.lease))
            }
        }
    }

    pub(super) fn write(&mut self, request: &Acquire, now: Now) -> Attempt {
        let owner = request.owner;
        if let Some(hold) = self.write_hold_of(owner) {
            return hold.again(request, now);
        }
        let blocked_until = match &self.writer {
            Some((_, hold)) => Some(hold.expires),
            None => self.readers.values().map(|hold| hold.expires).max(),
        };
        match blocked_until {
            Some(until) => {
                if let Some(patience) = request.place {
                    let expires = now.at.plus(patience);
                    let mark = self.pending.entry(owner).or_insert(Pending { since: request.since, expires });
                    mark.expires = mark.expires.max(expires);
                }
                Attempt::Busy(Busy {
                    retry_in: Some(until.since(now.at)),
                    ahead: None,
                    placed: request.place.is_some(),
                    unseen: false,
                })
            }
            None => {
                self.pending.remove(&owner);
                let hold = Hold::granted(request, now);
                self.writer = Some((owner, hold));
                Attempt::Granted(Grant::new(hold.token, request.lease))
            }
        }
    }

    pub(super) fn release_read(&mut self, owner: WireOwner) -> (bool, Wake) {
        let held = self.readers.remove(&owner).is_some();
        let last = held && self.readers.is_empty() && self.writer.is_none();
        (held, if last { Wake::ALL } else { Wake::NOBODY })
    }

    pub(super) fn release_write(&mut self, owner: WireOwner) -> (bool, Wake) {
        // When a waiting writer gives up, the readers behind it may enter; after a downgrade, other readers may.
        let waited = self.pending.remove(&owner).is_some();
        let held = self.write_hold_of(owner).is_some();
        if held {
            self.writer = None;
        }
        (held, if held || waited { Wake::ALL } else { Wake::NOBODY })
    }

    /// All owners in it, holders first.
    pub(super) fn owners(&self) -> Vec<WireOwner> {
        let writer = self.writer.iter().map(|(owner, _)| *owner);
        writer.chain(self.readers.keys().copied()).chain(self.pending.keys().copied()).collect()
    }

    /// Those in the way of a refused request.
    pub(super) fn blockers(&self, request: &Acquire) -> Vec<WireOwner> {
        if let Some((writer, _)) = &self.writer {
            return vec![*writer];
        }
        match request.claim {
            Claim::Read => {
                let before = self.pending.iter().filter(|(_, mark)| mark.since <= request.since);
                before.map(|(owner, _)| *owner).filter(|owner| *owner != request.owner).collect()
            }
            _ => self.readers.keys().copied().collect(),
        }
    }

    pub(super) fn forget(&mut self, gone: &dyn Fn(WireOwner) -> bool) -> Wake {
        let before = self.owners().len();
        self.writer.take_if(|(owner, _)| gone(*owner));
        self.readers.retain(|owner, _| !gone(*owner));
        self.pending.retain(|owner, _| !gone(*owner));
        if self.owners().len() < before { Wake::ALL } else { Wake::NOBODY }
    }

    pub(super) fn force(&mut self) -> Wake {
        let held = self.writer.take().is_some() | !std::mem::take(&mut self.readers).is_empty();
        if held { Wake::ALL } else { Wake::NOBODY }
    }

    pub(super) fn read_hold_of(&mut self, owner: WireOwner) -> Option<&mut Hold> {
        self.readers.get_mut(&owner)
    }

    pub(super) fn write_hold_of(&mut self, owner: WireOwner) -> Option<&mut Hold> {
        self.writer.as_mut().filter(|(writer, _)| *writer == owner).map(|(_, hold)| hold)
    }

    pub(super) fn holders(&self, at: Instant) -> Vec<Holder> {
        let writer = self.writer.iter().map(|(owner, hold)| hold.describe(*owner, Claim::Write, at));
        let readers = self.readers.iter().map(|(owner, hold)| hold.describe(*owner, Claim::Read, at));
        writer.chain(readers).collect()
    }

    pub(super) fn waiting(&self, at: Instant) -> Vec<Waiter> {
        let mut marks: Vec<_> = self.pending.iter().collect();
        marks.sort_by_key(|(_, mark)| mark.since);
        marks
            .into_iter()
            .map(|(owner, mark)| Waiter {
                owner: owner.to_string(),
                claim: Claim::Write,
                expires_in: Some(mark.expires.since(at)),
                client: None,
            })
            .collect()
    }
}
