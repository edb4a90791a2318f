//! What a hold was granted for: what was asked, and what the store answered. It does not change while the hold lasts.

use std::sync::Arc;
use std::time::Duration;

use super::LocalQueue;
use super::owner::OwnedPlace;
use crate::backend::Claim;
use crate::name::Name;
use crate::owner::WireOwner;
use crate::runtime::Instant;

/// What a hold was granted for.
pub(crate) struct Grounds {
    pub(crate) name: Name,
    pub(crate) claim: Claim,
    /// Under which owner the store has it.
    pub(crate) owner: WireOwner,
    /// The number of the acquisition. Where the hold passed on inside this process that is not the owner's.
    pub(crate) id: u64,
    pub(crate) token: Option<u64>,
    /// How many token numbers after its own are reserved for the next holders of this process.
    pub(crate) spare_tokens: u32,
    /// How often the hold has passed on since the store granted it.
    pub(crate) passes: u32,
    pub(crate) lease: Duration,
    /// How long the hold is safe, counted from `sent`: what the store answered.
    pub(crate) good_for: Duration,
    /// The session of this client that it lives in; 0 where holds have leases.
    pub(crate) session: u64,
    /// Renewed by the keeper; else it ends by itself and is only looked at.
    pub(crate) kept: bool,
    /// When the granting request was sent: the lease began no earlier.
    pub(crate) sent: Instant,
    /// Requests of this owner without an answer may still arrive until then.
    pub(crate) unsettled_until: Instant,
    pub(crate) queue: Option<Arc<LocalQueue>>,
    /// Handed over by a release of this process.
    pub(crate) handed_over: bool,
    /// Held until then at most, however often it is renewed.
    pub(crate) until: Instant,
    /// The place with the [`Owner`](super::Owner) that may re-enter it.
    pub(crate) place: Option<OwnedPlace>,
}
