//! Which file: what a URL says, or the user's own.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};

/// Where the store lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    path: PathBuf,
    /// The directory is the user's state directory, and is made when missing.
    own: bool,
}

impl Config {
    /// The store in this file. Its directory must exist.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), own: false }
    }

    /// Understands `sqlite:PATH`, `sqlite:///PATH` and `sqlite:`, which is `lockkeeper/locks.db` in the user's state directory.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] if it is something else, or the user has no home.
    pub fn parse(url: &str) -> Result<Self> {
        let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
        Self::parse_with(url, &variable)
    }

    fn parse_with(url: &str, variable: &dyn Fn(&str) -> Option<PathBuf>) -> Result<Self> {
        let config = |message: &str| Err(Error::new(ErrorKind::Config, message));
        let Some(rest) = url.strip_prefix("sqlite:") else { return config("not a sqlite URL; write sqlite:PATH") };
        let path = match rest.strip_prefix("//") {
            Some(local) if local.starts_with('/') => local,
            Some(_) => return config("a sqlite store has no host; write sqlite:PATH or sqlite:///PATH"),
            None => rest,
        };
        if path.contains('\0') {
            return config("a path cannot hold a NUL byte");
        }
        if !path.is_empty() {
            return Ok(Self::file(path));
        }
        let absolute = |path: &PathBuf| path.is_absolute();
        // systemd sets this for a unit with `StateDirectory=`; it may be a list. Only where there is no home directory: units and other programs of
        // one user share one store.
        let of_unit = || {
            let list = variable("STATE_DIRECTORY")?;
            list.to_str()?.split(':').next().map(PathBuf::from).filter(absolute)
        };
        let of_home = || Some(variable("HOME").filter(absolute)?.join(".local/state"));
        let Some(state) = variable("XDG_STATE_HOME").filter(absolute).or_else(of_home).or_else(of_unit) else {
            return config("none of XDG_STATE_HOME, HOME and STATE_DIRECTORY is set; name the file: sqlite:PATH");
        };
        Ok(Self { path: state.join("lockkeeper/locks.db"), own: true })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn is_own(&self) -> bool {
        self.own
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sqlite:{}", self.path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_taken_as_it_is() {
        let nothing = |_: &str| None;
        for (url, path) in [("sqlite:/a/b", "/a/b"), ("sqlite:b.db", "b.db"), ("sqlite:///a b?c", "/a b?c")] {
            let config = Config::parse_with(url, &nothing).unwrap();
            assert!(config.path() == Path::new(path) && !config.is_own(), "{url}: {config:?}");
        }
        for url in ["sqlite://host/a", "redis:x", "sqlite:a\0b", "sqlite:"] {
            assert_eq!(Config::parse_with(url, &nothing).unwrap_err().kind(), ErrorKind::Config, "{url}");
        }
    }

    #[test]
    fn without_a_path_it_is_the_users_own() {
        let both = |name: &str| Some(PathBuf::from(if name == "HOME" { "/home/u" } else { "/s" }));
        assert_eq!(Config::parse_with("sqlite:", &both).unwrap().to_string(), "sqlite:/s/lockkeeper/locks.db");
        let unit = |name: &str| (name == "STATE_DIRECTORY").then(|| PathBuf::from("/var/lib/jobs:/var/lib/more"));
        assert_eq!(Config::parse_with("sqlite:", &unit).unwrap().to_string(), "sqlite:/var/lib/jobs/lockkeeper/locks.db");
        let home = |name: &str| match name {
            "HOME" => Some(PathBuf::from("/home/u")),
            "STATE_DIRECTORY" => Some(PathBuf::from("/var/lib/jobs")),
            _ => Some(PathBuf::from("relative")),
        };
        let config = Config::parse_with("sqlite:", &home).unwrap();
        assert!(config.is_own() && config.path() == Path::new("/home/u/.local/state/lockkeeper/locks.db"), "{config:?}");
    }
}
