//! What the exit status says. A script can tell apart: the command failed, it never ran, it ran and may not have been alone.

use std::io::Write as _;

use lockkeeper::{Error, ErrorKind};
use rustix::process::WaitStatus;

/// The statuses that are not the command's own. Those above 63 follow `sysexits.h` and the shell where they have a number for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    NotAcquired = 1,
    Usage = 64,
    Unavailable = 69,
    Internal = 70,
    Lost = 79,
    MaxHold = 80,
    NotExecutable = 126,
    NotFound = 127,
}

/// The table, as `lockkeeper help exit-codes` prints it.
pub(crate) const TABLE: [(Code, &str); 8] = [
    (
        Code::NotAcquired,
        "the lock was not acquired (-n, -w), another number with -E; nothing to show or release; a latch is closed",
    ),
    (Code::Usage, "the command line, the name, the config file or the store URL is wrong"),
    (Code::Unavailable, "the store cannot be reached, or refuses"),
    (Code::Internal, "lockkeeper itself failed"),
    (Code::Lost, "the lock was lost while the command ran, which was ended"),
    (Code::MaxHold, "--max-hold was over, and the command was ended"),
    (Code::NotExecutable, "the command cannot be executed"),
    (Code::NotFound, "the command was not found"),
];

/// The statuses that are the command's.
const OF_THE_COMMAND: [(&str, &str); 2] =
    [("0-255", "the command's own status"), ("128+N", "the command was killed by signal N, or the waiting was ended by it")];

/// All statuses of `run`: those of the command, and the table.
pub(crate) fn of_run() -> Vec<(String, &'static str)> {
    OF_THE_COMMAND.map(|(code, meaning)| (code.to_owned(), meaning)).into_iter().chain(of_codes(|_| true)).collect()
}

/// The statuses of a verb that runs no command; some of the table.
pub(crate) fn of_verb(is_one: impl Fn(Code) -> bool) -> Vec<(String, &'static str)> {
    std::iter::once(("0".to_owned(), "it is done")).chain(of_codes(is_one)).collect()
}

fn of_codes(is_one: impl Fn(Code) -> bool) -> impl Iterator<Item = (String, &'static str)> {
    TABLE.into_iter().filter(move |(code, _)| is_one(*code)).map(|(code, meaning)| ((code as u8).to_string(), meaning))
}

/// The table with what is not in it, for people.
pub(crate) fn table() -> String {
    of_run().iter().map(|(code, meaning)| format!("  {code:<9} {meaning}\n")).collect()
}

/// Why a verb ends without the status of a command: one line for people, one number for scripts.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: Option<String>,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code: code as u8, message: Some(message.into()) }
    }

    /// Ended by a signal before there was a command to pass it to: as if it had ended us.
    pub(crate) fn signalled(signal: rustix::process::Signal) -> Self {
        Self { code: of_signal(signal.as_raw()), message: None }
    }

    /// Says what there is to say, and gives the status.
    pub(crate) fn show(&self) -> u8 {
        if let Some(message) = &self.message {
            say(message);
        }
        self.code
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(of_error(error.kind()), error.to_string())
    }
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

fn of_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(Code::Internal as u8)
}

/// One line on stderr. Whether anybody reads it must not matter.
pub(crate) fn say(message: &str) {
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    let _ = writeln!(std::io::stderr(), "lockkeeper: {line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_stands_once_in_the_table() {
        for (at, (code, _)) in TABLE.iter().enumerate() {
            assert!(TABLE[at + 1..].iter().all(|(other, _)| (*other as u8) > (*code as u8)), "{code:?} is out of order");
        }
    }

    #[test]
    fn kinds_of_errors_have_the_status_that_the_table_tells() {
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
}
