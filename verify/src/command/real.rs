//! `lockkeeper-verify real`: histories on each topology, two topologies at a time, as a section of the page, and what all runs so far add up to.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use lockkeeper_verify::real::{Recorded, TOPOLOGIES, missing, record};

/// So many topologies are used at a time. Most of the time they wait.
const SIDE_BY_SIDE: u32 = 2;

/// Longer histories than this are recorded one after the other: all events of one are kept in memory.
const LONGEST: Duration = Duration::from_secs(120);

/// The value of an option.
pub(crate) fn word<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    words.iter().position(|word| *word == name).and_then(|at| words.get(at + 1)).copied()
}

/// Records histories on each topology for its share of the time; whether all are sound.
pub(crate) fn run(time: Duration, words: &[&str]) -> Result<bool, String> {
    let program = Path::new(word(words, "--program").ok_or("real needs --program and the path of lockkeeper")?);
    let only = word(words, "--only");
    let (absent, present): (Vec<_>, Vec<_>) =
        TOPOLOGIES.into_iter().filter(|name| only.is_none_or(|only| only == *name)).partition(|name| missing(name).is_some());
    let share = time * SIDE_BY_SIDE / u32::try_from(present.len()).unwrap_or(1).max(SIDE_BY_SIDE);
    let (waiting, done) = (Mutex::new(present.clone()), Mutex::new(BTreeMap::<&str, Result<Vec<Recorded>, String>>::new()));
    std::thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE {
            scope.spawn(|| {
                loop {
                    // Not in the condition of the loop: the lock would last as long as its body.
                    let Some(topology) = waiting.lock().expect("no thread panics").pop() else { break };
                    let recorded = record_for(topology, program, share);
                    done.lock().expect("no thread panics").insert(topology, recorded);
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no thread panics");
    println!("## Real servers\n");
    println!(
        "`lockkeeper torture` on servers that are disturbed meanwhile. Checks of P1, P2, P3, P4 and P7 by the referee; the second judge puts all"
    );
    println!(
        "holds of a history in one order ([linear.rs](../verify/src/real/linear.rs)). P5 is checked at the end of each run. The last columns are the"
    );
    println!(
        "negative control: how often each judge finds two holders, or no order, if it is not told that the store gave up holds before their time.\n"
    );
    println!(
        "| servers | faults of the servers | pauses | kills | guards | checks | holds in order | broken | referee, untold | order, untold |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let (mut sound, mut log) = (true, Log::read(word(words, "--log"))?);
    for topology in present {
        let recorded = match done.remove(topology) {
            Some(Ok(recorded)) => recorded,
            failed => {
                eprintln!("{topology}: {failed:?}");
                sound = false;
                continue;
            }
        };
        recorded.iter().for_each(|recorded| log.add(recorded));
        let sum = recorded.into_iter().reduce(Recorded::and).ok_or("no history")?;
        println!("{} {} | {} |", sum.row(), sum.untold.0, sum.untold.1);
        sum.verdict.violations.iter().for_each(|violation| eprintln!("{topology}: {violation}"));
        sum.order.broken.iter().chain(&sum.wrong).for_each(|broken| eprintln!("{topology}: {broken}"));
        sound &= sum.is_sound();
    }
    println!();
    for topology in absent {
        println!("Not run on {topology}: {}\n", missing(topology).unwrap_or_default());
    }
    println!("{}", log.table());
    log.write()?;
    Ok(sound)
}

/// Several histories of bounded length, one after the other.
fn record_for(topology: &'static str, program: &Path, time: Duration) -> Result<Vec<Recorded>, String> {
    let rounds = time.as_secs().div_ceil(LONGEST.as_secs()).max(1);
    let each = time / u32::try_from(rounds).unwrap_or(1);
    (1..=rounds)
        .map(|round| {
            eprintln!("{topology}, {round} of {rounds} …");
            // A server that does not come up again panics, as in a test; the other topologies go on.
            std::panic::catch_unwind(|| record(topology, program, each))
                .unwrap_or_else(|_| Err(format!("{topology}: a server failed; see above")))
        })
        .collect()
}

/// What all runs add up to, kept in a file of one line per run: topology, faults, failovers, broken promises, separated by tabs.
struct Log<'a> {
    file: Option<&'a str>,
    lines: String,
}

impl<'a> Log<'a> {
    fn read(file: Option<&'a str>) -> Result<Self, String> {
        let lines = match file.map(std::fs::read_to_string) {
            Some(Err(error)) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(format!("cannot read the log: {error}"));
            }
            Some(Ok(lines)) => lines,
            _ => String::new(),
        };
        Ok(Self { file, lines })
    }

    fn add(&mut self, recorded: &Recorded) {
        let Recorded { topology, .. } = recorded;
        let _ = writeln!(self.lines, "{topology}\t{}\t{}\t{}", recorded.faults(), recorded.failovers(), recorded.broken());
    }

    fn write(&self) -> Result<(), String> {
        let Some(file) = self.file.map(Path::new) else { return Ok(()) };
        let folder = file.parent().unwrap_or(Path::new("."));
        let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(file, &self.lines));
        written.map_err(|error| format!("cannot write {}: {error}", file.display()))
    }

    fn table(&self) -> String {
        let mut sums: BTreeMap<&str, [u64; 4]> = BTreeMap::new();
        for line in self.lines.lines() {
            let mut words = line.split('\t');
            let Some(topology) = words.next() else { continue };
            let numbers = words.map(|word| word.parse().unwrap_or(0));
            let sum = sums.entry(topology).or_default();
            sum.iter_mut().zip([1].into_iter().chain(numbers)).for_each(|(sum, number): (&mut u64, u64)| *sum += number);
        }
        let mut table = "All runs so far, faults of servers and processes together:\n\n".to_owned();
        table += "| servers | runs | faults | failovers | broken |\n|---|---|---|---|---|\n";
        for topology in TOPOLOGIES {
            let [runs, faults, failovers, broken] = sums.get(topology).copied().unwrap_or_default();
            let _ = writeln!(table, "| {topology} | {runs} | {faults} | {failovers} | {broken} |");
        }
        table
    }
}
