//! From a URL to a store: first what it says, purely; then the store. The only file that names every store.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use crate::backend::{Backend, Finding};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::Runtime;
use crate::store::memory::MemoryStore;
#[cfg(feature = "redis")]
use crate::store::redis::{Config as RedisConfig, RedisStore};
#[cfg(all(feature = "sqlite", target_os = "linux"))]
use crate::store::sqlite::{Config as SqliteConfig, SqliteStore};

/// A store that a URL names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// In this process: private, or shared under a name.
    Memory(Option<String>),
    #[cfg(feature = "redis")]
    Redis(RedisConfig),
    #[cfg(all(feature = "sqlite", target_os = "linux"))]
    Sqlite(SqliteConfig),
}

/// The schemes that exist, and the feature each needs.
const SCHEMES: [(&str, Option<&str>); 4] =
    [("memory", None), ("redis", Some("redis")), ("redis+unix", Some("redis")), ("sqlite", Some("sqlite"))];

/// Understands a URL, without touching anything.
pub(super) fn parse(url: &str) -> Result<Target> {
    let config = |message: String| Err(Error::new(ErrorKind::Config, message));
    let Some((scheme, rest)) = url.split_once(':') else {
        return config(format!("{} is not a store URL; for example memory: or redis://127.0.0.1:6379", shown(url)));
    };
    match scheme {
        "memory" if rest.is_empty() => Ok(Target::Memory(None)),
        "memory" if !rest.starts_with('/') => Ok(Target::Memory(Some(rest.to_owned()))),
        "memory" => config("a memory store has no address; write memory: or memory:NAME".to_owned()),
        #[cfg(feature = "redis")]
        "redis" | "redis+unix" => RedisConfig::parse(url).map(Target::Redis),
        #[cfg(all(feature = "sqlite", target_os = "linux"))]
        "sqlite" => SqliteConfig::parse(url).map(Target::Sqlite),
        #[cfg(all(feature = "sqlite", not(target_os = "linux")))]
        "sqlite" => config("sqlite: needs the boot clock of Linux; choose another store on this machine".to_owned()),
        _ => match SCHEMES.iter().find(|(known, _)| *known == scheme) {
            Some((_, Some(feature))) => {
                config(format!("{scheme}: needs the feature `{feature}` of lockkeeper; add features = [\"{feature}\"]"))
            }
            _ => config(format!("no store has the scheme {scheme}:; there are {}", known())),
        },
    }
}

fn known() -> String {
    SCHEMES.map(|(scheme, _)| format!("{scheme}:")).join(", ")
}

/// What may be said of a URL that was not understood: a password may be in it.
fn shown(url: &str) -> String {
    if url.contains('@') { "that".to_owned() } else { format!("{url:?}") }
}

impl Target {
    /// Opens the store.
    pub(super) async fn open(self, runtime: &Runtime) -> Result<Arc<dyn Backend>> {
        Ok(match self {
            Self::Memory(None) => Arc::new(MemoryStore::new(runtime.clone())),
            Self::Memory(Some(name)) => shared(name, runtime),
            #[cfg(feature = "redis")]
            Self::Redis(config) => RedisStore::connect(config, runtime).await?,
            #[cfg(all(feature = "sqlite", target_os = "linux"))]
            Self::Sqlite(config) => SqliteStore::connect(config, runtime).await?,
        })
    }
}

impl Target {
    /// Looks whether locks can live there, and tells all that it found.
    pub(super) async fn examine(self, runtime: &Runtime) -> Vec<Finding> {
        match self {
            Self::Memory(_) => {
                vec![Finding::doubtful("reach", "excludes inside one process only; name a store that others see too")]
            }
            #[cfg(feature = "redis")]
            Self::Redis(config) => RedisStore::examine(config, runtime).await,
            #[cfg(all(feature = "sqlite", target_os = "linux"))]
            Self::Sqlite(config) => SqliteStore::examine(config, runtime).await,
        }
    }
}

/// The store that all clients of this process share under this name; it ends with the last of them.
fn shared(name: String, runtime: &Runtime) -> Arc<MemoryStore> {
    static SHARED: OnceLock<Mutex<HashMap<String, Weak<MemoryStore>>>> = OnceLock::new();
    let mut stores = SHARED.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(store) = stores.get(&name).and_then(Weak::upgrade) {
        return store;
    }
    stores.retain(|_, store| store.strong_count() > 0);
    let store = Arc::new(MemoryStore::new(runtime.clone()));
    stores.insert(name, Arc::downgrade(&store));
    store
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(None) => f.write_str("memory:"),
            Self::Memory(Some(name)) => write!(f, "memory:{name}"),
            #[cfg(feature = "redis")]
            Self::Redis(config) => config.fmt(f),
            #[cfg(all(feature = "sqlite", target_os = "linux"))]
            Self::Sqlite(config) => config.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_understood() {
        for (url, expected) in [("memory:", Target::Memory(None)), ("memory:jobs", Target::Memory(Some("jobs".to_owned())))] {
            assert_eq!(parse(url).unwrap(), expected);
            assert_eq!(expected.to_string(), url);
        }
    }

    #[test]
    fn a_bad_url_is_refused_in_words() {
        for (url, says) in [
            ("", "is not a store URL"),
            ("localhost", "is not a store URL"),
            ("memory://host", "write memory: or memory:NAME"),
            ("etcd://h", "no store has the scheme etcd:"),
        ] {
            let error = parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains(says), "{url}: {error}");
        }
    }

    #[test]
    fn a_password_is_never_repeated() {
        let error = parse("user:secret@host").unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
        let error = parse("secret@host").unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[cfg(not(feature = "redis"))]
    #[test]
    fn a_scheme_whose_feature_is_off_names_the_feature() {
        let error = parse("redis://127.0.0.1").unwrap_err();
        assert!(error.to_string().contains("needs the feature `redis`"), "{error}");
    }
}
