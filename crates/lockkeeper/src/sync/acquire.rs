//! Taking a hold: from the first request to the guard, with nothing left behind on any way out.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::target::Target;
use super::wait::{Look, Looked, Patience, wait};
use crate::backend::{Acquire, Attempt, AttemptAll, Busy, Claim, Event, Grant, Kind, Release, Renew, Subscription, Watch, drift};
use crate::error::{Error, ErrorKind, Result};
use crate::owner::WireOwner;
use crate::runtime::{self, Instant};
use crate::session::{Entry, Grounds, Held, Hold, Owner, Session, Stand, Ticket, Turn, Undo};

/// Takes a hold; `None` if others kept it for as long as `patience` lasted.
#[allow(clippy::manual_async_fn, reason = "an `async fn` would carry each argument about twice")]
pub(super) fn acquire(
    target: &Target,
    claim: Claim,
    patience: Patience,
    lease: Option<Duration>,
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
        let mut taking = Taking::new(target, claim, patience, lease, beside, began)?;
        taking.ticket = ticket;
        // Where nobody is in the way the first answer is the last: no queue, no timer, no second box.
        if taking.may_ask_at_once(patience) {
            // With an owner it may have taken a while to come here.
            let sent = if target.owner.is_some() { session.core().runtime.now() } else { began };
            let answer = taking.ask(sent).await;
            if !matches!(answer, Ok(Looked::Ready(_))) {
                taking.stop_asking();
            }
            match answer {
                Ok(Looked::Ready(held)) => return Ok(Some(held)),
                Ok(_) if patience == Patience::Try => return Ok(None),
                Ok(_) => {}
                Err(error)
                    if error.is_trouble() && (patience == Patience::Try || taking.deadline > session.core().runtime.now()) => {}
                Err(error) => return Err(error),
            }
        } else if patience == Patience::Try {
            return Ok(None);
        }
        Box::pin(wait(session, patience, began, &mut taking)).await
    }
}

/// Waits until the owner's other calls for the name are done; `None` if that took too long. Of its own, so that the common way is small.
async fn enter(owner: &Owner, target: &Target, shared: bool, limit: Duration) -> Result<Option<Entry>> {
    let entering = Box::pin(owner.enter(target.session.id(), target.name()?, shared));
    runtime::within(limit, entering).await.transpose()
}

/// Takes the read hold of the owner that writes, without waiting: the store grants it to the writer.
pub(super) async fn downgrade(target: &Target, writer: &Held, lease: Option<Duration>) -> Result<Option<Held>> {
    let began = target.session.core().runtime.now();
    let mut taking = Taking::new(target, Claim::Read, Patience::Try, lease, Some(writer.owner()), began)?;
    Box::pin(wait(&target.session, Patience::Try, began, &mut taking)).await
}

/// Takes several of one session, whose store can do so in one step, without waiting; which one is busy if not.
///
/// An owner for each, so that each is a hold like any other.
pub(super) async fn take_together(
    parts: &[(&Target, Claim)],
    patience: Patience,
    lease: Option<Duration>,
) -> Result<std::result::Result<Vec<Held>, usize>> {
    let Some((first, _)) = parts.first() else { return Ok(Ok(Vec::new())) };
    let session = &first.session;
    let began = session.core().runtime.now();
    let takings: Result<Vec<_>> =
        parts.iter().map(|(target, claim)| Taking::new(target, *claim, Patience::Try, lease, None, began)).collect();
    let mut together = Together { session, takings: takings?, patience };
    // Who is to let others go first is busy with that.
    let backs_off = |(target, _): &(&Target, Claim)| target.line.as_ref().is_some_and(|line| line.is_backing_off(began));
    if patience != Patience::Try
        && let Some(index) = parts.iter().position(backs_off)
    {
        return Ok(Err(index));
    }
    // The wait loop for its one retry rule: it is never told that something is busy.
    let found = Box::pin(wait(session, patience, began, &mut together)).await?;
    found.ok_or_else(|| Error::new(ErrorKind::Unavailable, "the store could not be asked in the time allowed"))
}

/// Several acquisitions that go out in one request.
struct Together<'a> {
    session: &'a Session,
    takings: Vec<Taking<'a>>,
    patience: Patience,
}

impl Look for Together<'_> {
    type Found = std::result::Result<Vec<Held>, usize>;

    async fn look(&mut self) -> Result<Looked<Self::Found>> {
        let core = self.session.core();
        let sent = core.runtime.now();
        let lease = self.takings.iter().map(|taking| taking.request.lease).min().unwrap_or_default();
        let limit = core.settings.limit(lease);
        let limit = if self.patience == Patience::Try { limit / 3 } else { limit };
        let not_after = sent.plus(limit);
        for taking in &mut self.takings {
            taking.request.not_after = not_after;
            taking.in_flight = Some(not_after);
        }
        let requests = self.takings.iter().map(|taking| taking.request.clone()).collect();
        let answer = core.call(limit, core.backend.acquire_all(requests)).await;
        for taking in &mut self.takings {
            taking.in_flight = None;
        }
        match answer {
            Ok(AttemptAll::Granted(grants)) if grants.len() == self.takings.len() => {
                // One that is too late fails all: those made before are given back when dropped.
                let held: Result<Vec<_>> =
                    self.takings.iter_mut().zip(grants).map(|(taking, grant)| taking.granted(grant, sent, false)).collect();
                held.map(|held| Looked::Ready(Ok(held)))
            }
            Ok(AttemptAll::Granted(_)) => {
                self.unknown(Error::new(ErrorKind::Protocol, "the store left a lock without an answer"))
            }
            Ok(AttemptAll::Busy { index, .. }) => {
                // Nobody waits for the others: they are not given up.
                self.takings.iter_mut().for_each(|taking| taking.done = taking.unknown_until == Instant::default());
                Ok(Looked::Ready(Err(index)))
            }
            Ok(AttemptAll::Late) => Err(late()),
            Err(error) => self.unknown(error),
        }
    }

    async fn listen(&mut self) -> Result<Arc<Subscription>> {
        Ok(Arc::new(Subscription::silent()))
    }

    fn told(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}

impl Together<'_> {
    fn unknown<T>(&mut self, error: Error) -> Result<T> {
        self.takings.iter_mut().for_each(|taking| taking.failed(&error));
        Err(error)
    }
}

fn late() -> Error {
    Error::new(ErrorKind::Unavailable, "the request reached the store too late; the network or its clock is slow")
}

/// An acquisition under way. Dropped before it holds, it has the keeper undo whatever it may have left.
struct Taking<'a> {
    target: &'a Target,
    request: Acquire,
    kept: bool,
    began: Instant,
    deadline: Instant,
    patience: Patience,
    ticket: Option<Ticket>,
    turn: Option<Turn>,
    subscription: Option<Arc<Subscription>>,
    /// The `not_after` of a request that is out.
    in_flight: Option<Instant>,
    /// The latest `not_after` of requests that got no answer.
    unknown_until: Instant,
    /// The others of this process wait for our answer.
    asks_alone: bool,
    /// When to ask the store although an owner of this process seems to hold it.
    ask_after: Option<Instant>,
    /// The store said busy before we listened to it.
    unheard: bool,
    /// A place in the store's queue was taken.
    placed: bool,
    done: bool,
}

impl<'a> Taking<'a> {
    fn new(
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
        Ok(Self {
            target,
            request,
            kept: lease.is_none(),
            began,
            deadline: patience.deadline(began),
            patience,
            ticket: None,
            turn: None,
            subscription: None,
            in_flight: None,
            unknown_until: Instant::default(),
            asks_alone: false,
            ask_after: None,
            unheard: false,
            placed: false,
            done: false,
        })
    }

    fn may_ask_at_once(&mut self, patience: Patience) -> bool {
        match &self.target.line {
            None => true,
            // A try always asks the store.
            Some(_) if patience == Patience::Try => true,
            Some(line) => {
                self.asks_alone = line.ask_alone(self.request.owner, self.began);
                self.asks_alone
            }
        }
    }

    /// Lets those of this process ask who came meanwhile.
    fn stop_asking(&mut self) {
        if std::mem::take(&mut self.asks_alone)
            && let Some(line) = &self.target.line
        {
            line.stop_asking(self.request.owner);
        }
    }

    /// One request to the store, sent at `sent`.
    async fn ask(&mut self, sent: Instant) -> Result<Looked<Held>> {
        let core = self.target.session.core();
        let limit = core.settings.limit(self.request.lease);
        let limit = self.patience.request_limit(limit, self.deadline.since(sent));
        self.request.not_after = sent.plus(limit);
        self.in_flight = Some(self.request.not_after);
        let answer = core.call(limit, core.backend.acquire(self.request.clone())).await;
        self.in_flight = None;
        match answer {
            Ok(Attempt::Granted(grant)) => self.granted(grant, sent, false).map(Looked::Ready),
            Ok(Attempt::Busy(busy)) => Ok(self.busy(busy)),
            Ok(Attempt::Late) => Err(late()),
            Err(error) => {
                self.failed(&error);
                Err(error)
            }
        }
    }

    /// After some errors the request may still arrive, or has taken what does not count.
    fn failed(&mut self, error: &Error) {
        if error.may_have_taken() {
            self.unknown_until = self.unknown_until.max(self.request.not_after);
        }
    }

    fn busy(&mut self, busy: Busy) -> Looked<Held> {
        self.size_is_checked();
        self.unheard = true;
        self.placed |= busy.placed;
        Looked::Busy(busy)
    }

    /// The store took the size of the semaphore for granted: from now on the size that is there counts.
    fn size_is_checked(&mut self) {
        if self.request.claim.kind() == Kind::Semaphore {
            self.request.any_size = true;
            self.target.size_is_checked();
        }
    }

    /// The answer to a request sent at `sent` is yes: from here on the hold looks after itself.
    fn granted(&mut self, grant: Grant, sent: Instant, handed_over: bool) -> Result<Held> {
        self.size_is_checked();
        let core = self.target.session.core();
        let now = core.runtime.now();
        let lease = self.request.lease;
        let good_for = grant.good_for;
        if now.since(sent) + drift(good_for) >= good_for {
            self.unknown_until = self.unknown_until.max(now);
            // Handed over, the line counts on us as the holder, and we are not.
            if let Some(turn) = &self.turn {
                turn.refuse(self.request.owner);
            }
            return Err(Error::new(ErrorKind::Indeterminate, "the grant came when its lease had ended; it is being given back"));
        }
        let on_its_way = self.turn.as_ref().and_then(Turn::close).unwrap_or_default();
        let Acquire { name, claim, owner, .. } = &self.request;
        let hold = Hold::new(
            &self.target.session,
            Grounds {
                name: name.clone(),
                claim: *claim,
                owner: *owner,
                token: grant.token,
                lease,
                good_for,
                kept: self.kept,
                sent,
                unsettled_until: self.unknown_until.max(on_its_way),
                line: self.target.line.clone(),
                place: self.ticket.as_ref().map(Ticket::place),
            },
        );
        self.done = true;
        core.notify(&Event::Acquired { name, claim: *claim, owner: *owner, waited: now.since(self.began), handed_over });
        if let Some(ticket) = self.ticket.take() {
            ticket.fill(&hold);
        }
        let held = hold.enter();
        // Dropped, it is given back.
        self.target.session.check_closed()?;
        Ok(held)
    }

    /// The rest of two round trips in which others may take it: who has just begun to listen has spent one on that.
    async fn back_off(&self) {
        let core = self.target.session.core();
        let Acquire { name, claim, owner, lease, .. } = &self.request;
        for _ in 0..2 {
            let look = Renew { name: name.clone(), claim: *claim, owner: *owner, lease: None };
            // Only the time it takes matters.
            let _ = core.call(core.settings.limit(*lease), core.backend.renew(vec![look])).await;
            tokio::task::yield_now().await;
        }
    }
}

impl Look for Taking<'_> {
    type Found = Held;

    async fn look(&mut self) -> Result<Looked<Held>> {
        if let Some(line) = &self.target.line {
            let turn = self.turn.get_or_insert_with(|| line.join());
            let now = self.target.session.core().runtime.now();
            match turn.stand(&self.request, now) {
                // A place in the store's queue has its turn there: whoever is before it in the local queue may be behind it at the store.
                Stand::Wait | Stand::Behind | Stand::AskLater if self.placed => {}
                Stand::Wait => return Ok(Looked::Local(None)),
                // Whoever holds it here may have lost it without knowing: taken away by force, or forgotten by the store.
                Stand::Behind => {
                    let core = self.target.session.core();
                    let ask_after = *self.ask_after.get_or_insert_with(|| now.plus(core.poll_after(now)));
                    if now < ask_after {
                        return Ok(Looked::Local(Some(ask_after.since(now))));
                    }
                    self.ask_after = None;
                }
                Stand::Ask => {}
                // They will most likely have it when we ask: time to listen.
                Stand::AskLater if self.subscription.is_none() && turn.subscription().is_none() => {
                    return Ok(Looked::Busy(Busy { retry_in: Some(Duration::ZERO), ..Busy::default() }));
                }
                Stand::AskLater => {
                    let left = self.deadline.since(now);
                    runtime::within(left, Box::pin(self.back_off())).await;
                    if let Some(turn) = &self.turn {
                        turn.end_back_off();
                    }
                }
                Stand::Handed { attempt: Some(Attempt::Granted(grant)), sent, .. } => {
                    return self.granted(grant, sent, true).map(Looked::Ready);
                }
                Stand::Handed { attempt: Some(_), .. } => {}
                Stand::Handed { attempt: None, not_after, .. } => {
                    self.unknown_until = self.unknown_until.max(not_after);
                }
            }
        }
        if std::mem::take(&mut self.unheard) && self.request.place.is_some() && self.subscription.is_none() {
            // Known already: listen, and ask then.
            return Ok(Looked::Busy(Busy::default()));
        }
        self.ask(self.target.session.core().runtime.now()).await
    }

    async fn listen(&mut self) -> Result<Arc<Subscription>> {
        // Whether or not it succeeds, the next thing to do is to ask.
        self.unheard = false;
        if let Some(subscription) = self.turn.as_ref().and_then(Turn::subscription) {
            self.subscription = Some(Arc::clone(&subscription));
            return Ok(subscription);
        }
        let core = self.target.session.core();
        let Acquire { name, claim, owner, .. } = &self.request;
        let watch = Watch { name: name.clone(), kind: claim.kind(), owner: *owner, claim: Some(*claim) };
        let subscription = Arc::new(core.call(core.settings.command_timeout, core.backend.watch(watch)).await?);
        if let Some(turn) = self.turn.as_ref().filter(|_| subscription.is_shareable()) {
            turn.set_subscription(Arc::clone(&subscription));
        }
        self.subscription = Some(Arc::clone(&subscription));
        Ok(subscription)
    }

    fn told(&self) -> impl Future<Output = ()> + Send {
        let turn = self.turn.as_ref();
        async move {
            match turn {
                Some(turn) => turn.changed().await,
                None => std::future::pending().await,
            }
        }
    }
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        if self.done {
            // Permits have many holders: the next of this process may ask at once.
            if !self.request.claim.is_exclusive() {
                self.stop_asking();
                self.turn = None;
            }
            return;
        }
        self.stop_asking();
        let core = self.target.session.core();
        let Acquire { name, claim, owner, lease, .. } = &self.request;
        core.notify(&Event::GaveUp { name, claim: *claim, waited: core.runtime.now().since(self.began) });
        let handed = self.turn.as_ref().and_then(Turn::close);
        if let (Some(_), Some(turn)) = (handed, &self.turn) {
            turn.refuse(self.request.owner);
        }
        let unknown = self.unknown_until > Instant::default();
        if self.placed || unknown || self.in_flight.is_some() || handed.is_some() {
            let settled_after = self.unknown_until.max(self.in_flight.unwrap_or_default()).max(handed.unwrap_or_default());
            core.undo(Undo {
                release: Release { name: name.clone(), claim: *claim, owner: *owner, then: None, settle: false },
                lease: *lease,
                settled_after,
                line: None,
            });
        }
    }
}
