//! `cargo xtask interop`: the tests beside the real Redisson.

use std::time::Duration;

use crate::drivers::REDISSON;
use crate::setup;
use crate::steps::{Outcome, Run, step};

/// What the tests may take, building them included.
const LIMIT: Duration = Duration::from_secs(20 * 60);

/// Provides what is missing and runs the tests of all versions; `arguments` are the tests'.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    // Nothing is skipped: this command was given to run exactly these tests.
    let required = "redis,redisson";
    step("setup", "a server, a JDK, Maven, and a driver per version", || setup::needed_for(required, &["redis", "redisson"]))?;
    step("interop", "Rust and Java on the same locks", || {
        let mut words = vec!["test", "-p", "lockkeeper", "--features", "redis", "--test", "interop", "--"];
        words.extend(arguments.iter().map(String::as_str));
        let drivers = REDISSON.find().ok_or("the drivers were built, but are not found")?;
        let test = Run::cargo(&words).with(REDISSON.variable, drivers.display().to_string()).with("LOCKKEEPER_REQUIRE", required);
        test.within(LIMIT).stream().map(|()| Outcome::Done)
    })
    .map(drop)
}
