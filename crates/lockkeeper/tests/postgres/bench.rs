//! A store on a schema of its own, and a plain connection beside it.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::backend::{Acquire, Backend};
use lockkeeper::runtime::Runtime;
use lockkeeper::store::postgres::{Config, PostgresStore};
use lockkeeper_testkit::mysql::{Flavour, Mysql};
use lockkeeper_testkit::poll::async_until_within;
use lockkeeper_testkit::postgres::{Postgres, give};
use lockkeeper_testkit::proxy::Fault;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_postgres::{Client, NoTls};

use crate::clock::WallClock;
use crate::small_disk::SmallDisk;

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
        Some(Self::on(Postgres::shared()).await)
    }

    async fn on(server: Arc<Postgres>) -> Self {
        let url = server.fresh_url();
        let schema = url.split("schema=").nth(1).expect("a schema").to_owned();
        let runtime = Runtime::system();
        let store = connect(&url, &runtime).await;
        Self { server, url, schema, runtime, store }
    }

    /// The same on a server whose clock can be set.
    pub(crate) async fn under_a_clock(test: &str) -> Option<(Self, WallClock)> {
        if let Some(why) = Postgres::missing() {
            lockkeeper::conformance::skip(test, &why);
            return None;
        }
        let clock = WallClock::new(test)?;
        Some((Self::on(Arc::new(Postgres::start_in(clock.environment(), &[]))).await, clock))
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

    pub(crate) async fn run(&self, sql: &str) {
        self.plain().await.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// The version of the row of a name, if there is one.
    pub(crate) async fn version(&self, name: &str) -> Option<i64> {
        let version = "SELECT version FROM lockkeeper_head WHERE name = $1";
        self.plain().await.query_opt(version, &[&name.as_bytes()]).await.unwrap().map(|row| row.get(0))
    }

    pub(crate) async fn set_version(&self, name: &str, version: i64) {
        let write = "UPDATE lockkeeper_head SET version = $2 WHERE name = $1";
        self.plain().await.execute(write, &[&name.as_bytes(), &version]).await.unwrap();
    }

    pub(crate) async fn remove_rows(&self) {
        self.run("DELETE FROM lockkeeper_head; DELETE FROM lockkeeper_part").await;
    }

    /// Sends the copy of a request on a connection of its own, and reads the answer to its end.
    pub(crate) async fn send_copy(&self, request: &[u8]) {
        let mut wire = TcpStream::connect(("127.0.0.1", self.server.port)).await.unwrap();
        let parameters = b"\0\x03\0\0user\0postgres\0database\0postgres\0\0";
        let length = u32::try_from(parameters.len() + 4).unwrap();
        wire.write_all(&[&length.to_be_bytes(), &parameters[..]].concat()).await.unwrap();
        for message in [&[][..], request] {
            wire.write_all(message).await.unwrap();
            // Messages have a kind and a length. The last one says that the server is ready for more.
            while {
                let kind = wire.read_u8().await.unwrap();
                let length = usize::try_from(wire.read_u32().await.unwrap()).unwrap();
                wire.read_exact(&mut vec![0; length - 4]).await.unwrap();
                kind != b'Z'
            } {}
        }
    }

    /// A user who needs a password, may use the tables, and has so many connections.
    pub(crate) async fn create_user(&self, name: &str, password: &str, connections: u32) {
        let schema = &self.schema;
        self.run(&format!(
            "SET password_encryption = 'scram-sha-256'; CREATE ROLE {name} LOGIN PASSWORD '{password}' CONNECTION LIMIT {connections};
             GRANT USAGE ON SCHEMA {schema} TO {name}; GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {name}"
        ))
        .await;
        static FILE: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let rules = self.server.directory().join("data/pg_hba.conf");
        {
            let _alone = FILE.lock().unwrap();
            let others = std::fs::read_to_string(&rules).unwrap();
            std::fs::write(&rules, format!("host all {name} 127.0.0.1/32 scram-sha-256\n{others}")).unwrap();
        }
        self.run("SELECT pg_reload_conf()").await;
        let loaded = "SELECT 1 FROM pg_hba_file_rules WHERE $1 = ANY(user_name)";
        let plain = self.plain().await;
        let is_loaded = || async { plain.query_opt(loaded, &[&name]).await.unwrap().is_some() };
        async_until_within(Duration::from_secs(20), "the rule is there", is_loaded).await;
    }

    pub(crate) async fn connections_of(&self, user: &str) -> i64 {
        let count = "SELECT count(*) FROM pg_stat_activity WHERE usename = $1";
        self.plain().await.query_one(count, &[&user]).await.unwrap().get(0)
    }

    /// The URL of clients whose statements are ended after 50 ms.
    pub(crate) async fn with_statement_limit(&self) -> Option<String> {
        Some(format!("{}&options=-c%20statement_timeout%3D50ms", self.url))
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

/// Requests and answers of a connection are in order, so none of them vanishes alone.
pub(crate) const MORE_FAULTS: [Fault; 0] = [];

/// What a name is called in requests.
pub(crate) fn on_the_wire(name: &str) -> String {
    name.to_owned()
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

/// Begins a transaction that has the row of a name locked.
pub(crate) async fn begin_with_row(plain: &Plain, name: &str) {
    plain.batch_execute("BEGIN").await.unwrap();
    lock_row(plain, name).await.expect("nobody else has it");
}

/// Waits for the row of a name.
pub(crate) async fn lock_row(plain: &Plain, name: &str) -> Result<(), String> {
    let lock = "SELECT 1 FROM lockkeeper_head WHERE name = $1 FOR UPDATE";
    plain.query(lock, &[&name.as_bytes()]).await.map(drop).map_err(|error| error.to_string())
}

pub(crate) async fn version_of(plain: &Plain, name: &str) -> i64 {
    plain.query_one("SELECT version FROM lockkeeper_head WHERE name = $1", &[&name.as_bytes()]).await.unwrap().get(0)
}

/// Writes a version, if the row has the one that is known.
pub(crate) async fn write_if(plain: &Plain, name: &str, known: i64, next: i64) -> bool {
    let write = "UPDATE lockkeeper_head SET version = $3 WHERE name = $1 AND version = $2";
    plain.execute(write, &[&name.as_bytes(), &known, &next]).await.unwrap() == 1
}

/// Begins a transaction that creates the row of a name.
pub(crate) async fn begin_with_new_row(plain: &Plain, name: &str) {
    plain.batch_execute("BEGIN").await.unwrap();
    let insert = "INSERT INTO lockkeeper_head (name, version, token, touched) VALUES ($1, 42, 7, 0)";
    plain.execute(insert, &[&name.as_bytes()]).await.unwrap();
}

/// How long an acquire has that waits for another insert of its row, and how long that one takes. A step waits in the server for 100 ms.
pub(crate) const INSERT_WAITS: (Duration, Duration) = (Duration::from_millis(60), Duration::from_millis(90));

/// Creates the row of a name as one would write it: the time is checked when the statement begins. Tells whether it was carried out.
pub(crate) async fn insert_once_checked(plain: &Client, name: &str, limit: Duration) -> bool {
    let insert = "INSERT INTO lockkeeper_head (name, version, token, touched)
        SELECT $1::bytea, 43, 7, 0 WHERE clock_timestamp() <= now() + $2::float8 * interval '1 second'";
    plain.execute(insert, &[&name.as_bytes(), &limit.as_secs_f64()]).await.expect("the control waits without a limit") == 1
}

pub(crate) async fn roll_back(plain: &Plain) {
    plain.batch_execute("ROLLBACK").await.unwrap();
}

/// The user of URLs of the bench.
pub(crate) const ADMIN: &str = "postgres";

/// What errors call the server.
pub(crate) const KIND: &str = "PostgreSQL";

/// A second to connect.
pub(crate) const SHORT: &str = "&connect_timeout=1";

pub(crate) fn with_tls(url: &str) -> String {
    url.replace("sslmode=disable", "sslmode=prefer")
}

/// A server that speaks another SQL protocol, and its port.
pub(crate) fn other_kind() -> Option<(Arc<Mysql>, u16)> {
    if let Some(why) = Mysql::missing(Flavour::MariaDb) {
        lockkeeper::conformance::skip("postgres:// to MariaDB", &why);
        return None;
    }
    let server = Mysql::shared(Flavour::MariaDb);
    let port = server.port;
    Some((server, port))
}

/// A server whose tables are on a small disk.
pub(crate) struct FullDisk {
    pub(crate) runtime: Runtime,
    pub(crate) store: Arc<dyn Backend>,
    /// Unmounted before the server, whose folder it is in, removes its files.
    pub(crate) disk: SmallDisk,
    _server: Postgres,
}

impl FullDisk {
    pub(crate) async fn open(test: &str) -> Option<Self> {
        if let Some(why) = Postgres::missing() {
            lockkeeper::conformance::skip(test, &why);
            return None;
        }
        // The log of changes is elsewhere: the server itself goes on.
        let server = Postgres::start(&[]);
        let folder = server.directory().join("small");
        std::fs::create_dir(&folder).unwrap();
        let disk = SmallDisk::over(&folder, test)?;
        give(&folder);
        let create = format!("CREATE TABLESPACE small LOCATION '{}'", folder.display());
        plain(server.port).await.batch_execute(&create).await.unwrap();
        let runtime = Runtime::system();
        let store = connect(&format!("{}&options=-c%20default_tablespace%3Dsmall", server.fresh_url()), &runtime).await;
        Some(Self { runtime, store, disk, _server: server })
    }
}
