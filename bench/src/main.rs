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
mod page;
mod plots;
mod results;
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
            "--only" => only = Some(words.next().ok_or("--only WORKLOADS, letters from a to j with commas between them")?),
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
    if before.is_some() {
        compare::only_ours(&mut wanted);
    }
    if let Some(who) = &who {
        wanted.iter_mut().for_each(|course| course.who.retain(|name| who.split(',').any(|known| known == *name)));
        wanted.retain(|course| !course.who.is_empty());
    }
    if wanted.is_empty() {
        return Err("there is no such workload; there are a to j, each with its own contestants".to_owned());
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
    println!("{}", page::goals(&results, only.is_none() && who.is_none()));
    println!("took {:.0} s after building", began.elapsed().as_secs_f64());
    if only.is_some() || who.is_some() {
        println!("docs/benchmarks.md is written by a run of everything");
        return Ok(());
    }
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("in the project").join("docs");
    std::fs::create_dir_all(docs.join("benchmarks")).map_err(|error| format!("docs/benchmarks: {error}"))?;
    plots::draw(&docs.join("benchmarks"), &wanted, &results)?;
    std::fs::write(docs.join("benchmarks.md"), text).map_err(|error| format!("docs/benchmarks.md: {error}"))?;
    println!("wrote docs/benchmarks.md and its plots");
    Ok(())
}
