//! Examples as programs: cargo builds them with the tests, into a folder beside that of the test.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Where an example of the crate under test is.
pub fn program(example: &str) -> PathBuf {
    // A test is in target/PROFILE/deps, the examples are in target/PROFILE/examples.
    let mut program = std::env::current_exe().expect("this program");
    program.pop();
    program.set_file_name("examples");
    program.push(example);
    program
}

/// What an example of the crate under test prints. It must end well.
pub fn printed(example: &str) -> String {
    printed_with(example, &[])
}

/// The same with arguments.
pub fn printed_with(example: &str, arguments: &[&str]) -> String {
    let ended = Command::new(program(example)).args(arguments).stdin(Stdio::null()).output().expect("cargo has built it");
    let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{example}: {}\n{out}{err}", ended.status);
    out.into_owned()
}
