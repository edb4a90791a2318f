//! How a connection to the database is made.

use std::sync::Arc;
use std::time::Duration;

use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;

use super::config::{Server, TlsMode};
use super::conn::{Door, IDLE_END};
use super::schema::{CLOCK, Texts};
use super::statements::Live;
use super::{Config, error};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::{BoxFuture, Runtime};
use crate::store::kit::tls::choose_provider;
use crate::store::kit::worker::Worker;
use crate::store::sql::Dial;
use crate::store::sql::clock::Clock;
use crate::store::sql::link::first_usable;

/// How often the clock of a server is measured when connecting, unless it is known as well as this before.
const PINGS: u32 = 8;
const GOOD_CLOCK: Duration = Duration::from_millis(1);

/// How connections of a store are made, and what they share.
#[derive(Debug)]
pub(super) struct Dialer {
    pub(super) config: Config,
    pub(super) runtime: Runtime,
    pub(super) worker: Worker,
    pub(super) texts: Arc<Texts>,
}

impl Dial for Dialer {
    type Live = Live;

    fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    fn worker(&self) -> &Worker {
        &self.worker
    }

    fn has_hints(&self) -> bool {
        self.config.hints
    }

    fn open(&self) -> BoxFuture<'_, Result<Live>> {
        let silent = |server: &Server| error::of_silence(&self.config.at(server));
        Box::pin(async move {
            let (servers, limit) = (&self.config.servers, self.config.connecting);
            first_usable(servers, limit, |server| Box::pin(open(self, server)), silent).await
        })
    }
}

async fn dial(config: &Config, server: &Server) -> Result<Conn> {
    let to = config.at(server);
    // The driver uses the default of the process.
    if config.tls != TlsMode::Disabled {
        choose_provider();
    }
    match Conn::new(config.options(server, config.tls)).await {
        Err(cause) if config.tls == TlsMode::Preferred && error::has_no_tls(&cause) => {
            let plain = config.options(server, TlsMode::Disabled);
            Conn::new(plain).await.map_err(|cause| error::of_connecting(cause, &to))
        }
        dialed => dialed.map_err(|cause| error::of_connecting(cause, &to)),
    }
}

/// Opens a connection, and looks whether the server can be written to.
async fn open(dialer: &Dialer, server: &Server) -> Result<Live> {
    let (config, runtime) = (&dialer.config, &dialer.runtime);
    config.check_authorities()?;
    let mut conn = dial(config, server).await?;
    let to = config.at(server);
    let failed = |cause| error::of_connecting(cause, &to);
    // Another statement than those that follow waits for nothing: locks are tried, not waited for. Only an insert waits for another one of
    // the same name. The part for MariaDB is a comment elsewhere: it ends the transaction of a client that stopped in its middle.
    let session = format!(
        "SET SESSION time_zone = '+00:00', SESSION autocommit = 1, SESSION innodb_lock_wait_timeout = 1, SESSION lock_wait_timeout = 2, \
         SESSION wait_timeout = {IDLE_END}, SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION' \
         /*M!100300 , SESSION idle_transaction_timeout = 2 */"
    );
    let version: Option<(String, i64)> = conn.query_first("SELECT VERSION(), @@global.read_only").await.map_err(failed)?;
    let (version, read_only) =
        version.ok_or_else(|| Error::new(ErrorKind::Protocol, "mysql answered a question with nothing"))?;
    too_old(&version).map_or(Ok(()), |needs| {
        Err(Error::new(ErrorKind::Config, format!("{to} is version {version}; locks need {needs} or later, for SKIP LOCKED")))
    })?;
    if read_only != 0 {
        let message =
            format!("{to} only reads (read_only=ON), a replica perhaps; name the primary, or all servers: mysql://a,b/database");
        return Err(Error::new(ErrorKind::Unavailable, message));
    }
    conn.query_drop(session).await.map_err(failed)?;
    conn.query_drop("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await.map_err(failed)?;
    let mut clock: Option<Clock> = None;
    // A lease lasts longer by what is not known of the clock, so the first range should be small.
    for _ in 0..PINGS {
        let sent = runtime.now();
        let time: Option<i64> = conn.query_first(format!("SELECT {CLOCK}")).await.map_err(failed)?;
        let (time, heard) = (time.unwrap_or(0), runtime.now());
        match &clock {
            Some(clock) => clock.observe(time, sent, heard),
            None => clock = Some(Clock::new(time, sent, heard)),
        }
        if clock.as_ref().is_some_and(|clock| clock.window(heard).uncertainty() < GOOD_CLOCK) {
            break;
        }
    }
    let clock = clock.ok_or_else(|| Error::new(ErrorKind::Protocol, "mysql did not tell its time"))?;
    let texts = Arc::clone(&dialer.texts);
    Ok(Live { door: Door::new(conn), texts, runtime: runtime.clone(), clock: Arc::new(clock) })
}

/// The least version that a server of this version should have, if it is older.
fn too_old(version: &str) -> Option<&'static str> {
    let mut numbers = version.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or(0));
    let known = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let (least, words) = if version.contains("MariaDB") { ((10, 6, 0), "MariaDB 10.6") } else { ((8, 0, 1), "MySQL 8.0.1") };
    (known < least).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_without_skip_locked_are_too_old() {
        for (version, old) in [
            ("10.11.6-MariaDB-0+deb12u1", false),
            ("10.5.23-MariaDB", true),
            ("11.4.2-MariaDB-log", false),
            ("8.0.36", false),
            ("5.7.44-log", true),
            ("9.1.0", false),
        ] {
            assert_eq!(too_old(version).is_some(), old, "{version}");
        }
    }
}
