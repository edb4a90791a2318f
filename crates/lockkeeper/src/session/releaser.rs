//! The one way to release: every release, from a guard, from `Drop` or from a cancelled acquire, goes through here.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::link::Connection;
use super::local_queue::{Delivered, Handing, Unclaimed};
use super::{Core, Grounds, Hold, LocalQueue, Trouble, UnderWay, lock};
use crate::backend::{Attempt, Backend, Event, Kind, LossReason, Release, Released};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::runtime::sync::atomic::Ordering;
use crate::runtime::{self, Instant, caught, log};

/// Something to release, known to be held or only possibly so.
#[derive(Debug)]
pub(crate) struct Undo {
    pub(crate) release: Release,
    pub(crate) lease: Duration,
    /// Requests of this owner that got no answer may still arrive until then; so it is released once more afterwards.
    pub(crate) settled_after: Instant,
    /// How many requests of this owner got no answer.
    pub(crate) unanswered: u32,
    /// The local queue to hand it over to.
    pub(crate) queue: Option<Arc<LocalQueue>>,
}

/// What is allowed for the store's clock to be behind when it judges `not_after`.
const SETTLE_MARGIN: Duration = Duration::from_millis(50);

/// An undo may overtake the request that it undoes, so it is repeated after so long, then after twice as long, and so on.
const REPEAT: Duration = Duration::from_millis(1);

/// So many undos are sent at a time. A storm of cancelled calls leaves tens of thousands of them. Sent all at once they wait for each other longer than a
/// request may take, so each is given up and sent again, and renewals wait behind them.
pub(super) const UNDOS_AT_ONCE: usize = 256;

/// After so long another one is sent although this one has no answer: a part of the store that is silent must not hold up the others.
const SLOT_LASTS: Duration = Duration::from_millis(200);

/// So long an undo that has to be repeated waits at least while others have not been sent once.
const REPEAT_CROWDED: Duration = Duration::from_millis(100);

impl Undo {
    pub(super) fn of(hold: &Hold) -> Self {
        let settled_after = hold.grounds.unsettled_until;
        Self {
            release: hold.release_request(),
            lease: hold.lease(),
            settled_after,
            // How many is not known any more.
            unanswered: if settled_after == Instant::default() { 0 } else { u32::MAX },
            queue: hold.grounds.queue.clone(),
        }
    }
}

/// Whether what may still arrive until then has arrived: asked before a release is sent. By the time of the answer it may be settled, and
/// the release may still have come before the last request.
fn is_settled(settled_after: Instant, now: impl FnOnce() -> Instant) -> bool {
    settled_after == Instant::default() || now() >= settled_after.plus(SETTLE_MARGIN)
}

impl Core {
    /// Has the keeper release it. Never blocks.
    pub(crate) fn undo(&self, undo: Undo) {
        if self.is_forked() {
            return;
        }
        self.undoing.fetch_add(1, Ordering::SeqCst);
        lock(&self.undos).push_back(undo);
        self.keeper_wake.notify_one();
    }

    pub(super) fn release_later(&self, hold: &Hold) {
        // `close` must not miss it between its end and the undo.
        let _under_way = self.under_way();
        if hold.end().is_some() || !self.pass(hold) {
            self.undo(Undo::of(hold));
        }
    }

    /// Releases it where the caller runs; tells if it had been lost. When the store does not answer, or the caller goes away, the keeper goes
    /// on.
    pub(super) async fn release_now(&self, hold: &Hold) -> Result<Option<LossReason>> {
        let mut rest = Rest { core: self, hold: Some(hold), _under_way: self.under_way() };
        let lost = hold.end();
        if lost.is_some() {
            return Ok(lost);
        }
        if self.pass(hold) {
            rest.hold = None;
            return Ok(None);
        }
        let Grounds { lease, queue, unsettled_until, .. } = &hold.grounds;
        let request = hold.release_request();
        let settled = request.settle || is_settled(*unsettled_until, || self.runtime.now());
        let released = match self.send_release(Connection::Callers, &*self.backend, request, *lease, queue.as_ref()).await {
            Ok(released) => released,
            Err(error) => Box::pin(self.release_again(hold, error)).await?,
        };
        if settled {
            rest.hold = None;
        }
        if released.held {
            return Ok(None);
        }
        let reason = LossReason::Gone;
        let Release { name, claim, owner, .. } = hold.release_request();
        self.notify(&Event::Lost { name: &name, claim, owner, reason });
        Ok(Some(reason))
    }

    /// Goes on after `error`. Not held any more counts as released by us if an earlier request may have arrived.
    async fn release_again(&self, hold: &Hold, mut error: Error) -> Result<Released> {
        let Grounds { lease, queue, .. } = &hold.grounds;
        let mut trouble = Trouble::new(self.settings.command_timeout);
        let mut maybe_done = false;
        loop {
            maybe_done |= error.kind() == ErrorKind::Indeterminate;
            let now = self.runtime.now();
            let pause = trouble.again(error, now)?;
            self.runtime.sleep_until(now.plus(pause)).await;
            match self.send_release(Connection::Callers, &*self.backend, hold.release_request(), *lease, queue.as_ref()).await {
                Ok(released) => return Ok(Released { held: released.held || maybe_done, ..released }),
                Err(next) => error = next,
            }
        }
    }

    /// One request: release, and hand over to the next waiter of this process if there is one.
    ///
    /// Written out as a future, because it is part of every caller's future: it is half the size of an `async fn`.
    fn send_release<'a>(
        &'a self,
        way: Connection,
        via: &'a dyn Backend,
        mut request: Release,
        lease: Duration,
        queue: Option<&'a Arc<LocalQueue>>,
    ) -> impl Future<Output = Result<Released>> + Send + 'a {
        let (owner, claim, name) = (request.owner, request.claim, request.name.clone());
        let handing = queue.filter(|_| request.claim.kind() == Kind::Mutex).and_then(|queue| queue.hand_over(&request, self));
        request.then = handing.as_ref().map(|handing| Box::new(handing.request().clone()));
        request.if_alone = handing.as_ref().is_some_and(|handing| handing.keeps());
        let heard = queue.filter(|_| handing.is_none() || request.if_alone).and_then(|queue| queue.heard());
        let mut delivery = Delivery { core: self, queue, handing, name };
        let sent = self.runtime.now();
        let mut answer = self.call_by(way, self.settings.limit(lease), || via.release(request));
        let mut frees = queue;
        std::future::poll_fn(move |cx| {
            let answer = Pin::new(&mut answer).poll(cx);
            // The first poll has sent it: what waiters ask for from here on follows it.
            if let Some(queue) = frees.take() {
                queue.frees(claim, self.capabilities.push, sent);
            }
            let Poll::Ready(answer) = answer else { return Poll::Pending };
            let now = self.runtime.now();
            let released = delivery.deliver(answer.as_ref().ok(), now);
            if let (true, Some(queue)) = (released, queue) {
                if let Ok(Released { woke: Some(woke), held: true, .. }) = answer
                    && queue.woke(woke, heard, sent, self, &delivery.name)
                {
                    self.queues.remember(queue);
                }
                queue.left(owner, now);
            }
            Poll::Ready(answer)
        })
    }

    /// The keeper's side: until it is released for certain, or has ended by itself. Where a waker of the user's panics in it the lease ends it, and
    /// `close` does not wait for it for ever.
    pub(super) async fn carry_out(&self, via: &dyn Backend, undo: Undo) {
        let (name, owner) = (undo.release.name.clone(), undo.release.owner);
        let mut work = pin!(self.release_for_certain(via, undo));
        let panicked = || {
            log!(error, %name, %owner, "not released because of a panic in a waker; its lease ends it");
            Poll::Ready(())
        };
        std::future::poll_fn(|cx| caught(|| work.as_mut().poll(cx)).unwrap_or_else(panicked)).await;
        self.undoing.fetch_sub(1, Ordering::SeqCst);
        self.progress.notify_waiters();
        if self.stopping.load(Ordering::SeqCst) {
            self.keeper_wake.notify_one();
        }
    }

    async fn release_for_certain(&self, via: &dyn Backend, mut undo: Undo) {
        let began = self.runtime.now();
        // What lives in a session ends with that, whatever its lease.
        let session = self.capabilities.liveness.session();
        let lasts = session.map_or(undo.lease, |session| session.max(undo.lease));
        let mut trouble = Trouble::new(lasts + undo.settled_after.since(began));
        let (mut repeat, mut told) = (REPEAT, false);
        undo.release.settle |= !self.capabilities.refuses_late && undo.unanswered > 0;
        loop {
            let mut slot = Some(self.undo_slots.acquire().await);
            let sent_at = self.runtime.now();
            let settled = is_settled(undo.settled_after, || sent_at);
            let answer = {
                // Boxed: most of many undos wait for a slot.
                let queue = undo.queue.as_ref();
                let mut sent = Box::pin(self.send_release(Connection::Keeper, via, undo.release.clone(), undo.lease, queue));
                tokio::select! {
                    biased;
                    answer = &mut sent => answer,
                    () = self.runtime.sleep_until(sent_at.plus(SLOT_LASTS)) => {
                        slot = None;
                        sent.await
                    }
                }
            };
            drop(slot);
            let now = self.runtime.now();
            match answer {
                Ok(_) if settled => break,
                // After its answer nothing of this owner can be granted any more.
                Ok(_) if undo.release.settle => break,
                // The one request that got no answer had arrived.
                Ok(Released { held: true, .. }) if undo.unanswered == 1 => break,
                Ok(_) => {
                    undo.queue = None;
                    let crowded = self.undo_slots.available_permits() == 0;
                    let next = now.plus(if crowded { repeat.max(REPEAT_CROWDED) } else { repeat });
                    self.runtime.sleep_until(next.min(undo.settled_after.plus(SETTLE_MARGIN))).await;
                    repeat *= 2;
                }
                Err(error) => match trouble.again(error, now) {
                    Ok(pause) => self.runtime.sleep_until(now.plus(pause)).await,
                    // The keeper keeps the session alive, and with it what this client has there: only its own end ends that.
                    Err(error) if session.is_some() && !self.stopping.load(Ordering::SeqCst) => {
                        if !std::mem::replace(&mut told, true) {
                            log!(warn, name = %undo.release.name, owner = %undo.release.owner, %error, "not released yet; trying again");
                        }
                        self.runtime.sleep_until(now.plus(runtime::jitter(Trouble::LAST / 2, Trouble::LAST))).await;
                    }
                    Err(error) => {
                        log!(warn, name = %undo.release.name, owner = %undo.release.owner, %error, "not released; its lease ends it");
                        break;
                    }
                },
            }
        }
    }
}

/// What a release hands over, if it does. Dropped before the answer came, it tells the waiter that the outcome is unknown.
struct Delivery<'a> {
    core: &'a Core,
    queue: Option<&'a Arc<LocalQueue>>,
    handing: Option<Box<Handing>>,
    name: Name,
}

impl Delivery<'_> {
    /// Tells the waiter. Returns whether it was a release like any other: nothing was handed over, or the store did not keep the name because others
    /// wait.
    fn deliver(&mut self, released: Option<&Released>, now: Instant) -> bool {
        let Some(handing) = self.handing.take() else { return true };
        let (keeps, next) = (handing.keeps(), released.and_then(|released| released.next));
        let delivered = match released {
            // Without a word of the successor nothing is known, unless the store kept nothing.
            Some(_) if keeps || next.is_some() => Delivered::Answered(next),
            _ => Delivered::Unknown,
        };
        match (handing.deliver(delivered, now), self.queue) {
            // Granted to a waiter that has gone: released at once, or everybody would wait until its request counts as settled.
            (Some(Unclaimed::Unused(unused)), Some(queue)) => self.core.undo_unused(queue, &self.name, unused),
            (Some(Unclaimed::Stale(owner)), _) => self.core.lose_stale(owner),
            _ => {}
        }
        keeps && released.is_some() && !matches!(next, Some(Attempt::Granted(_)))
    }
}

impl Drop for Delivery<'_> {
    fn drop(&mut self) {
        if self.handing.is_some() {
            self.deliver(None, self.core.runtime.now());
        }
    }
}

/// What is not yet released when the caller goes away.
struct Rest<'a> {
    core: &'a Core,
    hold: Option<&'a Hold>,
    /// Ends after the undo is known: `close` must not miss it.
    _under_way: UnderWay<'a>,
}

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            self.core.undo(Undo::of(hold));
        }
    }
}
