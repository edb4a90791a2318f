//! How far a server's clock is ahead of ours, for stores whose server judges whether a request is late. Deadlines are translated by it,
//! so it may be too small, never too large.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::runtime::Instant;
use crate::runtime::sync::Mutex;

/// An offset older than this is measured again, beside a request: clocks are set.
const TRUSTED: Duration = Duration::from_secs(5);

/// An offset older than this is measured again before it is used.
const STALE: Duration = Duration::from_secs(30);

/// A clock that was set back by more than this was wrong in a way that nothing is remembered for.
const FURTHEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The offset of one server's clock, measured again from time to time.
#[derive(Debug)]
pub(crate) struct ClockOffset {
    /// In µs, at least: a deadline translated by it is never too late.
    micros: AtomicI64,
    /// When it was measured, in ns of our clock.
    measured: AtomicU64,
    /// When somebody last began to measure it.
    asked: AtomicU64,
}

impl ClockOffset {
    /// The server said `time` (µs), and it was heard at `heard`.
    pub(crate) fn new(time: i64, heard: Instant) -> Self {
        let (measured, asked) = (AtomicU64::new(heard.as_nanos()), AtomicU64::new(heard.as_nanos()));
        Self { micros: AtomicI64::new(time - micros(heard)), measured, asked }
    }

    /// The same again. A value that the answer allows stays: a slow answer tells less, not that the clock was set.
    pub(crate) fn measured_again(&self, time: i64, sent: Instant, heard: Instant) {
        let (least, most) = (time - micros(heard), time - micros(sent));
        if !(least..=most).contains(&self.micros.load(Ordering::Relaxed)) {
            self.micros.store(least, Ordering::Relaxed);
        }
        self.measured.store(heard.as_nanos(), Ordering::Relaxed);
    }

    /// Whether the caller is to measure it again; one at a time is.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let asked = self.asked.load(Ordering::Relaxed);
        older(asked, now, TRUSTED)
            && older(self.measured.load(Ordering::Relaxed), now, TRUSTED)
            && self.asked.compare_exchange(asked, now.as_nanos(), Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Whether it is too old to be used: a clock that was set back meanwhile would let a late request pass.
    pub(crate) fn is_stale(&self, now: Instant) -> bool {
        older(self.measured.load(Ordering::Relaxed), now, STALE)
    }

    /// `at` on the server's clock, in µs, never later.
    pub(crate) fn translated(&self, at: Instant) -> i64 {
        // 2^53 is where Lua's numbers stop being exact, some 285 years from 1970.
        micros(at).saturating_add(self.micros.load(Ordering::Relaxed)).clamp(0, 1 << 53)
    }
}

/// The largest offset that counting requests were sent by lately, and when. After the server's clock was set back, a copy of a request that is still
/// on its way is in time there for as long as the step, and its repetition must be remembered for as long.
#[derive(Debug, Default)]
pub(crate) struct Steps(Mutex<Option<(i64, Instant)>>);

impl Steps {
    /// A request is sent by this offset, and repeated for no longer than `lately`: how far the server's clock was set back meanwhile.
    pub(crate) fn set_back(&self, offset: &ClockOffset, lately: Duration, now: Instant) -> Duration {
        let micros = offset.micros.load(Ordering::Relaxed);
        let mut largest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((most, used)) = *largest
            && most > micros
            && now.since(used) <= lately
        {
            return Duration::from_micros(most.abs_diff(micros)).min(FURTHEST);
        }
        *largest = Some((micros, now));
        Duration::ZERO
    }
}

fn older(nanos: u64, now: Instant, than: Duration) -> bool {
    now.since(Instant::from_nanos(nanos)) > than
}

fn micros(at: Instant) -> i64 {
    i64::try_from(at.as_nanos() / 1_000).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_back_is_known_for_as_long_as_requests_are_repeated() {
        let at = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
        let (offset, steps, lately) = (ClockOffset::new(0, at(100)), Steps::default(), Duration::from_secs(6));
        let set_back = |seconds| steps.set_back(&offset, lately, at(seconds));
        assert_eq!(set_back(100), Duration::ZERO);
        offset.measured_again(-90_000_000, at(101), at(101));
        assert_eq!(set_back(101).as_secs(), 91, "the second in which it stood still is part of it");
        assert_eq!((set_back(106).as_secs(), set_back(107).as_secs()), (91, 0));
        assert_eq!(set_back(108), Duration::ZERO);
    }

    #[test]
    fn an_old_offset_is_due_once_and_stale_until_measured() {
        let at = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
        let offset = ClockOffset::new(0, at(100));
        assert!(!offset.is_due(at(105)) && !offset.is_stale(at(130)));
        assert!(offset.is_due(at(106)) && !offset.is_due(at(106)), "one at a time measures");
        assert!(offset.is_stale(at(131)), "asking is not measuring");
        offset.measured_again(0, at(131), at(131));
        assert!(!offset.is_stale(at(131)) && !offset.is_due(at(132)));
    }
}
