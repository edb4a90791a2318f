//! The library for systems other than this one: checked by the compiler, not run.

use std::time::Duration;

use crate::steps::{Outcome, Run};

/// The targets, and what they stand for.
const TARGETS: [(&str, &str); 2] = [("x86_64-apple-darwin", "macOS"), ("x86_64-pc-windows-msvc", "Windows")];

/// All that needs no C compiler of the target: not `sqlite`, which is for Linux, and not TLS.
const FEATURES: &str = "blocking,testing,redis,config,conformance";

/// How long the download of a target or of its crates may take.
const DOWNLOAD: Duration = Duration::from_secs(300);

/// Checks the library for each target that is there or can be added.
pub(crate) fn check() -> Result<Outcome, String> {
    let mut skipped = Vec::new();
    for (target, system) in TARGETS {
        match prepare(target) {
            Ok(()) => {
                Run::cargo(&["check", "-p", "lockkeeper", "--no-default-features", "--features", FEATURES, "--target", target])
                    .stream()
                    .map_err(|message| format!("the library does not compile for {system}: {message}"))?;
            }
            Err(why) => {
                println!("    not checked for {system}: {why}");
                skipped.push(format!("{system} ({why})"));
            }
        }
    }
    Ok(outcome(&skipped))
}

/// Adds the target if it is missing, and downloads the crates that only it needs. The error says in words why that cannot be done.
fn prepare(target: &str) -> Result<(), String> {
    let Ok(installed) = Run::new("rustup", &["target", "list", "--installed"]).capture() else {
        return Err("there is no rustup to add its target".to_owned());
    };
    if !installed.lines().any(|line| line.trim() == target)
        && Run::new("rustup", &["target", "add", target]).within(DOWNLOAD).stream().is_err()
    {
        return Err(format!("rustup cannot add {target}"));
    }
    if Run::cargo(&["fetch", "--locked", "--target", target]).within(DOWNLOAD).stream().is_err() {
        return Err(format!("the crates for {target} cannot be downloaded"));
    }
    Ok(())
}

/// Done if at least one system was checked; what was not checked is printed in any case.
fn outcome(skipped: &[String]) -> Outcome {
    if skipped.len() < TARGETS.len() { Outcome::Done } else { Outcome::Skipped(skipped.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_counts_as_skipped_only_if_nothing_was_checked() {
        let words = |count: usize| vec!["Windows (no network)".to_owned(); count];
        assert!(matches!(outcome(&words(0)), Outcome::Done) && matches!(outcome(&words(1)), Outcome::Done));
        assert!(matches!(outcome(&words(2)), Outcome::Skipped(why) if why.contains("no network")));
    }
}
