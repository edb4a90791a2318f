//! What the referee found, and how much it looked at.

use std::fmt;

use serde::Serialize;

use super::Limits;

/// What a history must keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[allow(missing_docs, reason = "P1 to P7 are the rows of docs/guarantees.md")]
pub enum Promise {
    P1,
    P2,
    P3,
    P4,
    P5,
    P6,
    P7,
    /// A token is not far ahead of the store's clock. Otherwise a store that forgets its counter could give smaller ones.
    TokenClock,
    /// Latches and counting semaphores count each request once. Nobody passes a closed latch, or takes a permit that is not there.
    Numbers,
    /// The history itself is in order.
    History,
}

impl Promise {
    /// All of them.
    pub const ALL: [Self; 10] =
        [Self::P1, Self::P2, Self::P3, Self::P4, Self::P5, Self::P6, Self::P7, Self::TokenClock, Self::Numbers, Self::History];
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TokenClock => f.write_str("token and clock"),
            Self::Numbers => f.write_str("numbers"),
            Self::History => f.write_str("order of the history"),
            numbered => fmt::Debug::fmt(numbered, f),
        }
    }
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Which one.
    pub promise: Promise,
    /// When it was noticed, in true time.
    pub at: u64,
    /// What happened.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:.6} s: {}", self.promise, self.at as f64 / 1e9, self.text)
    }
}

/// What the referee found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// How many events it saw.
    pub events: u64,
    /// How often each promise was checked, in the order of [`Promise::ALL`].
    pub checks: [u64; 10],
    /// What was broken; the first hundred.
    pub violations: Vec<Violation>,
}

impl Verdict {
    const MOST: usize = 100;

    pub(super) fn checked(&mut self, promise: Promise) {
        self.checks[promise as usize] += 1;
    }

    pub(super) fn add(&mut self, promise: Promise, at: u64, text: impl FnOnce() -> String) {
        if self.violations.len() < Self::MOST {
            self.violations.push(Violation { promise, at, text: text() });
        }
    }

    /// A store granted `token` when its clock showed `clock`.
    pub(super) fn token(&mut self, limits: &Limits, at: u64, name: &str, (token, clock): (u64, u64)) {
        self.checked(Promise::TokenClock);
        if token >= clock.saturating_add(limits.token_ahead) {
            let ahead = token - clock;
            self.add(Promise::TokenClock, at, || format!("{name:?}: token {token} is {ahead} µs ahead of the store"));
        }
    }

    /// How often this promise was checked.
    #[must_use]
    pub const fn checks_of(&self, promise: Promise) -> u64 {
        self.checks[promise as usize]
    }

    /// Adds what another history showed.
    pub fn merge(&mut self, other: Self) {
        self.events += other.events;
        self.checks.iter_mut().zip(other.checks).for_each(|(sum, more)| *sum += more);
        self.violations.extend(other.violations);
        self.violations.truncate(Self::MOST);
    }
}
