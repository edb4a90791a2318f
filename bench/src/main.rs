//! Runs lockkeeper beside its peers, on the same server and by turns, and writes down what came of it: `cargo xtask bench`.
//!
//! Absolute times mean little on a shared machine; ratios within one alternated run do. So every goal is a ratio, taken repeat by repeat.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the machine's clock, and is no part of the library")]

mod commands;
mod compare;
mod contestants;
mod courses;
mod figures;
mod goals;
mod heat;
mod machine;
mod merge;
mod page;
mod plots;
mod queues;
mod results;
mod sql;
use lockkeeper_testkit::server;
mod team;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use contestants::Programs;
use courses::Pace;
use results::Results;

/// A quick run ends within five minutes; from here on it hurries.
const LONG_FOR_QUICK: Duration = Duration::from_secs(200);

fn main() -> ExitCode {
    match run(std::env::args().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("bench: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(mut words: impl Iterator<Item = String>) -> Result<(), String> {
    let (mut quick, mut only, mut who, mut before) = (false, None::<String>, None, None);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => quick = true,
            "--only" => {
                only = Some(words.next().ok_or("--only WORKLOADS, for example a,c,g: from a to m, with commas between them")?);
            }
            "--who" => who = Some(words.next().ok_or("--who NAMES, with commas between them")?),
            "--before" => before = Some(words.next().ok_or("--before PROGRAM, the bench-ours of an older commit")?),
            _ => {
                let usage = "cargo xtask bench [--quick] [--only WORKLOADS] [--who NAMES] [--before PROGRAM]";
                return Err(format!("{word} is not understood; {usage}"));
            }
        }
    }
    if let Some(why) = server::Server::missing(server::Flavour::Redis) {
        return Err(why);
    }
    let pace = if quick { Pace::QUICK } else { Pace::FULL };
    let is_wanted = |id: &str| only.as_ref().is_none_or(|only| only.split(',').any(|start| id.starts_with(start)));
    let mut wanted: Vec<_> = courses::all(quick).into_iter().filter(|course| is_wanted(course.id)).collect();
    wanted.retain(|course| match sql::missing(course.place) {
        Some(why) => {
            println!("({}) is left out: {why}", course.id);
            false
        }
        None => true,
    });
    if before.is_some() {
        compare::only_ours(&mut wanted);
    }
    if let Some(who) = &who {
        wanted.iter_mut().for_each(|course| course.who.retain(|name| who.split(',').any(|known| known == *name)));
        wanted.retain(|course| !course.who.is_empty());
    }
    if wanted.is_empty() {
        return Err("there is no such workload; there are a to m, each with its own contestants".to_owned());
    }
    let machine = machine::Machine::look();
    let programs = Programs::build(wanted.iter().flat_map(|course| &course.who), before.as_deref())?;
    let began = Instant::now();
    let mut results = Results::default();
    for (number, course) in wanted.iter().enumerate() {
        println!("[{:>4.0} s] {}/{} ({}) {}", began.elapsed().as_secs_f64(), number + 1, wanted.len(), course.id, course.title);
        let late = quick && began.elapsed() > LONG_FOR_QUICK;
        heat::run(course, if late { &Pace::LATE } else { &pace }, &programs, &mut results);
        print!("{}", page::table(course, &results));
    }
    if before.is_some() {
        print!("{}", compare::table(&wanted, &results));
        println!("took {:.0} s after building", began.elapsed().as_secs_f64());
        return Ok(());
    }
    let text = page::whole(&wanted, &results, &programs, &machine, quick);
    // A goal whose contestant failed is shown as not measured, if all of its workload was to run.
    let whole = |workload: &str| who.is_none() && only.as_ref().is_none_or(|only| only.split(',').any(|start| start == workload));
    println!("{}", page::goals(&results, whole));
    println!("took {:.0} s after building", began.elapsed().as_secs_f64());
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("in the project").join("docs");
    if who.is_some() || (only.is_some() && quick) {
        println!("docs/benchmarks.md stays: a workload is measured with all its contestants, and not quickly");
        return Ok(());
    }
    if only.is_some() {
        let page = docs.join("benchmarks.md");
        let old = std::fs::read_to_string(&page).map_err(|error| format!("docs/benchmarks.md: {error}"))?;
        let sections: Vec<merge::Section> =
            wanted.iter().map(|course| (course.id, page::section(course, &results, &programs))).collect();
        let known: Vec<_> = goals::all(&Results::default()).iter().map(|goal| (goal.workload, goal.what)).collect();
        let (goals, note, notes) = (page::goals(&results, whole), page::measured(&machine), page::notes());
        let run = merge::Run { goals: &goals, known: &known, sections: &sections, note: &note, notes: &notes };
        let new = merge::merged(&old, &run);
        std::fs::write(&page, new).map_err(|error| format!("docs/benchmarks.md: {error}"))?;
        println!("wrote these workloads into docs/benchmarks.md");
        return Ok(());
    }
    std::fs::create_dir_all(docs.join("benchmarks")).map_err(|error| format!("docs/benchmarks: {error}"))?;
    plots::draw(&docs.join("benchmarks"), &wanted, &results)?;
    std::fs::write(docs.join("benchmarks.md"), text).map_err(|error| format!("docs/benchmarks.md: {error}"))?;
    println!("wrote docs/benchmarks.md and its plots");
    Ok(())
}
