//! The server of the simulated session store: sessions that end, places in a queue by number, watches that fire once.
//!
//! It does what ZooKeeper and etcd do and nothing more: no lease per hold, no clock in a request.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::session_store::{Changed, SessionFlaw};
use crate::backend::{
    Acquire, Attempt, Count, CountOutcome, EventSender, Forced, Notifier, Release, Released, Renew, Renewed, Snapshot,
    StoreEvent, Subscription, Watch,
};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::owner::WireOwner;
use crate::runtime::{Instant, Runtime};
use crate::store::kit::cards::Cards;
use crate::store::kit::listeners::{Listeners, Registration};
use crate::store::kit::placed::PlacedRecord;
use crate::store::kit::places::Place;

#[derive(Debug)]
pub(super) struct Server {
    pub(super) runtime: Runtime,
    pub(super) lasts: Duration,
    state: Mutex<State>,
}

/// All that the server keeps.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) names: BTreeMap<Name, PlacedRecord>,
    flaw: SessionFlaw,
    pub(super) lasts: Duration,
    /// Places, sessions and watches are numbered in the order of their creation.
    last_number: u64,
    /// Which connection opened each session, and when it was last heard of.
    sessions: HashMap<u64, (u64, Instant)>,
    watches: Vec<Watching>,
    armed: Arc<Listeners<Armed>>,
    pub(super) listeners: Vec<(u64, EventSender)>,
    pub(super) cards: Cards,
    pub(super) observer: Observer,
}

/// Called after every step that changes a name.
type Observing = dyn Fn(&Changed) + Send + Sync;

/// Who is told of every step that changes a name.
#[derive(Clone, Default)]
pub(super) struct Observer(pub(super) Option<Arc<Observing>>);

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Observer")
    }
}

/// A subscription, and what the server watches for it at the moment.
#[derive(Debug)]
struct Watching {
    alive: Weak<()>,
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
    pub(super) async fn end_sessions(server: Weak<Self>) {
        while let Some(alive) = server.upgrade() {
            let (runtime, now, tick) = (alive.runtime.clone(), alive.runtime.now(), alive.lasts / 20);
            alive.state().end_silent_sessions(now);
            drop(alive);
            runtime.sleep_until(now.plus(tick)).await;
        }
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
        // In the order of their numbers: a simulation replays that order.
        for session in ended.map(|(session, _)| *session).collect::<BTreeSet<_>>() {
            self.end_session(session, false);
        }
    }

    /// Ends a session with all that lives in it, and tells the client. `forced`: its time was not over.
    pub(super) fn end_session(&mut self, session: u64, forced: bool) {
        let Some((connection, _)) = self.sessions.remove(&session) else { return };
        if self.flaw != SessionFlaw::KeepsHoldsOfEndedSessions {
            for name in self.names.keys().cloned().collect::<Vec<_>>() {
                self.remove(&name, forced, |_, place| place.session == session);
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

    /// Every session counts from now, as after a restart of the server with its data.
    pub(super) fn restart(&mut self, now: Instant) {
        self.sessions.values_mut().for_each(|(_, heard)| *heard = now);
    }

    /// Tells the observer the holders of the name, and its number.
    fn changed(&self, name: &Name, forced: bool) {
        let Some(observer) = &self.observer.0 else { return };
        // Nothing here ends by the clock.
        let seen = self.names.get(name).and_then(|record| record.snapshot(name, Instant::default()));
        let (holders, value) = seen.map_or_else(Default::default, |seen| (seen.holders, seen.value));
        observer(&Changed { name: name.clone(), holders, value, forced });
    }

    /// Removes places and lets the watches on them fire; whether one of them held the name.
    fn remove(&mut self, name: &Name, forced: bool, which: impl Fn(bool, &Place) -> bool) -> bool {
        let Some(record) = self.names.get_mut(name) else { return false };
        let gone = record.places.remove(which);
        self.tidy(name);
        for number in gone.iter().map(|(_, place)| place.number) {
            self.armed.notify_key(&(name.clone(), Some(number)));
        }
        if !gone.is_empty() {
            self.armed.notify_key(&(name.clone(), None));
            self.changed(name, forced);
        }
        gone.iter().any(|(held, _)| *held)
    }

    /// Keeps no empty record, also after a refusal.
    fn tidy(&mut self, name: &Name) {
        if self.names.get(name).is_some_and(PlacedRecord::is_empty) {
            self.names.remove(name);
        }
    }

    pub(super) fn acquire(&mut self, request: &Acquire, session: u64, at: Instant) -> Result<Attempt> {
        let number = self.next_number();
        let record = self.names.entry(request.name.clone()).or_default();
        let answer = record.acquire(request, (number, session), self.lasts, at);
        if matches!(answer, Ok(Attempt::Busy(busy)) if busy.placed) {
            self.arm_for(request.owner, &request.name);
        }
        self.tidy(&request.name);
        self.changed(&request.name, false);
        answer
    }

    pub(super) fn release(&mut self, request: &Release) -> Released {
        let Release { name, claim, owner, .. } = request;
        let place = self.names.get(name).and_then(|record| record.places.find(*owner, *claim));
        let place = place.filter(|(place, _)| self.flaw != SessionFlaw::ForgetsPlaces || place.granted);
        let Some(number) = place.map(|(place, _)| place.number) else { return Released::new(false) };
        Released::new(self.remove(name, false, |_, place| place.number == number))
    }

    pub(super) fn renew(&self, Renew { name, claim, owner, lease, .. }: &Renew) -> Renewed {
        let place = self.names.get(name).and_then(|record| record.places.find(*owner, *claim));
        if place.is_some_and(|(_, holds)| holds) { Renewed::kept(lease.map(|_| self.lasts)) } else { Renewed::Gone }
    }

    pub(super) fn count(&mut self, request: &Count, at: Instant) -> Result<CountOutcome> {
        let counted = self.names.entry(request.name.clone()).or_default().count(request, at);
        self.tidy(&request.name);
        let (answer, wakes) = counted?;
        self.changed(&request.name, false);
        if wakes {
            self.armed.notify_key(&(request.name.clone(), None));
        }
        Ok(answer)
    }

    pub(super) fn inspect(&self, name: &Name, at: Instant) -> Result<Option<Snapshot>> {
        self.cards.add_to(self.names.get(name).and_then(|record| record.snapshot(name, at)), at)
    }

    pub(super) fn force_release(&mut self, name: &Name, at: Instant) -> Result<Forced> {
        let from = self.inspect(name, at)?.map(|seen| seen.holders).unwrap_or_default();
        self.remove(name, true, |holds, _| holds);
        for owner in from.iter().filter_map(|holder| holder.owner.parse().ok()) {
            for (_, events) in &self.listeners {
                events.send(StoreEvent::HoldDeleted { name: name.clone(), owner });
            }
        }
        Ok(Forced::new(from))
    }

    /// Adds a subscription, which ends with the answer.
    pub(super) fn watch(&mut self, watch: Watch, connection: u64) -> Subscription {
        let (notifier, guard, owner, name) = (Notifier::default(), Arc::new(()), watch.owner, watch.name.clone());
        // Each waiter has a place of its own, and another one before it.
        let subscription = Subscription::new(&notifier, Arc::clone(&guard)).only_for_owner();
        self.watches.retain(|watching| watching.alive.strong_count() > 0);
        self.watches.push(Watching { alive: Arc::downgrade(&guard), connection, watch, notifier, armed: None, times: 0 });
        self.arm_for(owner, &name);
        subscription
    }

    /// Watches what is in the way of this owner now. The second watch of each subscription is lost while it is armed, as when the connection
    /// breaks for a moment: the client notices that, watches again, and has to assume that something happened.
    fn arm_for(&mut self, owner: WireOwner, name: &Name) {
        let places = self.names.get(name).map(|record| &record.places);
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
