//! The server of the simulated session store: sessions that end, places in a queue by number, watches that fire once.
//!
//! It does what ZooKeeper and etcd do and nothing more: no lease per hold, no clock in a request. The first places of a name hold it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::session_store::SessionFlaw;
use crate::backend::{
    Acquire, Attempt, Busy, Claim, ClientCard, Count, CountOp, CountOutcome, Counted, EventSender, Forced, Grant, Holder, Kind,
    Notifier, Release, Released, SemaphoreOp, Snapshot, StoreEvent, Waiter, Watch,
};
use crate::error::{Error, ErrorKind, Result};
use crate::model::{Now, Record};
use crate::name::Name;
use crate::owner::{ClientId, WireOwner};
use crate::runtime::{Instant, Runtime};

#[derive(Debug)]
pub(super) struct Server {
    pub(super) runtime: Runtime,
    pub(super) lasts: Duration,
    state: Mutex<State>,
}

/// All that the server keeps.
#[derive(Debug)]
pub(super) struct State {
    pub(super) names: BTreeMap<Name, Entry>,
    flaw: SessionFlaw,
    lasts: Duration,
    /// Places, sessions and watches are numbered in the order of their creation.
    last_number: u64,
    /// Which connection opened each session, and when it was last heard of.
    sessions: HashMap<u64, (u64, Instant)>,
    watches: Vec<Watching>,
    pub(super) listeners: Vec<(u64, EventSender)>,
    pub(super) cards: HashMap<ClientId, (ClientCard, Instant)>,
}

/// What lies under one name: places in the order of the queue, and the numbers of semaphores, counters and latches.
#[derive(Debug, Default)]
pub(super) struct Entry {
    places: Vec<Place>,
    numbers: Record,
}

#[derive(Debug)]
struct Place {
    number: u64,
    /// Its place in the queue: its number, or that of the writer beside which it reads.
    order: u64,
    owner: WireOwner,
    session: u64,
    claim: Claim,
    /// Its owner was told that it holds. Permits are held from then on, other holds follow from the order.
    granted: bool,
}

/// A subscription, and what the server watches for it at the moment.
#[derive(Debug)]
struct Watching {
    id: u64,
    connection: u64,
    watch: Watch,
    notifier: Notifier,
    armed: Option<Target>,
    /// How often it was armed.
    times: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Target {
    /// The place before, which is in the way.
    Place(u64),
    /// Everything at the name.
    All,
}

impl Server {
    pub(super) fn new(runtime: Runtime, lasts: Duration, flaw: SessionFlaw) -> Self {
        let (names, sessions, cards) = Default::default();
        let (watches, listeners) = Default::default();
        let state = State { names, flaw, lasts, last_number: 0, sessions, watches, listeners, cards };
        Self { runtime, lasts, state: Mutex::new(state) }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends sessions that were not heard of for too long, for as long as the server lives.
    pub(super) async fn end_sessions(self: Arc<Self>) {
        let (runtime, tick) = (self.runtime.clone(), self.lasts / 20);
        let server = Arc::downgrade(&self);
        drop(self);
        while let Some(server) = server.upgrade() {
            let now = runtime.now();
            server.state().end_silent_sessions(now);
            drop(server);
            runtime.sleep_until(now.plus(tick)).await;
        }
    }
}

impl Entry {
    fn kind(&self, name: &Name, at: Instant) -> Option<Kind> {
        let of_numbers = || self.numbers.snapshot(name, at).map(|found| found.kind);
        self.places.first().map(|place| place.claim.kind()).or_else(of_numbers)
    }

    fn total(&self, name: &Name, at: Instant) -> Option<u32> {
        self.numbers.snapshot(name, at).and_then(|found| found.total)
    }

    /// The permits that are given out.
    fn used(&self) -> u32 {
        self.places.iter().filter(|place| place.granted).map(Place::permits).sum()
    }

    fn find(&self, owner: WireOwner, claim: Claim) -> Option<usize> {
        let same = |place: &Place| match (place.claim, claim) {
            (Claim::Read, other) | (other, Claim::Read) => other == Claim::Read && place.claim == claim,
            (there, wanted) => there.kind() == wanted.kind(),
        };
        self.places.iter().position(|place| place.owner == owner && same(place))
    }

    /// Whether the place at this index holds the name.
    fn holds(&self, index: usize) -> bool {
        let (place, before) = (&self.places[index], &self.places[..index]);
        match place.claim {
            Claim::Mutex | Claim::Fair | Claim::Write => before.is_empty(),
            Claim::Read => !before.iter().any(|other| other.claim == Claim::Write && other.order < place.order),
            Claim::Permits { .. } => place.granted,
        }
    }

    /// What the owner of this place has to wait for.
    fn blocker(&self, index: usize) -> Target {
        let mut before = self.places[..index].iter().rev();
        let blocker = match self.places[index].claim {
            Claim::Permits { .. } => None,
            Claim::Read => before.find(|other| other.claim == Claim::Write),
            Claim::Mutex | Claim::Fair | Claim::Write => before.next(),
        };
        blocker.map_or(Target::All, |place| Target::Place(place.number))
    }

    fn insert(&mut self, place: Place) -> usize {
        let index = self.places.partition_point(|other| (other.order, other.number) < (place.order, place.number));
        self.places.insert(index, place);
        index
    }

    pub(super) fn snapshot(
        &self,
        name: &Name,
        cards: &HashMap<ClientId, (ClientCard, Instant)>,
        at: Instant,
    ) -> Option<Snapshot> {
        let kind = self.kind(name, at)?;
        let numbers = self.numbers.snapshot(name, at);
        let (value, total) = numbers.map_or((None, None), |found| (found.value, found.total));
        let value = value.map(|value| value - i64::from(self.used()));
        let (mut holders, mut queue) = (Vec::new(), Vec::new());
        for (index, place) in self.places.iter().enumerate() {
            let owner = place.owner.to_string();
            let card = cards.get(&place.owner.client).filter(|(_, until)| *until > at);
            let client = card.map(|(card, _)| card.clone());
            if !self.holds(index) {
                queue.push(Waiter { owner, claim: place.claim, expires_in: None, client });
                continue;
            }
            let claim = if place.claim == Claim::Fair { Claim::Mutex } else { place.claim };
            holders.push(Holder { owner, claim, held_for: None, lease_left: None, token: place.token(), client });
        }
        Some(Snapshot { name: name.clone(), kind, holders, queue, value, total, certain: true })
    }
}

impl Place {
    fn permits(&self) -> u32 {
        if let Claim::Permits { take, .. } = self.claim { take } else { 0 }
    }

    fn token(&self) -> Option<u64> {
        (self.claim.kind() != Kind::Semaphore).then_some(self.order)
    }
}

impl State {
    pub(super) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// A request of this session arrived; `0` opens one. An error if the session has ended: nothing is done then.
    pub(super) fn arrived(&mut self, session: u64, connection: u64, now: Instant) -> Result<u64> {
        self.end_silent_sessions(now);
        let ended = session != 0 && !self.sessions.contains_key(&session);
        if ended && self.flaw != SessionFlaw::AcceptsEndedSessions {
            return Err(Error::new(ErrorKind::Unavailable, "the session has ended; nothing was done"));
        }
        let session = if session == 0 { self.next_number() } else { session };
        if !ended {
            self.sessions.insert(session, (connection, now));
        }
        Ok(session)
    }

    pub(super) fn end_silent_sessions(&mut self, now: Instant) {
        let lasts = self.lasts;
        let ended = self.sessions.iter().filter(|(_, (_, heard))| now.since(*heard) >= lasts);
        for session in ended.map(|(session, _)| *session).collect::<Vec<_>>() {
            self.end_session(session);
        }
    }

    /// Ends a session with all that lives in it, and tells the client.
    pub(super) fn end_session(&mut self, session: u64) {
        let Some((connection, _)) = self.sessions.remove(&session) else { return };
        if self.flaw != SessionFlaw::KeepsHoldsOfEndedSessions {
            for name in self.names.keys().cloned().collect::<Vec<_>>() {
                self.remove(&name, |_, place| place.session == session);
            }
        }
        for watching in self.watches.iter_mut().filter(|watching| watching.connection == connection) {
            watching.armed = None;
            watching.notifier.notify();
        }
        for (_, events) in self.listeners.iter().filter(|(listening, _)| *listening == connection) {
            events.send(StoreEvent::SessionEnded(session));
        }
    }

    /// Removes places and lets the watches on them fire; whether one of them held the name.
    fn remove(&mut self, name: &Name, which: impl Fn(bool, &Place) -> bool) -> bool {
        let Some(entry) = self.names.get_mut(name) else { return false };
        let gone: Vec<_> = (0..entry.places.len())
            .map(|index| (entry.holds(index), &entry.places[index]))
            .filter(|(holds, place)| which(*holds, place))
            .map(|(holds, place)| (holds, place.number))
            .collect();
        entry.places.retain(|place| gone.iter().all(|(_, number)| *number != place.number));
        if entry.places.is_empty() && entry.numbers.is_empty() {
            self.names.remove(name);
        }
        for watching in self.watches.iter_mut().filter(|watching| watching.watch.name == *name && !gone.is_empty()) {
            let fires = match watching.armed {
                Some(Target::All) => true,
                Some(Target::Place(number)) => gone.iter().any(|(_, removed)| *removed == number),
                None => false,
            };
            if fires {
                watching.notifier.notify();
                watching.armed = watching.armed.filter(|target| *target == Target::All);
            }
        }
        gone.iter().any(|(held, _)| *held)
    }

    pub(super) fn acquire(&mut self, request: &Acquire, session: u64, at: Instant) -> Result<Attempt> {
        let number = self.next_number();
        let answer = self.attempt(request, session, number, at);
        if let Ok(Attempt::Busy(Busy { placed: true, .. })) = answer {
            self.arm_for(request.owner, &request.name);
        }
        // A refusal leaves no empty entry.
        self.remove(&request.name, |_, _| false);
        answer
    }

    fn attempt(&mut self, request: &Acquire, session: u64, number: u64, at: Instant) -> Result<Attempt> {
        let Acquire { name, claim, owner, .. } = request;
        let entry = self.names.entry(name.clone()).or_default();
        entry.numbers.expire(at);
        if let Some(kind) = entry.kind(name, at).filter(|kind| *kind != claim.kind()) {
            return Err(kind.instead_of(claim.kind(), name));
        }
        let known = entry.find(*owner, *claim);
        if let Claim::Permits { take, of } = *claim {
            let total = entry.total(name, at).unwrap_or(of);
            if (total != of && !request.any_size) || take == 0 || (take > total && known.is_none()) {
                let message = format!("cannot take {take} of {of} permits of {name:?}, which has {total}");
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
            let (op, not_after) = (CountOp::Semaphore(SemaphoreOp::Init(of)), Instant::NEVER);
            let init = Count { name: name.clone(), id: *owner, not_after, remember: Duration::ZERO, op };
            entry.numbers.count(&init, Now { at, token: 0 })?;
        }
        let writer = request.beside.and_then(|writer| entry.find(writer, Claim::Write)).filter(|index| entry.holds(*index));
        let order = writer.map_or(number, |index| entry.places[index].order);
        let place = Place { number, order, owner: *owner, session, claim: *claim, granted: false };
        let index = known.unwrap_or_else(|| entry.insert(place));
        let waits_before = entry.places[..index].iter().any(|place| !place.granted);
        let free = entry.total(name, at).unwrap_or(0).saturating_sub(entry.used());
        let place = &mut entry.places[index];
        place.granted |= claim.kind() == Kind::Semaphore && !waits_before && place.permits() <= free;
        if entry.holds(index) {
            let place = &mut entry.places[index];
            place.granted = true;
            return Ok(Attempt::Granted(Grant::new(place.token(), self.lasts).in_session(place.session)));
        }
        let ahead = (0..index).filter(|before| !entry.holds(*before)).count();
        let placed = request.place.is_some() || known.is_some();
        if !placed {
            entry.places.remove(index);
        }
        Ok(Attempt::Busy(Busy { retry_in: None, ahead: u32::try_from(ahead).ok(), placed }))
    }

    pub(super) fn release(&mut self, request: &Release) -> Released {
        let place = self.names.get(&request.name).and_then(|entry| {
            let index = entry.find(request.owner, request.claim)?;
            let place = &entry.places[index];
            (self.flaw != SessionFlaw::ForgetsPlaces || place.granted).then_some(place.number)
        });
        let held = self.remove(&request.name, |_, mine| Some(mine.number) == place);
        Released { held, next: None, woke: None }
    }

    pub(super) fn is_held(&self, name: &Name, owner: WireOwner, claim: Claim) -> bool {
        let entry = self.names.get(name);
        entry.is_some_and(|entry| entry.find(owner, claim).is_some_and(|index| entry.holds(index)))
    }

    pub(super) fn count(&mut self, request: &Count, at: Instant) -> Result<CountOutcome> {
        let entry = self.names.entry(request.name.clone()).or_default();
        if let Some(kind) = entry.kind(&request.name, at).filter(|kind| *kind != request.op.kind()) {
            return Err(kind.instead_of(request.op.kind(), &request.name));
        }
        let used = entry.used();
        if request.op == CountOp::Semaphore(SemaphoreOp::Remove) && !entry.places.is_empty() {
            let value = i64::from(entry.total(&request.name, at).unwrap_or(0));
            return Ok(CountOutcome::Counted(Counted { done: false, value }));
        }
        // There is no clock in a request.
        let request = Count { not_after: Instant::NEVER, ..request.clone() };
        let counted = entry.numbers.count(&request, Now { at, token: 0 });
        if counted.as_ref().is_ok_and(|step| step.wake.all) {
            let there = self.watches.iter().filter(|watching| watching.watch.name == request.name);
            there.filter(|watching| watching.armed == Some(Target::All)).for_each(|watching| watching.notifier.notify());
        }
        self.remove(&request.name, |_, _| false);
        let mut answer = counted?.answer;
        if let (CountOutcome::Counted(counted), CountOp::Semaphore(SemaphoreOp::Read)) = (&mut answer, request.op) {
            counted.value -= i64::from(used);
        }
        Ok(answer)
    }

    pub(super) fn force_release(&mut self, name: &Name, at: Instant) -> Forced {
        let found = self.names.get(name).and_then(|entry| entry.snapshot(name, &self.cards, at));
        let from = found.map(|found| found.holders).unwrap_or_default();
        self.remove(name, |holds, _| holds);
        for owner in from.iter().filter_map(|holder| holder.owner.parse().ok()) {
            for (_, events) in &self.listeners {
                events.send(StoreEvent::HoldDeleted { name: name.clone(), owner });
            }
        }
        Forced { from }
    }

    /// Adds a subscription; its id.
    pub(super) fn watch(&mut self, watch: Watch, connection: u64, notifier: Notifier) -> u64 {
        let id = self.next_number();
        let (owner, name) = (watch.owner, watch.name.clone());
        self.watches.push(Watching { id, connection, watch, notifier, armed: None, times: 0 });
        self.arm_for(owner, &name);
        id
    }

    pub(super) fn unwatch(&mut self, id: u64) {
        self.watches.retain(|watching| watching.id != id);
    }

    /// Watches what is in the way of this owner now. The second watch of each subscription is lost while it is armed, as in a short cut of the
    /// connection: the client notices that, watches again, and has to assume that something happened.
    fn arm_for(&mut self, owner: WireOwner, name: &Name) {
        let entry = self.names.get(name);
        for watching in self.watches.iter_mut().filter(|watching| watching.watch.owner == owner && watching.watch.name == *name) {
            watching.times += 1;
            watching.armed = None;
            if watching.times == 2 {
                if self.flaw == SessionFlaw::LosesWatchesSilently {
                    continue;
                }
                watching.notifier.notify();
            }
            let index = watching.watch.claim.and_then(|claim| entry.and_then(|entry| entry.find(owner, claim)));
            watching.armed = Some(index.zip(entry).map_or(Target::All, |(index, entry)| entry.blocker(index)));
        }
    }
}
