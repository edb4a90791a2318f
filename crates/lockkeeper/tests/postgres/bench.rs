//! A store on a schema of its own, and a plain connection beside it.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::backend::{Acquire, Backend};
use lockkeeper::runtime::Runtime;
use lockkeeper::store::postgres::{Config, PostgresStore};
use lockkeeper_testkit::poll::async_until_within;
use lockkeeper_testkit::postgres::Postgres;
use tokio_postgres::{Client, NoTls};

pub(crate) use crate::requests::{ask, is_granted, owner, release, since};

/// What a URL has in addition for clients that are not notified by the server.
pub(crate) const POLLING: &str = "&push=off";

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

    /// Waits until somebody waits for the name, as far as its row tells.
    pub(crate) async fn until_waited_for(&self, name: &str) {
        let plain = self.plain().await;
        let marked = "SELECT 1 FROM lockkeeper_head WHERE name = $1 AND watched > 0";
        let is_marked = || async { plain.query_opt(marked, &[&name.as_bytes()]).await.unwrap().is_some() };
        async_until_within(Duration::from_secs(20), "somebody waits", is_marked).await;
    }

    /// Keeps all rows locked for some time, as a step does whose process gets no CPU.
    pub(crate) async fn lock_rows(&self, time: Duration) -> tokio::task::JoinHandle<()> {
        let plain = self.plain().await;
        plain.batch_execute("BEGIN; SELECT * FROM lockkeeper_head FOR UPDATE").await.unwrap();
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            plain.batch_execute("ROLLBACK").await.unwrap();
        })
    }

    pub(crate) fn ask(&self, name: &str, number: u64) -> Acquire {
        ask(&self.runtime, name, number)
    }
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

/// The plain connection that the comparison with the model uses.
pub(crate) type Plain = Client;

/// Makes all that ends in the rows of a name end sooner.
pub(crate) async fn make_sooner(plain: &Plain, name: &[u8], by: i64, version: i64, sooner: fn(&str, i64) -> String) {
    if let Some(row) = plain.query_opt("SELECT body FROM lockkeeper_head WHERE name = $1", &[&name]).await.unwrap() {
        let body = row.get::<_, Option<String>>(0).map(|body| sooner(&body, by));
        let write = "UPDATE lockkeeper_head SET body = $2, version = $3 WHERE name = $1";
        plain.execute(write, &[&name, &body, &version]).await.unwrap();
    }
    for row in plain.query("SELECT role, seq, owner, detail FROM lockkeeper_part WHERE name = $1", &[&name]).await.unwrap() {
        let (role, seq, owner): (i16, i64, String) = (row.get(0), row.get(1), row.get(2));
        let detail = sooner(row.get(3), by);
        let write = "UPDATE lockkeeper_part SET expires = expires - $5, detail = $6
            WHERE name = $1 AND role = $2 AND seq = $3 AND owner = $4";
        plain.execute(write, &[&name, &role, &seq, &owner, &by, &detail]).await.unwrap();
    }
}
