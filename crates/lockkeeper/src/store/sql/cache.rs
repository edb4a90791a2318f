//! What this client remembers of names: their rows as it last saw them, and whose turn it is.
//!
//! Remembered rows are guesses. The server compares the version, so an outdated guess costs a round trip and nothing else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::rows::NameRows;
use crate::name::Name;

/// More names than this are not remembered.
const NAMES: usize = 10_000;

/// A name with more part rows than this is read again for each step.
pub(super) const PARTS: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Cache(Mutex<HashMap<Name, NameRows>>);

impl Cache {
    fn rows(&self) -> MutexGuard<'_, HashMap<Name, NameRows>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, name: &Name) -> Option<NameRows> {
        self.rows().get(name).cloned()
    }

    pub(crate) fn keep(&self, name: &Name, rows: NameRows) {
        let mut known = self.rows();
        if rows.version.is_none() || rows.parts.len() > PARTS {
            known.remove(name);
            return;
        }
        if known.len() >= NAMES && !known.contains_key(name) {
            // Any one: there is no order, and a miss costs a round trip.
            let Some(other) = known.keys().next().cloned() else { return };
            known.remove(&other);
        }
        known.insert(name.clone(), rows);
    }

    pub(crate) fn forget(&self, name: &Name) {
        self.rows().remove(name);
    }
}

/// One step at a time on each name: two of one client would only make each other's guess wrong.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<HashMap<Name, Weak<tokio::sync::Mutex<()>>>>);

impl Turns {
    pub(crate) fn of(&self, name: &Name) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(name).and_then(Weak::upgrade) {
            return turn;
        }
        if turns.len() % 1_024 == 1_023 {
            turns.retain(|_, turn| turn.strong_count() > 0);
        }
        let turn = Arc::new(tokio::sync::Mutex::new(()));
        turns.insert(name.clone(), Arc::downgrade(&turn));
        turn
    }
}
