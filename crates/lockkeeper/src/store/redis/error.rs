//! What a driver's or server's error means to a lock user.

use redis::{RedisError, Value};

use crate::error::{Error, ErrorKind};

/// Server errors after which nothing was done and the same request may pass later.
const PASSING: [&str; 11] =
    ["OOM", "LOADING", "BUSY", "MISCONF", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "ASK", "MOVED"];
const DENIED: [&str; 3] = ["NOPERM", "NOAUTH", "WRONGPASS"];
/// How servers begin to say, without a code, that a user may not do something inside a script.
const DENIED_IN_A_SCRIPT: [&str; 2] = ["ACL failure in script", "The user executing the script can't"];

/// How servers begin to say, without a code, that a script touched a key whose slot is on its way to another server.
const HALF_MOVED: [&str; 2] =
    ["Script attempted to access a non local key in a cluster node", "Attempted to access a non local key in a cluster node"];

/// Whether a script met a key that is elsewhere. Those of ours that count look at what may be elsewhere before they write; the others may be repeated,
/// and what they may have done is given back.
pub(super) fn is_half_moved(error: &RedisError) -> bool {
    error.code().is_some_and(|code| says_half_moved(meant(&format!("{code} {}", error.detail().unwrap_or_default()))))
}

fn says_half_moved(words: &str) -> bool {
    HALF_MOVED.iter().any(|beginning| words.starts_with(beginning))
}

/// The error of a request that was sent.
pub(super) fn of_request(error: RedisError) -> Error {
    match error.code().map(str::to_owned) {
        Some(code) => of_server(&format!("{code} {}", error.detail().unwrap_or_default())),
        None => Error::new(ErrorKind::Indeterminate, "the connection to redis broke before the answer came").with_source(error),
    }
}

/// The error of a request of which it is not known what was done.
pub(super) fn of_unknown(error: RedisError) -> Error {
    match error.code() {
        Some(_) => Error::new(ErrorKind::Indeterminate, of_request(error).to_string()),
        None => of_request(error),
    }
}

/// How servers begin to say, without a code, that they have no database of this number.
const NO_DATABASE: [&str; 4] =
    ["DB index is out of range", "invalid DB index", "value is out of range", "SELECT is not allowed in cluster mode"];

/// The error of a connection that was not made.
pub(super) fn of_connecting(error: RedisError, to: &super::Config) -> Error {
    match error.code().map(|code| format!("{code} {}", error.detail().unwrap_or_default())) {
        Some(line) if NO_DATABASE.iter().any(|beginning| meant(&line).starts_with(beginning)) => {
            let message = format!("{to}: the server has no such database ({}); write one that it has, or none", meant(&line));
            Error::new(ErrorKind::Config, message)
        }
        Some(line) => of_server(&line),
        None => Error::new(ErrorKind::Unavailable, format!("cannot reach {to}; is the server running there?")).with_source(error),
    }
}

/// An error in the server's words: its code, then text, in which names of keys and users may stand.
pub(super) fn of_server(line: &str) -> Error {
    let words = meant(line);
    let code = words.split(' ').next().unwrap_or_default();
    let (kind, message) = if PASSING.contains(&code) || says_half_moved(words) {
        (ErrorKind::Unavailable, format!("redis cannot do it now: {words}"))
    } else if DENIED.contains(&code) || DENIED_IN_A_SCRIPT.iter().any(|beginning| words.starts_with(beginning)) {
        (ErrorKind::Denied, format!("redis refuses this user: {words}"))
    } else if code == "WRONGTYPE" {
        (ErrorKind::ForeignKey, "under this name lies a key that is no lock; choose another name or remove it".to_owned())
    } else {
        (ErrorKind::Protocol, format!("redis answered with an error: {words}"))
    };
    Error::new(kind, message)
}

/// What the server means, from its code on. Before 7.0 the error of a command inside a script stands behind a code and places of the script's, as in
/// `ERR Error running script (call to f_1f0c): @user_script:1: @user_script: 1: -OOM command not allowed`.
fn meant(line: &str) -> &str {
    let mut rest = line.trim();
    loop {
        let plain = rest.strip_prefix("ERR ").unwrap_or(rest).trim_start();
        let inside = plain.strip_prefix("Error running script (call to ").and_then(|call| call.split_once("): "));
        let place = plain.strip_prefix("@user_script:").and_then(|place| place.split_once(": "));
        match (inside, place) {
            (Some((_, inner)), _) => rest = inner,
            (_, Some((line, inner))) if line.trim().bytes().all(|byte| byte.is_ascii_digit()) => rest = inner,
            _ => {
                rest = plain;
                break;
            }
        }
    }
    rest.strip_prefix('-').unwrap_or(rest)
}

/// The error for an answer that no script of ours gives.
pub(super) fn unexpected(answer: &Value) -> Error {
    Error::new(ErrorKind::Protocol, format!("redis answered something unexpected: {answer:?}"))
}

/// The error for an answer to several that leaves some out.
pub(super) fn too_few() -> Error {
    Error::new(ErrorKind::Protocol, "redis answered fewer than were asked for")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_counts_wherever_a_server_puts_it() {
        use ErrorKind::{Denied, ForeignKey, Protocol, Unavailable};
        for (line, kind) in [
            ("OOM command not allowed when used memory > 'maxmemory'. script: 80c9, on @user_script:1.", Unavailable),
            ("ERR Error running script (call to f_80c9): @user_script:1: @user_script: 1: -OOM command not allowed", Unavailable),
            ("ERR @user_script: 1: -OOM command not allowed", Unavailable),
            ("LOADING", Unavailable),
            ("MISCONF Errors writing to the AOF file: NOPERM", Unavailable),
            ("ERR Error running script (call to f_80c9): @user_script:1: WRONGTYPE Operation against a key", ForeignKey),
            ("ERR WRONGTYPE Operation against a key", ForeignKey),
            ("NOPERM this user has no permissions to access a key 'OOM'", Denied),
            ("ERR ACL failure in script: User BUSY has no permissions to run the 'hset' command", Denied),
            (
                "ERR Error running script (call to f_80c9): @user_script:1: @user_script: 1: The user executing the script can't run it",
                Denied,
            ),
            ("ERR The user executing the script can't run this command or subcommand script: 80c9", Denied),
            // Words of others inside the text decide nothing.
            ("ERR unknown command 'OOM', with args beginning with: 'NOPERM'", Protocol),
            ("ERR no such key: BUSY @user_script:1: -READONLY", Protocol),
            (
                "ERR Script attempted to access a non local key in a cluster node script: 84968c66, on @user_script:61.",
                Unavailable,
            ),
            (
                "ERR Error running script (call to f_80c9): @user_script:1: @user_script: 1: Script attempted to access a non local key in a cluster node",
                Unavailable,
            ),
            ("BUSYKEY Target key name already exists.", Protocol),
            ("", Protocol),
        ] {
            assert_eq!(of_server(line).kind(), kind, "{line}");
        }
    }
}
