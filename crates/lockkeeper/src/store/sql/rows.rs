//! The rows of some names in memory: the engine works on them, and what it changed is written by one statement.

use std::collections::{BTreeMap, BTreeSet};

use super::clock::instant;
use super::text;
use crate::error::Result;
use crate::model::{Part, RequestRef, Role, Wake};
use crate::name::Name;
use crate::owner::WireOwner;
use crate::runtime::Instant;
use crate::store::kit::engine::{Entry, Rows, Waking};
use crate::store::kit::rows::{self as kit, HeadRow, PartRow, RowTable};

/// What tells parts of one name apart.
pub(crate) type PartKey = (Role, u64, WireOwner);

/// All that lies under one name, as the server had it at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct NameRows {
    /// Drawn at random by each step that writes; `None`: the name has no row.
    pub(crate) version: Option<i64>,
    /// The last token granted for the name, or for names that have no row any more.
    pub(crate) token: u64,
    /// `None`: nothing lies there.
    pub(crate) head: Option<HeadRow<()>>,
    /// In the order of their keys.
    pub(crate) parts: BTreeMap<PartKey, PartRow<()>>,
    /// The server's time when they were read.
    pub(crate) as_of: Instant,
}

impl NameRows {
    /// Makes it of the columns of a table.
    ///
    /// `clock` is the server's in µs, read with them.
    pub(crate) fn parse(
        name: &Name,
        clock: i64,
        version: Option<i64>,
        token: i64,
        body: Option<&str>,
        parts: Option<&str>,
    ) -> Result<Self> {
        let token = token.cast_unsigned();
        let head = body.map(|body| text::parse_head(name, body, token)).transpose()?;
        let parts = parts.map(|parts| text::parse_parts(name, parts)).transpose()?.unwrap_or_default();
        let parts = parts.into_iter().map(|row| (row.part.key(), row)).collect();
        Ok(Self { version, token, head, parts, as_of: instant(clock) })
    }
}

impl NameRows {
    /// Whether a place in the queue has ended between then and now. It may have been extended meanwhile, without a change of the version
    /// ([`waiting`](super::waiting)); so a step must not be computed on these rows.
    pub(crate) fn has_doubtful_place(&self, now: Instant) -> bool {
        let since = |row: &PartRow<()>| row.part.expires > self.as_of && row.part.expires <= now;
        self.parts.values().any(|row| row.part.role == Role::Waiter && since(row))
    }

    /// Whether the head row says that there are no part rows.
    pub(crate) fn is_head_alone(&self) -> bool {
        self.head.as_ref().is_none_or(|head| head.roles.is_empty())
    }
}

/// One name while the engine works on it.
#[derive(Debug, Default)]
pub(crate) struct NameWork {
    /// As it is now; the version is the one that was read.
    pub(crate) rows: NameRows,
    pub(crate) changed: bool,
    pub(crate) put: BTreeSet<PartKey>,
    pub(crate) deleted: BTreeSet<PartKey>,
    pub(crate) wake: Wake,
}

/// Some names while the engine works on them.
#[derive(Debug, Default)]
pub(crate) struct Work(pub(crate) BTreeMap<Name, NameWork>);

impl Work {
    pub(crate) fn add(&mut self, name: &Name, rows: NameRows) {
        self.0.insert(name.clone(), NameWork { rows, ..NameWork::default() });
    }

    pub(crate) fn of(name: &Name, rows: NameRows) -> Self {
        let mut work = Self::default();
        work.add(name, rows);
        work
    }

    pub(crate) fn is_changed(&self) -> bool {
        self.0.values().any(|work| work.changed)
    }

    fn name(&mut self, name: &Name) -> &mut NameWork {
        self.0.entry(name.clone()).or_default()
    }
}

impl RowTable for Work {
    type Peer = ();

    fn head(&mut self, name: &Name) -> Result<(Option<HeadRow<()>>, u64)> {
        let rows = &self.name(name).rows;
        Ok((rows.head.clone(), rows.token))
    }

    fn scan(&mut self, name: &Name, role: Role, visit: &mut dyn FnMut(PartRow<()>) -> bool) -> Result<()> {
        let parts = &self.name(name).rows.parts;
        for row in parts.values().filter(|row| row.part.role == role) {
            if !visit(*row) {
                break;
            }
        }
        Ok(())
    }

    fn part(&mut self, name: &Name, role: Role, owner: WireOwner) -> Result<Option<PartRow<()>>> {
        Ok(self.name(name).rows.parts.get(&(role, 0, owner)).copied())
    }

    fn put_head(&mut self, name: &Name, row: &HeadRow<()>, _before: Option<&HeadRow<()>>) -> Result<()> {
        let work = self.name(name);
        work.changed = true;
        work.rows.token = work.rows.token.max(row.last_token);
        work.rows.head = Some(HeadRow { last_token: work.rows.token, ..row.clone() });
        Ok(())
    }

    /// The row stays, empty: the next step finds its version, and its token is not forgotten.
    fn delete_head(&mut self, name: &Name, last_token: u64) -> Result<()> {
        let work = self.name(name);
        work.changed = true;
        work.rows.token = work.rows.token.max(last_token);
        work.rows.head = None;
        Ok(())
    }

    fn put_part(&mut self, name: &Name, row: &PartRow<()>) -> Result<()> {
        let (work, key) = (self.name(name), row.part.key());
        work.changed = true;
        work.rows.parts.insert(key, *row);
        work.deleted.remove(&key);
        work.put.insert(key);
        Ok(())
    }

    fn delete_part(&mut self, name: &Name, part: &Part) -> Result<()> {
        let (work, key) = (self.name(name), part.key());
        work.changed = true;
        work.rows.parts.remove(&key);
        work.put.remove(&key);
        work.deleted.insert(key);
        Ok(())
    }
}

impl Rows for Work {
    type Peer = ();

    fn load(&mut self, name: &Name, request: RequestRef<'_>, at: Instant) -> Result<Entry<()>> {
        kit::load(self, name, request, at)
    }

    fn save(&mut self, name: &Name, entry: Entry<()>) -> Result<()> {
        kit::save(self, name, entry)
    }

    /// The statement that writes the rows notifies, and says how many were told.
    fn wake(&mut self, name: &Name, waking: Waking<()>) -> Result<u32> {
        let wake = &mut self.name(name).wake;
        *wake = Wake { all: wake.all || waking.wake.all, head: wake.head.or(waking.wake.head) };
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What had ended when it was read stays so. What ended since may have been extended.
    #[test]
    fn a_place_that_ended_since_it_was_read_is_doubtful() {
        let name = Name::new("n").unwrap();
        let owner = "00000000-0000-0000-0000-00000000beef:1";
        let read = |expires: i64, role: Role| {
            let parts = format!(r#"[[{}, 1, "{owner}", {expires}, "{{}}"]]"#, role.number());
            NameRows::parse(&name, 10, Some(1), 1, None, Some(&parts)).unwrap()
        };
        let now = instant(20);
        for (expires, doubtful) in [(9_000, false), (10_000, false), (10_001, true), (20_000, true), (20_001, false)] {
            assert_eq!(read(expires, Role::Waiter).has_doubtful_place(now), doubtful, "{expires}");
            assert!(!read(expires, Role::Reader).has_doubtful_place(now), "readers have no place");
        }
    }
}
