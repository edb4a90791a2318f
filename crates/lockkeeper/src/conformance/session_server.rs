//! The server of the simulated session store: sessions that end, places in a queue by number, watches that fire once.
//!
//! It does what ZooKeeper and etcd do and nothing more: no lease per hold, no clock in a request.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::session_store::SessionFlaw;
use crate::backend::{
    Acquire, Attempt, Claim, Count, CountOp, CountOutcome, Counted, EventSender, Forced, Grant, Kind, Notifier, Release,
    Released, SemaphoreOp, Snapshot, StoreEvent, Watch,
};
use crate::error::{Error, ErrorKind, Result};
use crate::model::{Now, Record};
use crate::name::Name;
use crate::owner::WireOwner;
use crate::runtime::{Instant, Runtime};
use crate::store::kit::cards::{Cards, add_all_cards};
use crate::store::kit::listeners::{Listeners, Registration};
use crate::store::kit::places::{Place, Places};

#[derive(Debug)]
pub(super) struct Server {
    pub(super) runtime: Runtime,
    pub(super) lasts: Duration,
    state: Mutex<State>,
}

/// All that the server keeps.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) names: BTreeMap<Name, Entry>,
    flaw: SessionFlaw,
    lasts: Duration,
    /// Places, sessions and watches are numbered in the order of their creation.
    last_number: u64,
    /// Which connection opened each session, and when it was last heard of.
    sessions: HashMap<u64, (u64, Instant)>,
    watches: Vec<Watching>,
    armed: Arc<Listeners<Armed>>,
    pub(super) listeners: Vec<(u64, EventSender)>,
    pub(super) cards: Cards,
}

/// What lies under one name: places, and the numbers of semaphores, counters and latches.
#[derive(Debug, Default)]
pub(super) struct Entry {
    places: Places,
    numbers: Record,
}

/// A subscription, and what the server watches for it at the moment.
#[derive(Debug)]
struct Watching {
    id: u64,
    connection: u64,
    watch: Watch,
    notifier: Notifier,
    armed: Option<Registration<Armed>>,
    /// How often it was armed.
    times: u32,
}

/// What a watch is armed for: a place in the way, or everything at the name. Numbers of places do not come again, so the former fires once.
type Armed = (Name, Option<u64>);

impl Server {
    pub(super) fn new(runtime: Runtime, lasts: Duration, flaw: SessionFlaw) -> Self {
        Self { runtime, lasts, state: Mutex::new(State { flaw, lasts, ..State::default() }) }
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
    /// What is known of the numbers.
    fn counted(&self, name: &Name, at: Instant) -> Option<Snapshot> {
        self.numbers.snapshot(name, at)
    }

    /// Refuses a request for another kind than the one that lives there.
    fn check_kind(&self, name: &Name, wanted: Kind, at: Instant) -> Result<()> {
        match self.places.kind().or_else(|| self.counted(name, at).map(|found| found.kind)) {
            Some(kind) if kind != wanted => Err(kind.instead_of(wanted, name)),
            _ => Ok(()),
        }
    }

    fn total(&self, name: &Name, at: Instant) -> Option<u32> {
        self.counted(name, at).and_then(|found| found.total)
    }

    fn snapshot(&self, name: &Name, at: Instant) -> Option<Snapshot> {
        let of_places = || self.places.kind().map(|kind| Snapshot::new(name.clone(), kind));
        let mut seen = self.counted(name, at).or_else(of_places)?;
        seen.value = seen.value.map(|value| value - i64::from(self.places.used()));
        (seen.holders, seen.queue) = self.places.describe();
        Some(seen)
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

    fn end_silent_sessions(&mut self, now: Instant) {
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
        let gone = entry.places.remove(which);
        if entry.places.is_empty() && entry.numbers.is_empty() {
            self.names.remove(name);
        }
        for number in gone.iter().map(|(_, place)| place.number) {
            self.armed.notify_key(&(name.clone(), Some(number)));
        }
        if !gone.is_empty() {
            self.armed.notify_key(&(name.clone(), None));
        }
        gone.iter().any(|(held, _)| *held)
    }

    pub(super) fn acquire(&mut self, request: &Acquire, session: u64, at: Instant) -> Result<Attempt> {
        let number = self.next_number();
        let answer = self.attempt(request, session, number, at);
        if matches!(answer, Ok(Attempt::Busy(busy)) if busy.placed) {
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
        entry.check_kind(name, claim.kind(), at)?;
        if let Claim::Permits { take, of } = *claim {
            let total = entry.total(name, at).unwrap_or(of);
            let known = entry.places.find(*owner, *claim).is_some();
            if (total != of && !request.any_size) || take == 0 || (take > total && !known) {
                let message = format!("cannot take {take} of {of} permits of {name:?}, which has {total}");
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
            let op = CountOp::Semaphore(SemaphoreOp::Init(of));
            entry.numbers.count(&Count::new(name.clone(), *owner, op, Duration::ZERO), Now { at, token: 0 })?;
        }
        let free = entry.total(name, at).unwrap_or(0).saturating_sub(entry.places.used());
        let place = Place::new(number, *owner, session, *claim);
        Ok(match entry.places.ask(place, request.beside, free, request.place.is_some()) {
            Ok(place) => Attempt::Granted(Grant::new(place.token(), self.lasts).in_session(place.session)),
            Err(busy) => Attempt::Busy(busy),
        })
    }

    pub(super) fn release(&mut self, request: &Release) -> Released {
        let Release { name, claim, owner, .. } = request;
        let place = self.names.get(name).and_then(|entry| entry.places.find(*owner, *claim));
        let place = place.filter(|(place, _)| self.flaw != SessionFlaw::ForgetsPlaces || place.granted);
        let Some(number) = place.map(|(place, _)| place.number) else { return Released::new(false) };
        Released::new(self.remove(name, |_, place| place.number == number))
    }

    pub(super) fn is_held(&self, name: &Name, owner: WireOwner, claim: Claim) -> bool {
        let place = self.names.get(name).and_then(|entry| entry.places.find(owner, claim));
        place.is_some_and(|(_, holds)| holds)
    }

    pub(super) fn count(&mut self, request: &Count, at: Instant) -> Result<CountOutcome> {
        let (name, op) = (&request.name, request.op);
        let entry = self.names.entry(name.clone()).or_default();
        entry.check_kind(name, op.kind(), at)?;
        if op == CountOp::Semaphore(SemaphoreOp::Remove) && !entry.places.is_empty() {
            let value = i64::from(entry.total(name, at).unwrap_or(0));
            return Ok(CountOutcome::Counted(Counted::new(false, value)));
        }
        let used = if op == CountOp::Semaphore(SemaphoreOp::Read) { entry.places.used() } else { 0 };
        // There is no clock in a request.
        let step = entry.numbers.count(&request.clone().with_not_after(Instant::NEVER), Now { at, token: 0 });
        if step.as_ref().is_ok_and(|step| step.wake.all) {
            self.armed.notify_key(&(name.clone(), None));
        }
        self.remove(name, |_, _| false);
        Ok(match step?.answer {
            CountOutcome::Counted(Counted { done, value }) => CountOutcome::Counted(Counted::new(done, value - i64::from(used))),
            late => late,
        })
    }

    pub(super) fn inspect(&self, name: &Name, at: Instant) -> Result<Option<Snapshot>> {
        let mut seen = self.names.get(name).and_then(|entry| entry.snapshot(name, at));
        seen.iter_mut().try_for_each(|seen| add_all_cards(seen, |client| Ok(self.cards.card(client, at))))?;
        Ok(seen)
    }

    pub(super) fn force_release(&mut self, name: &Name, at: Instant) -> Result<Forced> {
        let from = self.inspect(name, at)?.map(|seen| seen.holders).unwrap_or_default();
        self.remove(name, |holds, _| holds);
        for owner in from.iter().filter_map(|holder| holder.owner.parse().ok()) {
            for (_, events) in &self.listeners {
                events.send(StoreEvent::HoldDeleted { name: name.clone(), owner });
            }
        }
        Ok(Forced::new(from))
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

    /// Watches what is in the way of this owner now. The second watch of each subscription is lost while it is armed, as when the connection
    /// breaks for a moment: the client notices that, watches again, and has to assume that something happened.
    fn arm_for(&mut self, owner: WireOwner, name: &Name) {
        let places = self.names.get(name).map(|entry| &entry.places);
        for watching in self.watches.iter_mut().filter(|watching| watching.watch.owner == owner && watching.watch.name == *name) {
            watching.times += 1;
            watching.armed = None;
            if watching.times == 2 {
                if self.flaw == SessionFlaw::LosesWatchesSilently {
                    continue;
                }
                watching.notifier.notify();
            }
            let blocker = places.zip(watching.watch.claim).and_then(|(places, claim)| places.blocker(owner, claim));
            watching.armed = Some(self.armed.listen((name.clone(), blocker), watching.notifier.clone()));
        }
    }
}
