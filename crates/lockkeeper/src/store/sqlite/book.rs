//! The file as tables: one immediate transaction per request, in which the model takes its step on a row.
//!
//! Who writes is alone, from the first read to the commit, so a row cannot change in between; its version is there to notice a
//! file system whose locks do nothing. The wake-ups of a step are sent after the commit, never before.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rusqlite::hooks::Wal;
use rusqlite::{Connection, OpenFlags, config::DbConfig, params};
use serde::{Deserialize, Serialize};

use super::error;
use super::letters::Call;
use super::life::{Instance, LifeId, Lives, Sign};
use super::notify::{Post, Sent};
use super::place::Place;
use crate::error::{Error, ErrorKind, Result};
use crate::model::{Now, Record, Wake};
use crate::name::Name;
use crate::owner::WireOwner;
use crate::runtime::{self, Boot, Instant, Runtime};

/// The file, and those whom its steps concern: what all connections of one store share.
#[derive(Debug)]
pub(super) struct Ties {
    pub(super) runtime: Runtime,
    pub(super) place: Arc<Place>,
    pub(super) lives: Arc<Lives>,
    pub(super) post: Post,
    pub(super) boot: Boot,
}

/// A connection to the file.
#[derive(Debug)]
pub(super) struct Book {
    pub(super) ties: Arc<Ties>,
    /// Opened when first used, and again when another file lies there.
    open: Option<(Connection, (u64, u64))>,
    /// The request under way does not wait for others who write.
    hurried: bool,
    /// Somebody in another process was written to.
    wrote: bool,
    /// How long the log was after the last commit, in pages.
    log: Arc<AtomicUsize>,
}

/// A log of so many pages is written back, as SQLite itself would.
const LONG: usize = 1_000;

/// What lies under one name: the model's record, and the life that each owner in it is under.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) record: Record,
    lives: Vec<(WireOwner, LifeId)>,
    /// The last token given out for the name. The store's own is written only when a row goes: that is one page less for most who follow another.
    #[serde(default)]
    last_token: u64,
}

impl Row {
    pub(super) fn life_of(&self, owner: WireOwner) -> Option<LifeId> {
        self.lives.iter().find(|(known, _)| *known == owner).map(|(_, life)| *life)
    }

    /// Takes the dead out. Whoever has no life here lives by the lease alone.
    pub(super) fn bury(&mut self, lives: &Lives) -> Wake {
        let mut dead: Vec<LifeId> = Vec::new();
        for life in self.others(lives) {
            if !dead.contains(&life) && matches!(lives.sign(life), Sign::Dead) {
                dead.push(life);
            }
        }
        if dead.is_empty() {
            return Wake::NOBODY;
        }
        let of_the_dead = |owner| self.lives.iter().any(|(known, life)| *known == owner && dead.contains(life));
        self.record.forget(&of_the_dead)
    }

    /// The lives in it that are not ours, holders first.
    fn others(&self, lives: &Lives) -> Vec<LifeId> {
        let mut found = Vec::new();
        for life in self.record.owners().into_iter().filter_map(|owner| self.life_of(owner)) {
            // Also an earlier life of ours, which is over.
            if !found.contains(&life) && !lives.is_current(life) {
                found.push(life);
            }
        }
        found
    }

    /// Every owner in it has a life, the newcomers of this step the present one, and nobody else does.
    fn enrol(&mut self, life: Option<LifeId>, newcomer: Option<WireOwner>) {
        let owners = self.record.owners();
        self.lives.retain(|(owner, _)| owners.contains(owner) && Some(*owner) != newcomer);
        let Some(life) = life else { return };
        for owner in owners {
            if self.life_of(owner).is_none() {
                self.lives.push((owner, life));
            }
        }
    }
}

/// What a step begins with.
pub(super) struct Found {
    /// No token given out for the name is larger.
    last_token: u64,
    /// Of the row, if something lies under the name.
    version: Option<i64>,
    pub(super) row: Row,
}

/// What the answer to a step tells the book.
pub(super) trait Answer {
    /// Somebody was in the way: if that one is dead, the step is worth another try.
    fn is_blocked(&self) -> bool;
    /// The token that was given out.
    fn token(&self) -> Option<u64>;
}

impl Book {
    pub(super) fn new(ties: Arc<Ties>) -> Self {
        Self { ties, open: None, hurried: false, wrote: false, log: Arc::default() }
    }

    /// Does `work` without waiting for others who write: then it fails as busy, and nothing was done.
    pub(super) fn in_a_hurry<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.hurried = true;
        let done = work(self);
        self.hurried = false;
        done
    }

    /// Whether somebody in another process was written to since this was last asked.
    pub(super) fn has_written(&mut self) -> bool {
        std::mem::take(&mut self.wrote)
    }

    pub(super) fn log_is_long(&self) -> bool {
        self.log.load(Ordering::Relaxed) >= LONG
    }

    /// Writes the log back into the file, which syncs both.
    pub(super) fn write_log_back(&mut self) {
        let ties = Arc::clone(&self.ties);
        let written = self.connection().and_then(|connection| {
            let written = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
            written.map_err(|cause| error::of_request(cause, ties.place.file()))
        });
        self.log.store(0, Ordering::Relaxed);
        // The first to write in a new log syncs once more: better here than where somebody waits.
        let begun = written
            .and_then(|()| self.turn(true, |turn| turn.execute("UPDATE store SET token = token WHERE one = 1", []).map(drop)));
        if let Err(error) = begun {
            tracing::debug!(%error, "could not write the log back; the next one tries again");
        }
    }

    /// The connection, to the file that lies there now.
    fn connection(&mut self) -> Result<&mut Connection> {
        let there = self.ties.place.identity().ok();
        if self.open.as_ref().is_some_and(|(_, file)| Some(*file) == there) {
            return Ok(&mut self.open.as_mut().expect("just seen").0);
        }
        self.open = None;
        if there.is_none() {
            self.ties.place.make()?;
        }
        let file = self.ties.place.identity().map_err(|cause| error::of_file(cause, "look at", self.ties.place.file()))?;
        let connection = open(self.ties.place.file(), Arc::clone(&self.log))
            .map_err(|cause| error::of_request(cause, self.ties.place.file()))?;
        adopt(&connection, &self.ties.boot, &self.ties.place)?;
        Ok(&mut self.open.insert((connection, file)).0)
    }

    /// One transaction: `work` and then the commit, or nothing. What it calls for is sent afterwards.
    pub(super) fn turn<T>(&mut self, writes: bool, work: impl FnOnce(&mut Turn<'_>) -> Result<T>) -> Result<T> {
        let ties = Arc::clone(&self.ties);
        let Ties { runtime, place, lives, post, boot } = &*ties;
        // Only to begin it: nobody else is in the way after that.
        let hurried = std::mem::take(&mut self.hurried);
        let done = self.connection().and_then(|connection| {
            let told = |cause| error::of_request(cause, place.file());
            if hurried {
                connection.busy_handler(Some(be_brief)).map_err(told)?;
            }
            let begun = Transaction::say(connection, if writes { "BEGIN IMMEDIATE" } else { "BEGIN" });
            if hurried {
                connection.busy_handler(Some(be_patient)).map_err(told)?;
            }
            begun.map_err(told)?;
            let transaction = Transaction(connection);
            // Read when nobody else can step: the steps of all processes are in the order of this clock.
            let now = Now { at: runtime.now(), token: runtime.wall_micros() };
            let mut turn =
                Turn { transaction, now, given: 0, left: None, lives, post, place, boot: &boot.boot, calls: Vec::new() };
            let answer = work(&mut turn)?;
            if let Some(token) = turn.left {
                turn.execute("UPDATE store SET token = max(token, ?1) WHERE one = 1", [storable(token)?])?;
            }
            let Turn { transaction, calls, .. } = turn;
            transaction.commit().map_err(|cause| error::of_commit(cause, place.file()))?;
            Ok((answer, calls))
        });
        let (answer, calls) = done.inspect_err(|error| {
            // A connection that met a damaged or failing disk is not trusted again.
            if !matches!(error.kind(), ErrorKind::WrongKind | ErrorKind::InvalidArgument) && !error::is_busy(error) {
                self.open = None;
            }
        })?;
        for (name, wake) in calls {
            self.deliver(&name, wake);
        }
        Ok(answer)
    }

    fn deliver(&mut self, name: &Name, mut wake: Waking) {
        // Every round buries at least one of the dead, so it ends; the bound is for file systems that lie.
        for _ in 0..100 {
            let absent: Vec<Instance> = wake.all.drain(..).filter(|instance| !self.send(*instance, name, Call::All)).collect();
            if !absent.is_empty() {
                self.strike(&absent);
            }
            let Some((head, life)) = wake.head.take() else { return };
            if self.send(life.instance, name, Call::Head(head)) || !matches!(self.ties.lives.sign(life), Sign::Dead) {
                return;
            }
            // The next in the queue is dead: its turn passes on now, not when its place ends.
            let buried = self.turn(true, |turn| turn.bury(name));
            match buried {
                Ok(next) => wake = next,
                Err(error) => {
                    tracing::debug!(%error, %name, "could not pass a turn on");
                    return;
                }
            }
        }
    }

    /// Whether there is somebody to hear it.
    fn send(&mut self, to: Instance, name: &Name, call: Call) -> bool {
        let sent = self.ties.post.send(to, name, call);
        self.wrote |= sent == Sent::Away;
        sent != Sent::Nowhere
    }

    /// Nobody reads their mail any more.
    fn strike(&mut self, absent: &[Instance]) {
        let struck = self.turn(true, |turn| {
            absent.iter().try_for_each(|instance| {
                turn.execute("DELETE FROM listener WHERE instance = ?1", params![instance.to_string()]).map(drop)
            })
        });
        if let Err(error) = struck {
            tracing::debug!(%error, "could not strike out listeners that are gone");
        }
    }
}

/// Whom to wake, by where they live.
#[derive(Debug, Default)]
pub(super) struct Waking {
    all: Vec<Instance>,
    head: Option<(WireOwner, LifeId)>,
}

/// What SQLite does all at once or not at all; undone unless committed. By statements that are kept, because to read these words anew costs
/// as much as to follow them.
struct Transaction<'a>(&'a Connection);

impl Transaction<'_> {
    fn commit(self) -> rusqlite::Result<()> {
        Self::say(self.0, "COMMIT")
    }

    fn say(connection: &Connection, word: &str) -> rusqlite::Result<()> {
        connection.prepare_cached(word)?.execute([]).map(drop)
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if !self.0.is_autocommit()
            && let Err(error) = Self::say(self.0, "ROLLBACK")
        {
            tracing::debug!(%error, "could not undo a transaction");
        }
    }
}

/// A transaction under way.
pub(super) struct Turn<'a> {
    transaction: Transaction<'a>,
    now: Now,
    /// The last token given out in it.
    given: u64,
    /// The last token of names that have no row any more.
    left: Option<u64>,
    pub(super) lives: &'a Lives,
    post: &'a Post,
    place: &'a Place,
    boot: &'a str,
    calls: Vec<(Name, Waking)>,
}

impl Turn<'_> {
    pub(super) fn at(&self) -> Instant {
        self.now.at
    }

    pub(super) fn told(&self, cause: rusqlite::Error) -> Error {
        error::of_request(cause, self.place.file())
    }

    pub(super) fn execute(&self, sql: &str, values: impl rusqlite::Params) -> Result<usize> {
        self.transaction
            .0
            .prepare_cached(sql)
            .and_then(|mut statement| statement.execute(values))
            .map_err(|cause| self.told(cause))
    }

    /// All rows of a question.
    pub(super) fn query<T>(
        &self,
        sql: &str,
        values: impl rusqlite::Params,
        row: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>> {
        let mut statement = self.transaction.0.prepare_cached(sql).map_err(|cause| self.told(cause))?;
        let found = statement.query_map(values, row).and_then(Iterator::collect);
        found.map_err(|cause| self.told(cause))
    }

    /// What lies under a name.
    pub(super) fn read(&self, name: &Name) -> Result<Found> {
        // All that a step has to know, in one question.
        let sql = "SELECT token, boot, version, body FROM store LEFT JOIN lock ON name = ?1";
        let mut statement = self.transaction.0.prepare_cached(sql).map_err(|cause| self.told(cause))?;
        let mut rows = statement.query([name.as_str()]).map_err(|cause| self.told(cause))?;
        let Some(found) = rows.next().map_err(|cause| self.told(cause))? else {
            return Err(self.told(rusqlite::Error::QueryReturnedNoRows));
        };
        let read = || -> rusqlite::Result<_> {
            Ok((found.get::<_, i64>(0)? as u64, found.get_ref(1)?.as_str()?, found.get(2)?, found.get_ref(3)?.as_str_or_null()?))
        };
        let (token, boot, version, body) = read().map_err(|cause| self.told(cause))?;
        if boot != self.boot {
            let message =
                format!("{} is used by another machine at the same time; a sqlite store is for one", self.place.file().display());
            return Err(Error::new(ErrorKind::Config, message));
        }
        let row = body.map_or(Ok(Row::default()), |body| self.parsed(name, body))?;
        let last_token = token.max(row.last_token).max(self.given).max(self.left.unwrap_or(0));
        Ok(Found { last_token, version, row })
    }

    pub(super) fn parsed(&self, name: &Name, body: &str) -> Result<Row> {
        serde_json::from_str(body).map_err(|cause| {
            let message = format!("what {} keeps under {name:?} is not understood", self.place.file().display());
            Error::new(ErrorKind::Protocol, message).with_source(cause)
        })
    }

    fn write(&mut self, name: &Name, version: Option<i64>, row: Row) -> Result<()> {
        let name = name.as_str();
        let written = if row.record.is_empty() {
            let Some(version) = version else { return Ok(()) };
            self.left = self.left.max(Some(row.last_token).filter(|token| *token > 0));
            self.execute("DELETE FROM lock WHERE name = ?1 AND version = ?2", params![name, version])?
        } else {
            let body = serde_json::to_string(&row)
                .map_err(|cause| Error::new(ErrorKind::Protocol, "a record cannot be written").with_source(cause))?;
            match version {
                None => self.execute("INSERT INTO lock (name, version, body) VALUES (?1, 1, ?2)", params![name, body])?,
                Some(version) => self.execute(
                    "UPDATE lock SET version = version + 1, body = ?3 WHERE name = ?1 AND version = ?2",
                    params![name, version, body],
                )?,
            }
        };
        if written == 1 {
            return Ok(());
        }
        let message = format!("{} changed under a transaction; its file system does not lock", self.place.file().display());
        Err(Error::new(ErrorKind::Protocol, message))
    }

    /// One step of the model on one name. `newcomer` may come into the record by it, under `life`.
    pub(super) fn step<T: Answer>(
        &mut self,
        name: &Name,
        newcomer: Option<(WireOwner, LifeId)>,
        mut step: impl FnMut(&mut Record, Now) -> Result<(T, Wake)>,
    ) -> Result<T> {
        let Found { last_token, version, mut row } = self.read(name)?;
        let before = row.clone();
        let now = Now { token: self.now.token.max(last_token + 1), ..self.now };
        let mut answer = step(&mut row.record, now);
        let blocked = match &answer {
            Ok((answer, _)) => answer.is_blocked(),
            Err(error) => error.kind() == ErrorKind::WrongKind,
        };
        let mut buried = Wake::NOBODY;
        if blocked && !row.lives.is_empty() {
            // Of the row as it was: a place taken by this step has no life yet, and needs none.
            row = before.clone();
            buried = row.bury(self.lives);
            answer = step(&mut row.record, now);
        }
        let (answer, wake) = answer?;
        if let Some(token) = answer.token() {
            storable(token)?;
            (self.given, row.last_token) = (token.max(self.given), token.max(row.last_token));
        }
        row.enrol(newcomer.map(|(_, life)| life), newcomer.map(|(owner, _)| owner));
        if answer.is_blocked() {
            self.post.mind(name, &row.others(self.lives));
        }
        let wake = Wake { all: wake.all || buried.all, head: wake.head.or(buried.head) };
        if wake != Wake::NOBODY {
            let waking = self.waking(name, &row, wake)?;
            self.calls.push((name.clone(), waking));
        }
        if row != before {
            self.write(name, version, row)?;
        }
        Ok(answer)
    }

    /// How many are to be woken so far.
    pub(super) fn called(&self) -> u32 {
        let called: usize = self.calls.iter().map(|(_, waking)| waking.all.len() + usize::from(waking.head.is_some())).sum();
        u32::try_from(called).unwrap_or(u32::MAX)
    }

    /// Takes the dead out of what lies under a name; tells whom that concerns.
    pub(super) fn bury(&mut self, name: &Name) -> Result<Waking> {
        let Found { version, mut row, .. } = self.read(name)?;
        let before = row.clone();
        let wake = row.bury(self.lives);
        if row != before {
            row.enrol(None, None);
            self.write(name, version, row.clone())?;
        }
        self.waking(name, &row, wake)
    }

    fn waking(&self, name: &Name, row: &Row, wake: Wake) -> Result<Waking> {
        let mut all = Vec::new();
        if wake.all {
            let listed =
                self.query("SELECT instance FROM listener WHERE name = ?1", [name.as_str()], |row| row.get::<_, String>(0))?;
            all.extend(listed.iter().filter_map(|instance| instance.parse::<Instance>().ok()));
        }
        let head = wake.head.and_then(|head| Some((head, row.life_of(head)?)));
        Ok(Waking { all, head })
    }
}

/// A token as SQLite keeps it.
fn storable(token: u64) -> Result<i64> {
    let too_large = |_| Error::new(ErrorKind::InvalidArgument, format!("the token {token} is larger than a store can keep"));
    i64::try_from(token).map_err(too_large)
}

fn open(file: &std::path::Path, log: Arc<AtomicUsize>) -> rusqlite::Result<Connection> {
    // Never creates: what is made is made whole, by `Place`.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(file, flags)?;
    connection.busy_handler(Some(be_patient))?;
    // The log outlives a process that comes and goes, and is not written back by each.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // Every question is planned once, not anew for each name that it is asked with.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "synchronous", "normal")?;
    // In place of SQLite's own, which would write the log back before the commit returns.
    connection.wal_hook(Some(move |_: &mut Wal, pages| {
        log.store(usize::try_from(pages).unwrap_or_default(), Ordering::Relaxed);
        Ok(())
    }))?;
    Ok(connection)
}

/// Another process writes. That takes microseconds: look again at once, then ever less often, about two seconds in all.
fn be_patient(times: i32) -> bool {
    match times {
        0..20 => std::thread::yield_now(),
        // Long enough that whoever naps is not overtaken for ever by those who have just come.
        20..2_000 => runtime::nap(Duration::from_micros(50)),
        2_000..3_800 => runtime::nap(Duration::from_millis(1)),
        _ => return false,
    }
    true
}

/// For those who must not wait: that other process may be about to end.
fn be_brief(times: i32) -> bool {
    times < 20 && be_patient(times)
}

/// Makes the file that of this boot: leases of another one are over, with all who held them; numbers stay.
fn adopt(connection: &Connection, boot: &Boot, place: &Place) -> Result<()> {
    let told = |cause| error::of_request(cause, place.file());
    let of = |connection: &Connection| -> rusqlite::Result<(String, String)> {
        connection.query_row("SELECT machine, boot FROM store", [], |row| Ok((row.get(0)?, row.get(1)?)))
    };
    if of(connection).map_err(told)?.1 == boot.boot {
        return Ok(());
    }
    Transaction::say(connection, "BEGIN IMMEDIATE").map_err(told)?;
    let transaction = Transaction(connection);
    let (machine, found) = of(connection).map_err(told)?;
    if found == boot.boot {
        return Ok(());
    }
    let rows: Vec<(String, String)> = connection
        .prepare("SELECT name, body FROM lock")
        .and_then(|mut all| all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect())
        .map_err(told)?;
    let mut last_token = 0;
    let moved = !machine.is_empty() && !boot.machine.is_empty() && machine != boot.machine;
    for (name, body) in rows {
        let mut row: Row = serde_json::from_str(&body).map_err(|cause| {
            Error::new(ErrorKind::Protocol, format!("what {} keeps is not understood", place.file().display())).with_source(cause)
        })?;
        if moved && !row.record.owners().is_empty() {
            let message = format!(
                "{} was last used by another machine, where {name:?} may still be held; remove the file if that machine is gone",
                place.file().display()
            );
            return Err(Error::new(ErrorKind::Config, message));
        }
        row.record.expire(Instant::NEVER);
        row.lives.clear();
        last_token = row.last_token.max(last_token);
        let body = serde_json::to_string(&row).unwrap_or(body);
        if row.record.is_empty() {
            connection.execute("DELETE FROM lock WHERE name = ?1", [name])
        } else {
            connection.execute("UPDATE lock SET version = version + 1, body = ?2 WHERE name = ?1", [name, body])
        }
        .map_err(told)?;
    }
    connection.execute_batch("DELETE FROM listener; DELETE FROM client;").map_err(told)?;
    let adopted = params![boot.machine, boot.boot, storable(last_token)?];
    connection.execute("UPDATE store SET machine = ?1, boot = ?2, token = max(token, ?3)", adopted).map_err(told)?;
    transaction.commit().map_err(|cause| error::of_commit(cause, place.file()))
}
