//! A store that is written outside the crate, with the public API only: mutexes with tokens and push, and latches. It passes the suite.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use lockkeeper::backend::{
    Acquire, Attempt, AttemptAll, Backend, Busy, Capabilities, Claim, ClientCard, Count, CountOp, CountOutcome, Counted, Forced,
    Grant, Holder, Instant, Kind, LatchOp, Listing, Notifier, Page, Release, Released, Renew, Renewed, Reply, Snapshot,
    Subscription, Watch,
};
use lockkeeper::conformance::{Harness, Time};
use lockkeeper::{Error, ErrorKind, Name, Result, Runtime, WireOwner};

#[derive(Debug)]
struct Foreign {
    runtime: Runtime,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    held: HashMap<Name, Hold>,
    latches: HashMap<Name, u32>,
    /// Counting requests that were carried out, and until when they are remembered.
    counted: HashMap<WireOwner, (Counted, Instant)>,
    cards: HashMap<lockkeeper::ClientId, (ClientCard, Instant)>,
    listeners: HashMap<u64, (Name, Notifier)>,
    last: u64,
}

#[derive(Clone, Debug)]
struct Hold {
    owner: WireOwner,
    token: u64,
    ends: Instant,
}

/// Ends a subscription when dropped.
struct Registration(Weak<Mutex<State>>, u64);

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(state) = self.0.upgrade() {
            state.lock().unwrap().listeners.remove(&self.1);
        }
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Notifies those who wait at the name; how many.
    fn wake(&self, name: &Name) -> u32 {
        let there = self.listeners.values().filter(|(listened, _)| listened == name);
        there.map(|(_, notifier)| notifier.notify()).count().try_into().unwrap()
    }

    fn kind_error(&self, name: &Name, wanted: Kind) -> Option<Error> {
        let there = match () {
            () if self.held.contains_key(name) => Kind::Mutex,
            () if self.latches.contains_key(name) => Kind::Latch,
            () => return None,
        };
        (there != wanted).then(|| there.instead_of(wanted, name))
    }

    fn acquire(&mut self, request: &Acquire, now: Instant) -> Result<Attempt> {
        if now > request.not_after {
            return Ok(Attempt::Late);
        }
        if let Some(error) = self.kind_error(&request.name, Kind::Mutex) {
            return Err(error);
        }
        let (token, ends) = (self.number(), now.plus(request.lease));
        let fresh = Hold { owner: request.owner, token, ends };
        let hold = self.held.entry(request.name.clone()).or_insert(fresh);
        if hold.owner != request.owner {
            return Ok(Attempt::Busy(Busy::new(Some(hold.ends.since(now)))));
        }
        hold.ends = hold.ends.max(ends);
        Ok(Attempt::Granted(Grant::new(Some(hold.token), request.lease)))
    }

    fn count(&mut self, request: &Count, now: Instant) -> Result<CountOutcome> {
        let CountOp::Latch(op) = request.op else {
            return Err(Error::new(ErrorKind::Unsupported, "the foreign store counts latches only"));
        };
        if let Some((counted, _)) = self.counted.get(&request.id) {
            return Ok(CountOutcome::Counted(*counted));
        }
        if !request.op.is_read() && now > request.not_after {
            return Ok(CountOutcome::Late);
        }
        if let Some(error) = self.kind_error(&request.name, Kind::Latch) {
            return Err(error);
        }
        let before = self.latches.get(&request.name).copied().unwrap_or(0);
        let after = match op {
            LatchOp::Init(count) if before == 0 => count,
            LatchOp::Down => before.saturating_sub(1),
            LatchOp::Remove => 0,
            _ => before,
        };
        match after {
            0 => drop(self.latches.remove(&request.name)),
            _ => drop(self.latches.insert(request.name.clone(), after)),
        }
        if before > 0 && after == 0 {
            self.wake(&request.name);
        }
        let counted = Counted::new(before != after, i64::from(after));
        if !request.op.is_read() {
            self.counted.insert(request.id, (counted, now.plus(request.remember)));
        }
        Ok(CountOutcome::Counted(counted))
    }

    fn snapshot(&self, name: &Name, now: Instant) -> Option<Snapshot> {
        if let Some(left) = self.latches.get(name) {
            let mut seen = Snapshot::new(name.clone(), Kind::Latch);
            seen.value = Some(i64::from(*left));
            return Some(seen);
        }
        let hold = self.held.get(name)?;
        let mut holder = Holder::new(hold.owner.to_string(), Claim::Mutex);
        (holder.token, holder.lease_left) = (Some(hold.token), Some(hold.ends.since(now)));
        holder.client = self.cards.get(&hold.owner.client).map(|(card, _)| card.clone());
        let mut seen = Snapshot::new(name.clone(), Kind::Mutex);
        seen.holders.push(holder);
        Some(seen)
    }
}

impl Foreign {
    /// One step on what there is now.
    fn step<T: Send + 'static>(&self, step: impl FnOnce(&mut State, Instant) -> Result<T> + Send + 'static) -> Reply<'_, T> {
        Box::pin(async move {
            let (mut state, now) = (self.state.lock().unwrap(), self.runtime.now());
            state.held.retain(|_, hold| hold.ends > now);
            state.counted.retain(|_, (_, until)| *until > now);
            state.cards.retain(|_, (_, until)| *until > now);
            step(&mut state, now)
        })
    }
}

impl Backend for Foreign {
    fn capabilities(&self) -> Capabilities {
        let kinds = [Kind::Mutex, Kind::Latch];
        Capabilities::new("foreign").with_kinds(&kinds).with_fencing().with_any_name(true).with_push(true).with_refuses_late()
    }

    fn keeper_connection(self: Arc<Self>) -> Arc<dyn Backend> {
        self
    }

    fn identity(&self) -> Reply<'_, String> {
        self.step(|_, _| Ok("the only one".to_owned()))
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        self.step(move |state, now| state.acquire(&request, now))
    }

    fn acquire_all(&self, _: Vec<Acquire>) -> Reply<'_, AttemptAll> {
        let error = self.capabilities().unsupported("several locks in one step");
        Box::pin(async { Err(error) })
    }

    fn release(&self, request: Release) -> Reply<'_, Released> {
        self.step(move |state, _| {
            let held = state.held.get(&request.name).is_some_and(|hold| hold.owner == request.owner);
            if held {
                state.held.remove(&request.name);
            }
            Ok(Released::new(held).with_woke(if held { state.wake(&request.name) } else { 0 }))
        })
    }

    fn renew(&self, requests: Vec<Renew>) -> Reply<'_, Vec<Result<Renewed>>> {
        self.step(move |state, now| {
            let answer = |request: Renew| {
                let hold = state.held.get_mut(&request.name).filter(|hold| hold.owner == request.owner);
                hold.map_or(Renewed::Gone, |hold| {
                    hold.ends = hold.ends.max(now.plus(request.lease.unwrap_or_default()));
                    Renewed::kept(request.lease)
                })
            };
            Ok(requests.into_iter().map(answer).map(Ok).collect())
        })
    }

    fn count(&self, request: Count) -> Reply<'_, CountOutcome> {
        self.step(move |state, now| state.count(&request, now))
    }

    fn watch(&self, watch: Watch) -> Reply<'_, Subscription> {
        let shared = Arc::downgrade(&self.state);
        self.step(move |state, _| {
            let (id, notifier) = (state.number(), Notifier::default());
            state.listeners.insert(id, (watch.name, notifier.clone()));
            Ok(Subscription::new(&notifier, Registration(shared, id)))
        })
    }

    fn inspect(&self, name: Name) -> Reply<'_, Option<Snapshot>> {
        self.step(move |state, now| Ok(state.snapshot(&name, now)))
    }

    fn list(&self, listing: Listing) -> Reply<'_, Page> {
        self.step(move |state, now| {
            let mut names: Vec<Name> = state.held.keys().chain(state.latches.keys()).cloned().collect();
            names.sort_unstable();
            names.retain(|name| listing.after.as_deref().is_none_or(|after| name.as_str() > after) && listing.matches(name));
            let more = names.len() > listing.limit;
            names.truncate(listing.limit);
            let next = names.last().filter(|_| more).map(ToString::to_string);
            Ok(Page::new(names.iter().filter_map(|name| state.snapshot(name, now)).collect(), next))
        })
    }

    fn force_release(&self, name: Name) -> Reply<'_, Forced> {
        self.step(move |state, now| {
            let from = state.snapshot(&name, now).map(|seen| seen.holders).unwrap_or_default();
            state.held.remove(&name);
            state.wake(&name);
            Ok(Forced::new(from))
        })
    }

    fn announce(&self, card: ClientCard, ttl: Duration) -> Reply<'_, ()> {
        self.step(move |state, now| {
            state.cards.insert(card.id, (card, now.plus(ttl)));
            Ok(())
        })
    }
}

struct Abroad;

impl Harness for Abroad {
    fn time(&self) -> Time {
        Time::Simulated
    }

    async fn open(&self, runtime: Runtime) -> Arc<dyn Backend> {
        Arc::new(Foreign { runtime, state: Arc::default() })
    }
}

lockkeeper::conformance!(Abroad);

#[test]
fn this_store_uses_the_public_api_only() {
    let source = include_str!("foreign_store.rs");
    let hidden = ["error", "layer", "model", "name", "owner", "runtime", "session", "store", "token"];
    for module in hidden {
        assert!(!source.contains(&format!("lockkeeper::{module}::")), "lockkeeper::{module} is hidden");
    }
}
