//! Answers as rows of the model.

use std::collections::{BTreeSet, HashMap};

use mysql_async::Row;
use mysql_async::prelude::FromValue;

use super::conn::Sets;
use crate::error::{Error, ErrorKind};
use crate::name::Name;
use crate::owner::WireOwner;
use crate::store::sql::poll::{Seen, SeenWake};
use crate::store::sql::rows::NameRows;
use crate::store::sql::text;
use crate::store::sql::{Bounds, Failed, Put};

/// Where the answer to a batch that locks has the head rows and the fence rows that it locked, the clock, and the rows.
const HEADS: usize = 1;
const FENCES: usize = 2;
pub(super) const HEADER: usize = 3;
pub(super) const ROWS: usize = 4;

pub(super) fn unexpected() -> Failed {
    Failed::Error(Error::new(ErrorKind::Protocol, "mysql answered something unexpected"))
}

/// A column of a row.
pub(super) fn get<T: FromValue>(row: &Row, column: usize) -> Result<T, Failed> {
    row.get_opt(column).and_then(Result::ok).ok_or_else(unexpected)
}

/// A number of a row that must be there.
pub(super) fn number(row: Option<&Row>, column: usize) -> Result<i64, Failed> {
    get(row.ok_or_else(unexpected)?, column)
}

/// The first column of the last set.
pub(super) fn column(sets: &Sets) -> Result<Vec<Vec<u8>>, Failed> {
    sets.last().into_iter().flatten().map(|row| get(row, 0)).collect()
}

fn set(sets: &Sets, at: usize) -> &[Row] {
    sets.get(at).map_or(&[], |set| set)
}

/// The rows of some names. `header` has the clock and the last token of removed rows; `rows` one row for each part, or one without.
pub(super) fn found(names: &[Name], header: &[Row], rows: &[Row]) -> Result<HashMap<Name, NameRows>, Failed> {
    let (clock, floor) = (number(header.first(), 0)?, number(header.first(), 1)?.cast_unsigned());
    let by_bytes: HashMap<&[u8], &Name> = names.iter().map(|name| (name.as_str().as_bytes(), name)).collect();
    let absent = NameRows { token: floor, ..NameRows::default() };
    let mut found: HashMap<Name, NameRows> = names.iter().map(|name| (name.clone(), absent.clone())).collect();
    for row in rows {
        let bytes: Vec<u8> = get(row, 0)?;
        let Some(name) = by_bytes.get(&bytes[..]) else { continue };
        let Some(known) = found.get_mut(*name) else { continue };
        if known.version.is_none() {
            let body: Option<String> = get(row, 3)?;
            *known = NameRows::parse(name, clock, get(row, 1)?, get(row, 2)?, body.as_deref(), None).map_err(Failed::Error)?;
        }
        if let Some(role) = get::<Option<u8>>(row, 4)? {
            let (owner, detail): (String, String) = (get(row, 6)?, get(row, 8)?);
            let part = text::parse_part(name, role, get(row, 5)?, &owner, get(row, 7)?, &detail).map_err(Failed::Error)?;
            known.parts.insert(part.part.key(), part);
        }
    }
    Ok(found)
}

/// The rows of a name and the clock, in the answer to a batch that locked its row. Blocked if somebody else has it locked.
pub(super) fn locked(name: &Name, sets: &Sets) -> Result<(NameRows, i64), Failed> {
    let header = set(sets, HEADER);
    let rows = found(std::slice::from_ref(name), header, set(sets, ROWS))?.remove(name).unwrap_or_default();
    if rows.version.is_some() && set(sets, HEADS).is_empty() {
        let message = "another transaction has the row locked; nothing was done";
        return Err(Failed::Blocked(Error::new(ErrorKind::Unavailable, message)));
    }
    Ok((rows, number(header.first(), 0)?))
}

/// Which of some puts can be written, after their rows were locked.
pub(super) struct Fit {
    pub(super) clock: i64,
    in_time: bool,
    /// Whether clients of other stores wait for everything at it, by the name of a head row that was locked.
    heads: HashMap<Vec<u8>, bool>,
    fences: BTreeSet<Vec<u8>>,
    versions: HashMap<Vec<u8>, i64>,
}

impl Fit {
    pub(super) fn of(sets: &Sets, bounds: Bounds) -> Self {
        let versions = set(sets, ROWS).iter().filter_map(|row| Some((get(row, 0).ok()?, get(row, 1).ok()?))).collect();
        let clock = number(set(sets, HEADER).first(), 0).unwrap_or(0);
        let in_time = (bounds.earliest..=bounds.until).contains(&clock);
        let head = |row: &Row| Some((get(row, 0).ok()?, get::<i64>(row, 1).is_ok_and(|until| until > clock)));
        let heads = set(sets, HEADS).iter().filter_map(head).collect();
        let fences = set(sets, FENCES).iter().filter_map(|row| get(row, 0).ok()).collect();
        Self { clock, in_time, heads, fences, versions }
    }

    fn is_current(&self, put: &Put) -> bool {
        self.in_time && put.version.is_some() && self.versions.get(put.name.as_str().as_bytes()).copied() == put.version
    }

    fn is_ours(&self, put: &Put) -> bool {
        let name = put.name.as_str().as_bytes();
        self.heads.contains_key(name) && (!put.grants || self.fences.contains(name))
    }

    pub(super) fn fits(&self, put: &Put) -> bool {
        self.is_current(put) && self.is_ours(put)
    }

    /// How many notice the put, besides those who wait here.
    pub(super) fn woke(&self, put: &Put) -> u32 {
        let all = put.wake.all && self.heads.get(put.name.as_str().as_bytes()).is_some_and(|others| *others);
        u32::from(all) + u32::from(put.wake.head.is_some())
    }

    pub(super) fn all(&self, puts: &[Put]) -> bool {
        puts.iter().all(|put| self.fits(put))
    }

    /// Whether nothing but a lock of somebody else is in the way.
    pub(super) fn is_locked(&self, puts: &[Put]) -> bool {
        puts.iter().all(|put| self.is_current(put)) && !self.all(puts)
    }
}

/// What a look at the versions of some names tells.
pub(super) fn seen(names: &[Name], rows: &[Row]) -> Result<HashMap<Name, Seen>, Failed> {
    let by_bytes: HashMap<&[u8], &Name> = names.iter().map(|name| (name.as_str().as_bytes(), name)).collect();
    let mut seen = HashMap::with_capacity(rows.len());
    for row in rows {
        let bytes: Vec<u8> = get(row, 0)?;
        let Some(name) = by_bytes.get(&bytes[..]) else { continue };
        let head = get::<Option<String>>(row, 4)?.and_then(|owner| owner.parse::<WireOwner>().ok());
        let wake = SeenWake { all_version: get(row, 2)?, head_version: get(row, 3)?, head };
        seen.insert((*name).clone(), Seen { version: get(row, 1)?, wake: Some(wake) });
    }
    Ok(seen)
}
