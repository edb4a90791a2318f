//! What is wrong with a database is told when connecting, in words, not when a lock is lost. And the tables are created.

use tokio_postgres::types::Type;

use super::columns::get;
use super::link::Dialer;
use super::schema::LAYOUT;
use super::statements::Live;
use super::{Config, error, listen, rights};
use crate::backend::Finding;
use crate::error::{Error, ErrorKind, Result};
use crate::store::sql::store::SqlStore;
use crate::store::sql::{Failed, clock};

/// A statement waits up to 100 ms for a row lock, and its commit for the disk. A `statement_timeout` below this many ms ends too many of them.
const LEAST_STATEMENT_MS: i64 = 1_000;

/// Creates the tables where there are none; gives the id of the store.
pub(super) async fn prepare(live: &Live, config: &Config) -> Result<String> {
    if let Some(id) = facts(live, config).await? {
        rights::check(live, config).await?;
        check_shape(live).await?;
        return Ok(id);
    }
    create(live, config).await?;
    let lost = || Error::new(ErrorKind::Unavailable, format!("the tables in {config} were created and are gone"));
    let id = facts(live, config).await?.ok_or_else(lost)?;
    // `IF NOT EXISTS` accepts any table of that name.
    check_shape(live).await?;
    Ok(id)
}

async fn check_shape(live: &Live) -> Result<()> {
    live.client.query_typed(&live.texts.shape, &[]).await.map(drop).map_err(|cause| error::of_request(cause).into_error())
}

/// The id of the store; `None`: there are no tables.
async fn facts(live: &Live, config: &Config) -> Result<Option<String>> {
    let rows = match live.client.query_typed(&live.texts.facts, &[]).await {
        Ok(rows) => rows,
        Err(cause) if error::is_missing_table(&cause) => return Ok(None),
        Err(cause) if is_denied(&cause) => return Err(denied(config).with_source(cause)),
        Err(cause) => return Err(error::of_request(cause).into_error()),
    };
    let Some(row) = rows.first() else { return Ok(None) };
    let layout: i32 = get(row, 0).map_err(Failed::into_error)?;
    if layout != LAYOUT {
        let message = format!(
            "the tables in {config} have layout {layout}, and this version of lockkeeper knows layout {LAYOUT}; \
             use one version of lockkeeper, or another schema: ?schema=NAME"
        );
        return Err(Error::new(ErrorKind::Config, message));
    }
    get::<String>(row, 1).map(Some).map_err(Failed::into_error)
}

async fn create(live: &Live, config: &Config) -> Result<()> {
    // One transaction, and one client at a time: CREATE … IF NOT EXISTS fails when two clients come at once.
    let all = format!("SELECT pg_advisory_xact_lock(7811312071);\n{}", live.texts.create_all());
    match live.client.batch_execute(&all).await {
        Ok(()) => Ok(()),
        Err(cause) if is_denied(&cause) => Err(denied(config).with_source(cause)),
        Err(cause) => Err(error::of_request(cause).into_error()),
    }
}

fn is_denied(cause: &tokio_postgres::Error) -> bool {
    cause.code().is_some_and(|code| code.code() == "42501")
}

/// What to run where this user lacks rights.
fn denied(config: &Config) -> Error {
    let message = format!(
        "this user may neither use nor create the tables of lockkeeper in {config}; have somebody who may run what follows \
         (lockkeeper init --print prints it):\n{}",
        rights::setup(config)
    );
    Error::new(ErrorKind::Denied, message)
}

/// What is worth knowing of a database that can be used.
pub(super) async fn findings(store: &SqlStore<Dialer>) -> Vec<Finding> {
    look(store).await.unwrap_or_else(|error| vec![Finding::unfit("server", &error)])
}

async fn look(store: &SqlStore<Dialer>) -> Result<Vec<Finding>> {
    let settings = "SELECT current_setting('server_version'), current_setting('synchronous_commit'), current_setting('fsync'),
            current_setting('synchronous_standby_names'), current_setting('default_transaction_isolation'),
            (SELECT coalesce(max(age(backend_xmin)), 0)::int8 FROM pg_stat_activity WHERE pid <> pg_backend_pid()),
            (extract(epoch FROM clock_timestamp()) * 1000000)::int8, current_setting('lock_timeout'), current_setting('statement_timeout'),
            (SELECT setting::int8 FROM pg_settings WHERE name = 'statement_timeout'),
            (SELECT string_agg(relname, ', ' ORDER BY relname) FROM pg_class WHERE relpersistence <> 'p' AND oid = ANY($1::text[]::regclass[]))";
    let config = &store.steps.link.dial().config;
    let tables = ["head", "part", "client", "store"].map(|table| config.table(table));
    let tables = tables.as_slice();
    let live = store.steps.link.live().await?;
    let rows = live.query(settings, &[(&tables, Type::TEXT_ARRAY)]).await.map_err(Failed::into_error)?;
    let ours = store.steps.runtime.wall_micros();
    let row = rows.first().ok_or_else(|| Error::new(ErrorKind::Protocol, "postgres answered a question with nothing"))?;
    let text = |column: usize| get::<String>(row, column).map_err(Failed::into_error);
    let (version, commit, fsync, standbys, isolation) = (text(0)?, text(1)?, text(2)?, text(3)?, text(4)?);
    let oldest: i64 = get(row, 5).map_err(Failed::into_error)?;
    let mut found = vec![Finding::fine("version", format!("PostgreSQL {version}, the primary"))];
    found.push(Finding::fine("rights", rights::in_words(config)));
    found.extend(get::<Option<String>>(row, 10).map_err(Failed::into_error)?.map(|unlogged| {
        let says = format!(
            "not logged: {unlogged}; a crash of the server, or a failover, empties them and forgets who holds what; \
             run ALTER TABLE … SET LOGGED on each"
        );
        Finding::doubtful("tables", says)
    }));
    found.push(clock::compared(get(row, 6).map_err(Failed::into_error)?, ours));
    found.push(if commit == "off" || fsync == "off" {
        Finding::doubtful(
            "durability",
            format!(
                "synchronous_commit={commit}, fsync={fsync}: a crash of the server may forget the last grants; set both to on"
            ),
        )
    } else {
        Finding::fine("durability", format!("synchronous_commit={commit}, fsync={fsync}"))
    });
    found.push(if standbys.is_empty() {
        Finding::doubtful(
            "failover",
            "no synchronous standby: a standby that is promoted may not know the last grants; set synchronous_standby_names, \
                 or do not fail over while locks are held",
        )
    } else {
        Finding::fine("failover", format!("synchronous_standby_names={standbys}"))
    });
    found.push(if isolation == "read committed" {
        Finding::fine("isolation", isolation)
    } else {
        Finding::doubtful("isolation", format!("{isolation}: steps that meet are repeated; read committed is faster"))
    });
    found.push(of_limits(&text(7)?, &text(8)?, get(row, 9).map_err(Failed::into_error)?, config));
    if oldest > 1_000_000 {
        let says = format!(
            "a transaction of another client is {oldest} transactions old; rows that change often get slow until it ends"
        );
        found.push(Finding::doubtful("old transactions", says));
    }
    found.push(if config.push {
        of_notifications(listen::arrive(&store.steps.link).await)
    } else {
        Finding::doubtful(
            "notifications",
            "push=off: waiters poll with one statement for all names of a process, every 5 to 100 ms: a release may be learned of \
             100 ms late",
        )
    });
    Ok(found)
}

fn of_notifications(arrived: Result<bool>) -> Finding {
    match arrived {
        Ok(true) => Finding::fine("notifications", "LISTEN/NOTIFY: one was sent, and arrived"),
        Ok(false) => {
            let says = format!(
                "LISTEN/NOTIFY: one was sent, and did not arrive within {:?}. A pooler in transaction mode loses them: waiters learn of a \
                 release only when they ask again, after about a second. Write ?push=off in the URL, which polls every 5 to 100 ms, or \
                 connect to the server without the pooler",
                listen::ARRIVING
            );
            Finding::doubtful("notifications", says)
        }
        Err(error) => {
            let says =
                format!("cannot listen: {error}; waiters ask again after about a second. Write ?push=off in the URL to poll");
            Finding::doubtful("notifications", says)
        }
    }
}

/// What the settings `lock_timeout` and `statement_timeout` mean. The first is set by each of our statements; the second ends them.
fn of_limits(lock: &str, statement: &str, statement_ms: i64, config: &Config) -> Finding {
    if statement_ms == 0 || statement_ms >= LEAST_STATEMENT_MS {
        let says =
            format!("statements wait 100 ms for a row lock (lock_timeout={lock} is not used); statement_timeout={statement}");
        return Finding::fine("time limits", says);
    }
    let says = format!(
        "statement_timeout={statement} ends statements that wait for a row lock or a slow disk, and requests fail; \
         run ALTER ROLE {} SET statement_timeout = '5s'",
        rights::user(config)
    );
    Finding::doubtful("time limits", says)
}
