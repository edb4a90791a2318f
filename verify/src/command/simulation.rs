//! `lockkeeper-verify simulation`: fresh seeds on all cores, as a section of the page, and what all runs so far add up to.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use lockkeeper_verify::{Flaw, Promise, Verdict, WIDEST, simulate};

use crate::log::Log;
use crate::option;

/// One in so many seeds runs twice. The setting follows from the last digit, so this must not be a multiple of two or five.
const TWICE: u64 = 99;

/// The columns of `docs/evidence/simulation.tsv`, after date and commit.
const TITLES: [&str; 5] = ["first seed", "histories", "ran twice", "differed", "broken"];

/// Runs fresh seeds on all cores; whether all histories are sound.
pub(crate) fn run(time: Duration, words: &[&str]) -> Result<bool, String> {
    let mut log = Log::open(words, &TITLES)?;
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs() * 1_000_000);
    let first = option(words, "--first")?.unwrap_or_else(|| WIDEST + now());
    let all = || std::thread::available_parallelism().map_or(1, usize::from);
    let cores = option(words, "--cores")?.and_then(|cores| usize::try_from(cores).ok()).unwrap_or_else(all);
    let (next, twice, differ) = (AtomicU64::new(first), AtomicU64::new(0), AtomicU64::new(0));
    let (sum, broken) = (Mutex::new(Verdict::default()), Mutex::new(Vec::new()));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while began.elapsed() < time {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let history = simulate(seed, Flaw::None);
                    if seed % TWICE == 0 {
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
    let (twice, differ) = (twice.into_inner(), differ.into_inner());
    let rate = histories as f64 * 60.0 / seconds / cores as f64;
    println!("## Simulation\n");
    println!("{histories} histories (seeds from {first}), {} events, {seconds:.0} s on {cores} cores:", sum.events);
    println!("{rate:.0} histories per minute and core. {twice} seeds ran twice, {differ} of them differed.\n");
    println!("| promise | checks |\n|---|---|");
    for promise in Promise::ALL.into_iter().filter(|promise| *promise != Promise::History) {
        println!("| {promise} | {} |", sum.checks_of(promise));
    }
    println!("\nHistories that broke a promise, hung or left something in the store: {}.\n", broken.len());
    for (seed, what) in broken.iter().take(20) {
        println!("* `SEED={seed}`: {what}");
    }
    log.add(&[first, histories, twice, differ, broken.len() as u64].map(|number| number.to_string()));
    println!("{}", totals(&log));
    log.write()?;
    Ok(broken.is_empty() && differ == 0)
}

/// What all runs add up to, and those of the same commit.
fn totals(log: &Log) -> String {
    let line = |what: &str, (runs, [histories, twice, differ, broken]): (u64, [u64; 4])| {
        format!("| {what} | {runs} | {histories} | {twice} | {differ} | {broken} |\n")
    };
    let columns = ["histories", "ran twice", "differed", "broken"];
    let commit = &log.commit;
    let mut table = "| | runs | histories | ran twice | differed | broken |\n|---|---|---|---|---|---|\n".to_owned();
    table += &line(&format!("on commit {commit}"), log.sums(columns, |run| run("commit") == *commit));
    table + &line("[all runs so far](evidence/simulation.tsv)", log.sums(columns, |_| true))
}

#[cfg(test)]
mod tests {
    use lockkeeper_verify::Setting;

    use super::*;

    #[test]
    fn seeds_of_every_setting_run_twice() {
        let twice = |first: u64| (first..first + 100 * TWICE).filter(|seed| seed % TWICE == 0).map(Setting::of);
        assert_eq!(twice(WIDEST).collect::<std::collections::BTreeSet<_>>(), Setting::ALL.into_iter().collect());
    }

    #[test]
    fn runs_of_this_commit_are_told_apart() {
        let mut log = Log::open(&["--commit", "abc"], &TITLES).unwrap();
        log.add(&[7, 1_000, 10, 0, 0].map(|number| number.to_string()));
        log.commit = "def".to_owned();
        log.add(&[9, 500, 5, 0, 1].map(|number| number.to_string()));
        let table = totals(&log);
        assert!(table.contains("| on commit def | 1 | 500 | 5 | 0 | 1 |"), "{table}");
        assert!(table.contains("| 2 | 1500 | 15 | 0 | 1 |"), "{table}");
    }
}
