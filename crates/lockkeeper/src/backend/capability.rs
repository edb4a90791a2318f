//! What a store can do, as data: the façade checks it, the conformance suite chooses its cases by it.

use std::time::Duration;

use super::Kind;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;

/// What keeps a hold alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Liveness {
    /// Each hold has a lease of its own and ends with it.
    Lease,
    /// Holds live as long as the client's session with the store, which lasts this long without contact.
    Session(Duration),
}

impl Liveness {
    /// How long a session lasts without contact, where holds live in one.
    #[must_use]
    pub const fn session(self) -> Option<Duration> {
        match self {
            Self::Lease => None,
            Self::Session(lasts) => Some(lasts),
        }
    }
}

/// What a store can do: [`Capabilities::new`] knows of nothing, each `with_…` adds something.
///
/// ```
/// use lockkeeper::backend::{Capabilities, Kind};
///
/// let simple = Capabilities::new("simple").with_kinds(&[Kind::Mutex]).with_fencing();
/// assert!(simple.fencing && simple.supports(Kind::Mutex) && !simple.supports(Kind::Latch));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
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
    /// A release may grant to a successor on the condition that no other client waits ([`Release::if_alone`](super::Release::if_alone)).
    pub hand_over_if_alone: bool,
    /// A grant may reserve several tokens ([`Acquire::spare_tokens`](super::Acquire::spare_tokens)).
    pub token_ranges: bool,
    /// A notification may bring the grant ([`Watch::grant`](super::Watch::grant)).
    pub pushed_grants: bool,
    /// Several names in one step: those that go [together](super::Backend::atomic_groups).
    pub acquire_all: bool,
    /// Any text can be a name; else some are refused as [`ErrorKind::InvalidName`].
    pub any_name: bool,
    /// Waiters are woken; else they ask again by themselves.
    pub push: bool,
    /// How long a notification takes at most where the store polls for its waiters. A client that released gives others that long to come.
    pub notifies_within: Duration,
    /// A release of a mutex wakes one client after the other ([`Acquire::register`](super::Acquire::register)); else it wakes all that listen.
    pub wakes_in_turn: bool,
    /// A waiter for a mutex has a place in a queue of the store. It takes it as soon as it is first in its process, also behind a holder of its process.
    pub queues_mutexes: bool,
    /// A request that arrives after its `not_after` changes nothing. Where this is false an answer that was lost is settled by a
    /// [`Release`](super::Release) with `settle`.
    pub refuses_late: bool,
    /// The store tells by itself of ended sessions and deleted holds ([`Backend::events`](super::Backend::events)); else the keeper asks.
    pub events: bool,
    /// What keeps a hold alive.
    pub liveness: Liveness,
    /// The shortest lease that it can keep.
    pub min_lease: Duration,
    /// The longest lease that it can keep.
    pub max_lease: Duration,
    /// The longest name that it can keep, in bytes; never more than [`Name::MAX_LEN`].
    pub longest_name: usize,
}

impl Capabilities {
    /// A store that can do nothing yet, with leases from 10 ms to a year.
    #[must_use]
    pub const fn new(store: &'static str) -> Self {
        Self {
            store,
            mutex: false,
            fair: false,
            rwlock: false,
            semaphore: false,
            counting_semaphore: false,
            latch: false,
            fencing: false,
            hand_over: false,
            hand_over_if_alone: false,
            token_ranges: false,
            pushed_grants: false,
            acquire_all: false,
            any_name: false,
            push: false,
            notifies_within: Duration::ZERO,
            wakes_in_turn: false,
            queues_mutexes: false,
            refuses_late: false,
            events: false,
            liveness: Liveness::Lease,
            min_lease: Duration::from_millis(10),
            max_lease: Duration::from_secs(365 * 24 * 3600),
            longest_name: Name::MAX_LEN,
        }
    }

    /// Synchronizers of these kinds.
    #[must_use]
    pub fn with_kinds(mut self, kinds: &[Kind]) -> Self {
        for kind in kinds {
            match kind {
                Kind::Mutex => self.mutex = true,
                Kind::RwLock => self.rwlock = true,
                Kind::Semaphore => self.semaphore = true,
                Kind::CountingSemaphore => self.counting_semaphore = true,
                Kind::Latch => self.latch = true,
            }
        }
        self
    }

    /// Mutexes with a queue in the store.
    #[must_use]
    pub const fn with_fair(mut self) -> Self {
        self.fair = true;
        self
    }

    /// Tokens that never go back.
    #[must_use]
    pub const fn with_fencing(mut self) -> Self {
        self.fencing = true;
        self
    }

    /// A release may grant to a successor in the same step.
    #[must_use]
    pub const fn with_hand_over(mut self) -> Self {
        self.hand_over = true;
        self
    }

    /// A release may grant to a successor if no other client waits.
    #[must_use]
    pub const fn with_hand_over_if_alone(mut self) -> Self {
        self.hand_over_if_alone = true;
        self
    }

    /// A grant may reserve several tokens.
    #[must_use]
    pub const fn with_token_ranges(mut self) -> Self {
        self.token_ranges = true;
        self
    }

    /// A notification may bring the grant.
    #[must_use]
    pub const fn with_pushed_grants(mut self) -> Self {
        self.pushed_grants = true;
        self
    }

    /// Several names in one step.
    #[must_use]
    pub const fn with_acquire_all(mut self) -> Self {
        self.acquire_all = true;
        self
    }

    /// Whether any text can be a name.
    #[must_use]
    pub const fn with_any_name(mut self, any_name: bool) -> Self {
        self.any_name = any_name;
        self
    }

    /// Whether waiters are woken.
    #[must_use]
    pub const fn with_push(mut self, push: bool) -> Self {
        self.push = push;
        self
    }

    /// How long a notification takes at most.
    #[must_use]
    pub const fn with_notifies_within(mut self, longest: Duration) -> Self {
        self.notifies_within = longest;
        self
    }

    /// A release of a mutex wakes one client after the other.
    #[must_use]
    pub const fn with_wakes_in_turn(mut self) -> Self {
        self.wakes_in_turn = true;
        self
    }

    /// A waiter for a mutex has a place in a queue of the store.
    #[must_use]
    pub const fn with_queues_mutexes(mut self) -> Self {
        self.queues_mutexes = true;
        self
    }

    /// A request that arrives after its `not_after` changes nothing.
    #[must_use]
    pub const fn with_refuses_late(mut self) -> Self {
        self.refuses_late = true;
        self
    }

    /// Ended sessions and deleted holds are told.
    #[must_use]
    pub const fn with_events(mut self) -> Self {
        self.events = true;
        self
    }

    /// Holds live as long as the client's session, which lasts `session` without contact.
    #[must_use]
    pub const fn with_session(mut self, session: Duration) -> Self {
        self.liveness = Liveness::Session(session);
        self
    }

    /// The shortest and the longest lease.
    #[must_use]
    pub const fn with_leases(mut self, min: Duration, max: Duration) -> Self {
        (self.min_lease, self.max_lease) = (min, max);
        self
    }

    /// The longest name, in bytes.
    #[must_use]
    pub const fn with_longest_name(mut self, bytes: usize) -> Self {
        self.longest_name = if bytes < Name::MAX_LEN { bytes } else { Name::MAX_LEN };
        self
    }

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

    /// Checks a name against what the store can keep.
    pub(crate) fn check_name(&self, name: &Name) -> Result<()> {
        let (length, longest) = (name.as_str().len(), self.longest_name);
        if length > longest {
            return Err(Error::new(
                ErrorKind::InvalidName,
                format!("a name of {length} bytes is too long for the {} store; at most {longest} are allowed", self.store),
            ));
        }
        Ok(())
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
