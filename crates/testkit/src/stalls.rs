//! Measures for how long this process was not scheduled. A wait is judged without that time.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

const PERIOD: Duration = Duration::from_millis(10);
const WORTH_TELLING: Duration = Duration::from_millis(5);

/// Begin and length of a stall in ms.
pub type Stall = (u64, u64);

/// Milliseconds since the epoch, as all processes on this machine count them.
pub fn wall() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_millis()).expect("a time of ours")
}

/// How much of a time a stall takes, in ms.
pub fn overlap((begin, length): Stall, from: u64, to: u64) -> u64 {
    to.min(begin + length).saturating_sub(from.max(begin))
}

/// Measures for as long as it lives.
#[derive(Clone, Debug)]
pub struct Meter {
    began: u64,
    found: Arc<Mutex<Vec<Stall>>>,
}

impl Meter {
    pub fn start() -> Self {
        let found = Arc::<Mutex<Vec<Stall>>>::default();
        let weak = Arc::downgrade(&found);
        std::thread::spawn(move || {
            while weak.strong_count() > 0 {
                let began = Instant::now();
                std::thread::sleep(PERIOD);
                let late = began.elapsed().saturating_sub(PERIOD);
                if late >= WORTH_TELLING
                    && let Some(found) = weak.upgrade()
                {
                    let late = u64::try_from(late.as_millis()).expect("short");
                    found.lock().unwrap().push((wall() - late, late));
                }
            }
        });
        Self { began: wall(), found }
    }

    pub fn began(&self) -> u64 {
        self.began
    }

    /// What was found since the start.
    pub fn found(&self) -> Vec<Stall> {
        self.found.lock().unwrap().clone()
    }

    /// How much of this time the process was stalled.
    pub fn within(&self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.found().into_iter().map(|stall| overlap(stall, from, to)).sum())
    }
}
