//! A connection to the file: one immediate transaction per request, and the wake-ups that it caused, sent after the commit.
//!
//! A writer is alone from its first read to the commit, so a row cannot change in between; the version of a row is there to notice a
//! file system whose locks do nothing.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rusqlite::hooks::Wal;
use rusqlite::{Connection, OpenFlags, config::DbConfig, params};

use super::files::Files;
use super::liveness::{Instance, Liveness, PeerId, PeerState};
use super::wake::{Sent, Wakeups};
use super::{error, layout, rows};
use crate::backend::ClientCard;
use crate::error::{Error, ErrorKind, Result};
use crate::model::Wake;
use crate::name::Name;
use crate::owner::{ClientId, WireOwner};
use crate::runtime::{self, Boot, Instant, Runtime, log};
use crate::store::kit::engine::RecordEngine;

/// What all connections of one store share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) runtime: Runtime,
    pub(super) files: Arc<Files>,
    pub(super) liveness: Arc<Liveness>,
    pub(super) wakeups: Wakeups,
    pub(super) boot: Boot,
}

/// A connection to the file.
#[derive(Debug)]
pub(super) struct Database {
    pub(super) shared: Arc<Shared>,
    /// Opened when first used, and again when another file lies at the path. With device and inode.
    open: Option<(Connection, (u64, u64))>,
    /// The request under way does not wait for other writers.
    without_waiting: bool,
    /// A waiter in another process was sent a wake-up.
    woke_others: bool,
    /// The length of the write-ahead log after the last commit, in pages.
    wal_pages: Arc<AtomicUsize>,
    /// How many transactions that write were committed.
    commits: usize,
}

/// A log of so many pages is written back, as SQLite itself would do.
const LONG_WAL: usize = 1_000;

/// The same during the first commits of a connection. A process that uses the file alone reads the whole log when it opens it: where each process
/// takes one lock and ends, a long log costs each of them more than its own transactions.
const LONG_FOR_NEWCOMERS: usize = 200;
const NEWCOMER: usize = 8;

/// With more free pages than this, a checkpoint returns some to the file system: few at a time, because that blocks other writers.
const FREE_PAGES: u32 = 512;

/// Which stores to wake after the commit.
#[derive(Debug)]
pub(super) struct Recipients {
    pub(super) name: Name,
    pub(super) all: Vec<Instance>,
    pub(super) head: Option<(WireOwner, PeerId)>,
}

impl Database {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, open: None, without_waiting: false, woke_others: false, wal_pages: Arc::default(), commits: 0 }
    }

    /// Does `work` without waiting for other writers: if there is one, it fails as busy, and nothing was done.
    pub(super) fn without_waiting<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.without_waiting = true;
        let done = work(self);
        self.without_waiting = false;
        done
    }

    /// Whether a waiter in another process was sent a wake-up since this was last asked.
    pub(super) fn take_woke_others(&mut self) -> bool {
        std::mem::take(&mut self.woke_others)
    }

    pub(super) fn wal_is_long(&self) -> bool {
        let long = if self.commits <= NEWCOMER { LONG_FOR_NEWCOMERS } else { LONG_WAL };
        self.wal_pages.load(Ordering::Relaxed) >= long
    }

    /// Writes the log back into the file, which syncs both, and returns free pages to the file system.
    pub(super) fn checkpoint(&mut self) {
        let shared = Arc::clone(&self.shared);
        let written = self.connection().and_then(|connection| {
            shrink(connection)
                .and_then(|()| connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())))
                .map_err(|cause| error::of_request(cause, shared.files.file()))
        });
        self.wal_pages.store(0, Ordering::Relaxed);
        // The first write to a new log syncs once more: do it here rather than where a caller waits.
        let begun = written.and_then(|()| {
            self.transaction(true, |transaction| {
                transaction.execute("UPDATE store SET token = token WHERE one = 1", []).map(drop)
            })
        });
        if let Err(error) = begun {
            log!(debug, %error, "checkpoint failed; the next one tries again");
        }
    }

    /// The connection to the file that lies at the path now.
    fn connection(&mut self) -> Result<&mut Connection> {
        let Shared { files, boot, .. } = &*self.shared;
        let there = files.identity().ok();
        self.open.take_if(|(_, file)| Some(*file) != there);
        let (connection, _) = match &mut self.open {
            Some(open) => open,
            closed => {
                if there.is_none() {
                    files.make()?;
                }
                let file = files.identity().map_err(|cause| error::of_file(cause, "look at", files.file()))?;
                let connection =
                    open(files.file(), Arc::clone(&self.wal_pages)).map_err(|cause| error::of_request(cause, files.file()))?;
                layout::upgrade(&connection, files)?;
                layout::adopt(&connection, boot, files)?;
                closed.insert((connection, file))
            }
        };
        Ok(connection)
    }

    /// One transaction: `work` and then the commit, or nothing. Its wake-ups are sent afterwards.
    pub(super) fn transaction<T>(&mut self, writes: bool, work: impl FnOnce(&mut Transaction<'_>) -> Result<T>) -> Result<T> {
        let (answer, recipients) = self.commit(writes, work)?;
        self.commits += usize::from(writes);
        self.send_wakeups(recipients);
        Ok(answer)
    }

    /// A transaction that only reads. It waits for no writer, so it does not use up what [`without_waiting`](Self::without_waiting) asked for.
    pub(super) fn read<T>(&mut self, work: impl FnOnce(&mut Transaction<'_>) -> Result<T>) -> Result<T> {
        let without_waiting = self.without_waiting;
        let done = self.transaction(false, work);
        self.without_waiting = without_waiting;
        done
    }

    fn commit<T>(&mut self, writes: bool, work: impl FnOnce(&mut Transaction<'_>) -> Result<T>) -> Result<(T, Vec<Recipients>)> {
        let shared = Arc::clone(&self.shared);
        // Only to begin: afterwards no other writer can be in the way.
        let without_waiting = std::mem::take(&mut self.without_waiting);
        let done = self.connection().and_then(|connection| {
            let told = |cause| error::of_request(cause, shared.files.file());
            if without_waiting {
                connection.busy_handler(Some(wait_briefly)).map_err(told)?;
            }
            let begun = OpenTransaction::run(connection, begin(writes));
            if without_waiting {
                connection.busy_handler(Some(wait_for_writer)).map_err(told)?;
            }
            begun.map_err(told)?;
            let connection = &*connection;
            let open = OpenTransaction(connection);
            // Read when nobody else can take a step: the steps of all processes are in the order of this clock.
            let (at, micros) = (shared.runtime.now(), shared.runtime.wall_micros());
            let (versions, recipients, cards) = Default::default();
            let mut transaction =
                Transaction { connection, shared: &shared, at, micros, removed_token: 0, versions, recipients, cards };
            let answer = work(&mut transaction)?;
            if transaction.removed_token > 0 {
                let token = rows::storable(transaction.removed_token)?;
                transaction.execute("UPDATE store SET token = max(token, ?1) WHERE one = 1", [token])?;
            }
            let recipients = transaction.recipients;
            open.commit().map_err(|cause| error::of_commit(cause, shared.files.file()))?;
            Ok((answer, recipients))
        });
        done.inspect_err(|error| {
            // A connection that met a damaged file or a failing disk is not used again.
            if !matches!(error.kind(), ErrorKind::WrongKind | ErrorKind::InvalidArgument) && !error::is_busy(error) {
                self.open = None;
            }
        })
    }

    fn send_wakeups(&mut self, recipients: Vec<Recipients>) {
        let mut recipients = VecDeque::from(recipients);
        let mut rounds = 0;
        while let Some(Recipients { name, all, head }) = recipients.pop_front() {
            let absent: Vec<Instance> = all.into_iter().filter(|instance| !self.send(*instance, &name, Wake::ALL)).collect();
            if !absent.is_empty() {
                self.remove_listeners(&name, &absent);
            }
            let Some((head, peer)) = head else { continue };
            let wake = Wake { all: false, head: Some(head) };
            if self.send(peer.instance, &name, wake) || !matches!(self.shared.liveness.state_of(peer), PeerState::Dead) {
                continue;
            }
            // The first waiter is dead: the next one is woken now, not when the place ends. Every round removes one dead waiter; the bound is
            // for file systems that report wrong things.
            rounds += 1;
            if rounds > 1_000 {
                return;
            }
            match self.commit(true, |transaction| transaction.engine(None).forget_gone(&name)) {
                Ok(((), more)) => recipients.extend(more),
                Err(error) => log!(debug, %error, %name, "could not wake the waiter after a dead one"),
            }
        }
    }

    /// Whether anybody reads that socket.
    fn send(&mut self, to: Instance, name: &Name, wake: Wake) -> bool {
        let sent = self.shared.wakeups.send(to, name, wake);
        self.woke_others |= sent == Sent::Away;
        sent != Sent::Nowhere
    }

    /// Removes stores that could not be woken at a name. Each round of this ends with fewer of them.
    fn remove_listeners(&mut self, name: &Name, absent: &[Instance]) {
        let removed = self.transaction(true, |transaction| {
            for instance in absent {
                transaction.execute("DELETE FROM listener WHERE instance = ?1", params![instance.to_string()])?;
            }
            transaction.pass_on(name, absent.len())
        });
        if let Err(error) = removed {
            log!(debug, %error, "could not remove listeners that are gone");
        }
    }
}

/// A transaction in SQLite; undone unless committed. `BEGIN` and `COMMIT` are cached statements, because parsing them costs as much as
/// running them.
pub(super) struct OpenTransaction<'a>(&'a Connection);

impl<'a> OpenTransaction<'a> {
    pub(super) fn begin(connection: &'a Connection, writes: bool) -> rusqlite::Result<Self> {
        Self::run(connection, begin(writes))?;
        Ok(Self(connection))
    }

    pub(super) fn commit(self) -> rusqlite::Result<()> {
        Self::run(self.0, "COMMIT")
    }

    fn run(connection: &Connection, statement: &str) -> rusqlite::Result<()> {
        connection.prepare_cached(statement)?.execute([]).map(drop)
    }
}

const fn begin(writes: bool) -> &'static str {
    if writes { "BEGIN IMMEDIATE" } else { "BEGIN" }
}

impl Drop for OpenTransaction<'_> {
    fn drop(&mut self) {
        if !self.0.is_autocommit()
            && let Err(error) = Self::run(self.0, "ROLLBACK")
        {
            log!(debug, %error, "could not undo a transaction");
        }
    }
}

/// A transaction under way, on which the engine runs.
pub(super) struct Transaction<'a> {
    pub(super) connection: &'a Connection,
    pub(super) shared: &'a Shared,
    pub(super) at: Instant,
    micros: u64,
    /// The last token of names whose rows were removed; 0: none.
    pub(super) removed_token: u64,
    /// The versions of the head rows that were read.
    pub(super) versions: Vec<(Name, i64)>,
    pub(super) recipients: Vec<Recipients>,
    /// The cards that were read: in a listing one client may hold thousands of names.
    pub(super) cards: HashMap<ClientId, Option<ClientCard>>,
}

impl Transaction<'_> {
    /// Carries out requests. Owners that come in are under `peer`.
    pub(super) fn engine(&mut self, peer: Option<PeerId>) -> RecordEngine<'_, Self> {
        let (at, micros) = (self.at, self.micros);
        RecordEngine::new(self, at, micros, peer)
    }

    pub(super) fn file(&self) -> &Path {
        self.shared.files.file()
    }

    pub(super) fn told(&self, cause: rusqlite::Error) -> Error {
        error::of_request(cause, self.file())
    }

    pub(super) fn execute(&self, sql: &str, values: impl rusqlite::Params) -> Result<usize> {
        let done = self.connection.prepare_cached(sql).and_then(|mut statement| statement.execute(values));
        done.map_err(|cause| self.told(cause))
    }

    /// All rows of a query.
    pub(super) fn query<T>(
        &self,
        sql: &str,
        values: impl rusqlite::Params,
        row: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>> {
        let mut statement = self.connection.prepare_cached(sql).map_err(|cause| self.told(cause))?;
        let found = statement.query_map(values, row).and_then(Iterator::collect);
        found.map_err(|cause| self.told(cause))
    }

    /// The version of a head row as it was read last.
    pub(super) fn version(&self, name: &Name) -> i64 {
        self.versions.iter().rev().find(|(known, _)| known == name).map_or(0, |(_, version)| *version)
    }

    pub(super) fn check_written(&self, rows: usize) -> Result<()> {
        if rows == 1 {
            return Ok(());
        }
        let message = format!("{} changed during a transaction; its file system does not lock files", self.file().display());
        Err(Error::new(ErrorKind::Protocol, message))
    }
}

fn open(file: &Path, wal_pages: Arc<AtomicUsize>) -> rusqlite::Result<Connection> {
    // Never creates a file: `Files::make` does, so that it is complete when it gets its name.
    // The path has no links: one that is put in its place later is not followed.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let mut connection = Connection::open_with_flags(file, flags)?;
    connection.busy_handler(Some(wait_for_writer))?;
    // Short-lived processes do not each write the log back.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // Plans each cached statement once, not again for other parameters.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "synchronous", "normal")?;
    // Replaces SQLite's own hook, which would write the log back before the commit returns.
    connection.wal_hook(Some(move |_: &mut Wal, pages| {
        wal_pages.store(usize::try_from(pages).unwrap_or_default(), Ordering::Relaxed);
        Ok(())
    }))?;
    Ok(connection)
}

/// Returns some free pages to the file system. The statement answers with a row for each page, and stops where its reader does.
fn shrink(connection: &Connection) -> rusqlite::Result<()> {
    let free: u32 = connection.query_row("PRAGMA freelist_count", [], |row| row.get(0))?;
    if free < FREE_PAGES {
        return Ok(());
    }
    let mut statement = connection.prepare_cached("PRAGMA incremental_vacuum(64)")?;
    let mut pages = statement.query([])?;
    while pages.next()?.is_some() {}
    Ok(())
}

/// Another process writes, which takes microseconds: tries again at once, then ever less often, two seconds and more in all.
///
/// Who has waited for milliseconds waits for a writer that does not run. With hundreds of processes, attempts every 50 µs took all the time of the
/// processors, and the writer that they waited for got next to nothing of it.
fn wait_for_writer(times: i32) -> bool {
    match times {
        0..20 => std::thread::yield_now(),
        20..60 => runtime::nap(Duration::from_micros(50)),
        60..600 => runtime::nap(runtime::jitter(Duration::from_millis(1), Duration::from_millis(8))),
        _ => return false,
    }
    true
}

/// For callers that must not block: the other process may be about to finish.
fn wait_briefly(times: i32) -> bool {
    times < 20 && wait_for_writer(times)
}
