//! The rows of records as SQLite keeps them, for the engine.

use std::path::Path;
use std::time::Duration;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::connection::{Recipients, Transaction};
use super::liveness::{Instance, PeerId, PeerState};
use crate::backend::Kind;
use crate::error::{Error, ErrorKind, Result};
use crate::model::{Part, RequestRef, Role};
use crate::name::Name;
use crate::owner::{ClientId, WireOwner};
use crate::runtime::Instant;
use crate::store::kit::engine::{Entry, Rows, Waking};
use crate::store::kit::rows::{self as kit, HeadRow, PartRow, RowTable};

/// The text of a head row.
pub(super) fn body(row: &HeadRow<PeerId>) -> Result<String> {
    serde_json::to_string(row).map_err(not_written)
}

const INSERT_PART: &str = "INSERT INTO part (name, role, seq, owner, peer, expires, detail) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
    ON CONFLICT (name, role, seq, owner) DO UPDATE SET peer = ?5, expires = ?6, detail = ?7";

pub(super) fn insert_part(connection: &Connection, name: &str, row: &PartRow<PeerId>) -> rusqlite::Result<()> {
    let PartRow { part, peer } = row;
    let detail = serde_json::to_string(&part.detail).map_err(|cause| rusqlite::Error::ToSqlConversionFailure(cause.into()))?;
    let (role, seq, owner, peer) = (part.role.number(), part.seq, part.owner.to_string(), peer.map(String::from));
    let values = params![name, role, seq.cast_signed(), owner, peer, nanos(part.expires), detail];
    connection.prepare_cached(INSERT_PART)?.execute(values).map(drop)
}

/// The columns `seq, owner, peer, expires, detail`.
pub(super) fn part_row(role: Role, row: &Row<'_>) -> rusqlite::Result<PartRow<PeerId>> {
    let text = |column: usize| row.get_ref(column)?.as_str().map_err(rusqlite::Error::from);
    fn not_read<E: Into<Box<dyn std::error::Error + Send + Sync>>>(column: usize) -> impl FnOnce(E) -> rusqlite::Error {
        move |cause| rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, cause.into())
    }
    let peer = match row.get_ref(2)? {
        ValueRef::Null => None,
        _ => Some(text(2)?.parse().map_err(not_read(2))?),
    };
    let part = Part {
        role,
        seq: row.get::<_, i64>(0)?.cast_unsigned(),
        owner: text(1)?.parse().map_err(not_read(1))?,
        expires: Instant::from_nanos(row.get::<_, i64>(3)?.cast_unsigned()),
        detail: serde_json::from_str(text(4)?).map_err(not_read(4))?,
    };
    Ok(PartRow { part, peer })
}

/// What a program that works on after its client's death holds ends this long after it was last seen.
const SURVIVES: Duration = Duration::from_secs(1);

impl Transaction<'_> {
    /// Whether the client is dead, and a program works on under its locks.
    fn survived(&self, peer: PeerId) -> bool {
        matches!(self.shared.liveness.state_of(peer), PeerState::Survived(_))
    }

    /// A read hold or permits that would have ended, if nobody worked under them any more.
    fn as_survived(&self, mut row: PartRow<PeerId>) -> PartRow<PeerId> {
        let is_hold = matches!(row.part.role, Role::Reader | Role::Permits);
        if is_hold && row.part.expires <= self.at && row.peer.is_some_and(|peer| self.survived(peer)) {
            row.part.expires = self.at.plus(SURVIVES);
        }
        row
    }
}

/// So many other stores are woken at least when a mutex is released, if so many wait. One of them gets it. Were it one alone, a process that is
/// stopped could keep the others waiting until they poll; were it all, hundreds of processes would run for one of them.
const FEW: usize = 8;

impl Transaction<'_> {
    /// The stores that listen at a name: this one, and all others, or so many of them from a random place on.
    fn listening(&self, name: &Name, most: Option<usize>) -> Result<Vec<Instance>> {
        let sql = "SELECT instance FROM listener WHERE name = ?1 AND instance >= ?2 ORDER BY instance LIMIT ?3";
        let found = |from: &str, most: Option<usize>| -> Result<Vec<Instance>> {
            let most = most.map_or(-1, |most| i64::try_from(most).unwrap_or(-1));
            let listed = self.query(sql, params![name.as_str(), from, most], |row| row.get::<_, String>(0))?;
            Ok(listed.iter().filter_map(|instance| instance.parse().ok()).collect())
        };
        let Some(few) = most else { return found("", None) };
        let own = self.shared.liveness.instance();
        // One more each time, because this store may be among them.
        let mut chosen = found(&Instance(self.shared.runtime.client_id().bits()).to_string(), Some(few + 1))?;
        if chosen.len() <= few {
            let first = found("", Some(few + 1))?;
            chosen.extend(first.into_iter().filter(|instance| !chosen.contains(instance)).collect::<Vec<_>>());
        }
        chosen.retain(|instance| *instance != own);
        chosen.truncate(few);
        if self.shared.wakeups.listeners().has_unfiltered(name) {
            chosen.push(own);
        }
        Ok(chosen)
    }

    /// So many stores have stopped to listen at a name, and may have been woken for a mutex that they do not take. A few of the others are woken
    /// instead, unless there were so few that all had been.
    pub(super) fn pass_on(&mut self, name: &Name, left: usize) -> Result<()> {
        let is_free = self
            .head(name)?
            .0
            .and_then(|row| row.head)
            .is_none_or(|head| head.kind() == Kind::Mutex && head.expires().is_none_or(|end| end <= self.at));
        if is_free && self.listening(name, None)?.len() + left > FEW {
            let all = self.listening(name, Some(FEW))?;
            self.recipients.push(Recipients { name: name.clone(), all, head: None });
        }
        Ok(())
    }
}

impl RowTable for Transaction<'_> {
    type Peer = PeerId;

    fn head(&mut self, name: &Name) -> Result<(Option<HeadRow<PeerId>>, u64)> {
        // One query for all that a step has to know.
        let sql = "SELECT token, boot, version, body FROM store LEFT JOIN head ON name = ?1";
        let mut statement = self.connection.prepare_cached(sql).map_err(|cause| self.told(cause))?;
        let mut rows = statement.query([name.as_str()]).map_err(|cause| self.told(cause))?;
        let Some(found) = rows.next().map_err(|cause| self.told(cause))? else {
            return Err(self.told(rusqlite::Error::QueryReturnedNoRows));
        };
        let read = || -> rusqlite::Result<_> {
            let (token, boot) = (found.get::<_, i64>(0)?.cast_unsigned(), found.get_ref(1)?.as_str()?);
            Ok((token, boot, found.get::<_, Option<i64>>(2)?, found.get_ref(3)?.as_str_or_null()?))
        };
        let (token, boot, version, body) = read().map_err(|cause| self.told(cause))?;
        if boot != self.shared.boot.boot {
            let message =
                format!("{} is used by another machine at the same time; a sqlite store is for one", self.file().display());
            return Err(Error::new(ErrorKind::Config, message));
        }
        let floor = token.max(self.removed_token);
        let Some((body, version)) = body.zip(version) else { return Ok((None, floor)) };
        let mut row: HeadRow<PeerId> =
            serde_json::from_str(body).map_err(|cause| not_understood(self.file(), name.as_str(), cause))?;
        self.versions.push((name.clone(), version));
        if let (Some(head), Some(peer)) = (&mut row.head, row.peer)
            && head.expires().is_some_and(|end| end <= self.at)
            && self.survived(peer)
        {
            head.lasts_until(self.at.plus(SURVIVES));
        }
        Ok((Some(row), floor))
    }

    fn scan(&mut self, name: &Name, role: Role, visit: &mut dyn FnMut(PartRow<PeerId>) -> bool) -> Result<()> {
        let sql = "SELECT seq, owner, peer, expires, detail FROM part WHERE name = ?1 AND role = ?2 ORDER BY seq, owner";
        let mut scanned = || -> rusqlite::Result<()> {
            let mut statement = self.connection.prepare_cached(sql)?;
            let mut rows = statement.query(params![name.as_str(), role.number()])?;
            while let Some(row) = rows.next()? {
                if !visit(self.as_survived(part_row(role, row)?)) {
                    break;
                }
            }
            Ok(())
        };
        scanned().map_err(|cause| self.told(cause))
    }

    fn part(&mut self, name: &Name, role: Role, owner: WireOwner) -> Result<Option<PartRow<PeerId>>> {
        let sql = "SELECT seq, owner, peer, expires, detail FROM part WHERE name = ?1 AND role = ?2 AND seq = 0 AND owner = ?3";
        let found = self.connection.prepare_cached(sql).and_then(|mut statement| {
            let values = params![name.as_str(), role.number(), owner.to_string()];
            statement.query_row(values, |row| part_row(role, row)).optional()
        });
        Ok(found.map_err(|cause| self.told(cause))?.map(|row| self.as_survived(row)))
    }

    fn put_head(&mut self, name: &Name, row: &HeadRow<PeerId>, before: Option<&HeadRow<PeerId>>) -> Result<()> {
        storable(row.last_token)?;
        let body = body(row)?;
        let written = match before {
            None => self.execute("INSERT INTO head (name, version, body) VALUES (?1, 1, ?2)", params![name.as_str(), body])?,
            Some(_) => self.execute(
                "UPDATE head SET version = version + 1, body = ?3 WHERE name = ?1 AND version = ?2",
                params![name.as_str(), self.version(name), body],
            )?,
        };
        self.check_written(written)
    }

    fn delete_head(&mut self, name: &Name, last_token: u64) -> Result<()> {
        self.removed_token = self.removed_token.max(last_token);
        let values = params![name.as_str(), self.version(name)];
        let written = self.execute("DELETE FROM head WHERE name = ?1 AND version = ?2", values)?;
        self.check_written(written)
    }

    fn put_part(&mut self, name: &Name, row: &PartRow<PeerId>) -> Result<()> {
        insert_part(self.connection, name.as_str(), row).map_err(|cause| self.told(cause))
    }

    fn delete_part(&mut self, name: &Name, part: &Part) -> Result<()> {
        let values = params![name.as_str(), part.role.number(), part.seq.cast_signed(), part.owner.to_string()];
        self.execute("DELETE FROM part WHERE name = ?1 AND role = ?2 AND seq = ?3 AND owner = ?4", values).map(drop)
    }
}

impl Rows for Transaction<'_> {
    type Peer = PeerId;

    fn load(&mut self, name: &Name, request: RequestRef<'_>, at: Instant) -> Result<Entry<PeerId>> {
        kit::load(self, name, request, at)
    }

    fn save(&mut self, name: &Name, entry: Entry<PeerId>) -> Result<()> {
        kit::save(self, name, entry)
    }

    /// The datagrams are sent after the commit.
    fn wake(&mut self, name: &Name, waking: Waking<PeerId>) -> Result<u32> {
        let all = if waking.wake.all { self.listening(name, waking.for_one.then_some(FEW))? } else { Vec::new() };
        let head = waking.wake.head.zip(waking.head);
        let count = all.len() + usize::from(head.is_some());
        self.recipients.push(Recipients { name: name.clone(), all, head });
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    fn has_other_listeners(&mut self, name: &Name, client: ClientId) -> Result<bool> {
        let shared = &self.shared;
        if shared.wakeups.listeners().has_other_client(name, client) {
            return Ok(true);
        }
        let (sql, own) =
            ("SELECT 1 FROM listener WHERE name = ?1 AND instance <> ?2 LIMIT 1", shared.liveness.instance().to_string());
        Ok(!self.query(sql, params![name.as_str(), own], |row| row.get::<_, i64>(0))?.is_empty())
    }

    fn is_gone(&mut self, peer: PeerId) -> bool {
        matches!(self.shared.liveness.state_of(peer), PeerState::Dead)
    }

    fn blocked_by(&mut self, name: &Name, peers: &[PeerId]) {
        let liveness = &self.shared.liveness;
        let others: Vec<PeerId> = peers.iter().copied().filter(|peer| !liveness.is_current(*peer)).collect();
        self.shared.wakeups.watch_peers(name, &others);
    }
}

/// Names and bodies.
pub(super) fn all(connection: &Connection, sql: &str) -> rusqlite::Result<Vec<(String, String)>> {
    connection.prepare(sql)?.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

pub(super) fn not_understood(file: &Path, name: &str, cause: serde_json::Error) -> Error {
    let message = format!("the row of {name:?} in {} cannot be parsed: {cause}", file.display());
    Error::new(ErrorKind::Protocol, message).with_source(cause)
}

pub(super) fn not_written(cause: serde_json::Error) -> Error {
    Error::new(ErrorKind::Protocol, "a row cannot be written as JSON").with_source(cause)
}

/// A token as SQLite keeps it.
pub(super) fn storable(token: u64) -> Result<i64> {
    let too_large = |_| Error::new(ErrorKind::InvalidArgument, format!("the token {token} exceeds the maximum of {}", i64::MAX));
    i64::try_from(token).map_err(too_large)
}

/// A point in time as SQLite keeps it; the boot clock reaches the end of that in three hundred years.
pub(super) fn nanos(at: Instant) -> i64 {
    i64::try_from(at.as_nanos()).unwrap_or(i64::MAX)
}
