//! The first command that a newcomer types, and the program that it builds: how large it is, and what it says of stores that are not in it.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::steps::{Outcome, Run, target};

const LINE: &str = "only one of us at a time";

/// What the program may take on a disk, without the symbols that lie beside it.
const LARGEST: u64 = 10_000_000;

/// A URL of each store that the default build leaves out, and the feature that has it.
const LEFT_OUT: [(&str, &str); 5] = [
    ("postgres://x/y", "postgres"),
    ("mysql://x/y", "mysql"),
    ("zookeeper://x", "zookeeper"),
    ("zookeepers://x", "zookeeper-tls"),
    ("etcd://x", "etcd"),
];

/// The exit status of a wrong command line or URL.
const USAGE: i32 = 64;

pub(crate) fn run() -> Result<Outcome, String> {
    let hello = Run::cargo(&["run", "--release", "--", "run", "hello", "--", "echo", LINE])
        .without("LOCKKEEPER_STORE")
        .without("LOCKKEEPER_CONFIG");
    let said = hello.capture()?;
    if said != format!("{LINE}\n") {
        return Err(format!("it printed {said:?} instead of one line; repeat it with: {hello}"));
    }
    let program = target().join("release/lockkeeper");
    let bytes = std::fs::metadata(&program).map_err(|error| format!("{}: {error}", program.display()))?.len();
    println!("    {} has {bytes} bytes", program.display());
    is_small(bytes)?;
    for (url, feature) in LEFT_OUT {
        names_the_feature(&program, url, feature)?;
    }
    Ok(Outcome::Done)
}

fn is_small(bytes: u64) -> Result<(), String> {
    if bytes <= LARGEST {
        return Ok(());
    }
    Err(format!("the stripped program of a default release build has {bytes} bytes, more than {LARGEST}; see [profile.release]"))
}

/// A store that is not built in is a mistake of the command line, whose message names the feature to build it with. The test suite has all
/// features, so only here is there such a program.
fn names_the_feature(program: &Path, url: &str, feature: &str) -> Result<(), String> {
    let mut command = Command::new(program);
    let list = command.args(["list", "-S", url]).stdin(Stdio::null());
    let ended = list.output().map_err(|error| format!("{}: {error}", program.display()))?;
    let (code, said) = (ended.status.code(), String::from_utf8_lossy(&ended.stderr));
    if names(code, &said, feature) {
        return Ok(());
    }
    Err(format!("list -S {url} ended with {} and {said:?}, not with {USAGE} and the name of the feature {feature}", ended.status))
}

fn names(code: Option<i32>, said: &str, feature: &str) -> bool {
    code == Some(USAGE) && said.contains(&format!("needs the feature `{feature}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_program_is_refused() {
        assert_eq!(is_small(LARGEST), Ok(()));
        assert!(is_small(LARGEST + 1).is_err());
    }

    #[test]
    fn another_status_and_a_message_without_the_feature_are_refused() {
        let said = "lockkeeper: etcd: needs the feature `etcd` of lockkeeper";
        assert!(names(Some(64), said, "etcd"));
        assert!(!names(Some(69), said, "etcd") && !names(None, said, "etcd"));
        assert!(!names(Some(64), said, "postgres") && !names(Some(64), "no such store", "etcd"));
    }
}
