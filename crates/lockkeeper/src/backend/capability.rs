//! What a store can do, as data: the façade checks it, the conformance suite chooses its cases by it.

use std::time::Duration;

use super::Kind;
use crate::error::{Error, ErrorKind, Result};

/// What keeps a hold alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// Each hold has a lease of its own and ends with it.
    Lease,
    /// Holds live as long as the client's session with the store, which lasts this long without contact.
    Session(Duration),
}

/// What a store can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The store's name, for messages: `memory`, `redis`, …
    pub store: &'static str,
    /// Mutexes.
    pub mutex: bool,
    /// Mutexes with a queue in the store.
    pub fair: bool,
    /// Read-write locks.
    pub rwlock: bool,
    /// Semaphores of leased permits.
    pub semaphore: bool,
    /// Counting semaphores.
    pub counting_semaphore: bool,
    /// Count-down latches.
    pub latch: bool,
    /// Grants carry tokens that never go back.
    pub fencing: bool,
    /// A release may grant to a successor in the same step.
    pub hand_over: bool,
    /// Several names in one step: those that go [together](super::Backend::atomic_groups).
    pub acquire_all: bool,
    /// Any text can be a name; else some are refused as [`ErrorKind::InvalidName`].
    pub any_name: bool,
    /// Waiters are woken; else they ask again by themselves.
    pub push: bool,
    /// What keeps a hold alive.
    pub liveness: Liveness,
    /// The shortest lease that it can keep.
    pub min_lease: Duration,
    /// The longest lease that it can keep.
    pub max_lease: Duration,
}

impl Capabilities {
    /// Whether synchronizers of this kind live there.
    #[must_use]
    pub const fn supports(&self, kind: Kind) -> bool {
        match kind {
            Kind::Mutex => self.mutex,
            Kind::RwLock => self.rwlock,
            Kind::Semaphore => self.semaphore,
            Kind::CountingSemaphore => self.counting_semaphore,
            Kind::Latch => self.latch,
        }
    }

    /// The error for something that the store cannot do.
    #[must_use]
    pub fn unsupported(&self, what: &str) -> Error {
        Error::new(ErrorKind::Unsupported, format!("the {} store has no {what}; choose another store", self.store))
    }

    /// Checks a lease against what the store can keep.
    pub(crate) fn check_lease(&self, lease: Duration) -> Result<()> {
        if lease < self.min_lease || lease > self.max_lease {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "a lease of {lease:?} is outside what the {} store can keep: {:?} to {:?}",
                    self.store, self.min_lease, self.max_lease
                ),
            ));
        }
        Ok(())
    }
}
