//! Clients broken on purpose, each in one way, for the negative controls: a layer between the client and the real store.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use lockkeeper::Result;
use lockkeeper::backend::{
    Acquire, Attempt, Backend, Busy, Grant, Notifier, Register, Release, Released, Renew, Renewed, Reply, Subscription, Watch,
};
use lockkeeper::layer::Layer;
use lockkeeper::name::Name;
use lockkeeper::owner::WireOwner;
use lockkeeper::runtime::Instant;
use redis::Commands as _;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// A release frees the name, whoever holds it.
    NoOwnerCheckOnRelease,
    /// An acquire that is sent again is another one.
    AcquireIsNotIdempotent,
    /// Tokens come from a counter that the server may forget.
    PlainCounterToken,
    /// What the store says about a hold that is gone is not heard.
    RenewalRefusalIgnored,
    /// Who waits asks only when it was notified.
    NoPollFallback,
    /// A request is good for ever.
    NoNotAfter,
    /// All acquisitions of a client are by one owner.
    OneWireOwner,
    /// Nothing follows the request of a call that was cancelled.
    NoReleaseBehind,
    /// Renewals do not say until when the hold is counted on.
    NoReach,
    /// Waiters do not register, so a release wakes all.
    NeverRegisters,
    /// A mutex that was released is kept for the first waiter, however long it does not come.
    KeepsForFirst,
    /// Those that wait for a mutex are registered for ever.
    RegistersForEver,
}

/// A store behind the flaw.
pub(crate) struct Flawed {
    store: Arc<dyn Backend>,
    flaw: Flaw,
    url: String,
    /// How often each owner asked since it was last notified.
    asked: Arc<Mutex<HashMap<WireOwner, usize>>>,
}

impl Flawed {
    pub(crate) fn new(store: Arc<dyn Backend>, flaw: Flaw, url: String) -> Self {
        Self { store, flaw, url, asked: Arc::default() }
    }

    fn owner(&self, owner: WireOwner) -> WireOwner {
        if self.flaw == Flaw::OneWireOwner { WireOwner::new(owner.client, 1) } else { owner }
    }

    fn asked_again(&self, owner: WireOwner) -> usize {
        let mut all = self.asked.lock().unwrap();
        let asked = all.entry(owner).or_default();
        *asked += 1;
        *asked
    }

    /// The client that goes first.
    fn kept_for(&self, name: &Name) -> Option<String> {
        crate::site::plain_connection(&self.url).get(kept_for(name)).unwrap()
    }

    /// The first that waits goes first.
    fn keep_for_first(&self, name: &Name) {
        let mut connection = crate::site::plain_connection(&self.url);
        let first: Vec<String> = connection.zrange(waiting(name), 0, 0).unwrap();
        if let Some(first) = first.first() {
            connection.set::<_, _, ()>(kept_for(name), first).unwrap();
        }
    }

    async fn acquire_wrongly(&self, mut request: Acquire) -> Result<Attempt> {
        request.owner = self.owner(request.owner);
        match self.flaw {
            Flaw::AcquireIsNotIdempotent if self.asked_again(request.owner) > 1 => request.owner.number = fresh_number(),
            Flaw::NoNotAfter => request.not_after = Instant::NEVER,
            Flaw::NeverRegisters => request.register = Register::No,
            Flaw::KeepsForFirst
                if self.kept_for(&request.name).is_some_and(|first| first != request.owner.client.to_string()) =>
            {
                return Ok(Attempt::Busy(Busy::default()));
            }
            // Once to find it busy, and once more when it listens.
            Flaw::NoPollFallback if self.asked_again(request.owner) > 2 => return std::future::pending().await,
            _ => {}
        }
        let (good_for, name) = (request.lease, request.name.clone());
        let attempt = self.store.acquire(request).await?;
        if self.flaw == Flaw::RegistersForEver {
            let _: bool = crate::site::plain_connection(&self.url).persist(waiting(&name)).unwrap();
        }
        if self.flaw == Flaw::PlainCounterToken && matches!(attempt, Attempt::Granted(_)) {
            let token = redis::cmd("INCR").arg("plain-counter").query(&mut crate::site::plain_connection(&self.url)).unwrap();
            return Ok(Attempt::Granted(Grant::new(Some(token), good_for)));
        }
        Ok(attempt)
    }
}

/// The clients that wait for a mutex.
fn waiting(name: &Name) -> String {
    format!("lockkeeper:waiting:{{{name}}}")
}

fn kept_for(name: &Name) -> String {
    format!("kept-for:{name}")
}

/// The number of an owner that never was.
fn fresh_number() -> u64 {
    static LAST: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1 << 32);
    LAST.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

/// Ends a task when dropped.
struct Ending(tokio::task::JoinHandle<()>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Layer for Flawed {
    fn inner(&self) -> &Arc<dyn Backend> {
        &self.store
    }

    fn over(&self, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(Self { store: inner, flaw: self.flaw, url: self.url.clone(), asked: Arc::clone(&self.asked) })
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        Box::pin(self.acquire_wrongly(request))
    }

    fn release(&self, mut request: Release) -> Reply<'_, Released> {
        request.owner = self.owner(request.owner);
        Box::pin(async move {
            if self.flaw == Flaw::NoOwnerCheckOnRelease {
                let forced = self.store.force_release(request.name).await?;
                return Ok(Released::new(!forced.from.is_empty()).with_woke(0));
            }
            if self.flaw == Flaw::KeepsForFirst {
                self.keep_for_first(&request.name);
            }
            self.store.release(request).await
        })
    }

    fn release_behind(&self, request: &Release) {
        if self.flaw != Flaw::NoReleaseBehind {
            self.store.release_behind(request);
        }
    }

    fn renew(&self, mut requests: Vec<Renew>) -> Reply<'_, Vec<Result<Renewed>>> {
        requests.iter_mut().for_each(|request| request.owner = self.owner(request.owner));
        Box::pin(async move {
            if self.flaw == Flaw::NoReach {
                requests.iter_mut().for_each(|request| request.reach = None);
            }
            let mut answers = self.store.renew(requests).await?;
            if self.flaw == Flaw::RenewalRefusalIgnored {
                answers.iter_mut().for_each(|answer| *answer = Ok(Renewed::kept(Some(std::time::Duration::from_secs(30)))));
            }
            Ok(answers)
        })
    }

    fn watch(&self, watch: Watch) -> Reply<'_, Subscription> {
        Box::pin(async move {
            let subscription = self.store.watch(watch).await?;
            let (notifier, asked) = (Notifier::default(), Arc::clone(&self.asked));
            let ours = notifier.clone();
            let passing_on = tokio::spawn(async move {
                loop {
                    subscription.notified().await;
                    asked.lock().unwrap().clear();
                    ours.notify();
                }
            });
            Ok(Subscription::new(&notifier, Ending(passing_on)))
        })
    }
}

impl fmt::Debug for Flawed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flawed({:?})", self.flaw)
    }
}
