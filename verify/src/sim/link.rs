//! The network between one client and one store: a layer that sends every request over a [`Wire`] and records what the store did.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockkeeper::backend::{
    Acquire, Attempt, AttemptAll, Backend, Capabilities, Claim, Count, CountOutcome, Release, Released, Renew, Renewed, Reply,
    StoreEvents, Subscription, Watch,
};
use lockkeeper::layer::Layer;
use lockkeeper::referee::{Side, What};
use lockkeeper::runtime::World as _;
use lockkeeper::{Result, WireOwner};

use super::Flaw;
use super::trace::Trace;
use super::wire::Wire;

/// What all links of a history share.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) trace: Trace,
    pub(super) store: Arc<dyn Backend>,
    /// Whether the store tells of deleted holds by itself.
    pub(super) events: bool,
    /// What is wrong on purpose.
    pub(super) flaw: Flaw,
    /// How often the store granted to an owner, for the flaw that counts it.
    pub(super) grants: Mutex<HashMap<WireOwner, u32>>,
}

impl Network {
    fn grants(&self) -> MutexGuard<'_, HashMap<WireOwner, u32>> {
        self.grants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One client's way to the store.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) network: Arc<Network>,
    pub(super) wire: Wire,
}

pub(super) fn side(claim: Claim) -> Side {
    match claim {
        Claim::Read => Side::Shared,
        Claim::Permits { take, of } => Side::Permits { take, of },
        _ => Side::Exclusive,
    }
}

pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Link {
    fn note_held(&self, request: &Acquire, attempt: Attempt) {
        let Attempt::Granted(grant) = attempt else { return };
        let (client, owner) = self.network.trace.owner(request.owner);
        let (name, lease, clock) = (request.name.as_str().to_owned(), nanos(request.lease), Some(self.wire.server.wall_micros()));
        if let (Some(token), Some(clock)) = (grant.token, clock) {
            // The last one of those that the store reserved for the hold.
            let token = token.saturating_add(grant.spare_tokens.into());
            self.network.trace.add(client, What::Token { name: name.clone(), token, clock });
        }
        self.network.trace.add(client, What::Held { name, owner, side: side(request.claim), token: grant.token, lease, clock });
    }

    async fn acquire_there(self, request: Acquire) -> Result<Attempt> {
        self.network.trace.beside(&request);
        let mut attempt = self.network.store.acquire(request.clone()).await?;
        if let (Flaw::TokensGoBack, Attempt::Granted(grant)) = (self.network.flaw, &mut attempt) {
            grant.token = grant.token.map(|token| 3_400_000_000_000_000 - token);
        }
        if let Attempt::Granted(_) = attempt {
            *self.network.grants().entry(request.owner).or_default() += 2;
        }
        self.note_held(&request, attempt);
        Ok(attempt)
    }

    async fn acquire_all_there(self, requests: Vec<Acquire>) -> Result<AttemptAll> {
        let attempt = self.network.store.acquire_all(requests.clone()).await?;
        if let AttemptAll::Granted(grants) = &attempt {
            for (request, grant) in requests.iter().zip(grants) {
                self.note_held(request, Attempt::Granted(*grant));
            }
        }
        Ok(attempt)
    }

    async fn release_there(self, request: Release) -> Result<Released> {
        let granted = self.network.grants().remove(&request.owner).unwrap_or_default();
        if self.network.flaw == Flaw::GrantsAreCounted && granted > 1 {
            self.network.grants().insert(request.owner, granted - 1);
            return Ok(Released::new(true));
        }
        if self.network.flaw == Flaw::ReleaseIgnoresOwner {
            self.network.store.force_release(request.name.clone()).await?;
        }
        let released = self.network.store.release(request.clone()).await?;
        if released.held {
            let (client, owner) = self.network.trace.owner(request.owner);
            let name = request.name.as_str().to_owned();
            self.network.trace.add(client, What::Freed { name, owner, forced: false });
        }
        if let (Some(then), Some(next)) = (&request.then, released.next) {
            self.note_held(then, next);
        }
        Ok(released)
    }

    async fn count_there(self, mut request: Count) -> Result<CountOutcome> {
        if self.network.flaw == Flaw::CopiesCount {
            request.id.number = self.wire.node.random();
        }
        let name = request.name.clone();
        let answer = self.network.store.count(request).await;
        // A repetition is answered as the first time, so the answer does not tell what the number is.
        let found = self.network.store.inspect(name.clone()).await?;
        let value = found.and_then(|found| found.value).unwrap_or(0);
        self.network.trace.add(0, What::Number { name: name.as_str().to_owned(), value });
        answer
    }

    async fn renew_there(self, requests: Vec<Renew>) -> Result<Vec<Result<Renewed>>> {
        let mut answers = self.network.store.renew(requests.clone()).await?;
        for (request, answer) in requests.iter().zip(&mut answers) {
            if let (Ok(Renewed::Kept { .. }), Some(lease)) = (&answer, request.lease) {
                let (client, owner) = self.network.trace.owner(request.owner);
                let name = request.name.as_str().to_owned();
                let what = What::Held { name, owner, side: side(request.claim), token: None, lease: nanos(lease), clock: None };
                self.network.trace.add(client, what);
            }
            if self.network.flaw == Flaw::RenewalsAlwaysKept {
                *answer = Ok(Renewed::kept(request.lease));
            }
        }
        Ok(answers)
    }
}

impl Layer for Link {
    fn inner(&self) -> &Arc<dyn Backend> {
        &self.network.store
    }

    fn over(&self, _inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(self.clone())
    }

    fn capabilities(&self) -> Capabilities {
        let mut can = self.network.store.capabilities();
        (can.events, can.pushed_grants) = (self.network.events, false);
        can
    }

    fn events(&self) -> StoreEvents {
        if self.network.events { self.network.store.events() } else { StoreEvents::none() }
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        let request = self.wire.translated(&request);
        let (name, owner, lease) = (request.name.clone(), request.owner, nanos(request.lease));
        let (link, trace) = (self.clone(), &self.network.trace);
        self.wire.carry(
            move || Box::pin(link.clone().acquire_there(request.clone())),
            move |attempt, sent| {
                if let Attempt::Granted(grant) = attempt {
                    trace.answered(name.as_str(), owner, grant.token, sent, lease);
                }
            },
        )
    }

    fn acquire_all(&self, requests: Vec<Acquire>) -> Reply<'_, AttemptAll> {
        let requests: Vec<Acquire> = requests.iter().map(|request| self.wire.translated(request)).collect();
        let asked = requests.clone();
        let (link, trace) = (self.clone(), &self.network.trace);
        self.wire.carry(
            move || Box::pin(link.clone().acquire_all_there(requests.clone())),
            move |attempt, sent| {
                if let AttemptAll::Granted(grants) = attempt {
                    for (Acquire { name, owner, lease, .. }, grant) in asked.iter().zip(grants) {
                        trace.answered(name.as_str(), *owner, grant.token, sent, nanos(*lease));
                    }
                }
            },
        )
    }

    fn count(&self, request: Count) -> Reply<'_, CountOutcome> {
        let not_after = self.wire.line.translated(request.not_after);
        let request = request.with_not_after(not_after);
        let link = self.clone();
        self.wire.carry(move || Box::pin(link.clone().count_there(request.clone())), |_, _| {})
    }

    fn release(&self, mut request: Release) -> Reply<'_, Released> {
        request.then = request.then.map(|then| Box::new(self.wire.translated(&then)));
        let then = request.then.as_ref().map(|then| (then.name.clone(), then.owner, nanos(then.lease)));
        let (link, trace) = (self.clone(), &self.network.trace);
        self.wire.carry(
            move || Box::pin(link.clone().release_there(request.clone())),
            move |released, sent| {
                if let (Some((name, owner, lease)), Some(Attempt::Granted(grant))) = (&then, released.next) {
                    trace.answered(name.as_str(), *owner, grant.token, sent, *lease);
                }
            },
        )
    }

    fn renew(&self, requests: Vec<Renew>) -> Reply<'_, Vec<Result<Renewed>>> {
        let asked = requests.clone();
        let (link, trace) = (self.clone(), &self.network.trace);
        self.wire.carry(
            move || Box::pin(link.clone().renew_there(requests.clone())),
            move |answers, sent| {
                for (request, answer) in asked.iter().zip(answers) {
                    if let (Ok(Renewed::Kept { .. }), Some(lease)) = (answer, request.lease) {
                        trace.answered(request.name.as_str(), request.owner, None, sent, nanos(lease));
                    }
                }
            },
        )
    }

    fn watch(&self, watch: Watch) -> Reply<'_, Subscription> {
        self.wire.watch(&self.network.store, watch)
    }
}
