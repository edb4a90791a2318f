//! What the exit status says. A script can tell apart: the command failed, it never ran, it ran and may not have been alone.

use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use lockkeeper::{Error, ErrorKind};

/// The statuses that are not the command's own. Those above 63 follow `sysexits.h` and the shell where they have a number for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    NotAcquired = 1,
    Usage = 64,
    Unavailable = 69,
    Internal = 70,
    Lost = 79,
    NotExecutable = 126,
    NotFound = 127,
}

/// The table, as `--help` prints it.
pub(crate) const TABLE: [(Code, &str); 7] = [
    (Code::NotAcquired, "the lock was not acquired (-n, -w); another number with -E"),
    (Code::Usage, "the command line, the name or the store URL is wrong"),
    (Code::Unavailable, "the store cannot be reached, or refuses"),
    (Code::Internal, "lockkeeper itself failed"),
    (Code::Lost, "the lock was lost while the command ran"),
    (Code::NotExecutable, "the command cannot be executed"),
    (Code::NotFound, "the command was not found"),
];

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
        ErrorKind::Unavailable | ErrorKind::Indeterminate | ErrorKind::Denied | ErrorKind::Unreplicated => Code::Unavailable,
        ErrorKind::InvalidName
        | ErrorKind::InvalidArgument
        | ErrorKind::Config
        | ErrorKind::Unsupported
        | ErrorKind::WrongKind
        | ErrorKind::ForeignKey => Code::Usage,
        _ => Code::Internal,
    }
}

/// The status of a command that ended: its own, or 128 and the signal that killed it.
pub(crate) fn of_child(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
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
    fn a_status_is_passed_on_and_a_signal_is_added_to_128() {
        for (raw, expected) in [(0, 0), (3 << 8, 3), (255 << 8, 255), (15, 143), (9, 137)] {
            assert_eq!(of_child(ExitStatus::from_raw(raw)), expected, "raw status {raw}");
        }
    }

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
