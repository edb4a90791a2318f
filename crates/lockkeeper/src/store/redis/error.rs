//! What a driver's or server's error means to a lock user.

use redis::{RedisError, Value};

use crate::error::{Error, ErrorKind};

/// Server errors after which nothing was done and the same request may pass later.
const PASSING: [&str; 9] =
    ["OOM", "LOADING", "BUSY", "MISCONF", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS"];
/// The last two are texts: of a refusal inside a script, which has no code of its own; since 7.0, and before.
const DENIED: [&str; 5] = ["NOPERM", "NOAUTH", "WRONGPASS", "ACL failure in script", "The user executing the script can't"];

/// The error of a request that was sent.
pub(super) fn of_request(error: RedisError) -> Error {
    match error.code().map(str::to_owned) {
        Some(code) => of_server(&code, &error.to_string()),
        None => Error::new(ErrorKind::Indeterminate, "the connection to redis broke before the answer came").with_source(error),
    }
}

/// The error of a connection that was not made.
pub(super) fn of_connecting(error: RedisError, to: &super::Config) -> Error {
    match error.code().map(str::to_owned) {
        Some(code) => of_server(&code, &error.to_string()),
        None => Error::new(ErrorKind::Unavailable, format!("cannot reach {to}; is the server running there?")).with_source(error),
    }
}

/// An error that the server told, also from inside a script, where older servers put another code in front.
pub(super) fn of_server(code: &str, text: &str) -> Error {
    let says = |known: &&str| code == *known || text.contains(*known);
    let (kind, message) = if PASSING.iter().any(says) {
        (ErrorKind::Unavailable, format!("redis cannot do it now: {text}"))
    } else if DENIED.iter().any(says) {
        (ErrorKind::Denied, format!("redis refuses this user: {text}"))
    } else if says(&"WRONGTYPE") {
        (ErrorKind::ForeignKey, "under this name lies a key that is no lock; choose another name or remove it".to_owned())
    } else {
        (ErrorKind::Protocol, format!("redis answered with an error: {text}"))
    };
    Error::new(kind, message)
}

/// The error for an answer that no script of ours gives.
pub(super) fn unexpected(answer: &Value) -> Error {
    Error::new(ErrorKind::Protocol, format!("redis answered something unexpected: {answer:?}"))
}

/// The error for an answer to several that leaves some out.
pub(super) fn too_few() -> Error {
    Error::new(ErrorKind::Protocol, "redis answered fewer than were asked for")
}
