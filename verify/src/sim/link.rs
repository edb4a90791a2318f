//! The network between one client and the store: messages are delayed, lost, doubled and reordered as a seed says. A message under way is
//! carried out although its sender has gone.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockkeeper::Result;
use lockkeeper::backend::{
    Acquire, Attempt, AttemptAll, Backend, Claim, Notifier, Release, Released, Renew, Renewed, Reply, Subscription, Watch,
};
use lockkeeper::layer::Layer;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::trace::Trace;
use crate::history::{Side, What};

/// How likely faults are, in percent, and how long messages take at most, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) lose_request: u8,
    pub(super) lose_answer: u8,
    pub(super) double: u8,
    pub(super) lose_notification: u8,
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
    pub(super) store: Arc<dyn Backend>,
    /// What is wrong on purpose.
    pub(super) flaw: Flaw,
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
}

/// One client's way to the store.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) client: u32,
    pub(super) network: Arc<Network>,
    pub(super) faults: Faults,
    pub(super) chance: Arc<Mutex<fastrand::Rng>>,
    /// The client has crashed: nothing passes any more.
    pub(super) dead: Arc<AtomicBool>,
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
        let mut time = || Duration::from_millis(chance.u64(0..=if calm { 1 } else { self.faults.delay }));
        let (there, back) = (time(), time());
        let copy_after = doubled.then(&mut time);
        if request_lost || answer_lost || doubled {
            for client in 0..self.network.clients {
                self.network.trace.add(client, What::Disturbed { lasts: DISTURBANCE });
            }
        }
        let request_lost = request_lost || self.dead.load(Ordering::Relaxed);
        Fate { there, back, request_lost, answer_lost, copy_after }
    }

    /// Carries a message to the store and its answer back; `arrive` is what the store does, `answered` notes what the client is told.
    fn carry<'a, T: Send + 'static>(
        &'a self,
        arrive: impl Fn(Self) -> Reply<'static, T> + Send + Sync + 'static,
        answered: impl Fn(&Self, &T, u64) + Send + 'a,
    ) -> Reply<'a, T> {
        let fate = self.fate();
        let sent = self.network.trace.now();
        let (sender, receiver) = oneshot::channel();
        if !fate.request_lost {
            let link = self.clone();
            tokio::spawn(async move {
                sleep(fate.there).await;
                let answer = arrive(link.clone()).await;
                if let Some(after) = fate.copy_after {
                    sleep(after).await;
                    // Nobody waits for the answer to a copy.
                    drop(arrive(link.clone()).await);
                }
                sleep(fate.back).await;
                if !fate.answer_lost && !link.dead.load(Ordering::Relaxed) {
                    // The caller may have gone.
                    drop(sender.send(answer));
                } else {
                    std::future::pending::<()>().await;
                }
            });
        }
        Box::pin(async move {
            let Ok(answer) = receiver.await else { return std::future::pending().await };
            if let Ok(answer) = &answer {
                answered(self, answer, sent);
            }
            answer
        })
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
        self.note_held(&request, attempt);
        Ok(attempt)
    }

    async fn release_there(self, request: Release) -> Result<Released> {
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

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
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
        self.network.store.acquire_all(requests)
    }

    fn release(&self, request: Release) -> Reply<'_, Released> {
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
        let (client, faults) = (u64::from(self.client), self.faults);
        Box::pin(async move {
            let below = network.store.watch(watch).await?;
            let notifier = Notifier::default();
            let (ends, mut ended) = oneshot::channel::<()>();
            let forward = notifier.clone();
            // The store notifies in an order of its own: the delays are drawn apart for each subscription, and no two are alike.
            let mut chance = fastrand::Rng::with_seed(network.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let apart = u64::from(network.clients) * 2;
            tokio::spawn(async move {
                loop {
                    tokio::select! {
                        biased;
                        _ = &mut ended => return,
                        () = below.notified() => {}
                    }
                    let calm = network.calm.load(Ordering::Relaxed);
                    let lost = chance.u8(0..100) < faults.lose_notification && !calm;
                    sleep(Duration::from_millis(1 + (client * 2 + number % 2) % apart)).await;
                    if !lost {
                        forward.notify();
                    }
                }
            });
            let subscription = Subscription::new(&notifier, ends);
            Ok(if alone { subscription.only_for_owner() } else { subscription })
        })
    }
}
