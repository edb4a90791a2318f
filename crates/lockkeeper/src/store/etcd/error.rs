//! What an answer of etcd, or none, means to a lock user.

use std::error::Error as StdError;

use tonic::{Code, ConnectError, Status};

use super::Config;
use crate::error::{Error, ErrorKind};

/// What became of a request.
#[derive(Debug)]
pub(super) enum Failed {
    /// The lease is gone, and with it everything in the session. Nothing was done.
    NoLease,
    /// The token that we authenticated with is not valid any more. Nothing was done.
    Token,
    /// Something else.
    Error {
        error: Error,
        /// The member may be the reason: ask another one next.
        member: bool,
    },
}

impl Failed {
    pub(super) fn into_error(self) -> Error {
        match self {
            Self::NoLease => Error::new(ErrorKind::Unavailable, "the session at etcd has ended; nothing was done"),
            Self::Token => Error::new(ErrorKind::Denied, "etcd does not accept its own token any more; nothing was done"),
            Self::Error { error, .. } => error,
        }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Error { error, member: false }
    }
}

/// Whether a connection could not be made, so that nothing was sent.
fn was_not_sent(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The meaning of a failed request.
pub(super) fn of_request(status: &Status, to: &Config) -> Failed {
    let said = status.message();
    if was_not_sent(status) {
        return Failed::Error { error: of_connecting(status, to), member: true };
    }
    let is = |words: &str| said.contains(words);
    if is("requested lease not found") {
        return Failed::NoLease;
    }
    if is("invalid auth token") || is("revision of auth store is old") {
        return Failed::Token;
    }
    let (kind, message, member) = match status.code() {
        Code::PermissionDenied => (
            ErrorKind::Denied,
            format!("etcd refuses this user: {said}; its role needs readwrite on the prefix of each lock and on __lockkeeper/"),
            false,
        ),
        Code::Unauthenticated | Code::InvalidArgument if is("user name is empty") || is("authentication failed") => (
            ErrorKind::Denied,
            format!("{to} refuses this user or password: {said}; write USER:PASSWORD@ before the host"),
            false,
        ),
        Code::FailedPrecondition if is("authentication is not enabled") => {
            (ErrorKind::Config, format!("{to} has no authentication, but the URL has a user; leave it out"), false)
        }
        Code::ResourceExhausted if is("space exceeded") => (
            ErrorKind::Unavailable,
            format!("etcd has no space left ({said}); compact and defragment it, then `etcdctl alarm disarm`; nothing was done"),
            false,
        ),
        Code::ResourceExhausted => {
            (ErrorKind::Unavailable, format!("etcd has too many requests: {said}; nothing was done"), false)
        }
        Code::Unavailable if is("no leader") => {
            (ErrorKind::Unavailable, format!("etcd has no leader: a majority of the members of {to} must run"), true)
        }
        Code::Unimplemented => {
            (ErrorKind::Config, format!("what answers at {to} is no etcd server with the v3 API, or an old one ({said})"), false)
        }
        Code::InvalidArgument | Code::NotFound | Code::OutOfRange => {
            (ErrorKind::Protocol, format!("etcd answered with an error: {said}"), false)
        }
        _ => (ErrorKind::Indeterminate, format!("no answer from {to}: {}", words(status)), true),
    };
    Failed::Error { error: Error::new(kind, message).with_source(status.clone()), member }
}

/// The error of a connection that was not made.
pub(super) fn of_connecting(error: &(dyn StdError + 'static), to: &Config) -> Error {
    let words = words(error);
    let tls = ["certificate", "InvalidContentType", "HandshakeFailure", "tls", "TLS"].iter().any(|word| words.contains(word));
    let (kind, message) = if tls {
        (ErrorKind::Unavailable, format!("no TLS connection to {to}: {words}; check ?ca=, and whether the server has TLS"))
    } else {
        (ErrorKind::Unavailable, format!("cannot reach {to} ({words}); is etcd running there?"))
    };
    Error::new(kind, message)
}

/// An error with its causes.
fn words(error: &(dyn StdError + 'static)) -> String {
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
    fn an_answer_means_what_it_says_and_no_answer_is_unknown() {
        let config = Config::parse("etcd://ann:secret@h").unwrap();
        for (code, said, kind) in [
            (Code::Unavailable, "etcdserver: request timed out", ErrorKind::Indeterminate),
            (Code::Unavailable, "etcdserver: leader changed", ErrorKind::Indeterminate),
            (Code::Unknown, "transport error", ErrorKind::Indeterminate),
            (Code::Unavailable, "etcdserver: no leader", ErrorKind::Unavailable),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", ErrorKind::Unavailable),
            (Code::PermissionDenied, "etcdserver: permission denied", ErrorKind::Denied),
            (Code::InvalidArgument, "etcdserver: authentication failed, invalid user ID or password", ErrorKind::Denied),
            (Code::InvalidArgument, "etcdserver: user name is empty", ErrorKind::Denied),
            (Code::FailedPrecondition, "etcdserver: authentication is not enabled", ErrorKind::Config),
            (Code::Unimplemented, "", ErrorKind::Config),
        ] {
            let error = of_request(&Status::new(code, said), &config).into_error();
            assert_eq!(error.kind(), kind, "{code:?} {said}");
            assert!(!error.to_string().contains("secret"));
        }
        assert!(matches!(
            of_request(&Status::new(Code::NotFound, "etcdserver: requested lease not found"), &config),
            Failed::NoLease
        ));
        assert!(matches!(
            of_request(&Status::new(Code::Unauthenticated, "etcdserver: invalid auth token"), &config),
            Failed::Token
        ));
    }
}
