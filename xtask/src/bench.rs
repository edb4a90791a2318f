//! `cargo xtask bench`: ours beside the peers; `bench/` does the work, and builds what it runs. Here is seen to what is not cargo's.

use crate::interop;
use crate::setup;
use crate::steps::{Outcome, Run, step};

/// The version of Redisson that we are measured beside.
const REDISSON: &str = "4.7.0";

/// Runs them; `arguments` are those of `bench/`.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    step("setup", "a server; a JDK, Maven and the driver of Redisson where that is possible", || {
        setup::needed_for("redis", &["redis"])
    })?;
    let mut words = vec!["run", "--profile", "dist", "--quiet", "--package", "lockkeeper-bench", "--"];
    words.extend(arguments.iter().map(String::as_str));
    let mut bench = Run::cargo(&words);
    match interop::driver_of(REDISSON) {
        Ok(place) => bench = bench.with("LOCKKEEPER_BENCH_REDISSON", place.display().to_string()),
        // A peer that cannot run does not keep the others from it; the page says so.
        Err(why) => println!("    Redisson does not take part: {why}"),
    }
    step("bench", "ours and the peers, by turns", || bench.stream().map(|()| Outcome::Done)).map(drop)
}
