//! The rows of [`kit::waiting`](crate::store::kit::waiting): four of them, however long the queue is.

use rusqlite::{OptionalExtension, ToSql, params};

use super::connection::{Database, Transaction};
use super::liveness::PeerId;
use super::rows::{nanos, part_row};
use crate::backend::{Acquire, Attempt, Busy, Claim};
use crate::error::Result;
use crate::model::{RequestRef, Role};
use crate::runtime::Instant;
use crate::store::kit::engine::Rows;
use crate::store::kit::rows::{PartRow, RowTable};
use crate::store::kit::waiting;

/// A waiter that has to wait on.
struct Waits {
    busy: Busy,
    /// Its place in the queue, if it has one.
    place: Option<PartRow<PeerId>>,
}

/// Which place of a queue.
enum Which<'a> {
    Of(&'a str),
    First,
    Before(i64),
}

impl Database {
    /// What the whole step would answer, if that is `Busy` and changes nothing but the end of the waiter's own place. `None`: only the whole step
    /// can tell.
    pub(super) fn still_busy(&mut self, request: &Acquire) -> Result<Option<Attempt>> {
        // Only who was refused before listens, so the first request of an acquisition does not pay for this.
        let waited = self.shared.wakeups.listeners().has_any(&request.name);
        if !waited || !matches!(request.claim, Claim::Mutex | Claim::Fair) {
            return Ok(None);
        }
        let mut seen = self.read(|transaction| transaction.waits(request))?;
        if seen.as_ref().is_some_and(|waits| waits.ends_soon(request, self.shared.runtime.now())) {
            seen = self.transaction(true, |transaction| {
                let waits = transaction.waits(request)?;
                waits.iter().try_for_each(|waits| transaction.stay(request, waits))?;
                Ok(waits)
            })?;
        }
        Ok(seen.map(|waits| Attempt::Busy(waits.busy)))
    }
}

impl Waits {
    /// Whether its place has to be extended.
    fn ends_soon(&self, request: &Acquire, now: Instant) -> bool {
        self.place.as_ref().zip(request.place).is_some_and(|(row, place)| waiting::ends_soon(row, place, now))
    }
}

impl Transaction<'_> {
    fn waits(&mut self, request: &Acquire) -> Result<Option<Waits>> {
        let (name, at) = (&request.name, self.at);
        let (Some(row), _) = self.head(name)? else { return Ok(None) };
        let (mut places, mut own, mut ahead) = (Vec::new(), None, None);
        if request.claim == Claim::Fair {
            let Some(place) = self.place(request, &Which::Of(&request.owner.to_string()))? else { return Ok(None) };
            let seq = place.part.seq.cast_signed();
            places.extend(self.place(request, &Which::First)?);
            places.extend(self.place(request, &Which::Before(seq))?);
            places.push(place);
            // The first may be the one before, or the waiter itself.
            places.dedup_by_key(|row| row.part.key());
            let sql = "SELECT count(*) FROM part WHERE name = ?1 AND role = ?2 AND seq < ?3";
            let before = self.query(sql, params![name.as_str(), Role::Waiter.number(), seq], |row| row.get::<_, u32>(0))?;
            (own, ahead) = (Some(place), before.first().copied());
        }
        let Some((busy, record)) = waiting::still_busy(&row, &places, request, at) else { return Ok(None) };
        let holder = row.head.as_ref().and_then(|head| head.holder());
        let peer_of = |owner| {
            let of_place = || places.iter().find(|row| row.part.owner == owner).and_then(|row| row.peer);
            if holder == Some(owner) { row.peer } else { of_place() }
        };
        let peers: Vec<PeerId> = record.blockers(RequestRef::Acquire(request)).into_iter().filter_map(peer_of).collect();
        if peers.iter().any(|peer| self.is_gone(*peer)) {
            return Ok(None);
        }
        self.blocked_by(name, &peers);
        Ok(Some(Waits { busy: Busy { ahead, ..busy }, place: own }))
    }

    fn place(&self, request: &Acquire, which: &Which<'_>) -> Result<Option<PartRow<PeerId>>> {
        let role = Role::Waiter;
        let (which, value): (&str, &dyn ToSql) = match which {
            Which::Of(owner) => ("AND owner = ?3", owner),
            Which::First => ("AND ?3 ORDER BY seq, owner LIMIT 1", &true),
            Which::Before(seq) => ("AND seq < ?3 ORDER BY seq DESC LIMIT 1", seq),
        };
        let sql = format!("SELECT seq, owner, peer, expires, detail FROM part WHERE name = ?1 AND role = ?2 {which}");
        let found = self.connection.prepare_cached(&sql).and_then(|mut statement| {
            statement.query_row(params![request.name.as_str(), role.number(), value], |row| part_row(role, row)).optional()
        });
        found.map_err(|cause| self.told(cause))
    }

    /// Extends the waiter's place, as the whole step would.
    fn stay(&self, request: &Acquire, waits: &Waits) -> Result<()> {
        let (Some(PartRow { part, .. }), Some(place)) = (&waits.place, request.place) else { return Ok(()) };
        let sql = "UPDATE part SET expires = max(expires, ?5) WHERE name = ?1 AND role = ?2 AND seq = ?3 AND owner = ?4";
        let until = nanos(self.at.plus(place));
        let key = params![request.name.as_str(), part.role.number(), part.seq.cast_signed(), part.owner.to_string(), until];
        let written = self.execute(sql, key)?;
        self.check_written(written)
    }
}
