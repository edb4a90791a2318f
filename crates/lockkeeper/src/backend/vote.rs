//! What a store must do to be one of several that decide by majority: grant as any store does, but not while it may have forgotten
//! what it granted before.
//!
//! A server that restarts empty, or is flushed, would vote for a second holder. So it keeps the id of its run among its data: if that
//! is missing or another's, it refuses votes until every lease that it may have forgotten has ended. What that means in detail is
//! [`model::Quarantine`](crate::model::Quarantine).

use std::sync::Arc;
use std::time::Duration;

use super::{Acquire, Attempt, Backend, Renew, Renewed, Reply};
use crate::error::Result;

/// The answer to a request for a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vote {
    /// As to an acquire.
    Cast(Attempt),
    /// The store may have forgotten votes, and gives none for so long. Nothing was changed.
    Quarantined(Duration),
}

/// Whether a store's votes count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It knows of no run: it is new, or has forgotten everything.
    Unknown,
    /// It gives no votes for so long.
    Quarantined(Duration),
    /// It votes.
    Admitted,
}

/// A store that can be one of a quorum. `max_lease` is the longest lease that any client of the quorum asks for, the same for all.
pub trait Voter: Backend {
    /// As [`Backend::acquire`], of a mutex; refused while the store is in quarantine, except to the one who holds it there.
    ///
    /// A repeated grant lifts the store's counter to the request's `floor`, and answers with a number that is not smaller.
    fn vote(&self, request: Acquire, max_lease: Duration) -> Reply<'_, Vote>;

    /// As [`Backend::renew`], of mutexes; in quarantine a holder whose vote the store has forgotten gets it again, if a lease is asked for
    /// and nobody else has it. So a server that comes back does not cost a holder its lock.
    fn keep_votes(&self, requests: Vec<Renew>, max_lease: Duration) -> Reply<'_, Vec<Result<Renewed>>>;

    /// Whether its votes count, changing nothing.
    fn standing(&self, max_lease: Duration) -> Reply<'_, Standing>;

    /// Lets a store that knows of no run vote at once; does nothing to any other.
    fn admit(&self, max_lease: Duration) -> Reply<'_, ()>;

    /// As [`Backend::keeper_connection`].
    fn second(self: Arc<Self>) -> Arc<dyn Voter>;
}
