//! `lockkeeper-verify real`: histories on each topology, two topologies at a time, as a section of the page, and what all runs so far add up to.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use lockkeeper_verify::real::{Recorded, TOPOLOGIES, missing, record};

use crate::log::{Log, word};

/// So many topologies are used at a time. Most of the time they wait.
const SIDE_BY_SIDE: u32 = 2;

/// Longer histories than this are recorded one after the other: all events of one are kept in memory.
const LONGEST: Duration = Duration::from_secs(120);

/// Records histories on each topology for its share of the time; whether all are sound.
pub(crate) fn run(time: Duration, words: &[&str]) -> Result<bool, String> {
    let log = Mutex::new(Log::open(words, &TITLES)?);
    let program = Path::new(word(words, "--program").ok_or("real needs --program and the path of lockkeeper")?);
    let only = word(words, "--only");
    if let Some(unknown) = only.filter(|only| !TOPOLOGIES.contains(only)) {
        return Err(format!("there is no topology {unknown}; there are {}", TOPOLOGIES.join(", ")));
    }
    let (absent, present): (Vec<_>, Vec<_>) =
        TOPOLOGIES.into_iter().filter(|name| only.is_none_or(|only| only == *name)).partition(|name| missing(name).is_some());
    let share = time * SIDE_BY_SIDE / u32::try_from(present.len()).unwrap_or(1).max(SIDE_BY_SIDE);
    let (waiting, done) = (Mutex::new(present.clone()), Mutex::new(BTreeMap::<&str, (Vec<Recorded>, Result<(), String>)>::new()));
    std::thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE {
            scope.spawn(|| {
                loop {
                    // Not in the condition of the loop: the lock would last as long as its body.
                    let Some(topology) = waiting.lock().expect("no thread panics").pop() else { break };
                    let recorded = record_for(topology, program, share, &log);
                    done.lock().expect("no thread panics").insert(topology, recorded);
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no thread panics");
    println!("## Real servers\n");
    println!(
        "`lockkeeper torture` on servers that are disturbed meanwhile. Checks of P1, P2, P3, P4, P7 and of tokens against the clock by the referee; the second judge"
    );
    println!(
        "puts all holds of a history in one order ([linear.rs](../verify/src/real/linear.rs)), and all calls of a latch ([latch.rs](../verify/src/real/latch.rs)). P5 is checked at the end of each run. The last columns are the"
    );
    println!(
        "negative control: how often each judge finds two holders, or no order, if it is not told that the store gave up holds before their time.\n"
    );
    println!(
        "| servers | faults of the servers | pauses | kills | guards | checks | holds in order | broken | referee, untold | order, untold |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let mut sound = true;
    for topology in present {
        let (recorded, ended) = done.remove(topology).unwrap_or((Vec::new(), Ok(())));
        if let Err(why) = ended {
            eprintln!("{topology}: {why}");
            sound = false;
        }
        let Some(sum) = recorded.into_iter().reduce(Recorded::and) else { continue };
        println!("{} {} | {} |", sum.row(), sum.untold.0, sum.untold.1);
        sum.verdict.violations.iter().for_each(|violation| eprintln!("{topology}: {violation}"));
        sum.order.broken.iter().chain(&sum.wrong).for_each(|broken| eprintln!("{topology}: {broken}"));
        sound &= sum.is_sound();
    }
    println!();
    for topology in absent {
        println!("Not run on {topology}: {}\n", missing(topology).unwrap_or_default());
    }
    println!("{}", totals(&log.into_inner().expect("no thread panics")));
    Ok(sound)
}

/// Several histories of bounded length, one after the other. Each is in the log as soon as it is judged, so that nothing is lost if a later one fails;
/// then those before it are given too.
fn record_for(topology: &'static str, program: &Path, time: Duration, log: &Mutex<Log>) -> (Vec<Recorded>, Result<(), String>) {
    let rounds = time.as_secs().div_ceil(LONGEST.as_secs()).max(1);
    let each = time / u32::try_from(rounds).unwrap_or(1);
    let mut all = Vec::new();
    for round in 1..=rounds {
        eprintln!("{topology}, {round} of {rounds} …");
        // A server that does not come up again panics, as in a test; the other topologies go on.
        let recorded = std::panic::catch_unwind(|| record(topology, program, each));
        match recorded.unwrap_or_else(|_| Err("a server failed; see above".to_owned())) {
            Ok(recorded) => {
                let mut log = log.lock().expect("no thread panics");
                add(&mut log, &recorded);
                all.push(recorded);
                if let Err(why) = log.write() {
                    return (all, Err(why));
                }
            }
            Err(why) => return (all, Err(why)),
        }
    }
    (all, Ok(()))
}

/// The columns of `docs/evidence/real.tsv`, after date and commit: faults of servers (failovers among them), pauses and kills of processes, locks that were
/// taken away as a negative control, failovers.
const TITLES: [&str; 7] = ["topology", "servers", "processes", "forced", "failovers", "broken", "note"];

fn add(log: &mut Log, recorded: &Recorded) {
    let numbers = [recorded.server_faults(), recorded.process_faults(), recorded.forced(), recorded.failovers()];
    let numbers = numbers.map(|number| number.to_string());
    let broken = [recorded.broken().to_string(), String::new()];
    log.add(&[std::slice::from_ref(&recorded.topology), &numbers, &broken].concat());
}

/// What all runs add up to.
fn totals(log: &Log) -> String {
    let mut table = "[All runs so far](evidence/real.tsv). Locks that were taken away by force are the negative control, and are no faults:\n\n\
                     | servers | runs | faults | of servers | of processes | failovers | broken |\n|---|---|---|---|---|---|---|\n"
        .to_owned();
    for topology in TOPOLOGIES {
        let columns = ["servers", "processes", "failovers", "broken"];
        let (runs, [servers, processes, failovers, broken]) = log.sums(columns, |run| run("topology") == topology);
        let faults = servers + processes;
        let _ = writeln!(table, "| {topology} | {runs} | {faults} | {servers} | {processes} | {failovers} | {broken} |");
    }
    for note in log.notes() {
        let _ = writeln!(table, "\n{note}");
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_away_by_force_is_no_fault() {
        let mut log = Log::open(&[], &TITLES).unwrap();
        let row = |topology: &str, numbers: [u64; 5], note: &str| {
            [vec![topology.to_owned()], numbers.map(|number| number.to_string()).to_vec(), vec![note.to_owned()]].concat()
        };
        log.add(&row("sentinel", [5, 30, 99, 2, 0], ""));
        log.add(&row("sentinel", [6, 40, 99, 3, 1], "the recording was wrong"));
        log.add(&row("etcd", [1, 1, 1, 0, 0], ""));
        let table = totals(&log);
        assert!(table.contains("| sentinel | 2 | 81 | 11 | 70 | 5 | 1 |"), "{table}");
        assert!(table.contains("| etcd | 1 | 2 | 1 | 1 | 0 | 0 |"), "{table}");
        assert!(table.contains("sentinel: the recording was wrong"), "{table}");
    }
}
