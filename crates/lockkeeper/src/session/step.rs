//! A step of an [acquisition](super::acquisition): what happens to it, and what it wants done.

use std::time::Duration;

use super::Moved;
use super::stand::Stand;
use crate::backend::{Attempt, Grant, Register};
use crate::error::{Error, Result};
use crate::runtime::Instant;

/// What happened.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// The call begins. `may_ask`: nobody of this process is before it.
    Started { may_ask: bool },
    /// Where it stands in the local queue.
    Stands(Stand),
    /// The answer to `Ask`.
    Answered { answer: Result<Attempt>, sent: Instant },
    /// The answer to `Subscribe`: whether the store notifies.
    Subscribed(bool),
    /// A sleep ended: notified by the store, told by somebody in this process, or by the timer.
    Woken,
    /// The local queue gave this owner id up while its request was out.
    Revoked,
}

/// What to do next.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    /// Find out where it stands in the local queue.
    Look,
    /// Send the request now, at `sent`; no answer within `limit` is an unknown outcome.
    Ask { sent: Instant, limit: Duration, register: Register },
    /// Subscribe to the store's notifications.
    Subscribe { limit: Duration },
    /// Sleep until then, or until somebody in this process has news, or (if `listen`) the store notifies.
    Sleep { until: Instant, listen: bool },
    /// Granted: make a guard. With `moved`, the store has the hold under another owner id.
    Grant { grant: Grant, sent: Instant, handed_over: bool, moved: Option<Moved> },
    /// Undo what the old owner id may have left, and go on under a new one.
    NewOwner { left: Option<Left> },
    /// The time limit is over, and the name is still held.
    GiveUp,
    /// End with this error.
    Fail(Error),
}

/// What an acquisition that ends without a hold may have left in the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    /// Requests without an answer may arrive until then; zero if all were answered.
    pub(crate) settled_after: Instant,
    /// How many requests got no answer.
    pub(crate) unanswered: u32,
}

/// The present moment, with the time of the next poll drawn for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) now: Instant,
    /// How long to sleep when nothing is heard.
    pub(crate) poll: Duration,
}
