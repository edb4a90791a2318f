//! `cargo xtask faults`: what takes too long for every change. Masters are killed, networks parted and slots moved, many times each, the contract
//! runs on deployments that the ordinary tests leave out, a storm of cancelled calls lasts for half a minute, a hundred thousand tokens of a
//! majority are compared with the clock, three hundred processes queue for one lock, and fenced transactions are paused two hundred times.

use std::time::Duration;

use crate::setup;
use crate::steps::{Run, step};
use crate::test::knowing_servers;

/// What all of it may take, building included.
const LIMIT: Duration = Duration::from_secs(60 * 60);

/// How often holders are paused inside a fenced transaction, and as often without the fence.
const PAUSES: &str = "200";

/// What is run beside the tests of deployments: a package, one of its test programs, and the names that choose from it.
const CHOSEN: [(&str, &str, &[&str]); 4] = [
    ("lockkeeper", "redis", &["storm::", "cancelled::", "hundred_thousand"]),
    // Three hundred processes in one queue, by themselves: they are to rest.
    ("lockkeeper-cli", "cli", &["queue::three_hundred"]),
    ("lockkeeper", "postgres", &["fence::stopped_processes_lose_updates_only_without_the_fence"]),
    // On MariaDB and on MySQL 9, one after the other.
    ("lockkeeper", "mysql", &["bank::with_the_fence"]),
];

/// Runs the tests of real deployments, the ignored ones too; `arguments` choose some by name.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    step("setup", "what the tests need", setup::needed)?;
    let mut words = vec!["test", "-p", "lockkeeper", "--all-features", "--test", "topology", "--"];
    // Neither options nor their numbers.
    let is_name = |word: &&str| !word.starts_with('-') && word.parse::<u32>().is_err();
    let names: Vec<&str> = arguments.iter().map(String::as_str).filter(is_name).collect();
    check_names(&words, &names)?;
    // Two deployments at once are enough for a small machine.
    words.extend(["--include-ignored", "--test-threads", "2"]);
    words.extend(arguments.iter().map(String::as_str));
    knowing_servers(Run::cargo(&words).within(LIMIT)).stream()?;
    if !arguments.is_empty() {
        return Ok(());
    }
    for (package, program, names) in CHOSEN {
        let mut words = vec!["test", "-p", package, "--test", program];
        if package == "lockkeeper" {
            words.push("--all-features");
        }
        words.push("--");
        check_names(&words, names)?;
        words.push("--include-ignored");
        if program != "redis" {
            words.extend(["--nocapture", "--test-threads", "1"]);
        }
        words.extend(names);
        knowing_servers(Run::cargo(&words).with("LOCKKEEPER_PAUSES", PAUSES).within(LIMIT)).stream()?;
    }
    Ok(())
}

/// Fails if one of the names chooses no test of the program that `words` run. A test program without any test to run passes.
fn check_names(words: &[&str], names: &[&str]) -> Result<(), String> {
    if names.is_empty() {
        return Ok(());
    }
    let list = Run::cargo(&[words, &["--list", "--include-ignored"]].concat());
    match unknown(&list.capture()?, names) {
        Some(name) => Err(format!("no test has {name:?} in its name; see them with: {list}")),
        None => Ok(()),
    }
}

/// The first of the names that no test of this list has in its own.
fn unknown<'a>(list: &str, names: &[&'a str]) -> Option<&'a str> {
    let tests: Vec<&str> = list.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    names.iter().find(|name| !tests.iter().any(|test| test.contains(**name))).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_chooses_no_test_is_found() {
        let list = "bank::worker: test\nfence::later: test\n\n2 tests, 0 benchmarks\n";
        assert_eq!(unknown(list, &["fence::", "bank::worker"]), None);
        assert_eq!(unknown(list, &["fence::", "bank::with_the_fence"]), Some("bank::with_the_fence"));
        // The last line is none.
        assert_eq!(unknown(list, &["benchmarks"]), Some("benchmarks"));
    }

    /// Without building them: their names stand in the sources.
    #[test]
    fn the_chosen_tests_are_there() {
        let read = |file: &std::path::Path| std::fs::read_to_string(file).ok();
        let has =
            |file: &str, test: &str| file.lines().any(|line| line.split_once("fn ").is_some_and(|(_, name)| name.contains(test)));
        for (package, program, names) in CHOSEN {
            let folder = crate::steps::root().join("crates").join(package).join("tests").join(program);
            for name in names {
                let parts: Vec<&str> = name.split("::").filter(|part| !part.is_empty()).collect();
                let is_there = match parts[..] {
                    [module, test] => read(&folder.join(format!("{module}.rs"))).is_some_and(|file| has(&file, test)),
                    // A whole module, or a part of a test's name in any module.
                    [part] => {
                        folder.join(format!("{part}.rs")).exists()
                            || std::fs::read_dir(&folder).expect("the program's folder").any(|file| {
                                let file = file.expect("an entry of the folder").path();
                                read(&file).is_some_and(|file| has(&file, part))
                            })
                    }
                    _ => false,
                };
                assert!(is_there, "{program}::{name}");
            }
        }
    }
}
