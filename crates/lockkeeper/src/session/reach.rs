//! Until when a hold is counted on: the latest end of all leases that were asked for, answered or not. A store whose clock was set back may end
//! the hold that soon, and no sooner.

use std::time::Duration;

use crate::backend::Reach;
use crate::runtime::sync::atomic::{AtomicU64, Ordering};
use crate::runtime::{Instant, Runtime};

/// When the last lease ends that was asked for, counted from when it was sent, in nanoseconds of the local clock; `NEVER`: not known.
pub(super) struct AskedUntil(AtomicU64);

impl AskedUntil {
    pub(super) fn new(until: Instant) -> Self {
        Self(AtomicU64::new(until.as_nanos()))
    }

    /// The reach with a lease that is about to be asked for.
    pub(super) fn with(&self, lease: Option<Duration>, runtime: &Runtime) -> Option<Reach> {
        // The clock is read first: what another call asks for after `as_of` may be missing, and what was asked for before it is there.
        let as_of = runtime.now();
        let asked = as_of.plus(lease.unwrap_or_default()).as_nanos();
        let until = Instant::from_nanos(self.0.fetch_max(asked, Ordering::AcqRel).max(asked));
        (until != Instant::NEVER).then(|| Reach::new(until, as_of))
    }

    /// Another client may have asked for longer leases of this hold.
    pub(super) fn forget(&self) {
        self.0.store(Instant::NEVER.as_nanos(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reach_is_the_latest_end_of_all_leases_that_were_asked_for() {
        let runtime = Runtime::system();
        let asked = AskedUntil::new(runtime.now().plus(Duration::from_secs(30)));
        let short = asked.with(Some(Duration::from_secs(5)), &runtime).expect("known");
        assert!(short.until.since(short.as_of) > Duration::from_secs(20), "the grant is counted on");
        let long = asked.with(Some(Duration::from_secs(90)), &runtime).expect("known");
        assert_eq!(long.until.since(long.as_of), Duration::from_secs(90));
        let look = asked.with(None, &runtime).expect("known");
        assert_eq!(look.until, long.until, "an extension is counted on, answered or not");
        asked.forget();
        assert_eq!(asked.with(Some(Duration::from_secs(90)), &runtime), None);
    }
}
