//! What a store must do to be one of several that decide by majority: grant as any store does, but not while it may have forgotten
//! what it granted before.
//!
//! A server that restarts empty, or is flushed, would vote for a second holder. So it keeps the id of its run among its data: if that
//! id is missing or differs, it refuses votes until every lease that it may have forgotten has ended.
//! [`model::Quarantine`](crate::model::Quarantine) is the specification.

use std::sync::Arc;
use std::time::Duration;

use super::{Acquire, Attempt, Backend, Renew, Renewed, Reply};
use crate::error::Result;
use crate::runtime::Instant;

/// Asks a store for its vote.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VoteRequest {
    /// The mutex, its owner and its lease.
    pub acquire: Acquire,
    /// The token is at least this large, so that several stores answer the same one. A store lowers it to its own clock plus half of
    /// `max_lease`: larger tokens would still be ahead of the clock when a store that forgot everything votes again.
    pub floor: u64,
    /// The longest lease that any client of the quorum asks for, the same for all.
    pub max_lease: Duration,
}

impl VoteRequest {
    /// Asks for a vote with a token of at least `floor`.
    #[must_use]
    pub const fn new(acquire: Acquire, floor: u64, max_lease: Duration) -> Self {
        Self { acquire, floor, max_lease }
    }

    /// The same with another floor.
    #[must_use]
    pub fn with_floor(self, floor: u64) -> Self {
        Self { floor, ..self }
    }
}

/// Renews votes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeepVotes {
    /// Which votes; mutexes only.
    pub renewals: Vec<Renew>,
    /// After this time no forgotten vote is given again: the lock may have been released since.
    pub not_after: Instant,
    /// As in [`VoteRequest`].
    pub max_lease: Duration,
}

impl KeepVotes {
    /// Renews these votes; none that was forgotten is given again after `not_after`.
    #[must_use]
    pub const fn new(renewals: Vec<Renew>, not_after: Instant, max_lease: Duration) -> Self {
        Self { renewals, not_after, max_lease }
    }
}

/// The answer to a request for a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Vote {
    /// What the store decided.
    pub decision: Decision,
    /// The store's clock when it decided, in microseconds since 1970.
    pub clock: u64,
}

impl Vote {
    /// A decision, at this time of the store's clock.
    #[must_use]
    pub const fn new(decision: Decision, clock: u64) -> Self {
        Self { decision, clock }
    }
}

/// What a store decided about a request for its vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// As to an acquire.
    Cast(Attempt),
    /// The store may have forgotten votes and gives none for this long. Nothing was changed.
    Quarantined(Duration),
}

/// Whether a store's votes count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Standing {
    /// It knows of no run: it is new, or has forgotten everything.
    Unknown,
    /// It gives no votes for this long.
    Quarantined(Duration),
    /// It votes.
    Admitted,
}

/// A store that can be one of a quorum.
pub trait Voter: Backend {
    /// As [`Backend::acquire`], of a mutex. In quarantine the store votes only for the owner that already has its vote.
    ///
    /// A repeated grant raises the store's counter to the request's floor and answers a token that is not smaller.
    fn vote(&self, request: VoteRequest) -> Reply<'_, Vote>;

    /// As [`Backend::renew`]. In quarantine a holder whose vote the store has forgotten gets it again, if a lease is asked for, nobody
    /// else has it and the request is not late. So a server that comes back does not cost a holder its lock.
    fn keep_votes(&self, request: KeepVotes) -> Reply<'_, Vec<Result<Renewed>>>;

    /// The id of the process that serves it: the same however it was reached, and different for every other server.
    fn server_id(&self) -> Reply<'_, String>;

    /// Whether its votes count. Changes nothing.
    fn standing(&self, max_lease: Duration) -> Reply<'_, Standing>;

    /// Lets a store that knows of no run vote at once. Changes nothing on any other store.
    fn admit(&self, max_lease: Duration) -> Reply<'_, ()>;

    /// As [`Backend::keeper_connection`], of a voter.
    fn second(self: Arc<Self>) -> Arc<dyn Voter>;
}
