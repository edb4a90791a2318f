//! For people: what lies under a name, and under many names. The dead are not shown, and stay for a writer to bury.

use rusqlite::params;

use super::book::{Book, Row, Turn};
use super::steps::nanos;
use crate::backend::{Holder, Listing, Page, Snapshot};
use crate::error::Result;
use crate::name::{Name, matches_pattern};
use crate::owner::WireOwner;

impl Book {
    pub(super) fn inspect(&mut self, name: &Name) -> Result<Option<Snapshot>> {
        self.turn(false, |turn| {
            let row = turn.read(name)?.row;
            turn.snapshot(name, row)
        })
    }

    pub(super) fn list(&mut self, listing: &Listing) -> Result<Page> {
        self.turn(false, |turn| {
            let after = listing.after.as_deref().unwrap_or_default();
            // Names are never empty, so the first page begins after the empty one.
            let rows = turn.query("SELECT name, body FROM lock WHERE name > ?1 ORDER BY name", [after], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
            })?;
            let mut page = Page::default();
            let mut matching = rows.into_iter().filter(|(name, _)| matches_pattern(&listing.pattern, name));
            let mut last = None;
            for (name, body) in matching.by_ref().take(listing.limit) {
                let name = Name::new(&name)?;
                let row = turn.parsed(&name, &body)?;
                page.found.extend(turn.snapshot(&name, row)?);
                last = Some(String::from(name));
            }
            page.next = last.filter(|_| matching.next().is_some());
            Ok(page)
        })
    }
}

impl Turn<'_> {
    fn snapshot(&self, name: &Name, mut row: Row) -> Result<Option<Snapshot>> {
        row.bury(self.lives);
        let Some(mut found) = row.record.snapshot(name, self.at()) else { return Ok(None) };
        found.holders = found.holders.into_iter().map(|holder| self.introduce(holder)).collect::<Result<_>>()?;
        Ok(Some(found))
    }

    /// The holder with its card, if it told.
    pub(super) fn introduce(&self, mut holder: Holder) -> Result<Holder> {
        if let Ok(owner) = holder.owner.parse::<WireOwner>() {
            let sql = "SELECT card FROM client WHERE id = ?1 AND ends > ?2";
            let card = self.query(sql, params![owner.client.to_string(), nanos(self.at())], |row| row.get::<_, String>(0))?;
            holder.client = card.first().and_then(|card| serde_json::from_str(card).ok());
        }
        Ok(holder)
    }
}
