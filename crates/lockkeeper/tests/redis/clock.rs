//! A clock that a test can set, for tests that are skipped where there is none.

use std::ops::Deref;

use lockkeeper_testkit::clock;

/// The wall clock and the boot clock of the processes that run under it.
#[derive(Debug)]
pub(crate) struct WallClock(clock::WallClock);

impl WallClock {
    /// One that is right. `None`: skipped, and said so.
    pub(crate) fn new(test: &str) -> Option<Self> {
        let clock = clock::WallClock::start().inspect_err(|why| lockkeeper::conformance::skip(test, why)).ok()?;
        Some(Self(clock))
    }
}

impl Deref for WallClock {
    type Target = clock::WallClock;

    fn deref(&self) -> &clock::WallClock {
        &self.0
    }
}
