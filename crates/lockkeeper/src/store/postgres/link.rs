//! How a connection to the database is made, and a transaction on it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Connection, Socket};

use super::columns::get;
use super::config::CONNECTING;
use super::schema::Texts;
use super::statements::Live;
use super::tls::{Connector, TlsStream};
use super::{Config, error};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::runtime::{self, BoxFuture, Runtime, log};
use crate::store::kit::worker::Worker;
use crate::store::sql::clock::{Clock, Window};
use crate::store::sql::link::first_usable;
use crate::store::sql::rows::NameRows;
use crate::store::sql::{Bounds, Dial, Failed, Outcome, Put};

/// A connection on which a transaction takes longer than this is not used again.
const TRANSACTION: Duration = Duration::from_secs(5);

/// How often the clock of a server is measured when connecting, unless it is known as well as this before.
const PINGS: u32 = 8;
const GOOD_CLOCK: Duration = Duration::from_millis(1);

/// The oldest server that is known to work.
const OLDEST: i32 = 12;

/// How connections of a store are made, and what they share.
#[derive(Debug)]
pub(super) struct Dialer {
    pub(super) config: Config,
    /// The same for each server of the URL alone.
    pub(super) servers: Vec<Config>,
    pub(super) runtime: Runtime,
    pub(super) worker: Worker,
    pub(super) texts: Arc<Texts>,
    /// Where notifications are sent; set when the tables were looked at.
    pub(super) channel: Arc<OnceLock<String>>,
}

/// Opens a connection. The caller drives it.
pub(super) async fn dial(config: &Config) -> Result<(Client, Connection<Socket, TlsStream>)> {
    let connector = Connector::new(&config.tls)?;
    config.driver.connect(connector).await.map_err(|cause| error::of_connecting(cause, config))
}

/// Opens a connection for statements, and looks whether the server can be written to.
async fn open(shared: &Dialer, server: &Config) -> Result<Live> {
    let (client, connection) = dial(server).await?;
    runtime::spawn(async move {
        if let Err(error) = connection.await {
            log!(debug, %error, "a connection to postgres ended");
        }
    });
    let facts = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8, pg_is_in_recovery(),
        current_setting('transaction_read_only') = 'on', current_setting('server_version_num')::int4";
    let session = shared.config.push;
    if session {
        // Short statements are neither worth compiling nor planning anew. Not behind a pooler: a setting would stay for its other clients.
        client
            .batch_execute("SET jit = off; SET plan_cache_mode = force_generic_plan")
            .await
            .map_err(|cause| error::of_request(cause).into_error())?;
    }
    let sent = shared.runtime.now();
    let rows = client.query_typed(facts, &[]).await.map_err(|cause| error::of_request(cause).into_error())?;
    let heard = shared.runtime.now();
    let row = rows.first().ok_or_else(|| Error::new(ErrorKind::Protocol, "postgres answered a question with nothing"))?;
    let (clock, standby): (i64, bool) = (field(row, 0)?, field(row, 1)?);
    let (read_only, version): (bool, i32) = (field(row, 2)?, field(row, 3)?);
    let to = server;
    if standby {
        let message = format!("{to} is a standby, which only reads; name the primary, or all servers: postgres://a,b/database");
        return Err(Error::new(ErrorKind::Unavailable, message));
    }
    if read_only {
        let message = format!("{to} only reads (default_transaction_read_only); locks have to be written");
        return Err(Error::new(ErrorKind::Unavailable, message));
    }
    if version / 10_000 < OLDEST {
        let message = format!("{to} is PostgreSQL {}; locks need {OLDEST} or later", version / 10_000);
        return Err(Error::new(ErrorKind::Config, message));
    }
    let clock = Clock::new(clock, sent, heard);
    // A lease lasts longer by what is not known of the clock, so the first range should be small.
    for _ in 0..PINGS {
        let sent = shared.runtime.now();
        if clock.window(sent).uncertainty() < GOOD_CLOCK {
            break;
        }
        let ping = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8";
        let rows = client.query_typed(ping, &[]).await.map_err(|cause| error::of_request(cause).into_error())?;
        let heard = shared.runtime.now();
        if let Some(row) = rows.first() {
            clock.observe(field(row, 0)?, sent, heard);
        }
    }
    let live = Live::new(client, Arc::clone(&shared.texts), Arc::clone(&shared.channel), shared.runtime.clone(), clock);
    Ok(if session { live } else { live.unprepared() })
}

fn field<'a, T: tokio_postgres::types::FromSql<'a>>(row: &'a tokio_postgres::Row, column: usize) -> Result<T> {
    get(row, column).map_err(Failed::into_error)
}

impl Dial for Dialer {
    type Live = Live;

    fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    fn worker(&self) -> &Worker {
        &self.worker
    }

    fn open(&self) -> BoxFuture<'_, Result<Live>> {
        Box::pin(async move {
            let limit = self.servers.first().map_or(CONNECTING, Config::opening);
            first_usable(&self.servers, limit, |server| Box::pin(open(self, server)), error::of_silence).await
        })
    }
}

/// A transaction that locks the row first: two round trips, in which nobody else uses the connection.
pub(super) async fn locked<T>(
    live: &Live,
    name: &Name,
    compute: impl FnOnce(NameRows, Window) -> (T, Option<(Put, Bounds)>),
) -> std::result::Result<(T, Option<Outcome>), Failed> {
    let begun = AtomicBool::new(false);
    let alone = async {
        let _alone = live.gate.write().await;
        live.check()?;
        begun.store(true, Ordering::Relaxed);
        let mut unfinished = Unfinished(Some(live));
        let done = in_transaction(live, name, compute).await;
        if done.is_ok() || live.client.batch_execute("ROLLBACK").await.is_ok() {
            unfinished.0 = None;
        }
        done
    };
    if let Some(done) = runtime::within(TRANSACTION, Box::pin(alone)).await {
        return done;
    }
    live.discard();
    let kind = if begun.load(Ordering::Relaxed) { ErrorKind::Indeterminate } else { ErrorKind::Unavailable };
    Err(Failed::Error(Error::new(kind, format!("postgres did not carry out a transaction within {TRANSACTION:?}"))))
}

/// A transaction that may be open. If nobody ends it, the connection is given up, before anybody passes the gate; the server undoes the
/// transaction when the connection ends.
struct Unfinished<'a>(Option<&'a Live>);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(live) = self.0 {
            live.discard();
        }
    }
}

async fn in_transaction<T>(
    live: &Live,
    name: &Name,
    compute: impl FnOnce(NameRows, Window) -> (T, Option<(Put, Bounds)>),
) -> std::result::Result<(T, Option<Outcome>), Failed> {
    let begin = async {
        // The second limit ends the transaction of a client that stops before its second round trip: its row would stay locked.
        let begin = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '100ms'; \
                     SET LOCAL idle_in_transaction_session_timeout = '2s'";
        live.client.batch_execute(begin).await.map_err(error::of_request)
    };
    let bytes = name.as_str().as_bytes();
    let lock_parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 1] = [(&bytes, Type::BYTEA)];
    let lock = live.query_alone(&live.texts.lock, &lock_parameters);
    let sent = live.runtime.now();
    // In one round trip, carried out in this order. The rows are read by a snapshot that is taken when the lock is held.
    let (begun, locked, read) = tokio::join!(begin, lock, live.run_read(true, std::slice::from_ref(name)));
    begun?;
    locked?;
    let read = read?;
    live.clock.observe(read.clock, sent, live.runtime.now());
    let rows = read.told.into_iter().next().unwrap_or_default();
    let (answer, put) = compute(rows, live.clock.window(live.runtime.now()));
    let commit = async { live.client.batch_execute("COMMIT").await.map_err(error::of_request) };
    let Some((put, bounds)) = put else {
        commit.await?;
        return Ok((answer, None));
    };
    let write = async {
        if put.version.is_none() {
            live.run_insert(true, &put, bounds).await.map(|answer| answer.told)
        } else {
            let answer = live.run_put(true, std::slice::from_ref(&put), bounds, false).await?;
            Ok(answer.told.into_iter().next().unwrap_or_else(|| Outcome::Refused(Box::default())))
        }
    };
    // A commit after a statement that failed undoes the transaction.
    let (written, committed) = tokio::join!(write, commit);
    let outcome = written?;
    committed?;
    Ok((answer, Some(outcome)))
}
