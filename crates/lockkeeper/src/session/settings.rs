//! The times a client keeps, with their defaults.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};

/// The times a client keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// The lease of a hold that is kept alive, renewed every third of it. Default: 30 s. A crashed holder blocks others for at
    /// most this long.
    pub lease: Duration,
    /// How long one request may take before its outcome counts as unknown. Default: 3 s; never more than a quarter of the lease.
    pub command_timeout: Duration,
    /// How long an unreachable store is tried again before a call without a wait limit gives up. Default: 10 s.
    pub outage_timeout: Duration,
    /// How long a waiter's place in a store's queue is kept without a sign of life. Default: 5 s.
    pub place: Duration,
    /// How long dropping the last client blocks while releases are pending. Default: 500 ms; zero turns it off.
    pub drop_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            command_timeout: Duration::from_secs(3),
            outage_timeout: Duration::from_secs(10),
            place: Duration::from_secs(5),
            drop_timeout: Duration::from_millis(500),
        }
    }
}

impl Settings {
    /// A waiter asks again after at most this long when nothing is heard (P6: less than a second).
    pub(crate) const POLL: (Duration, Duration) = (Duration::from_millis(850), Duration::from_millis(900));

    /// The same on a store without notifications, where nothing else tells that a name is free.
    pub(crate) const POLL_WITHOUT_PUSH: (Duration, Duration) = (Duration::from_millis(150), Duration::from_millis(200));

    /// Such moments of one process fall together on a grid, so that what many waiters ask can travel together.
    pub(crate) const POLL_GRID: Duration = Duration::from_millis(200);

    /// How long one request for a hold of this lease may take.
    pub(crate) fn limit(&self, lease: Duration) -> Duration {
        self.command_timeout.min(lease / 4)
    }

    pub(crate) fn check(&self) -> Result<()> {
        for (what, value) in [("command timeout", self.command_timeout), ("place in the queue", self.place)] {
            if value.is_zero() {
                return Err(Error::new(ErrorKind::InvalidArgument, format!("a {what} of zero would never succeed")));
            }
        }
        const MOST: Duration = Duration::from_secs(24 * 3600);
        for (what, value) in [("command timeout", self.command_timeout), ("place in the queue", self.place)] {
            if value > MOST {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    format!("a {what} of {value:?} is too long; at most {MOST:?}"),
                ));
            }
        }
        if self.place < Duration::from_secs(2) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "queue_ttl must be at least 2s: waiters refresh their place about once a second",
            ));
        }
        Ok(())
    }
}
