//! What is wrong with a database is told when connecting, in words, not when a lock is lost. And the tables are created.

use super::link::Dialer;
use super::schema::LAYOUT;
use super::statements::{Live, get};
use super::{Config, error, rights};
use crate::backend::Finding;
use crate::error::{Error, ErrorKind, Result};
use crate::store::sql::Failed;
use crate::store::sql::store::SqlStore;

/// Creates the tables where there are none; gives the id of the store.
pub(super) async fn prepare(live: &Live, config: &Config) -> Result<String> {
    if let Some(id) = facts(live, config).await? {
        rights::check(live, config).await?;
        return Ok(id);
    }
    create(live, config).await?;
    let lost = || Error::new(ErrorKind::Unavailable, format!("the tables in {config} were created and are gone"));
    facts(live, config).await?.ok_or_else(lost)
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
            (SELECT coalesce(max(age(backend_xmin)), 0)::int8 FROM pg_stat_activity WHERE pid <> pg_backend_pid())";
    let rows = store.steps.link.live().await?.query(settings, &[]).await.map_err(Failed::into_error)?;
    let row = rows.first().ok_or_else(|| Error::new(ErrorKind::Protocol, "postgres answered a question with nothing"))?;
    let text = |column: usize| get::<String>(row, column).map_err(Failed::into_error);
    let (version, commit, fsync, standbys, isolation) = (text(0)?, text(1)?, text(2)?, text(3)?, text(4)?);
    let oldest: i64 = get(row, 5).map_err(Failed::into_error)?;
    let mut found = vec![Finding::fine("version", format!("PostgreSQL {version}, the primary"))];
    found.push(Finding::fine("rights", rights::in_words(&store.steps.link.dial().config)));
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
    if oldest > 1_000_000 {
        let says = format!(
            "a transaction of another client is {oldest} transactions old; rows that change often get slow until it ends"
        );
        found.push(Finding::doubtful("old transactions", says));
    }
    found.push(if store.steps.link.dial().config.push {
            Finding::fine("notifications", "LISTEN/NOTIFY; behind a pooler in transaction mode write ?push=off")
        } else {
            Finding::doubtful("notifications", "push=off: waiters poll with one statement for all names of a process, every 5 to 100 ms: a release may be learned of 100 ms late")
        });
    Ok(found)
}
