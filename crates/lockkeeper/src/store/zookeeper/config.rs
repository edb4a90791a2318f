//! Which ensemble: what a URL says.

use std::fmt;
use std::path::PathBuf;
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
    pub(super) tls: Option<Tls>,
}

/// How the servers prove who they are, and how we do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tls {
    /// The file with the certificates of authorities.
    pub(super) ca: PathBuf,
    /// The files with our own certificate and its key.
    pub(super) identity: Option<(PathBuf, PathBuf)>,
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

/// ZooKeeper has no default for `secureClientPort`; this is the one of its documentation.
const TLS_PORT: u16 = 2281;

fn refused(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, message)
}

impl Config {
    /// Understands `zookeeper://USER:PASSWORD@HOST:PORT,HOST:PORT/FOLDER?OPTIONS`; `zookeepers://` is the same with TLS.
    ///
    /// Options: `session=10s`, `auth=digest|sasl`, `acl=open|creator`, and with TLS `ca`, `cert` and `key`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] if it is something else. The password is in no message.
    pub fn parse(url: &str) -> Result<Self> {
        let (with_tls, rest) = match url.split_once("://") {
            Some(("zookeeper", rest)) => (false, rest),
            Some(("zookeepers", rest)) if cfg!(feature = "zookeeper-tls") => (true, rest),
            Some(("zookeepers", _)) => return Err(refused("zookeepers:// needs the feature `zookeeper-tls` of lockkeeper")),
            _ => return Err(refused("a ZooKeeper URL begins with zookeeper://, or with zookeepers:// for TLS")),
        };
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
        let port = if with_tls { TLS_PORT } else { PORT };
        let hosts = hosts.split(',').map(|text| host(text, port)).collect::<Result<Vec<_>>>()?;
        let (auth, session, chroot) = (Auth::Digest, SESSION, folder(chroot)?);
        let mut config = Self { hosts, chroot, user, auth, session, creator_only: false, tls: None };
        let (mut authorities, mut certificate, mut key) = (None, None, None);
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (option, value) = option.split_once('=').unwrap_or((option, ""));
            let file = match option {
                "ca" => &mut authorities,
                "cert" => &mut certificate,
                "key" => &mut key,
                _ => {
                    config.set(option, value)?;
                    continue;
                }
            };
            if !with_tls {
                return Err(refused(format!("?{option}= needs TLS; write zookeepers://")));
            }
            *file = Some(PathBuf::from(decoded(value)?));
        }
        if with_tls {
            let ca = authorities.ok_or_else(|| refused("zookeepers:// needs the certificate of the authority: ?ca=FILE"))?;
            let identity = match (certificate, key) {
                (Some(certificate), Some(key)) => Some((certificate, key)),
                (None, None) => None,
                _ => return Err(refused("a client certificate needs both: ?cert=FILE&key=FILE")),
            };
            config.tls = Some(Tls { ca, identity });
        }
        if config.creator_only && config.user.is_none() && !config.has_certificate() {
            let hint = "zookeeper://USER:PASSWORD@HOST, or a client certificate with zookeepers://";
            return Err(refused(format!("acl=creator needs a user: {hint}")));
        }
        Ok(config)
    }

    fn set(&mut self, option: &str, value: &str) -> Result<()> {
        match (option, value) {
            ("session", value) => self.session = session(value)?,
            ("auth", "digest") => self.auth = Auth::Digest,
            ("auth", "sasl") => self.auth = Auth::Sasl,
            ("auth", _) => return Err(refused("auth= is digest or sasl")),
            ("acl", "open") => self.creator_only = false,
            ("acl", "creator") => self.creator_only = true,
            ("acl", _) => return Err(refused("acl= is open or creator")),
            (unknown, _) => {
                let known = "session, auth, acl; of zookeepers: ca, cert, key";
                return Err(refused(format!("unknown option {unknown:?}; there are {known}")));
            }
        }
        Ok(())
    }

    /// What the driver connects to.
    pub(super) fn cluster(&self) -> String {
        let transport = if self.tls.is_some() { "tcp+tls://" } else { "" };
        let hosts: Vec<String> = self.hosts.iter().map(|host| format!("{transport}{host}")).collect();
        format!("{}{}", hosts.join(","), self.chroot)
    }

    /// Who may use the nodes that are created.
    pub(super) fn acls(&self) -> Acls<'static> {
        if self.creator_only { Acls::creator_all() } else { Acls::anyone_all() }
    }

    /// The name of the user, without the password.
    pub(super) fn user_name(&self) -> Option<&str> {
        self.user.as_ref().map(|(name, _)| name.as_str())
    }

    /// Whether we show the servers a certificate of our own.
    pub(super) fn has_certificate(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.identity.is_some())
    }

    /// Whether new nodes belong to the user alone.
    pub(super) const fn is_creator_only(&self) -> bool {
        self.creator_only
    }

    /// How to connect. Reads the files of certificates, so a new session uses what is in them now.
    pub(super) fn connector(&self) -> Result<Connector> {
        let mut connector = zookeeper_client::Client::connector().with_session_timeout(self.session).with_fail_eagerly();
        if let Some((name, password)) = &self.user {
            connector = match self.auth {
                Auth::Digest => connector.with_auth("digest", format!("{name}:{password}").as_bytes()),
                Auth::Sasl => connector.with_sasl(SaslOptions::digest_md5(name.clone(), password.clone())),
            };
        }
        #[cfg(feature = "zookeeper-tls")]
        if let Some(tls) = &self.tls {
            connector = connector.with_tls(super::tls::options(tls, &self.hosts)?);
        }
        Ok(connector)
    }
}

fn host(text: &str, default_port: u16) -> Result<String> {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !name.ends_with(':') && !port.ends_with(']') => (name, Some(port)),
        _ => (text, None),
    };
    if name.is_empty() {
        return Err(refused("a ZooKeeper URL needs hosts; for example zookeeper://127.0.0.1:2181/locks"));
    }
    match port {
        None => Ok(format!("{name}:{default_port}")),
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
        let scheme = if self.tls.is_some() { "zookeepers" } else { "zookeeper" };
        write!(f, "{scheme}://{user}{}{}", self.hosts.join(","), self.chroot)
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

    #[cfg(feature = "zookeeper-tls")]
    #[test]
    fn a_url_with_tls_names_files() {
        let config = Config::parse("zookeepers://u:secret@a,b:9/locks?ca=/a%20b.pem&cert=/c.pem&key=/k.pem&acl=creator").unwrap();
        assert_eq!(config.cluster(), "tcp+tls://a:2281,tcp+tls://b:9/locks");
        assert_eq!(format!("{config:?}"), "zookeepers://u@a:2281,b:9/locks");
        assert_eq!(config.tls, Some(Tls { ca: "/a b.pem".into(), identity: Some(("/c.pem".into(), "/k.pem".into())) }));
        // A client certificate is a user, too.
        assert!(Config::parse("zookeepers://a?ca=/a&cert=/c&key=/k&acl=creator").is_ok());
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
            ("zookeeper://a?ca=/x", "write zookeepers://"),
            ("mysql://a", "begins with zookeeper://"),
            #[cfg(not(feature = "zookeeper-tls"))]
            ("zookeepers://a?ca=/x", "feature `zookeeper-tls`"),
            #[cfg(feature = "zookeeper-tls")]
            ("zookeepers://a", "?ca=FILE"),
            #[cfg(feature = "zookeeper-tls")]
            ("zookeepers://a?ca=/x&key=/k", "needs both"),
            #[cfg(feature = "zookeeper-tls")]
            ("zookeepers://a?ca=/x&acl=creator", "client certificate"),
        ] {
            let error = Config::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains(says) && !error.to_string().contains("secret"), "{url}: {error}");
        }
    }
}
