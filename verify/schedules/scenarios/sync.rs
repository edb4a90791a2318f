//! What `crate::runtime::sync` stands for here.

use tokio::sync::futures::Notified;

use crate::schedules::Flaw;
use crate::schedules::explore::flaw;

/// Tokio's wake-up. The scheduler may run another thread before and after each of its steps.
#[derive(Debug, Default)]
pub(crate) struct Notify(tokio::sync::Notify);

impl Notify {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn notified(&self) -> Notified<'_> {
        pause();
        self.0.notified()
    }

    pub(crate) fn notify_one(&self) {
        pause();
        if flaw() == Flaw::WakeUpsForgotten {
            self.0.notify_waiters();
        } else {
            self.0.notify_one();
        }
    }

    pub(crate) fn notify_waiters(&self) {
        pause();
        self.0.notify_waiters();
    }
}

/// Another thread may run here. Not when the scenario was given up: then nothing is scheduled any more.
fn pause() {
    if !std::thread::panicking() {
        // A switch, and no hint to the scheduler that this thread should wait.
        shuttle::thread::sleep(std::time::Duration::ZERO);
    }
}

/// The atomics of `shuttle`, and what they lack.
pub(crate) mod atomic {
    use std::ops::Deref;

    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

    #[derive(Debug)]
    pub(crate) struct AtomicU64(shuttle::sync::atomic::AtomicU64);

    impl Default for AtomicU64 {
        fn default() -> Self {
            Self::new(0)
        }
    }

    impl AtomicU64 {
        pub(crate) const fn new(value: u64) -> Self {
            Self(shuttle::sync::atomic::AtomicU64::new(value))
        }

        pub(crate) fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
            self.0.fetch_update(order, Ordering::Relaxed, |old| Some(old.max(value))).unwrap_or(value)
        }
    }

    impl Deref for AtomicU64 {
        type Target = shuttle::sync::atomic::AtomicU64;

        fn deref(&self) -> &Self::Target {
            &self.0
        }
    }
}
