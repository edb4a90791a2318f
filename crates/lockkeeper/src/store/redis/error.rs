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
const HALF_MOVED: [&str; 3] = [
    "Script attempted to access a non local key in a cluster node",
    "Attempted to access a non local key in a cluster node",
    // 6.2
    "Lua script attempted to access a non local key in a cluster node",
];

/// Whether a script met a key that is on another server. Counting scripts read all such keys before they write; the others may be repeated, and
/// what they may have done is undone.
pub(super) fn is_half_moved(error: &RedisError) -> bool {
    error.code().is_some_and(|code| says_half_moved(meant(&format!("{code} {}", error.detail().unwrap_or_default()))))
}

fn says_half_moved(words: &str) -> bool {
    HALF_MOVED.iter().any(|beginning| words.starts_with(beginning))
}

/// How servers begin to say that they do not have a command, and in a script.
const UNKNOWN: [&str; 4] =
    ["unknown command", "Unknown command", "Unknown Redis command called from", "Unknown Valkey command called from"];

/// Whether the server does not have this command.
pub(super) fn is_unknown_command(error: &RedisError, command: &str) -> bool {
    let detail = error.detail().unwrap_or_default();
    error.code() == Some("ERR") && says_unknown(detail) && unknown_command(detail).eq_ignore_ascii_case(command)
}

/// Whether a script in full was refused because the server does not have `EVAL`, or does not let this user have it.
pub(super) fn lacks_eval(error: &RedisError) -> bool {
    is_unknown_command(error, "EVAL") || error.code() == Some("NOPERM")
}

pub(super) fn says_unknown(words: &str) -> bool {
    UNKNOWN.iter().any(|beginning| words.starts_with(beginning))
}

/// The command that a server says it does not have; it stands in quotes. Nothing if it was in a script.
fn unknown_command(words: &str) -> &str {
    words.split(['\'', '`', '"']).nth(1).unwrap_or_default()
}

/// What to do about a command that the server does not have.
pub(super) fn lacking_command(command: &str) -> Error {
    let remedy = match command.to_ascii_uppercase().as_str() {
        "HELLO" | "SUBSCRIBE" | "SSUBSCRIBE" => "without it waiters can only poll; write ?push=off in the URL to accept that",
        _ => "locks need it; use Redis 6.2 or later or Valkey, or allow the command (rename-command)",
    };
    Error::new(ErrorKind::Unsupported, format!("the server does not have the command {command}: {remedy}"))
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
        Some(line) if line.starts_with("NOAUTH") => {
            let user = if to.user.is_some() { "USER" } else { "" };
            let message = format!("{to} wants a password and the URL has none; write it as {user}:PASSWORD@ before the host");
            Error::new(ErrorKind::Denied, message)
        }
        Some(line) if line.starts_with("WRONGPASS") => {
            Error::new(ErrorKind::Denied, format!("{to} refuses this user name or password: {}", meant(&line)))
        }
        Some(line) => of_server(&line),
        None if error.kind() == redis::ErrorKind::RESP3NotSupported => lacking_command("HELLO"),
        None => match of_certificate(&error.to_string(), to) {
            Some(why) => Error::new(ErrorKind::Unavailable, format!("no TLS connection to {to}: {why}")).with_source(error),
            None => {
                // Right after it was accepted: what a port does that expects TLS.
                let hint = if to.tls.is_none() && (error.is_connection_dropped() && !error.is_connection_refusal()) {
                    "is it a port for TLS (rediss://)?"
                } else {
                    "is the server running there?"
                };
                Error::new(ErrorKind::Unavailable, format!("cannot reach {to}; {hint}")).with_source(error)
            }
        },
    }
}

/// Why a TLS connection was not made, if it is for a certificate, and what to do about it.
fn of_certificate(words: &str, to: &super::Config) -> Option<String> {
    let own_authority = to.tls.as_ref().is_some_and(|tls| tls.ca.is_some());
    let is = |text: &str| words.contains(text);
    let why = if is("CaUsedAsEndEntity") {
        "the certificate in ca= is the server's own, self-signed one, which cannot vouch for itself; make an authority, sign the server's \
         certificate with it, and give the authority's certificate as ca="
    } else if is("UnknownIssuer") && own_authority {
        "the server's certificate was not issued by the authority in ca=; give the certificate of the authority that signed it"
    } else if is("UnknownIssuer") {
        "the server's certificate was issued by an authority that this machine does not know; give its certificate with ?ca=FILE"
    } else if is("expired") || is("Expired") {
        "the server's certificate has expired; renew it, or set this machine's clock"
    } else if is("not valid for name") || is("NotValidForName") {
        "the server's certificate is for another name; connect by a name that is in it, or have this one added (subjectAltName)"
    } else if ["CertificateRequired", "CertificateUnknown", "BadCertificate", "HandshakeFailure", "UnknownCA"].into_iter().any(is)
    {
        "the server wants a certificate of this client that it trusts; give one with ?cert=FILE&key=FILE"
    } else if is("InvalidContentType") || is("corrupt message") {
        "the server does not speak TLS on this port; use its TLS port, or redis:// instead of rediss://"
    } else if is("InconsistentKeys") || is("keys may not be consistent") {
        "the certificate in cert= and the key in key= do not belong together"
    } else if is("ProtocolVersion") {
        "the server knows only versions of TLS that are not safe any more; let it speak TLS 1.2 or later"
    } else if to.tls.is_some() && (is("certificate") || is("private key")) {
        return Some(words.to_owned());
    } else {
        return None;
    };
    Some(why.to_owned())
}

/// An error in the server's words: its code, then text, in which names of keys and users may stand.
pub(super) fn of_server(line: &str) -> Error {
    let words = meant(line);
    let code = words.split(' ').next().unwrap_or_default();
    let (kind, message) = if PASSING.contains(&code) || says_half_moved(words) {
        (ErrorKind::Unavailable, format!("redis cannot do it now: {words}"))
    } else if DENIED.contains(&code) || DENIED_IN_A_SCRIPT.iter().any(|beginning| words.starts_with(beginning)) {
        (ErrorKind::Denied, format!("redis refuses this user: {words}"))
    } else if code == "NOPROTO" {
        return lacking_command("HELLO");
    } else if says_unknown(words) && !unknown_command(words).is_empty() {
        return lacking_command(unknown_command(words));
    } else if says_unknown(words) {
        (ErrorKind::Unsupported, format!("the server does not have a command that locks need: {words}"))
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

/// Whether a server's error says that it takes no writes, so that a script with it has written nothing.
pub(super) fn says_replica(line: &str) -> bool {
    meant(line).starts_with("READONLY ")
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
        use ErrorKind::{Denied, ForeignKey, Protocol, Unavailable, Unsupported};
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
            ("ERR unknown command 'OOM', with args beginning with: 'NOPERM'", Unsupported),
            ("ERR unknown command `HELLO`, with args beginning with: `3`", Unsupported),
            ("NOPROTO unsupported protocol version", Unsupported),
            ("ERR Unknown Redis command called from script script: 80c9, on @user_script:1.", Unsupported),
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
