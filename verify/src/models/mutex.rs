//! Clients of one mutex that ask, repeat, renew, cancel and release, over a network that delays, doubles and loses messages.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};

use lockkeeper::backend::{Attempt, Claim};
use lockkeeper::model::{Outcome, Request};
use lockkeeper::runtime::Instant;

use super::server::{Server, TICK, acquire, at, digest_debug, owner, release, renewal};
use crate::explore::{Model, Property};

/// What is wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MutexFlaw {
    /// Nothing.
    None,
    /// A client counts its deadline from the answer, not from the sending.
    DeadlineFromAnswer,
    /// The server carries out requests after their `not_after`.
    LateIsCarriedOut,
    /// A release frees the name for whoever holds it.
    ReleaseIgnoresOwner,
}

/// The model: how many clients, acquisitions of each, and ticks.
#[derive(Clone, Copy, Debug)]
pub struct Retries {
    /// How many clients.
    pub clients: usize,
    /// How often each of them locks.
    pub rounds: u8,
    /// When time ends.
    pub horizon: u8,
    /// Whether clients send an acquire again that has no answer.
    pub repeats: bool,
    /// Whether holders renew.
    pub renewals: bool,
    /// How many requests in all may be carried out twice.
    pub doubles: u8,
    /// What is wrong.
    pub flaw: MutexFlaw,
}

const LEASE: u8 = 2;
/// How long after its sending a request may be carried out.
const IN_TIME: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Ask {
    /// `floor`: the largest token that anybody had been answered when this acquisition began. For the check only.
    Acquire {
        not_after: u8,
        floor: u64,
    },
    Renew,
    /// `last`: nothing of this owner can be carried out after it.
    Release {
        last: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Answer {
    Granted(u64, u64),
    Refused,
    Kept,
    Gone,
    Released { last: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Message<T> {
    client: usize,
    number: u8,
    sent: u8,
    what: T,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    /// `settled_after`: when the last request can no longer be carried out.
    Asking {
        repeated: bool,
        floor: u64,
        settled_after: u8,
    },
    Holding {
        until: u8,
        renewed: bool,
    },
    Releasing,
    /// Cancelled: an undo is on its way, and a last one follows.
    Undoing {
        settled_after: u8,
        last_sent: bool,
    },
    Settled,
}

#[derive(Clone, Debug, Hash)]
struct Client {
    number: u8,
    phase: Phase,
}

/// A state of the model.
#[derive(Clone, Debug)]
pub struct State {
    now: u8,
    server: Server,
    asks: Vec<Message<Ask>>,
    answers: Vec<Message<Answer>>,
    clients: Vec<Client>,
    doubled: u8,
    /// The largest token that a client was answered.
    top: u64,
    order_broken: bool,
    seen: Seen,
}

/// What the last action did. It does not tell states apart.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    granted_again: bool,
    refused_late: bool,
    followed_an_expired_hold: bool,
    lengthened: bool,
}

impl State {
    /// Forgets answers that change nothing, now or later: a client never returns to a phase with the same number.
    fn drop_idle_answers(&mut self) {
        let Self { clients, answers, .. } = self;
        answers.retain(|answer| {
            let client = &clients[answer.client];
            client.number == answer.number
                && matches!(
                    (client.phase, answer.what),
                    (Phase::Asking { .. }, Answer::Granted(..))
                        | (Phase::Holding { .. }, Answer::Kept | Answer::Gone)
                        | (Phase::Releasing, Answer::Released { .. })
                        | (Phase::Undoing { .. }, Answer::Released { last: true })
                )
        });
    }
}

/// What may happen.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "named as what clients and network do")]
pub enum Action {
    Tick,
    Begin(usize),
    Repeat(usize),
    Cancel(usize),
    LastUndo(usize),
    Renew(usize),
    Release(usize),
    /// The server carries out a request.
    Arrive(usize),
    /// It does, and the network has another copy.
    ArriveAndStay(usize),
    /// The client gets an answer.
    Answer(usize),
}

impl Retries {
    fn carry_out(&self, state: &mut State, index: usize) {
        let ask = state.asks[index];
        let who = owner(ask.client, ask.number);
        let (now, clock) = (state.now, u64::from(state.now) * TICK);
        let answer = match ask.what {
            Ask::Acquire { not_after, floor } => {
                let limit = if self.flaw == MutexFlaw::LateIsCarriedOut { Instant::NEVER } else { at(not_after) };
                let held_before = state.server.record.owners();
                let expired = held_before.first().is_some_and(|holder| *holder != who) && !state.server.is_held(now);
                match state.server.acquire(acquire(Claim::Mutex, who, LEASE, limit, None), now, clock) {
                    Attempt::Granted(grant) => {
                        state.seen.granted_again |= held_before.contains(&who);
                        state.seen.followed_an_expired_hold |= expired;
                        Answer::Granted(grant.token.unwrap_or(0), floor)
                    }
                    Attempt::Late => {
                        state.seen.refused_late = true;
                        Answer::Refused
                    }
                    _ => Answer::Refused,
                }
            }
            Ask::Renew if state.server.renew(renewal(Claim::Mutex, who, Some(LEASE)), now) => Answer::Kept,
            Ask::Renew => Answer::Gone,
            Ask::Release { last } => {
                let request = match self.flaw {
                    MutexFlaw::ReleaseIgnoresOwner => Request::Force,
                    _ => release(Claim::Mutex, who),
                };
                let _: Outcome = state.server.step(&request, now, clock);
                Answer::Released { last }
            }
        };
        state.answers.push(Message { client: ask.client, number: ask.number, sent: ask.sent, what: answer });
        state.answers.sort_unstable();
        state.answers.dedup();
    }

    fn receive(&self, state: &mut State, index: usize) {
        let answer = state.answers.remove(index);
        let now = state.now;
        let client = &mut state.clients[answer.client];
        if client.number != answer.number {
            return;
        }
        client.phase = match (client.phase, answer.what) {
            (Phase::Asking { .. }, Answer::Granted(token, floor)) => {
                state.order_broken |= token <= floor;
                state.top = state.top.max(token);
                let from = if self.flaw == MutexFlaw::DeadlineFromAnswer { now } else { answer.sent };
                let until = from + LEASE;
                if until > now { Phase::Holding { until, renewed: false } } else { Phase::Idle }
            }
            (Phase::Holding { until, renewed }, Answer::Kept) => {
                state.seen.lengthened = answer.sent + LEASE > until;
                Phase::Holding { until: until.max(answer.sent + LEASE), renewed }
            }
            (Phase::Holding { .. }, Answer::Gone) => Phase::Idle,
            (Phase::Releasing, Answer::Released { .. }) => Phase::Idle,
            (Phase::Undoing { .. }, Answer::Released { last: true }) => Phase::Settled,
            (phase, _) => phase,
        };
    }

    fn send(state: &mut State, client: usize, what: Ask) {
        let message = Message { client, number: state.clients[client].number, sent: state.now, what };
        if !state.asks.contains(&message) {
            state.asks.push(message);
            state.asks.sort_unstable();
        }
    }
}

impl Model for Retries {
    type State = State;
    type Action = Action;

    fn start(&self) -> State {
        State {
            now: 0,
            server: Server::default(),
            asks: Vec::new(),
            answers: Vec::new(),
            clients: vec![Client { number: 0, phase: Phase::Idle }; self.clients],
            doubled: 0,
            top: 0,
            order_broken: false,
            seen: Seen::default(),
        }
    }

    fn actions(&self, state: &State, into: &mut Vec<Action>) {
        for (index, client) in state.clients.iter().enumerate() {
            match client.phase {
                Phase::Idle | Phase::Settled if client.number < self.rounds => into.push(Action::Begin(index)),
                Phase::Idle | Phase::Settled | Phase::Releasing => {}
                Phase::Asking { repeated, .. } => {
                    into.extend((self.repeats && !repeated).then_some(Action::Repeat(index)));
                    into.push(Action::Cancel(index));
                }
                Phase::Holding { renewed, .. } => {
                    into.extend((self.renewals && !renewed).then_some(Action::Renew(index)));
                    into.push(Action::Release(index));
                }
                Phase::Undoing { settled_after, last_sent } => {
                    into.extend((!last_sent && state.now > settled_after).then_some(Action::LastUndo(index)));
                }
            }
        }
        into.extend((0..state.asks.len()).map(Action::Arrive));
        if state.doubled < self.doubles {
            into.extend((0..state.asks.len()).map(Action::ArriveAndStay));
        }
        into.extend((0..state.answers.len()).map(Action::Answer));
        into.extend((state.now < self.horizon).then_some(Action::Tick));
    }

    fn next(&self, before: &State, action: &Action) -> State {
        let mut state = State { seen: Seen::default(), ..before.clone() };
        let (now, not_after) = (state.now, state.now + IN_TIME);
        match *action {
            Action::Tick => {
                state.now += 1;
                for client in &mut state.clients {
                    if matches!(client.phase, Phase::Holding { until, .. } if until <= state.now) {
                        client.phase = Phase::Idle;
                    }
                }
            }
            Action::Begin(client) => {
                let floor = state.top;
                state.clients[client].number += 1;
                state.clients[client].phase = Phase::Asking { repeated: false, floor, settled_after: not_after };
                Self::send(&mut state, client, Ask::Acquire { not_after, floor });
            }
            Action::Repeat(client) => {
                let Phase::Asking { floor, .. } = state.clients[client].phase else { return state };
                state.clients[client].phase = Phase::Asking { repeated: true, floor, settled_after: not_after };
                Self::send(&mut state, client, Ask::Acquire { not_after, floor });
            }
            Action::Cancel(client) => {
                let Phase::Asking { settled_after, .. } = state.clients[client].phase else { return state };
                state.clients[client].phase = Phase::Undoing { settled_after, last_sent: false };
                Self::send(&mut state, client, Ask::Release { last: false });
            }
            Action::LastUndo(client) => {
                state.clients[client].phase = Phase::Undoing { settled_after: now, last_sent: true };
                Self::send(&mut state, client, Ask::Release { last: true });
            }
            Action::Renew(client) => {
                let Phase::Holding { until, .. } = state.clients[client].phase else { return state };
                state.clients[client].phase = Phase::Holding { until, renewed: true };
                Self::send(&mut state, client, Ask::Renew);
            }
            Action::Release(client) => {
                state.clients[client].phase = Phase::Releasing;
                Self::send(&mut state, client, Ask::Release { last: false });
            }
            Action::Arrive(index) => {
                self.carry_out(&mut state, index);
                state.asks.remove(index);
            }
            Action::ArriveAndStay(index) => {
                self.carry_out(&mut state, index);
                state.doubled += 1;
            }
            Action::Answer(index) => self.receive(&mut state, index),
        }
        state.drop_idle_answers();
        state
    }

    fn digest(&self, state: &State, hasher: &mut DefaultHasher) {
        digest_debug(&state.server.record, hasher);
        hasher.write_u64(state.server.last_token);
        (state.now, &state.asks, &state.answers, &state.clients).hash(hasher);
        (state.doubled, state.top, state.order_broken).hash(hasher);
    }

    fn always(&self) -> Vec<Property<State>> {
        vec![
            ("P1: one holder at most", |state| {
                state.clients.iter().filter(|client| matches!(client.phase, Phase::Holding { .. })).count() < 2
            }),
            ("P2: tokens grow", |state| !state.order_broken),
            ("P5: a settled undo leaves nothing", |state| {
                let settled =
                    |(index, client): (usize, &Client)| (client.phase == Phase::Settled).then(|| owner(index, client.number));
                let left = state.server.record.owners();
                !state.clients.iter().enumerate().filter_map(settled).any(|owner| left.contains(&owner))
            }),
        ]
    }

    fn sometimes(&self) -> Vec<Property<State>> {
        let mut properties: Vec<Property<State>> = vec![
            ("a late acquire is refused", |state| state.seen.refused_late),
            ("a grant follows a hold that expired", |state| state.seen.followed_an_expired_hold),
            ("an undo is settled", |state| state.clients.iter().any(|client| client.phase == Phase::Settled)),
        ];
        if self.repeats || self.doubles > 0 {
            properties.push(("an acquire that comes twice gets the same grant", |state| state.seen.granted_again));
        }
        if self.renewals {
            properties.push(("a renewal lengthens a hold", |state| state.seen.lengthened));
        }
        properties
    }
}
