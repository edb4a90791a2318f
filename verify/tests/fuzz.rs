//! Each fuzz target for a few seconds, with the corpus and with inputs drawn from it. `cargo xtask evidence fuzz` runs them with libFuzzer.
//!
//! With `LOCKKEEPER_FRESH_SEED=N` the inputs are the same each time: the corpus, and a fixed number that is drawn from this seed.

#![allow(clippy::disallowed_methods, reason = "tests measure real time")]

use std::time::{Duration, Instant, SystemTime};

use lockkeeper_verify::fuzz::{Bytes, TARGETS, seeds};

/// How long each target runs.
const TIME: Duration = Duration::from_secs(2);

/// How many inputs are drawn for each target if the seed is given.
const DRAWN: usize = 10_000;

/// No input may take longer, on however busy a machine: all are short.
const SLOWEST: Duration = Duration::from_secs(5);

#[test]
fn nothing_that_is_read_makes_a_panic_or_takes_long() {
    let given: Option<u64> = std::env::var("LOCKKEEPER_FRESH_SEED").ok().map(|seed| seed.parse().expect("a number"));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let seed = given.unwrap_or(now);
    for target in TARGETS {
        let known = seeds(&target).unwrap();
        assert!(!known.is_empty(), "{} has no corpus", target.name);
        let all = known.len() + DRAWN;
        let (mut bytes, began, mut runs) = (Bytes::new(seed, known.clone()), Instant::now(), 0);
        let mut inputs = known.into_iter();
        while if given.is_some() { runs < all } else { began.elapsed() < TIME } {
            let input = inputs.next().unwrap_or_else(|| bytes.draw());
            let (started, shown) = (Instant::now(), Shown(target.name, &input));
            (target.run)(&input);
            std::mem::drop(shown);
            assert!(
                started.elapsed() < SLOWEST,
                "{}: {:?} takes {:?}",
                target.name,
                String::from_utf8_lossy(&input),
                started.elapsed()
            );
            runs += 1;
        }
        println!("{}: {runs} inputs, seed {seed}", target.name);
    }
}

/// Prints the input if the target panics.
struct Shown<'a>(&'a str, &'a [u8]);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("target {}, input as a literal: b\"{}\"", self.0, self.1.escape_ascii());
        }
    }
}
