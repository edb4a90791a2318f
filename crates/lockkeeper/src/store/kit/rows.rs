//! Records in two tables: a head row per name, a part row per waiter, reader, permit or remembered request.
//!
//! A step reads the head and the parts that its request needs, and writes the rows that it changed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::engine::Entry;
use crate::error::Result;
use crate::model::{Head, Part, Record, RequestRef, Role, Roles, Want};
use crate::name::Name;
use crate::owner::WireOwner;
use crate::runtime::Instant;

/// A head row. A store may keep it as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HeadRow<P> {
    /// `None`: only requests that were carried out are remembered under the name.
    pub(crate) head: Option<Head>,
    /// Of these roles there may be part rows; of others there are none, and nobody has to look.
    #[serde(default, skip_serializing_if = "Roles::is_empty")]
    pub(crate) roles: Roles,
    /// The peer of the one that holds it alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) peer: Option<P>,
    /// The last token granted for the name.
    #[serde(default)]
    pub(crate) last_token: u64,
}

/// A part row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartRow<P> {
    pub(crate) part: Part,
    /// The peer of its owner.
    pub(crate) peer: Option<P>,
}

/// What a SQL store implements for a transaction in which nobody else can change the rows of the name.
pub(crate) trait RowTable {
    /// What tells whether an owner is alive, where the store knows more than its lease.
    type Peer: Copy + Ord;

    /// The head row of the name, and the last token of names that have no row any more.
    fn head(&mut self, name: &Name) -> Result<(Option<HeadRow<Self::Peer>>, u64)>;

    /// Shows the part rows of one role in the order of `seq` and owner, until `visit` returns false.
    fn scan(&mut self, name: &Name, role: Role, visit: &mut dyn FnMut(PartRow<Self::Peer>) -> bool) -> Result<()>;

    /// The part row of one owner, with `seq` 0.
    fn part(&mut self, name: &Name, role: Role, owner: WireOwner) -> Result<Option<PartRow<Self::Peer>>>;

    /// Inserts the head row, or replaces `before`.
    fn put_head(&mut self, name: &Name, row: &HeadRow<Self::Peer>, before: Option<&HeadRow<Self::Peer>>) -> Result<()>;

    /// Removes the head row. `last_token` must stay known elsewhere.
    fn delete_head(&mut self, name: &Name, last_token: u64) -> Result<()>;

    /// Inserts or replaces a part row.
    fn put_part(&mut self, name: &Name, row: &PartRow<Self::Peer>) -> Result<()>;

    /// Removes a part row.
    fn delete_part(&mut self, name: &Name, part: &Part) -> Result<()>;
}

/// What was read of a name.
#[derive(Clone, Debug)]
pub(crate) struct Loaded<P> {
    head: Option<HeadRow<P>>,
    /// In the order of their keys.
    parts: Vec<PartRow<P>>,
    /// Roles of which there may be more.
    unread: Roles,
}

impl<P> Default for Loaded<P> {
    fn default() -> Self {
        Self { head: None, parts: Vec::new(), unread: Roles::default() }
    }
}

/// Reads what a request needs of a name.
pub(crate) fn load<T: RowTable>(table: &mut T, name: &Name, request: RequestRef<'_>, at: Instant) -> Result<Entry<T::Peer>> {
    let (row, floor) = table.head(name)?;
    let Some(row) = row else { return Ok(Entry { floor, ..Entry::default() }) };
    let (mut parts, mut unread) = (Vec::new(), row.roles);
    if !row.roles.is_empty() {
        for want in Head::wants(row.head.as_ref(), request) {
            if row.roles.contains(want.role) && read(table, name, &want, at, &mut parts)? {
                unread.remove(want.role);
            }
        }
        parts.sort_unstable_by_key(|row| row.part.key());
    }
    let mut peers: BTreeMap<_, _> = parts.iter().filter_map(|row| Some((row.part.owner, row.peer?))).collect();
    if let (Some(holder), Some(peer)) = (row.head.as_ref().and_then(Head::holder), row.peer) {
        peers.insert(holder, peer);
    }
    let model_parts: Vec<Part> = parts.iter().map(|row| row.part).collect();
    Ok(Entry {
        record: Record::from_rows(row.head, &model_parts, unread),
        last_token: row.last_token,
        floor,
        peers,
        loaded: Loaded { head: Some(row), parts, unread },
    })
}

/// Reads the rows of one role that are wanted; tells whether these are all that there are.
fn read<T: RowTable>(table: &mut T, name: &Name, want: &Want, at: Instant, parts: &mut Vec<PartRow<T::Peer>>) -> Result<bool> {
    let in_order = want.role == Role::Waiter;
    let mut sought: Vec<WireOwner> = want.owners.iter().flatten().copied().collect();
    let mut first = want.first;
    let mut all = false;
    if first > 0 || in_order && !sought.is_empty() {
        all = true;
        table.scan(name, want.role, &mut |row| {
            if first == 0 && (!in_order || sought.is_empty()) {
                all = false;
                return false;
            }
            if let Some(found) = sought.iter().position(|owner| *owner == row.part.owner) {
                // A waiter whose place has ended goes to the end of the queue: all that stand there are before it.
                if !in_order || row.part.expires > at {
                    sought.swap_remove(found);
                }
            } else if row.part.expires > at {
                first = first.saturating_sub(1);
            }
            parts.push(row);
            true
        })?;
    }
    if !all && !in_order {
        for owner in sought {
            parts.extend(table.part(name, want.role, owner)?);
        }
    }
    Ok(all)
}

/// Writes the rows of an entry that differ from those that were read.
pub(crate) fn save<T: RowTable>(table: &mut T, name: &Name, entry: Entry<T::Peer>) -> Result<()> {
    let Entry { record, last_token, peers, loaded, .. } = entry;
    let Loaded { head: before, parts: old, unread } = loaded;
    let mut roles = unread;
    let mut old = old.into_iter().peekable();
    for part in record.parts() {
        roles.insert(part.role);
        while let Some(gone) = old.next_if(|row| row.part.key() < part.key()) {
            table.delete_part(name, &gone.part)?;
        }
        let row = PartRow { part, peer: peers.get(&part.owner).copied() };
        if old.next_if(|row| row.part.key() == part.key()).is_none_or(|before| before != row) {
            table.put_part(name, &row)?;
        }
    }
    for gone in old {
        table.delete_part(name, &gone.part)?;
    }
    if record.is_empty() {
        return if before.is_some() { table.delete_head(name, last_token) } else { Ok(()) };
    }
    let head = record.head();
    let peer = head.as_ref().and_then(Head::holder).and_then(|holder| peers.get(&holder).copied());
    let row = HeadRow { head, roles, peer, last_token };
    if before.as_ref() == Some(&row) { Ok(()) } else { table.put_head(name, &row, before.as_ref()) }
}
