//! All names of the store, the token counter, and who listens.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use crate::backend::{
    Acquire, Attempt, AttemptAll, Claim, ClientCard, Count, CountOutcome, Forced, Holder, Listing, Notifier, Page, Release,
    Released, Renew, Renewed, Snapshot, Standing, Subscription, Vote, Watch,
};
use crate::error::{Error, ErrorKind, Result};
use crate::model::{Now, Quarantine, Record, Wake};
use crate::name::{Name, matches_pattern};
use crate::owner::{ClientId, WireOwner};
use crate::runtime::Instant;

#[derive(Debug, Default)]
pub(super) struct State {
    records: HashMap<Name, Record>,
    /// The last token given out.
    token: u64,
    /// What the wall clock said, in µs, when the boot clock said that: when the store was made.
    origin: (u64, Instant),
    listeners: HashMap<Name, Vec<Listener>>,
    last_listener: u64,
    muted: bool,
    /// Which run this is, and which one it knows of.
    run: u64,
    quarantine: Option<Quarantine>,
    cards: HashMap<ClientId, (ClientCard, Instant)>,
    /// Records are swept of the expired when there are as many as this.
    sweep_at: usize,
}

#[derive(Debug)]
struct Listener {
    id: u64,
    owner: Option<WireOwner>,
    notifier: Notifier,
}

impl State {
    pub(super) fn new(wall_micros: u64, now: Instant) -> Self {
        Self { origin: (wall_micros, now), ..Self::default() }
    }

    /// A step on one name. The record stays only if something is left in it.
    fn step<T>(&mut self, name: &Name, at: Instant, step: impl FnOnce(&mut Record, Now) -> Result<(T, Wake)>) -> Result<T> {
        self.step_and_wake(name, at, step).map(|(answer, _)| answer)
    }

    /// As [`State::step`]; and how many were woken by it.
    fn step_and_wake<T>(
        &mut self,
        name: &Name,
        at: Instant,
        step: impl FnOnce(&mut Record, Now) -> Result<(T, Wake)>,
    ) -> Result<(T, u32)> {
        let now = Now { at, token: self.next_token(at) };
        let answer = match self.records.entry(name.clone()) {
            Entry::Occupied(mut found) => {
                let answer = step(found.get_mut(), now);
                if found.get().is_empty() {
                    found.remove();
                }
                answer
            }
            Entry::Vacant(place) => {
                let mut record = Record::default();
                let answer = step(&mut record, now);
                if !record.is_empty() {
                    place.insert(record);
                }
                answer
            }
        };
        if self.records.len() >= self.sweep_at.max(1_024) {
            self.sweep(at);
            self.sweep_at = self.records.len() * 2;
        }
        let (answer, wake) = answer?;
        let woke = self.wake(name, wake);
        Ok((answer, woke))
    }

    fn sweep(&mut self, at: Instant) {
        self.records.retain(|_, record| {
            record.expire(at);
            !record.is_empty()
        });
    }

    /// Larger than all given out, here or in an earlier life of the program: the wall clock, as it stood when the store was made and
    /// moved on by the boot clock, is the floor.
    fn next_token(&self, at: Instant) -> u64 {
        let (wall, made) = self.origin;
        let floor = wall + u64::try_from(at.since(made).as_micros()).unwrap_or(0);
        floor.max(self.token + 1)
    }

    /// A grant's token is the last one from now on.
    fn spend(&mut self, attempt: &Attempt) {
        if let Attempt::Granted(grant) = attempt {
            self.token = self.token.max(grant.token.unwrap_or(0));
        }
    }

    pub(super) fn acquire(&mut self, request: &Acquire, at: Instant) -> Result<Attempt> {
        let attempt =
            self.step(&request.name, at, |record, now| record.acquire(request, now).map(|step| (step.answer, step.wake)))?;
        self.spend(&attempt);
        Ok(attempt)
    }

    pub(super) fn acquire_all(&mut self, requests: &[Acquire], at: Instant) -> Result<AttemptAll> {
        let before: Vec<_> = requests.iter().map(|request| self.records.get(&request.name).cloned()).collect();
        let mut grants = Vec::with_capacity(requests.len());
        for (index, request) in requests.iter().enumerate() {
            // Whoever asks for several does not stand in line for one.
            let request = Acquire { place: None, ..request.clone() };
            let refused = match self.acquire(&request, at) {
                Ok(Attempt::Granted(grant)) => {
                    grants.push(grant);
                    continue;
                }
                Ok(Attempt::Busy(busy)) => Ok(AttemptAll::Busy { index, busy }),
                Ok(Attempt::Late) => Ok(AttemptAll::Late),
                Err(error) => Err(error),
            };
            // In reverse, so that the oldest copy of a name that was given twice is the one that stays.
            for (request, before) in requests.iter().zip(before).rev() {
                match before {
                    Some(record) => self.records.insert(request.name.clone(), record),
                    None => self.records.remove(&request.name),
                };
            }
            return refused;
        }
        if grants.is_empty() {
            return Err(Error::new(ErrorKind::InvalidArgument, "asked for no lock at all; name at least one"));
        }
        Ok(AttemptAll::Granted(grants))
    }

    pub(super) fn release(&mut self, request: &Release, at: Instant) -> Result<Released> {
        let (released, woke) = self
            .step_and_wake(&request.name, at, |record, now| record.release(request, now).map(|step| (step.answer, step.wake)))?;
        if let Some(next) = &released.next {
            self.spend(next);
        }
        Ok(Released { woke: Some(woke), ..released })
    }

    pub(super) fn renew(&mut self, request: &Renew, at: Instant) -> Renewed {
        // A renewal mints no token.
        self.records.get_mut(&request.name).map_or(Renewed::Gone, |record| record.renew(request, Now { at, token: 0 }))
    }

    pub(super) fn count(&mut self, request: &Count, at: Instant) -> Result<CountOutcome> {
        self.step(&request.name, at, |record, now| record.count(request, now).map(|step| (step.answer, step.wake)))
    }

    pub(super) fn force_release(&mut self, name: &Name, at: Instant) -> Forced {
        let from = self
            .step(name, at, |record, now| {
                let step = record.force_release(now);
                Ok((step.answer, step.wake))
            })
            .unwrap_or_default();
        Forced { from: from.into_iter().map(|holder| self.introduce(holder, at)).collect() }
    }

    pub(super) fn inspect(&self, name: &Name, at: Instant) -> Option<Snapshot> {
        let mut found = self.records.get(name)?.snapshot(name, at)?;
        found.holders = found.holders.into_iter().map(|holder| self.introduce(holder, at)).collect();
        Some(found)
    }

    pub(super) fn list(&self, listing: &Listing, at: Instant) -> Page {
        let mut names: Vec<_> = self
            .records
            .keys()
            .filter(|name| matches_pattern(&listing.pattern, name.as_str()))
            .filter(|name| listing.after.as_deref().is_none_or(|after| name.as_str() > after))
            .collect();
        names.sort_unstable();
        let more = names.len() > listing.limit;
        names.truncate(listing.limit);
        Page {
            next: names.last().filter(|_| more).map(|name| name.as_str().to_owned()),
            found: names.into_iter().filter_map(|name| self.inspect(name, at)).collect(),
        }
    }

    fn introduce(&self, mut holder: Holder, at: Instant) -> Holder {
        let told = holder.owner.parse::<WireOwner>().ok().and_then(|owner| self.cards.get(&owner.client));
        holder.client = told.filter(|(_, ends)| *ends > at).map(|(card, _)| card.clone());
        holder
    }

    pub(super) fn announce(&mut self, card: ClientCard, now: Instant, until: Instant) {
        self.cards.retain(|_, (_, ends)| *ends > now);
        self.cards.insert(card.id, (card, until));
    }

    pub(super) fn len(&mut self, at: Instant) -> usize {
        self.sweep(at);
        self.records.len()
    }

    pub(super) fn forget(&mut self) {
        self.records.clear();
        self.quarantine = None;
    }

    pub(super) fn restart(&mut self) {
        self.run += 1;
    }

    pub(super) fn vote(&mut self, request: &Acquire, at: Instant, max_lease: Duration) -> Result<Vote> {
        if at > request.not_after {
            return Ok(Vote::Cast(Attempt::Late));
        }
        let left = Quarantine::meet(&mut self.quarantine, &self.run.to_string(), at, max_lease);
        if !left.is_zero() && !self.has(&request.name, request.owner, at) {
            return Ok(Vote::Quarantined(left));
        }
        self.acquire(request, at).map(Vote::Cast)
    }

    fn has(&mut self, name: &Name, owner: WireOwner, at: Instant) -> bool {
        self.renew(&Renew { name: name.clone(), claim: Claim::Mutex, owner, lease: None }, at).is_kept()
    }

    pub(super) fn keep_vote(&mut self, request: &Renew, at: Instant, max_lease: Duration) -> Result<Renewed> {
        let left = Quarantine::meet(&mut self.quarantine, &self.run.to_string(), at, max_lease);
        let kept = self.renew(request, at);
        let (Renewed::Gone, Some(lease), false) = (kept, request.lease, left.is_zero()) else { return Ok(kept) };
        let again = Acquire {
            name: request.name.clone(),
            claim: request.claim,
            owner: request.owner,
            lease,
            not_after: Instant::NEVER,
            since: at,
            beside: None,
            place: None,
            floor: 0,
        };
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

    pub(super) fn watch(state: &Arc<Mutex<Self>>, watch: Watch) -> Subscription {
        let notifier = Notifier::default();
        let mut inner = state.lock().unwrap_or_else(PoisonError::into_inner);
        inner.last_listener += 1;
        let id = inner.last_listener;
        let listener = Listener { id, owner: watch.own_place(), notifier: notifier.clone() };
        inner.listeners.entry(watch.name.clone()).or_default().push(listener);
        let only_for_owner = watch.own_place().is_some();
        let subscription = Subscription::new(&notifier, Listening { state: Arc::downgrade(state), name: watch.name, id });
        if only_for_owner { subscription.only_for_owner() } else { subscription }
    }

    /// Rings; how many subscriptions.
    fn wake(&self, name: &Name, wake: Wake) -> u32 {
        if self.muted || wake == Wake::default() {
            return 0;
        }
        let mut notified = 0;
        for listener in self.listeners.get(name).into_iter().flatten() {
            let called = match listener.owner {
                Some(owner) => wake.head == Some(owner),
                None => wake.all,
            };
            if called {
                listener.notifier.notify();
                notified += 1;
            }
        }
        notified
    }
}

/// Ends the listening when dropped.
struct Listening {
    state: Weak<Mutex<State>>,
    name: Name,
    id: u64,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let Some(state) = self.state.upgrade() else { return };
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(listeners) = state.listeners.get_mut(&self.name) {
            listeners.retain(|listener| listener.id != self.id);
            if listeners.is_empty() {
                state.listeners.remove(&self.name);
            }
        }
    }
}
