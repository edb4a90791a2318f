//! What a simulated history records, with clients by their index, so that two runs of a seed can be compared.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockkeeper::backend::Acquire;
use lockkeeper::referee::{Event, Grants, What};
use lockkeeper::{ClientId, WireOwner};

use super::world::Universe;

/// Records events; clones share the record.
#[derive(Clone, Debug)]
pub(super) struct Trace {
    universe: Universe,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    events: Vec<Event>,
    clients: HashMap<ClientId, u32>,
    /// What each owner was granted.
    grants: Grants<(u32, u64)>,
}

impl Trace {
    pub(super) fn new(universe: &Universe) -> Self {
        Self { universe: universe.clone(), inner: Arc::default() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True time, in nanoseconds from the start.
    pub(super) fn now(&self) -> u64 {
        self.universe.now()
    }

    pub(super) fn meet(&self, id: ClientId, client: u32) {
        self.inner().clients.insert(id, client);
    }

    /// The index of the owner's client, and the owner as the trace names it.
    pub(super) fn owner(&self, owner: WireOwner) -> (u32, String) {
        let client = self.inner().clients.get(&owner.client).copied().unwrap_or(u32::MAX);
        (client, format!("{client}:{}", owner.number))
    }

    pub(super) fn add(&self, client: u32, what: What) {
        let at = self.now();
        self.inner().events.push(Event { at, client, what });
    }

    /// The client was answered that the hold is granted or kept, as of `sent`.
    pub(super) fn answered(&self, name: &str, owner: WireOwner, token: Option<u64>, sent: u64, lease: u64) {
        let (client, words) = self.owner(owner);
        self.inner().grants.answered((client, owner.number), token, sent, lease);
        self.add(client, What::Kept { name: name.to_owned(), owner: words, sent, lease });
    }

    /// Notes beside which writer a reader asks to be let in.
    pub(super) fn beside(&self, request: &Acquire) {
        if let Some(writer) = request.beside {
            let ((client, owner), (_, writer)) = (self.owner(request.owner), self.owner(writer));
            self.add(client, What::Beside { name: request.name.as_str().to_owned(), owner, writer });
        }
    }

    /// When the request was sent by which the owner was last told that it has this token, and its lease.
    pub(super) fn grant_of(&self, owner: WireOwner, token: Option<u64>) -> (u64, u64) {
        let (client, _) = self.owner(owner);
        self.inner().grants.of(&(client, owner.number), token).unwrap_or_else(|| (self.now(), 0))
    }

    pub(super) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.inner().events)
    }
}

/// A digest of a history, the same in every run.
#[must_use]
pub(super) fn digest(events: &[Event]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for event in events {
        format!("{event:?}").hash(&mut hasher);
    }
    hasher.finish()
}
