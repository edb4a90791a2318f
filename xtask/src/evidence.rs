//! `cargo xtask evidence`: larger models and more seeds than the tests take; writes docs/evidence.md.

use std::time::{Duration, SystemTime};

use crate::steps::{Run, root};

/// The parts, in the order of the page.
const PARTS: [&str; 2] = ["models", "simulation"];

const HEAD: &str = "\
# Evidence

Written by `cargo xtask evidence`; do not edit. What the parts are, how to replay a seed, and which bugs they found:
[verify/README.md](../verify/README.md). To repeat it: `cargo xtask evidence --minutes N`; N minutes for each part.
";

const NOT_COVERED: &str = "\
## What is not covered

* The simulation has no store whose holds live in sessions (ZooKeeper, etcd), no latches and counting semaphores, no re-entry. Their tests
  are listed in [faults.md](faults.md).
* The simulation runs the client over the memory store: scripts, SQL and wire formats of real servers are tested against the same model, but
  not in it.
* For RedLock the referee does not judge P5 and P6; that nothing is left and that every task ends is checked.
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
