//! What one would write without a library, on the same database: a lock of the server's own, and a row that a transaction keeps locked.

use std::sync::Arc;

use bench_course::{Lock, Order};
use mysql_async::prelude::Queryable as _;
use tokio::sync::{Mutex, OwnedMutexGuard};

/// A connection that each lock has for itself: it is the owner.
pub(crate) enum Connection {
    Postgres(tokio_postgres::Client),
    Mysql(mysql_async::Conn),
}

impl Connection {
    async fn open(url: &str) -> Self {
        if let Some(rest) = url.strip_prefix("mysql://") {
            let url = format!("mysql://{}?prefer_socket=false", rest.split('?').next().unwrap_or_default());
            return Self::Mysql(mysql_async::Conn::from_url(url).await.expect("a server"));
        }
        let url = url.split("&schema=").next().unwrap_or_default();
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("a server");
        tokio::spawn(connection);
        Self::Postgres(client)
    }

    /// Creates a table unless it is there. PostgreSQL fails if several do that at once; one of them has made it.
    async fn create(&mut self, table: &str) {
        let sql = format!("CREATE TABLE IF NOT EXISTS {table}");
        match self {
            Self::Postgres(client) => drop(client.batch_execute(&sql).await),
            Self::Mysql(conn) => conn.query_drop(sql).await.expect("done"),
        }
    }

    /// Runs statements, in one round trip.
    async fn run(&mut self, sql: &str) {
        match self {
            Self::Postgres(client) => client.batch_execute(sql).await.expect("done"),
            Self::Mysql(conn) => conn.query_drop(sql).await.expect("done"),
        }
    }
}

/// A lock by two texts: what takes it, and what gives it back.
pub(crate) struct ByHand {
    connection: Arc<Mutex<Connection>>,
    take: String,
    give: String,
}

impl ByHand {
    /// `as=server`: `pg_advisory_lock` or `GET_LOCK`. `as=row`: `SELECT … FOR UPDATE`, with an update that its commit makes durable.
    pub(crate) async fn open(order: &Order, name: &str) -> Self {
        let url = &order.urls()[0];
        let mut connection = Connection::open(url).await;
        let is_mysql = matches!(connection, Connection::Mysql(_));
        let (take, give) = match (order.text("as"), is_mysql) {
            (Some("server"), true) => (format!("DO GET_LOCK('{name}', 60)"), format!("DO RELEASE_LOCK('{name}')")),
            (Some("server"), false) => {
                let key = name.bytes().fold(7_i64, |sum, byte| (sum * 31 + i64::from(byte)) % 1_000_000_007);
                (format!("SELECT pg_advisory_lock({key})"), format!("SELECT pg_advisory_unlock({key})"))
            }
            _ => {
                let ignore = if is_mysql { "ON DUPLICATE KEY UPDATE token = token" } else { "ON CONFLICT DO NOTHING" };
                connection.create("by_hand (name VARCHAR(100) PRIMARY KEY, token BIGINT NOT NULL)").await;
                connection.run(&format!("INSERT INTO by_hand VALUES ('{name}', 0) {ignore}")).await;
                let write = format!("UPDATE by_hand SET token = token + 1 WHERE name = '{name}'");
                (format!("BEGIN; SELECT token FROM by_hand WHERE name = '{name}' FOR UPDATE; {write}"), "COMMIT".to_owned())
            }
        };
        Self { connection: Arc::new(Mutex::new(connection)), take, give }
    }
}

impl Lock for ByHand {
    type Guard = OwnedMutexGuard<Connection>;

    async fn take(&self) -> Self::Guard {
        let mut connection = Arc::clone(&self.connection).lock_owned().await;
        connection.run(&self.take).await;
        connection
    }

    async fn give(&self, mut connection: Self::Guard) {
        connection.run(&self.give).await;
    }
}
