//! Which ensemble: what a URL says.

use std::fmt;
use std::time::Duration;

use zookeeper_client::{Acls, Connector, SaslOptions};

use crate::error::{Error, ErrorKind, Result};

/// Where the store lies, and how to reach it.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    /// `host:port`, at least one.
    pub(super) hosts: Vec<String>,
    /// The folder of the locks, without a slash at its end; empty: the root.
    pub(super) chroot: String,
    user: Option<(String, String)>,
    auth: Auth,
    /// How long the server keeps a session without contact.
    pub(super) session: Duration,
    creator_only: bool,
}

/// How user and password are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Auth {
    /// As `addauth digest` does.
    Digest,
    /// SASL with DIGEST-MD5.
    Sasl,
}

/// The session that is asked for unless the URL says otherwise.
const SESSION: Duration = Duration::from_secs(10);

const PORT: u16 = 2181;

fn refused(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, message)
}

impl Config {
    /// Understands `zookeeper://USER:PASSWORD@HOST:PORT,HOST:PORT/FOLDER?OPTIONS`.
    ///
    /// Options: `session=10s`, `auth=digest|sasl`, `acl=open|creator`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] if it is something else. The password is in no message.
    pub fn parse(url: &str) -> Result<Self> {
        let rest = url.strip_prefix("zookeeper://").ok_or_else(|| refused("a ZooKeeper URL begins with zookeeper://"))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, chroot) = place.split_once('/').unwrap_or((place, ""));
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => {
                let (name, password) =
                    user.split_once(':').ok_or_else(|| refused("a user needs a password: USER:PASSWORD@HOST"))?;
                (Some((decoded(name)?, decoded(password)?)), hosts)
            }
            None => (None, authority),
        };
        let hosts = hosts.split(',').map(host).collect::<Result<Vec<_>>>()?;
        let mut config = Self { hosts, chroot: folder(chroot)?, user, auth: Auth::Digest, session: SESSION, creator_only: false };
        for option in query.split('&').filter(|option| !option.is_empty()) {
            config.set(option)?;
        }
        if config.creator_only && config.user.is_none() {
            return Err(refused("acl=creator needs a user: zookeeper://USER:PASSWORD@HOST"));
        }
        Ok(config)
    }

    fn set(&mut self, option: &str) -> Result<()> {
        match option.split_once('=').unwrap_or((option, "")) {
            ("session", value) => self.session = session(value)?,
            ("auth", "digest") => self.auth = Auth::Digest,
            ("auth", "sasl") => self.auth = Auth::Sasl,
            ("auth", _) => return Err(refused("auth= is digest or sasl")),
            ("acl", "open") => self.creator_only = false,
            ("acl", "creator") => self.creator_only = true,
            ("acl", _) => return Err(refused("acl= is open or creator")),
            (unknown, _) => return Err(refused(format!("unknown option {unknown:?}; there are session, auth, acl"))),
        }
        Ok(())
    }

    /// What the driver connects to.
    pub(super) fn cluster(&self) -> String {
        format!("{}{}", self.hosts.join(","), self.chroot)
    }

    /// Who may use the nodes that are created.
    pub(super) fn acls(&self) -> Acls<'static> {
        if self.creator_only { Acls::creator_all() } else { Acls::anyone_all() }
    }

    /// How to connect.
    pub(super) fn connector(&self) -> Result<Connector> {
        let mut connector = zookeeper_client::Client::connector().with_session_timeout(self.session).with_fail_eagerly();
        if let Some((name, password)) = &self.user {
            connector = match self.auth {
                Auth::Digest => connector.with_auth("digest", format!("{name}:{password}").as_bytes()),
                Auth::Sasl => connector.with_sasl(SaslOptions::digest_md5(name.clone(), password.clone())),
            };
        }
        Ok(connector)
    }
}

fn host(text: &str) -> Result<String> {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !name.ends_with(':') && !port.ends_with(']') => (name, Some(port)),
        _ => (text, None),
    };
    if name.is_empty() {
        return Err(refused("a ZooKeeper URL needs hosts; for example zookeeper://127.0.0.1:2181/locks"));
    }
    match port {
        None => Ok(format!("{name}:{PORT}")),
        Some(port) if port.parse::<u16>().is_ok_and(|port| port > 0) => Ok(text.to_owned()),
        Some(_) => Err(refused(format!("the port of {name} is not a number from 1 to 65535"))),
    }
}

/// The folder as a path: empty, or with a slash before each element.
fn folder(text: &str) -> Result<String> {
    let text = decoded(text.trim_end_matches('/'))?;
    if text.is_empty() {
        return Ok(String::new());
    }
    if text.split('/').any(|element| matches!(element, "" | "." | "..")) || text.chars().any(char::is_control) {
        return Err(refused(format!("/{text} is not a path in ZooKeeper")));
    }
    if text == "zookeeper" || text.starts_with("zookeeper/") {
        return Err(refused("/zookeeper is the server's own folder; name another one"));
    }
    Ok(format!("/{text}"))
}

fn session(value: &str) -> Result<Duration> {
    let wrong = || refused("session= is a length of time from 100ms to 1h; for example session=10s");
    let (number, unit) = value.split_at(value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len()));
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let millis = match unit {
        "ms" => Some(number),
        "s" => number.checked_mul(1_000),
        "m" => number.checked_mul(60_000),
        "h" => number.checked_mul(3_600_000),
        _ => None,
    };
    millis.filter(|millis| (100..=3_600_000).contains(millis)).map(Duration::from_millis).ok_or_else(wrong)
}

fn decoded(text: &str) -> Result<String> {
    let wrong = || refused("%XX in the URL is not UTF-8");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next().ok_or_else(wrong)?, rest.next().ok_or_else(wrong)?];
        let digits = std::str::from_utf8(&digits).map_err(|_| wrong())?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

/// The URL without the password.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.as_ref().map(|(name, _)| format!("{name}@")).unwrap_or_default();
        write!(f, "zookeeper://{user}{}{}", self.hosts.join(","), self.chroot)
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
    fn urls_are_understood() {
        for (url, cluster, shown) in [
            ("zookeeper://h", "h:2181", "zookeeper://h:2181"),
            ("zookeeper://a,b:9,c/locks/", "a:2181,b:9,c:2181/locks", "zookeeper://a:2181,b:9,c:2181/locks"),
            ("zookeeper://u:p%40@h/a/b?auth=sasl", "h:2181/a/b", "zookeeper://u@h:2181/a/b"),
            ("zookeeper://[::1]:2181", "[::1]:2181", "zookeeper://[::1]:2181"),
        ] {
            let config = Config::parse(url).unwrap();
            assert_eq!((config.cluster().as_str(), config.to_string().as_str()), (cluster, shown));
        }
        let config = Config::parse("zookeeper://u:p%40@h?session=1500ms&acl=creator").unwrap();
        assert_eq!((config.session, config.creator_only), (Duration::from_millis(1_500), true));
        assert_eq!(config.user, Some(("u".to_owned(), "p@".to_owned())));
        assert!(!format!("{config:?}").contains("p@"));
    }

    #[test]
    fn a_bad_url_is_refused_in_words() {
        for (url, says) in [
            ("zookeeper:?", "begins with zookeeper://"),
            ("zookeeper://", "needs hosts"),
            ("zookeeper://a,,b", "needs hosts"),
            ("zookeeper://a:x", "port of a"),
            ("zookeeper://a//b", "not a path"),
            ("zookeeper://a/../b", "not a path"),
            ("zookeeper://a/zookeeper", "server's own"),
            ("zookeeper://a?session=10", "session="),
            ("zookeeper://a?session=1ms", "session="),
            ("zookeeper://a?colour=red", "unknown option \"colour\""),
            ("zookeeper://a?acl=creator", "needs a user"),
            ("zookeeper://secret@a", "needs a password"),
            ("zookeeper://a/%zz", "%XX"),
        ] {
            let error = Config::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains(says) && !error.to_string().contains("secret"), "{url}: {error}");
        }
    }
}
