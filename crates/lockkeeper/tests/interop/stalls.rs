//! For how long the machine did not run what had to run, in this process and in Java's. A wait is judged without that time.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use crate::world::World;

const PERIOD: Duration = Duration::from_millis(10);
const WORTH_TELLING: Duration = Duration::from_millis(5);

/// Milliseconds since the epoch, as the server and Java on this machine count them.
pub(crate) fn wall() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_millis()).expect("a time of ours")
}

/// Begin and length of a stall in ms.
type Stall = (u64, u64);

/// Measures until it is asked what it found.
pub(crate) struct Meter {
    began: u64,
    found: Arc<Mutex<Vec<Stall>>>,
}

impl Meter {
    pub(crate) fn start() -> Self {
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

    /// What was found since the start, here and in the Java process of this world.
    pub(crate) async fn read(&self, world: &World) -> Stalls {
        let told = world.java.thread("stalls").ask(format!("client stalls {}", self.began)).await;
        let stall = |word: &str| {
            let (begin, length) = word.split_once(':')?;
            Some((begin.parse().ok()?, length.parse().ok()?))
        };
        let words = told.as_str().expect("a text").split_whitespace();
        let theirs = words.map(|word| stall(word).expect("two numbers")).collect();
        Stalls { parties: [self.found.lock().unwrap().clone(), theirs] }
    }
}

/// The stalls of both processes.
#[derive(Debug)]
pub(crate) struct Stalls {
    parties: [Vec<Stall>; 2],
}

impl Stalls {
    /// How much of this time the processes were stalled, added up: a hand-over takes steps in both, one after the other.
    pub(crate) fn within(&self, from: u64, to: u64) -> Duration {
        let overlap = |&(begin, length): &Stall| to.min(begin + length).saturating_sub(from.max(begin));
        Duration::from_millis(self.parties.iter().flatten().map(overlap).sum())
    }

    /// The longest stall of each process in this time, added up.
    pub(crate) fn longest(&self, from: u64, to: u64) -> Duration {
        let inside = |&&(begin, length): &&Stall| begin <= to && begin + length >= from;
        let longest = |party: &Vec<Stall>| party.iter().filter(inside).map(|(_, length)| *length).max().unwrap_or(0);
        Duration::from_millis(self.parties.iter().map(longest).sum())
    }

    /// The part of this time in which the worst process was stalled, from 0 to 1.
    pub(crate) fn share(&self, from: u64, to: u64) -> f64 {
        let overlap = |&(begin, length): &Stall| to.min(begin + length).saturating_sub(from.max(begin));
        let worst = self.parties.iter().map(|party| party.iter().map(overlap).sum::<u64>()).max().unwrap_or(0);
        worst as f64 / (to - from).max(1) as f64
    }
}
