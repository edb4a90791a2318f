//! Whether a store that may have forgotten something may vote: the run it knows of, and since when. And how far a vote may raise the
//! store's tokens above its clock, so that what it forgets cannot make them go back.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::backend::Standing;
use crate::error::{Error, ErrorKind};
use crate::runtime::Instant;

/// What a store keeps, among the data it may lose, about the run of the process that serves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantine {
    run: String,
    /// No vote was given in this run before this time; `None`: it was admitted.
    since: Option<Instant>,
    /// The longest lease that any client named.
    max_lease: Duration,
}

impl Quarantine {
    /// Handles a request of a client that learned, when it connected, that the store's run is `run`. A run that the store does not know of
    /// begins its quarantine. Returns how long the quarantine still lasts; zero if the store may vote.
    pub fn meet(kept: &mut Option<Self>, run: &str, at: Instant, max_lease: Duration) -> Duration {
        match kept {
            Some(known) if known.run == run => known.max_lease = known.max_lease.max(max_lease),
            _ => {
                // The longest lease of an earlier run still bounds what that run granted.
                let max_lease = kept.as_ref().map_or(max_lease, |known| known.max_lease.max(max_lease));
                *kept = Some(Self { run: run.to_owned(), since: Some(at), max_lease });
            }
        }
        kept.as_ref().map_or(Duration::ZERO, |known| known.left(at))
    }

    /// As [`meet`](Self::meet), without changing anything.
    #[must_use]
    pub fn standing(kept: Option<&Self>, run: &str, at: Instant, max_lease: Duration) -> Standing {
        let Some(known) = kept else { return Standing::Unknown };
        let left = Self::meet(&mut Some(known.clone()), run, at, max_lease);
        if left.is_zero() { Standing::Admitted } else { Standing::Quarantined(left) }
    }

    /// Lets a store that knows of no run vote at once.
    pub fn admit(kept: &mut Option<Self>, run: &str, max_lease: Duration) {
        if kept.is_none() {
            *kept = Some(Self { run: run.to_owned(), since: None, max_lease });
        }
    }

    /// The floor that a store with this clock accepts: at most half of the longest lease ahead of the clock.
    ///
    /// `repeated` is the store's last token if it has granted this very request before. Then the floor is a token that another server of the quorum has
    /// granted, and may be as far ahead as three quarters of the longest lease: servers whose clocks differ by up to a quarter can agree on
    /// it. A store that forgets its counter gives no votes for `max_lease`. By then its clock has passed every token that it gave out, because none was
    /// further ahead than this, however often a client asked. Only a clock that was set back leaves the last token further ahead. Then the
    /// floor of a repeated request counts from that token.
    #[must_use]
    pub fn highest_floor(floor: u64, clock: u64, repeated: Option<u64>, max_lease: Duration) -> u64 {
        let quarter = u64::try_from(max_lease.as_micros() / 4).unwrap_or(u64::MAX);
        let ahead = |from: u64, quarters: u64| from.saturating_add(quarter.saturating_mul(quarters));
        floor.min(match repeated {
            None => ahead(clock, 2),
            Some(last) if last > ahead(clock, 3) => ahead(last, 2),
            Some(_) => ahead(clock, 3),
        })
    }

    /// The answer to a renewal that came too late to give a forgotten vote again.
    #[must_use]
    pub fn late_renewal() -> Error {
        Error::new(ErrorKind::Unavailable, "the renewal came too late to give a forgotten vote again")
    }

    fn left(&self, at: Instant) -> Duration {
        self.since.map_or(Duration::ZERO, |since| since.plus(self.max_lease).since(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn an_unknown_run_waits_for_the_longest_lease_once() {
        let mut kept = None;
        assert_eq!(Quarantine::standing(kept.as_ref(), "r1", at(0), MINUTE), Standing::Unknown);
        assert_eq!(Quarantine::meet(&mut kept, "r1", at(0), MINUTE), MINUTE);
        assert_eq!(Quarantine::meet(&mut kept, "r1", at(59), MINUTE), Duration::from_secs(1));
        assert_eq!(Quarantine::meet(&mut kept, "r1", at(60), MINUTE), Duration::ZERO);
        assert_eq!(Quarantine::standing(kept.as_ref(), "r1", at(60), MINUTE), Standing::Admitted);
        // Restarted with its data: the last of it may be missing.
        assert_eq!(Quarantine::standing(kept.as_ref(), "r2", at(70), MINUTE), Standing::Quarantined(MINUTE));
        assert_eq!(Quarantine::meet(&mut kept, "r2", at(70), MINUTE), MINUTE);
        assert_eq!(Quarantine::meet(&mut kept, "r2", at(130), MINUTE), Duration::ZERO);
    }

    #[test]
    fn only_a_store_without_any_memory_can_be_admitted() {
        let mut kept = None;
        Quarantine::admit(&mut kept, "r1", MINUTE);
        assert_eq!(Quarantine::meet(&mut kept, "r1", at(0), MINUTE), Duration::ZERO);
        assert_eq!(Quarantine::meet(&mut kept, "r2", at(1), MINUTE), MINUTE);
        Quarantine::admit(&mut kept, "r2", MINUTE);
        assert_eq!(Quarantine::meet(&mut kept, "r2", at(2), MINUTE), MINUTE - Duration::from_secs(1));
    }

    #[test]
    fn the_longest_lease_that_any_client_named_counts() {
        let mut kept = None;
        Quarantine::meet(&mut kept, "r1", at(0), Duration::from_secs(10));
        assert_eq!(Quarantine::meet(&mut kept, "r1", at(5), MINUTE), Duration::from_secs(55));
        assert_eq!(Quarantine::meet(&mut kept, "r2", at(100), Duration::from_secs(10)), MINUTE);
    }

    #[test]
    fn a_floor_is_at_most_half_of_the_longest_lease_ahead_of_the_clock() {
        for (floor, accepted) in [(0, 0), (100, 100), (30_000_100, 30_000_100), (30_000_101, 30_000_100), (u64::MAX, 30_000_100)]
        {
            assert_eq!(Quarantine::highest_floor(floor, 100, None, MINUTE), accepted);
        }
    }

    #[test]
    fn a_repeated_floor_is_at_most_three_quarters_ahead_however_often_it_is_repeated() {
        for last in [0, 100, 30_000_101, 45_000_100] {
            for (floor, accepted) in [(0, 0), (45_000_100, 45_000_100), (u64::MAX, 45_000_100)] {
                assert_eq!(Quarantine::highest_floor(floor, 100, Some(last), MINUTE), accepted, "after {last}");
            }
        }
    }

    #[test]
    fn after_a_clock_was_set_back_a_floor_counts_from_the_last_token() {
        let last = 45_000_101;
        for (floor, accepted) in [(last + 5, last + 5), (u64::MAX, last + 30_000_000)] {
            assert_eq!(Quarantine::highest_floor(floor, 100, Some(last), MINUTE), accepted);
        }
    }
}
