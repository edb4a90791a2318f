//! The layout of the tables: made for a new file, upgraded from the layout before, and adopted by each new boot.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, params};
use serde::Deserialize;

use super::connection::OpenTransaction;
use super::error;
use super::files::Files;
use super::liveness::{self, PeerId};
use super::rows;
use crate::error::{Error, ErrorKind, Result};
use crate::model::{Record, Role, Roles};
use crate::runtime::{Boot, Instant, log};
use crate::store::kit::rows::{HeadRow, PartRow};

/// Marks the file as ours, in SQLite's header: "LKPR".
pub(super) const APPLICATION: u32 = 0x4c4b_5052;
/// The layout of the tables, in SQLite's header as `user_version`.
pub(super) const LAYOUT: u32 = 2;
/// The layout before: one row per name, with all that lay under it as text.
pub(super) const LAYOUT_BEFORE: u32 = 1;

const STORE: &str = "
    CREATE TABLE store (one INTEGER PRIMARY KEY CHECK (one = 1), token INTEGER NOT NULL, machine TEXT NOT NULL, boot TEXT NOT NULL);
    INSERT INTO store VALUES (1, 0, '', '');
    CREATE TABLE listener (name TEXT NOT NULL, instance TEXT NOT NULL, PRIMARY KEY (name, instance)) WITHOUT ROWID;
    CREATE TABLE client (id TEXT PRIMARY KEY, ends INTEGER NOT NULL, card TEXT NOT NULL) WITHOUT ROWID;
";

const RECORDS: &str = "
    CREATE TABLE head (name TEXT PRIMARY KEY, version INTEGER NOT NULL, body TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE part (name TEXT NOT NULL, role INTEGER NOT NULL, seq INTEGER NOT NULL, owner TEXT NOT NULL, peer TEXT,
        expires INTEGER NOT NULL, detail TEXT NOT NULL, PRIMARY KEY (name, role, seq, owner)) WITHOUT ROWID;
";

/// Makes the tables in a new file.
pub(super) fn build(file: &Path) -> rusqlite::Result<()> {
    // The file is there, and empty. A link in its place is not followed.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(file, flags)?;
    // Synced once, when it is complete.
    connection.pragma_update(None, "synchronous", "off")?;
    // Before the first table: the file can give pages back.
    connection.pragma_update(None, "auto_vacuum", "incremental")?;
    connection.pragma_update(None, "application_id", APPLICATION)?;
    connection.pragma_update(None, "user_version", LAYOUT)?;
    connection.execute_batch(STORE)?;
    connection.execute_batch(RECORDS)?;
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    connection.close().map_err(|(_, error)| error)
}

/// The error for a file of another layout.
pub(super) fn unknown(file: &Path, layout: u32) -> Error {
    let message = format!(
        "{} has layout {layout}, and this version of lockkeeper knows layout {LAYOUT}; use one version of lockkeeper for one file",
        file.display()
    );
    Error::new(ErrorKind::Config, message)
}

/// What the layout before kept in a row. It also named the pipe of each owner; none of them is open when this is read.
#[derive(Deserialize)]
struct RowBefore {
    record: Record,
    #[serde(default)]
    last_token: u64,
}

/// Brings a file of the layout before to this one, if no client is alive.
pub(super) fn upgrade(connection: &Connection, files: &Files) -> Result<()> {
    let told = |cause| error::of_request(cause, files.file());
    let layout = || connection.query_row("PRAGMA user_version", [], |row| row.get::<_, u32>(0)).map_err(told);
    match layout()? {
        LAYOUT => return Ok(()),
        LAYOUT_BEFORE => {}
        other => return Err(unknown(files.file(), other)),
    }
    let transaction = OpenTransaction::begin(connection, true).map_err(told)?;
    if layout()? == LAYOUT {
        return Ok(());
    }
    // A client makes its pipe before it writes, and nobody else can write now.
    if liveness::any_alive(files) {
        let message = format!(
            "{} has layout {LAYOUT_BEFORE} and an older lockkeeper uses it now; end those processes, then it is upgraded to layout {LAYOUT}",
            files.file().display()
        );
        return Err(Error::new(ErrorKind::Config, message));
    }
    let before = rows::all(connection, "SELECT name, body FROM lock").map_err(told)?;
    // Another name for the table: processes of the older version that are still connected find nothing to write to.
    connection.execute_batch("DROP TABLE lock").and_then(|()| connection.execute_batch(RECORDS)).map_err(told)?;
    let mut last_token = 0;
    for (name, body) in before {
        let RowBefore { mut record, last_token: token } =
            serde_json::from_str(&body).map_err(|cause| rows::not_understood(files.file(), &name, cause))?;
        last_token = token.max(last_token);
        record.forget(&|_| true);
        if record.is_empty() {
            continue;
        }
        let mut roles = Roles::default();
        for part in record.parts() {
            roles.insert(part.role);
            rows::insert_part(connection, &name, &PartRow { part, peer: None }).map_err(told)?;
        }
        let row = HeadRow { head: record.head(), roles, peer: None, last_token: token };
        let body = rows::body(&row)?;
        connection.execute("INSERT INTO head (name, version, body) VALUES (?1, 1, ?2)", [name, body]).map_err(told)?;
    }
    let token = rows::storable(last_token)?;
    connection.execute("UPDATE store SET token = max(token, ?1)", [token]).map_err(told)?;
    connection.pragma_update(None, "user_version", LAYOUT).map_err(told)?;
    transaction.commit().map_err(|cause| error::of_commit(cause, files.file()))?;
    // Older versions read the header of the file itself, so it has to be there. And from now on the file can give pages back.
    let rewritten = connection
        .pragma_update(None, "auto_vacuum", "incremental")
        .and_then(|()| connection.execute_batch("VACUUM"))
        .and_then(|()| connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())));
    if let Err(error) = rewritten {
        log!(debug, %error, "could not rewrite the file after its upgrade");
    }
    Ok(())
}

/// Makes the file that of this boot: leases of another boot are over; numbers and sizes stay.
pub(super) fn adopt(connection: &Connection, boot: &Boot, files: &Files) -> Result<()> {
    let told = |cause| error::of_request(cause, files.file());
    let known = || -> rusqlite::Result<(String, String)> {
        connection.query_row("SELECT machine, boot FROM store", [], |row| Ok((row.get(0)?, row.get(1)?)))
    };
    if known().map_err(told)?.1 == boot.boot {
        return Ok(());
    }
    let transaction = OpenTransaction::begin(connection, true).map_err(told)?;
    let (machine, found) = known().map_err(told)?;
    if found == boot.boot {
        return Ok(());
    }
    let moved = !machine.is_empty() && !boot.machine.is_empty() && machine != boot.machine;
    let in_use = |name: &str| -> rusqlite::Result<bool> {
        let sql = "SELECT count(*) FROM part WHERE name = ?1 AND role <> ?2";
        connection.query_row(sql, params![name, Role::Seen.number()], |row| Ok(row.get::<_, u32>(0)? > 0))
    };
    let mut last_token = 0;
    for (name, body) in rows::all(connection, "SELECT name, body FROM head").map_err(told)? {
        let row: HeadRow<PeerId> =
            serde_json::from_str(&body).map_err(|cause| rows::not_understood(files.file(), &name, cause))?;
        let held = row.head.is_some_and(|head| head.holder().is_some());
        if moved && (held || in_use(&name).map_err(told)?) {
            let message = format!(
                "{} was last used by another machine, where {name:?} may still be held; remove the file if that machine is gone",
                files.file().display()
            );
            return Err(Error::new(ErrorKind::Config, message));
        }
        let mut record = Record::from_rows(row.head, &[], Roles::default());
        record.expire(Instant::NEVER);
        last_token = row.last_token.max(last_token);
        if record.is_empty() {
            connection.execute("DELETE FROM head WHERE name = ?1", [name])
        } else {
            let body = rows::body(&HeadRow { head: record.head(), roles: Roles::default(), peer: None, ..row })?;
            connection.execute("UPDATE head SET version = version + 1, body = ?2 WHERE name = ?1", [name, body])
        }
        .map_err(told)?;
    }
    connection.execute_batch("DELETE FROM part; DELETE FROM listener; DELETE FROM client;").map_err(told)?;
    let adopted = params![boot.machine, boot.boot, rows::storable(last_token)?];
    connection.execute("UPDATE store SET machine = ?1, boot = ?2, token = max(token, ?3)", adopted).map_err(told)?;
    transaction.commit().map_err(|cause| error::of_commit(cause, files.file()))
}
