//! The contract, executable: one named test per case, run by every store in three lines.
//!
//! ```text
//! struct MyStore;
//! impl lockkeeper::conformance::Harness for MyStore { /* open a fresh, empty store */ }
//! lockkeeper::conformance!(MyStore);
//! ```
//!
//! A case is an async function of a [`World`]: an empty store and as many clients of it as it wants. Cases name the
//! [capabilities](Need) they need; a case whose need the store does not have is skipped, and says so. Every case ends with the same
//! question: is anything left behind?

mod any;
mod catalogue;
mod need;
mod session_server;
mod session_store;
mod world;

pub mod back_off;
pub mod cancel;
pub mod contention;
pub mod contract;
pub mod counting;
pub mod fairness;
pub mod faults;
pub mod fencing;
pub mod inspect;
pub mod latch;
pub mod lease;
pub mod leaving;
pub mod mutex;
pub mod names;
pub mod reentry;
pub mod rwlock;
pub mod semaphore;
pub mod session;
pub mod stalled;

pub use catalogue::{CASES, Case};
pub use need::Need;
pub use session_store::{Changed, SessionFlaw, SessionStore};
pub use world::{Harness, Time, World};

use std::future::Future;
use std::pin::Pin;

/// A case under way.
pub type Running<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// The case of this name in the file `group`.
///
/// # Panics
///
/// If there is none.
#[must_use]
pub fn case(group: &str, name: &str) -> &'static Case {
    let found = CASES.iter().find(|case| case.group == group && case.name == name);
    found.unwrap_or_else(|| panic!("there is no case {group}::{name}"))
}

/// Runs one case. Called by the tests that [`conformance!`](crate::conformance!) makes.
///
/// # Panics
///
/// If the case fails.
pub fn run<H: Harness>(harness: H, name: &str, needs: &[Need], case: fn(&World) -> Running<'_>) {
    world::run(harness, name, needs, case);
}

/// Skips a test for want of something: says so, and fails if the environment variable `LOCKKEEPER_REQUIRE` is set, so that a
/// skipped store never looks tested where it has to be.
///
/// # Panics
///
/// If `LOCKKEEPER_REQUIRE` (a comma-separated list, for example `redis,valkey`) names something that `why` mentions as a word of its
/// own: `redis` is mentioned by `redis: not installed`, but not by `redis-6.2: not installed`.
pub fn skip(what: &str, why: &str) {
    let required = std::env::var("LOCKKEEPER_REQUIRE").unwrap_or_default();
    let must = required.split(',').any(|word| mentions(why, word.trim()));
    assert!(!must, "{what} must not be skipped (LOCKKEEPER_REQUIRE={required}): {why}");
    println!("skipped {what}: {why}");
}

/// Whether `why` has `wanted` among its words, which are made of ASCII alphanumerics, `-` and `.`.
fn mentions(why: &str, wanted: &str) -> bool {
    let between = |character: char| !(character.is_ascii_alphanumeric() || character == '-' || character == '.');
    !wanted.is_empty() && why.split(between).any(|word| word.trim_end_matches('.') == wanted)
}

#[cfg(test)]
mod tests {
    use super::mentions;

    #[test]
    fn what_is_required_is_a_whole_word_of_the_reason() {
        for (why, wanted, expected) in [
            ("redis: redis-server does not run", "redis", true),
            ("there is no redis.", "redis", true),
            ("redis-6.2: LOCKKEEPER_REDIS_62 is not set", "redis-6.2", true),
            ("redis-6.2: LOCKKEEPER_REDIS_62 is not set", "redis", false),
            ("redis-6.2: LOCKKEEPER_REDIS_62 is not set", "6.2", false),
            ("valkey: LOCKKEEPER_VALKEY is not set", "redis", false),
            ("valkey: LOCKKEEPER_VALKEY is not set", "valkey", true),
            ("redis: redis-server does not run", "", false),
        ] {
            assert_eq!(mentions(why, wanted), expected, "{wanted:?} in {why:?}");
        }
    }
}
