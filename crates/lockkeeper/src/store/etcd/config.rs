//! Which etcd: what a URL says.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::namespace::Namespace;
use crate::error::{Error, ErrorKind, Result};

/// Where the members are, and how to reach them.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    /// `host:port` of each member.
    pub(super) members: Vec<String>,
    pub(super) user: Option<(String, String)>,
    /// How long a session lasts without contact.
    pub(super) session: Duration,
    /// Whether a name may contain `/`.
    pub(super) slashes: bool,
    pub(super) namespace: Namespace,
    pub(super) tls: Option<Tls>,
}

/// How the members are known, and how we are known to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tls {
    /// The file with the certificates of authorities.
    pub(super) ca: Option<PathBuf>,
    /// The files with our own certificate and its key.
    pub(super) identity: Option<(PathBuf, PathBuf)>,
}

/// The session, if the URL does not say.
const SESSION: Duration = Duration::from_secs(10);

/// etcd grants no shorter lease with its default election time-out, and none longer than this is of use.
const SESSIONS: std::ops::RangeInclusive<u64> = 2..=3600;

fn wrong(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, message)
}

impl Config {
    /// Understands `etcd://USER:PASSWORD@HOST:PORT,HOST:PORT?OPTIONS`; `etcds://` is the same with TLS.
    ///
    /// Options: `session=10s`, `prefix=TEXT`, `slashes=allow`, and with TLS `ca`, `cert` and `key`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] if it is something else. The password is in no message.
    pub fn parse(url: &str) -> Result<Self> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("an etcd URL is etcd://HOST:PORT,HOST:PORT"))?;
        let with_tls = match scheme {
            "etcd" => false,
            "etcds" => true,
            _ => return Err(wrong("an etcd URL begins with etcd:// or etcds://")),
        };
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (user, hosts) = match place.rsplit_once('@') {
            Some((user, hosts)) => (Some(credentials(user)?), hosts),
            None => (None, place),
        };
        if hosts.trim_end_matches('/').contains('/') {
            return Err(wrong("an etcd URL has no path; names of locks are keys from the root"));
        }
        let members = hosts.trim_end_matches('/').split(',').map(member).collect::<Result<_>>()?;
        let mut config = Self {
            members,
            user,
            session: SESSION,
            slashes: false,
            namespace: Namespace::default(),
            tls: with_tls.then(Tls::default),
        };
        let (mut certificate, mut key) = (None, None);
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (option, value) = option.split_once('=').unwrap_or((option, ""));
            let value = decoded(value)?;
            match (option, value.as_str(), &mut config.tls) {
                ("session", value, _) => config.session = session(value)?,
                ("slashes", "allow", _) => config.slashes = true,
                ("slashes", ..) => return Err(wrong("?slashes= can only be allow: names may contain / then")),
                ("prefix", "", _) => return Err(wrong("?prefix= needs a text, such as prefix=jobs/")),
                ("prefix", text, _) => config.namespace = Namespace::new(text),
                ("ca" | "cert" | "key", _, None) => return Err(wrong(format!("?{option}= needs TLS; write etcds://"))),
                ("ca", file, Some(tls)) => tls.ca = Some(file.into()),
                ("cert", file, Some(_)) => certificate = Some(PathBuf::from(file)),
                ("key", file, Some(_)) => key = Some(PathBuf::from(file)),
                _ => {
                    let known = "session=10s, prefix=TEXT and slashes=allow; of etcds: ca, cert and key";
                    return Err(wrong(format!("{scheme}: has no option {option:?}; there are {known}")));
                }
            }
        }
        match (certificate, key, &mut config.tls) {
            (Some(certificate), Some(key), Some(tls)) => tls.identity = Some((certificate, key)),
            (None, None, _) => {}
            _ => return Err(wrong("a client certificate needs both: ?cert=FILE&key=FILE")),
        }
        Ok(config)
    }

    pub(super) fn ttl(&self) -> i64 {
        i64::try_from(self.session.as_secs()).unwrap_or(i64::MAX)
    }

    /// The URL of one member, as the transport wants it.
    pub(super) fn endpoint(&self, member: usize) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.members[member % self.members.len()])
    }
}

fn credentials(text: &str) -> Result<(String, String)> {
    let (user, password) = text.split_once(':').ok_or_else(|| wrong("a user needs a password: etcd://USER:PASSWORD@HOST"))?;
    if user.is_empty() {
        return Err(wrong("the user before the password is empty; write etcd://USER:PASSWORD@HOST"));
    }
    Ok((decoded(user)?, decoded(password)?))
}

fn member(host: &str) -> Result<String> {
    let port_of = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
    let (name, port) =
        match host.rsplit_once(':').filter(|(name, _)| !name.is_empty() && (!name.contains(':') || name.ends_with(']'))) {
            Some((name, port)) => (name, port_of(port).ok_or_else(|| wrong(format!("{host:?} has no valid port")))?),
            None => (host, 2379),
        };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:[]%".contains(&byte);
    if name.is_empty() || !name.bytes().all(plain) || (name.contains(':') && !name.starts_with('[')) {
        return Err(wrong(format!("{name:?} is no host; write etcd://HOST:PORT,HOST:PORT")));
    }
    Ok(format!("{name}:{port}"))
}

fn session(text: &str) -> Result<Duration> {
    let seconds = text.strip_suffix('s').and_then(|number| number.parse().ok()).filter(|seconds| SESSIONS.contains(seconds));
    seconds.map(Duration::from_secs).ok_or_else(|| {
        wrong(format!("?session= is in whole seconds, {}s to {}s; for example session=10s", SESSIONS.start(), SESSIONS.end()))
    })
}

fn decoded(text: &str) -> Result<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.bytes());
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next(), rest.next()].map(|digit| digit.and_then(|digit| char::from(digit).to_digit(16)));
        let [Some(high), Some(low)] = digits else { return Err(wrong("a % in the URL needs two hexadecimal digits behind it")) };
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes).map_err(|_| wrong("a part of the URL is not UTF-8"))
}

impl fmt::Display for Config {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "etcds" } else { "etcd" };
        let user = self.user.as_ref().map(|(user, _)| format!("{user}@")).unwrap_or_default();
        write!(f, "{scheme}://{user}{}", self.members.join(","))
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_members_user_and_options() {
        let config = Config::parse("etcd://ann:p%40ss@a,b:2380,[::1]:9?session=5s&slashes=allow").unwrap();
        assert_eq!(config.members, ["a:2379", "b:2380", "[::1]:9"]);
        assert_eq!(config.user, Some(("ann".to_owned(), "p@ss".to_owned())));
        assert_eq!((config.session, config.slashes, config.ttl()), (Duration::from_secs(5), true, 5));
        assert_eq!(config.to_string(), "etcd://ann@a:2379,b:2380,[::1]:9");
        assert!(!format!("{config:?}").contains("p@ss"));
        let tls = Config::parse("etcds://h?ca=/a.pem&cert=/c.pem&key=/k.pem").unwrap();
        assert_eq!(tls.endpoint(0), "https://h:2379");
        assert_eq!(tls.tls.unwrap().identity, Some(("/c.pem".into(), "/k.pem".into())));
    }

    #[test]
    fn a_bad_url_is_refused_in_words() {
        for (url, says) in [
            ("etcd:h", "etcd://HOST:PORT"),
            ("etcd://", "is no host"),
            ("etcd://a,,b", "is no host"),
            ("etcd://a:0", "no valid port"),
            ("etcd://a/b", "has no path"),
            ("etcd://secret@h", "needs a password"),
            ("etcd://h?session=1s", "2s to 3600s"),
            ("etcd://h?session=10", "whole seconds"),
            ("etcd://h?slashes=yes", "can only be allow"),
            ("etcd://h?ca=/x", "write etcds://"),
            ("etcds://h?cert=/x", "needs both"),
            ("etcd://h?x=y", "has no option \"x\""),
            ("etcd://u:%zz@h", "two hexadecimal digits"),
        ] {
            let error = Config::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{url}");
            assert!(error.to_string().contains(says), "{url}: {error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
