//! What is wrong with a database is told when connecting, in words, not when a lock is lost. The tables are created, rights are checked.

use std::collections::HashMap;

use super::Config;
use super::conn::Batch;
use super::link::Dialer;
use super::rows::{self, get};
use super::schema::{CLOCK, LAYOUT, TABLES, Texts};
use super::statements::Live;
use crate::backend::Finding;
use crate::error::{Error, ErrorKind, Result};
use crate::store::sql::store::SqlStore;
use crate::store::sql::{Failed, clock};

/// What is needed on each table. A locking read needs a right to write too, which the fence of a transaction has by UPDATE.
const ALL: &str = "SELECT, INSERT, UPDATE, DELETE";
const NEEDED: [(&str, &str); 5] =
    [("head", ALL), ("part", ALL), ("fence", ALL), ("client", ALL), ("store", "SELECT, UPDATE (floor)")];

/// The statements that give a user all rights that clients need.
fn grants(config: &Config) -> String {
    let user = config.user().replace('\'', "''");
    NEEDED.map(|(table, rights)| format!("GRANT {rights} ON {} TO '{user}'@'%';", config.full_table(table))).join("\n")
}

/// All that somebody has to run who may create tables, for a user who may not.
pub(super) fn setup(config: &Config) -> String {
    let tables = Texts::create_all(config).join(";\n");
    format!(
        "{tables};\n-- For a user who may not create tables (write the host of the user instead of '%'):\n{}\n",
        grants(config)
    )
}

/// Creates the tables where there are none; gives the id of the store.
pub(super) async fn prepare(live: &Live, config: &Config) -> Result<String> {
    check_clock(live, config).await?;
    if let Some(id) = facts(live, config).await? {
        check_rights(live, config).await?;
        return Ok(id);
    }
    for statement in Texts::create_all(config) {
        live.door.send(Batch::of([statement])).await.map_err(|failed| or_denied(failed, config))?;
    }
    let lost = || Error::new(ErrorKind::Unavailable, format!("the tables in {config} were created and are gone"));
    let id = facts(live, config).await?.ok_or_else(lost)?;
    check_rights(live, config).await?;
    Ok(id)
}

/// `--sysdate-is-now` makes `SYSDATE` the time at which a statement began: a request that waited would be carried out late.
async fn check_clock(live: &Live, config: &Config) -> Result<()> {
    let sets = live.door.send(Batch::of(["SELECT SYSDATE(6), SLEEP(0.01), SYSDATE(6)".to_owned()])).await;
    let sets = sets.map_err(Failed::into_error)?;
    let row = sets.first().and_then(|set| set.first());
    if row.is_some_and(|row| row.as_ref(0) == row.as_ref(2)) {
        let message = format!("{config} runs with --sysdate-is-now, which makes late requests look in time; start it without");
        return Err(Error::new(ErrorKind::Config, message));
    }
    Ok(())
}

/// The id of the store; `None`: there are no tables.
async fn facts(live: &Live, config: &Config) -> Result<Option<String>> {
    let sets = match live.door.send(Batch::of([format!("SELECT layout, id FROM {}", live.texts.store)])).await {
        Ok(sets) => sets,
        Err(failed) => {
            let error = failed.into_error();
            if server_code(&error) == Some(1146) {
                return Ok(None);
            }
            return Err(or_denied(Failed::Error(error), config));
        }
    };
    let Some(row) = sets.first().and_then(|set| set.first()) else { return Ok(None) };
    let layout: i32 = get(row, 0).map_err(Failed::into_error)?;
    if layout != LAYOUT {
        let message = format!(
            "the tables in {config} have layout {layout}, and this version of lockkeeper knows layout {LAYOUT}; \
             use one version of lockkeeper, or other tables: ?table=NAME"
        );
        return Err(Error::new(ErrorKind::Config, message));
    }
    get(row, 1).map(Some).map_err(Failed::into_error)
}

/// The number of the server's error.
fn server_code(error: &Error) -> Option<u16> {
    let cause = std::error::Error::source(error)?.downcast_ref::<mysql_async::Error>()?;
    if let mysql_async::Error::Server(told) = cause { Some(told.code) } else { None }
}

fn or_denied(failed: Failed, config: &Config) -> Error {
    let error = failed.into_error();
    if error.kind() != ErrorKind::Denied {
        return error;
    }
    let message = format!(
        "this user may neither use nor create the tables of lockkeeper in {config}; have somebody who may run what follows \
         (lockkeeper init --print prints it):\n{}",
        setup(config)
    );
    Error::new(ErrorKind::Denied, message).with_source(error)
}

/// Statements that change nothing and need one right each, with every column in them: a table of another shape is noticed too.
fn checks(config: &Config) -> Vec<(String, String)> {
    let mut checks = Vec::new();
    for ((name, columns, _), (_, rights)) in TABLES.into_iter().zip(NEEDED) {
        let table = config.table(name);
        let first = columns.split(", ").next().unwrap_or_default();
        for right in rights.split(", ") {
            let statement = match right {
                "SELECT" => format!("SELECT {columns} FROM {table} LIMIT 0"),
                "INSERT" => format!("INSERT INTO {table} ({columns}) SELECT {columns} FROM {table} WHERE FALSE"),
                "DELETE" => format!("DELETE FROM {table} WHERE FALSE"),
                "UPDATE (floor)" => format!("UPDATE {table} SET floor = floor WHERE FALSE"),
                _ => format!("UPDATE {table} SET {first} = {first} WHERE FALSE"),
            };
            checks.push((format!("{right} on {}", table.replace('`', "")), statement));
        }
    }
    checks
}

/// Refuses a user who lacks a right, with the statements that grant it.
async fn check_rights(live: &Live, config: &Config) -> Result<()> {
    let checks = checks(config);
    if live.door.send(Batch::of(checks.iter().map(|(_, statement)| statement.clone()))).await.is_ok() {
        return Ok(());
    }
    let mut missing = Vec::new();
    for (right, statement) in checks {
        match live.door.send(Batch::of([statement])).await.map_err(Failed::into_error) {
            Err(error) if error.kind() == ErrorKind::Denied => missing.push(right),
            Err(error) if server_code(&error) == Some(1146) => {
                let message =
                    format!("{config} has some tables of lockkeeper and lacks others: {error}; run lockkeeper init --print");
                return Err(Error::new(ErrorKind::Config, message).with_source(error));
            }
            Err(error) => return Err(error),
            Ok(_) => {}
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let message =
        format!("this user lacks rights in {config}: {}; have an administrator run:\n{}", missing.join(", "), grants(config));
    Err(Error::new(ErrorKind::Denied, message))
}

/// What is worth knowing of a database that can be used.
pub(super) async fn findings(store: &SqlStore<Dialer>) -> Vec<Finding> {
    look(store).await.unwrap_or_else(|error| vec![Finding::unfit("server", &error)])
}

async fn look(store: &SqlStore<Dialer>) -> Result<Vec<Finding>> {
    let (live, config) = (store.steps.link.live().await?, &store.steps.link.dial().config);
    let names = "'innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin', 'binlog_format', 'wsrep_on', 'version', 'max_connections', \
                 'innodb_lock_wait_timeout', 'transaction_isolation', 'tx_isolation', 'rpl_semi_sync_master_enabled', 'rpl_semi_sync_source_enabled', 'group_replication_group_name'";
    let engines = format!(
        "SELECT table_name, engine FROM information_schema.tables WHERE table_schema = DATABASE() AND engine <> 'InnoDB' AND table_name IN ({})",
        TABLES.map(|(name, ..)| config.table(name).replace('`', "'")).join(",")
    );
    let batch =
        Batch::of([format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})"), engines, format!("SELECT {CLOCK}")]);
    let sets = live.door.send(batch).await.map_err(Failed::into_error)?;
    let ours = store.steps.runtime.wall_micros();
    let [variables, others, time] = &sets[..] else { return Err(rows::unexpected().into_error()) };
    let time = time.first().ok_or_else(|| rows::unexpected().into_error())?;
    let mut settings = Settings::default();
    for row in variables {
        settings.0.insert(get(row, 0).map_err(Failed::into_error)?, get(row, 1).map_err(Failed::into_error)?);
    }
    let value = |name: &str| settings.value(name);
    let version = value("version");
    let kind = if version.contains("MariaDB") { "MariaDB" } else { "MySQL" };
    let mut found = vec![Finding::fine("version", format!("{kind} {version}, can be written to"))];
    let rights = NEEDED.map(|(table, rights)| format!("{rights} on {}", config.table(table).replace('`', "")));
    found.push(Finding::fine("rights", rights.join("; ")));
    if let Some(row) = others.first() {
        let table: String = get(row, 0).map_err(Failed::into_error)?;
        let error = Error::new(
            ErrorKind::Config,
            format!("{table} is no InnoDB table, so it has no row locks; ALTER TABLE {table} ENGINE=InnoDB"),
        );
        found.push(Finding::unfit("tables", &error));
    }
    let (flush, sync) = (value("innodb_flush_log_at_trx_commit"), value("sync_binlog"));
    let lossy = flush != "1" || (settings.is_on("log_bin") && sync == "0");
    let says = format!("innodb_flush_log_at_trx_commit={flush}, sync_binlog={sync}");
    found.push(if lossy {
        Finding::doubtful("durability", format!("{says}: a crash of the machine may forget the last grants; set both to 1"))
    } else {
        Finding::fine("durability", says)
    });
    // STATEMENT is refused by the server when the rights are checked.
    found.push(Finding::fine("binary log", format!("log_bin={}, binlog_format={}", value("log_bin"), value("binlog_format"))));
    found.push(of_other_servers(&settings));
    found.push(clock::compared(get(time, 0).map_err(Failed::into_error)?, ours));
    found.push(Finding::fine("isolation", "READ COMMITTED, set for each of our connections"));
    let wait = value("innodb_lock_wait_timeout");
    let says =
        format!("tried with SKIP LOCKED for 100 ms, not waited for in the server; innodb_lock_wait_timeout={wait} is not used");
    found.push(Finding::fine("row locks", says));
    let hint = if config.hints {
        "and queue for a named lock (GET_LOCK) as a hint when to look"
    } else {
        "and queue for no named lock (hint=off)"
    };
    found.push(Finding::fine(
        "notifications",
        format!("none in MySQL: waiters poll with one statement for all names of a process, every 5 to 100 ms, {hint}"),
    ));
    let most = value("max_connections");
    found.push(Finding::fine("connections", format!("2 for each client, 3 while it waits; max_connections={most}")));
    Ok(found)
}

/// Global variables of the server. One that it does not know is empty.
#[derive(Debug, Default)]
struct Settings(HashMap<String, String>);

impl Settings {
    fn value(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn is_on(&self, name: &str) -> bool {
        matches!(self.value(name), "ON" | "1")
    }
}

/// What the settings say of other servers with the same data: some that can be written to as well, or replicas.
fn of_other_servers(settings: &Settings) -> Finding {
    if settings.is_on("wsrep_on") || !settings.value("group_replication_group_name").is_empty() {
        Finding::doubtful(
            "cluster",
            "several servers that can be written to (Galera or Group Replication): row locks are local to one of them, so the fence in a \
             transaction holds only on the same server; name one server in the URL, for locks and for fenced transactions",
        )
    } else if settings.is_on("rpl_semi_sync_master_enabled") || settings.is_on("rpl_semi_sync_source_enabled") {
        Finding::fine("failover", "semi-synchronous replication is on")
    } else {
        Finding::doubtful(
            "failover",
            "asynchronous replication: a replica that is promoted may not know the last grants; turn on semi-synchronous replication, or do \
             not fail over while locks are held",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Verdict;

    #[test]
    fn what_settings_say_of_other_servers() {
        let group = "aadaaaaa-adda-adda-aaaa-aaaaaaddaaaa";
        let cluster = ("cluster", Verdict::Doubtful, "name one server in the URL");
        let alone = ("failover", Verdict::Doubtful, "turn on semi-synchronous replication");
        let semi = ("failover", Verdict::Fine, "semi-synchronous replication is on");
        for (settings, (about, verdict, says)) in [
            (&[][..], alone),
            // As servers say it that could be in a cluster, and are in none.
            (&[("wsrep_on", "OFF"), ("group_replication_group_name", "")], alone),
            (&[("wsrep_on", "ON")], cluster),
            (&[("wsrep_on", "1")], cluster),
            (&[("group_replication_group_name", group)], cluster),
            // The fence is in danger, whatever replicas there are besides.
            (&[("wsrep_on", "ON"), ("rpl_semi_sync_master_enabled", "ON")], cluster),
            (&[("rpl_semi_sync_master_enabled", "OFF")], alone),
            (&[("rpl_semi_sync_master_enabled", "ON")], semi),
            (&[("rpl_semi_sync_source_enabled", "1")], semi),
        ] {
            let known = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let told = of_other_servers(&Settings(known.collect()));
            assert!((told.about, told.verdict) == (about, verdict) && told.says.contains(says), "{settings:?}: {told:?}");
        }
    }
}
