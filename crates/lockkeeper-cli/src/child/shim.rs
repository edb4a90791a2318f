//! Ourselves between the runner and its command: what has to be set in the command's process before it runs.
//!
//! The command dies with the runner (a parent-death signal, which survives the exec), so that a killed runner does not leave it running
//! without a lock. It cannot be set from outside, and only unsafe code can run between fork and exec: so the child runs this program
//! first, which sets it and becomes the command.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Signal, getpgid, getpgrp, getpid, getppid, set_parent_process_death_signal};

use super::foreground::Lender;
use super::{guard, ourselves};
use crate::exit::{Code, Failure};

/// The first argument that asks for this, and not for a verb.
const EXEC: &str = "__exec";

/// What the command's group does with the terminal before it runs.
const TAKES_TERMINAL: &str = "takes-terminal";
const LEAVES_TERMINAL: &str = "leaves-terminal";

/// `command`, started through the shim; with the terminal from its first moment if `lent`.
pub(super) fn around(command: &mut Command, lent: bool) -> Command {
    let mut shim = ourselves();
    let terminal = if lent { TAKES_TERMINAL } else { LEAVES_TERMINAL };
    shim.arg0("lockkeeper").arg(EXEC).arg(getpid().to_string()).arg(terminal).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shim.env(name, value),
            None => shim.env_remove(name),
        };
    }
    shim
}

/// Does what a hidden first argument asks for, if it is one; the exit status, if it comes to that.
pub(crate) fn shim(mut words: impl Iterator<Item = OsString>) -> Option<u8> {
    let verb = words.nth(1)?;
    if verb == guard::GUARD {
        return Some(guard::run());
    }
    if verb != EXEC {
        return None;
    }
    let (Some(runner), Some(terminal), Some(program)) = (words.next(), words.next(), words.next()) else {
        return Some(Code::Usage as u8);
    };
    Some(become_command(&runner, terminal == TAKES_TERMINAL, &program, words).show())
}

fn become_command(runner: &OsStr, takes_terminal: bool, program: &OsStr, arguments: impl Iterator<Item = OsString>) -> Failure {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return Failure::new(Code::Internal, format!("the kernel sets no parent-death signal: {error}"));
    }
    // It may have died before that.
    let Some(parent) = getppid().filter(|parent| runner == OsStr::new(&parent.to_string())) else {
        return Failure::new(Code::Internal, "the runner was killed; the command was not started");
    };
    if takes_terminal && let Some(lender) = getpgid(Some(parent)).ok().and_then(Lender::open) {
        lender.to(getpgrp()).lend_on_demand();
    }
    let error = Command::new(program).args(arguments).exec();
    let program = program.display();
    match error.kind() {
        io::ErrorKind::NotFound => Failure::new(Code::NotFound, format!("{program} was not found; check its name and $PATH")),
        // Not the command's fault: there are too many processes, or there is no memory.
        io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => {
            Failure::new(Code::Internal, format!("no process can be started: {error}"))
        }
        _ => {
            Failure::new(Code::NotExecutable, format!("{program} cannot be executed: {error}; check its mode and its first line"))
        }
    }
}
