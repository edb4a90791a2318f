//! In a process namespace, as in a container: the leader of the session may be outside, and then the number of the process group is 0 inside.

use std::process::{Command, Stdio};

use crate::pty::Pty;
use crate::stores::fresh;
use crate::util::end;

const UNSHARE: [&str; 5] = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];

/// Whether this user may make a process namespace; says so if not.
pub(crate) fn is_possible(test: &str) -> bool {
    let made = Command::new(UNSHARE[0]).args(&UNSHARE[1..]).arg("true").stderr(Stdio::null()).status();
    let possible = made.is_ok_and(|status| status.success());
    if !possible {
        lockkeeper::conformance::skip(test, "this user cannot make a process namespace");
    }
    possible
}

/// `script` in a shell that is process 1 of a new namespace; `None` if this user may not make one.
fn inside(test: &str, script: &str) -> Option<Command> {
    if !is_possible(test) {
        return None;
    }
    let mut command = Command::new(UNSHARE[0]);
    // The `true` at the end keeps the shell from replacing itself: lockkeeper must not be process 1 here.
    command.args(&UNSHARE[1..]).args(["sh", "-c", &format!("{script}\ntrue")]).stdin(Stdio::null());
    command.env("LOCKKEEPER_STORE", fresh()).env("LOCKKEEPER", env!("CARGO_BIN_EXE_lockkeeper"));
    Some(command)
}

#[test]
fn a_command_runs_on_a_terminal_whose_process_group_is_outside() {
    let script = "echo \"group=$(ps -o pgid= -p $$ | tr -d ' ')\"
        \"$LOCKKEEPER\" run job sh -c 'echo in; exit 7'; echo \"status=$?\"
        \"$LOCKKEEPER\" run job sh -c 'kill -TERM $$'; echo \"status=$?\"";
    let Some(command) = inside("a_command_runs_on_a_terminal_whose_process_group_is_outside", script) else { return };
    let mut pty = Pty::start(&command);
    // The condition that this test is about.
    pty.expect("group=0");
    pty.expect("in\r\n");
    pty.expect("status=7");
    pty.expect("status=143");
    assert_eq!(pty.end().code(), Some(0));
    assert!(!pty.drawn().contains("panicked"), "{:?}", pty.drawn());
}

#[test]
fn the_status_and_the_lock_pass_through_without_a_terminal() {
    let script = "\"$LOCKKEEPER\" run job sh -c '\"$LOCKKEEPER\" run -n job true; echo \"nested=$?\"; sleep 0.1 & exit 3'; echo \"status=$?\"
        \"$LOCKKEEPER\" run -n job true; echo \"status=$?\"";
    let Some(mut command) = inside("the_status_and_the_lock_pass_through_without_a_terminal", script) else { return };
    let ended = end(&mut command);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "nested=64\nstatus=3\nstatus=0\n"), "{ended:?}");
}
