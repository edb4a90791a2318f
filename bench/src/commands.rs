//! What `lockkeeper run` adds to a command, beside `flock` and nothing at all. They take turns one by one.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::contestants::{self, Programs};
use crate::courses::{Course, Pace};
use crate::results::{Heat, Results, ServerSays};
use crate::team::Report;

/// Runs of each command in a repeat.
const RUNS: usize = 30;

pub(crate) fn run(course: &Course, pace: &Pace, programs: &Programs, results: &mut Results) {
    let folder = contestants::target().join("bench").join(course.id);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder below the target directory");
    let mut commands: Vec<(&'static str, Command)> = course.who.iter().map(|&id| (id, command(id, &folder, programs))).collect();
    for _ in 0..pace.repeats {
        let mut reports: Vec<Report> = commands.iter().map(|_| Report { counts: vec![0], ..Report::default() }).collect();
        for _ in 0..RUNS {
            for ((id, command), report) in commands.iter_mut().zip(&mut reports) {
                let began = Instant::now();
                match command.status() {
                    Ok(status) if status.success() => {}
                    Ok(status) => drop(results.trouble.insert((course.id, id), format!("it ended with {status}"))),
                    Err(error) => drop(results.trouble.insert((course.id, id), error.to_string())),
                }
                report.nanos.push(began.elapsed().as_nanos() as u64);
                report.counts[0] += 1;
                report.seconds += began.elapsed().as_secs_f64();
            }
        }
        for ((id, _), report) in commands.iter().zip(reports) {
            if !results.trouble.contains_key(&(course.id, id)) {
                results.add(course.id, id, Heat::new(vec![report], 0.0, ServerSays::default(), ServerSays::default()));
            }
        }
    }
}

fn command(id: &str, folder: &Path, programs: &Programs) -> Command {
    let words = match id {
        "true" => vec!["true".to_owned()],
        "flock-run" => vec!["flock".to_owned(), folder.join("flock").display().to_string(), "true".to_owned()],
        _ => {
            let program = programs.of(contestants::find("run")).command.clone().expect("it was built");
            let store = format!("sqlite:{}", folder.join("locks.db").display());
            [&program[..], &["run", "-S", &store, "bench", "true"].map(str::to_owned)].concat()
        }
    };
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null());
    command
}
