//! A server whose replica takes over without the last grants, and a fenced resource: two may hold, no update is lost.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};

use lockkeeper::Token;
use lockkeeper::backend::{Attempt, Claim};
use lockkeeper::fence::Watermark;
use lockkeeper::runtime::Instant;

use super::server::{Server, TICK, acquire, digest_debug, owner, release};
use crate::explore::{Model, Property};

/// What is wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailoverFlaw {
    /// Nothing.
    None,
    /// The gate is passed at the write only, not before the first read.
    NobodyEnters,
    /// Tokens are counted, without the clock.
    TokensWithoutClock,
}

/// The model.
#[derive(Clone, Copy, Debug)]
pub struct Failover {
    /// How many clients.
    pub clients: usize,
    /// How often each of them locks.
    pub rounds: u8,
    /// When time ends.
    pub horizon: u8,
    /// How many failovers there may be.
    pub failovers: u8,
    /// By how many ticks the replica's clock is behind.
    pub lag: u8,
    /// What is wrong.
    pub flaw: FailoverFlaw,
}

const LEASE: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Work {
    Granted,
    Entered,
    Read(u8),
    Wrote,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Out,
    /// A client goes on after its lease ended: it may have been paused.
    In {
        token: u64,
        until: u8,
        work: Work,
    },
}

/// A state of the model.
#[derive(Clone, Debug)]
pub struct State {
    now: u8,
    primary: Server,
    replica: Server,
    failovers: u8,
    clients: Vec<(u8, Phase)>,
    gate: Watermark,
    value: u8,
    acknowledged: u8,
    /// The largest token granted so far in each tick.
    tops: Vec<u64>,
    order_broken: bool,
    refused: bool,
}

/// What may happen.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "named as what clients and servers do")]
pub enum Action {
    Tick,
    Acquire(usize),
    Enter(usize),
    Read(usize),
    Write(usize),
    Release(usize),
    Replicate,
    FailOver,
}

impl Failover {
    fn clock(&self, state: &State) -> u64 {
        let behind = if state.failovers > 0 { self.lag } else { 0 };
        match self.flaw {
            FailoverFlaw::TokensWithoutClock => 0,
            _ => (10 + u64::from(state.now) - u64::from(behind)) * TICK,
        }
    }

    fn acquire(&self, state: &mut State, client: usize) {
        let clock = self.clock(state);
        state.clients[client].0 += 1;
        let who = owner(client, state.clients[client].0);
        let request = acquire(Claim::Mutex, who, LEASE, Instant::NEVER, None);
        let Attempt::Granted(grant) = state.primary.acquire(request, state.now, clock) else { return };
        let token = grant.token.unwrap_or(0);
        // What P2 promises: between servers, only if the clocks differ by less than the time between the grants.
        let lag = usize::from(if state.failovers > 0 { self.lag + 1 } else { 0 });
        let promised = (usize::from(state.now) + 1).saturating_sub(lag);
        state.order_broken |= state.tops.iter().take(promised).any(|top| *top >= token);
        let now = usize::from(state.now);
        state.tops[now] = state.tops[now].max(token);
        state.clients[client].1 = Phase::In { token, until: state.now + LEASE, work: Work::Granted };
    }

    /// The next thing that a holder does at the resource; an error of the gate ends it.
    fn work(&self, state: &mut State, client: usize) {
        let (number, Phase::In { token, until, work }) = state.clients[client] else { return };
        let fenced = Token::new(token, owner(client, number));
        let next = match work {
            Work::Granted if self.flaw == FailoverFlaw::NobodyEnters => Some(Work::Entered),
            Work::Granted => state.gate.enter(fenced).ok().map(|()| Work::Entered),
            Work::Entered => Some(Work::Read(state.value)),
            Work::Read(value) => {
                if self.flaw == FailoverFlaw::NobodyEnters {
                    // It looks at the write alone; an error is that of the check below.
                    let _ = state.gate.enter(fenced);
                }
                state.gate.check(fenced).ok().map(|()| {
                    state.value = value + 1;
                    state.acknowledged += 1;
                    Work::Wrote
                })
            }
            Work::Wrote => None,
        };
        state.refused |= next.is_none();
        state.clients[client].1 = next.map_or(Phase::Out, |work| Phase::In { token, until, work });
    }
}

impl Model for Failover {
    type State = State;
    type Action = Action;

    fn start(&self) -> State {
        State {
            now: 0,
            primary: Server::default(),
            replica: Server::default(),
            failovers: 0,
            clients: vec![(0, Phase::Out); self.clients],
            gate: Watermark::default(),
            value: 0,
            acknowledged: 0,
            tops: vec![0; usize::from(self.horizon) + 1],
            order_broken: false,
            refused: false,
        }
    }

    fn actions(&self, state: &State, into: &mut Vec<Action>) {
        for (index, (number, phase)) in state.clients.iter().enumerate() {
            into.extend(match phase {
                Phase::Out if *number < self.rounds => Some(Action::Acquire(index)),
                Phase::Out => None,
                Phase::In { work: Work::Granted, .. } => Some(Action::Enter(index)),
                Phase::In { work: Work::Entered, .. } => Some(Action::Read(index)),
                Phase::In { work: Work::Read(_), .. } => Some(Action::Write(index)),
                Phase::In { work: Work::Wrote, .. } => Some(Action::Release(index)),
            });
        }
        into.push(Action::Replicate);
        into.extend((state.failovers < self.failovers).then_some(Action::FailOver));
        into.extend((state.now < self.horizon).then_some(Action::Tick));
    }

    fn next(&self, before: &State, action: &Action) -> State {
        let mut state = before.clone();
        match *action {
            Action::Tick => state.now += 1,
            Action::Acquire(client) => self.acquire(&mut state, client),
            Action::Enter(client) | Action::Read(client) | Action::Write(client) => self.work(&mut state, client),
            Action::Release(client) => {
                let who = owner(client, state.clients[client].0);
                state.primary.step(&release(Claim::Mutex, who), state.now, 0);
                state.clients[client].1 = Phase::Out;
            }
            Action::Replicate => state.replica = state.primary.clone(),
            Action::FailOver => {
                state.primary = state.replica.clone();
                state.failovers += 1;
            }
        }
        state
    }

    fn digest(&self, state: &State, hasher: &mut DefaultHasher) {
        for server in [&state.primary, &state.replica] {
            digest_debug(&server.record, hasher);
            hasher.write_u64(server.last_token);
        }
        state.gate.last.hash(hasher);
        (state.now, state.failovers, &state.clients, state.value, state.acknowledged).hash(hasher);
        (&state.tops, state.order_broken, state.refused).hash(hasher);
    }

    fn always(&self) -> Vec<Property<State>> {
        vec![
            ("P2: tokens grow across a failover", |state| !state.order_broken),
            ("P7: no acknowledged update is lost", |state| state.value == state.acknowledged),
        ]
    }

    fn sometimes(&self) -> Vec<Property<State>> {
        vec![
            ("a failover makes two holders", |state| {
                let valid = |(_, phase): &&(u8, Phase)| matches!(phase, Phase::In { until, .. } if *until > state.now);
                state.clients.iter().filter(valid).count() > 1
            }),
            ("the gate refuses somebody", |state| state.refused),
            ("two updates are acknowledged", |state| state.acknowledged > 1),
        ]
    }
}
