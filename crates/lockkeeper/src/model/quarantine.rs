//! Whether a store that may have forgotten something may vote: the run it knows of, and since when.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::backend::Standing;
use crate::runtime::Instant;

/// What a store keeps, among the data it may lose, about the run of the process that serves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantine {
    run: String,
    /// Nobody voted in this run before this; `None`: it was admitted.
    since: Option<Instant>,
    /// The longest lease that anybody told of.
    max_lease: Duration,
}

impl Quarantine {
    /// A request of a client that was told, when it connected, that the store's run is `run`. A run that the store does not know of begins its
    /// quarantine. Gives how long that lasts from now; zero: it may vote.
    pub fn meet(kept: &mut Option<Self>, run: &str, at: Instant, max_lease: Duration) -> Duration {
        match kept {
            Some(known) if known.run == run => known.max_lease = known.max_lease.max(max_lease),
            _ => {
                // What an earlier run was told of lease lengths still holds for what that run granted.
                let max_lease = kept.as_ref().map_or(max_lease, |known| known.max_lease.max(max_lease));
                *kept = Some(Self { run: run.to_owned(), since: Some(at), max_lease });
            }
        }
        kept.as_ref().map_or(Duration::ZERO, |known| known.left(at))
    }

    /// The same look, changing nothing.
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
    fn a_run_that_is_not_known_waits_for_the_longest_lease_once() {
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
    fn the_longest_lease_that_anybody_told_of_counts() {
        let mut kept = None;
        Quarantine::meet(&mut kept, "r1", at(0), Duration::from_secs(10));
        assert_eq!(Quarantine::meet(&mut kept, "r1", at(5), MINUTE), Duration::from_secs(55));
        assert_eq!(Quarantine::meet(&mut kept, "r2", at(100), Duration::from_secs(10)), MINUTE);
    }
}
