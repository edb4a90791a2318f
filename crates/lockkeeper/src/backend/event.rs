//! What happened to a client's own waits and holds, and who is told of it.

use std::fmt;
use std::time::Duration;

use super::Claim;
use crate::error::{Error, ErrorKind};
use crate::name::Name;
use crate::owner::WireOwner;

/// Something happened to a wait or a hold of this client.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// It was granted after so long.
    Acquired {
        /// Where.
        name: &'a Name,
        /// What.
        claim: Claim,
        /// To whom.
        owner: WireOwner,
        /// From the call to the grant.
        waited: Duration,
        /// Whether the holder before, in this process, handed it over.
        handed_over: bool,
    },
    /// The first request did not get it: the call waits.
    WaitBegan {
        /// For what.
        claim: Claim,
    },
    /// A call that [waited](Self::WaitBegan) waits no more, whatever came of it.
    WaitEnded {
        /// For what.
        claim: Claim,
    },
    /// The call ended without a grant.
    GaveUp {
        /// Where.
        name: &'a Name,
        /// What.
        claim: Claim,
        /// From the call to its end.
        waited: Duration,
        /// Why.
        why: GaveUp,
    },
    /// It was released.
    Released {
        /// Where.
        name: &'a Name,
        /// What.
        claim: Claim,
        /// By whom.
        owner: WireOwner,
        /// From the grant to the release.
        held: Duration,
    },
    /// A renewal got no answer or an error; the hold goes on until its deadline.
    RenewalFailed {
        /// Where.
        name: &'a Name,
        /// What.
        claim: Claim,
        /// Whose.
        owner: WireOwner,
        /// Why.
        error: &'a Error,
    },
    /// A request of any kind failed. It may be sent again.
    RequestFailed {
        /// Why.
        error: &'a Error,
    },
    /// The store does not answer any more.
    Disconnected,
    /// The store answers again.
    Reconnected,
    /// A client was made. It counts as connected.
    ClientStarted,
    /// The last clone of a client is gone.
    ClientEnded {
        /// Whether the store answered its last request.
        connected: bool,
    },
    /// A hold was lost.
    Lost {
        /// Where.
        name: &'a Name,
        /// What.
        claim: Claim,
        /// Whose.
        owner: WireOwner,
        /// How it is known.
        reason: LossReason,
    },
}

/// Why a call ended without a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GaveUp {
    /// A try, and others held it.
    Busy,
    /// Others held it for as long as the call was allowed to wait.
    TimedOut,
    /// It failed with an error of this kind.
    Failed(ErrorKind),
    /// Its future was dropped.
    Cancelled,
}

/// Is told what happens to the waits and holds of one session, for metrics and logs.
///
/// It is called on the caller's thread and on the keeper's, so it must not block. A panic in it is caught and logged.
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// Something happened.
    fn notify(&self, event: &Event<'_>);
}

/// How it is known that a hold is lost.
///
/// The guide says what to do then: `docs/guide/src/loss.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// The store says that this owner does not hold it: freed by force, flushed, or expired there.
    Gone,
    /// Its lease ended on the local clock before a renewal got through.
    Expired,
    /// The client was closed.
    Closed,
    /// It was held for as long as [`max_hold`](crate::sync::Acquiring::max_hold) allows.
    MaxHold,
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "the store no longer knows this hold",
            Self::Expired => "its lease ended before it was renewed",
            Self::Closed => "the client was closed",
            Self::MaxHold => "it was held for as long as max_hold allows",
        })
    }
}
