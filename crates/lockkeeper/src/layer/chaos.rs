//! Faults on purpose, between the client and a store: lost requests, lost answers, slow ones, errors. For tests.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::Layer;
use crate::backend::{
    Acquire, Attempt, AttemptAll, Backend, Count, CountOutcome, Forced, KeptAlive, Release, Released, Renew, Renewed, Reply,
    Subscription, Watch,
};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    Pass,
    /// It never arrives, and that is known.
    Refuse,
    /// It never arrives, and nobody knows.
    LoseRequest,
    /// It is carried out, and the answer never comes.
    LoseReply,
    /// It is carried out, and an error that leaves the outcome open is told at once.
    BreakReply,
}

/// Which requests a fault concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as the methods are")]
pub enum Faulty {
    Acquire,
    Release,
    Renew,
    Count,
    Watch,
    ForceRelease,
}

/// Injects faults into what passes. Requests on the keeper's connection get the same faults.
#[derive(Clone)]
pub struct Chaos {
    inner: Arc<dyn Backend>,
    plan: Arc<Mutex<Plan>>,
}

#[derive(Default)]
struct Plan {
    next: VecDeque<(Faulty, Fault)>,
    always: Vec<(Faulty, Fault)>,
    /// How often every request yields before and after it is carried out.
    yields: usize,
    /// Notifications are lost.
    muted: bool,
    carried_out: Vec<Faulty>,
}

impl Chaos {
    /// Passes everything to `inner` until told otherwise.
    #[must_use]
    pub fn new(inner: Arc<dyn Backend>) -> Self {
        Self { inner, plan: Arc::default() }
    }

    /// The next request of this sort that has no earlier plan meets `fault`.
    pub fn next(&self, which: Faulty, fault: Fault) {
        self.plan().next.push_back((which, fault));
    }

    /// Every request of this sort meets `fault`, until [`Chaos::calm`].
    pub fn always(&self, which: Faulty, fault: Fault) {
        self.plan().always.push((which, fault));
    }

    /// No more faults.
    pub fn calm(&self) {
        let mut plan = self.plan();
        plan.next.clear();
        plan.always.clear();
        plan.muted = false;
    }

    /// Loses every notification of subscriptions that begin before [`Chaos::calm`].
    pub fn mute(&self) {
        self.plan().muted = true;
    }

    /// Every request yields this often before and after it is carried out: so many points to be cancelled at.
    pub fn yielding(&self, times: usize) {
        self.plan().yields = times;
    }

    /// How many requests of this sort were carried out.
    #[must_use]
    pub fn carried_out(&self, which: Faulty) -> usize {
        self.plan().carried_out.iter().filter(|done| **done == which).count()
    }

    fn plan(&self) -> std::sync::MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fate(&self, which: Faulty) -> (Fault, usize) {
        let mut plan = self.plan();
        let planned = plan.next.iter().position(|(concerned, _)| *concerned == which);
        let fault = match planned.and_then(|at| plan.next.remove(at)) {
            Some((_, fault)) => fault,
            None => plan.always.iter().find(|(concerned, _)| *concerned == which).map_or(Fault::Pass, |(_, fault)| *fault),
        };
        (fault, plan.yields)
    }

    fn disturbed<'a, T: Send + 'a>(&'a self, which: Faulty, reply: Reply<'a, T>) -> Reply<'a, T> {
        let (fault, yields) = self.fate(which);
        Box::pin(async move {
            for _ in 0..yields {
                tokio::task::yield_now().await;
            }
            match fault {
                Fault::Refuse => return Err(Error::new(ErrorKind::Unavailable, "refused on purpose")),
                Fault::LoseRequest => return std::future::pending().await,
                Fault::Pass | Fault::LoseReply | Fault::BreakReply => {}
            }
            let answer = reply.await;
            self.plan().carried_out.push(which);
            for _ in 0..yields {
                tokio::task::yield_now().await;
            }
            match fault {
                Fault::LoseReply => std::future::pending().await,
                Fault::BreakReply => Err(Error::new(ErrorKind::Indeterminate, "the answer was broken on purpose")),
                _ => answer,
            }
        })
    }
}

impl Layer for Chaos {
    fn inner(&self) -> &Arc<dyn Backend> {
        &self.inner
    }

    fn over(&self, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(Self { inner, plan: Arc::clone(&self.plan) })
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        self.disturbed(Faulty::Acquire, self.inner.acquire(request))
    }

    fn acquire_all(&self, requests: Vec<Acquire>) -> Reply<'_, AttemptAll> {
        self.disturbed(Faulty::Acquire, self.inner.acquire_all(requests))
    }

    fn release(&self, request: Release) -> Reply<'_, Released> {
        self.disturbed(Faulty::Release, self.inner.release(request))
    }

    fn renew(&self, requests: Vec<Renew>) -> Reply<'_, Vec<Result<Renewed>>> {
        self.disturbed(Faulty::Renew, self.inner.renew(requests))
    }

    fn keep_alive(&self) -> Reply<'_, KeptAlive> {
        self.disturbed(Faulty::Renew, self.inner.keep_alive())
    }

    fn count(&self, request: Count) -> Reply<'_, CountOutcome> {
        self.disturbed(Faulty::Count, self.inner.count(request))
    }

    fn watch(&self, watch: Watch) -> Reply<'_, Subscription> {
        if self.plan().muted {
            return self.disturbed(Faulty::Watch, Box::pin(async { Ok(Subscription::silent()) }));
        }
        self.disturbed(Faulty::Watch, self.inner.watch(watch))
    }

    fn force_release(&self, name: Name) -> Reply<'_, Forced> {
        self.disturbed(Faulty::ForceRelease, self.inner.force_release(name))
    }
}

impl fmt::Debug for Chaos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Chaos").field(&self.inner).finish()
    }
}
