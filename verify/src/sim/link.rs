//! The network between one client and the store: messages are delayed, lost, doubled and reordered as a seed says, and cut in one direction or
//! in both. A message under way is carried out although its sender has gone. Each side has its own clock: points in time are translated by
//! an offset that the client measures with every answer, as a client of a real server does.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockkeeper::backend::{
    Acquire, Attempt, AttemptAll, Backend, Capabilities, Claim, Count, CountOutcome, Notifier, Release, Released, Renew, Renewed,
    Reply, StoreEvents, Subscription, Watch,
};
use lockkeeper::layer::Layer;
use lockkeeper::runtime::{Instant, World as _};
use lockkeeper::{Result, WireOwner};
use tokio::sync::oneshot;

use super::trace::Trace;
use super::world::Node;
use crate::history::{Side, What};

/// How likely faults are, in percent, and how long messages take at most.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) lose_request: u8,
    pub(super) lose_answer: u8,
    pub(super) double: u8,
    pub(super) lose_notification: u8,
    /// In microseconds.
    pub(super) delay: u64,
}

/// How long a fault may keep things from being as promised: a command timeout, and a place in a queue.
pub(super) const DISTURBANCE: u64 = 9_000_000_000;

/// What all links of a history share.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) trace: Trace,
    pub(super) calm: AtomicBool,
    pub(super) clients: u32,
    pub(super) seed: u64,
    pub(super) subscriptions: AtomicU64,
    /// The machine that the store runs on.
    pub(super) server: Node,
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

/// What is wrong on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flaw {
    /// Nothing.
    #[default]
    None,
    /// Every renewal is answered "kept", whatever the store says.
    RenewalsAlwaysKept,
    /// A release frees the name for whoever holds it.
    ReleaseIgnoresOwner,
    /// Each grant has a smaller token than the one before.
    TokensGoBack,
    /// A grant counts twice, and needs two releases.
    GrantsAreCounted,
}

/// One client's way to the store.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) network: Arc<Network>,
    pub(super) faults: Faults,
    pub(super) chance: Arc<Mutex<fastrand::Rng>>,
    /// The machine that the client runs on.
    pub(super) node: Node,
    pub(super) line: Arc<Line>,
}

/// The state of a client's connection.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// The client has crashed: nothing passes any more.
    pub(super) dead: AtomicBool,
    /// Requests, or answers, do not pass for now.
    pub(super) requests_cut: AtomicBool,
    pub(super) answers_cut: AtomicBool,
    /// How far the store's clock is ahead of the client's, in nanoseconds: at least.
    offset: AtomicI64,
}

impl Line {
    /// A connection whose first answer took `delay`.
    pub(super) fn new(client: Instant, server: Instant, delay: Duration) -> Self {
        let line = Self::default();
        line.measured(server, client, client.plus(delay));
        line
    }

    /// A value that the answer allows stays: a slow answer tells less, not that the clock was set.
    fn measured(&self, server: Instant, sent: Instant, heard: Instant) {
        let signed = |at: Instant| i64::try_from(at.as_nanos()).unwrap_or(i64::MAX);
        let (least, most) = (signed(server) - signed(heard), signed(server) - signed(sent));
        if !(least..=most).contains(&self.offset.load(Ordering::Relaxed)) {
            self.offset.store(least, Ordering::Relaxed);
        }
    }

    /// A point in time of the client, on the store's clock.
    fn translated(&self, at: Instant) -> Instant {
        if at == Instant::NEVER {
            return at;
        }
        Instant::from_nanos(at.as_nanos().saturating_add_signed(self.offset.load(Ordering::Relaxed)))
    }
}

/// What happens to one message and its answer.
struct Fate {
    there: Duration,
    back: Duration,
    request_lost: bool,
    answer_lost: bool,
    copy_after: Option<Duration>,
}

fn side(claim: Claim) -> Side {
    match claim {
        Claim::Read => Side::Shared,
        Claim::Permits { take, of } => Side::Permits { take, of },
        _ => Side::Exclusive,
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Link {
    fn fate(&self) -> Fate {
        let mut chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner);
        let calm = self.network.calm.load(Ordering::Relaxed);
        let mut hit = |percent: u8| chance.u8(0..100) < percent && !calm;
        let (request_lost, answer_lost) = (hit(self.faults.lose_request), hit(self.faults.lose_answer));
        let doubled = hit(self.faults.double);
        let mut time = || Duration::from_micros(chance.u64(0..=if calm { 1_000 } else { self.faults.delay }));
        let (there, back) = (time(), time());
        let copy_after = doubled.then(&mut time);
        if request_lost || answer_lost || doubled {
            for client in 0..self.network.clients {
                self.network.trace.add(client, What::Disturbed { lasts: DISTURBANCE });
            }
        }
        let request_lost =
            request_lost || self.line.dead.load(Ordering::Relaxed) || self.line.requests_cut.load(Ordering::Relaxed);
        Fate { there, back, request_lost, answer_lost, copy_after }
    }

    /// Carries a message to the store and its answer back; `arrive` is what the store does, `answered` notes what the client is told.
    fn carry<'a, T: Send + 'static>(
        &'a self,
        arrive: impl Fn(Self) -> Reply<'static, T> + Send + Sync + 'static,
        answered: impl Fn(&Self, &T, u64) + Send + 'a,
    ) -> Reply<'a, T> {
        let fate = self.fate();
        let (sent, sent_at) = (self.network.trace.now(), self.node.now());
        let (sender, receiver) = oneshot::channel();
        if !fate.request_lost {
            let link = self.clone();
            self.network.server.start(async move {
                let server = &link.network.server;
                server.sleep(fate.there).await;
                let answer = (arrive(link.clone()).await, server.now());
                if let Some(after) = fate.copy_after {
                    server.sleep(after).await;
                    // Nobody waits for the answer to a copy.
                    drop(arrive(link.clone()).await);
                }
                server.sleep(fate.back).await;
                let line = &link.line;
                if !fate.answer_lost && !line.dead.load(Ordering::Relaxed) && !line.answers_cut.load(Ordering::Relaxed) {
                    // The caller may have gone.
                    drop(sender.send(answer));
                }
            });
        }
        Box::pin(async move {
            let Ok((answer, server)) = receiver.await else { return std::future::pending().await };
            self.line.measured(server, sent_at, self.node.now());
            if let Ok(answer) = &answer {
                answered(self, answer, sent);
            }
            answer
        })
    }

    /// The same request on the store's clock.
    fn translated(&self, request: &Acquire) -> Acquire {
        let (since, not_after) = (self.line.translated(request.since), self.line.translated(request.not_after));
        request.clone().with_times(since, not_after)
    }

    fn note_held(&self, request: &Acquire, attempt: Attempt) {
        let Attempt::Granted(grant) = attempt else { return };
        let (client, owner) = self.network.trace.owner(request.owner);
        let (name, lease, clock) = (request.name.as_str().to_owned(), nanos(request.lease), Some(self.network.trace.clock()));
        self.network.trace.add(client, What::Held { name, owner, side: side(request.claim), token: grant.token, lease, clock });
    }

    async fn acquire_there(self, request: Acquire) -> Result<Attempt> {
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
        let request = self.translated(&request);
        let (name, owner, lease) = (request.name.clone(), request.owner, nanos(request.lease));
        self.carry(
            move |link| Box::pin(link.acquire_there(request.clone())),
            move |link, attempt, sent| {
                if let Attempt::Granted(_) = attempt {
                    link.network.trace.answered(name.as_str(), owner, sent, lease);
                }
            },
        )
    }

    fn acquire_all(&self, requests: Vec<Acquire>) -> Reply<'_, AttemptAll> {
        let requests: Vec<Acquire> = requests.iter().map(|request| self.translated(request)).collect();
        let asked = requests.clone();
        self.carry(
            move |link| Box::pin(link.acquire_all_there(requests.clone())),
            move |link, attempt, sent| {
                if let AttemptAll::Granted(_) = attempt {
                    for Acquire { name, owner, lease, .. } in &asked {
                        link.network.trace.answered(name.as_str(), *owner, sent, nanos(*lease));
                    }
                }
            },
        )
    }

    fn count(&self, request: Count) -> Reply<'_, CountOutcome> {
        let not_after = self.line.translated(request.not_after);
        let request = request.with_not_after(not_after);
        let carried = move |link: Self| -> Reply<'static, CountOutcome> {
            let request = request.clone();
            Box::pin(async move { link.network.store.count(request).await })
        };
        self.carry(carried, |_, _, _| {})
    }

    fn release(&self, mut request: Release) -> Reply<'_, Released> {
        request.then = request.then.map(|then| Box::new(self.translated(&then)));
        let then = request.then.as_ref().map(|then| (then.name.clone(), then.owner, nanos(then.lease)));
        self.carry(
            move |link| Box::pin(link.release_there(request.clone())),
            move |link, released, sent| {
                if let (Some((name, owner, lease)), Some(Attempt::Granted(_))) = (&then, released.next) {
                    link.network.trace.answered(name.as_str(), *owner, sent, *lease);
                }
            },
        )
    }

    fn renew(&self, requests: Vec<Renew>) -> Reply<'_, Vec<Result<Renewed>>> {
        let asked = requests.clone();
        self.carry(
            move |link| Box::pin(link.renew_there(requests.clone())),
            move |link, answers, sent| {
                for (request, answer) in asked.iter().zip(answers) {
                    if let (Ok(Renewed::Kept { .. }), Some(lease)) = (answer, request.lease) {
                        link.network.trace.answered(request.name.as_str(), request.owner, sent, nanos(lease));
                    }
                }
            },
        )
    }

    fn watch(&self, watch: Watch) -> Reply<'_, Subscription> {
        let network = Arc::clone(&self.network);
        let number = network.subscriptions.fetch_add(1, Ordering::Relaxed);
        let alone = watch.own_place().is_some();
        let faults = self.faults;
        let line = Arc::clone(&self.line);
        Box::pin(async move {
            let below = network.store.watch(watch).await?;
            let notifier = Notifier::default();
            let (ends, mut ended) = oneshot::channel::<()>();
            let forward = notifier.clone();
            let mut chance = fastrand::Rng::with_seed(network.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let server = network.server.clone();
            network.server.clone().start(async move {
                loop {
                    tokio::select! {
                        biased;
                        _ = &mut ended => return,
                        () = below.notified() => {}
                    }
                    let calm = network.calm.load(Ordering::Relaxed);
                    let delay = chance.u64(0..=if calm { 1_000 } else { faults.delay });
                    server.sleep(Duration::from_micros(delay)).await;
                    let lost = chance.u8(0..100) < faults.lose_notification && !calm;
                    let gone = line.dead.load(Ordering::Relaxed) || line.answers_cut.load(Ordering::Relaxed);
                    if !lost && !gone {
                        forward.notify();
                    }
                }
            });
            let subscription = Subscription::new(&notifier, ends);
            Ok(if alone { subscription.only_for_owner() } else { subscription })
        })
    }
}
