//! `cargo xtask faults`: what takes too long for every change. Masters are killed, networks parted and slots moved, many times each, the contract runs on
//! deployments that the ordinary tests leave out, a storm of cancelled calls lasts for half a minute, a hundred thousand tokens of a majority are compared with the clock, three hundred processes queue for one lock, and fenced transactions are paused two
//! hundred times.

use std::time::Duration;

use crate::setup;
use crate::steps::{Run, step};
use crate::test::knowing_servers;

/// What all of it may take, building included.
const LIMIT: Duration = Duration::from_secs(60 * 60);

/// Runs the tests of real deployments, the ignored ones too; `arguments` choose some by name.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    step("setup", "what the tests need", setup::needed)?;
    let mut words = vec!["test", "-p", "lockkeeper", "--all-features", "--test", "topology", "--"];
    // Two deployments at once are enough for a small machine.
    words.extend(["--include-ignored", "--test-threads", "2"]);
    words.extend(arguments.iter().map(String::as_str));
    knowing_servers(Run::cargo(&words).within(LIMIT)).stream()?;
    if !arguments.is_empty() {
        return Ok(());
    }
    let storm = [
        "test",
        "-p",
        "lockkeeper",
        "--all-features",
        "--test",
        "redis",
        "--",
        "--include-ignored",
        "storm::",
        "cancelled::",
        "hundred_thousand",
    ];
    knowing_servers(Run::cargo(&storm).within(LIMIT)).stream()?;
    // Three hundred processes in one queue, by themselves: they are to rest.
    let queue = ["test", "-p", "lockkeeper-cli", "--test", "cli", "--", "--include-ignored", "queue::three_hundred"];
    knowing_servers(Run::cargo(&queue).within(LIMIT)).stream()?;
    // Two hundred pauses of fenced transactions, and as many without the fence, on PostgreSQL and MySQL together.
    for store in ["postgres", "mysql"] {
        let bank = ["test", "-p", "lockkeeper", "--all-features", "--test", store, "--", "--nocapture", "bank::with_the_fence"];
        knowing_servers(Run::cargo(&bank).with("LOCKKEEPER_PAUSES", "100").within(LIMIT)).stream()?;
    }
    Ok(())
}
