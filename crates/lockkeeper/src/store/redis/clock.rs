//! How far a server's clock is ahead of ours. Deadlines are translated by it, so it may be too small, never too large.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::runtime::Instant;

/// It is measured again, beside a request, when what is known is older than this: clocks are set.
const TRUSTED: Duration = Duration::from_secs(5);

pub(super) struct Offset {
    /// In µs, at least: a deadline translated by it is never too late.
    micros: AtomicI64,
    /// When it was measured, in ns of our clock.
    measured: AtomicU64,
}

impl Offset {
    /// The server said `time` (µs), and it was heard at `heard`.
    pub(super) fn new(time: i64, heard: Instant) -> Self {
        Self { micros: AtomicI64::new(time - micros(heard)), measured: AtomicU64::new(heard.as_nanos()) }
    }

    /// The same again. What was believed stays if it can be: a slow answer tells less, not that the clock was set.
    pub(super) fn measured_again(&self, time: i64, sent: Instant, heard: Instant) {
        let (least, most) = (time - micros(heard), time - micros(sent));
        if !(least..=most).contains(&self.micros.load(Ordering::Relaxed)) {
            self.micros.store(least, Ordering::Relaxed);
        }
    }

    /// Whether the caller is to measure it again; one at a time is.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let measured = self.measured.load(Ordering::Relaxed);
        now.since(Instant::from_nanos(measured)) > TRUSTED
            && self.measured.compare_exchange(measured, now.as_nanos(), Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// `at` on the server's clock, in µs, never later.
    pub(super) fn translated(&self, at: Instant) -> i64 {
        // 2^53 is where Lua's numbers stop being exact, some 285 years from 1970.
        micros(at).saturating_add(self.micros.load(Ordering::Relaxed)).clamp(0, 1 << 53)
    }
}

fn micros(at: Instant) -> i64 {
    i64::try_from(at.as_nanos() / 1_000).unwrap_or(i64::MAX)
}
