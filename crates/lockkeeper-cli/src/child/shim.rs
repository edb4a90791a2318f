//! This program between the runner and its command: it sets what must be set in the command's process, then becomes the command.
//!
//! The command dies with the runner, by a parent-death signal that survives the exec; so a killed runner does not leave it running
//! without a lock. The signal cannot be set from outside, and only unsafe code can run between fork and exec. So the child runs this program
//! first.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};

use super::foreground::Lender;
use super::processes::Process;
use super::{this_program, watchdog};
use crate::exit::{Code, Failure};

/// The first argument that starts the shim instead of a verb.
const EXEC: &str = "__exec";

/// Whether the command's group takes the terminal before the command runs.
const TAKES_TERMINAL: &str = "takes-terminal";
const LEAVES_TERMINAL: &str = "leaves-terminal";

/// `command`, started through the shim; with the terminal from its start if `lent`.
pub(super) fn around(command: &mut Command, lent: bool, pipe: RawFd) -> Command {
    let mut shim = this_program();
    let terminal = if lent { TAKES_TERMINAL } else { LEAVES_TERMINAL };
    shim.arg0("lockkeeper")
        .arg(EXEC)
        .arg(getpid().to_string())
        .arg(pipe.to_string())
        .arg(terminal)
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shim.env(name, value),
            None => shim.env_remove(name),
        };
    }
    shim
}

/// Handles a hidden first argument, if there is one. Returns the exit status, unless the process became the command.
pub(crate) fn shim(mut words: impl Iterator<Item = OsString>) -> Option<u8> {
    let verb = words.nth(1)?;
    if verb == watchdog::WATCHDOG {
        let mut number = || words.next().and_then(|word| word.to_str()?.parse::<u64>().ok());
        let pid = |number: Option<u64>| number.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let (runner, group) = (pid(number()), pid(number()));
        // A signal to the group 1 would go to every process.
        let group = group.filter(|group| !group.is_init());
        return Some(watchdog::run(runner, group, number().unwrap_or(u64::MAX)));
    }
    if verb != EXEC {
        return None;
    }
    let (Some(runner), Some(pipe), Some(terminal), Some(program)) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Some(Code::Usage as u8);
    };
    Some(become_command(&runner, &pipe, terminal == TAKES_TERMINAL, &program, words).show())
}

fn become_command(
    runner: &OsStr,
    pipe: &OsStr,
    takes_terminal: bool,
    program: &OsStr,
    arguments: impl Iterator<Item = OsString>,
) -> Failure {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return Failure::new(Code::Internal, format!("cannot set the parent-death signal: {error}"));
    }
    // The runner may have died before the signal was set.
    let Some(parent) = getppid().filter(|parent| runner == OsStr::new(&parent.to_string())) else {
        return Failure::new(Code::Internal, "lockkeeper was killed before the command was started");
    };
    watchdog::announce_group(parent, pipe);
    // The runner's group is 0 if it was made outside this process namespace; there is no terminal to lend then.
    let group_of = |pid| Process::find(pid).and_then(|process| Pid::from_raw(process.group));
    if takes_terminal && let (Some(ours), Some(own)) = (group_of(parent).and_then(Lender::open), group_of(getpid())) {
        ours.to(own).lend_on_demand();
    }
    let error = Command::new(program).args(arguments).exec();
    let program = program.display();
    match error.kind() {
        io::ErrorKind::NotFound => Failure::new(Code::NotFound, format!("{program} was not found; check its name and $PATH")),
        // Not the fault of the command: too many processes, or no memory.
        io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => {
            Failure::new(Code::Internal, format!("cannot start a process: {error}"))
        }
        _ => {
            Failure::new(Code::NotExecutable, format!("{program} cannot be executed: {error}; check its mode and its first line"))
        }
    }
}
