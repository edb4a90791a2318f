//! `lockkeeper-verify models | simulation | real | replay SEED | judge FILE`: the parts of the evidence, each as a section of `docs/evidence.md`.
//!
//! `models [--minutes N]` looks at larger models than the tests do. `simulation [--minutes N] [--first SEED]` runs fresh seeds on all cores.
//! `real --program FILE` records histories of real servers. `control` runs other libraries under the same faults.
//! `replay SEED` prints one history, shrunk if it broke a promise. `judge FILE` has the referee judge a recorded one. Progress goes to standard error.
#![allow(clippy::disallowed_methods, reason = "the doors to the clock are the library's; this is a program about it")]

#[path = "command/control.rs"]
mod control;
#[path = "command/held.rs"]
mod held;
#[path = "command/real.rs"]
mod real;

use std::io::BufReader;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use lockkeeper_verify::models::{Failover, FailoverFlaw, FairFlaw, FairQueue, MutexFlaw, RedLock, RedLockFlaw, Retries};
use lockkeeper_verify::{Flaw, Limits, Model, Promise, Referee, Verdict, WIDER, explore_while, read, shrink, simulate};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.split_first() {
        Some((&"models", rest)) => minutes(rest).and_then(models),
        Some((&"simulation", rest)) => {
            minutes(rest).and_then(|time| simulation(time, option(rest, "--first")?, option(rest, "--cores")?))
        }
        Some((&"real", rest)) => minutes(rest).and_then(|time| real::run(time, rest)),
        Some((&"control", rest)) => minutes(rest).and_then(|time| control::all(time, rest)),
        Some((&"held", [url, name, lease])) => held::run(url, name, lease),
        Some((&"judge", [file])) => judge(file),
        Some((&"replay", [seed])) => seed.parse().map_err(|_| format!("{seed} is no seed")).map(replay),
        _ => Err("use: lockkeeper-verify models|simulation [--minutes N] [--first SEED], real --program FILE [--only TOPOLOGY] [--log FILE] [--minutes N], control [--python|--rslock|--redisson COMMAND] [--minutes N], replay SEED, or judge FILE".to_owned()),
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

/// Looks at each of the larger models for its share of the time; whether all promises hold.
fn models(time: Duration) -> Result<bool, String> {
    println!("## Models, all states as far as the time allows\n");
    println!("| model | states | transitions | depth | complete | seconds | broken |");
    println!("|---|---|---|---|---|---|---|");
    let (mutex, redlock) = (MutexFlaw::None, RedLockFlaw::None);
    let failover = Failover { clients: 3, rounds: 2, horizon: 3, failovers: 2, lag: 1, flaw: FailoverFlaw::None };
    let fair = FairQueue { clients: 4, rounds: 2, horizon: 6, flaw: FairFlaw::None };
    let majority = RedLock {
        rounds: 2,
        horizon: 4,
        restarts: 2,
        renewals: true,
        slow_withdrawals: true,
        lost_answers: true,
        snapshots: true,
        flaw: redlock,
    };
    let share = time / 5;
    let found = [
        row(
            "mutex, 2 clients",
            &Retries { clients: 2, rounds: 2, horizon: 4, repeats: true, renewals: true, doubles: 2, flaw: mutex },
            share,
        ),
        row(
            "mutex, 3 clients",
            &Retries { clients: 3, rounds: 1, horizon: 4, repeats: true, renewals: true, doubles: 1, flaw: mutex },
            share,
        ),
        row("failover", &failover, share),
        row("fair queue", &fair, share),
        row("RedLock", &majority, share),
    ];
    println!();
    Ok(found.into_iter().all(|sound| sound))
}

/// So many states fit into the memory of a usual machine.
const MOST_STATES: usize = 20_000_000;

fn row(name: &str, model: &impl Model, time: Duration) -> bool {
    eprintln!("{name} …");
    let began = Instant::now();
    let report = explore_while(model, MOST_STATES, || began.elapsed() < time);
    let complete = if report.complete { "yes" } else { "no" };
    let broken =
        report.broken.as_ref().map_or_else(|| "nothing".to_owned(), |(what, path)| format!("{what}: {}", path.join(", ")));
    let (states, transitions, depth) = (report.states, report.transitions, report.depth);
    println!("| {name} | {states} | {transitions} | {depth} | {complete} | {:.1} | {broken} |", began.elapsed().as_secs_f64());
    report.broken.is_none()
}

/// Runs fresh seeds on all cores; whether all histories are sound.
fn simulation(time: Duration, first: Option<u64>, cores: Option<u64>) -> Result<bool, String> {
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs() * 1_000_000);
    let first = first.unwrap_or_else(|| WIDER + now());
    let all = || std::thread::available_parallelism().map_or(1, usize::from);
    let cores = cores.and_then(|cores| usize::try_from(cores).ok()).unwrap_or_else(all);
    let (next, twice, differ) = (AtomicU64::new(first), AtomicU64::new(0), AtomicU64::new(0));
    let (sum, broken) = (Mutex::new(Verdict::default()), Mutex::new(Vec::new()));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while began.elapsed() < time {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let history = simulate(seed, Flaw::None);
                    if seed % 100 == 0 {
                        twice.fetch_add(1, Ordering::Relaxed);
                        differ.fetch_add(u64::from(simulate(seed, Flaw::None).digest != history.digest), Ordering::Relaxed);
                    }
                    if !history.is_sound() {
                        let what = history.summary().unwrap_or_default();
                        eprintln!("SEED={seed}: {what}");
                        broken.lock().expect("no thread panics").push((seed, what));
                    }
                    sum.lock().expect("no thread panics").merge(history.verdict);
                }
            });
        }
    });
    let seconds = began.elapsed().as_secs_f64();
    let (sum, broken) = (sum.into_inner().expect("no thread panics"), broken.into_inner().expect("no thread panics"));
    let histories = next.into_inner() - first;
    let rate = histories as f64 * 60.0 / seconds / cores as f64;
    println!("## Simulation\n");
    println!("{histories} histories (seeds from {first}), {} events, {seconds:.0} s on {cores} cores:", sum.events);
    println!("{rate:.0} histories per minute and core. {} seeds ran twice, {} of them differed.\n", twice.into_inner(), {
        differ.load(Ordering::Relaxed)
    });
    println!("| promise | checks |\n|---|---|");
    for promise in Promise::ALL.into_iter().filter(|promise| *promise != Promise::History) {
        println!("| {promise} | {} |", sum.checks_of(promise));
    }
    println!("\nHistories that broke a promise, hung or left something in the store: {}.\n", broken.len());
    for (seed, what) in broken.iter().take(20) {
        println!("* `SEED={seed}`: {what}");
    }
    Ok(broken.is_empty() && differ.into_inner() == 0)
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
