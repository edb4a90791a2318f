//! Each request as one transaction.

use rusqlite::params;

use super::connection::{Database, Transaction};
use super::error;
use super::rows::{nanos, not_written};
use crate::backend::{
    Acquire, Attempt, AttemptAll, ClientCard, Count, CountOutcome, Forced, Holder, Listing, Page, Release, Released, Renew,
    Renewed, Snapshot,
};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::owner::ClientId;
use crate::runtime::{Instant, log};
use crate::store::kit::cards::{add_all_cards, add_cards};
use crate::store::kit::listing;

/// How many names a listing reads at a time.
const CHUNK: u32 = 256;

/// Whether the owners of a failed request may hold something all the same.
fn is_open<T>(done: &Result<T>) -> bool {
    matches!(done, Err(error) if error.kind() == ErrorKind::Indeterminate)
}

impl Database {
    pub(super) fn acquire(&mut self, request: &Acquire) -> Result<Attempt> {
        if let Some(busy) = self.still_busy(request)? {
            return Ok(busy);
        }
        let liveness = &self.shared.liveness;
        let known = liveness.holds(request.owner);
        let peer = liveness.begin_hold(request.owner, self.shared.runtime.now().plus(request.lease))?;
        let attempt = self.transaction(true, |transaction| transaction.engine(Some(peer)).acquire(request));
        // An unknown outcome counts as held.
        if !(is_open(&attempt) || known && attempt.is_err() || matches!(attempt, Ok(Attempt::Granted(_)))) {
            self.shared.liveness.end_hold(request.owner);
        }
        attempt
    }

    pub(super) fn acquire_all(&mut self, requests: &[Acquire]) -> Result<AttemptAll> {
        let now = self.shared.runtime.now();
        let mut peer = None;
        for request in requests {
            peer = Some(self.shared.liveness.begin_hold(request.owner, now.plus(request.lease))?);
        }
        let done = self.transaction(true, |transaction| transaction.engine(peer).acquire_all(requests));
        if !is_open(&done) && !matches!(done, Ok(AttemptAll::Granted(_))) {
            requests.iter().for_each(|request| self.shared.liveness.end_hold(request.owner));
        }
        done
    }

    pub(super) fn release(&mut self, request: &Release) -> Result<Released> {
        let now = self.shared.runtime.now();
        let peer = match &request.then {
            Some(then) => Some(self.shared.liveness.begin_hold(then.owner, now.plus(then.lease))?),
            None => None,
        };
        let released = self.transaction(true, |transaction| transaction.engine(peer).release(request));
        let liveness = &self.shared.liveness;
        if let Some(then) = &request.then
            && !is_open(&released)
            && !matches!(&released, Ok(Released { next: Some(Attempt::Granted(_)), .. }))
        {
            liveness.end_hold(then.owner);
        }
        match released {
            Err(error) if is_of_disk(&error) => {
                let held = liveness.holds(request.owner);
                // The release cannot be written. Nothing is held under a pipe that is closed, and the kernel shows that.
                if liveness.close_for(request.owner, self.shared.runtime.now()) {
                    log!(warn, name = %request.name, owner = %request.owner, %error, "released by closing the liveness pipe");
                    Ok(Released::new(held))
                } else {
                    Err(error)
                }
            }
            Ok(released) => {
                liveness.end_hold(request.owner);
                Ok(released)
            }
            refused => refused,
        }
    }

    pub(super) fn renew(&mut self, requests: &[Renew]) -> Result<Vec<Result<Renewed>>> {
        let answers = self.transaction(true, |transaction| {
            let mut engine = transaction.engine(None);
            Ok(requests.iter().map(|request| engine.renew(request)).collect::<Vec<_>>())
        })?;
        let now = self.shared.runtime.now();
        let liveness = &self.shared.liveness;
        for (request, answer) in requests.iter().zip(&answers) {
            match (answer, request.lease) {
                (Ok(Renewed::Gone), _) => liveness.end_hold(request.owner),
                (Ok(Renewed::Kept { .. }), Some(lease)) if liveness.holds(request.owner) => {
                    liveness.begin_hold(request.owner, now.plus(lease))?;
                }
                _ => {}
            }
        }
        Ok(answers)
    }

    pub(super) fn count(&mut self, request: &Count) -> Result<CountOutcome> {
        self.transaction(true, |transaction| transaction.engine(None).count(request))
    }

    pub(super) fn force_release(&mut self, name: &Name) -> Result<Forced> {
        self.transaction(true, |transaction| {
            let from = transaction.engine(None).force_release(name)?;
            Ok(Forced { from: transaction.with_cards(from)? })
        })
    }

    pub(super) fn inspect(&mut self, name: &Name) -> Result<Option<Snapshot>> {
        self.transaction(false, |transaction| transaction.snapshot(name))
    }

    pub(super) fn list(&mut self, listing: &Listing) -> Result<Page> {
        self.transaction(false, |transaction| {
            listing::page(transaction, listing, Transaction::names_after, Transaction::snapshot)
        })
    }

    pub(super) fn announce(&mut self, card: &ClientCard, until: Instant) -> Result<()> {
        let text = serde_json::to_string(card).map_err(not_written)?;
        self.transaction(true, |transaction| {
            transaction.execute("DELETE FROM client WHERE ends <= ?1", params![nanos(transaction.at)])?;
            transaction
                .execute(
                    "INSERT INTO client (id, ends, card) VALUES (?1, ?2, ?3) ON CONFLICT (id) DO UPDATE SET ends = ?2, card = ?3",
                    params![card.id.to_string(), nanos(until), text],
                )
                .map(drop)
        })
    }

    /// Lists this store as one to wake for the name, as long as somebody here subscribes to all of it.
    pub(super) fn update_listener(&mut self, name: &Name) -> Result<()> {
        let instance = self.shared.liveness.instance().to_string();
        self.transaction(true, |transaction| {
            let listens = transaction.shared.wakeups.listeners().has_unfiltered(name);
            let sql = if listens {
                "INSERT INTO listener (name, instance) VALUES (?1, ?2) ON CONFLICT DO NOTHING"
            } else {
                "DELETE FROM listener WHERE name = ?1 AND instance = ?2"
            };
            transaction.execute(sql, params![name.as_str(), instance])?;
            if listens { Ok(()) } else { transaction.pass_on(name, 1) }
        })
    }
}

impl Transaction<'_> {
    fn snapshot(&mut self, name: &Name) -> Result<Option<Snapshot>> {
        let mut seen = self.engine(None).snapshot(name)?;
        seen.iter_mut().try_for_each(|seen| add_all_cards(seen, |client| self.card(client)))?;
        Ok(seen)
    }

    fn with_cards(&mut self, mut holders: Vec<Holder>) -> Result<Vec<Holder>> {
        add_cards(&mut holders, |client| self.card(client))?;
        Ok(holders)
    }

    fn card(&mut self, client: ClientId) -> Result<Option<ClientCard>> {
        if let Some(known) = self.cards.get(&client) {
            return Ok(known.clone());
        }
        let sql = "SELECT card FROM client WHERE id = ?1 AND ends > ?2";
        let cards = self.query(sql, params![client.to_string(), nanos(self.at)], |row| row.get::<_, String>(0))?;
        let card: Option<ClientCard> = cards.first().and_then(|card| serde_json::from_str(card).ok());
        self.cards.insert(client, card.clone());
        Ok(card)
    }

    fn names_after(&mut self, after: &str, from: &str) -> Result<Vec<Name>> {
        let sql = "SELECT name FROM head WHERE name > ?1 AND name >= ?2 ORDER BY name LIMIT ?3";
        let names = self.query(sql, params![after, from, CHUNK], |row| row.get::<_, String>(0))?;
        names.into_iter().map(Name::try_from).collect()
    }
}

/// Whether the disk failed, and not the request.
fn is_of_disk(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate | ErrorKind::Denied) && !error::is_busy(error)
}
