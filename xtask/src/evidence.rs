//! `cargo xtask evidence`: larger models and more seeds than the tests take; writes docs/evidence.md.

use std::time::{Duration, SystemTime};

use crate::steps::{Run, root};

/// The parts, in the order of the page.
const PARTS: [&str; 2] = ["models", "simulation"];

const HEAD: &str = "\
# Evidence

Written by `cargo xtask evidence`; do not edit. What the parts are and how to replay a seed: [verify/README.md](../verify/README.md).
";

const NOT_COVERED: &str = "\
## What is not covered

* The simulation has one memory store, mutexes and fair mutexes. RedLock, failovers, sessions, read-write locks, semaphores, latches and
  multi-locks are not in it. Their tests are listed in [faults.md](faults.md).
* All clients and the store share one clock. Clocks that run apart, and suspended machines, are tested with real servers only.
* Tasks run in tokio's order; the seed decides delays and faults, not which ready task runs next.
* The clients of the models are written for the models; only the server is the library's specification.
* No history of a real server is recorded and judged yet, and no other lock library is run beside ours under the same faults.
";

/// Runs the parts named, or all of them, for so many minutes each; writes the page if all of them ran.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let (mut minutes, mut parts, mut quick) = (5_u64, Vec::new(), false);
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--minutes" => {
                let value = words.next().and_then(|value| value.parse().ok());
                minutes = value.filter(|minutes| *minutes > 0).ok_or("--minutes needs a number, at least 1")?;
            }
            "--debug" => quick = true,
            part if PARTS.contains(&part) => parts.push(part),
            other => return Err(format!("there is no part {other}; there are {}", PARTS.join(", "))),
        }
    }
    let all = parts.is_empty();
    let minutes = minutes.to_string();
    let mut sections = Vec::new();
    for part in PARTS.into_iter().filter(|part| all || parts.contains(part)) {
        let mut words = vec!["run", "--quiet", "-p", "lockkeeper-verify"];
        words.extend((!quick).then_some("--release"));
        words.extend(["--", part, "--minutes", &minutes]);
        // `--release` is tuned for a quick build; here speed is states and seeds.
        let part = Run::cargo(&words).with("CARGO_PROFILE_RELEASE_OPT_LEVEL", "3");
        sections.push(part.capture()?.trim_end().to_owned());
    }
    if !all {
        println!("{}", sections.join("\n\n"));
        return Ok(());
    }
    let page = format!("{HEAD}\n{}\n{}\n\n{NOT_COVERED}", setting(quick)?, sections.join("\n\n"));
    let file = root().join("docs").join("evidence.md");
    std::fs::write(&file, page).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    println!("    written: {}", file.display());
    Ok(())
}

/// When, of what and on what.
fn setting(quick: bool) -> Result<String, String> {
    let commit = Run::new("git", &["rev-parse", "--short=12", "HEAD"]).capture()?;
    let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let date = Run::new("date", &["-u", "-d", &format!("@{seconds}"), "+%Y-%m-%d"]).capture()?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let built = if quick { "without optimisation" } else { "with `--release`" };
    Ok(format!("{}, commit {}, {cores} cores, built {built}.\n", date.trim(), commit.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_parts_and_senseless_minutes_are_refused() {
        let run = |words: &[&str]| run(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>()).unwrap_err();
        assert!(run(&["polish"]).contains("models, simulation"));
        assert!(run(&["--minutes", "0"]).contains("at least 1"));
        assert!(run(&["--minutes"]).contains("a number"));
    }
}
