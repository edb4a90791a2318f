//! The states of the model, and what must hold in them.

use super::super::server::{Server, owner};
use super::{IN_TIME, LEASE};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Ask {
    Acquire,
    /// Release, but keep it for this owner if nobody else waits.
    Keep(u8),
    Renew,
    Release,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Answer {
    /// Granted to `owner`, with so many further tokens.
    Granted {
        token: u64,
        spare: u32,
    },
    Refused,
    Kept,
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Message<T> {
    pub(super) process: usize,
    /// The owner that it is about; of a `Keep` the one that releases.
    pub(super) owner: u8,
    pub(super) sent: u8,
    pub(super) what: T,
}

/// What a process was granted, under which owner, and until when it counts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Hold {
    pub(super) owner: u8,
    pub(super) token: u64,
    pub(super) spare: u32,
    pub(super) sent: u8,
    pub(super) until: u8,
    pub(super) renewed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Idle,
    /// For `owner`; `from` is the one that releases in the same step.
    Asking {
        owner: u8,
        from: Option<u8>,
        sent: u8,
    },
    /// A waiter was given the hold and has not run since.
    Given {
        hold: Hold,
        at: u8,
    },
    /// A guard is in use.
    Inside(Hold),
}

#[derive(Clone, Debug, Hash)]
pub(super) struct Process {
    /// How many have not been inside yet.
    pub(super) waiting: u8,
    /// Owner ids that were used.
    pub(super) owners: u8,
    pub(super) phase: Phase,
    /// When it last asked for the hold or had a guard in it.
    pub(super) wanted: u8,
}

/// A state of the model.
#[derive(Clone, Debug)]
pub struct State {
    pub(super) now: u8,
    pub(super) server: Server,
    pub(super) asks: Vec<Message<Ask>>,
    pub(super) answers: Vec<Message<Answer>>,
    pub(super) processes: Vec<Process>,
    pub(super) doubled: u8,
    pub(super) forces: u8,
    /// Whose hold an operator took away. It does not know.
    pub(super) forced: Vec<(usize, u8)>,
    /// The largest token that a guard had.
    pub(super) top: u64,
    pub(super) order_broken: bool,
    pub(super) seen: Seen,
}

/// What the last action did. It does not tell states apart.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) passed: bool,
    pub(super) kept: bool,
    pub(super) kept_twice: bool,
    pub(super) taken_back: bool,
    pub(super) refused_to_keep: bool,
    pub(super) late_keep: bool,
}

impl State {
    pub(super) fn send(&mut self, process: usize, owner: u8, what: Ask) {
        let message = Message { process, owner, sent: self.now, what };
        if !self.asks.contains(&message) {
            self.asks.push(message);
            self.asks.sort_unstable();
        }
    }

    /// Forgets messages that change nothing, now or later: no owner id is used twice.
    pub(super) fn drop_idle(&mut self) {
        let Self { now, server, asks, answers, processes, .. } = self;
        let at_server = server.record.owners();
        let in_time = |ask: &Message<Ask>| ask.sent + IN_TIME >= *now;
        let asks_for = |ask: &Message<Ask>, number: u8| match ask.what {
            Ask::Acquire => ask.owner == number,
            Ask::Keep(next) => next == number,
            Ask::Renew | Ask::Release => false,
        };
        let comes =
            |process: usize, number: u8| asks.iter().any(|ask| ask.process == process && in_time(ask) && asks_for(ask, number));
        let there = |ask: &Message<Ask>| at_server.contains(&owner(ask.process, ask.owner)) || comes(ask.process, ask.owner);
        let keep: Vec<bool> = asks
            .iter()
            .map(|ask| match ask.what {
                Ask::Acquire => in_time(ask),
                Ask::Keep(_) => in_time(ask) || there(ask),
                Ask::Renew | Ask::Release => there(ask),
            })
            .collect();
        let mut keep = keep.into_iter();
        asks.retain(|_| keep.next().unwrap_or(true));
        answers.retain(|answer| match (processes[answer.process].phase, answer.what) {
            (Phase::Asking { owner, .. }, Answer::Granted { .. } | Answer::Refused) => owner == answer.owner,
            (Phase::Inside(hold) | Phase::Given { hold, .. }, Answer::Kept | Answer::Gone) => hold.owner == answer.owner,
            _ => false,
        });
    }

    /// The guards that are in use, and believed in; not those whose hold an operator took away.
    pub(super) fn guards(&self) -> impl Iterator<Item = (usize, Hold)> {
        let inside = self.processes.iter().enumerate().filter_map(|(process, state)| match state.phase {
            Phase::Inside(hold) => Some((process, hold)),
            _ => None,
        });
        inside.filter(|(process, hold)| !self.forced.contains(&(*process, hold.owner)))
    }

    /// The server holds it for the owner of every guard.
    pub(super) fn guards_hold(&self) -> bool {
        let holder = self.server.record.owners().first().copied().filter(|_| self.server.is_held(self.now));
        self.guards().all(|(process, hold)| holder == Some(owner(process, hold.owner)))
    }

    /// Nobody of a process wants it any more, and a lease later it is free.
    pub(super) fn ends_without_guards(&self) -> bool {
        let held = |process: usize| {
            (0..=self.processes[process].owners).any(|number| self.server.record.owners().contains(&owner(process, number)))
        };
        let over = |process: &Process| self.now > process.wanted + IN_TIME + LEASE;
        let late = |(index, process): (usize, &Process)| over(process) && held(index);
        !self.server.is_held(self.now) || !self.processes.iter().enumerate().any(late)
    }
}
