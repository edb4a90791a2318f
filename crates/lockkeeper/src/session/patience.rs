//! How long a call waits: for others, and for a store that does not answer.

use std::time::Duration;

use super::Settings;
use crate::backend::Busy;
use crate::error::{Error, ErrorKind};
use crate::runtime::Instant;

/// How long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Not at all for others; for the store's answer as long as a command may take.
    Try,
    /// So long, trouble with the store included.
    For(Duration),
    /// As long as it takes; trouble with the store as long as the settings allow.
    Forever,
    /// So long for others, and so long for trouble with the store.
    Limited { wait: Duration, outage: Duration },
}

impl Patience {
    /// When waiting for others ends.
    pub(crate) fn deadline(self, began: Instant) -> Instant {
        match self {
            Self::Try => began,
            Self::For(wait) | Self::Limited { wait, .. } => began.plus(wait),
            Self::Forever => Instant::NEVER,
        }
    }

    /// How long one request may take where a request of this claim may take `limit`. `left` is what is left of the wait, and `bearable` what is
    /// left of the time for trouble with the store.
    pub(crate) fn request_limit(self, limit: Duration, left: Duration, bearable: Duration) -> Duration {
        match self {
            // A try does not wait for others, but it waits for the store, and once more if an answer is lost.
            Self::Try => limit / 3,
            // A caller that waits a moment is not kept for the whole command timeout, yet a round trip must fit in.
            Self::For(_) => limit.min(left.max(limit / 10)),
            Self::Forever => limit.min(bearable.max(limit / 10)),
            // A request without an answer is noticed in time to send it again.
            Self::Limited { outage, .. } => limit.min(left.min(outage / 3).max(limit / 10)),
        }
    }

    /// How long trouble with the store is borne, counted from the sending of the first request that failed.
    pub(crate) fn bearable(self, settings: &Settings) -> Duration {
        match self {
            Self::Try => settings.command_timeout / 3 * 2,
            Self::For(wait) => wait,
            Self::Limited { wait, outage } => wait.min(outage),
            Self::Forever => settings.outage_timeout,
        }
    }
}

/// The error for a request that the store refused as late.
pub(crate) fn late() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "the request reached the store after its time limit; the network or the store's clock is slow",
    )
}

/// When to ask again without a notification: when a lease ends, and within a second in any case.
pub(crate) fn pause(busy: Busy, poll: Duration) -> Duration {
    // A little later than the end that was told: stores count in milliseconds, and a lease that ends while we ask costs a whole poll.
    let after = Duration::from_millis(1);
    busy.retry_in.map_or(poll, |end| poll.min(end + after))
}
