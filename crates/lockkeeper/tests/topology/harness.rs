//! What the contract asks of us: an empty store on a deployment that the cases share.

use lockkeeper_testkit::cluster::Cluster;
pub(crate) use lockkeeper_testkit::cluster::known_port;
use lockkeeper_testkit::poll::until_within;
pub(crate) use lockkeeper_testkit::server::free_port;
use std::any::Any;
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use lockkeeper::backend::Backend;
use lockkeeper::conformance::{Harness, Time};
use lockkeeper::runtime::Runtime;
use lockkeeper::store::redis::{Config, RedisStore};
use redis::Connection;

use crate::scoped::Scoped;
use crate::sentinels::Watched;
use crate::server::{Flavour, Server};
use crate::tls::{Proofs, TlsServer};

/// The deployment that all cases of a kind share; it ends with the last of them.
fn shared<T: Any + Send + Sync>(key: &'static str, start: impl FnOnce() -> T) -> Arc<T> {
    static SHARED: Mutex<Option<HashMap<&'static str, Weak<dyn Any + Send + Sync>>>> = Mutex::new(None);
    let mut shared = SHARED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let shared = shared.get_or_insert_default();
    if let Some(found) = shared.get(key).and_then(Weak::upgrade).and_then(|found| found.downcast().ok()) {
        return found;
    }
    let started = Arc::new(start());
    shared.insert(key, Arc::downgrade(&started) as Weak<dyn Any + Send + Sync>);
    started
}

/// Why the test is skipped, if a server for it is missing.
pub(crate) fn skipped(test: &str, flavour: Flavour) -> bool {
    let why = Server::missing(flavour);
    if let Some(why) = &why {
        lockkeeper::conformance::skip(test, why);
    }
    why.is_some()
}

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A plain connection to a server.
pub(crate) fn eyes(port: u16) -> Connection {
    try_eyes(port).unwrap_or_else(|error| panic!("127.0.0.1:{port}: {error}"))
}

pub(crate) fn try_eyes(port: u16) -> redis::RedisResult<Connection> {
    let connection =
        redis::Client::open(format!("redis://127.0.0.1:{port}"))?.get_connection_with_timeout(Duration::from_secs(2))?;
    connection.set_read_timeout(Some(Duration::from_secs(5)))?;
    Ok(connection)
}

/// Tells a server something, in words separated by blanks.
pub(crate) fn tell<T: redis::FromRedisValue>(eyes: &mut Connection, words: &str) -> redis::RedisResult<T> {
    let mut words = words.split(' ');
    let mut command = redis::cmd(words.next().unwrap_or_default());
    words.for_each(|word| {
        command.arg(word);
    });
    command.query(eyes)
}

/// How often a server was given a command; `INFO` calls it so.
pub(crate) fn calls(port: u16, command: &str) -> u64 {
    let stats: String = tell(&mut eyes(port), "INFO commandstats").unwrap();
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:")));
    line.and_then(|line| line.strip_prefix("calls=")?.split(',').next()?.parse().ok()).unwrap_or(0)
}

/// Polls until the condition holds.
#[track_caller]
pub(crate) fn until(what: &str, condition: impl FnMut() -> bool) {
    until_within(Duration::from_secs(40), what, condition);
}

async fn open(url: &str, runtime: &Runtime) -> Arc<RedisStore> {
    RedisStore::connect(Config::parse(url).expect("a good URL"), runtime).await.expect("running servers")
}

/// A deployment, or why there is none; held for as long as the case runs.
struct Held<T>(Result<Arc<T>, String>);

impl<T: Any + Send + Sync + Debug> Held<T> {
    fn new(key: &'static str, flavour: Flavour, start: impl FnOnce() -> T) -> Self {
        Self(Server::missing(flavour).map_or_else(|| Ok(shared(key, start)), Err))
    }

    fn get(&self) -> &T {
        self.0.as_ref().expect("not missing")
    }
}

pub(crate) struct Secured(Held<TlsServer>);

impl Secured {
    pub(crate) fn new() -> Self {
        match Proofs::missing() {
            Some(why) => Self(Held(Err(why))),
            None => Self(Held::new("tls", Flavour::Redis, TlsServer::start)),
        }
    }
}

impl Harness for Secured {
    fn time(&self) -> Time {
        Time::Real
    }

    fn missing(&self) -> Option<String> {
        self.0.0.as_ref().err().cloned()
    }

    async fn open(&self, runtime: Runtime) -> Arc<dyn Backend> {
        open(&self.0.get().fresh_url(), &runtime).await
    }
}

pub(crate) struct Sentinel(Held<Watched>);

impl Sentinel {
    pub(crate) fn new() -> Self {
        Self(Held::new("sentinel", Flavour::Redis, || Watched::start(Flavour::Redis)))
    }
}

impl Harness for Sentinel {
    fn time(&self) -> Time {
        Time::Real
    }

    fn missing(&self) -> Option<String> {
        self.0.0.as_ref().err().cloned()
    }

    async fn open(&self, runtime: Runtime) -> Arc<dyn Backend> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        open(&self.0.get().url(LAST.fetch_add(1, Ordering::Relaxed) % 2_000), &runtime).await
    }
}

pub(crate) struct Clustered(Held<Cluster>);

impl Clustered {
    pub(crate) fn new(flavour: Flavour) -> Self {
        Self(Held::new(flavour.name(), flavour, || Cluster::start(flavour)))
    }
}

impl Harness for Clustered {
    fn time(&self) -> Time {
        Time::Real
    }

    fn missing(&self) -> Option<String> {
        self.0.0.as_ref().err().cloned()
    }

    /// A cluster has one database: each case has a prefix of its own.
    async fn open(&self, runtime: Runtime) -> Arc<dyn Backend> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let store = open(&self.0.get().url(), &runtime).await;
        Arc::new(Scoped::new(store, format!("case-{}:", LAST.fetch_add(1, Ordering::Relaxed))))
    }
}
