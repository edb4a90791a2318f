//! What a `redis://` URL says. The password never comes out again: neither in `Debug` nor in `Display` nor in an error.

use std::fmt;

use url::Url;

use crate::error::{Error, ErrorKind, Result};

/// Where a Redis server is, and who we are there: `redis://[user[:password]@]host[:port][/database]`.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) database: u32,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
}

impl Config {
    /// Understands a `redis://` URL.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`], which says what is wrong without repeating the URL.
    pub fn parse(url: &str) -> Result<Self> {
        let config = |message: String| Error::new(ErrorKind::Config, message);
        let url = Url::parse(url).map_err(|error| config(format!("the redis URL is not understood: {error}")))?;
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| config("the redis URL names no host; for example redis://127.0.0.1:6379/0".to_owned()))?;
        let database = match url.path().trim_start_matches('/') {
            "" => 0,
            path => {
                path.parse().map_err(|_| config(format!("{path:?} is not a database number; for example redis://{host}/0")))?
            }
        };
        if let Some((option, _)) = url.query_pairs().next() {
            return Err(config(format!("redis: has no option {option:?}")));
        }
        let decoded =
            |text: &str| percent_decoded(text).ok_or_else(|| config("a %-escape in the redis URL is broken".to_owned()));
        Ok(Self {
            // The brackets belong to the URL, not to the address.
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: url.port().unwrap_or(6379),
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
        f.write_str("redis://")?;
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        let brackets = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{}{}{}", brackets.0, self.host, brackets.1)?;
        write!(f, ":{}/{}", self.port, self.database)
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
        let config = Config::parse("redis://me:p%40ss@db.example:7000/3").unwrap();
        assert_eq!((config.host.as_str(), config.port, config.database), ("db.example", 7000, 3));
        assert_eq!((config.user.as_deref(), config.password.as_deref()), (Some("me"), Some("p@ss")));
        let config = Config::parse("redis://[::1]").unwrap();
        assert_eq!((config.host.as_str(), config.port, config.database), ("::1", 6379, 0));
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
        ] {
            let error = Config::parse(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(!format!("{error} {error:?}").contains("sec"), "{error:?}");
        }
    }
}
