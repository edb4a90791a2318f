//! What a Redis URL says. Passwords never come out again: neither in `Debug` nor in `Display` nor in an error.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use super::options::Options;
use crate::error::{Error, ErrorKind, Result};

/// Where Redis is, and who we are there; see the page on Redis for what a URL can say.
///
/// `redis://[user[:password]@]host[:port][/database]`, `redis+unix://…/path/to/socket`,
/// `redis+sentinel://[user[:password]@]host[:port],host…/master[/database]`, `redis+cluster://[user[:password]@]host[:port],host…`;
/// `rediss` instead of `redis` speaks TLS.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    pub(super) servers: Servers,
    pub(super) tls: Option<Tls>,
    pub(super) database: u32,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) accept_eviction: bool,
    pub(super) tokens_per_name: bool,
    pub(super) sharded: Option<bool>,
    pub(super) durability: Durability,
    /// Whether the server tells waiters of releases; else they poll.
    pub(super) push: bool,
    /// The server is one of a quorum.
    pub(super) one_of_several: bool,
}

/// How a server is found.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Servers {
    One(Address),
    Sentinels { addresses: Vec<Address>, master: String, user: Option<String>, password: Option<String> },
    Cluster(Vec<Address>),
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Address {
    Tcp { host: String, port: u16 },
    Unix { path: String },
}

/// How a server proves who it is, and we.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tls {
    /// Instead of the machine's certificates.
    pub(super) ca: Option<PathBuf>,
    pub(super) certificate: Option<(PathBuf, PathBuf)>,
    pub(super) accept_anybody: bool,
}

/// Where a grant must be before it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durability {
    /// With the master.
    Master,
    /// With so many replicas, told within this time.
    Replicas(u32, Duration),
    /// On the master's disk, told within this time.
    Disk(Duration),
}

pub(super) fn wrong(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, message.into())
}

impl Config {
    /// The same server, as one of a quorum.
    #[cfg(feature = "redlock")]
    pub(crate) fn as_one_of_several(&self) -> Self {
        Self { one_of_several: true, ..self.clone() }
    }

    /// Understands a Redis URL.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`], which says what is wrong without repeating the URL.
    pub fn parse(url: &str) -> Result<Self> {
        // Such a password was taken for a port or a path: what is wrong with those would be misleading, and may contain a part of it.
        Self::parse_escaped(url).map_err(|error| if has_unescaped_password(url) { wrong(UNESCAPED) } else { error })
    }

    fn parse_escaped(url: &str) -> Result<Self> {
        let (url, others) = one_host(url);
        let url = Url::parse(&url).map_err(|error| wrong(format!("the redis URL is not understood: {error}")))?;
        let mut options = Options::of(&url)?;
        let (security, kind) = url.scheme().split_once('+').unwrap_or((url.scheme(), ""));
        let path: Vec<&str> = url.path().split('/').filter(|part| !part.is_empty()).collect();
        let mut database = 0;
        for (part, feature, built_in) in [
            ("sentinel", "redis-sentinel", cfg!(feature = "redis-sentinel")),
            ("cluster", "redis-cluster", cfg!(feature = "redis-cluster")),
        ] {
            if kind == part && !built_in {
                return Err(wrong(format!("redis+{part}:// needs the feature `{feature}` of lockkeeper")));
            }
        }
        let servers = match kind {
            "unix" => {
                let path = decoded(url.path())?;
                if path.trim_matches('/').is_empty() || url.host_str().is_some_and(|host| !matches!(host, "" | "localhost")) {
                    return Err(wrong("the URL names no socket; for example redis+unix:///run/redis/redis.sock"));
                }
                database = options.take("db").map(|text| database_number(&text)).transpose()?.unwrap_or(0);
                Servers::One(Address::Unix { path })
            }
            "sentinel" => {
                let [master, rest @ ..] = &path[..] else {
                    return Err(wrong("the URL names no master; for example redis+sentinel://h1:26379,h2,h3/mymaster/0"));
                };
                if let [number, ..] = rest {
                    database = database_number(number)?;
                }
                Servers::Sentinels {
                    addresses: addresses(&url, &others, 26379)?,
                    master: decoded(master)?,
                    user: options.take("sentinel_user"),
                    password: options.take("sentinel_password"),
                }
            }
            "cluster" => {
                if path.first().is_some_and(|number| *number != "0") {
                    return Err(wrong("a cluster has no database but 0"));
                }
                Servers::Cluster(addresses(&url, &others, 6379)?)
            }
            _ => {
                if !others.is_empty() {
                    return Err(wrong("several hosts need redis+sentinel:// or redis+cluster://"));
                }
                if let [number, ..] = &path[..] {
                    database = database_number(number)?;
                }
                Servers::One(addresses(&url, &[], 6379)?.remove(0))
            }
        };
        let tls = if security == "rediss" { Some(options.tls()?) } else { None };
        let config = Self {
            sharded: if matches!(servers, Servers::Cluster(_)) { options.sharded()? } else { None },
            servers,
            tls,
            database,
            user: Some(url.username()).filter(|user| !user.is_empty()).map(decoded).transpose()?,
            password: url.password().map(decoded).transpose()?,
            accept_eviction: options.only("eviction", "accept", "eviction can only be accepted: ?eviction=accept")?,
            tokens_per_name: options.only(
                "tokens",
                "redisson",
                "tokens can only be counted as Redisson does: ?tokens=redisson",
            )?,
            durability: options.durability()?,
            push: options.push()?,
            one_of_several: false,
        };
        options.nothing_is_left(url.scheme())?;
        Ok(config)
    }

    /// Whether many servers share the names.
    pub(crate) const fn is_cluster(&self) -> bool {
        matches!(self.servers, Servers::Cluster(_))
    }

    /// The servers as a log line shows them: without user and password.
    pub(super) fn place(&self) -> String {
        match &self.servers {
            Servers::One(address) => address.to_string(),
            _ => Self { user: None, ..self.clone() }.to_string(),
        }
    }

    /// Refuses a wait for replicas or the disk that is longer than a request may take: its grants would all be unknown.
    pub(crate) fn fits(&self, command_timeout: Duration) -> Result<()> {
        match self.durability {
            Durability::Replicas(_, within) | Durability::Disk(within) if within >= command_timeout => Err(wrong(format!(
                "?durable_within={}ms must be shorter than the command timeout of {command_timeout:?}, or no grant could be told apart from a lost one",
                within.as_millis()
            ))),
            _ => Ok(()),
        }
    }

    /// The same for another server of the same deployment.
    pub(super) fn at(&self, address: Address) -> Self {
        Self { servers: Servers::One(address), ..self.clone() }
    }
}

const UNESCAPED: &str =
    "the redis URL is not understood; a user name or a password with / ? # or % in it is written with %2F %3F %23 or %25";

/// Whether a user name or a password seems to contain one of the characters that end the host.
fn has_unescaped_password(url: &str) -> bool {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let Some((before, after)) = rest.find(['/', '?', '#']).map(|end| rest.split_at(end)) else { return false };
    let who = after.split_once('@').map(|(who, _)| who);
    // An option has a `=`. The password may have an `@` too, so one before the path says nothing.
    before.contains(':') && who.is_some_and(|who| !who.contains('='))
}

/// The URL with its first host alone, which any parser understands, and the other hosts.
fn one_host(url: &str) -> (String, Vec<String>) {
    let Some((scheme, rest)) = url.split_once("://") else { return (url.to_owned(), Vec::new()) };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let at = authority.rfind('@').map_or(0, |at| at + 1);
    let (who, hosts) = authority.split_at(at);
    let mut hosts = hosts.split(',');
    let first = hosts.next().unwrap_or_default();
    (format!("{scheme}://{who}{first}{path}"), hosts.map(str::to_owned).collect())
}

fn addresses(url: &Url, others: &[String], port: u16) -> Result<Vec<Address>> {
    let none = || wrong("the redis URL names no host; for example redis://127.0.0.1:6379/0");
    let address = |url: &Url| {
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(none)?;
        // The brackets belong to the URL, not to the address.
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Address::Tcp { host, port: url.port().unwrap_or(port) })
    };
    let mut all = vec![address(url)?];
    for other in others {
        let other =
            Url::parse(&format!("redis://{other}")).map_err(|error| wrong(format!("a host is not understood: {error}")))?;
        all.push(address(&other)?);
    }
    Ok(all)
}

fn database_number(text: &str) -> Result<u32> {
    text.parse().map_err(|_| wrong(format!("{text:?} is not a database number; for example redis://127.0.0.1/0")))
}

fn decoded(text: &str) -> Result<String> {
    percent_decoded(text).ok_or_else(|| wrong("a %-escape in the redis URL is broken; a % itself is written %25"))
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first == b'%' {
            let digits = std::str::from_utf8(after.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &after[2..];
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix { path } => f.write_str(path),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
        let (security, database) = (if self.tls.is_some() { "rediss" } else { "redis" }, self.database);
        let listed = |addresses: &[Address]| addresses.iter().map(Address::to_string).collect::<Vec<_>>().join(",");
        match &self.servers {
            Servers::One(Address::Unix { path }) => {
                let at = if user.is_empty() { "" } else { "localhost" };
                write!(f, "redis+unix://{user}{at}{path}?db={database}")
            }
            Servers::One(address) => write!(f, "{security}://{user}{address}/{database}"),
            Servers::Sentinels { addresses, master, .. } => {
                write!(f, "{security}+sentinel://{user}{}/{master}/{database}", listed(addresses))
            }
            Servers::Cluster(seeds) => write!(f, "{security}+cluster://{user}{}", listed(seeds)),
        }
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
        for (url, shown, user, password) in [
            ("redis://me:p%40ss@db.example:7000/3", "redis://me@db.example:7000/3", Some("me"), Some("p@ss")),
            ("redis://[::1]", "redis://[::1]:6379/0", None, None),
            ("redis://h?eviction=accept", "redis://h:6379/0", None, None),
            ("redis+unix:///run/redis.sock", "redis+unix:///run/redis.sock?db=0", None, None),
            ("redis+unix://:pw@localhost/run/my%20redis.sock?db=2", "redis+unix:///run/my redis.sock?db=2", None, Some("pw")),
            ("rediss://me:pw@h/1?ca=/ca.pem", "rediss://me@h:6379/1", Some("me"), Some("pw")),
            (
                "redis+sentinel://me:pw@h1:26380,h2,[::1]:9/mymaster/2",
                "redis+sentinel://me@h1:26380,h2:26379,[::1]:9/mymaster/2",
                Some("me"),
                Some("pw"),
            ),
            ("rediss+cluster://:a,b@h1:7000,h2", "rediss+cluster://h1:7000,h2:6379", None, Some("a,b")),
        ] {
            let config = Config::parse(url).unwrap();
            assert_eq!(
                (config.to_string().as_str(), config.user.as_deref(), config.password.as_deref()),
                (shown, user, password)
            );
            assert_eq!(config.accept_eviction, url.contains("eviction"));
            assert_eq!(config.tls.is_some(), url.starts_with("rediss"));
        }
    }

    #[test]
    fn options_are_understood() {
        let config = Config::parse("rediss://h?ca=/a&cert=/b&key=/c&replicas=2&durable_within=80ms&tokens=redisson").unwrap();
        let certificate = Some(("/b".into(), "/c".into()));
        assert_eq!(config.tls, Some(Tls { ca: Some("/a".into()), certificate, accept_anybody: false }));
        assert_eq!(config.durability, Durability::Replicas(2, Duration::from_millis(80)));
        assert!(config.tokens_per_name && config.push);
        assert!(!Config::parse("redis://h?push=off").unwrap().push);
        assert!(config.fits(Duration::from_millis(81)).is_ok());
        assert_eq!(config.fits(Duration::from_millis(80)).unwrap_err().kind(), ErrorKind::Config);
        assert_eq!(Config::parse("redis://h?aof=required").unwrap().durability, Durability::Disk(Duration::from_millis(500)));
        assert_eq!(Config::parse("redis+cluster://h?sharded=off").unwrap().sharded, Some(false));
        assert!(Config::parse("rediss://h?insecure=accept-any-certificate").unwrap().tls.unwrap().accept_anybody);
    }

    #[test]
    fn a_password_that_is_not_escaped_is_named_as_the_cause() {
        for url in ["redis://:sec/ret@h", "redis://me:sec#ret@h", "redis://me:sec?ret@h/0", "redis://me:1234/secret@h"] {
            let error = Config::parse(url).unwrap_err().to_string();
            assert!(error.contains("%2F %3F %23") && !error.contains("ret"), "{url}: {error}");
        }
        for (url, says) in [("redis://h/x", "database number"), ("redis+sentinel://h:1?sentinel_password=a@b", "no master")] {
            let error = Config::parse(url).unwrap_err().to_string();
            assert!(error.contains(says), "{url}: {error}");
        }
    }

    #[test]
    fn the_password_is_never_shown() {
        let config = Config::parse("redis+sentinel://me:secret@h/m?sentinel_password=secret").unwrap();
        assert_eq!(format!("{config} {config:?}"), "redis+sentinel://me@h:26379/m/0 redis+sentinel://me@h:26379/m/0");
        for bad in [
            "redis://me:secret@h/x",
            "redis://me:secret@h:99999",
            "redis://me:secret@",
            "redis://:sec%zzret@h",
            "redis://me:secret@h?a=1",
            "redis://me:secret@h?eviction=maybe",
            "redis://me:secret@h?tokens=mine",
            "redis://me:secret@h1,h2",
            "redis://me:secret@h?push=no",
            "redis://me:secret@h?replicas=none",
            "redis://me:secret@h?replicas=1&aof=required",
            "redis://me:secret@h?sharded=on",
            "redis://me:secret@h?ca=/ca.pem",
            "rediss://me:secret@h?insecure",
            "rediss://me:secret@h?cert=/c.pem",
            "redis+sentinel://me:secret@h1,h2",
            "redis+cluster://me:secret@h1,h2/3",
            "redis+cluster://me:secret@h1,h2:x",
            "redis+unix://me:secret@host/path",
            "redis+unix://",
        ] {
            let error = Config::parse(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{bad}");
            assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
        }
    }
}
