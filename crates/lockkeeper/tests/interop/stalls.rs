//! For how long the machine did not run what had to run, in this process and in Java's. A wait is judged without that time.

use std::time::Duration;

pub(crate) use lockkeeper_testkit::stalls::wall;
use lockkeeper_testkit::stalls::{self, Stall, overlap};

use crate::world::World;

/// Measures until it is asked what it found.
pub(crate) struct Meter(stalls::Meter);

impl Meter {
    pub(crate) fn start() -> Self {
        Self(stalls::Meter::start())
    }

    /// What was found since the start, here and in the Java process of this world.
    pub(crate) async fn read(&self, world: &World) -> Stalls {
        let told = world.java.thread("stalls").ask(format!("client stalls {}", self.0.began())).await;
        let stall = |word: &str| {
            let (begin, length) = word.split_once(':')?;
            Some((begin.parse().ok()?, length.parse().ok()?))
        };
        let words = told.as_str().expect("a text").split_whitespace();
        let theirs = words.map(|word| stall(word).expect("two numbers")).collect();
        Stalls { parties: [self.0.found(), theirs] }
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
        Duration::from_millis(self.parties.iter().flatten().map(|stall| overlap(*stall, from, to)).sum())
    }

    /// The longest stall of each process in this time, added up.
    pub(crate) fn longest(&self, from: u64, to: u64) -> Duration {
        let inside = |&&(begin, length): &&Stall| begin <= to && begin + length >= from;
        let longest = |party: &Vec<Stall>| party.iter().filter(inside).map(|(_, length)| *length).max().unwrap_or(0);
        Duration::from_millis(self.parties.iter().map(longest).sum())
    }

    /// The part of this time in which the worst process was stalled, from 0 to 1.
    pub(crate) fn share(&self, from: u64, to: u64) -> f64 {
        let of = |party: &Vec<Stall>| party.iter().map(|stall| overlap(*stall, from, to)).sum::<u64>();
        let worst = self.parties.iter().map(of).max().unwrap_or(0);
        worst as f64 / (to - from).max(1) as f64
    }
}
