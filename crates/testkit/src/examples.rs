//! Examples as programs: cargo builds them with the tests, into a folder beside that of the test.

use std::process::{Command, Stdio};

/// What an example of the crate under test prints. It must end well.
pub fn printed(example: &str) -> String {
    // A test is in target/PROFILE/deps, the examples are in target/PROFILE/examples.
    let mut program = std::env::current_exe().expect("this program");
    program.pop();
    program.set_file_name("examples");
    program.push(example);
    let ended = Command::new(&program).stdin(Stdio::null()).output().expect("cargo has built it");
    let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{example}: {}\n{out}{err}", ended.status);
    out.into_owned()
}
