//! What a case needs of a store: a case whose need is not met is skipped, and says so.

use crate::backend::{Capabilities, Liveness};

/// What a case needs of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named as the capabilities are")]
#[non_exhaustive]
pub enum Need {
    Mutex,
    Fair,
    RwLock,
    Semaphore,
    CountingSemaphore,
    Latch,
    Fencing,
    HandOver,
    HandOverIfAlone,
    TokenRanges,
    PushedGrants,
    /// A waiter for a mutex has a place in a queue of the store.
    QueuesMutexes,
    AcquireAll,
    AnyName,
    Push,
    /// Each hold has a lease of its own.
    Lease,
    /// Holds live as long as the client's session.
    Session,
    /// The store tells of deleted holds and ended sessions.
    Events,
    /// Times in requests are compared with the store's clock.
    RefusesLate,
}

impl Need {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::Mutex,
        Self::Fair,
        Self::RwLock,
        Self::Semaphore,
        Self::CountingSemaphore,
        Self::Latch,
        Self::Fencing,
        Self::HandOver,
        Self::HandOverIfAlone,
        Self::TokenRanges,
        Self::PushedGrants,
        Self::QueuesMutexes,
        Self::AcquireAll,
        Self::AnyName,
        Self::Push,
        Self::Lease,
        Self::Session,
        Self::Events,
        Self::RefusesLate,
    ];

    /// Whether a store with these capabilities has it.
    #[must_use]
    pub const fn is_met(self, by: &Capabilities) -> bool {
        match self {
            Self::Mutex => by.mutex,
            Self::Fair => by.fair,
            Self::RwLock => by.rwlock,
            Self::Semaphore => by.semaphore,
            Self::CountingSemaphore => by.counting_semaphore,
            Self::Latch => by.latch,
            Self::Fencing => by.fencing,
            Self::HandOver => by.hand_over,
            Self::HandOverIfAlone => by.hand_over_if_alone,
            Self::TokenRanges => by.token_ranges,
            Self::PushedGrants => by.pushed_grants,
            Self::QueuesMutexes => by.queues_mutexes,
            Self::AcquireAll => by.acquire_all,
            Self::AnyName => by.any_name,
            Self::Push => by.push,
            Self::Lease => matches!(by.liveness, Liveness::Lease),
            Self::Session => matches!(by.liveness, Liveness::Session(_)),
            Self::Events => by.events,
            Self::RefusesLate => by.refuses_late,
        }
    }
}
