//! From a URL to a store: first what it says, purely; then the store. The only file that names every store.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

#[cfg(feature = "config")]
use super::config;
use super::schemes::{SCHEMES, hint, known, lacking, shown};
#[cfg(feature = "redlock")]
use crate::backend::Voter;
use crate::backend::{Backend, Finding};
use crate::error::{Error, ErrorKind, Result};
#[cfg(feature = "redlock")]
use crate::layer::Quorum;
use crate::runtime::Runtime;
#[cfg(feature = "etcd")]
use crate::store::etcd::{Config as EtcdConfig, EtcdStore};
use crate::store::memory::MemoryStore;
#[cfg(feature = "mysql")]
use crate::store::mysql::{Config as MysqlConfig, MysqlStore};
#[cfg(feature = "postgres")]
use crate::store::postgres::{Config as PostgresConfig, PostgresStore};
#[cfg(feature = "redis-single")]
use crate::store::redis::{Config as RedisConfig, RedisStore};
#[cfg(all(feature = "sqlite", target_os = "linux"))]
use crate::store::sqlite::{Config as SqliteConfig, SqliteStore};
#[cfg(feature = "zookeeper")]
use crate::store::zookeeper::{Config as ZookeeperConfig, ZookeeperStore};

/// A store that a URL names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// In this process: private, or shared under a name.
    Memory(Option<String>),
    #[cfg(feature = "mysql")]
    Mysql(Box<MysqlConfig>),
    #[cfg(feature = "etcd")]
    Etcd(Box<EtcdConfig>),
    #[cfg(feature = "postgres")]
    Postgres(Box<PostgresConfig>),
    #[cfg(feature = "redis-single")]
    Redis(Box<RedisConfig>),
    #[cfg(all(feature = "sqlite", target_os = "linux"))]
    Sqlite(SqliteConfig),
    #[cfg(feature = "zookeeper")]
    Zookeeper(Box<ZookeeperConfig>),
    /// A majority of several.
    #[cfg(feature = "redlock")]
    RedLock { members: Vec<Self>, max_lease: Duration, admit_new: bool },
}

/// Understands a URL, without touching anything but the file that a `config:` names.
pub(super) fn parse(url: &str) -> Result<Target> {
    let refused = |message: String| Err(Error::new(ErrorKind::Config, message));
    let Some((scheme, rest)) = url.split_once(':').filter(|(scheme, _)| !scheme.contains('/')) else {
        let hint = hint(url).unwrap_or_else(|| "for example sqlite: or redis://127.0.0.1:6379".to_owned());
        return refused(format!("{} is not a store URL; {hint}", shown(url)));
    };
    let features = SCHEMES.iter().find(|(known, _)| *known == scheme).map(|(_, features)| *features);
    if let Some(lacking) = lacking(scheme, features.unwrap_or_default()) {
        return refused(lacking);
    }
    match scheme {
        "memory" if rest.is_empty() => Ok(Target::Memory(None)),
        "memory" if !rest.starts_with('/') => Ok(Target::Memory(Some(rest.to_owned()))),
        "memory" => refused("a memory store has no address; write memory: or memory:NAME".to_owned()),
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => MysqlConfig::parse(url).map(|config| Target::Mysql(Box::new(config))),
        #[cfg(feature = "etcd")]
        "etcd" | "etcds" => EtcdConfig::parse(url).map(|config| Target::Etcd(Box::new(config))),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => PostgresConfig::parse(url).map(|config| Target::Postgres(Box::new(config))),
        #[cfg(feature = "redis-single")]
        "redis" | "redis+unix" | "redis+sentinel" | "redis+cluster" | "rediss" | "rediss+sentinel" | "rediss+cluster" => {
            RedisConfig::parse(url).map(|config| Target::Redis(Box::new(config)))
        }
        #[cfg(all(feature = "sqlite", target_os = "linux"))]
        "sqlite" => SqliteConfig::parse(url).map(Target::Sqlite),
        #[cfg(all(feature = "sqlite", not(target_os = "linux")))]
        "sqlite" => refused("sqlite: needs the boot clock of Linux; choose another store on this machine".to_owned()),
        #[cfg(feature = "zookeeper")]
        "zookeeper" | "zookeepers" => ZookeeperConfig::parse(url).map(|config| Target::Zookeeper(Box::new(config))),
        #[cfg(feature = "redlock")]
        "redlock" => red_lock(rest),
        #[cfg(feature = "config")]
        "config" => {
            let in_file = |error: Error| Error::new(error.kind(), format!("the config file {rest}: {error}"));
            config::store_of(rest.as_ref()).and_then(|url| parse(&url).map_err(in_file))
        }
        _ => {
            let hint = hint(url).unwrap_or_else(|| format!("there are {}", known()));
            refused(format!("no store has the scheme {scheme}:; {hint}"))
        }
    }
}

/// Understands what follows `redlock:`: options and the URLs of the servers, separated by commas.
#[cfg(feature = "redlock")]
fn red_lock(items: &str) -> Result<Target> {
    let refused = |message: String| Err(Error::new(ErrorKind::Config, message));
    let (mut members, mut max_lease, mut admit_new) = (Vec::new(), Quorum::MAX_LEASE, false);
    for item in items.split(',') {
        match item.split_once(['=', ':']) {
            Some(("admit", "new")) => admit_new = true,
            Some(("max-lease", value)) => match value.strip_suffix('s').and_then(|seconds| seconds.parse().ok()) {
                Some(seconds) => max_lease = Duration::from_secs(seconds),
                None => return refused("max-lease is in whole seconds; for example max-lease=60s".to_owned()),
            },
            Some((scheme @ ("redlock" | "config"), _)) => {
                return refused(format!("a {scheme}: cannot be a server of a redlock:"));
            }
            Some((scheme, _)) if SCHEMES.iter().any(|(known, _)| *known == scheme) => match parse(item)? {
                Target::Memory(None) => return refused("a server of a redlock: needs a name; write memory:NAME".to_owned()),
                member => members.push(member),
            },
            _ => {
                return refused(
                    "a redlock: URL is a list of server URLs, and of the options admit=new and max-lease=60s, separated by commas (a comma in \
                     a password is %2C); for example redlock:redis://a,redis://b,redis://c"
                        .to_owned(),
                );
            }
        }
    }
    Ok(Target::RedLock { members, max_lease, admit_new })
}

impl Target {
    /// What somebody who may create tables has to run, where the store has tables.
    pub(super) fn setup_sql(&self) -> Option<String> {
        match self {
            #[cfg(feature = "mysql")]
            Self::Mysql(config) => Some(MysqlStore::setup(config)),
            #[cfg(feature = "postgres")]
            Self::Postgres(config) => Some(PostgresStore::setup(config)),
            _ => None,
        }
    }

    /// Whether it is a store inside this process, which needs no runtime to connect to.
    pub(super) fn is_private(&self) -> bool {
        matches!(self, Self::Memory(_))
    }

    /// Refuses a URL that asks for more than the command timeout allows.
    pub(super) fn fits(&self, command_timeout: Duration) -> Result<()> {
        match self {
            #[cfg(feature = "redis-single")]
            Self::Redis(config) => config.fits(command_timeout),
            #[cfg(feature = "redlock")]
            Self::RedLock { members, .. } => members.iter().try_for_each(|member| member.fits(command_timeout)),
            _ => {
                let _ = command_timeout;
                Ok(())
            }
        }
    }

    /// Opens the store.
    pub(super) async fn open(self, runtime: &Runtime) -> Result<Arc<dyn Backend>> {
        Ok(match self {
            Self::Memory(None) => Arc::new(MemoryStore::new(runtime.clone())),
            Self::Memory(Some(name)) => shared(name, runtime)?,
            #[cfg(feature = "mysql")]
            Self::Mysql(config) => MysqlStore::connect(*config, runtime).await?,
            #[cfg(feature = "etcd")]
            Self::Etcd(config) => EtcdStore::connect(*config, runtime).await?,
            #[cfg(feature = "postgres")]
            Self::Postgres(config) => PostgresStore::connect(*config, runtime).await?,
            #[cfg(feature = "redis-single")]
            Self::Redis(config) => RedisStore::connect(*config, runtime).await?,
            #[cfg(all(feature = "sqlite", target_os = "linux"))]
            Self::Sqlite(config) => SqliteStore::connect(config, runtime).await?,
            #[cfg(feature = "zookeeper")]
            Self::Zookeeper(config) => ZookeeperStore::connect(*config, runtime).await?,
            #[cfg(feature = "redlock")]
            Self::RedLock { members, max_lease, admit_new } => {
                let quorum = quorum(members, max_lease, runtime).await?;
                quorum.check_distinct().await?;
                if admit_new {
                    quorum.admit_new().await?;
                }
                Arc::new(quorum)
            }
        })
    }

    /// Opens the store as one of several, of which some may be down just now: with the trouble there is, if it may pass.
    #[cfg(feature = "redlock")]
    async fn open_voter(self, runtime: Runtime) -> Result<(Arc<dyn Voter>, Option<Error>)> {
        match self {
            Self::Memory(Some(name)) => Ok((shared(name, &runtime)?, None)),
            #[cfg(feature = "redis-single")]
            Self::Redis(config) if config.is_cluster() => {
                Err(Error::new(ErrorKind::Config, format!("{config} is a cluster, which cannot be one of several servers")))
            }
            #[cfg(feature = "redis-single")]
            Self::Redis(config) => {
                let config = config.as_one_of_several();
                match RedisStore::connect(config.clone(), &runtime).await {
                    Ok(store) => Ok((store, None)),
                    Err(error) if error.is_outage() => Ok((Arc::new(RedisStore::unconnected(config, &runtime)), Some(error))),
                    Err(error) => Err(error),
                }
            }
            #[cfg(feature = "mysql")]
            Self::Mysql(_) => Err(Error::new(ErrorKind::Config, format!("{self} cannot be one of several servers"))),
            #[cfg(feature = "etcd")]
            Self::Etcd(_) => Err(Error::new(ErrorKind::Config, format!("{self} cannot be one of several servers"))),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => Err(Error::new(ErrorKind::Config, format!("{self} cannot be one of several servers"))),
            #[cfg(all(feature = "sqlite", target_os = "linux"))]
            Self::Sqlite(_) => Err(Error::new(ErrorKind::Config, format!("{self} cannot be one of several servers"))),
            #[cfg(feature = "zookeeper")]
            Self::Zookeeper(_) => Err(Error::new(ErrorKind::Config, format!("{self} cannot be one of several servers"))),
            Self::Memory(None) | Self::RedLock { .. } => {
                Err(Error::new(ErrorKind::Config, format!("{self} cannot be one of several servers")))
            }
        }
    }
}

/// A descriptor that stands for the life of the client's holds, on stores that have one.
#[cfg(unix)]
pub(super) fn liveness(backend: &dyn Backend) -> Result<Option<std::os::fd::OwnedFd>> {
    #[cfg(all(feature = "sqlite", target_os = "linux"))]
    if let Some(store) = backend.extension().and_then(|extension| extension.downcast_ref::<SqliteStore>()) {
        return store.liveness().map(Some);
    }
    let _ = backend;
    Ok(None)
}

/// The servers as one store; a minority of them may be down.
#[cfg(feature = "redlock")]
async fn quorum(members: Vec<Target>, max_lease: Duration, runtime: &Runtime) -> Result<Quorum> {
    let opening: Vec<_> = members
        .into_iter()
        .map(|member| (member.to_string(), crate::runtime::beside(member.open_voter(runtime.clone()))))
        .collect();
    let (mut servers, mut troubles) = (Vec::new(), Vec::new());
    for (label, opened) in opening {
        let (voter, trouble) = opened
            .await
            .unwrap_or_else(|| Err(Error::new(ErrorKind::Unavailable, "the executor that was connecting is gone")))
            .map_err(|error| Error::new(error.kind(), format!("{label}: {error}")))?;
        troubles.extend(trouble.map(|error| format!("{label}: {error}")));
        servers.push((label, voter));
    }
    let count = servers.len();
    if troubles.len() * 2 >= count && count > 0 {
        let message = format!("no majority: {} of {count} servers cannot be reached; {}", troubles.len(), troubles.join("; "));
        return Err(Error::new(ErrorKind::Unavailable, message));
    }
    Quorum::new(servers, max_lease, runtime.clone())
}

impl Target {
    /// Looks whether locks can live there, and tells all that it found.
    pub(super) async fn examine(self, runtime: &Runtime) -> Vec<Finding> {
        match self {
            Self::Memory(_) => {
                vec![Finding::doubtful("reach", "excludes inside one process only; name a store that others see too")]
            }
            #[cfg(feature = "mysql")]
            Self::Mysql(config) => MysqlStore::examine(*config, runtime).await,
            #[cfg(feature = "etcd")]
            Self::Etcd(config) => EtcdStore::examine(*config, runtime).await,
            #[cfg(feature = "postgres")]
            Self::Postgres(config) => PostgresStore::examine(*config, runtime).await,
            #[cfg(feature = "redis-single")]
            Self::Redis(config) => RedisStore::examine(*config, runtime).await,
            #[cfg(all(feature = "sqlite", target_os = "linux"))]
            Self::Sqlite(config) => SqliteStore::examine(config, runtime).await,
            #[cfg(feature = "zookeeper")]
            Self::Zookeeper(config) => ZookeeperStore::examine(*config, runtime).await,
            #[cfg(feature = "redlock")]
            Self::RedLock { members, .. } => {
                let mut found = Vec::new();
                for member in members {
                    let label = member.to_string();
                    found.extend(Box::pin(member.examine(runtime)).await.into_iter().map(|finding| finding.at(&label)));
                }
                found
            }
        }
    }
}

/// The store that all clients of this process share under this name; it ends with the last of them. All of them count time in the same way: a
/// request names the time after which it is too late.
fn shared(name: String, runtime: &Runtime) -> Result<Arc<MemoryStore>> {
    static SHARED: OnceLock<Mutex<HashMap<String, Weak<MemoryStore>>>> = OnceLock::new();
    let mut stores = SHARED.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(store) = stores.get(&name).and_then(Weak::upgrade) {
        if !store.runtime().has_clock_of(runtime) {
            let message = format!("\"memory:{name}\" is in use with another clock; give all its clients the same `Runtime`");
            return Err(Error::new(ErrorKind::Config, message));
        }
        return Ok(store);
    }
    stores.retain(|_, store| store.strong_count() > 0);
    let store = Arc::new(MemoryStore::new(runtime.clone()));
    stores.insert(name, Arc::downgrade(&store));
    Ok(store)
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(None) => f.write_str("memory:"),
            Self::Memory(Some(name)) => write!(f, "memory:{name}"),
            #[cfg(feature = "mysql")]
            Self::Mysql(config) => config.fmt(f),
            #[cfg(feature = "etcd")]
            Self::Etcd(config) => config.fmt(f),
            #[cfg(feature = "postgres")]
            Self::Postgres(config) => config.fmt(f),
            #[cfg(feature = "redis-single")]
            Self::Redis(config) => config.fmt(f),
            #[cfg(all(feature = "sqlite", target_os = "linux"))]
            Self::Sqlite(config) => config.fmt(f),
            #[cfg(feature = "zookeeper")]
            Self::Zookeeper(config) => config.fmt(f),
            #[cfg(feature = "redlock")]
            Self::RedLock { members, max_lease, admit_new } => {
                f.write_str("redlock:")?;
                members.iter().try_for_each(|member| write!(f, "{member},"))?;
                let admit = if *admit_new { ",admit=new" } else { "" };
                write!(f, "max-lease={}s{admit}", max_lease.as_secs())
            }
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
    fn a_red_lock_is_a_list_of_servers_and_options() {
        let parsed = parse("redlock:memory:a,memory:b,max-lease=90s,memory:c,admit=new").unwrap();
        assert_eq!(parsed.to_string(), "redlock:memory:a,memory:b,memory:c,max-lease=90s,admit=new");
        assert_eq!(parse(&parsed.to_string()).unwrap(), parsed);
    }

    #[test]
    fn a_bad_url_is_refused_in_words() {
        for (url, says) in [
            ("redlock:", "a list of server URLs"),
            ("redlock:memory:a,memory:", "needs a name"),
            ("redlock:memory:a,redlock:memory:b", "cannot be a server of a redlock:"),
            ("redlock:memory:a,config:b", "cannot be a server of a redlock:"),
            ("redlock:memory:a,max-lease=60", "whole seconds"),
            ("redlock:memory:a,admit=all", "admit=new"),
            ("", "is not a store URL"),
            ("localhost", "is not a store URL; did you mean redis://localhost?"),
            ("127.0.0.1", "is not a store URL; did you mean redis://127.0.0.1?"),
            ("redis", "is not a store URL; for example sqlite: or redis://127.0.0.1:6379"),
            ("localhost:6379", "no store has the scheme localhost:; did you mean redis://localhost:6379?"),
            ("db.example:6379/2", "did you mean redis://db.example:6379/2?"),
            ("/var/lib/jobs/locks.db", "did you mean sqlite:/var/lib/jobs/locks.db?"),
            ("./a:b", "did you mean sqlite:./a:b?"),
            ("locks.db", "did you mean sqlite:locks.db?"),
            ("memory://host", "write memory: or memory:NAME"),
            ("mongo://h", "no store has the scheme mongo:"),
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

    #[test]
    fn every_scheme_is_understood_or_names_its_features() {
        for (scheme, features) in SCHEMES {
            let error = parse(&format!("{scheme}:?")).err().map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(error.contains("needs the feature"), features.iter().any(|(_, built_in)| !built_in), "{scheme}: {error}");
            assert!(!error.contains("no store has the scheme"), "{scheme}: {error}");
        }
    }
}
