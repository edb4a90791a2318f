//! Drives the real binary.

use lockkeeper_testkit::poll::until_within;
use std::time::Duration;

use std::ffi::OsStr;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::sync::Once;

use rustix::process::Pid;

use crate::stores::fresh;

/// `lockkeeper run`, the same way.
pub(crate) fn run<S: AsRef<OsStr>>(words: impl IntoIterator<Item = S>) -> Command {
    let mut command = lockkeeper(["run"]);
    command.args(words);
    command
}

/// No test waits for a process for ever: after this all of them end, and those who hang are named by their silence.
const LIMIT: Duration = Duration::from_secs(600);

fn limit_the_time() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::thread::spawn(|| {
            std::thread::sleep(LIMIT);
            eprintln!("the tests of the command line did not end within {LIMIT:?}");
            std::process::abort();
        });
    });
}

/// `lockkeeper`, with a store that nobody else uses.
pub(crate) fn lockkeeper<S: AsRef<OsStr>>(words: impl IntoIterator<Item = S>) -> Command {
    limit_the_time();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
    command.args(words).stdin(Stdio::null()).env("LOCKKEEPER_STORE", fresh());
    for variable in ["LOCKKEEPER_NAME", "LOCKKEEPER_TOKEN", "LOCKKEEPER_OWNER", "LOCKKEEPER_AROUND", "NO_COLOR"] {
        command.env_remove(variable);
    }
    command
}

/// Polls until the condition holds.
#[track_caller]
pub(crate) fn until(what: &str, condition: impl FnMut() -> bool) {
    until_within(Duration::from_secs(30), what, condition);
}

/// Whether a process is there and no zombie: nobody may wait for orphans here.
pub(crate) fn is_running(pid: Pid) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = state.rsplit_once(") ").map(|(_, rest)| rest.chars().next());
    !matches!(state, None | Some(None | Some('Z' | 'X')))
}

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn ended(output: Output) -> Ended {
    let text = |bytes| String::from_utf8(bytes).expect("the output is UTF-8");
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

pub(crate) fn end(command: &mut Command) -> Ended {
    ended(command.output().expect("the binary starts"))
}

pub(crate) fn end_with_input(command: &mut Command, input: &str) -> Ended {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    child.stdin.take().expect("stdin is piped").write_all(input.as_bytes()).expect("the command reads");
    ended(child.wait_with_output().expect("the binary ends"))
}

/// It ended with this status, said one line that holds `says`, and nothing on stdout.
#[track_caller]
pub(crate) fn assert_refused(command: &mut Command, code: i32, says: &str) {
    let ended = end(command);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(code), ""), "{command:?}: {ended:?}");
    assert!(ended.stderr.starts_with("lockkeeper: ") && ended.stderr.contains(says), "{command:?}: {ended:?}");
    assert_eq!(ended.stderr.matches('\n').count(), 1, "{command:?}: {ended:?}");
}
