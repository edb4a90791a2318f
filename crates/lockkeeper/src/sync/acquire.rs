//! Drives one [acquisition](crate::session::Acquisition): carries out its commands, and leaves nothing behind on any way out.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::sleep::sleep;
use super::target::Target;
use crate::backend::{Acquire, Attempt, Claim, Event, GaveUp, Grant, Kind, Release, Subscription, Watch};
use crate::error::Result;
use crate::owner::WireOwner;
use crate::runtime::{self, Instant};
use crate::session::{Acquisition, Command, Entry, Grounds, Held, Hold, Left, Moment, Owner, Patience, Step, Ticket, Turn, Undo};

/// Acquires a hold; `None` if others kept it for as long as `patience` lasted.
#[allow(clippy::manual_async_fn, reason = "an `async fn` would carry each argument about twice")]
pub(super) fn acquire(
    target: &Target,
    claim: Claim,
    patience: Patience,
    lease: Option<Duration>,
    max_hold: Option<Duration>,
) -> impl Future<Output = Result<Option<Held>>> + Send {
    async move {
        let session = &target.session;
        let began = session.core().runtime.now();
        let name = target.name()?;
        let (beside, ticket) = match &target.owner {
            None => (None, None),
            Some(owner) => {
                let shared = claim == Claim::Read;
                let entry = match owner.try_enter(session.id(), name, shared)? {
                    Some(entry) => Some(entry),
                    None => Box::pin(enter(owner, target, shared, patience.deadline(began).since(began))).await?,
                };
                match entry {
                    Some(Entry::Reentered(held)) => return Ok(Some(held)),
                    Some(Entry::Outermost(ticket, beside)) => (beside, Some(ticket)),
                    None => return Ok(None),
                }
            }
        };
        if let Err(error) = session.core().check_outage(patience) {
            let why = GaveUp::Failed(error.kind());
            session.core().notify(&Event::GaveUp { name, claim, waited: Duration::ZERO, why });
            return Err(error);
        }
        let mut driver = Driver::new(target, claim, patience, lease, beside, began)?;
        driver.ticket = ticket;
        if let Some(most) = max_hold {
            driver.hold_at_most(most)?;
        }
        // Where nobody is in the way the first answer is the last: no queue entry, no timer, no second box.
        let next = match driver.start() {
            Command::Ask { sent, limit } => driver.ask(sent, limit).await,
            command => Ok(Next::Go(command)),
        };
        let acquired = match next {
            Ok(Next::Held(held)) => Ok(Some(held)),
            Ok(Next::Go(Command::GiveUp)) => Ok(None),
            Ok(Next::Go(Command::Fail(error))) | Err(error) => Err(error),
            Ok(Next::Go(command)) => Box::pin(driver.go_on(command)).await,
        };
        driver.gave_up = match &acquired {
            Ok(_) if patience == Patience::Try => GaveUp::Busy,
            Ok(_) => GaveUp::TimedOut,
            Err(error) => GaveUp::Failed(error.kind()),
        };
        acquired
    }
}

/// Waits until the owner's other calls for the name are done; `None` if that took too long. Apart, so that the common path is small.
async fn enter(owner: &Owner, target: &Target, shared: bool, limit: Duration) -> Result<Option<Entry>> {
    let entering = Box::pin(owner.enter(target.session.id(), target.name()?, shared));
    runtime::within(limit, entering).await.transpose()
}

/// What a step led to.
pub(super) enum Next {
    Held(Held),
    Go(Command),
}

/// An acquisition under way. Dropped before it holds, it has the keeper undo whatever it may have left.
pub(super) struct Driver<'a> {
    target: &'a Target,
    pub(super) request: Acquire,
    pub(super) machine: Acquisition,
    pub(super) ticket: Option<Ticket>,
    kept: bool,
    /// A request is out: `close` waits for it.
    asking: bool,
    /// It is counted among those that wait.
    waits: bool,
    /// How it ended, if not with a hold.
    pub(super) gave_up: GaveUp,
    max_hold: Option<Duration>,
    began: Instant,
    turn: Option<Turn>,
    subscription: Option<Arc<Subscription>>,
}

impl<'a> Driver<'a> {
    pub(super) fn new(
        target: &'a Target,
        claim: Claim,
        patience: Patience,
        lease: Option<Duration>,
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
        if let Some(lease) = lease {
            core.capabilities.check_lease(lease)?;
        }
        let request = Acquire {
            name: target.name()?.clone(),
            claim,
            owner: core.next_owner(),
            lease: lease.unwrap_or(core.settings.lease),
            not_after: began,
            since: began,
            beside,
            place: (patience != Patience::Try).then_some(core.settings.place),
            any_size: target.is_size_checked(),
        };
        let limit = core.settings.limit(request.lease);
        let machine = Acquisition::new(patience, began, limit, target.queue.is_some(), core.trouble(patience));
        let kept = lease.is_none();
        Ok(Self {
            target,
            request,
            machine,
            ticket: None,
            kept,
            asking: false,
            waits: false,
            gave_up: GaveUp::Cancelled,
            max_hold: None,
            began,
            turn: None,
            subscription: None,
        })
    }

    /// The hold ends after `most`, however often it is renewed.
    fn hold_at_most(&mut self, most: Duration) -> Result<()> {
        // A longer lease would keep others out for nothing.
        self.request.lease = self.request.lease.min(most);
        self.max_hold = Some(most);
        self.target.session.core().capabilities.check_lease(self.request.lease)
    }

    pub(super) fn start(&mut self) -> Command {
        let core = self.target.session.core();
        let limit = core.settings.limit(self.request.lease);
        let may_ask = match &self.target.queue {
            Some(queue) if self.request.place.is_some() => queue.ask_alone(&self.request, self.began, limit),
            _ => true,
        };
        // With an owner it may have taken a while to come here.
        let now = if self.target.owner.is_some() { core.runtime.now() } else { self.began };
        self.machine.step(Step::Started { may_ask }, Moment { now, poll: Duration::ZERO })
    }

    fn step(&mut self, event: Step) -> Command {
        let core = self.target.session.core();
        let now = core.runtime.now();
        self.machine.step(event, Moment { now, poll: core.poll_after(now) })
    }

    async fn go_on(&mut self, mut command: Command) -> Result<Option<Held>> {
        let session = &self.target.session;
        self.waits = true;
        session.core().notify(&Event::WaitBegan { claim: self.request.claim });
        loop {
            command = match command {
                Command::Look => self.look()?,
                Command::Ask { sent, limit } => match self.ask(sent, limit).await? {
                    Next::Held(held) => return Ok(Some(held)),
                    Next::Go(command) => command,
                },
                Command::Subscribe { limit } => {
                    let subscribed = runtime::within(limit, Box::pin(self.subscribe())).await;
                    match &subscribed {
                        Some(Err(error)) => tracing::debug!(%error, "cannot subscribe; polling instead"),
                        None => tracing::debug!("no answer to a subscription; polling instead"),
                        Some(Ok(())) => {}
                    }
                    session.check_open()?;
                    self.step(Step::Subscribed(matches!(subscribed, Some(Ok(())))))
                }
                Command::Sleep { until, listen } => {
                    let subscription = self.subscription.as_deref().filter(|_| listen);
                    sleep(&session.core().runtime, until, subscription, self.turn.as_ref()).await;
                    session.check_open()?;
                    self.step(Step::Woken)
                }
                Command::Grant { grant, sent, handed_over } => {
                    return self.granted(grant, sent, handed_over, session.core().runtime.now()).map(Some);
                }
                Command::NewOwner { left } => {
                    self.undo(left);
                    self.request.owner = session.core().next_owner();
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
        let stand = turn.stand(&self.request, core.runtime.now());
        let owner = self.request.owner;
        let command = self.step(Step::Stands(stand));
        if stand.is_grant() && !matches!(command, Command::Grant { .. }) {
            // It came too late: the queue must not count on it.
            queue.left(owner, core.runtime.now());
        }
        Ok(command)
    }

    /// Sends the request once.
    pub(super) async fn ask(&mut self, sent: Instant, limit: Duration) -> Result<Next> {
        let core = self.target.session.core();
        self.request.not_after = sent.plus(limit);
        // A waiter with a place in the store's queue asks for itself alone: nobody waits for its answer.
        if let Some(turn) = self.turn.as_ref().filter(|_| !self.machine.is_placed()) {
            turn.asks(&self.request, self.request.not_after);
        }
        self.asking_begins();
        let answer = core.call(limit, core.backend.acquire(self.request.clone())).await;
        let next = self.answered(answer, sent);
        self.asking_ends();
        next
    }

    /// Tells the local queue and the machine that the request has ended.
    fn answered(&mut self, answer: Result<Attempt>, sent: Instant) -> Result<Next> {
        let core = self.target.session.core();
        let now = core.runtime.now();
        let queue = self.target.queue.as_ref();
        let counts = queue.is_none_or(|queue| queue.answered(&self.request, answer.as_ref().ok(), now));
        if !counts || self.turn.as_ref().is_some_and(Turn::was_revoked) {
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
            Command::Grant { grant, sent, handed_over } => Next::Held(self.granted(grant, sent, handed_over, now)?),
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
    fn wait_ends(&mut self) {
        if std::mem::take(&mut self.waits) {
            self.target.session.core().notify(&Event::WaitEnded { claim: self.request.claim });
        }
    }

    /// A request goes out.
    pub(super) fn asking_begins(&mut self) {
        if !std::mem::replace(&mut self.asking, true) {
            self.target.session.core().asking_begins();
        }
    }

    /// Its answer is dealt with.
    pub(super) fn asking_ends(&mut self) {
        if std::mem::take(&mut self.asking) {
            self.target.session.core().asking_ends();
        }
    }

    /// The store accepted the size of the semaphore: from now on the size that is there counts.
    fn size_is_checked(&mut self) {
        if self.request.claim.kind() == Kind::Semaphore {
            self.request.any_size = true;
            self.target.size_is_checked();
        }
    }

    /// Has the keeper release what this owner id may have left.
    fn undo(&self, left: Option<Left>) {
        if let Some(Left { settled_after, unanswered }) = left {
            let Acquire { name, claim, owner, lease, .. } = &self.request;
            let release = Release { name: name.clone(), claim: *claim, owner: *owner, then: None, settle: false };
            self.target.session.core().undo(Undo { release, lease: *lease, settled_after, unanswered, queue: None });
        }
    }

    async fn subscribe(&mut self) -> Result<()> {
        if let Some(subscription) = self.turn.as_ref().and_then(Turn::subscription) {
            self.subscription = Some(subscription);
            return Ok(());
        }
        let core = self.target.session.core();
        let Acquire { name, claim, owner, .. } = &self.request;
        let watch = Watch { name: name.clone(), kind: claim.kind(), owner: *owner, claim: Some(*claim) };
        let subscription = Arc::new(core.call(core.settings.command_timeout, core.backend.watch(watch)).await?);
        if let Some(turn) = self.turn.as_ref().filter(|_| subscription.is_shareable()) {
            turn.set_subscription(Arc::clone(&subscription));
        }
        self.subscription = Some(subscription);
        Ok(())
    }

    /// The answer to a request sent at `sent` is yes: from here on the hold looks after itself.
    pub(super) fn granted(&mut self, grant: Grant, sent: Instant, handed_over: bool, now: Instant) -> Result<Held> {
        self.wait_ends();
        let core = self.target.session.core();
        let on_its_way = self.turn.as_ref().and_then(Turn::close).unwrap_or_default();
        let Acquire { name, claim, owner, lease, .. } = &self.request;
        let hold = Hold::new(
            &self.target.session,
            Grounds {
                name: name.clone(),
                claim: *claim,
                owner: *owner,
                token: grant.token.filter(|_| core.capabilities.fencing),
                lease: *lease,
                good_for: grant.good_for,
                session: grant.session,
                kept: self.kept,
                sent,
                unsettled_until: self.machine.unknown_until().max(on_its_way),
                queue: self.target.queue.clone(),
                handed_over,
                until: self.max_hold.map_or(Instant::NEVER, |most| sent.plus(most)),
                place: self.ticket.as_ref().map(Ticket::place),
            },
        );
        let waited = now.since(self.began);
        core.notify(&Event::Acquired { name, claim: *claim, owner: *owner, waited, handed_over });
        if let Some(ticket) = self.ticket.take() {
            ticket.fill(&hold);
        }
        let held = hold.enter();
        // Dropped, it is released.
        self.target.session.check_closed()?;
        Ok(held)
    }
}

impl Drop for Driver<'_> {
    fn drop(&mut self) {
        self.wait_ends();
        if !self.machine.is_done() {
            let core = self.target.session.core();
            let now = core.runtime.now();
            let handed = self.turn.as_ref().and_then(Turn::close);
            if let Some(queue) = &self.target.queue {
                queue.answered(&self.request, None, now);
                if handed.is_some() {
                    queue.left(self.request.owner, now);
                }
            }
            let Acquire { name, claim, .. } = &self.request;
            let waited = now.since(self.began);
            core.notify(&Event::GaveUp { name, claim: *claim, waited, why: self.gave_up });
            let left = self.machine.leave(handed);
            self.undo(left);
        }
        // Only now: `close` must not miss the undo.
        self.asking_ends();
    }
}
