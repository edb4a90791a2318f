//! `cargo xtask bench`: ours beside the peers; `bench/` does the work, and builds what it runs. Here is seen to what is not cargo's.

use crate::drivers::{CURATOR, REDISSON};
use crate::setup;
use crate::steps::{Outcome, Run, step};

/// Runs them; `arguments` are those of `bench/`.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    step("setup", "servers; a JDK, Maven and the drivers of Redisson and Curator where that is possible", || {
        setup::needed_for("redis", &["redis", "postgres", "mariadb", "zookeeper", "etcd"])
    })?;
    let mut words = vec!["run", "--profile", "dist", "--quiet", "--package", "lockkeeper-bench", "--"];
    words.extend(arguments.iter().map(String::as_str));
    let mut bench = Run::cargo(&words);
    for (drivers, variable) in [(&REDISSON, "LOCKKEEPER_BENCH_REDISSON"), (&CURATOR, "LOCKKEEPER_BENCH_CURATOR")] {
        match drivers.newest() {
            Ok(place) => bench = bench.with(variable, place.display().to_string()),
            // A peer that cannot run does not keep the others from it; the page says so.
            Err(why) => println!("    {} does not take part: {why}", drivers.name),
        }
    }
    step("bench", "ours and the peers, by turns", || bench.stream().map(|()| Outcome::Done)).map(drop)
}
