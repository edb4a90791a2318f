//! A store in a database of its own, and a plain connection beside it.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::backend::{Acquire, Backend};
use lockkeeper::runtime::Runtime;
use lockkeeper::store::mysql::{Config, MysqlStore};
use lockkeeper_testkit::mysql::{Flavour, Mysql};
use lockkeeper_testkit::poll::async_until_within;
use lockkeeper_testkit::postgres::Postgres;
use lockkeeper_testkit::proxy::Fault;
use mysql_async::prelude::{FromRow, Queryable};
use mysql_async::{Conn, OptsBuilder};

use super::FLAVOUR;
use super::clock::WallClock;
pub(crate) use super::requests::{ask, is_granted, owner, release, since};
use super::small_disk::SmallDisk;

/// What a URL has in addition for clients that are not notified by the server: they never are.
pub(crate) const POLLING: &str = "";

pub(crate) struct Bench {
    /// The server ends with the last test that uses it.
    pub(crate) server: Arc<Mysql>,
    pub(crate) url: String,
    pub(crate) database: String,
    pub(crate) runtime: Runtime,
    pub(crate) store: Arc<dyn Backend>,
}

impl Bench {
    /// `None`: there is no server, and that was said.
    pub(crate) async fn open(test: &str) -> Option<Self> {
        if let Some(why) = Mysql::missing(FLAVOUR) {
            lockkeeper::conformance::skip(test, &why);
            return None;
        }
        Some(Self::on(Mysql::shared(FLAVOUR)).await)
    }

    async fn on(server: Arc<Mysql>) -> Self {
        let database = server.fresh_database();
        let url = server.url(&database);
        let runtime = Runtime::system();
        let store = connect(&url, &runtime).await;
        Self { server, url, database, runtime, store }
    }

    /// The same on a server whose clock can be set.
    pub(crate) async fn under_a_clock(test: &str) -> Option<(Self, WallClock)> {
        if let Some(why) = Mysql::missing(FLAVOUR) {
            lockkeeper::conformance::skip(test, &why);
            return None;
        }
        let clock = WallClock::new(test)?;
        Some((Self::on(Arc::new(Mysql::start_in(clock.environment(), FLAVOUR, &[]))).await, clock))
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

    pub(crate) async fn run(&self, sql: &str) {
        self.plain().await.run(sql).await;
    }

    /// The version of the row of a name, if there is one.
    pub(crate) async fn version(&self, name: &str) -> Option<i64> {
        self.plain().await.first(format!("SELECT version FROM lockkeeper_head WHERE name = '{name}'")).await
    }

    pub(crate) async fn set_version(&self, name: &str, version: i64) {
        self.run(&format!("UPDATE lockkeeper_head SET version = {version} WHERE name = '{name}'")).await;
    }

    pub(crate) async fn remove_rows(&self) {
        for table in ["head", "part", "fence"] {
            self.run(&format!("DELETE FROM lockkeeper_{table}")).await;
        }
    }

    /// Sends the copy of a request on a connection of its own, and reads the answer to its end.
    pub(crate) async fn send_copy(&self, request: &[u8]) {
        let plain = self.plain().await;
        plain.run("SET SESSION time_zone = '+00:00'").await;
        // The length of the packet, its number, and a command: statements as text.
        let (header, statements) = request.split_at(5);
        assert_eq!((header[3], header[4], usize::from(header[0]) + usize::from(header[1]) * 256), (0, 3, statements.len() + 1));
        // Half of a transaction is refused elsewhere.
        let _ = plain.try_run(std::str::from_utf8(statements).unwrap()).await;
    }

    /// A user who needs a password, may use the tables, and has so many connections.
    pub(crate) async fn create_user(&self, name: &str, password: &str, connections: u32) {
        let with = format!("WITH MAX_USER_CONNECTIONS {connections}");
        self.run(&format!("CREATE USER {name}@'%' IDENTIFIED BY '{password}' {with}")).await;
        self.run(&format!("GRANT ALL ON {}.* TO {name}@'%'", self.database)).await;
    }

    pub(crate) async fn connections_of(&self, user: &str) -> i64 {
        let count = format!("SELECT count(*) FROM information_schema.processlist WHERE user = '{user}'");
        self.plain().await.first(count).await.expect("a number")
    }

    /// The URL of clients whose statements are ended after 200 ms. MySQL has such a limit for reads only.
    pub(crate) async fn with_statement_limit(&self) -> Option<String> {
        if FLAVOUR != Flavour::MariaDb {
            lockkeeper::conformance::skip("a statement timeout", "max_statement_time: MySQL limits reads only");
            return None;
        }
        self.run("CREATE USER hurried@'%' WITH MAX_STATEMENT_TIME 0.2").await;
        self.run(&format!("GRANT ALL ON {}.* TO hurried@'%'", self.database)).await;
        Some(self.url.replace("root@", "hurried@"))
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

/// A request that vanishes from a connection that goes on. Only a store that has one request under way at a time notices.
pub(crate) const MORE_FAULTS: [Fault; 1] = [Fault::LoseRequest];

/// What a name is called in requests.
pub(crate) fn on_the_wire(name: &str) -> String {
    name.bytes().map(|byte| format!("{byte:02x}")).collect()
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

/// Begins a transaction that has the row of a name locked.
pub(crate) async fn begin_with_row(plain: &Plain, name: &str) {
    plain.run("START TRANSACTION").await;
    lock_row(plain, name).await.expect("nobody else has it");
}

/// Waits for the row of a name.
pub(crate) async fn lock_row(plain: &Plain, name: &str) -> Result<(), String> {
    let lock = format!("SELECT * FROM lockkeeper_head WHERE name = '{name}' FOR UPDATE");
    plain.try_run(&lock).await.map_err(|error| error.to_string())
}

pub(crate) async fn version_of(plain: &Plain, name: &str) -> i64 {
    plain.first(format!("SELECT version FROM lockkeeper_head WHERE name = '{name}'")).await.expect("a row")
}

/// Writes a version, if the row has the one that is known.
pub(crate) async fn write_if(plain: &Plain, name: &str, known: i64, next: i64) -> bool {
    plain.run(format!("UPDATE lockkeeper_head SET version = {next} WHERE name = '{name}' AND version = {known}")).await;
    plain.first::<i64>("SELECT ROW_COUNT()").await == Some(1)
}

/// Begins a transaction that creates the row of a name.
pub(crate) async fn begin_with_new_row(plain: &Plain, name: &str) {
    plain.run("START TRANSACTION").await;
    plain.run(format!("INSERT INTO lockkeeper_head (name, version, token, touched) VALUES ('{name}', 42, 7, 0)")).await;
}

/// How long an acquire has that waits for another insert of its row, and how long that one takes. A step waits in the server for a second.
pub(crate) const INSERT_WAITS: (Duration, Duration) = (Duration::from_millis(300), Duration::from_millis(700));

/// Creates the row of a name as one would write it: the time is checked when the statement begins. Tells whether it was carried out.
pub(crate) async fn insert_once_checked(plain: &Plain, name: &str, limit: Duration) -> bool {
    let insert = "INSERT INTO lockkeeper_head (name, version, token, touched)";
    // NOW is the time at which the statement began.
    let in_time = format!("SYSDATE(6) <= NOW(6) + INTERVAL {} MICROSECOND", limit.as_micros());
    plain.run(format!("{insert} SELECT '{name}', 43, 7, 0 FROM DUAL WHERE {in_time}")).await;
    plain.first::<i64>("SELECT ROW_COUNT()").await == Some(1)
}

pub(crate) async fn roll_back(plain: &Plain) {
    plain.run("ROLLBACK").await;
}

/// The user of URLs of the bench.
pub(crate) const ADMIN: &str = "root";

/// What errors call the server.
pub(crate) const KIND: &str = "MySQL";

/// A second to connect.
pub(crate) const SHORT: &str = "&connect-timeout=1";

pub(crate) fn with_tls(url: &str) -> String {
    url.replace("ssl-mode=disabled", "ssl-mode=preferred")
}

/// A server that speaks another SQL protocol, and its port.
pub(crate) fn other_kind() -> Option<(Arc<Postgres>, u16)> {
    if let Some(why) = Postgres::missing() {
        lockkeeper::conformance::skip("mysql:// to PostgreSQL", &why);
        return None;
    }
    let server = Postgres::shared();
    let port = server.port;
    Some((server, port))
}

/// A server whose tables are on a small disk.
pub(crate) struct FullDisk {
    pub(crate) runtime: Runtime,
    pub(crate) store: Arc<dyn Backend>,
    /// Unmounted before the server, whose folder it is in, removes its files.
    pub(crate) disk: SmallDisk,
    _server: Mysql,
}

impl FullDisk {
    pub(crate) async fn open(test: &str) -> Option<Self> {
        if let Some(why) = Mysql::missing(FLAVOUR) {
            lockkeeper::conformance::skip(test, &why);
            return None;
        }
        let server = Mysql::start(FLAVOUR, &[]);
        let database = server.fresh_database();
        // The folder of the database: one file for each table. The log of changes is elsewhere.
        let disk = SmallDisk::over(&server.directory().join("data").join(&database), test)?;
        let runtime = Runtime::system();
        let store = connect(&server.url(&database), &runtime).await;
        Some(Self { runtime, store, disk, _server: server })
    }
}
