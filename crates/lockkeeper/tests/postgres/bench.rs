//! A store on a schema of its own, and a plain connection beside it.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::backend::{Acquire, Attempt, Backend, Claim, Release};
use lockkeeper::name::Name;
use lockkeeper::owner::{ClientId, WireOwner};
use lockkeeper::runtime::{Instant, Runtime};
use lockkeeper::store::postgres::{Config, PostgresStore};
use lockkeeper_testkit::postgres::Postgres;
use tokio_postgres::{Client, NoTls};

pub(crate) struct Bench {
    /// The server ends with the last test that uses it.
    pub(crate) server: Arc<Postgres>,
    pub(crate) url: String,
    pub(crate) schema: String,
    pub(crate) runtime: Runtime,
    pub(crate) store: Arc<dyn Backend>,
}

impl Bench {
    /// `None`: there is no server, and that was said.
    pub(crate) async fn open(test: &str) -> Option<Self> {
        if let Some(why) = Postgres::missing() {
            lockkeeper::conformance::skip(test, &why);
            return None;
        }
        let server = Postgres::shared();
        let url = server.fresh_url();
        let schema = url.split("schema=").nth(1).expect("a schema").to_owned();
        let runtime = Runtime::system();
        let store = connect(&url, &runtime).await;
        Some(Self { server, url, schema, runtime, store })
    }

    /// Another client of the same tables.
    pub(crate) async fn another(&self) -> Arc<dyn Backend> {
        connect(&self.url, &self.runtime).await
    }

    /// A plain connection, in the schema of the store.
    pub(crate) async fn plain(&self) -> Client {
        let client = plain(self.server.port).await;
        client.batch_execute(&format!("SET search_path = {}", self.schema)).await.expect("a schema");
        client
    }

    pub(crate) fn ask(&self, name: &str, number: u64) -> Acquire {
        ask(&self.runtime, name, number)
    }
}

/// A request that is good for a minute, and holds for as long.
pub(crate) fn ask(runtime: &Runtime, name: &str, number: u64) -> Acquire {
    let now = runtime.now();
    let minute = Duration::from_secs(60);
    Acquire::new(Name::new(name).expect("a good name"), Claim::Mutex, owner(number), minute).with_times(now, now.plus(minute))
}

pub(crate) fn owner(number: u64) -> WireOwner {
    WireOwner { client: ClientId::from_bits(0xbeef), number }
}

pub(crate) fn release(name: &str, number: u64) -> Release {
    let name = Name::new(name).expect("a good name");
    Release::new(name, Claim::Mutex, owner(number))
}

pub(crate) fn is_granted(attempt: Attempt) -> bool {
    matches!(attempt, Attempt::Granted(_))
}

pub(crate) async fn connect(url: &str, runtime: &Runtime) -> Arc<dyn Backend> {
    PostgresStore::connect(Config::parse(url).expect("a good URL"), runtime).await.expect("a running server")
}

/// A connection of the superuser.
pub(crate) async fn plain(port: u16) -> Client {
    let config = format!("host=127.0.0.1 port={port} user=postgres dbname=postgres");
    let (client, connection) = tokio_postgres::connect(&config, NoTls).await.expect("a running server");
    tokio::spawn(connection);
    client
}

/// How long after `then` it is.
pub(crate) fn since(runtime: &Runtime, then: Instant) -> Duration {
    runtime.now().since(then)
}
