//! The records, the token counter and the cards of the store; requests run on them through the engine.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{
    Acquire, Attempt, AttemptAll, Claim, ClientCard, Count, CountOutcome, Decision, EventSender, Forced, Listing, Page, Release,
    Released, Renew, Renewed, Snapshot, Standing, StoreEvent, Vote, VoteRequest,
};
use crate::error::Result;
use crate::model::{Quarantine, Record, RequestRef};
use crate::name::Name;
use crate::owner::{ClientId, WireOwner};
use crate::runtime::Instant;
use crate::store::kit::cards::{Cards, add_cards};
use crate::store::kit::engine::{Entry, RecordEngine, Rows, Waking};
use crate::store::kit::listeners::Listeners;
use crate::store::kit::listing;

#[derive(Debug, Default)]
pub(super) struct State {
    records: HashMap<Name, Record>,
    /// The last token granted.
    token: u64,
    /// The wall clock in µs, and the boot clock, when the store was made.
    origin: (u64, Instant),
    pub(super) listeners: Arc<Listeners>,
    muted: bool,
    /// Where events about deleted holds are sent.
    pub(super) events: Vec<EventSender>,
    /// The number of this run of the server.
    run: u64,
    quarantine: Option<Quarantine>,
    cards: Cards,
    /// Expired records are removed when there are as many as this.
    sweep_at: usize,
}

/// What a store knew at some time.
#[derive(Clone, Debug)]
pub struct Saved {
    records: HashMap<Name, Record>,
    token: u64,
    quarantine: Option<Quarantine>,
}

impl Rows for State {
    type Peer = ();

    fn load(&mut self, name: &Name, _request: RequestRef<'_>, _at: Instant) -> Result<Entry<()>> {
        Ok(Entry::whole(self.records.remove(name).unwrap_or_default(), self.token))
    }

    fn save(&mut self, name: &Name, entry: Entry<()>) -> Result<()> {
        self.token = self.token.max(entry.last_token);
        self.put_back(name, entry);
        Ok(())
    }

    fn put_back(&mut self, name: &Name, entry: Entry<()>) {
        if !entry.record.is_empty() {
            self.records.insert(name.clone(), entry.record);
        }
    }

    fn wake(&mut self, name: &Name, waking: Waking<()>) -> Result<u32> {
        Ok(if self.muted { 0 } else { self.listeners.notify(name, waking.wake) })
    }

    fn has_other_listeners(&mut self, name: &Name, client: ClientId) -> Result<bool> {
        Ok(self.listeners.has_other_client(name, client))
    }
}

impl State {
    pub(super) fn new(wall_micros: u64, now: Instant) -> Self {
        Self { origin: (wall_micros, now), ..Self::default() }
    }

    /// The wall clock as it was when the store was made, advanced by the boot clock: setting the clock back has no effect.
    fn engine(&mut self, at: Instant) -> RecordEngine<'_, Self> {
        if self.records.len() >= self.sweep_at.max(1_024) {
            self.sweep(at);
            self.sweep_at = self.records.len() * 2;
        }
        let micros = self.clock(at);
        RecordEngine::new(self, at, micros, None)
    }

    fn sweep(&mut self, at: Instant) {
        self.records.retain(|_, record| {
            record.expire(at);
            !record.is_empty()
        });
    }

    /// The store's clock, in microseconds since 1970.
    fn clock(&self, at: Instant) -> u64 {
        let (wall, made) = self.origin;
        wall + u64::try_from(at.since(made).as_micros()).unwrap_or(0)
    }

    pub(super) fn acquire(&mut self, request: &Acquire, at: Instant) -> Result<Attempt> {
        self.engine(at).acquire(request)
    }

    pub(super) fn acquire_all(&mut self, requests: &[Acquire], at: Instant) -> Result<AttemptAll> {
        self.engine(at).acquire_all(requests)
    }

    pub(super) fn release(&mut self, request: &Release, at: Instant) -> Result<Released> {
        let released = self.engine(at).release(request)?;
        self.push_grants(&request.name, at);
        Ok(released)
    }

    /// Grants to those whose subscriptions asked for it, in the order in which they came, until one has to wait.
    fn push_grants(&mut self, name: &Name, at: Instant) {
        if self.muted {
            return;
        }
        let listeners = Arc::clone(&self.listeners);
        listeners.offer(name, |request, notifier| match self.engine(at).acquire(request) {
            Ok(Attempt::Granted(grant)) => {
                notifier.notify_granted(grant);
                true
            }
            Ok(Attempt::Busy(_)) => false,
            // A request that is late or wrong is never granted.
            Ok(Attempt::Late) | Err(_) => true,
        });
    }

    pub(super) fn renew(&mut self, request: &Renew, at: Instant) -> Result<Renewed> {
        self.engine(at).renew(request)
    }

    pub(super) fn count(&mut self, request: &Count, at: Instant) -> Result<CountOutcome> {
        self.engine(at).count(request)
    }

    pub(super) fn force_release(&mut self, name: &Name, at: Instant) -> Result<Forced> {
        let mut from = self.engine(at).force_release(name)?;
        for owner in from.iter().filter_map(|holder| holder.owner.parse().ok()) {
            self.events.retain(|events| events.send(StoreEvent::HoldDeleted { name: name.clone(), owner }));
        }
        self.push_grants(name, at);
        add_cards(&mut from, |client| Ok(self.cards.card(client, at)))?;
        Ok(Forced { from })
    }

    pub(super) fn inspect(&mut self, name: &Name, at: Instant) -> Result<Option<Snapshot>> {
        let seen = self.engine(at).snapshot(name)?;
        self.cards.add_to(seen, at)
    }

    pub(super) fn list(&mut self, listing: &Listing, at: Instant) -> Result<Page> {
        let all = |state: &Self| state.records.keys().cloned().collect();
        listing::page_of_all(self, listing, all, |state, name| state.inspect(name, at))
    }

    pub(super) fn announce(&mut self, card: ClientCard, now: Instant, until: Instant) {
        self.cards.announce(card, now, until);
    }

    pub(super) fn len(&mut self, at: Instant) -> usize {
        self.sweep(at);
        self.records.len()
    }

    pub(super) fn forget(&mut self) {
        self.records.clear();
        self.quarantine = None;
    }

    pub(super) fn flush(&mut self) {
        self.forget();
        self.token = 0;
    }

    pub(super) fn restart(&mut self) {
        self.run += 1;
    }

    pub(super) fn save(&self) -> Saved {
        Saved { records: self.records.clone(), token: self.token, quarantine: self.quarantine.clone() }
    }

    pub(super) fn restore(&mut self, saved: &Saved, origin: (u64, Instant)) {
        let Saved { records, token, quarantine } = saved.clone();
        (self.records, self.token, self.quarantine, self.origin) = (records, token, quarantine, origin);
    }

    pub(super) fn vote(&mut self, request: &VoteRequest, at: Instant) -> Result<Vote> {
        let decision = self.decide(request, at)?;
        Ok(Vote::new(decision, self.clock(at)))
    }

    fn decide(&mut self, request: &VoteRequest, at: Instant) -> Result<Decision> {
        let VoteRequest { acquire, floor, max_lease } = request;
        if at > acquire.not_after {
            return Ok(Decision::Cast(Attempt::Late));
        }
        let left = Quarantine::meet(&mut self.quarantine, &self.run.to_string(), at, *max_lease);
        let repeated = self.has(&acquire.name, acquire.owner, at)?;
        if !left.is_zero() && !repeated {
            return Ok(Decision::Quarantined(left));
        }
        let given_out = repeated.then_some(self.token);
        let floor = Quarantine::highest_floor(*floor, self.clock(at), given_out, *max_lease);
        let mut attempt = self.engine(at).with_token_floor(floor).acquire(acquire)?;
        if let Attempt::Granted(grant) = &mut attempt {
            // The same grant again never has a smaller token than before: an earlier floor may have raised it.
            grant.token = grant.token.max(Some(floor)).max(given_out);
            self.token = self.token.max(grant.token.unwrap_or(0));
        }
        Ok(Decision::Cast(attempt))
    }

    fn has(&mut self, name: &Name, owner: WireOwner, at: Instant) -> Result<bool> {
        let look = Renew::new(name.clone(), Claim::Mutex, owner, None);
        Ok(self.renew(&look, at)?.is_kept())
    }

    pub(super) fn keep_vote(&mut self, request: &Renew, at: Instant, not_after: Instant, max_lease: Duration) -> Result<Renewed> {
        let left = Quarantine::meet(&mut self.quarantine, &self.run.to_string(), at, max_lease);
        let kept = self.renew(request, at)?;
        let (Renewed::Gone, Some(lease), false) = (kept, request.lease, left.is_zero()) else { return Ok(kept) };
        if at > not_after {
            return Err(Quarantine::late_renewal());
        }
        let again = Acquire::new(request.name.clone(), request.claim, request.owner, lease).with_times(at, not_after);
        Ok(if let Attempt::Granted(_) = self.acquire(&again, at)? { Renewed::kept(request.lease) } else { Renewed::Gone })
    }

    pub(super) fn standing(&self, at: Instant, max_lease: Duration) -> Standing {
        Quarantine::standing(self.quarantine.as_ref(), &self.run.to_string(), at, max_lease)
    }

    pub(super) fn admit(&mut self, max_lease: Duration) {
        Quarantine::admit(&mut self.quarantine, &self.run.to_string(), max_lease);
    }

    pub(super) fn mute(&mut self) {
        self.muted = true;
    }
}
