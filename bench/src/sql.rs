//! A database of a course, and what it says of itself.

use std::process::Command;

use lockkeeper_testkit::mysql::{self, Mysql};
use lockkeeper_testkit::postgres::Postgres;

use crate::courses::{Database, Place};
use crate::results::ServerSays;

/// A running server.
pub(crate) enum SqlServer {
    Postgres(Postgres),
    MariaDb(Mysql),
}

/// Why a course cannot run here, if so.
pub(crate) fn missing(place: Place) -> Option<String> {
    match place {
        Place::Sql(Database::Postgres { .. }) => Postgres::missing(),
        Place::Sql(Database::MariaDb { .. }) => Mysql::missing(mysql::Flavour::MariaDb),
        _ => None,
    }
}

impl SqlServer {
    /// Starts one that writes to the disk, unlike those of tests.
    pub(crate) fn start(database: Database) -> Self {
        match database {
            Database::Postgres { synchronous } => {
                let synchronous = format!("synchronous_commit={}", if synchronous { "on" } else { "off" });
                // 50 processes of each of two contestants, with three connections each.
                let counted = "shared_preload_libraries=pg_stat_statements";
                let server = Postgres::start(&["fsync=on", "max_connections=600", counted, &synchronous]);
                psql(&server, "CREATE EXTENSION pg_stat_statements");
                Self::Postgres(server)
            }
            Database::MariaDb { flush } => {
                let flush = format!("--innodb-flush-log-at-trx-commit={flush}");
                let server = Mysql::start(mysql::Flavour::MariaDb, &[&flush, "--max-connections=1000"]);
                server.run("CREATE DATABASE bench");
                Self::MariaDb(server)
            }
        }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Postgres(server) => server.url(),
            Self::MariaDb(server) => server.url("bench"),
        }
    }

    /// Requests, and bytes of its log. A request is a statement on PostgreSQL, and a transaction on MariaDB: there a step of ours is several
    /// statements in one transaction and one round trip.
    pub(crate) fn says(&self) -> ServerSays {
        let (requests, written) = match self {
            Self::Postgres(server) => {
                // The server's own count of transactions lags behind by up to ten seconds.
                let sql = "SELECT sum(calls), pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0') FROM pg_stat_statements";
                two(&psql(server, sql))
            }
            Self::MariaDb(server) => {
                let value = |name| {
                    format!("(SELECT variable_value FROM information_schema.global_status WHERE variable_name = '{name}')")
                };
                let sql = format!("SELECT {} + {}, {}", value("Com_begin"), value("Com_do"), value("Innodb_os_log_written"));
                two(server.ask(&sql).as_bytes())
            }
        };
        ServerSays { requests, written, ..ServerSays::default() }
    }
}

fn psql(server: &Postgres, sql: &str) -> Vec<u8> {
    let told = Command::new("psql").args(["-XAtq", "-F", " ", "-c", sql]).arg(server.url()).output();
    told.map(|told| told.stdout).unwrap_or_default()
}

fn two(told: &[u8]) -> (f64, f64) {
    let told = String::from_utf8_lossy(told);
    let mut numbers = told.split_whitespace().map(|number| number.parse().unwrap_or(f64::NAN));
    (numbers.next().unwrap_or(f64::NAN), numbers.next().unwrap_or(f64::NAN))
}
