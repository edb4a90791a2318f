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
mod world;

pub mod cancel;
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

pub use catalogue::{CASES, Case, Need};
pub use world::{Harness, Time, World};

use std::future::Future;
use std::pin::Pin;

/// A case under way.
pub type Running<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

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
/// If `LOCKKEEPER_REQUIRE` names something that `why` mentions (a comma-separated list, for example `redis`).
pub fn skip(what: &str, why: &str) {
    let required = std::env::var("LOCKKEEPER_REQUIRE").unwrap_or_default();
    let must = required.split(',').map(str::trim).any(|word| !word.is_empty() && why.contains(word));
    assert!(!must, "{what} must not be skipped (LOCKKEEPER_REQUIRE={required}): {why}");
    println!("skipped {what}: {why}");
}
