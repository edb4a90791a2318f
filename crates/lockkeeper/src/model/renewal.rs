//! What a renewal does to the end of a hold, on a store whose clock may be set back.
//!
//! A renewal never shortens a lease: one that arrives late would cut an extension that was promised since. But after the store's clock was set
//! back, the end lies as far ahead as the step, and a holder that crashed would block the name for so long. So there is one exception. A holder
//! that learned from an answer that the end lies too far ahead names that end in its next requests. If it is still the same, nothing was promised
//! since that the request does not know of, and the end becomes what the holder counts on. `docs/decisions/0024` has the argument.

use std::time::Duration;

use crate::runtime::Instant;

/// An end that lies further ahead than this, beyond all that its holder asked for, is from before the clock was set back. No request of a hold is
/// delayed for longer, we assume: otherwise a late one must also meet an end to the millisecond to do harm.
pub(crate) const MARGIN: Duration = Duration::from_secs(60);

/// Ends that differ by no more than this are the same. Some servers tell the end only as the time that is left.
const SAME: Duration = Duration::from_millis(5);

/// A request that names an end leaves the hold with one that differs from it by more than this.
const APART: Duration = Duration::from_secs(1);

/// What a request asks of the end of a hold. Points in time are on the store's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Last at least this long from now; `None` only looks.
    pub(crate) lease: Option<Duration>,
    /// The holder counts on no more than this, from now; `None`: not known.
    pub(crate) reach: Option<Duration>,
    /// An end that is known to lie too far ahead.
    pub(crate) far: Option<FarEnd>,
}

/// An end that lies further ahead than any lease that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FarEnd {
    /// As the store told it.
    pub(crate) end: Instant,
    /// Whether this request may shorten it. If not, it only leaves the hold with another end.
    pub(crate) may_shorten: bool,
}

impl Asked {
    /// Lasts at least so long, and is never shortened.
    pub(crate) const fn plain(lease: Option<Duration>) -> Self {
        Self { lease, reach: None, far: None }
    }

    /// The same, with leases that are longer by what is not known of the store's clock.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) fn prolonged(self, by: Duration) -> Self {
        let longer = |time: Duration| time.saturating_add(by);
        Self { lease: self.lease.map(longer), reach: self.reach.map(longer), ..self }
    }

    /// Whether `end` lies too far ahead.
    #[must_use]
    pub(crate) fn is_far(&self, end: Instant, now: Instant) -> bool {
        self.reach.is_some_and(|reach| end > now.plus(reach).plus(MARGIN))
    }

    /// The end of the hold after this request, if it was `end` before.
    #[must_use]
    pub(crate) fn end_after(&self, end: Instant, now: Instant) -> Instant {
        if let (Some(far), Some(reach)) = (self.far, self.reach)
            && far.may_shorten
            && within(far.end, end, SAME)
            && self.is_far(end, now)
        {
            return now.plus(reach);
        }
        let Some(lease) = self.lease else { return end };
        let longer = end.max(now.plus(lease));
        match self.far {
            // An older request that names this end must not take the hold for unchanged.
            Some(far) if within(far.end, longer, APART) => far.end.plus(APART).plus(SAME),
            _ => longer,
        }
    }
}

fn within(one: Instant, other: Instant, distance: Duration) -> bool {
    one.since(other).max(other.since(one)) <= distance
}
