//! The page: what ran where, the goals, and a table per course.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::contestants::{self, Programs};
use crate::courses::{Course, Shows};
use crate::goals::{self, plain, rounds};
use crate::machine::Machine;
use crate::results::{Figure, Heat, Results};

/// A column: its head, and how its cell is made.
type Column = (&'static str, Cell);

enum Cell {
    /// A figure of a heat: median, lowest and highest.
    Of(Figure),
    /// How evenly the contenders had their turns: the tasks, or so many processes.
    Evenness(Option<usize>),
}

fn columns(course: &Course) -> Vec<Column> {
    let half: Column = ("p50, µs", Cell::Of(|heat| heat.half));
    let most: Column = ("p99, µs", Cell::Of(|heat| heat.most));
    let rate = |head| (head, Cell::Of(Heat::rate as Figure));
    let client: Column = ("client CPU, µs each", Cell::Of(Heat::client_micros));
    let server: Column = ("server CPU, µs each", Cell::Of(Heat::server_micros));
    let written: Column = ("bytes written each", Cell::Of(Heat::written_each));
    match course.shows {
        Shows::Latency => vec![half, most],
        Shows::Throughput => vec![rate("cycles/s"), client, server, half, most],
        Shows::Contention => vec![
            rate("acquisitions/s"),
            ("hand-over p50, µs", Cell::Of(|heat| heat.handed_half)),
            ("hand-over p99, µs", Cell::Of(|heat| heat.handed_most)),
            ("slowest / fastest", Cell::Evenness(None)),
            client,
            server,
        ],
        Shows::Crowd => vec![
            rate("hand-overs/s"),
            ("requests each", Cell::Of(Heat::requests_each)),
            ("bytes per waiter", Cell::Of(|heat| heat.fact("bytes per waiter"))),
            ("of them the task's future", Cell::Of(|heat| heat.fact("bytes of a future"))),
            client,
            server,
        ],
        Shows::Keeping => vec![
            ("held at the end", Cell::Of(Heat::operations)),
            ("keys at the end", Cell::Of(|heat| heat.keys)),
            ("requests per round of 10 s", Cell::Of(rounds)),
            ("client, % of a core", Cell::Of(|heat| 100.0 * heat.client_cpu / heat.seconds)),
            ("server, % of a core", Cell::Of(|heat| 100.0 * heat.server_cpu / heat.seconds)),
        ],
        Shows::Statements => vec![half, most, ("requests each", Cell::Of(Heat::requests_each)), written],
        Shows::Queue => vec![
            rate("acquisitions/s"),
            ("hand-over p50, µs", Cell::Of(|heat| heat.handed_half)),
            ("hand-over p99, µs", Cell::Of(|heat| heat.handed_most)),
            ("slowest / fastest", Cell::Evenness(None)),
            ("requests each", Cell::Of(Heat::requests_each)),
            written,
        ],
        Shows::Rate => vec![rate("operations/s"), client, server],
        Shows::Readers => vec![("reads/s", Cell::Of(Heat::reads)), ("writes/s", Cell::Of(Heat::writes)), client, server],
        Shows::Sales => vec![
            rate("sales/s"),
            ("lost, all heats together", Cell::Of(Heat::lost)),
            ("slowest / fastest process", Cell::Evenness(Some(course.processes))),
            client,
            server,
        ],
    }
}

/// The table of a course.
pub(crate) fn table(course: &Course, results: &Results) -> String {
    let columns = columns(course);
    let mut text = String::from("|  |");
    columns.iter().for_each(|(head, _)| {
        let _ = write!(text, " {head} |");
    });
    text.push_str("\n|---|");
    columns.iter().for_each(|_| text.push_str("---:|"));
    text.push('\n');
    for &id in &course.who {
        let _ = write!(text, "| {} |", contestants::find(id).label);
        if results.of(course.id, id).is_empty() {
            let why = results.trouble.get(&(course.id, id)).map_or("not run", String::as_str);
            let _ = writeln!(text, " *not run: {}* |{}", one_line(why), " |".repeat(columns.len() - 1));
            continue;
        }
        for (_, cell) in &columns {
            let _ = write!(text, " {} |", shown(cell, course.id, id, results));
        }
        text.push('\n');
    }
    for &id in &course.who {
        if let Some(why) = results.trouble.get(&(course.id, id)).filter(|_| !results.of(course.id, id).is_empty()) {
            let count = results.of(course.id, id).len();
            let _ = writeln!(text, "\n{}: only {count} heats, then {}.", contestants::find(id).label, one_line(why));
        }
    }
    text
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '|'], " ")
}

fn shown(cell: &Cell, course: &'static str, id: &'static str, results: &Results) -> String {
    match cell {
        Cell::Evenness(processes) => {
            results.evenness(course, id, *processes).map_or_else(String::new, |even| format!("{even:.2}"))
        }
        Cell::Of(figure) => match results.spread(course, id, *figure) {
            Some((half, least, most)) if results.of(course, id).len() > 1 && !half.is_nan() => {
                format!("{} ({} – {})", plain(half), plain(least), plain(most))
            }
            Some((half, ..)) => plain(half),
            None => String::new(),
        },
    }
}

/// The goals and whether they are met; of workloads that `ran` also those that nobody measured.
pub(crate) fn goals(results: &Results, ran: impl Fn(&str) -> bool) -> String {
    let mut text = String::from("| workload | figure | goal | measured |  |\n|---|---|---:|---:|---|\n");
    for goal in goals::all(results).into_iter().filter(|goal| goal.measured.is_some() || ran(goal.workload)) {
        let (measured, verdict) = match (goal.measured, goal.is_met()) {
            (Some(value), Some(true)) => (plain(value), "met"),
            (Some(value), _) => (plain(value), "**missed**"),
            (None, _) => ("–".to_owned(), "not measured"),
        };
        let _ = writeln!(text, "| ({}) | {} | {} | {measured} | {verdict} |", goal.workload, goal.what, goal.wanted());
    }
    text
}

/// The whole page.
pub(crate) fn whole(courses: &[Course], results: &Results, programs: &Programs, machine: &Machine, quick: bool) -> String {
    let mut text = String::from(
        "# Benchmarks\n\n<!-- Written by `cargo xtask bench`; what is to be said by hand stands in docs/benchmarks/notes.md. -->\n\n",
    );
    text.push_str(
        "lockkeeper and what one would use instead, on the same server, in the same run, by turns. Times on a shared machine mean little; ratios \
         within one run mean more. A cell is the median of the heats, with the lowest and the highest in brackets. A goal's figure is the median of \
         ratios of heats of the same round.\n\n",
    );
    if quick || machine.is_busy() {
        let why = match (quick, machine.is_busy()) {
            (true, true) => "a quick run on a busy machine",
            (true, false) => "a quick run",
            _ => "a run on a busy machine",
        };
        let _ = writeln!(
            text,
            "> **Take these figures for a proof that the tool works, no more:** they are of {why} (load {:.1} on {} cores before it began).\n",
            machine.load, machine.cores
        );
    }
    let _ = writeln!(text, "## Goals\n\n{}", goals(results, |_| true));
    let _ = writeln!(text, "## What ran where\n");
    let _ = writeln!(
        text,
        "{}; {} cores, {}; {}; {}; {}. Load before it began: {:.2}. {}\n",
        machine.date,
        machine.cores,
        machine.processor,
        machine.kernel,
        machine.server,
        machine.compiler,
        machine.load,
        if machine.cores >= 4 {
            "The server was pinned to a core of its own where `taskset` could."
        } else {
            "Nothing was pinned: there are too few cores."
        }
    );
    for (name, program) in programs.each().filter(|(name, _)| *name != "commands") {
        let name = program_name(name);
        match &program.command {
            Ok(_) => {
                let _ = writeln!(text, "* {name} {}", program.version);
            }
            Err(why) => {
                let _ = writeln!(text, "* {name}: not run, because {}", one_line(why));
            }
        }
    }
    text.push_str(MANNER);
    courses.iter().for_each(|course| text.push_str(&section(course, results, programs)));
    text.push_str(&notes());
    text
}

/// What is written by hand.
pub(crate) fn notes() -> String {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/benchmarks/notes.md");
    std::fs::read_to_string(file).unwrap_or_default()
}

/// The name of a program on the page.
fn program_name(program: &str) -> &str {
    match program {
        "ours" => "lockkeeper",
        "etcd" => "etcd's Go client",
        other => other,
    }
}

/// A course's section, with its heading.
pub(crate) fn section(course: &Course, results: &Results, programs: &Programs) -> String {
    let picture = match course.id {
        "b512" => "![Cycles per second by number of tasks](benchmarks/throughput.svg)\n\n",
        "c8r" => "![Hand-over between 8 processes](benchmarks/hand-over.svg)\n\n",
        _ => "",
    };
    let on = results.servers.get(course.id).map(|server| on(server, course, programs)).unwrap_or_default();
    format!("### ({}) {}\n\n{on}{}\n{picture}", course.id, course.title, table(course, results))
}

/// The versions of a course's server and contestants.
fn on(server: &str, course: &Course, programs: &Programs) -> String {
    let who = course.who.iter().map(|id| programs.named(contestants::find(id)));
    let versions: BTreeSet<String> = who.map(|(name, program)| format!("{} {}", program_name(name), program.version)).collect();
    format!("On {server}: {}.\n\n", versions.into_iter().collect::<Vec<_>>().join(", "))
}

/// When and where a part of the page was measured that is not of the whole run.
pub(crate) fn measured(machine: &Machine) -> String {
    let Machine { date, cores, processor, load, .. } = machine;
    format!("*Measured by itself: {date}; {cores} cores, {processor}. Load before it began: {load:.2}.*")
}

const MANNER: &str = "
## How

Every contestant is a small program in its own language (`bench/`), with its library's defaults and, where it renews nothing, a lease of 30 s. It connects and warms up, Java
the longest, and then all of a course stay connected and run heats in turn, the first of one round being the last of the next. A task is a thread in Java and
Python, a goroutine in Go, a tokio task in Rust, where one task has one thread and more have as many as there are cores. CPU is what the kernel counts for the contestant's processes, and
`INFO` for the server, in the time of the heat. Requests are scripts, subscriptions and PINGs, as the server counts them; statements on PostgreSQL, and transactions on MariaDB.

A *cycle* is: acquire the lock, release it, wait for both answers. A *hand-over* lasts from the moment at which a holder begins to release until one of those who waited at that moment has
the lock: if the holder takes it again at once, or a latecomer goes first, that counts as waiting too. *Slowest / fastest* are the turns of the contenders over all heats.
A millisecond is as long as the language's timer makes it: two with tokio.
Where the table says *none*, none of those who waited ever got it.
The *floor* is what any lock on Redis costs at least that asks twice: the same driver, one connection, the same tasks, the shortest scripts.

## Results

";
