//! A store in a database of its own, and a plain connection beside it.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::backend::{Acquire, Backend};
use lockkeeper::runtime::Runtime;
use lockkeeper::store::mysql::{Config, MysqlStore};
use lockkeeper_testkit::mariadb::MariaDb;
use lockkeeper_testkit::poll::async_until_within;
use mysql_async::prelude::{FromRow, Queryable};
use mysql_async::{Conn, OptsBuilder};

pub(crate) use crate::requests::{ask, is_granted, owner, release, since};

/// What a URL has in addition for clients that are not notified by the server: they never are.
pub(crate) const POLLING: &str = "";

pub(crate) struct Bench {
    /// The server ends with the last test that uses it.
    pub(crate) server: Arc<MariaDb>,
    pub(crate) url: String,
    pub(crate) database: String,
    pub(crate) runtime: Runtime,
    pub(crate) store: Arc<dyn Backend>,
}

impl Bench {
    /// `None`: there is no server, and that was said.
    pub(crate) async fn open(test: &str) -> Option<Self> {
        if let Some(why) = MariaDb::missing() {
            lockkeeper::conformance::skip(test, &why);
            return None;
        }
        let server = MariaDb::shared();
        let database = server.fresh_database();
        let url = server.url(&database);
        let runtime = Runtime::system();
        let store = connect(&url, &runtime).await;
        Some(Self { server, url, database, runtime, store })
    }

    /// Another client of the same tables.
    pub(crate) async fn another(&self) -> Arc<dyn Backend> {
        connect(&self.url, &self.runtime).await
    }

    /// A plain connection, in the database of the store.
    pub(crate) async fn plain(&self) -> Plain {
        plain(self.server.port, &self.database).await
    }

    /// Waits until somebody waits for the name, as far as its row tells.
    pub(crate) async fn until_waited_for(&self, name: &str) {
        let plain = self.plain().await;
        let marked = format!("SELECT 1 FROM lockkeeper_head WHERE name = {} AND watched > 0", hex(name.as_bytes()));
        let is_marked = || async { plain.first::<i64>(marked.clone()).await.is_some() };
        async_until_within(Duration::from_secs(20), "somebody waits", is_marked).await;
    }

    /// Keeps all rows locked for some time, as a step does whose process gets no CPU.
    pub(crate) async fn lock_rows(&self, time: Duration) -> tokio::task::JoinHandle<()> {
        let plain = self.plain().await;
        plain.run("START TRANSACTION").await;
        plain.run("SELECT * FROM lockkeeper_head FOR UPDATE").await;
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            plain.run("ROLLBACK").await;
        })
    }

    pub(crate) fn ask(&self, name: &str, number: u64) -> Acquire {
        ask(&self.runtime, name, number)
    }
}

pub(crate) async fn connect(url: &str, runtime: &Runtime) -> Arc<dyn Backend> {
    MysqlStore::connect(Config::parse(url).expect("a good URL"), runtime).await.expect("a running server")
}

/// A connection of the superuser.
pub(crate) struct Plain(tokio::sync::Mutex<Conn>);

pub(crate) async fn plain(port: u16, database: &str) -> Plain {
    let options = OptsBuilder::default().ip_or_hostname("127.0.0.1").tcp_port(port).prefer_socket(false);
    let options = options.user(Some("root")).db_name(Some(database));
    Plain(tokio::sync::Mutex::new(Conn::new(options).await.expect("a running server")))
}

impl Plain {
    /// Runs statements.
    pub(crate) async fn run(&self, sql: impl Into<String>) {
        let sql = sql.into();
        if let Err(error) = self.try_run(&sql).await {
            panic!("{sql}: {error}");
        }
    }

    pub(crate) async fn try_run(&self, sql: &str) -> mysql_async::Result<()> {
        self.0.lock().await.query_drop(sql).await
    }

    /// The first row of an answer.
    pub(crate) async fn first<T: FromRow + Send + 'static>(&self, sql: impl Into<String>) -> Option<T> {
        let sql = sql.into();
        self.0.lock().await.query_first(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    pub(crate) async fn all<T: FromRow + Send + 'static>(&self, sql: impl Into<String>) -> Vec<T> {
        let sql = sql.into();
        self.0.lock().await.query(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }
}

/// Bytes as statements have them.
pub(crate) fn hex(bytes: &[u8]) -> String {
    format!("x'{}'", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

/// Makes all that ends in the rows of a name end sooner.
pub(crate) async fn make_sooner(plain: &Plain, name: &[u8], by: i64, version: i64, sooner: fn(&str, i64) -> String) {
    let name = hex(name);
    let body = plain.first::<Option<String>>(format!("SELECT body FROM lockkeeper_head WHERE name = {name}")).await;
    if let Some(body) = body {
        let body = body.map_or_else(|| "NULL".to_owned(), |body| hex(sooner(&body, by).as_bytes()));
        plain.run(format!("UPDATE lockkeeper_head SET body = {body}, version = {version} WHERE name = {name}")).await;
    }
    let parts = format!("SELECT role, seq, owner, detail FROM lockkeeper_part WHERE name = {name}");
    for (role, seq, owner, detail) in plain.all::<(i16, i64, String, String)>(parts).await {
        let (owner, detail) = (hex(owner.as_bytes()), hex(sooner(&detail, by).as_bytes()));
        plain
            .run(format!(
                "UPDATE lockkeeper_part SET expires = expires - {by}, detail = {detail}
                 WHERE name = {name} AND role = {role} AND seq = {seq} AND owner = {owner}"
            ))
            .await;
    }
}
