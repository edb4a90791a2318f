//! A lock that is taken away by force while others of the holder's process wait for it: the holder is told and the next one served at once, although
//! nobody in the process released it. And nobody else pays for that.
#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lockkeeper::Client;
use lockkeeper::backend::{Acquire, Attempt, Backend, Capabilities, Notifier, Renew, Renewed, Reply, Subscription, Watch};
use lockkeeper::error::Result;
use lockkeeper::layer::Layer;
use lockkeeper::runtime::Runtime;
use lockkeeper::store::memory::MemoryStore;
use tokio::time::{Instant, sleep, timeout};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// What a client sends.
#[derive(Debug, Default)]
struct Sent {
    acquires: AtomicU32,
    renewals: AtomicU32,
    watches: AtomicU32,
}

/// A store that does not tell of deleted holds. Counts requests, and has subscribers hear `instead` of what the store says.
#[derive(Debug)]
struct Counted {
    store: Arc<dyn Backend>,
    sent: Arc<Sent>,
    instead: Option<Notifier>,
}

impl Layer for Counted {
    fn inner(&self) -> &Arc<dyn Backend> {
        &self.store
    }

    fn over(&self, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(Self { store: inner, sent: Arc::clone(&self.sent), instead: self.instead.clone() })
    }

    /// As stores are that do not tell of deleted holds by themselves.
    fn capabilities(&self) -> Capabilities {
        let mut can = self.store.capabilities();
        can.events = false;
        can
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        self.sent.acquires.fetch_add(1, Ordering::Relaxed);
        self.store.acquire(request)
    }

    fn renew(&self, requests: Vec<Renew>) -> Reply<'_, Vec<Result<Renewed>>> {
        self.sent.renewals.fetch_add(1, Ordering::Relaxed);
        self.store.renew(requests)
    }

    fn watch(&self, watch: Watch) -> Reply<'_, Subscription> {
        self.sent.watches.fetch_add(1, Ordering::Relaxed);
        match self.instead.clone() {
            Some(notifier) => Box::pin(async move { Ok(Subscription::new(&notifier, ())) }),
            None => self.store.watch(watch),
        }
    }
}

struct World {
    client: Client,
    sent: Arc<Sent>,
    /// Another process.
    other: Client,
    store: Arc<MemoryStore>,
}

fn world(instead: Option<Notifier>) -> World {
    let runtime = Runtime::simulated();
    let store = Arc::new(MemoryStore::new(runtime.clone()));
    let (sent, below): (Arc<Sent>, Arc<dyn Backend>) = (Arc::default(), Arc::<MemoryStore>::clone(&store));
    let counted = Counted { store: Arc::clone(&below), sent: Arc::clone(&sent), instead };
    let client_of = |store| Client::builder().runtime(runtime.clone()).with_backend(store).unwrap();
    World { client: client_of(Arc::new(counted)), sent, other: client_of(below), store }
}

/// How long after the forced release, `after` so long a wait, the holder was told and the waiter of the same process had the lock.
async fn forced(world: &World, after: Duration) -> (Duration, Duration) {
    let guard = world.client.mutex("m").lock().await.unwrap();
    let waiting = tokio::spawn(world.client.mutex("m").lock().into_future());
    sleep(after).await;
    assert_eq!(world.other.force_release("m").await.unwrap().from.len(), 1);
    let began = Instant::now();
    guard.lost().await;
    let told = began.elapsed();
    let next = waiting.await.unwrap().unwrap();
    assert!(next.token() > guard.token());
    let served = began.elapsed();
    next.release().await.unwrap();
    (told, served)
}

/// P4 and P6 for a holder and a waiter of one process, also if the force came before the waiter listened.
#[tokio::test(start_paused = true)]
async fn a_forced_release_is_told_at_once_where_another_of_the_process_waits() {
    for wait in [0, 1, 40, 60, 120, 300, 2_000, 9_000] {
        let world = world(None);
        let (told, served) = forced(&world, ms(wait)).await;
        assert!(told <= ms(200) && served <= ms(200), "after {wait} ms: told after {told:?}, served after {served:?}");
        world.client.close().await.unwrap();
        assert!(world.store.is_empty());
    }
}

/// The control: without notifications the next poll finds it, after most of a second, and the holder learns of it at its next renewal.
#[tokio::test(start_paused = true)]
async fn a_client_that_hears_nothing_learns_of_it_later() {
    let world = world(Some(Notifier::default()));
    let (told, _) = forced(&world, ms(120)).await;
    assert!(told > ms(400), "told after {told:?}: this test would not notice that nobody listens");
}

/// The writer of a rwlock is told just so, if another writer waits. Readers do not queue behind their own process: they are served, and the
/// writer is told at its next renewal.
#[tokio::test(start_paused = true)]
async fn a_writer_is_told_where_another_writer_of_the_process_waits() {
    for write in [false, true] {
        let world = world(None);
        let rwlock = world.client.rwlock("r");
        let guard = rwlock.write().await.unwrap();
        let waiting = tokio::spawn({
            let rwlock = rwlock.clone();
            async move { if write { rwlock.write().await.map(drop) } else { rwlock.read().await.map(drop) } }
        });
        sleep(ms(120)).await;
        world.other.force_release("r").await.unwrap();
        if write {
            timeout(ms(200), guard.lost()).await.expect("told at once");
        }
        timeout(ms(200), waiting).await.expect("served at once").unwrap().unwrap();
    }
}

/// The hold is asked about and nobody's turn is taken: without a forced release a waiter behind its own process sends one subscription and one
/// look in the first half second, and nothing is sent where nobody waits.
#[tokio::test(start_paused = true)]
async fn listening_costs_one_subscription_and_one_look() {
    let world = world(None);
    let guard = world.client.mutex("m").lock().await.unwrap();
    sleep(ms(450)).await;
    let count = |what: &AtomicU32| what.load(Ordering::Relaxed);
    assert_eq!((count(&world.sent.watches), count(&world.sent.renewals)), (0, 0), "nobody waits");
    let waiting: Vec<_> = (0..64).map(|_| tokio::spawn(world.client.mutex("m").lock().into_future())).collect();
    sleep(ms(45)).await;
    assert_eq!(count(&world.sent.watches), 0, "most get it sooner");
    sleep(ms(355)).await;
    let Sent { acquires, renewals, watches } = &*world.sent;
    assert_eq!((count(watches), count(renewals), count(acquires)), (1, 1, 1));
    drop(guard);
    for next in waiting {
        next.await.unwrap().unwrap().release().await.unwrap();
    }
}

/// However often the channel is notified, the store is asked about the hold ten times a second at most, and never for the lock.
#[tokio::test(start_paused = true)]
async fn notifications_that_mean_nothing_cost_ten_looks_a_second() {
    let notifier = Notifier::default();
    let world = world(Some(notifier.clone()));
    let guard = world.client.mutex("m").lock().await.unwrap();
    let waiting = tokio::spawn(world.client.mutex("m").lock().into_future());
    sleep(ms(200)).await;
    let Sent { acquires, renewals, .. } = &*world.sent;
    let before = (acquires.load(Ordering::Relaxed), renewals.load(Ordering::Relaxed));
    for _ in 0..250 {
        notifier.notify();
        sleep(ms(1)).await;
    }
    let after = (acquires.load(Ordering::Relaxed), renewals.load(Ordering::Relaxed));
    assert_eq!(after.0, before.0, "it does not ask for the lock");
    assert!((1..=4).contains(&(after.1 - before.1)), "{before:?} {after:?}");
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}
