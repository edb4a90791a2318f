//! How far a server's clock is ahead of ours, as a range. Steps use the end of the range that is safe for their purpose.
//!
//! * What has ended is judged by the earliest time that the server may have: what counts as ended has ended.
//! * A lease is granted from the latest: the server keeps a hold for at least as long as the client believes in it.
//! * `not_after` is translated to the earliest: a request is refused too early rather than too late.
//!
//! The server checks the range when it carries out a step, so a clock that was set is noticed before anything is written.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::backend::Finding;
use crate::runtime::Instant;

/// Two clocks may drift apart by this part of the time since they were compared.
const DRIFT: i64 = 2_000;

/// A range older than this is measured again before a step is computed with it.
const STALE: Duration = Duration::from_secs(30);

/// A step that the server carries out later than this after it was computed is computed again.
const SLACK: i64 = 1_000_000;

/// Clocks that differ by more µs than this are worth a word in `doctor`.
const SKEW: u64 = 5_000_000;

/// What `doctor` says of the server's clock beside that of this machine, both in µs since 1970.
pub(crate) fn compared(server: i64, ours: u64) -> Finding {
    let skew = u64::try_from(server).unwrap_or(0).abs_diff(ours);
    if skew <= SKEW {
        return Finding::fine("clock", format!("{} ms from this machine's", skew / 1_000));
    }
    let says = format!(
        "the server's and this machine's clocks differ by {} s; locks use the server's only, so they are safe; see to the time service of both",
        skew / 1_000_000
    );
    Finding::doubtful("clock", says)
}

/// What is known of a server's clock.
#[derive(Debug)]
pub(crate) struct Clock(Mutex<Range>);

/// The server's clock minus ours, in µs, lay in this range when it was measured.
#[derive(Clone, Copy, Debug)]
struct Range {
    least: i64,
    most: i64,
    measured: Instant,
    /// One offset of the range, which stays for as long as the range allows it.
    anchor: i64,
    /// The widest range that a window was made of: leases that were granted then last longer by it.
    widest: i64,
}

/// The server's time now, in µs since 1970: between `earliest` and `latest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) earliest: i64,
    pub(crate) latest: i64,
    /// The least offset, for other points in time.
    least: i64,
    /// An offset that stays.
    anchor: i64,
    widest: i64,
}

impl Clock {
    /// The server said `time` in an answer to a request that was sent at `sent` and answered at `heard`.
    pub(crate) fn new(time: i64, sent: Instant, heard: Instant) -> Self {
        Self(Mutex::new(Range::of(time, sent, heard)))
    }

    fn range(&self) -> MutexGuard<'_, Range> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same again. A range that contradicts the known one replaces it: a clock was set.
    pub(crate) fn observe(&self, time: i64, sent: Instant, heard: Instant) {
        let new = Range::of(time, sent, heard);
        let mut range = self.range();
        let old = range.widened(heard);
        let (least, most) = (old.least.max(new.least), old.most.min(new.most));
        let anchor = if (least..=most).contains(&old.anchor) { old.anchor } else { least };
        let new = Range { widest: old.widest, ..new };
        *range = if least <= most { Range { least, most, anchor, ..new } } else { new };
    }

    /// Whether the range is so old that it is measured again before it is used: it widens with time.
    pub(crate) fn is_stale(&self, now: Instant) -> bool {
        now.since(self.range().measured) > STALE
    }

    /// The server's time at `now`.
    pub(crate) fn window(&self, now: Instant) -> Window {
        let mut range = self.range();
        let Range { least, most, anchor, .. } = range.widened(now);
        range.widest = range.widest.max(most - least + 1);
        let at = micros(now);
        Window { earliest: at + least, latest: at + most + 1, least, anchor, widest: range.widest }
    }
}

impl Range {
    fn of(time: i64, sent: Instant, heard: Instant) -> Self {
        let (least, most) = (time - micros(heard) - 1, time - micros(sent) + 1);
        Self { least, most, measured: heard, anchor: least + (most - least) / 2, widest: 0 }
    }

    fn widened(self, now: Instant) -> Self {
        let drift = i64::try_from(now.since(self.measured).as_micros()).unwrap_or(i64::MAX / 4) / DRIFT;
        Self { least: self.least - drift, most: self.most + drift, measured: now.max(self.measured), ..self }
    }
}

impl Window {
    /// The earliest time, as rows keep it.
    pub(crate) fn now(&self) -> Instant {
        instant(self.earliest)
    }

    /// A point of our clock on the server's, never later.
    pub(crate) fn translate(&self, at: Instant) -> Instant {
        if at == Instant::NEVER { at } else { instant(micros(at).saturating_add(self.least)) }
    }

    /// A point of our clock on the server's, so that points of this client stay in their order, whenever they are translated.
    pub(crate) fn in_order(&self, at: Instant) -> Instant {
        instant(micros(at).saturating_add(self.anchor))
    }

    /// What a lease is prolonged by, so that it lasts from the latest time.
    pub(crate) fn uncertainty(&self) -> Duration {
        Duration::from_micros(u64::try_from(self.latest - self.earliest).unwrap_or(0))
    }

    /// How long it is at least until what the rows show to last for `left` has ended. Rows keep a lease from the latest time that the
    /// server may have had, and `left` counts from the earliest time that it may have now.
    pub(crate) fn at_least(&self, left: Duration) -> Duration {
        left.saturating_sub(self.uncertainty()).saturating_sub(Duration::from_micros(u64::try_from(self.widest).unwrap_or(0)))
    }

    /// The latest time, in µs, at which the server may carry out a step that was computed in this window and is not wanted after
    /// `not_after` (on the server's clock).
    pub(crate) fn until(&self, not_after: Instant) -> i64 {
        (self.latest + SLACK).min(i64::try_from(not_after.as_nanos() / 1_000).unwrap_or(i64::MAX))
    }
}

fn micros(at: Instant) -> i64 {
    i64::try_from(at.as_nanos() / 1_000).unwrap_or(i64::MAX / 4)
}

pub(super) fn instant(micros: i64) -> Instant {
    Instant::from_nanos(u64::try_from(micros).unwrap_or(0).saturating_mul(1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    fn at(micros: i64) -> Instant {
        instant(micros)
    }

    #[test]
    fn the_true_time_stays_inside_the_window_and_good_answers_narrow_it() {
        // The server is 5 s ahead; an answer took 2 s, the server spoke in its middle.
        let clock = Clock::new(106 * SECOND, at(100 * SECOND), at(102 * SECOND));
        let wide = clock.window(at(102 * SECOND));
        assert!(wide.earliest <= 107 * SECOND && 107 * SECOND <= wide.latest, "{wide:?}");
        clock.observe(108 * SECOND + 50, at(103 * SECOND), at(103 * SECOND + 100));
        let narrow = clock.window(at(103 * SECOND + 100));
        assert!(narrow.earliest <= 108 * SECOND + 100 && 108 * SECOND + 100 <= narrow.latest, "{narrow:?}");
        assert!(narrow.uncertainty() < Duration::from_millis(1), "{narrow:?}");
        // A slow answer afterwards takes nothing back.
        clock.observe(112 * SECOND, at(104 * SECOND), at(110 * SECOND));
        assert!(clock.window(at(110 * SECOND)).uncertainty() < Duration::from_millis(20));
    }

    #[test]
    fn the_order_of_points_survives_better_answers() {
        let clock = Clock::new(106 * SECOND, at(100 * SECOND), at(102 * SECOND));
        let since = at(99 * SECOND);
        let before = clock.window(at(102 * SECOND)).in_order(since);
        clock.observe(108 * SECOND, at(102 * SECOND + 500_000), at(103 * SECOND));
        assert_eq!(clock.window(at(103 * SECOND)).in_order(since), before);
    }

    #[test]
    fn what_is_left_of_a_lease_is_never_more_than_the_lease() {
        // A lease of 2 s is granted while the clock is known to half a second only; then it is known better.
        let clock = Clock::new(106 * SECOND, at(100 * SECOND), at(100 * SECOND + 500_000));
        let then = clock.window(at(100 * SECOND + 500_000));
        let expires = then.now().plus(Duration::from_secs(2) + then.uncertainty());
        clock.observe(106 * SECOND + 10, at(100 * SECOND + 500_005), at(100 * SECOND + 500_020));
        let now = clock.window(at(100 * SECOND + 500_020));
        assert!(now.at_least(expires.since(now.now())) <= Duration::from_secs(2), "{then:?} {now:?}");
        assert!(expires.since(now.now()) > Duration::from_secs(2), "the control");
    }

    #[test]
    fn a_range_that_was_not_measured_for_long_is_stale_until_it_is_measured() {
        let clock = Clock::new(100 * SECOND, at(100 * SECOND), at(100 * SECOND + 10));
        assert!(!clock.is_stale(at(129 * SECOND)));
        let weekend = 100 * SECOND + 60 * 3_600 * SECOND;
        assert!(clock.is_stale(at(weekend)));
        clock.observe(weekend, at(weekend), at(weekend + 100));
        assert!(!clock.is_stale(at(weekend + SECOND)));
        let left = Duration::from_secs(30);
        let window = clock.window(at(weekend + SECOND));
        assert!(window.uncertainty() < Duration::from_millis(2) && left - window.at_least(left) < Duration::from_millis(4));
    }

    #[test]
    fn clocks_that_differ_by_seconds_are_doubtful() {
        use crate::backend::Verdict;
        let hour = 3_600 * SECOND;
        for (server, verdict) in [
            (hour, Verdict::Fine),
            (hour + 5 * SECOND, Verdict::Fine),
            (hour + 5 * SECOND + 1, Verdict::Doubtful),
            (hour - 6 * SECOND, Verdict::Doubtful),
            (-SECOND, Verdict::Doubtful),
        ] {
            assert_eq!(compared(server, hour.unsigned_abs()).verdict, verdict, "{server}");
        }
    }

    #[test]
    fn a_clock_that_was_set_is_believed() {
        let clock = Clock::new(100 * SECOND, at(100 * SECOND), at(100 * SECOND + 10));
        clock.observe(50 * SECOND, at(101 * SECOND), at(101 * SECOND + 10));
        let window = clock.window(at(101 * SECOND + 10));
        assert!(window.latest < 51 * SECOND && window.earliest > 49 * SECOND, "{window:?}");
        assert_eq!(window.translate(Instant::NEVER), Instant::NEVER);
        assert!(window.translate(at(102 * SECOND)) <= at(51 * SECOND));
    }
}
