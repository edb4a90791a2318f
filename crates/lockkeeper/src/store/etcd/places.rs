//! What this client has at etcd, or may have: the key of each owner. Kept here so that a repeated request uses the same key, and a release finds
//! it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::session::Lease;
use crate::backend::Claim;
use crate::name::Name;
use crate::owner::WireOwner;

/// An owner, and whether it reads: a writer may read beside its own hold, with two keys.
type Id = (Name, WireOwner, bool);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) key: Vec<u8>,
    pub(super) lease: i64,
    pub(super) session: u64,
    /// The revision at which the key was created; 0: not known to exist.
    pub(super) revision: i64,
    /// The owner was told that it holds the name.
    pub(super) granted: bool,
    /// A reader of the same process reads beside this writer.
    pub(super) has_reader: bool,
    /// The key of a writer that stays until this reader is released, see `release`.
    pub(super) keeps: Option<Vec<u8>>,
}

#[derive(Debug, Default)]
pub(super) struct Places(Mutex<HashMap<Id, Place>>);

fn id(name: &Name, owner: WireOwner, claim: Claim) -> Id {
    (name.clone(), owner, claim == Claim::Read)
}

impl Places {
    fn table(&self) -> MutexGuard<'_, HashMap<Id, Place>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, name: &Name, owner: WireOwner, claim: Claim) -> Option<Place> {
        self.table().get(&id(name, owner, claim)).cloned()
    }

    /// The place that the owner has in this session; or a new one with this key. To be called before anything is sent: what may arrive must be
    /// found by a release.
    pub(super) fn enter(&self, name: &Name, owner: WireOwner, claim: Claim, lease: &Lease, key: Vec<u8>) -> Place {
        let mut table = self.table();
        let place = table.entry(id(name, owner, claim)).or_insert_with(|| Place::new(lease, key.clone()));
        if place.session != lease.number {
            *place = Place::new(lease, key);
        }
        place.clone()
    }

    /// Changes a place, unless it is another one by now.
    pub(super) fn update(&self, name: &Name, owner: WireOwner, claim: Claim, session: u64, change: impl FnOnce(&mut Place)) {
        if let Some(place) = self.table().get_mut(&id(name, owner, claim)).filter(|place| place.session == session) {
            change(place);
        }
    }

    pub(super) fn remove(&self, name: &Name, owner: WireOwner, claim: Claim) {
        self.table().remove(&id(name, owner, claim));
    }

    /// All that is held.
    pub(super) fn held(&self) -> Vec<(Name, WireOwner, Vec<u8>)> {
        let table = self.table();
        let held = table.iter().filter(|(_, place)| place.granted);
        held.map(|((name, owner, _), place)| (name.clone(), *owner, place.key.clone())).collect()
    }

    /// A key is gone that this owner had: whether it still counted on it.
    pub(super) fn forget_deleted(&self, name: &Name, owner: WireOwner, key: &[u8]) -> bool {
        let mut table = self.table();
        let of = |reads: bool| (name.clone(), owner, reads);
        [false, true]
            .into_iter()
            .map(of)
            .any(|id| table.get(&id).is_some_and(|place| place.key == key) && table.remove(&id).is_some())
    }

    pub(super) fn forget_session(&self, session: u64) {
        self.table().retain(|_, place| place.session > session);
    }
}

impl Place {
    fn new(lease: &Lease, key: Vec<u8>) -> Self {
        Self { key, lease: lease.id, session: lease.number, revision: 0, granted: false, has_reader: false, keeps: None }
    }
}
