//! What a driver's or server's error means to a lock user.

use mysql_async::{DriverError, Error as MyError, IoError};

use super::Config;
use crate::error::{Error, ErrorKind};
use crate::store::sql::Failed;

/// How far a batch of statements had come when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Before its commit. The transaction is undone.
    Before,
    /// At its commit.
    Commit,
    /// After its commit.
    After,
}

/// The error of statements that were sent.
pub(super) fn of_request(error: MyError, progress: Progress) -> Failed {
    let MyError::Server(told) = &error else {
        let message = "the connection to mysql broke before the answer came";
        return Failed::Error(Error::new(ErrorKind::Indeterminate, message).with_source(error));
    };
    let (code, message) = (told.code, told.message.clone());
    // A deadlock at the commit comes from the other servers of a Galera cluster: the transaction was undone.
    if matches!(code, 1205 | 1213 | 3572) && progress != Progress::After {
        let message = format!("another transaction is in the way: {message}; nothing was done");
        return Failed::Blocked(Error::new(ErrorKind::Unavailable, message).with_source(error));
    }
    if progress != Progress::Before || is_ending(code) {
        let message = format!("mysql ended the request, perhaps after its commit: {message}");
        return Failed::Error(Error::new(ErrorKind::Indeterminate, message).with_source(error));
    }
    let (kind, message) = match code {
        1044 | 1045 | 1142 | 1143 | 1227 | 1370 => {
            (ErrorKind::Denied, format!("mysql refuses this user: {message}; lockkeeper init --print prints the rights"))
        }
        1146 | 1049 => (ErrorKind::Unavailable, format!("the tables are gone: {message}; connect again to create them")),
        1054 | 1136 | 1364 | 1406 | 1366 | 1264 => {
            (ErrorKind::Config, format!("a table of lockkeeper has another shape: {message}; name other tables with ?table="))
        }
        1665 => (
            ErrorKind::Config,
            format!("binlog_format=STATEMENT writes no row of a step to replicas; set binlog_format to ROW or MIXED: {message}"),
        ),
        1290 | 1792 | 1836 => (ErrorKind::Unavailable, format!("the server only reads now, a replica perhaps: {message}")),
        1021 | 1030 | 1037 | 1038 | 1040 | 1041 | 1114 | 1180 | 1203 | 1226 | 1317 | 1969 | 3024 | 3100 => {
            (ErrorKind::Unavailable, format!("mysql cannot do it now: {message}"))
        }
        _ => (ErrorKind::Protocol, format!("mysql answered with error {code}: {message}")),
    };
    Failed::Error(Error::new(kind, message).with_source(error))
}

/// Whether the server ends the connection with this error: shutdown, KILL, idle for too long, a packet that did not arrive whole.
fn is_ending(code: u16) -> bool {
    matches!(code, 1053 | 1077 | 1079 | 1080 | 1152 | 1156..=1161 | 1184 | 1927 | 4031 | 3169)
}

pub(super) fn is_missing_table(error: &MyError) -> bool {
    matches!(error, MyError::Server(told) if told.code == 1146)
}

pub(super) fn has_no_tls(error: &MyError) -> bool {
    matches!(error, MyError::Driver(DriverError::NoClientSslFlagFromServer))
}

/// The error of a connection that was not made.
pub(super) fn of_connecting(error: MyError, to: &Config) -> Error {
    let (kind, message) = match &error {
        MyError::Server(told) => match told.code {
            1045 | 1044 | 1698 | 1251 | 1130 | 1862 | 3118 => {
                (ErrorKind::Denied, format!("{to} refuses this user or password: {}", told.message))
            }
            1049 => (ErrorKind::Config, format!("{to}: {}; create it, or name another one", told.message)),
            _ => (ErrorKind::Unavailable, format!("{to} accepts no connection now: {}", told.message)),
        },
        MyError::Driver(DriverError::NoClientSslFlagFromServer) => {
            (ErrorKind::Config, format!("{to} does not speak TLS; turn it on there, or write ssl-mode=disabled"))
        }
        MyError::Driver(DriverError::UnknownAuthPlugin { name }) => {
            (ErrorKind::Config, format!("{to} wants the login method {name:?}, which lockkeeper does not know"))
        }
        MyError::Driver(
            DriverError::UnexpectedPacket { .. } | DriverError::PacketOutOfOrder | DriverError::CantParseServerVersion { .. },
        )
        | MyError::Io(IoError::Io(_))
            if is_foreign(&error) =>
        {
            (ErrorKind::Config, format!("what answers at {to} is no MySQL or MariaDB server"))
        }
        MyError::Io(IoError::Tls(cause)) => (ErrorKind::Unavailable, format!("no TLS connection to {to}: {cause}")),
        MyError::Io(IoError::Io(cause)) if is_tls(cause) => {
            (ErrorKind::Unavailable, format!("no TLS connection to {to}: {cause}"))
        }
        _ if was_closed(&error) => {
            let message =
                format!("{to} closed the connection before it could be used ({error}); is it a MySQL or MariaDB server?");
            (ErrorKind::Unavailable, message)
        }
        _ => (ErrorKind::Unavailable, format!("cannot reach {to} ({error}); is the server running there?")),
    };
    Error::new(kind, message).with_source(error)
}

fn was_closed(error: &MyError) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    match error {
        MyError::Driver(DriverError::ConnectionClosed) => true,
        MyError::Io(IoError::Io(cause)) => matches!(cause.kind(), BrokenPipe | ConnectionReset | UnexpectedEof),
        _ => false,
    }
}

fn is_tls(cause: &std::io::Error) -> bool {
    let words = cause.to_string();
    words.contains("certificate") || words.contains("tls") || words.contains("TLS")
}

/// Whether something answered that does not speak the protocol.
fn is_foreign(error: &MyError) -> bool {
    match error {
        MyError::Driver(_) => true,
        MyError::Io(IoError::Io(cause)) => {
            matches!(cause.kind(), std::io::ErrorKind::InvalidData | std::io::ErrorKind::InvalidInput | std::io::ErrorKind::Other)
                && !is_tls(cause)
        }
        _ => false,
    }
}

/// The error of a server that accepted a connection and then said nothing.
pub(super) fn of_silence(to: &Config) -> Error {
    let message = format!("{to} did not answer within {:?}; is it a MySQL or MariaDB server?", to.connecting);
    Error::new(ErrorKind::Unavailable, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(code: u16, progress: Progress) -> (bool, ErrorKind) {
        let error = MyError::Server(mysql_async::ServerError { code, message: String::new(), state: String::new() });
        match of_request(error, progress) {
            Failed::Blocked(error) => (true, error.kind()),
            Failed::Error(error) => (false, error.kind()),
        }
    }

    #[test]
    fn what_may_have_been_committed_is_unknown() {
        use Progress::{After, Before, Commit};
        for (code, progress, expected) in [
            (1317, Commit, (false, ErrorKind::Indeterminate)),
            (1317, Before, (false, ErrorKind::Unavailable)),
            (1927, Before, (false, ErrorKind::Indeterminate)),
            (1053, Before, (false, ErrorKind::Indeterminate)),
            (1158, Before, (false, ErrorKind::Indeterminate)),
            (1205, Before, (true, ErrorKind::Unavailable)),
            (1205, After, (false, ErrorKind::Indeterminate)),
            (1213, Commit, (true, ErrorKind::Unavailable)),
            (1290, Before, (false, ErrorKind::Unavailable)),
            (1142, Before, (false, ErrorKind::Denied)),
            (1054, Before, (false, ErrorKind::Config)),
            (1665, Before, (false, ErrorKind::Config)),
        ] {
            assert_eq!(told(code, progress), expected, "{code} {progress:?}");
        }
    }
}
