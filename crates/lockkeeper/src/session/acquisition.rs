//! One acquisition as a pure state machine: events in, the next command out. No I/O, no clock, no chance.
//!
//! ```text
//!  Started ──▶ Ask ──granted──▶ Grant
//!     │         │busy
//!     ▼         ▼
//!    Look    Subscribe ──▶ Look ──▶ Ask ──busy──▶ Sleep ──woken──▶ Look …
//!     └──not its turn, or back-off──▶ Sleep ──▶ Look
//! ```
//!
//! Every way out, a dropped future included, goes through [`leave`](Acquisition::leave), which says what may be left in the store. The driver in
//! `sync/driver.rs` carries out the commands. Where a waiter stands among those of its process comes from the
//! [local queue](super::LocalQueue) as a [`Stand`].

use std::time::Duration;

use super::patience::{late, pause};
use super::stand::Stand;
use super::step::{Command, Left, Moment, Step};
use super::{Moved, Patience, Settings, Trouble};
use crate::backend::{Attempt, Busy, Grant, Register, drift};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subscribing {
    No,
    /// Got Busy before subscribing: subscribe, then ask again, because a notification in between was missed. If subscribing fails, sleep
    /// until then.
    Wanted {
        sleep_until: Instant,
    },
    /// And its client has registered in the back-off that ends then, if in any.
    Yes {
        registered_in: Instant,
    },
}

/// Until when the first waiter relies on what this process knows about the name.
#[derive(Clone, Copy, Debug)]
struct Behind {
    listen_after: Instant,
    ask_after: Instant,
}

/// So long a waiter stands behind an owner of its own process before it subscribes. Most get the name sooner, without a request.
const LISTEN_AFTER: Duration = Duration::from_millis(50);

/// An answer that takes longer comes too late for a client that was woken: the next one is told to ask 50 ms after it.
const SLOW: Duration = Duration::from_millis(25);

/// The state of one acquisition.
#[derive(Debug)]
pub(crate) struct Acquisition {
    patience: Patience,
    deadline: Instant,
    /// How long one request may take.
    limit: Duration,
    /// Whether there is a local queue.
    queued: bool,
    trouble: Trouble,
    listening: Subscribing,
    /// The `not_after` of a request that is out.
    in_flight: Option<Instant>,
    /// The latest `not_after` of requests that got no answer, and how many there are.
    unknown_until: Instant,
    unanswered: u32,
    /// An owner of this process seems to hold it.
    behind: Option<Behind>,
    /// It subscribes behind such an owner too.
    listens_behind: bool,
    /// The store wakes clients in turn: a waiter that listens registers.
    in_turn: bool,
    /// The store has a queue in which it takes its place behind an owner of its own process too.
    queues: bool,
    /// Its client has registered for it.
    registered: bool,
    /// So many answers in a row were slow.
    slow_answers: u8,
    /// The store has a mark of this owner in its queue, or may have one that does not end by itself.
    placed: bool,
    /// Marks do not end by themselves: a request without an answer counts as one.
    unknown_is_placed: bool,
    done: bool,
}

impl Acquisition {
    pub(crate) fn new(patience: Patience, began: Instant, limit: Duration, queued: bool, trouble: Trouble) -> Self {
        Self {
            patience,
            deadline: patience.deadline(began),
            limit,
            queued,
            trouble,
            listening: Subscribing::No,
            in_flight: None,
            unknown_until: Instant::default(),
            unanswered: 0,
            behind: None,
            listens_behind: false,
            in_turn: false,
            queues: false,
            registered: false,
            slow_answers: 0,
            placed: false,
            unknown_is_placed: false,
            done: false,
        }
    }

    /// Has it subscribe also behind an owner of its own process. A notification then shows that the store may have taken the name from that owner.
    pub(crate) const fn listening_behind(mut self, listens: bool) -> Self {
        self.listens_behind = listens;
        self
    }

    /// Has it register when it listens, also during a back-off: others release meanwhile, and would not know that it waits.
    pub(crate) const fn woken_in_turn(mut self, in_turn: bool) -> Self {
        self.in_turn = in_turn;
        self
    }

    /// Has it take its place in the store's queue before the owner of its own process releases: then it only has to look.
    pub(crate) const fn queueing(mut self, queues: bool) -> Self {
        self.queues = queues;
        self
    }

    /// Has it ask by itself after a request without an answer. That request may have left it a place, or the lock, and the first waiter of this
    /// process would wait for it at the store while it waits for that one here.
    pub(crate) const fn placed_if_unknown(mut self, placed: bool) -> Self {
        self.unknown_is_placed = placed;
        self
    }

    /// Until when requests of this owner that got no answer may still arrive.
    pub(crate) const fn unknown_until(&self) -> Instant {
        self.unknown_until
    }

    /// The request went out together with others, and may arrive until then.
    pub(crate) fn out_until(&mut self, not_after: Instant) {
        self.in_flight = Some(not_after);
    }

    /// Ends without a hold. Tells whether it left nothing, so that nothing has to be undone.
    pub(crate) fn end_if_nothing_is_left(&mut self) -> bool {
        let nothing = self.in_flight.is_none() && self.unanswered == 0 && !self.placed;
        self.done |= nothing;
        nothing
    }

    /// Whether the store has a mark of this owner in its queue.
    pub(crate) const fn is_placed(&self) -> bool {
        self.placed
    }

    pub(crate) const fn is_done(&self) -> bool {
        self.done
    }

    /// The one transition function.
    pub(crate) fn step(&mut self, event: Step, at: Moment) -> Command {
        match event {
            // A try always asks the store.
            Step::Started { may_ask } if may_ask || self.patience == Patience::Try => self.ask(at.now),
            Step::Started { .. } | Step::Woken => self.look(at.now),
            Step::Stands(stand) => self.stands(stand, at),
            Step::Answered { answer, sent } => self.answered(answer, sent, at),
            Step::Subscribed(yes) => self.subscribed(yes, at.now),
            Step::Revoked => self.revoked(),
        }
    }

    /// The call ends, by its own way or because its future was dropped. `handed` is the `not_after` of a hand-over to it that is on its way.
    /// `None`: it holds, or left nothing.
    pub(crate) fn leave(&mut self, handed: Option<Instant>) -> Option<Left> {
        let left = self.left(handed).filter(|_| !self.done);
        (self.in_flight, self.done) = (None, true);
        left
    }

    /// What its own owner id may have left in the store, when it holds under another one.
    pub(crate) fn has_left_beside(&self) -> Option<Left> {
        self.left(None)
    }

    /// What this owner id has, or may have, left in the store so far.
    pub(crate) fn has_left(&self) -> Option<Left> {
        self.left(None).filter(|_| !self.done)
    }

    fn left(&self, handed: Option<Instant>) -> Option<Left> {
        let out = [self.in_flight, handed];
        let unanswered = self.unanswered + out.iter().flatten().count() as u32;
        let settled_after = out.into_iter().flatten().fold(self.unknown_until, Instant::max);
        (self.placed || unanswered > 0).then_some(Left { settled_after, unanswered })
    }

    fn look(&mut self, now: Instant) -> Command {
        if self.queued && self.patience != Patience::Try { Command::Look } else { self.ask(now) }
    }

    fn ask(&mut self, now: Instant) -> Command {
        if let Subscribing::Wanted { .. } = self.listening {
            return self.subscribe(now);
        }
        let left = self.deadline.since(now);
        let limit = self.patience.request_limit(self.limit, left, self.trouble.left(now));
        self.trouble.asked(now);
        self.in_flight = Some(now.plus(limit));
        self.behind = None;
        Command::Ask { sent: now, limit, register: self.registers() }
    }

    /// Its place among those that are woken in turn ends when it is woken. If another was faster it has waited for longest, and is woken next. Not if it is
    /// far away: it would be too late each time, and each release would wait 50 ms for it in vain. One slow answer says nothing: the server
    /// may have been busy for a moment.
    fn registers(&mut self) -> Register {
        if !self.in_turn || !self.listens() {
            Register::No
        } else if std::mem::replace(&mut self.registered, true) && self.slow_answers < 2 {
            Register::First
        } else {
            Register::Last
        }
    }

    const fn listens(&self) -> bool {
        matches!(self.listening, Subscribing::Yes { .. })
    }

    /// Whether it has to register in the back-off that ends then: once.
    fn registers_in(&mut self, back_off: Instant) -> bool {
        match &mut self.listening {
            Subscribing::Yes { registered_in } if self.in_turn => std::mem::replace(registered_in, back_off) != back_off,
            _ => false,
        }
    }

    /// Asks only to be woken in turn.
    fn register(&mut self, now: Instant) -> Command {
        match self.ask(now) {
            Command::Ask { sent, limit, .. } => Command::Ask { sent, limit, register: Register::Only },
            other => other,
        }
    }

    fn subscribe(&self, now: Instant) -> Command {
        Command::Subscribe { limit: Settings::POLL.0.min(self.deadline.since(now)) }
    }

    fn sleep(&self, until: Instant, listen: bool, now: Instant) -> Command {
        if now >= self.deadline { Command::GiveUp } else { Command::Sleep { until: until.min(self.deadline), listen } }
    }

    fn stands(&mut self, stand: Stand, at: Moment) -> Command {
        match stand {
            // A place in the store's queue has its turn there: a waiter that is before it in the local queue may be behind it at the store.
            Stand::Wait | Stand::Behind | Stand::BackOff { .. } if self.placed => self.ask(at.now),
            Stand::Wait => self.sleep(Instant::NEVER, false, at.now),
            Stand::Behind if self.queues && self.listening == Subscribing::No => self.ask(at.now),
            Stand::Behind => self.stands_behind(at),
            Stand::Ask => self.ask(at.now),
            // The others will most likely have it when the back-off ends: time to subscribe.
            Stand::BackOff { until } if self.listening == Subscribing::No && at.now < self.deadline => {
                self.listening = Subscribing::Wanted { sleep_until: until };
                self.subscribe(at.now)
            }
            Stand::BackOff { until } if at.now < self.deadline && self.registers_in(until) => self.register(at.now),
            Stand::BackOff { until } => self.sleep(until, true, at.now),
            Stand::HandedOver { attempt: Some(Attempt::Granted(grant)), sent, moved, .. } => {
                self.granted(grant, sent, true, moved, at)
            }
            Stand::Passed { hold, since } if hold.may_be_picked_up(since, at.now) => {
                let moved = Some(Moved { owner: hold.owner, passes: hold.passes });
                self.granted(hold.grant(), hold.confirmed, true, moved, at)
            }
            // It ran too late, and was not noticed yet: the hold goes on without it.
            Stand::Passed { .. } => self.look(at.now),
            Stand::HandedOver { attempt: Some(_), .. } => self.ask(at.now),
            Stand::HandedOver { attempt: None, not_after, .. } => {
                self.unknown(not_after);
                self.ask(at.now)
            }
            Stand::Revoked => self.revoked(),
        }
    }

    fn stands_behind(&mut self, at: Moment) -> Command {
        let listen_after = if self.listens_behind { at.now.plus(LISTEN_AFTER) } else { Instant::NEVER };
        let fresh = || Behind { listen_after, ask_after: at.now.plus(at.poll) };
        let Behind { listen_after, ask_after } = *self.behind.get_or_insert_with(fresh);
        if at.now >= ask_after {
            self.ask(at.now)
        } else if self.listening != Subscribing::No {
            self.sleep(ask_after, true, at.now)
        } else if at.now >= listen_after && at.now < self.deadline {
            self.listening = Subscribing::Wanted { sleep_until: ask_after };
            self.subscribe(at.now)
        } else {
            self.sleep(ask_after.min(listen_after), true, at.now)
        }
    }

    fn unknown(&mut self, not_after: Instant) {
        self.unknown_until = self.unknown_until.max(not_after);
        self.unanswered += 1;
        self.placed |= self.unknown_is_placed;
    }

    fn revoked(&mut self) -> Command {
        let left = self.left(None);
        (self.in_flight, self.unknown_until, self.unanswered, self.placed) = (None, Instant::default(), 0, false);
        // A store with places in a queue notifies for one owner.
        self.listening = Subscribing::No;
        Command::NewOwner { left }
    }

    fn answered(&mut self, answer: Result<Attempt>, sent: Instant, at: Moment) -> Command {
        let not_after = self.in_flight.take().unwrap_or(at.now);
        self.slow_answers = if at.now.since(sent) > SLOW { self.slow_answers.saturating_add(1) } else { 0 };
        match answer {
            Ok(Attempt::Granted(grant)) => self.granted(grant, sent, false, None, at),
            Ok(Attempt::Busy(busy)) => self.busy(busy, at),
            Ok(Attempt::Late) => self.failed(late(), at.now),
            Err(error) => {
                if error.may_have_taken() {
                    self.unknown(not_after);
                }
                self.failed(error, at.now)
            }
        }
    }

    fn granted(&mut self, grant: Grant, sent: Instant, handed_over: bool, moved: Option<Moved>, at: Moment) -> Command {
        if at.now.since(sent) + drift(grant.good_for) >= grant.good_for {
            if moved.is_some() {
                // Nothing was granted to its own owner.
                return self.look(at.now);
            }
            self.unknown(at.now);
            let message = "the grant arrived when its lease had already ended; it is being released";
            return self.failed(Error::new(ErrorKind::Indeterminate, message), at.now);
        }
        self.done = true;
        Command::Grant { grant, sent, handed_over, moved }
    }

    fn busy(&mut self, busy: Busy, at: Moment) -> Command {
        self.placed |= busy.placed;
        self.trouble.over();
        if at.now >= self.deadline {
            return Command::GiveUp;
        }
        let until = at.now.plus(pause(busy, at.poll));
        match self.listening {
            // It has only registered, and the back-off goes on.
            Subscribing::Yes { registered_in } if busy.unseen && registered_in != Instant::default() => return self.look(at.now),
            Subscribing::Yes { .. } => return self.sleep(until, true, at.now),
            Subscribing::No | Subscribing::Wanted { .. } => {}
        }
        self.listening = Subscribing::Wanted { sleep_until: until };
        self.subscribe(at.now)
    }

    fn subscribed(&mut self, yes: bool, now: Instant) -> Command {
        let Subscribing::Wanted { sleep_until } = self.listening else { return self.look(now) };
        if yes {
            self.listening = Subscribing::Yes { registered_in: Instant::default() };
            return self.look(now);
        }
        // The store answers, it only does not notify: wait by asking, and try to subscribe after the next Busy.
        self.listening = Subscribing::No;
        self.sleep(sleep_until, false, now)
    }

    fn failed(&mut self, error: Error, now: Instant) -> Command {
        // A try does not wait for others, but for the store it does.
        let give_up = if self.patience == Patience::Try { Instant::NEVER } else { self.deadline };
        match self.trouble.again(error.clone(), now) {
            Err(error) => Command::Fail(error),
            Ok(_) if now >= give_up => Command::Fail(error),
            Ok(pause) => Command::Sleep { until: now.plus(pause).min(give_up), listen: false },
        }
    }
}

#[cfg(test)]
#[path = "acquisition_tests.rs"]
mod tests;
