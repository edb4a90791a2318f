//! Exit statuses. A script can tell apart: the command failed, it never ran, it ran and the lock was lost meanwhile.

use std::io::Write as _;

use lockkeeper::{Error, ErrorKind};
use rustix::process::WaitStatus;

use crate::terminal;

/// The statuses that are not the command's own. From 64 on they follow `sysexits.h` and the shell where these have a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    NotAcquired = 1,
    Usage = 64,
    Unavailable = 69,
    Internal = 70,
    Lost = 79,
    MaxHold = 80,
    Broken = 81,
    NotExecutable = 126,
    NotFound = 127,
}

/// The table, as `lockkeeper help exit-codes` prints it.
pub(crate) const TABLE: [(Code, &str); 9] = [
    (
        Code::NotAcquired,
        "the lock was not acquired (-n, -w; -E sets another status); nothing to show or release; the latch is closed",
    ),
    (Code::Usage, "the command line, the name, the config file or the store URL is wrong"),
    (Code::Unavailable, "the store cannot be reached, or refuses the request"),
    (Code::Internal, "lockkeeper itself failed"),
    (Code::Lost, "the lock was lost while the command ran; the command was ended"),
    (Code::MaxHold, "the time of --max-hold was over; the command was ended"),
    (Code::Broken, "torture found a broken promise, or a process of its own failed"),
    (Code::NotExecutable, "the command cannot be executed"),
    (Code::NotFound, "the command was not found"),
];

/// The statuses that are the command's.
const OF_THE_COMMAND: [(&str, &str); 2] =
    [("0-255", "the command's own status"), ("128+N", "signal N ended the command, or the wait for the lock")];

/// All statuses of `run`: those of the command, and the table.
pub(crate) fn of_run() -> Vec<(String, &'static str)> {
    with_command(|code| code != Code::Broken)
}

/// All statuses of all verbs.
pub(crate) fn of_all() -> Vec<(String, &'static str)> {
    with_command(|_| true)
}

fn with_command(is_one: impl Fn(Code) -> bool) -> Vec<(String, &'static str)> {
    OF_THE_COMMAND.map(|(code, meaning)| (code.to_owned(), meaning)).into_iter().chain(of_codes(is_one)).collect()
}

/// The statuses of a verb that runs no command; some of the table.
pub(crate) fn of_verb(is_one: impl Fn(Code) -> bool) -> Vec<(String, &'static str)> {
    std::iter::once(("0".to_owned(), "success")).chain(of_codes(is_one)).collect()
}

fn of_codes(is_one: impl Fn(Code) -> bool) -> impl Iterator<Item = (String, &'static str)> {
    TABLE.into_iter().filter(move |(code, _)| is_one(*code)).map(|(code, meaning)| ((code as u8).to_string(), meaning))
}

/// All statuses as text.
pub(crate) fn table() -> String {
    of_all().iter().map(|(code, meaning)| format!("  {code:<9} {meaning}\n")).collect()
}

/// Why a verb fails: one line for the user, one number for scripts.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: Option<String>,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code: code as u8, message: Some(message.into()) }
    }

    /// Ended by a signal before there was a command to pass it to: the status that the signal itself would cause.
    pub(crate) fn signalled(signal: rustix::process::Signal) -> Self {
        Self { code: of_signal(signal.as_raw()), message: None }
    }

    /// Prints the message and returns the status.
    pub(crate) fn show(&self) -> u8 {
        if let Some(message) = &self.message {
            say(message);
        }
        self.code
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(of_error(error.kind()), with_causes(&error))
    }
}

/// The error and its causes. A cause that the message before it already contains is left out.
fn with_causes(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(below) = cause {
        let said = below.to_string();
        if !said.is_empty() && !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = below.source();
    }
    text
}

const fn of_error(kind: ErrorKind) -> Code {
    match kind {
        ErrorKind::Timeout => Code::NotAcquired,
        ErrorKind::Lost => Code::Lost,
        ErrorKind::Unavailable
        | ErrorKind::Indeterminate
        | ErrorKind::Denied
        | ErrorKind::Unsupported
        | ErrorKind::Unreplicated => Code::Unavailable,
        ErrorKind::InvalidName
        | ErrorKind::InvalidArgument
        | ErrorKind::Config
        | ErrorKind::WrongKind
        | ErrorKind::ForeignKey
        | ErrorKind::Deadlock => Code::Usage,
        _ => Code::Internal,
    }
}

/// The status of a command that ended: its own, or 128 and the signal that killed it.
pub(crate) fn of_child(status: WaitStatus) -> u8 {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(Code::Internal as u8),
        (None, Some(signal)) => of_signal(signal),
        (None, None) => Code::Internal as u8,
    }
}

pub(crate) fn of_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(Code::Internal as u8)
}

/// Prints one line on stderr. Text of servers and other users may be in it, so control characters are escaped. A closed stderr does not matter.
pub(crate) fn say(message: &str) {
    let line = terminal::escaped(&message.split_whitespace().collect::<Vec<_>>().join(" "));
    let _ = writeln!(std::io::stderr(), "lockkeeper: {line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_in_the_table_once() {
        for (at, (code, _)) in TABLE.iter().enumerate() {
            assert!(TABLE[at + 1..].iter().all(|(other, _)| (*other as u8) > (*code as u8)), "{code:?} is out of order");
        }
    }

    #[test]
    fn kinds_of_errors_have_the_status_of_the_table() {
        for (kind, code) in [
            (ErrorKind::Timeout, Code::NotAcquired),
            (ErrorKind::Config, Code::Usage),
            (ErrorKind::InvalidName, Code::Usage),
            (ErrorKind::Unavailable, Code::Unavailable),
            (ErrorKind::Indeterminate, Code::Unavailable),
            (ErrorKind::Protocol, Code::Internal),
        ] {
            assert_eq!(of_error(kind), code, "{kind:?}");
        }
    }

    #[test]
    fn a_failure_names_the_cause_once() {
        let cause = std::io::Error::other("certificate expired");
        let error = Error::new(ErrorKind::Unavailable, "cannot reach rediss://h").with_source(cause);
        assert_eq!(Failure::from(error).message.unwrap(), "cannot reach rediss://h: certificate expired");
        let told = Error::new(ErrorKind::Unavailable, "cannot: no route").with_source(std::io::Error::other("no route"));
        assert_eq!(Failure::from(told).message.unwrap(), "cannot: no route");
    }
}
