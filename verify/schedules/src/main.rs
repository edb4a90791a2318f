//! `lockkeeper-schedules schedules [--minutes N] [--only NAME]`: explores all scenarios on all cores and prints a section of `docs/evidence.md`.
//!
//! `--log FILE --date DATE --commit COMMIT`: the log of all runs. The time goes to scenarios that have not enough schedules over all runs.
//! `lockkeeper-schedules replay NAME SEED COUNT` runs the first COUNT schedules of a series again. Progress goes to standard error.
#![allow(clippy::disallowed_methods, reason = "this program stands outside the machines that it explores")]

#[path = "../../src/command/log.rs"]
mod log;

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use lockkeeper_schedules::schedules::{Flaw, Found, Report, SCENARIOS, Scenario, explore};

use log::{Log, word};

/// So many schedules come from one seed.
const SERIES: u64 = 500;

/// So many of one scenario are enough, over all runs: what is left of its time goes to the others.
const ENOUGH: u64 = 1_000_000;

/// So many are explored of a scenario that has enough, while others have not.
const FEW: u64 = 10_000;

/// The columns of `docs/evidence/schedules.tsv`, after date and commit.
const TITLES: [&str; 3] = ["scenario", "schedules", "broken"];

/// What all schedules of one scenario came to.
struct Row {
    schedules: u64,
    seconds: f64,
    found: Vec<Found>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.split_first() {
        Some((&"schedules", rest)) => all(rest),
        Some((&"replay", [name, seed, count])) => replay(name, seed, count),
        _ => Err("use: lockkeeper-schedules schedules [--minutes N] [--only NAME], or replay NAME SEED COUNT".to_owned()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("lockkeeper-schedules: {message}");
            ExitCode::from(64)
        }
    }
}

/// Explores each scenario for its share of the time; whether all hold and all flaws are found.
fn all(words: &[&str]) -> Result<bool, String> {
    let minutes: u64 = word(words, "--minutes").unwrap_or("1").parse().map_err(|_| "--minutes needs a number")?;
    let chosen: Vec<&Scenario> = match word(words, "--only") {
        Some(name) => vec![named(name)?],
        None => SCENARIOS.iter().collect(),
    };
    let mut log = Log::open(words, &TITLES)?;
    let done = |log: &Log, scenario: &Scenario| log.sums(["schedules"], |run| run("scenario") == scenario.name).1[0];
    let all_have_enough = chosen.iter().all(|scenario| done(&log, scenario) >= ENOUGH);
    let (began, time) = (Instant::now(), Duration::from_secs(60 * minutes));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let fresh = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    println!("## Schedules\n");
    println!(
        "Threads of one process, on the library's own code. Half of the schedules draw the next thread at each step, half draw"
    );
    println!("priorities (PCT). The last column is the negative control: after how many schedules a flaw was found.\n");
    println!(
        "| scenario | what happens | schedules | in all runs | seconds | broken | flaw | found after |\n|---|---|---|---|---|---|---|---|"
    );
    let mut sound = true;
    // The quick ones come last in the table and first here: what they leave of their time the slow ones get.
    let mut rows = Vec::new();
    for (left, scenario) in (1..).zip(chosen).collect::<Vec<(u32, _)>>().into_iter().rev() {
        eprintln!("{} …", scenario.name);
        let control = control(scenario);
        let most = if done(&log, scenario) >= ENOUGH && !all_have_enough { FEW } else { ENOUGH };
        let row = run(scenario, fresh * 1_000_000, time.saturating_sub(began.elapsed()) / left, (cores, most));
        log.add(&[scenario.name.to_owned(), row.schedules.to_string(), row.found.len().to_string()]);
        // Now, so that a run that is ended early counts as far as it came.
        log.write()?;
        let after = control.map_or_else(|| "never".to_owned(), |after| after.to_string());
        let (Scenario { name, what, flaw, .. }, Row { schedules, seconds, found }) = (scenario, &row);
        let in_all = done(&log, scenario);
        rows.push(format!("| {name} | {what} | {schedules} | {in_all} | {seconds:.0} | {} | {flaw:?} | {after} |", found.len()));
        for Found { what, seed, before } in found {
            eprintln!("{name}: seed {seed}, schedule {before}: {what}");
        }
        sound &= found.is_empty() && control.is_some();
    }
    rows.iter().rev().for_each(|row| println!("{row}"));
    println!("\n[All runs](evidence/schedules.tsv); each of their lines names its commit.\n");
    Ok(sound)
}

fn named(name: &str) -> Result<&'static Scenario, String> {
    let known = || SCENARIOS.map(|scenario| scenario.name).join("; ");
    SCENARIOS
        .iter()
        .find(|scenario| scenario.name == name)
        .ok_or_else(|| format!("there is no scenario {name}; there are: {}", known()))
}

/// On a thread of its own: a schedule that is given up leaves its threads behind.
fn series(scenario: &Scenario, flaw: Flaw, seed: u64, schedules: u64) -> Report {
    let scenario = *scenario;
    let explored = std::thread::spawn(move || explore(&scenario, flaw, seed, schedules)).join();
    explored.unwrap_or_else(|_| Report {
        schedules: 0,
        found: Some(Found { what: "the search panicked".to_owned(), seed, before: 0 }),
    })
}

fn run(scenario: &Scenario, first: u64, time: Duration, (cores, most): (usize, u64)) -> Row {
    let (next, schedules, found) = (AtomicU64::new(first), AtomicU64::new(0), Mutex::new(Vec::new()));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                let goes_on = || began.elapsed() < time && schedules.load(Ordering::Relaxed) < most;
                while goes_on() && found.lock().is_ok_and(|found: MutexGuard<'_, Vec<Found>>| found.len() < 10) {
                    let report = series(scenario, Flaw::None, next.fetch_add(1, Ordering::Relaxed), SERIES);
                    schedules.fetch_add(report.schedules, Ordering::Relaxed);
                    found.lock().expect("no thread panics").extend(report.found);
                }
            });
        }
    });
    Row {
        schedules: schedules.into_inner(),
        seconds: began.elapsed().as_secs_f64(),
        found: found.into_inner().expect("no thread panics"),
    }
}

/// After how many schedules the scenario's flaw is found.
fn control(scenario: &Scenario) -> Option<u64> {
    (0..20).find_map(|seed| {
        let found = series(scenario, scenario.flaw, seed, 1_000).found?;
        Some(1_000 * seed + found.before + 1)
    })
}

fn replay(name: &str, seed: &str, count: &str) -> Result<bool, String> {
    let number = |word: &str| word.parse::<u64>().map_err(|_| format!("{word} is no number"));
    let report = series(named(name)?, Flaw::None, number(seed)?, number(count)?);
    println!("{} schedules, found: {:?}", report.schedules, report.found);
    Ok(report.found.is_none())
}
