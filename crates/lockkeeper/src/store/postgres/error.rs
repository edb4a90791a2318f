//! What a driver's or server's error means to a lock user.

use tokio_postgres::Error as PgError;
use tokio_postgres::error::SqlState;

use super::Config;
use crate::error::{Error, ErrorKind};
use crate::store::sql::Failed;

/// The error of a statement that was sent.
pub(super) fn of_request(error: PgError) -> Failed {
    let Some(told) = error.as_db_error() else {
        let message = "the connection to postgres broke before the answer came";
        return Failed::Error(Error::new(ErrorKind::Indeterminate, message).with_source(error));
    };
    let (code, message) = (told.code().clone(), told.message().to_owned());
    if is_unknown(code.code(), told.severity()) {
        let message = format!("postgres ended the connection: {message}");
        return Failed::Error(Error::new(ErrorKind::Indeterminate, message).with_source(error));
    }
    // A single statement that failed was undone as a whole.
    if [SqlState::LOCK_NOT_AVAILABLE, SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED].contains(&code) {
        let message = format!("another transaction is in the way: {message}; nothing was done");
        return Failed::Blocked(Error::new(ErrorKind::Unavailable, message).with_source(error));
    }
    // The statement's own check that it is not late.
    if code == SqlState::DIVISION_BY_ZERO {
        return Failed::Blocked(Error::new(ErrorKind::Unavailable, "the request came too late; nothing was done"));
    }
    let (kind, message) = match code.code() {
        "25006" => (ErrorKind::Unavailable, format!("the server only reads now, a standby perhaps: {message}")),
        "42501" => (ErrorKind::Denied, format!("postgres refuses this user: {message}; grant SELECT, INSERT, UPDATE and DELETE")),
        "42P01" | "3F000" => (ErrorKind::Unavailable, format!("the tables are gone: {message}; connect again to create them")),
        "42703" | "42804" | "42883" | "42P10" | "42809" => {
            (ErrorKind::Config, format!("a table of lockkeeper has another shape: {message}; name another schema with ?schema="))
        }
        code if ["53", "57", "58", "40"].iter().any(|class| code.starts_with(class)) => {
            (ErrorKind::Unavailable, format!("postgres cannot do it now: {message}"))
        }
        _ => (ErrorKind::Protocol, format!("postgres answered with an error: {message}")),
    };
    Failed::Error(Error::new(kind, message).with_source(error))
}

/// Whether a statement that was answered with this may have been carried out: the server, or a pooler before it, may have ended the connection after
/// the commit.
fn is_unknown(code: &str, severity: &str) -> bool {
    matches!(severity, "FATAL" | "PANIC") || matches!(code, "25P03" | "40003" | "57P01" | "57P02") || code.starts_with("08")
}

/// Whether the server does not know a statement that was prepared: another server process answered than was asked before.
pub(super) fn is_forgotten_statement(error: &PgError) -> bool {
    error.code().is_some_and(|code| matches!(code.code(), "26000" | "42P05"))
}

/// Whether the tables are not there yet.
pub(super) fn is_missing_table(error: &PgError) -> bool {
    error.code().is_some_and(|code| matches!(code.code(), "42P01" | "3F000"))
}

/// The error of a connection that was not made.
pub(super) fn of_connecting(error: PgError, to: &Config) -> Error {
    let Some(told) = error.as_db_error() else {
        let words = error_words(&error);
        let (kind, message) = if words.contains("password missing") {
            (ErrorKind::Denied, format!("{to} wants a password and the URL has none; write it as USER:PASSWORD@ before the host"))
        } else if words.contains("does not allow writes") || words.contains("session is read-only") {
            (ErrorKind::Unavailable, format!("none of the servers of {to} can be written to; is there a primary among them?"))
        } else if words.contains("does not support TLS") {
            (ErrorKind::Config, format!("{to} does not speak TLS; turn it on there, or write sslmode=disable"))
        } else if is_foreign(&words) {
            (ErrorKind::Config, format!("what answers at {to} is no PostgreSQL server ({words}); name the port of one"))
        } else if words.contains("connection closed") || words.contains("end of file") || words.contains("reset by peer") {
            let message = format!("{to} closed the connection before it could be used ({words}); is it a PostgreSQL server?");
            (ErrorKind::Unavailable, message)
        } else if words.contains("certificate") || words.contains("TLS") || words.contains("tls") {
            (ErrorKind::Unavailable, format!("no TLS connection to {to}: {words}"))
        } else {
            (ErrorKind::Unavailable, format!("cannot reach {to} ({words}); is the server running there?"))
        };
        return Error::new(kind, message).with_source(error);
    };
    let message = told.message();
    let (kind, message) = match told.code().code() {
        "28P01" | "28000" => (ErrorKind::Denied, format!("{to} refuses this user or password: {message}")),
        "3D000" => (ErrorKind::Config, format!("{to}: {message}; create it, or name another one")),
        "42501" => (ErrorKind::Denied, format!("{to} refuses this user: {message}")),
        _ => (ErrorKind::Unavailable, format!("{to} accepts no connection now: {message}")),
    };
    Error::new(kind, message).with_source(error)
}

/// Whether something answered that does not speak the protocol: its bytes are no message, and, where it seemed to offer TLS, no handshake.
fn is_foreign(words: &str) -> bool {
    ["unexpected message", "invalid message", "message tag", "message length", "corrupt message", "bytes remaining on stream"]
        .iter()
        .any(|sign| words.contains(sign))
}

/// The error of a server that accepted a connection and then said nothing.
pub(super) fn of_silence(to: &Config) -> Error {
    let message = format!("{to} did not answer within {:?}; is it a PostgreSQL server?", to.opening());
    Error::new(ErrorKind::Unavailable, message)
}

/// An error with its causes.
fn error_words(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !words.contains(&more) {
            words = format!("{words}: {more}");
        }
        cause = error.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_connection_leaves_it_open_whether_a_statement_was_carried_out() {
        for (code, severity, unknown) in [
            ("57P01", "FATAL", true),
            ("57P02", "ERROR", true),
            ("08P01", "ERROR", true),
            ("08006", "FATAL", true),
            ("40003", "ERROR", true),
            ("53200", "PANIC", true),
            ("40001", "FATAL", true),
            ("40001", "ERROR", false),
            ("55P03", "ERROR", false),
            ("53200", "ERROR", false),
        ] {
            assert_eq!(is_unknown(code, severity), unknown, "{code} {severity}");
        }
    }
}
