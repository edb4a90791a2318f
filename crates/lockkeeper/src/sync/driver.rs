//! Drives one [acquisition](crate::session::Acquisition): carries out its commands, and leaves nothing behind on any way out.

use std::sync::Arc;
use std::time::Duration;

use super::call::Target;
use super::sleep::sleep;
use crate::backend::{Acquire, Attempt, Claim, Event, GaveUp, Kind, Register, Subscription, Watch};
use crate::error::Result;
use crate::owner::WireOwner;
use crate::runtime::{self, Instant, log};
use crate::session::{
    Acquisition, Closing, Command, Held, LocalQueue, MOST_PASSES, Moment, Patience, Step, Ticket, Turn, UnderWay, Wanted,
};

/// How long a hold lasts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Terms {
    /// It ends by itself after this long; without it, it is renewed.
    pub(super) lease: Option<Duration>,
    /// It ends after this long, however often it is renewed.
    pub(super) max_hold: Option<Duration>,
}

/// What a step led to.
pub(super) enum Next {
    Held(Held),
    Go(Command),
}

/// An acquisition under way. Dropped before it holds, it has the keeper undo whatever it may have left.
pub(super) struct Driver<'a> {
    pub(super) target: &'a Target,
    pub(super) request: Acquire,
    pub(super) machine: Acquisition,
    pub(super) ticket: Option<Ticket>,
    pub(super) kept: bool,
    /// Set unless it sleeps: `close` waits for it.
    pub(super) under_way: Option<UnderWay<'a>>,
    /// The session knows what it may have left in the store.
    pub(super) marked: bool,
    /// It is counted among those that wait.
    waits: bool,
    /// How it ended, if not with a hold.
    pub(super) gave_up: GaveUp,
    pub(super) max_hold: Option<Duration>,
    pub(super) began: Instant,
    /// It wants to write: readers of this process see it from its first request on.
    wanted: Option<Wanted>,
    pub(super) turn: Option<Turn>,
    pub(super) subscription: Option<Arc<Subscription>>,
}

impl<'a> Driver<'a> {
    pub(super) fn new(
        target: &'a Target,
        claim: Claim,
        patience: Patience,
        terms: Terms,
        beside: Option<WireOwner>,
        began: Instant,
    ) -> Result<Self> {
        let session = &target.session;
        let core = session.core();
        session.check_open()?;
        if !core.capabilities.supports(claim.kind()) {
            return Err(core.capabilities.unsupported(&claim.kind().to_string()));
        }
        if claim == Claim::Fair && !core.capabilities.fair {
            return Err(core.capabilities.unsupported("fair mutex"));
        }
        core.capabilities.check_name(target.name()?)?;
        let Terms { lease, max_hold } = terms;
        // A lease that is longer than the hold may last would keep others out for nothing.
        let asked = lease.unwrap_or(core.settings.lease).min(max_hold.unwrap_or(Duration::MAX));
        if terms != Terms::default() {
            core.capabilities.check_lease(lease.unwrap_or(asked))?;
            core.capabilities.check_lease(asked)?;
        }
        let request = Acquire::new(target.name()?.clone(), claim, core.next_owner(), asked)
            .with_times(began, began)
            .with_beside(beside)
            .with_place((patience != Patience::Try).then_some(core.settings.place))
            .with_any_size(target.is_size_checked());
        let limit = core.settings.limit(request.lease);
        let machine = Acquisition::new(patience, began, limit, target.queue.is_some(), core.trouble(patience))
            .listening_behind(core.probes_when_notified())
            .placed_if_unknown(core.capabilities.liveness.session().is_some())
            .woken_in_turn(in_turn(target, claim))
            .queueing(claim == Claim::Mutex && core.capabilities.queues_mutexes);
        let kept = lease.is_none();
        Ok(Self {
            target,
            request,
            machine,
            ticket: None,
            kept,
            under_way: None,
            marked: false,
            waits: false,
            gave_up: GaveUp::Cancelled,
            max_hold,
            began,
            wanted: None,
            turn: None,
            subscription: None,
        })
    }

    pub(super) fn start(&mut self) -> Command {
        let core = self.target.session.core();
        let limit = core.settings.limit(self.request.lease);
        if self.request.claim == Claim::Write && self.request.place.is_some() {
            self.wanted = self.target.queue.as_ref().map(LocalQueue::wanted);
        }
        let may_ask = match &self.target.queue {
            Some(queue) if self.request.place.is_some() => queue.ask_alone(&self.request, self.began, limit),
            _ => true,
        };
        if !may_ask && self.target.queue.as_ref().is_some_and(|queue| queue.has_agreed(self.request.claim)) {
            self.size_is_checked();
        }
        // With an owner it may have taken a while to come here.
        let now = if self.target.owner.is_some() { core.runtime.now() } else { self.began };
        self.machine.step(Step::Started { may_ask }, Moment { now, poll: Duration::ZERO })
    }

    pub(super) fn step(&mut self, event: Step) -> Command {
        let core = self.target.session.core();
        let now = core.runtime.now();
        self.machine.step(event, Moment { now, poll: core.poll_after(now) })
    }

    pub(super) async fn go_on(&mut self, mut command: Command) -> Result<Option<Held>> {
        let session = &self.target.session;
        self.resumes()?;
        self.waits = true;
        session.core().notify(&Event::WaitBegan { claim: self.request.claim });
        loop {
            command = match command {
                Command::Look => self.look()?,
                Command::Ask { sent, limit, register } => match self.ask(sent, limit, register).await? {
                    Next::Held(held) => return Ok(Some(held)),
                    Next::Go(command) => command,
                },
                Command::Subscribe { limit } => {
                    self.pauses()?;
                    let subscribed = runtime::within(limit, Box::pin(self.subscribe())).await;
                    match &subscribed {
                        Some(Err(error)) => log!(debug, %error, "cannot subscribe; polling instead"),
                        None => log!(debug, "no answer to a subscription; polling instead"),
                        Some(Ok(())) => {}
                    }
                    session.core().check_process()?;
                    self.resumes()?;
                    self.comes_back(Step::Subscribed(matches!(subscribed, Some(Ok(())))))
                }
                Command::Sleep { until, listen } => {
                    self.pauses()?;
                    let subscription = self.subscription.as_deref().filter(|_| listen);
                    sleep(session.core(), until, subscription, self.turn.as_ref()).await;
                    session.core().check_process()?;
                    self.resumes()?;
                    self.comes_back(Step::Woken)
                }
                Command::Grant { grant, sent, handed_over, moved } => {
                    return self.granted(grant, sent, handed_over, moved, session.core().runtime.now()).map(Some);
                }
                Command::NewOwner { left } => {
                    self.renew_owner(left);
                    self.step(Step::Woken)
                }
                Command::GiveUp => return Ok(None),
                Command::Fail(error) => return Err(error),
            }
        }
    }

    /// Finds out where this call stands among those of its process.
    fn look(&mut self) -> Result<Command> {
        let core = self.target.session.core();
        let Some(queue) = &self.target.queue else { return Ok(self.step(Step::Woken)) };
        let turn = match &mut self.turn {
            Some(turn) => turn,
            None => self.turn.insert(queue.join(core, self.target.name()?)),
        };
        let plain = self.kept && self.max_hold.is_none();
        let stand = turn.stand(&self.request, plain, core.runtime.now());
        let own = self.request.owner;
        let keeps = stand.granted_to(own) != Some(own) || self.keeps_owner();
        let command = self.step(if keeps { Step::Stands(stand) } else { Step::Revoked });
        if let (Some(owner), false) = (stand.granted_to(own), matches!(command, Command::Grant { .. })) {
            // It came too late: the queue must not count on it.
            if owner == own {
                queue.left(owner, core.runtime.now());
            } else {
                core.release_unused(queue, self.target.name()?, owner);
            }
        }
        Ok(command)
    }

    /// Sends the request once.
    pub(super) async fn ask(&mut self, sent: Instant, limit: Duration, register: Register) -> Result<Next> {
        let core = self.target.session.core();
        (self.request.not_after, self.request.register) = (sent.plus(limit), register);
        // A waiter with a place in the store's queue asks for itself alone: nobody waits for its answer.
        if let Some(turn) = self.turn.as_ref().filter(|_| !self.machine.is_placed()) {
            if let (true, Some(queue)) = (turn.asks(&self.request, self.request.not_after), &self.target.queue) {
                core.check_queue(&self.request.name, queue);
            }
            // Those behind it get the hold from guard to guard.
            let followed = core.passes_holds() && self.request.claim == Claim::Mutex && turn.is_followed();
            self.request.spare_tokens = if followed { MOST_PASSES } else { 0 };
        }
        let answer = match self.resumes() {
            Ok(()) if self.sends() => core.call(limit, core.backend.acquire(self.request.clone())).await,
            Ok(()) => return Ok(Next::Go(self.step(Step::Revoked))),
            // Nothing was sent.
            Err(closed) => Err(closed),
        };
        self.answered(answer, sent)
    }

    /// Tells the local queue and the machine that the request has ended.
    fn answered(&mut self, answer: Result<Attempt>, sent: Instant) -> Result<Next> {
        let core = self.target.session.core();
        let now = core.runtime.now();
        let queue = self.target.queue.as_ref();
        let counts = queue.is_none_or(|queue| queue.answered(&self.request, answer.as_ref().ok(), now));
        if !counts || !self.keeps_owner() {
            if let Some(queue) = queue {
                // The queue must not count on it.
                queue.left(self.request.owner, now);
            }
            return Ok(Next::Go(self.step(Step::Revoked)));
        }
        let granted = matches!(answer, Ok(Attempt::Granted(_)));
        if granted || matches!(answer, Ok(Attempt::Busy(_))) {
            self.size_is_checked();
        }
        core.saw_place(matches!(&answer, Ok(Attempt::Busy(busy)) if busy.placed));
        let poll = if granted { Duration::ZERO } else { core.poll_after(now) };
        Ok(match self.machine.step(Step::Answered { answer, sent }, Moment { now, poll }) {
            Command::Grant { grant, sent, handed_over, moved } => {
                Next::Held(self.granted(grant, sent, handed_over, moved, now)?)
            }
            command => {
                if let (true, Some(queue)) = (granted, queue) {
                    // It came too late: the queue must not count on it.
                    queue.left(self.request.owner, now);
                }
                Next::Go(command)
            }
        })
    }

    /// It is not counted among those that wait any more.
    pub(super) fn wait_ends(&mut self) {
        if std::mem::take(&mut self.waits) {
            self.target.session.core().notify(&Event::WaitEnded { claim: self.request.claim });
        }
    }

    /// It goes on. From here on `close` waits for it, unless the client was closed before.
    pub(super) fn resumes(&mut self) -> Result<()> {
        let session = &self.target.session;
        self.under_way.get_or_insert_with(|| session.core().under_way());
        session.check_closed()
    }

    /// The store accepted the size of the semaphore: from now on the size that is there counts.
    fn size_is_checked(&mut self) {
        if self.request.claim.kind() == Kind::Semaphore {
            self.request.any_size = true;
            self.target.size_is_checked();
        }
    }

    async fn subscribe(&mut self) -> Result<()> {
        if let Some(subscription) = self.turn.as_ref().and_then(Turn::subscription) {
            self.subscription = Some(subscription);
            return Ok(());
        }
        let core = self.target.session.core();
        let Acquire { name, claim, owner, .. } = &self.request;
        let watch = Watch::new(name.clone(), *claim, *owner).with_in_turn(in_turn(self.target, *claim));
        let subscription = Arc::new(core.call(core.settings.command_timeout, core.backend.watch(watch)).await?);
        if let Some(turn) = self.turn.as_ref().filter(|_| subscription.is_shareable()) {
            turn.set_subscription(Arc::clone(&subscription));
        }
        self.subscription = Some(subscription);
        Ok(())
    }
}

/// Whether the store wakes a waiter of this claim when it is the turn of its client. All waiters of the client stand in one local queue: whichever of
/// them is first there goes on.
fn in_turn(target: &Target, claim: Claim) -> bool {
    claim == Claim::Mutex && target.queue.is_some() && target.session.core().capabilities.wakes_in_turn
}

impl Drop for Driver<'_> {
    fn drop(&mut self) {
        self.wait_ends();
        if !self.machine.is_done() {
            let core = self.target.session.core();
            // Until its fields are dropped: `close` must see the mark, or this, or the undo.
            self.under_way.get_or_insert_with(|| core.under_way());
            self.unmark();
            let now = core.runtime.now();
            let handed = self.turn.as_ref().map_or(Closing::Nothing, Turn::close);
            let Acquire { name, claim, .. } = &self.request;
            if let Some(queue) = &self.target.queue {
                queue.answered(&self.request, None, now);
                match handed {
                    Closing::Nothing => {}
                    Closing::OnItsWay(_) => queue.left(self.request.owner, now),
                    Closing::Has(hold) => {
                        // Out of the queue first: the hold goes to the next one.
                        self.turn = None;
                        core.pass_on(queue, name, &hold);
                    }
                }
            }
            let handed = if let Closing::OnItsWay(not_after) = handed { Some(not_after) } else { None };
            let waited = now.since(self.began);
            core.notify(&Event::GaveUp { name, claim: *claim, waited, why: self.gave_up });
            let left = self.machine.leave(handed);
            self.undo(left);
        }
    }
}
