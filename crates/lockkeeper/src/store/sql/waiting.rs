//! A waiter of a long queue that asks again: it reads a few rows and extends its place by itself, beside the steps of others.
//!
//! Such an extension does not change the version of the name: a thousand waiters would make each other's guesses wrong, and those of the holder.
//! So rows that were read some time ago may have an older end of a place. Two rules keep that from removing a waiter that is alive. A place is
//! extended in this way only while a fifth of its time is left. And no step is computed on rows with a place that has ended since they were
//! read ([`NameRows::has_doubtful_place`]).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::requests::{here, on_server};
use super::rows::{NameRows, PartKey};
use super::{Dial, Failed, Put, Statements as _, Steps, cache};
use crate::backend::{Acquire, Attempt, Busy, Claim};
use crate::model::Role;
use crate::name::Name;
use crate::owner::WireOwner;
use crate::store::kit::waiting;

/// More places than these are not remembered: their waiters take whole steps.
const MOST: usize = 100_000;

/// The places that this client has in long queues.
#[derive(Debug, Default)]
pub(super) struct LongQueues(Mutex<HashMap<(Name, WireOwner), u64>>);

/// What a waiter that asks again needs of a name.
#[derive(Debug)]
pub(crate) struct Standing {
    /// The head row, and of the part rows its place, the first one and the one before it.
    pub(crate) rows: NameRows,
    /// How many places stand before it that have not ended.
    pub(crate) ahead: u32,
}

impl LongQueues {
    fn places(&self) -> MutexGuard<'_, HashMap<(Name, WireOwner), u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, name: &Name, owner: WireOwner) -> Option<PartKey> {
        let places = self.places();
        if places.is_empty() { None } else { places.get(&(name.clone(), owner)).map(|seq| (Role::Waiter, *seq, owner)) }
    }

    /// It waits no longer, or has lost its place.
    pub(super) fn forget(&self, name: &Name, owner: WireOwner) {
        let mut places = self.places();
        if !places.is_empty() {
            places.remove(&(name.clone(), owner));
        }
    }

    /// A step was written, after which the name has so many part rows.
    pub(super) fn wrote(&self, put: &Put, parts: usize) {
        let deleted = put.deleted.iter().filter(|(role, ..)| *role == Role::Waiter);
        let stays = put.parts.iter().map(|row| row.part.key()).filter(|(role, ..)| *role == Role::Waiter);
        let mut places = self.places();
        for (.., owner) in deleted {
            places.remove(&(put.name.clone(), *owner));
        }
        for (_, seq, owner) in stays {
            if parts > cache::PARTS && places.len() < MOST {
                places.insert((put.name.clone(), owner), seq);
            } else {
                places.remove(&(put.name.clone(), owner));
            }
        }
    }
}

impl<D: Dial> Steps<D> {
    /// The answer to a waiter of a long queue, if it has to wait on. `None`: only the whole step can tell.
    pub(super) async fn still_busy(&self, request: &Acquire) -> Result<Option<Attempt>, Failed> {
        let name = &request.name;
        if request.claim != Claim::Fair {
            return Ok(None);
        }
        let Some(key) = self.long_queues.place(name, request.owner) else { return Ok(None) };
        let live = self.live(name).await?;
        let (sent, window) = (self.runtime.now(), live.clock().window(self.runtime.now()));
        let (at, asked) = (window.now(), on_server(request, &window));
        let answer = live.standing(name, key, at).await?;
        live.clock().observe(answer.clock, sent, self.runtime.now());
        let Standing { rows, ahead } = answer.told;
        let (Some(head), Some(own), Some(place)) = (&rows.head, rows.parts.get(&key), asked.place) else {
            self.long_queues.forget(name, request.owner);
            return Ok(None);
        };
        let places: Vec<_> = rows.parts.values().filter(|row| row.part.role == Role::Waiter).copied().collect();
        let Some((busy, _)) = waiting::still_busy(head, &places, &asked, at) else { return Ok(None) };
        if waiting::ends_soon(own, place, at) && !live.extend_place(name, key, place / 5, at.plus(place)).await? {
            return Ok(None);
        }
        Ok(Some(here(Attempt::Busy(Busy { ahead: Some(ahead), ..busy }), &window)))
    }
}
