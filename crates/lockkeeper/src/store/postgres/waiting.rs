//! The statements for a waiter of a long queue that asks again; see [`sql::waiting`](crate::store::sql::waiting).

use std::time::Duration;

use tokio_postgres::types::Type;

use super::columns::{get, name_rows, too_few};
use super::schema::{CLOCK, FLOOR, WAIT_UNSYNCED};
use super::statements::{Live, Parameter};
use crate::name::Name;
use crate::runtime::Instant;
use crate::store::sql::rows::PartKey;
use crate::store::sql::text;
use crate::store::sql::waiting::Standing;
use crate::store::sql::{Answer, Failed};

/// What a waiter that asks again needs. `$1` name, `$2` role, `$3` number and `$4` owner of its place, `$5` the time.
pub(super) fn standing() -> String {
    let queue = "FROM {part} q WHERE q.name = $1 AND q.role = $2";
    let place = format!("SELECT q.role, q.seq, q.owner, q.expires, q.detail {queue}");
    format!(
        "SELECT h.version, coalesce(h.token, {FLOOR}), h.body,
             (SELECT json_agg(json_build_array(p.role, p.seq, p.owner, p.expires, p.detail))::text FROM (
                 ({place} AND q.seq = $3 AND q.owner = $4)
                 UNION ALL ({place} ORDER BY q.seq, q.owner LIMIT 1)
                 UNION ALL ({place} AND q.seq < $3 ORDER BY q.seq DESC, q.owner DESC LIMIT 1)) AS p),
             {CLOCK}, (SELECT count(*) {queue} AND q.seq < $3 AND q.expires > $5)
         FROM (SELECT $1::bytea AS name) AS n LEFT JOIN {{head}} h ON h.name = n.name"
    )
}

/// Extends a place. `$1` to `$4` as above, `$5` how much of it must be left, `$6` its new end.
pub(super) fn extend_place() -> String {
    format!(
        "WITH {WAIT_UNSYNCED}
         UPDATE {{part}} p SET expires = greatest(p.expires, $6) FROM cfg
         WHERE cfg.t <> '' AND p.name = $1 AND p.role = $2 AND p.seq = $3 AND p.owner = $4 AND p.expires > {CLOCK} * 1000 + $5
         RETURNING p.expires"
    )
}

/// The key of one part row, as the first parameters of a statement.
struct Place<'a> {
    name: &'a [u8],
    role: i16,
    seq: i64,
    owner: String,
}

impl<'a> Place<'a> {
    fn of(name: &'a Name, (role, seq, owner): PartKey) -> Self {
        Self { name: name.as_str().as_bytes(), role: role.number().into(), seq: seq.cast_signed(), owner: owner.to_string() }
    }

    fn parameters(&self) -> Vec<Parameter<'_>> {
        vec![(&self.name, Type::BYTEA), (&self.role, Type::INT2), (&self.seq, Type::INT8), (&self.owner, Type::TEXT)]
    }
}

impl Live {
    pub(super) async fn run_standing(&self, name: &Name, place: PartKey, at: Instant) -> Result<Answer<Standing>, Failed> {
        let (place, at) = (Place::of(name, place), text::nanos(at));
        let mut parameters = place.parameters();
        parameters.push((&at, Type::INT8));
        let rows = self.query(&self.texts.standing, &parameters).await?;
        let row = rows.first().ok_or_else(too_few)?;
        let ahead = u32::try_from(get::<i64>(row, 5)?).unwrap_or(u32::MAX);
        let clock = get(row, 4)?;
        Ok(Answer { clock, told: Standing { rows: name_rows(name, row, 0, clock)?, ahead } })
    }

    pub(super) async fn run_extend_place(
        &self,
        name: &Name,
        place: PartKey,
        left: Duration,
        until: Instant,
    ) -> Result<bool, Failed> {
        let left = i64::try_from(left.as_nanos()).unwrap_or(i64::MAX / 4);
        let (place, until) = (Place::of(name, place), text::nanos(until));
        let mut parameters = place.parameters();
        parameters.push((&left, Type::INT8));
        parameters.push((&until, Type::INT8));
        Ok(!self.query(&self.texts.extend_place, &parameters).await?.is_empty())
    }
}
