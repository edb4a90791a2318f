//! A wire between one client and one server: messages are delayed, lost, doubled and reordered as a seed says, and cut in one direction or
//! in both. A message under way is carried out although its sender has gone. Each side has its own clock: points in time are translated by
//! an offset that the client measures with every answer, as a client of a real server does.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockkeeper::backend::{Acquire, Backend, Notifier, Reply, Subscription, Watch};
use lockkeeper::referee::What;
use lockkeeper::runtime::{Instant, World as _};
use tokio::sync::oneshot;

use super::Flaw;
use super::trace::Trace;
use super::world::Node;

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

/// What all wires of a history share.
#[derive(Debug)]
pub(super) struct Air {
    pub(super) trace: Trace,
    /// No more faults.
    pub(super) calm: AtomicBool,
    pub(super) clients: u32,
    pub(super) seed: u64,
    pub(super) subscriptions: AtomicU64,
    pub(super) faults: Faults,
    /// What is wrong on purpose.
    pub(super) flaw: Flaw,
}

/// One client's way to one server.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    pub(super) air: Arc<Air>,
    pub(super) chance: Arc<Mutex<fastrand::Rng>>,
    /// The machine that the client runs on.
    pub(super) node: Node,
    /// The machine that the store runs on.
    pub(super) server: Node,
    pub(super) line: Arc<Line>,
}

/// The state of a client's connection.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// The client has crashed: nothing passes any more.
    pub(super) dead: AtomicBool,
    /// Requests, or answers, do not pass for now.
    requests_cut: AtomicBool,
    answers_cut: AtomicBool,
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

    /// Lets requests, or answers, pass or not.
    pub(super) fn cut(&self, requests: bool, answers: bool) {
        self.requests_cut.store(requests, Ordering::Relaxed);
        self.answers_cut.store(answers, Ordering::Relaxed);
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    pub(super) fn passes_requests(&self) -> bool {
        !self.is_dead() && !self.requests_cut.load(Ordering::Relaxed)
    }

    pub(super) fn passes_answers(&self) -> bool {
        !self.is_dead() && !self.answers_cut.load(Ordering::Relaxed)
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
    pub(super) fn translated(&self, at: Instant) -> Instant {
        if at == Instant::NEVER {
            return at;
        }
        Instant::from_nanos(at.as_nanos().saturating_add_signed(self.offset.load(Ordering::Relaxed)))
    }
}

/// What happens to one message and its answer.
pub(super) struct Fate {
    pub(super) there: Duration,
    pub(super) back: Duration,
    pub(super) request_lost: bool,
    pub(super) answer_lost: bool,
    copy_after: Option<Duration>,
}

impl Wire {
    fn fate(&self) -> Fate {
        let mut chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner);
        let calm = self.air.calm.load(Ordering::Relaxed);
        let mut hit = |percent: u8| chance.u8(0..100) < percent && !calm;
        let (request_lost, answer_lost) = (hit(self.air.faults.lose_request), hit(self.air.faults.lose_answer));
        let doubled = hit(self.air.faults.double);
        let mut time = || Duration::from_micros(chance.u64(0..=if calm { 1_000 } else { self.air.faults.delay }));
        let (there, back) = (time(), time());
        let copy_after = doubled.then(&mut time);
        if request_lost || answer_lost || doubled {
            for client in 0..self.air.clients {
                self.air.trace.add(client, What::Disturbed { lasts: DISTURBANCE });
            }
        }
        let request_lost =
            request_lost || self.line.dead.load(Ordering::Relaxed) || self.line.requests_cut.load(Ordering::Relaxed);
        Fate { there, back, request_lost, answer_lost, copy_after }
    }

    /// Draws something for a message of this client.
    pub(super) fn drawn<T>(&self, draw: impl FnOnce(&mut fastrand::Rng) -> T) -> T {
        draw(&mut self.chance.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How long a message takes at most, in microseconds.
    pub(super) fn longest(&self) -> u64 {
        if self.air.calm.load(Ordering::Relaxed) { 1_000 } else { self.air.faults.delay }
    }

    /// The fate of a message where the connection breaks if one is lost: that happens less often, and nothing is doubled.
    pub(super) fn fate_in_order(&self) -> Fate {
        let (faults, calm, longest) = (self.air.faults, self.air.calm.load(Ordering::Relaxed), self.longest());
        self.drawn(|chance| {
            let mut hit = |percent: u8| chance.u16(0..500) < percent.into() && !calm;
            let (request_lost, answer_lost) = (hit(faults.lose_request), hit(faults.lose_answer));
            let mut time = || Duration::from_micros(chance.u64(0..=longest));
            Fate { there: time(), back: time(), request_lost, answer_lost, copy_after: None }
        })
    }

    pub(super) fn loses_notification(&self) -> bool {
        let (percent, calm) = (self.air.faults.lose_notification, self.air.calm.load(Ordering::Relaxed));
        self.drawn(|chance| chance.u8(0..100) < percent) && !calm
    }

    /// Carries a message to the store and its answer back; `arrive` is what the store does, `answered` notes what the client is told.
    pub(super) fn carry<'a, T: Send + 'static>(
        &'a self,
        arrive: impl Fn() -> Reply<'static, T> + Send + Sync + 'static,
        answered: impl Fn(&T, u64) + Send + 'a,
    ) -> Reply<'a, T> {
        let fate = self.fate();
        let (sent, sent_at) = (self.air.trace.now(), self.node.now());
        let (sender, receiver) = oneshot::channel();
        if !fate.request_lost {
            let (server, line) = (self.server.clone(), Arc::clone(&self.line));
            self.server.start(async move {
                server.sleep(fate.there).await;
                let answer = (arrive().await, server.now());
                if let Some(after) = fate.copy_after {
                    server.sleep(after).await;
                    // Nobody waits for the answer to a copy.
                    drop(arrive().await);
                }
                server.sleep(fate.back).await;
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
                answered(answer, sent);
            }
            answer
        })
    }

    /// The same request on the store's clock.
    pub(super) fn translated(&self, request: &Acquire) -> Acquire {
        let (since, not_after) = (self.line.translated(request.since), self.line.translated(request.not_after));
        request.clone().with_times(since, not_after)
    }

    /// Subscribes at the store; notifications are delayed and lost.
    pub(super) fn watch(&self, store: &Arc<dyn Backend>, watch: Watch) -> Reply<'static, Subscription> {
        let (air, server, store) = (Arc::clone(&self.air), self.server.clone(), Arc::clone(store));
        let number = air.subscriptions.fetch_add(1, Ordering::Relaxed);
        let (alone, flaw) = (watch.own_place().is_some(), air.flaw);
        let faults = air.faults;
        let line = Arc::clone(&self.line);
        Box::pin(async move {
            let below = store.watch(watch).await?;
            let notifier = Notifier::default();
            let (ends, mut ended) = oneshot::channel::<()>();
            let forward = notifier.clone();
            let mut chance = fastrand::Rng::with_seed(air.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            server.clone().start(async move {
                loop {
                    tokio::select! {
                        biased;
                        _ = &mut ended => {
                            if flaw == Flaw::ListenersAreLeft {
                                #[expect(clippy::mem_forget, reason = "the control is a listener that is left")]
                                std::mem::forget(below);
                            }
                            return;
                        }
                        () = below.notified() => {}
                    }
                    let calm = air.calm.load(Ordering::Relaxed);
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
