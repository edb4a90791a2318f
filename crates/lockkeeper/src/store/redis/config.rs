//! What a `redis://` or `redis+unix://` URL says. The password never comes out again: neither in `Debug` nor in `Display` nor in an error.

use std::fmt;

use url::Url;

use crate::error::{Error, ErrorKind, Result};

/// Where a Redis server is, and who we are there: `redis://[user[:password]@]host[:port][/database]`, or
/// `redis+unix://[user[:password]@localhost]/path/to/socket[?db=database]`. `eviction=accept` connects to a server that may evict
/// locks; `tokens=redisson` counts the tokens of each mutex under Redisson's key, for names that Java's `RFencedLock` shares: all peers of
/// such a name must do so, and the key stays when the lock is gone.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    pub(super) address: Address,
    pub(super) accept_eviction: bool,
    pub(super) tokens_per_name: bool,
    pub(super) database: u32,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
}

/// Where a server listens.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Address {
    Tcp { host: String, port: u16 },
    Unix { path: String },
}

impl Config {
    /// Understands a `redis://` or `redis+unix://` URL.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`], which says what is wrong without repeating the URL.
    pub fn parse(url: &str) -> Result<Self> {
        let config = |message: String| Error::new(ErrorKind::Config, message);
        let url = Url::parse(url).map_err(|error| config(format!("the redis URL is not understood: {error}")))?;
        let decoded =
            |text: &str| percent_decoded(text).ok_or_else(|| config("a %-escape in the redis URL is broken".to_owned()));
        let number = |text: &str| {
            text.parse().map_err(|_| config(format!("{text:?} is not a database number; for example redis://127.0.0.1/0")))
        };
        let mut database = 0;
        let address = if url.scheme() == "redis+unix" {
            let path = decoded(url.path())?;
            if path.trim_matches('/').is_empty() || url.host_str().is_some_and(|host| !matches!(host, "" | "localhost")) {
                return Err(config("the URL names no socket; for example redis+unix:///run/redis/redis.sock".to_owned()));
            }
            Address::Unix { path }
        } else {
            let host = url.host_str().filter(|host| !host.is_empty());
            let host =
                host.ok_or_else(|| config("the redis URL names no host; for example redis://127.0.0.1:6379/0".to_owned()))?;
            if let path @ [_, ..] = url.path().trim_start_matches('/').as_bytes() {
                database = number(&String::from_utf8_lossy(path))?;
            }
            // The brackets belong to the URL, not to the address.
            let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
            Address::Tcp { host, port: url.port().unwrap_or(6379) }
        };
        let (mut accept_eviction, mut tokens_per_name) = (false, false);
        for (option, value) in url.query_pairs() {
            match (&*option, &*value) {
                ("db", value) if url.scheme() == "redis+unix" => database = number(value)?,
                ("eviction", "accept") => accept_eviction = true,
                ("eviction", _) => return Err(config("eviction can only be accepted: ?eviction=accept".to_owned())),
                ("tokens", "redisson") => tokens_per_name = true,
                ("tokens", _) => return Err(config("tokens can only be counted as Redisson does: ?tokens=redisson".to_owned())),
                (option, _) => {
                    let known = "there are eviction=accept and tokens=redisson";
                    return Err(config(format!("{}: has no option {option:?}; {known}", url.scheme())));
                }
            }
        }
        Ok(Self {
            address,
            accept_eviction,
            tokens_per_name,
            database,
            user: Some(url.username()).filter(|user| !user.is_empty()).map(decoded).transpose()?,
            password: url.password().map(decoded).transpose()?,
        })
    }
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

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
        let database = self.database;
        match &self.address {
            Address::Unix { path } => {
                let at = if user.is_empty() { "" } else { "localhost" };
                write!(f, "redis+unix://{user}{at}{path}?db={database}")
            }
            Address::Tcp { host, port } if host.contains(':') => write!(f, "redis://{user}[{host}]:{port}/{database}"),
            Address::Tcp { host, port } => write!(f, "redis://{user}{host}:{port}/{database}"),
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
        ] {
            let config = Config::parse(url).unwrap();
            assert_eq!(
                (config.to_string().as_str(), config.user.as_deref(), config.password.as_deref()),
                (shown, user, password)
            );
            assert_eq!(config.accept_eviction, url.contains("eviction"));
        }
    }

    #[test]
    fn the_password_is_never_shown() {
        let config = Config::parse("redis://me:secret@h").unwrap();
        assert_eq!(format!("{config} {config:?}"), "redis://me@h:6379/0 redis://me@h:6379/0");
        for bad in [
            "redis://me:secret@h/x",
            "redis://me:secret@h:99999",
            "redis://me:secret@",
            "redis://:sec%zzret@h",
            "redis://me:secret@h?a=1",
            "redis://me:secret@h?eviction=maybe",
            "redis://me:secret@h?tokens=mine",
            "redis+unix://me:secret@host/path",
            "redis+unix://",
        ] {
            let error = Config::parse(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{bad}");
            assert!(!format!("{error} {error:?}").contains("sec"), "{error:?}");
        }
    }
}
