//! The one way back: every release, from a guard, from `Drop` or from a cancelled acquire, goes through here.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use super::{Core, Grounds, Hold, Line, Trouble, lock};
use crate::backend::{Backend, Event, Kind, LossReason, Release, Released};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::Instant;

/// Something to give back, known to be held or only possibly so.
#[derive(Debug)]
pub(crate) struct Undo {
    pub(crate) release: Release,
    pub(crate) lease: Duration,
    /// Requests of this owner that got no answer may still arrive until then; so it is given back once more afterwards.
    pub(crate) settled_after: Instant,
    /// The local queue to hand it on to.
    pub(crate) line: Option<Arc<Line>>,
}

/// What is allowed for the store's clock to be behind when it judges `not_after`.
const SETTLE_MARGIN: Duration = Duration::from_millis(50);

/// So many lines are remembered for courtesy, which lasts a moment only.
const COURTEOUS: usize = 32;

impl Undo {
    fn of(hold: &Hold) -> Self {
        Self {
            release: hold.release_request(),
            lease: hold.grounds.lease,
            settled_after: hold.grounds.unsettled_until,
            line: hold.grounds.line.clone(),
        }
    }
}

/// Whether what may still arrive until then has arrived.
fn is_settled(settled_after: Instant, now: impl FnOnce() -> Instant) -> bool {
    settled_after == Instant::default() || now() >= settled_after.plus(SETTLE_MARGIN)
}

impl Core {
    /// Has the keeper give it back. Never blocks.
    pub(crate) fn undo(&self, undo: Undo) {
        if self.is_forked() {
            return;
        }
        self.undoing.fetch_add(1, Ordering::SeqCst);
        lock(&self.undos).push_back(undo);
        self.keeper_wake.notify_one();
    }

    pub(super) fn release_later(&self, hold: &Hold) {
        hold.end();
        self.undo(Undo::of(hold));
    }

    /// Gives it back where the caller runs; tells if it had been lost. When the store does not take it, or the caller goes away, the
    /// keeper goes on.
    pub(super) async fn release_now(&self, hold: &Hold) -> Result<Option<LossReason>> {
        let lost = hold.end();
        let mut rest = Rest { core: self, hold: Some(hold) };
        if lost.is_some() {
            return Ok(lost);
        }
        let Grounds { lease, line, unsettled_until, .. } = &hold.grounds;
        let released = match self.give_back(&*self.backend, hold.release_request(), *lease, line.as_ref()).await {
            Ok(released) => released,
            Err(error) => Box::pin(self.release_again(hold, error)).await?,
        };
        if is_settled(*unsettled_until, || self.runtime.now()) {
            rest.hold = None;
        }
        if released.held {
            return Ok(None);
        }
        let reason = LossReason::Gone;
        let Release { name, claim, owner, .. } = hold.release_request();
        self.backend.note(&Event::Lost { name: &name, claim, owner, reason });
        Ok(Some(reason))
    }

    /// Goes on after `error`. Not held any more counts as released by us if an earlier request may have arrived.
    async fn release_again(&self, hold: &Hold, mut error: Error) -> Result<Released> {
        let Grounds { lease, line, .. } = &hold.grounds;
        let mut trouble = Trouble::new(self.settings.command_timeout);
        let mut maybe_done = false;
        loop {
            maybe_done |= error.kind() == ErrorKind::Indeterminate;
            let now = self.runtime.now();
            let pause = trouble.again(error, now)?;
            self.runtime.sleep_until(now.plus(pause)).await;
            match self.give_back(&*self.backend, hold.release_request(), *lease, line.as_ref()).await {
                Ok(released) => return Ok(Released { held: released.held || maybe_done, ..released }),
                Err(next) => error = next,
            }
        }
    }

    /// One request: release, and hand on to the next of this process if one waits.
    ///
    /// Written out as a future, because callers carry it about: it is half of what an `async fn` makes of it.
    fn give_back<'a>(
        &'a self,
        via: &'a dyn Backend,
        mut request: Release,
        lease: Duration,
        line: Option<&'a Arc<Line>>,
    ) -> impl Future<Output = Result<Released>> + Send + 'a {
        let owner = request.owner;
        let mut handing = line.filter(|_| request.claim.kind() == Kind::Mutex).and_then(|line| line.hand_over(&request, self));
        request.then = handing.as_ref().map(|handing| Box::new(handing.request().clone()));
        let sent = self.runtime.now();
        let mut answer = self.call(self.settings.limit(lease), via.release(request));
        std::future::poll_fn(move |cx| {
            let Poll::Ready(answer) = Pin::new(&mut answer).poll(cx) else { return Poll::Pending };
            if let Some(handing) = handing.take() {
                handing.deliver(answer.as_ref().ok().and_then(|released| released.next));
            } else if let Some(line) = line {
                if let Ok(Released { woke: Some(woke @ 1..), .. }) = answer {
                    self.stay_courteous(line, woke, sent);
                }
                line.left(owner);
            }
            Poll::Ready(answer)
        })
    }

    /// A release woke so many listeners: lets others go first, also if no handle for the name is left.
    fn stay_courteous(&self, line: &Arc<Line>, woke: u32, sent: Instant) {
        if !line.woke(woke, sent, self.runtime.now()) {
            return;
        }
        let mut kept = lock(&self.courteous);
        if !kept.back().is_some_and(|last| Arc::ptr_eq(last, line)) {
            kept.push_back(Arc::clone(line));
            if kept.len() > COURTEOUS {
                kept.pop_front();
            }
        }
    }

    /// The keeper's side: until it is given back for certain, or has ended by itself.
    pub(super) async fn carry_out(&self, via: &dyn Backend, mut undo: Undo) {
        let began = self.runtime.now();
        let mut trouble = Trouble::new(undo.lease + undo.settled_after.since(began));
        loop {
            let answer = self.give_back(via, undo.release.clone(), undo.lease, undo.line.as_ref()).await;
            let now = self.runtime.now();
            match answer {
                Ok(_) if is_settled(undo.settled_after, || now) => break,
                Ok(_) => {
                    undo.line = None;
                    self.runtime.sleep_until(undo.settled_after.plus(SETTLE_MARGIN)).await;
                }
                Err(error) => match trouble.again(error, now) {
                    Ok(pause) => self.runtime.sleep_until(now.plus(pause)).await,
                    Err(error) => {
                        tracing::warn!(name = %undo.release.name, owner = %undo.release.owner, %error, "not released; its lease ends it");
                        break;
                    }
                },
            }
        }
        self.undoing.fetch_sub(1, Ordering::SeqCst);
        self.progress.notify_waiters();
        if self.stopping.load(Ordering::SeqCst) {
            self.keeper_wake.notify_one();
        }
    }
}

/// What is not yet given back when the caller goes away.
struct Rest<'a> {
    core: &'a Core,
    hold: Option<&'a Hold>,
}

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            self.core.undo(Undo::of(hold));
        }
    }
}
