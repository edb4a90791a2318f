//! Holds that pass on inside a process: from guard to guard with tokens out of a range that the store reserved, and by requests that keep the hold for
//! the next waiter under a new owner. Requests are late, doubled and lost.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};

use lockkeeper::backend::{Attempt, Claim, Grant};
use lockkeeper::model::{Outcome, Request};

use super::server::{Server, TICK, acquire, at, digest_debug, keep, owner, release, renewal};
use crate::explore::{Model, Property};

mod state;

use state::{Answer, Ask, Hold, Message, Phase, Process, Seen, State};

/// What is wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandOverFlaw {
    /// Nothing.
    None,
    /// A request that keeps the hold leaves it to the same owner.
    SameOwner,
    /// The server does not count the tokens that it reserved.
    RangesOverlap,
    /// Nobody takes back what a waiter was given and does not pick up.
    NobodyTakesBack,
}

/// The model: two processes with so many waiters each.
#[derive(Clone, Copy, Debug)]
pub struct HandOver {
    /// How many waiters each process has.
    pub waiters: u8,
    /// How many owner ids each process may use.
    pub owners: u8,
    /// When time ends.
    pub horizon: u8,
    /// How many requests in all may be carried out twice.
    pub doubles: u8,
    /// Whether guards renew.
    pub renewals: bool,
    /// How often an operator releases by force.
    pub forced: u8,
    /// What is wrong.
    pub flaw: HandOverFlaw,
}

const LEASE: u8 = 2;
/// How long after its sending a request may be carried out.
const IN_TIME: u8 = 1;
/// How many tokens a grant reserves beside its own.
const SPARE: u32 = 1;

/// What may happen.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "named as what processes and network do")]
pub enum Action {
    Tick,
    Ask(usize),
    /// There is no answer, and the request can no longer be granted: all that it may have left is released.
    GiveUp(usize),
    PickUp(usize),
    TakeBack(usize),
    /// The guard is released, and the hold passes to a waiter of the process.
    Pass(usize),
    /// The guard is released, and the server is asked to keep the hold for a waiter of the process.
    Keep(usize),
    Release(usize),
    Renew(usize),
    Force,
    Arrive(usize),
    /// The server carries it out, and the network has another copy.
    ArriveAndStay(usize),
    Answer(usize),
}

impl HandOver {
    fn carry_out(&self, state: &mut State, index: usize) {
        let ask = state.asks[index];
        let (now, clock, process) = (state.now, u64::from(state.now) * TICK, ask.process);
        let (who, limit) = (owner(process, ask.owner), at(ask.sent + IN_TIME));
        let ranged = |number: u8| acquire(Claim::Mutex, owner(process, number), LEASE, limit, None).with_spare_tokens(SPARE);
        let granted = |attempt: Option<Attempt>| match attempt {
            Some(Attempt::Granted(Grant { token: Some(token), spare_tokens: spare, .. })) => Answer::Granted { token, spare },
            _ => Answer::Refused,
        };
        let answer = match ask.what {
            Ask::Acquire => granted(Some(state.server.acquire(ranged(ask.owner), now, clock))),
            Ask::Renew if state.server.renew(renewal(Claim::Mutex, who, Some(LEASE)), now) => Answer::Kept,
            Ask::Renew => Answer::Gone,
            Ask::Release => {
                let _: Outcome = state.server.step(&release(Claim::Mutex, who), now, clock);
                return;
            }
            Ask::Keep(next) => {
                // Others that wait listen to the name, as the stores see.
                let others = state
                    .processes
                    .iter()
                    .enumerate()
                    .any(|(other, of)| other != process && matches!(of.phase, Phase::Asking { .. }));
                if self.flaw == HandOverFlaw::SameOwner && !others {
                    // It keeps what it has, with other tokens.
                    let token = clock.max(state.server.last_token + 1);
                    let held = state.server.renew(renewal(Claim::Mutex, who, Some(LEASE)), now);
                    state.server.last_token = if held { token + u64::from(SPARE) } else { state.server.last_token };
                    if held { Answer::Granted { token, spare: SPARE } } else { Answer::Refused }
                } else {
                    let twice = state.server.record.owners().contains(&owner(process, next));
                    let then = (!others).then(|| ranged(next));
                    let Outcome::Release(done) = state.server.step(&keep(who, then), now, clock) else { return };
                    let answer = granted(done.next);
                    state.seen.kept = answer != Answer::Refused;
                    state.seen.kept_twice = state.seen.kept && twice;
                    state.seen.refused_to_keep = done.held && others;
                    state.seen.late_keep = done.held && now > ask.sent + IN_TIME;
                    answer
                }
            }
        };
        if let (Answer::Granted { token, .. }, HandOverFlaw::RangesOverlap) = (answer, self.flaw) {
            state.server.last_token = token;
        }
        // A process listens to the answer for the owner that it asked for.
        let about = match ask.what {
            Ask::Keep(next) => next,
            _ => ask.owner,
        };
        state.answers.push(Message { process, owner: about, sent: ask.sent, what: answer });
        state.answers.sort_unstable();
        state.answers.dedup();
    }

    fn receive(&self, state: &mut State, index: usize) {
        let Message { process, owner, sent, what } = state.answers.remove(index);
        let now = state.now;
        let this = &mut state.processes[process];
        this.phase = match (this.phase, what) {
            (Phase::Asking { owner: asked, from, .. }, Answer::Granted { token, spare }) if asked == owner => {
                let owner = if self.flaw == HandOverFlaw::SameOwner { from.unwrap_or(owner) } else { owner };
                let hold = Hold { owner, token, spare, sent, until: sent + LEASE, renewed: false };
                if hold.until > now { Phase::Given { hold, at: now } } else { Phase::Idle }
            }
            // It asks anew.
            (Phase::Asking { owner: asked, .. }, Answer::Refused) if asked == owner => Phase::Idle,
            (Phase::Inside(hold), Answer::Kept) if hold.owner == owner => {
                Phase::Inside(Hold { until: hold.until.max(sent + LEASE), ..hold })
            }
            (Phase::Given { hold, at }, Answer::Kept) if hold.owner == owner => {
                Phase::Given { hold: Hold { until: hold.until.max(sent + LEASE), ..hold }, at }
            }
            // It is told of the loss.
            (Phase::Inside(hold) | Phase::Given { hold, .. }, Answer::Gone) if hold.owner == owner => Phase::Idle,
            (phase, _) => phase,
        };
    }

    fn tick(&self, state: &mut State) {
        for index in 0..state.processes.len() {
            if let (Phase::Given { hold, .. }, true) = (state.processes[index].phase, self.flaw != HandOverFlaw::NobodyTakesBack)
            {
                // The keeper has waited long enough.
                state.processes[index].phase = Phase::Idle;
                state.send(index, hold.owner, Ask::Release);
                state.seen.taken_back = true;
            }
        }
        state.now += 1;
        let now = state.now;
        // No renewal is under way for longer.
        state.asks.retain(|ask| ask.what != Ask::Renew || ask.sent + IN_TIME >= now);
        for process in &mut state.processes {
            if let Phase::Inside(hold) | Phase::Given { hold, .. } = &mut process.phase {
                hold.renewed = false;
            }
            match process.phase {
                Phase::Inside(hold) | Phase::Given { hold, .. } if hold.until <= now => process.phase = Phase::Idle,
                Phase::Inside(_) | Phase::Asking { .. } => process.wanted = now,
                _ => {}
            }
        }
    }

    /// What the holder of a guard, or the keeper of one that is not there yet, may do.
    fn with_hold(&self, this: &Process, index: usize, now: u8, into: &mut Vec<Action>) {
        let Phase::Inside(hold) = this.phase else { return };
        let fresh = hold.spare > 0 && hold.sent == now;
        into.extend((this.waiting > 0 && fresh).then_some(Action::Pass(index)));
        into.extend((this.waiting > 0 && this.owners < self.owners).then_some(Action::Keep(index)));
        into.push(Action::Release(index));
    }
}

impl Model for HandOver {
    type State = State;
    type Action = Action;

    fn start(&self) -> State {
        State {
            now: 0,
            server: Server::default(),
            asks: Vec::new(),
            answers: Vec::new(),
            processes: vec![Process { waiting: self.waiters, owners: 0, phase: Phase::Idle, wanted: 0 }; 2],
            doubled: 0,
            forces: 0,
            forced: Vec::new(),
            top: 0,
            order_broken: false,
            seen: Seen::default(),
        }
    }

    fn actions(&self, state: &State, into: &mut Vec<Action>) {
        for (index, this) in state.processes.iter().enumerate() {
            match this.phase {
                Phase::Idle => into.extend((this.waiting > 0 && this.owners < self.owners).then_some(Action::Ask(index))),
                Phase::Asking { sent, .. } => into.extend((state.now > sent + IN_TIME).then_some(Action::GiveUp(index))),
                Phase::Given { at, .. } => {
                    into.extend((at == state.now).then_some(Action::PickUp(index)));
                    into.push(Action::TakeBack(index));
                }
                Phase::Inside(_) => self.with_hold(this, index, state.now, into),
            }
            if let Phase::Inside(hold) | Phase::Given { hold, .. } = this.phase {
                into.extend((self.renewals && !hold.renewed).then_some(Action::Renew(index)));
            }
        }
        let held = state.forces < self.forced && state.server.is_held(state.now);
        into.extend(held.then_some(Action::Force));
        into.extend((0..state.asks.len()).map(Action::Arrive));
        if state.doubled < self.doubles {
            into.extend((0..state.asks.len()).map(Action::ArriveAndStay));
        }
        into.extend((0..state.answers.len()).map(Action::Answer));
        into.extend((state.now < self.horizon).then_some(Action::Tick));
    }

    fn next(&self, before: &State, action: &Action) -> State {
        let mut state = State { seen: Seen::default(), ..before.clone() };
        let now = state.now;
        match *action {
            Action::Tick => self.tick(&mut state),
            Action::Ask(index) => {
                let this = &mut state.processes[index];
                this.owners += 1;
                let owner = this.owners;
                (this.phase, this.wanted) = (Phase::Asking { owner, from: None, sent: now }, now);
                state.send(index, owner, Ask::Acquire);
            }
            Action::GiveUp(index) => {
                let Phase::Asking { owner, from, .. } = state.processes[index].phase else { return state };
                state.processes[index].phase = Phase::Idle;
                for left in from.into_iter().chain([owner]) {
                    state.send(index, left, Ask::Release);
                }
            }
            Action::PickUp(index) => {
                let Phase::Given { hold, .. } = state.processes[index].phase else { return state };
                let this = &mut state.processes[index];
                (this.phase, this.waiting, this.wanted) = (Phase::Inside(hold), this.waiting - 1, now);
                if !state.forced.contains(&(index, hold.owner)) {
                    state.order_broken |= hold.token <= state.top;
                    state.top = state.top.max(hold.token);
                }
            }
            Action::TakeBack(index) => {
                let Phase::Given { hold, .. } = state.processes[index].phase else { return state };
                state.processes[index].phase = Phase::Idle;
                state.send(index, hold.owner, Ask::Release);
                state.seen.taken_back = true;
            }
            Action::Pass(index) => {
                let Phase::Inside(hold) = state.processes[index].phase else { return state };
                let hold = Hold { token: hold.token + 1, spare: hold.spare - 1, ..hold };
                state.processes[index].phase = Phase::Given { hold, at: now };
                state.seen.passed = true;
            }
            Action::Keep(index) => {
                let Phase::Inside(hold) = state.processes[index].phase else { return state };
                let this = &mut state.processes[index];
                this.owners += 1;
                let owner = this.owners;
                (this.phase, this.wanted) = (Phase::Asking { owner, from: Some(hold.owner), sent: now }, now);
                state.send(index, hold.owner, Ask::Keep(owner));
            }
            Action::Release(index) => {
                let Phase::Inside(hold) = state.processes[index].phase else { return state };
                state.processes[index].phase = Phase::Idle;
                state.send(index, hold.owner, Ask::Release);
            }
            Action::Renew(index) => {
                let this = &mut state.processes[index];
                let (Phase::Inside(hold) | Phase::Given { hold, .. }) = &mut this.phase else { return state };
                hold.renewed = true;
                let owner = hold.owner;
                state.send(index, owner, Ask::Renew);
            }
            Action::Force => {
                for (index, process) in state.processes.iter().enumerate() {
                    let held =
                        (0..=process.owners).filter(|number| state.server.record.owners().contains(&owner(index, *number)));
                    state.forced.extend(held.map(|number| (index, number)));
                }
                state.forces += 1;
                let _: Outcome = state.server.step(&Request::Force, now, u64::from(now) * TICK);
            }
            Action::Arrive(index) | Action::ArriveAndStay(index) => {
                self.carry_out(&mut state, index);
                if matches!(action, Action::Arrive(_)) {
                    state.asks.remove(index);
                } else {
                    state.doubled += 1;
                }
            }
            Action::Answer(index) => self.receive(&mut state, index),
        }
        state.drop_idle();
        state
    }

    fn digest(&self, state: &State, hasher: &mut DefaultHasher) {
        digest_debug(&state.server.record, hasher);
        hasher.write_u64(state.server.last_token);
        (state.now, &state.asks, &state.answers, &state.processes).hash(hasher);
        (state.doubled, state.forces, &state.forced, state.top, state.order_broken).hash(hasher);
    }

    fn always(&self) -> Vec<Property<State>> {
        vec![
            ("P1: one guard at most", |state| state.guards().count() < 2),
            ("the server holds it for every guard", State::guards_hold),
            ("P2: tokens grow", |state| !state.order_broken),
            ("P5: what nobody uses ends", State::ends_without_guards),
        ]
    }

    fn sometimes(&self) -> Vec<Property<State>> {
        let mut all: Vec<Property<State>> = vec![
            ("a hold passes on inside a process", |state| state.seen.passed),
            ("a hold is kept for the next waiter", |state| state.seen.kept),
            ("it is not kept because others wait", |state| state.seen.refused_to_keep),
            ("a hold that is not picked up is taken back", |state| state.seen.taken_back),
        ];
        if self.horizon > IN_TIME {
            all.push(("a request to keep it is late, and only releases", |state| state.seen.late_keep));
        }
        if self.doubles > 0 {
            all.push(("a keep is carried out twice", |state| state.seen.kept_twice));
        }
        all
    }
}
