//! The statements for a waiter of a long queue that asks again; see [`sql::waiting`](crate::store::sql::waiting).

use std::time::Duration;

use super::conn::Batch;
use super::rows::{self, found, number};
use super::schema::{CLOCK, Texts, is_part, of};
use super::statements::Live;
use crate::name::Name;
use crate::runtime::Instant;
use crate::store::sql::rows::PartKey;
use crate::store::sql::text;
use crate::store::sql::waiting::Standing;
use crate::store::sql::{Answer, Failed};

impl Texts {
    /// Reads what a waiter that asks again needs: the clock and the last token of removed rows, the head row with its place, the first one and the
    /// one before it, and how many stand before it.
    fn standing(&self, batch: &mut Batch, name: &Name, place: PartKey, at: Instant) {
        let (head, part, (_, seq, _)) = (&self.head, &self.part, place);
        let (name_text, role, seq) = (of(name), place.0.number(), seq.cast_signed());
        let queue = format!("FROM {part} AS q WHERE q.name = {name_text} AND q.role = {role}");
        let columns = "q.name, q.role, q.seq, q.owner, q.expires, q.detail";
        batch.push(format!("SELECT {CLOCK}, floor FROM {}", self.store));
        batch.push(format!(
            "SELECT h.name, h.version, h.token, h.body, p.role, p.seq, p.owner, p.expires, p.detail FROM {head} AS h LEFT JOIN (\
             (SELECT {columns} FROM {part} AS q WHERE {}) \
             UNION ALL (SELECT {columns} {queue} ORDER BY q.seq, q.owner LIMIT 1) \
             UNION ALL (SELECT {columns} {queue} AND q.seq < {seq} ORDER BY q.seq DESC, q.owner DESC LIMIT 1)) AS p \
             ON p.name = h.name WHERE h.name = {name_text}",
            is_part(name, place)
        ));
        batch.push(format!("SELECT COUNT(*) {queue} AND q.seq < {seq} AND q.expires > {}", text::nanos(at)));
    }

    /// Extends a place of which so much is left, unless somebody has it locked; tells whether it did.
    fn extend_place(&self, batch: &mut Batch, name: &Name, place: PartKey, left: Duration, until: Instant) {
        let (part, this) = (&self.part, is_part(name, place));
        let (left, until) = (left.as_nanos(), text::nanos(until));
        batch.push("SET @lk_ok = 0");
        batch.push(format!(
            "SELECT 1 INTO @lk_ok FROM {part} WHERE {this} AND expires > {CLOCK} * 1000 + {left} FOR UPDATE SKIP LOCKED"
        ));
        batch.push(format!("UPDATE {part} SET expires = GREATEST(expires, {until}) WHERE {this} AND @lk_ok = 1"));
        batch.commit();
        batch.push("SELECT @lk_ok");
    }
}

impl Live {
    pub(super) async fn run_standing(&self, name: &Name, place: PartKey, at: Instant) -> Result<Answer<Standing>, Failed> {
        let mut batch = Batch::default();
        self.texts.standing(&mut batch, name, place, at);
        let sets = self.door.send(batch).await?;
        let [header, heads, before] = &sets[..] else { return Err(rows::unexpected()) };
        let rows = found(std::slice::from_ref(name), header, heads)?.remove(name).unwrap_or_default();
        let ahead = u32::try_from(number(before.first(), 0)?).unwrap_or(u32::MAX);
        Ok(Answer { clock: number(header.first(), 0)?, told: Standing { rows, ahead } })
    }

    pub(super) async fn run_extend_place(
        &self,
        name: &Name,
        place: PartKey,
        left: Duration,
        until: Instant,
    ) -> Result<bool, Failed> {
        let mut batch = Batch::begin();
        self.texts.extend_place(&mut batch, name, place, left, until);
        let sets = self.door.send(batch).await?;
        Ok(number(sets.last().and_then(|set| set.first()), 0)? == 1)
    }
}
