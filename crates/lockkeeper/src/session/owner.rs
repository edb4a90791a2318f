//! Re-entrancy for those who ask for it: an owner is a value that remembers its current holds.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};

use super::{Held, Hold, lock};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::owner::{ClientId, WireOwner};
use crate::runtime::sync::{Mutex, Notify};

/// An owner that can acquire a lock again while it holds it.
///
/// Each `lock()` is its own owner, so clones of a handle exclude each other. Handles made with `owned_by(&owner)` share this one: acquiring
/// the lock again costs no round trip, draws no token, never shortens the lease, and answers
/// [`ErrorKind::Lost`] if the hold is no longer good. The lock is free when the last guard is gone.
///
/// Two tasks with the same owner are inside at the same time: the lock excludes other owners, not them. Give each task an owner of its
/// own, or none.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// # let client = lockkeeper::Client::connect("memory:").await?;
/// let me = client.owner();
/// let outer = client.mutex("orders").owned_by(&me).lock().await?;
/// let inner = client.mutex("orders").owned_by(&me).lock().await?; // no round trip
/// inner.release().await?;
/// outer.release().await?; // free now
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Owner(Arc<OwnerState>);

struct OwnerState {
    client: ClientId,
    holds: Mutex<HashMap<Name, Sides>>,
    changed: Notify,
}

/// What an owner has of one name: the exclusive side and the shared one.
type Sides = [Option<Slot>; 2];

enum Slot {
    /// One of this owner's tasks is taking it.
    Taking,
    Held(Weak<Hold>),
}

/// How an owner gets in.
pub(crate) enum Entry {
    /// It was in already.
    Reentered(Held),
    /// From outside, with the ticket to fill; a reader beside the write hold that this owner has.
    Outermost(Ticket, Option<WireOwner>),
}

/// The right to take a lock for an owner; gives it up when dropped unfilled.
pub(crate) struct Ticket {
    place: OwnedPlace,
    filled: bool,
}

/// Where an owner keeps a hold.
pub(crate) struct OwnedPlace {
    inner: Weak<OwnerState>,
    name: Name,
    side: usize,
}

impl Owner {
    pub(crate) fn new(client: ClientId) -> Self {
        Self(Arc::new(OwnerState { client, holds: Mutex::default(), changed: Notify::new() }))
    }

    /// Whether `self` and `other` are the same owner.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// # let client = lockkeeper::Client::connect("memory:").await?;
    /// let owner = client.owner();
    /// assert!(owner.is(&owner.clone()) && !owner.is(&client.owner()));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Enters at once; `None` if another task of this owner is just taking a side of it.
    pub(crate) fn try_enter(&self, client: ClientId, name: &Name, shared: bool) -> Result<Option<Entry>> {
        if client != self.0.client {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "this owner belongs to another client; make one with client.owner()",
            ));
        }
        let mut holds = lock(&self.0.holds);
        let mut other_side = None;
        if let Some(sides) = holds.get(name) {
            match &sides[usize::from(shared)] {
                Some(Slot::Taking) => return Ok(None),
                // One whose last guard is just going is as good as gone.
                Some(Slot::Held(hold)) => {
                    if let Some(held) = hold.upgrade().and_then(|hold| hold.reenter().transpose()) {
                        return held.map(|held| Some(Entry::Reentered(held)));
                    }
                }
                None => {}
            }
            match &sides[usize::from(!shared)] {
                // Whether this one comes in under the other's hold is not known yet.
                Some(Slot::Taking) => return Ok(None),
                Some(Slot::Held(hold)) => other_side = hold.upgrade().filter(|hold| hold.is_valid()),
                None => {}
            }
        }
        if other_side.is_some() && !shared {
            return Err(Error::new(
                ErrorKind::Deadlock,
                format!("this owner reads {name:?} and would wait for itself; release the read guard before writing"),
            ));
        }
        holds.entry(name.clone()).or_default()[usize::from(shared)] = Some(Slot::Taking);
        let place = OwnedPlace { inner: Arc::downgrade(&self.0), name: name.clone(), side: usize::from(shared) };
        Ok(Some(Entry::Outermost(Ticket { place, filled: false }, other_side.map(|hold| hold.grounds.owner))))
    }

    /// Enters, after any other task of this owner that is just taking it.
    pub(crate) async fn enter(&self, client: ClientId, name: &Name, shared: bool) -> Result<Entry> {
        loop {
            let mut changed = std::pin::pin!(self.0.changed.notified());
            changed.as_mut().enable();
            if let Some(entry) = self.try_enter(client, name, shared)? {
                return Ok(entry);
            }
            changed.await;
        }
    }
}

impl Ticket {
    /// Where the hold is to be kept.
    pub(crate) fn place(&self) -> OwnedPlace {
        let OwnedPlace { inner, name, side } = &self.place;
        OwnedPlace { inner: Weak::clone(inner), name: name.clone(), side: *side }
    }

    pub(crate) fn fill(mut self, hold: &Arc<Hold>) {
        self.filled = true;
        self.place.change(|slot| *slot = Some(Slot::Held(Arc::downgrade(hold))));
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.filled {
            self.place.change(|slot| *slot = None);
        }
    }
}

impl OwnedPlace {
    /// The owner, if it is still in use.
    pub(super) fn owner(&self) -> Option<Owner> {
        self.inner.upgrade().map(Owner)
    }

    /// The hold ended. Its place may be another's by now.
    pub(super) fn vacate(&self, hold: &Hold) {
        self.change(|slot| {
            if let Some(Slot::Held(kept)) = slot
                && std::ptr::eq(kept.as_ptr(), hold)
            {
                *slot = None;
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut Option<Slot>)) {
        let Some(inner) = self.inner.upgrade() else { return };
        let mut holds = lock(&inner.holds);
        if let Some(sides) = holds.get_mut(&self.name) {
            change(&mut sides[self.side]);
            if sides.iter().all(Option::is_none) {
                holds.remove(&self.name);
            }
        }
        drop(holds);
        inner.changed.notify_waiters();
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").field("client", &self.0.client).finish_non_exhaustive()
    }
}
