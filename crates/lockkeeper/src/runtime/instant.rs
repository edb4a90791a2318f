//! Points in time.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A point on a clock that only goes forward, also while the machine sleeps; in nanoseconds from a start of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Instant(u64);

impl Instant {
    /// The end of time: a deadline that never comes.
    pub const NEVER: Self = Self(u64::MAX);

    /// The point this many nanoseconds after the start of the clock.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the start of the clock.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The point `by` later, or [`Instant::NEVER`].
    #[must_use]
    pub const fn plus(self, by: Duration) -> Self {
        let nanos = by.as_nanos();
        if nanos > u64::MAX as u128 { Self::NEVER } else { Self(self.0.saturating_add(nanos as u64)) }
    }

    /// How long after `earlier` this is; zero if it is before.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}
