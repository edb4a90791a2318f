//! Where a waiter stands in its local queue: what the [acquisition](super::acquisition) learns of the other waiters of its process.

use super::{Moved, WireHold};
use crate::backend::Attempt;
use crate::owner::WireOwner;
use crate::runtime::Instant;

/// Where a waiter stands in its local queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stand {
    /// Not its turn: somebody in this process will wake it.
    Wait,
    /// First, behind an owner of this process that holds the name as far as is known here. That may be wrong (the store forgot it), so
    /// it also asks by itself now and then.
    Behind,
    /// First, and nobody here holds it: ask the store.
    Ask,
    /// First, but a release of this process has just woken waiters of other processes: they go first until then.
    BackOff { until: Instant },
    /// A release of this process asked for it: the answer, if it came, and when the request was sent. `moved`: under another owner than its own.
    HandedOver { attempt: Option<Attempt>, sent: Instant, not_after: Instant, moved: Option<Moved> },
    /// A guard of this process left it the hold at `since`, without a request.
    Passed { hold: WireHold, since: Instant },
    /// It did not answer in time, and what its owner id may hold is being released: it goes on under a new owner id.
    Revoked,
}

impl Stand {
    /// The owner under which the name was handed over to it, if it was. Its own owner is `own`.
    pub(crate) const fn granted_to(&self, own: WireOwner) -> Option<WireOwner> {
        match self {
            Self::HandedOver { attempt: Some(Attempt::Granted(_)), moved: None, .. } => Some(own),
            Self::HandedOver { attempt: Some(Attempt::Granted(_)), moved: Some(moved), .. } => Some(moved.owner),
            Self::Passed { hold, .. } => Some(hold.owner),
            _ => None,
        }
    }
}
