//! A majority of three servers that restart empty, from an old snapshot, or are flushed. Their votes are those of the library's model and
//! its quarantine. Tokens are not part of it.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};

use lockkeeper::backend::{Attempt, Claim};
use lockkeeper::model::Quarantine;

use super::server::{Server, acquire, at, digest_debug, owner, release, renewal, ticks};
use crate::explore::{Model, Property};

/// What is wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedLockFlaw {
    /// Nothing.
    None,
    /// A server that may have forgotten votes gives new ones at once.
    NoQuarantine,
}

/// The model: two clients and three servers.
#[derive(Clone, Copy, Debug)]
pub struct RedLock {
    /// How often each client locks.
    pub rounds: u8,
    /// When time ends.
    pub horizon: u8,
    /// How often servers restart or are flushed, in all.
    pub restarts: u8,
    /// Whether holders renew.
    pub renewals: bool,
    /// Whether votes are withdrawn server by server, late or never; otherwise from all at once.
    pub slow_withdrawals: bool,
    /// Whether the answers of servers are lost.
    pub lost_answers: bool,
    /// Whether servers take snapshots; otherwise the only one is from before the first vote.
    pub snapshots: bool,
    /// What is wrong.
    pub flaw: RedLockFlaw,
}

const CLIENTS: usize = 2;
const SERVERS: usize = 3;
const MAJORITY: u32 = 2;
const LEASE: u8 = 2;
const IN_TIME: u8 = 1;

#[derive(Clone, Debug, Default)]
struct Voter {
    server: Server,
    quarantine: Option<Quarantine>,
    run: u8,
    /// A snapshot on disk.
    saved: Option<(Server, Option<Quarantine>)>,
}

impl Voter {
    /// Whether the snapshot is as new as can be.
    fn fresh(&self) -> bool {
        self.saved.as_ref().is_some_and(|(server, quarantine)| {
            server.record == self.server.record && server.last_token == self.server.last_token && *quarantine == self.quarantine
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Out,
    /// Which servers carried the request out, and which of them were heard to vote for it.
    Asking {
        sent: u8,
        reached: u8,
        votes: u8,
    },
    /// `round`: the renewal under way.
    Holding {
        until: u8,
        round: Option<(u8, u8, u8)>,
    },
    /// It withdraws its votes; which servers were told.
    Leaving {
        told: u8,
    },
}

impl Phase {
    /// What it knows of one server.
    const fn of_server(self, server: usize) -> (bool, bool) {
        let (first, second) = match self {
            Self::Out | Self::Holding { round: None, .. } => (0, 0),
            Self::Asking { reached, votes, .. } => (reached, votes),
            Self::Holding { round: Some((_, reached, kept)), .. } => (reached, kept),
            Self::Leaving { told } => (told, 0),
        };
        (first & 1 << server != 0, second & 1 << server != 0)
    }

    /// All else.
    const fn times(self) -> (u8, u8, u8) {
        match self {
            Self::Out => (0, 0, 0),
            Self::Asking { sent, .. } => (1, sent, 0),
            Self::Holding { until, round: None } => (2, until, 0),
            Self::Holding { until, round: Some((sent, ..)) } => (3, until, sent),
            Self::Leaving { .. } => (4, 0, 0),
        }
    }
}

/// A state of the model.
#[derive(Clone, Debug)]
pub struct State {
    now: u8,
    voters: Vec<Voter>,
    clients: [(u8, Phase); CLIENTS],
    restarts: u8,
    seen: Seen,
}

#[derive(Clone, Copy, Debug, Default, Hash)]
struct Seen {
    quarantined: bool,
    won_beside_a_quarantine: bool,
    vote_given_again: bool,
    won_after_another: bool,
    winners: u8,
}

/// What may happen: to a client and a server.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "named as what clients and servers do")]
pub enum Action {
    Tick,
    Begin(usize),
    /// A server decides; `heard`: the client gets its answer.
    Vote {
        client: usize,
        server: usize,
        heard: bool,
    },
    Renew(usize),
    Keep {
        client: usize,
        server: usize,
    },
    Leave(usize),
    Withdraw {
        client: usize,
        server: usize,
    },
    Save(usize),
    RestartEmpty(usize),
    RestartRestored(usize),
    Flush(usize),
}

impl RedLock {
    fn quarantine(&self, voter: &mut Voter, now: u8) -> bool {
        self.flaw != RedLockFlaw::NoQuarantine
            && !Quarantine::meet(&mut voter.quarantine, &voter.run.to_string(), at(now), ticks(LEASE)).is_zero()
    }

    fn vote(&self, state: &mut State, client: usize, server: usize, heard: bool) {
        let (number, Phase::Asking { sent, reached, votes }) = state.clients[client] else { return };
        let (who, now) = (owner(client, number), state.now);
        let voter = &mut state.voters[server];
        let mut granted = false;
        if now <= sent + IN_TIME {
            let quarantined = self.quarantine(voter, now);
            let repeated = voter.server.renew(renewal(Claim::Mutex, who, None), now);
            state.seen.quarantined |= quarantined;
            if !quarantined || repeated {
                let request = acquire(Claim::Mutex, who, LEASE, at(sent + IN_TIME), None);
                granted = matches!(voter.server.acquire(request, now, 0), Attempt::Granted(_));
            }
        }
        let reached = reached | 1 << server;
        let votes = if granted && heard { votes | 1 << server } else { votes };
        let until = sent + LEASE;
        state.clients[client].1 = if votes.count_ones() >= MAJORITY && until > now {
            let quarantined = |voter: &Voter| {
                let mut kept = voter.quarantine.clone();
                !Quarantine::meet(&mut kept, &voter.run.to_string(), at(now), ticks(LEASE)).is_zero()
            };
            state.seen.won_beside_a_quarantine |= state.voters.iter().any(quarantined);
            state.seen.won_after_another |= state.seen.winners & !(1 << client) != 0;
            state.seen.winners |= 1 << client;
            Phase::Holding { until, round: None }
        } else {
            Phase::Asking { sent, reached, votes }
        };
    }

    fn keep(&self, state: &mut State, client: usize, server: usize) {
        let (number, Phase::Holding { until, round: Some((sent, reached, kept)) }) = state.clients[client] else { return };
        let (who, now) = (owner(client, number), state.now);
        let voter = &mut state.voters[server];
        let quarantined = self.quarantine(voter, now);
        let mut is_kept = voter.server.renew(renewal(Claim::Mutex, who, Some(LEASE)), now);
        if !is_kept && quarantined && now <= sent + IN_TIME {
            let request = acquire(Claim::Mutex, who, LEASE, at(sent + IN_TIME), None);
            is_kept = matches!(voter.server.acquire(request, now, 0), Attempt::Granted(_));
            state.seen.vote_given_again |= is_kept;
        }
        let reached = reached | 1 << server;
        let kept = if is_kept { kept | 1 << server } else { kept };
        let until = if kept.count_ones() >= MAJORITY { until.max(sent + LEASE) } else { until };
        state.clients[client].1 = Phase::Holding { until, round: Some((sent, reached, kept)) };
    }
}

fn others(mask: u8) -> impl Iterator<Item = usize> {
    (0..SERVERS).filter(move |server| mask & 1 << server == 0)
}

impl Model for RedLock {
    type State = State;
    type Action = Action;

    fn start(&self) -> State {
        let mut voter = Voter::default();
        Quarantine::admit(&mut voter.quarantine, "0", ticks(LEASE));
        voter.saved = Some((voter.server.clone(), voter.quarantine.clone()));
        State { now: 0, voters: vec![voter; SERVERS], clients: [(0, Phase::Out); CLIENTS], restarts: 0, seen: Seen::default() }
    }

    fn actions(&self, state: &State, into: &mut Vec<Action>) {
        for (client, (number, phase)) in state.clients.iter().enumerate() {
            match *phase {
                Phase::Out => into.extend((*number < self.rounds).then_some(Action::Begin(client))),
                Phase::Asking { reached, .. } => {
                    let vote = |heard| others(reached).map(move |server| Action::Vote { client, server, heard });
                    into.extend(vote(true));
                    into.extend(vote(false).filter(|_| self.lost_answers));
                    into.push(Action::Leave(client));
                }
                Phase::Holding { round, .. } => {
                    let (_, reached, _) = round.unwrap_or((0, u8::MAX, 0));
                    into.extend(others(reached).map(|server| Action::Keep { client, server }));
                    into.extend((self.renewals && round.is_none()).then_some(Action::Renew(client)));
                    into.push(Action::Leave(client));
                }
                Phase::Leaving { told } => {
                    into.extend(others(told).map(|server| Action::Withdraw { client, server }));
                    into.extend((*number < self.rounds).then_some(Action::Begin(client)));
                }
            }
        }
        if state.restarts < self.restarts {
            for (server, voter) in state.voters.iter().enumerate() {
                into.extend([Action::RestartEmpty(server), Action::Flush(server)]);
                into.extend(voter.saved.is_some().then_some(Action::RestartRestored(server)));
                into.extend((self.snapshots && !voter.fresh()).then_some(Action::Save(server)));
            }
        }
        into.extend((state.now < self.horizon).then_some(Action::Tick));
    }

    fn next(&self, before: &State, action: &Action) -> State {
        let mut state = before.clone();
        let now = state.now;
        match *action {
            Action::Tick => {
                state.now += 1;
                for (_, phase) in &mut state.clients {
                    if matches!(phase, Phase::Holding { until, .. } if *until <= state.now) {
                        *phase = if self.slow_withdrawals { Phase::Leaving { told: 0 } } else { Phase::Out };
                    }
                }
            }
            Action::Begin(client) => {
                state.clients[client].0 += 1;
                state.clients[client].1 = Phase::Asking { sent: now, reached: 0, votes: 0 };
            }
            Action::Vote { client, server, heard } => self.vote(&mut state, client, server, heard),
            Action::Renew(client) => {
                if let Phase::Holding { round, .. } = &mut state.clients[client].1 {
                    *round = Some((now, 0, 0));
                }
            }
            Action::Keep { client, server } => self.keep(&mut state, client, server),
            Action::Leave(client) if self.slow_withdrawals => state.clients[client].1 = Phase::Leaving { told: 0 },
            Action::Leave(client) => {
                let who = owner(client, state.clients[client].0);
                for voter in &mut state.voters {
                    voter.server.step(&release(Claim::Mutex, who), now, 0);
                }
                state.clients[client].1 = Phase::Out;
            }
            Action::Withdraw { client, server } => {
                let (number, Phase::Leaving { told }) = state.clients[client] else { return state };
                state.voters[server].server.step(&release(Claim::Mutex, owner(client, number)), now, 0);
                state.clients[client].1 = Phase::Leaving { told: told | 1 << server };
            }
            Action::Save(server) => {
                let voter = &mut state.voters[server];
                voter.saved = Some((voter.server.clone(), voter.quarantine.clone()));
            }
            Action::RestartEmpty(server) => {
                let voter = &mut state.voters[server];
                *voter = Voter { run: voter.run + 1, ..Voter::default() };
                state.restarts += 1;
            }
            Action::RestartRestored(server) => {
                let voter = &mut state.voters[server];
                if let Some((server, quarantine)) = voter.saved.take() {
                    *voter = Voter { server, quarantine, run: voter.run + 1, saved: None };
                }
                state.restarts += 1;
            }
            Action::Flush(server) => {
                let voter = &mut state.voters[server];
                *voter = Voter { run: voter.run, ..Voter::default() };
                state.restarts += 1;
            }
        }
        state
    }

    fn digest(&self, state: &State, hasher: &mut DefaultHasher) {
        // Servers are alike: states that differ by their order only count as one.
        let mut servers = [0; SERVERS];
        for (index, voter) in state.voters.iter().enumerate() {
            let mut own = DefaultHasher::new();
            digest_debug(voter, &mut own);
            state.clients.map(|(_, phase)| phase.of_server(index)).hash(&mut own);
            servers[index] = own.finish();
        }
        servers.sort_unstable();
        (state.now, servers, state.clients.map(|(number, phase)| (number, phase.times())), state.restarts, state.seen)
            .hash(hasher);
    }

    fn always(&self) -> Vec<Property<State>> {
        vec![("P1: one holder at most", |state| {
            state.clients.iter().filter(|(_, phase)| matches!(phase, Phase::Holding { .. })).count() < 2
        })]
    }

    fn sometimes(&self) -> Vec<Property<State>> {
        let mut properties: Vec<Property<State>> = vec![
            ("a server in quarantine refuses its vote", |state| state.seen.quarantined),
            ("a lock is won while a server is in quarantine", |state| state.seen.won_beside_a_quarantine),
            ("both clients win", |state| state.seen.won_after_another),
        ];
        if self.renewals {
            properties.push(("a renewal gets a forgotten vote again", |state| state.seen.vote_given_again));
        }
        properties
    }
}
