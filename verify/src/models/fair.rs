//! A fair mutex whose waiters and holders may die: served in order of arrival, and a dead first waiter delays the others by its place only.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};

use lockkeeper::backend::{Attempt, Claim};
use lockkeeper::runtime::Instant;

use super::server::{Server, TICK, acquire, digest_debug, owner, release, renewal};
use crate::explore::{Model, Property};

/// What is wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FairFlaw {
    /// Nothing.
    None,
    /// Whoever asks first after a release gets it.
    NoQueue,
    /// A place in the queue lasts although nobody refreshes it.
    PlacesNeverEnd,
}

/// The model.
#[derive(Clone, Copy, Debug)]
pub struct FairQueue {
    /// How many clients.
    pub clients: usize,
    /// How often each of them locks.
    pub rounds: u8,
    /// When time ends.
    pub horizon: u8,
    /// What is wrong.
    pub flaw: FairFlaw,
}

const LEASE: u8 = 2;
const PLACE: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Out,
    /// `arrived`: its number among all that came to wait.
    Waiting {
        arrived: u8,
        asked: bool,
    },
    Holding,
    Dead,
}

/// A state of the model.
#[derive(Clone, Debug)]
pub struct State {
    now: u8,
    server: Server,
    clients: Vec<(u8, Phase)>,
    arrivals: u8,
    /// For how many ticks it has been free although somebody alive waits, since the last death.
    idle: u8,
    overtaken: bool,
    died_first: bool,
    served_after_a_death: bool,
}

/// What may happen.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "named as what clients do")]
pub enum Action {
    /// Time passes; whoever lives has asked or renewed before.
    Tick,
    Ask(usize),
    Release(usize),
    Leave(usize),
    Die(usize),
}

impl FairQueue {
    fn ask(&self, state: &mut State, client: usize) {
        let (claim, place) = match self.flaw {
            FairFlaw::NoQueue => (Claim::Mutex, None),
            FairFlaw::PlacesNeverEnd => (Claim::Fair, Some(100)),
            FairFlaw::None => (Claim::Fair, Some(PLACE)),
        };
        let (number, phase) = &mut state.clients[client];
        if *phase == Phase::Out {
            *number += 1;
        }
        let request = acquire(claim, owner(client, *number), LEASE, Instant::NEVER, place);
        let attempt = state.server.acquire(request, state.now, u64::from(state.now) * TICK);
        let arrived = match *phase {
            Phase::Waiting { arrived, .. } => arrived,
            _ => state.arrivals,
        };
        if let Attempt::Granted(_) = attempt {
            *phase = Phase::Holding;
            let earlier = |other: &(u8, Phase)| matches!(other.1, Phase::Waiting { arrived: before, .. } if before < arrived);
            state.overtaken |= state.clients.iter().any(earlier);
            state.served_after_a_death |= state.died_first;
            state.idle = 0;
        } else {
            if *phase == Phase::Out {
                state.arrivals += 1;
            }
            *phase = Phase::Waiting { arrived, asked: true };
        }
    }

    fn tick(&self, state: &mut State) {
        for (client, (number, phase)) in state.clients.iter_mut().enumerate() {
            match phase {
                Phase::Holding => {
                    state.server.renew(renewal(Claim::Fair, owner(client, *number), Some(LEASE)), state.now);
                }
                Phase::Waiting { asked, .. } => *asked = false,
                Phase::Out | Phase::Dead => {}
            }
        }
        let waited_for = state.clients.iter().any(|(_, phase)| matches!(phase, Phase::Waiting { .. }));
        let free = !state.server.is_held(state.now);
        state.idle = if waited_for && free { state.idle + 1 } else { 0 };
        state.now += 1;
    }

    /// The first of all that wait.
    fn first(state: &State) -> Option<usize> {
        let arrival = |(index, (_, phase)): (usize, &(u8, Phase))| match phase {
            Phase::Waiting { arrived, .. } => Some((*arrived, index)),
            _ => None,
        };
        state.clients.iter().enumerate().filter_map(arrival).min().map(|(_, index)| index)
    }
}

impl Model for FairQueue {
    type State = State;
    type Action = Action;

    fn start(&self) -> State {
        State {
            now: 0,
            server: Server::default(),
            clients: vec![(0, Phase::Out); self.clients],
            arrivals: 0,
            idle: 0,
            overtaken: false,
            died_first: false,
            served_after_a_death: false,
        }
    }

    fn actions(&self, state: &State, into: &mut Vec<Action>) {
        let mut all_asked = true;
        for (index, (number, phase)) in state.clients.iter().enumerate() {
            match phase {
                Phase::Out => into.extend((*number < self.rounds).then_some(Action::Ask(index))),
                Phase::Waiting { asked, .. } => {
                    all_asked &= *asked;
                    into.extend([Action::Ask(index), Action::Leave(index), Action::Die(index)]);
                }
                Phase::Holding => into.extend([Action::Release(index), Action::Die(index)]),
                Phase::Dead => {}
            }
        }
        into.extend((all_asked && state.now < self.horizon).then_some(Action::Tick));
    }

    fn next(&self, before: &State, action: &Action) -> State {
        let mut state = before.clone();
        match *action {
            Action::Tick => self.tick(&mut state),
            Action::Ask(client) => self.ask(&mut state, client),
            Action::Release(client) | Action::Leave(client) => {
                let who = owner(client, state.clients[client].0);
                state.server.step(&release(Claim::Fair, who), state.now, 0);
                state.clients[client].1 = Phase::Out;
                state.idle = 0;
            }
            Action::Die(client) => {
                state.died_first |= Self::first(&state) == Some(client);
                state.clients[client].1 = Phase::Dead;
                state.idle = 0;
            }
        }
        state
    }

    fn digest(&self, state: &State, hasher: &mut DefaultHasher) {
        digest_debug(&state.server.record, hasher);
        hasher.write_u64(state.server.last_token);
        (state.now, &state.clients, state.arrivals, state.idle).hash(hasher);
        (state.overtaken, state.died_first, state.served_after_a_death).hash(hasher);
    }

    fn always(&self) -> Vec<Property<State>> {
        vec![
            ("P1: one holder at most", |state| state.clients.iter().filter(|(_, phase)| *phase == Phase::Holding).count() < 2),
            ("nobody alive is overtaken", |state| !state.overtaken),
            ("P6: the dead delay others by their place at most", |state| state.idle <= PLACE),
        ]
    }

    fn sometimes(&self) -> Vec<Property<State>> {
        vec![
            ("a first waiter dies and others are served", |state| state.served_after_a_death),
            ("two wait", |state| state.clients.iter().filter(|(_, phase)| matches!(phase, Phase::Waiting { .. })).count() > 1),
        ]
    }
}
