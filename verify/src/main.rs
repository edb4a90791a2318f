//! `lockkeeper-verify models | simulation | real | replay SEED | judge FILE`: the parts of the evidence, each as a section of `docs/evidence.md`.
//!
//! `models [--minutes N]` looks at larger models than the tests do, at each for so long at most. `simulation [--minutes N] [--first SEED]` runs fresh seeds on
//! all cores.
//! `real --program FILE` records histories of real servers. `control` runs other libraries under the same faults.
//! `replay SEED` prints one history, shrunk if it broke a promise. `judge FILE` has the referee judge a recorded one. Progress goes to standard error.
//! Simulation and real servers have a log of all runs: `--log FILE --date DATE --commit COMMIT`.
#![allow(clippy::disallowed_methods, reason = "the doors to the clock are the library's; this is a program about it")]

#[path = "command/control.rs"]
mod control;
#[path = "command/held.rs"]
mod held;
#[path = "command/log.rs"]
mod log;
#[path = "command/models.rs"]
mod models;
#[path = "command/real.rs"]
mod real;
#[path = "command/simulation.rs"]
mod simulation;

use std::io::BufReader;
use std::process::ExitCode;
use std::time::Duration;

use lockkeeper_verify::{Flaw, Limits, Referee, read, shrink, simulate};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.split_first() {
        Some((&"models", rest)) => minutes(rest).map(models::run),
        Some((&"simulation", rest)) => minutes(rest).and_then(|time| simulation::run(time, rest)),
        Some((&"real", rest)) => minutes(rest).and_then(|time| real::run(time, rest)),
        Some((&"control", rest)) => minutes(rest).and_then(|time| control::all(time, rest)),
        Some((&"held", [url, name, lease])) => held::run(url, name, lease),
        Some((&"judge", [file])) => judge(file),
        Some((&"replay", [seed])) => seed.parse().map_err(|_| format!("{seed} is no seed")).map(replay),
        _ => Err("use: lockkeeper-verify models|simulation [--minutes N] [--first SEED], real --program FILE [--only TOPOLOGY] [--minutes N], control [--python|--rslock|--redisson COMMAND] [--minutes N], replay SEED, or judge FILE".to_owned()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("lockkeeper-verify: {message}");
            ExitCode::from(64)
        }
    }
}

fn option(words: &[&str], name: &str) -> Result<Option<u64>, String> {
    let Some(at) = words.iter().position(|word| *word == name) else { return Ok(None) };
    let value = words.get(at + 1).and_then(|value| value.parse().ok());
    value.map(Some).ok_or_else(|| format!("{name} needs a number"))
}

fn minutes(words: &[&str]) -> Result<Duration, String> {
    Ok(Duration::from_secs(60 * option(words, "--minutes")?.unwrap_or(1)))
}

/// Prints the history of a seed as a timeline; if something is wrong with it, shrunk.
fn replay(seed: u64) -> bool {
    let history = simulate(seed, Flaw::None);
    println!("{}", history.timeline());
    if !history.is_sound() {
        let (without, smallest) = shrink(seed, Flaw::None);
        println!("\nThe same promise is broken without {without:?}:\n{}", smallest.timeline());
    }
    history.is_sound()
}

fn judge(file: &str) -> Result<bool, String> {
    let history = std::fs::File::open(file).map_err(|error| format!("cannot read {file}: {error}"))?;
    let (mut referee, mut end) = (Referee::new(Limits::default()), 0);
    for event in read(BufReader::new(history)) {
        let event = event.map_err(|error| format!("{file}: {error}"))?;
        end = event.at;
        referee.observe(&event);
    }
    let verdict = referee.finish(end);
    for violation in &verdict.violations {
        println!("{violation}");
    }
    println!("{} events, {} broken promises", verdict.events, verdict.violations.len());
    Ok(verdict.violations.is_empty())
}
