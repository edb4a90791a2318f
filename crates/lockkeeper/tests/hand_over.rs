//! What a process settles by itself: a mutex passes from guard to guard without a request, for a few turns and a few milliseconds.
#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]

use std::future::{Future, IntoFuture};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use lockkeeper::backend::{Acquire, Attempt, Backend, Release, Released, Reply};
use lockkeeper::layer::Layer;
use lockkeeper::runtime::Runtime;
use lockkeeper::store::memory::MemoryStore;
use lockkeeper::{Client, Error, ErrorKind, MutexGuard, Token};
use tokio::time::{Instant, sleep};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// What a wire does to requests that keep a hold inside the process.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    /// Every so many answers are lost.
    lost: Option<u32>,
    /// Each request arrives once more after so long.
    again: Option<Duration>,
}

/// Counts requests, and loses or doubles some.
#[derive(Debug)]
struct Wire {
    store: Arc<dyn Backend>,
    requests: Arc<AtomicU32>,
    keeps: Arc<AtomicU32>,
    faults: Faults,
}

impl Layer for Wire {
    fn inner(&self) -> &Arc<dyn Backend> {
        &self.store
    }

    fn over(&self, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        let (requests, keeps) = (Arc::clone(&self.requests), Arc::clone(&self.keeps));
        Arc::new(Self { store: inner, requests, keeps, faults: self.faults })
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.store.acquire(request)
    }

    fn release(&self, request: Release) -> Reply<'_, Released> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if !request.if_alone {
            return self.store.release(request);
        }
        let count = self.keeps.fetch_add(1, Ordering::Relaxed);
        if let Some(later) = self.faults.again {
            let (store, copy) = (Arc::clone(&self.store), request.clone());
            tokio::spawn(async move {
                sleep(later).await;
                let _ = store.release(copy).await;
            });
        }
        let lost = self.faults.lost.is_some_and(|every| count.is_multiple_of(every));
        Box::pin(async move {
            let answer = self.store.release(request).await;
            if lost { Err(Error::new(ErrorKind::Indeterminate, "the answer was lost")) } else { answer }
        })
    }
}

struct World {
    store: Arc<MemoryStore>,
    client: Client,
    requests: Arc<AtomicU32>,
}

fn world(faults: Faults) -> World {
    let runtime = Runtime::simulated();
    let store = Arc::new(MemoryStore::new(runtime.clone()));
    let requests = Arc::new(AtomicU32::new(0));
    let below: Arc<dyn Backend> = Arc::<MemoryStore>::clone(&store);
    let wire = Wire { store: below, requests: Arc::clone(&requests), keeps: Arc::default(), faults };
    World { store, client: Client::builder().runtime(runtime).with_backend(Arc::new(wire)).unwrap(), requests }
}

impl World {
    fn requests(&self) -> u32 {
        self.requests.load(Ordering::Relaxed)
    }
}

/// Many tasks hold the mutex again and again. Nobody is inside beside another, and the store knows of every holder.
async fn crowd(client: &Client, tasks: u32, turns: u32, hold: Duration) -> Vec<Token> {
    let (inside, tokens) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    let tasks: Vec<_> = (0..tasks)
        .map(|_| {
            let (mutex, inside, tokens) = (client.mutex("m"), Arc::clone(&inside), Arc::clone(&tokens));
            tokio::spawn(async move {
                for _ in 0..turns {
                    let guard = mutex.lock().await.unwrap();
                    assert!(!inside.swap(true, Ordering::SeqCst), "two are inside");
                    tokens.lock().unwrap().push(guard.token().unwrap());
                    if hold.is_zero() {
                        tokio::task::yield_now().await;
                    } else {
                        sleep(hold).await;
                    }
                    assert!(guard.is_valid() && mutex.is_locked().await.unwrap(), "the store does not know of the holder");
                    inside.store(false, Ordering::SeqCst);
                    // After a lost answer it may be gone for the store: that is no second holder.
                    let _ = guard.release().await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let tokens = std::mem::take(&mut *tokens.lock().unwrap());
    assert!(tokens.is_sorted_by(|earlier, later| earlier.number() < later.number()), "P2: {tokens:?}");
    tokens
}

/// P1, P2: sixteen turns for each request, and every turn has a token of its own, with an owner of its own.
#[tokio::test(start_paused = true)]
async fn a_mutex_passes_on_inside_a_process_without_requests() {
    let world = world(Faults::default());
    let tokens = crowd(&world.client, 64, 25, Duration::ZERO).await;
    let mut owners: Vec<_> = tokens.iter().map(|token| token.owner()).collect();
    owners.sort_unstable();
    owners.dedup();
    assert_eq!(owners.len(), 1_600, "an owner has several tokens");
    assert!(world.requests() <= 200, "{} requests for 1,600 turns", world.requests());
    world.client.close().await.unwrap();
    assert!(world.store.is_empty());
}

/// What the store confirmed longer ago than 10 ms does not pass on.
#[tokio::test(start_paused = true)]
async fn a_hold_that_lasts_longer_is_handed_over_by_the_store() {
    let world = world(Faults::default());
    crowd(&world.client, 8, 5, ms(12)).await;
    assert!(world.requests() >= 40, "{} requests for 40 turns", world.requests());
}

/// P1: answers that are lost and requests that arrive twice make no second holder, and leave nothing.
#[tokio::test(start_paused = true)]
async fn lost_and_doubled_requests_to_keep_a_hold_are_harmless() {
    for lost in [None, Some(1), Some(3)] {
        for again in [None, Some(Duration::ZERO), Some(ms(1)), Some(ms(7)), Some(ms(2_900))] {
            for hold in [Duration::ZERO, ms(1), ms(4)] {
                let world = world(Faults { lost, again });
                crowd(&world.client, 12, 12, hold).await;
                sleep(ms(4_000)).await;
                assert!(world.store.is_empty(), "lost: {lost:?}, again: {again:?}, held for {hold:?}");
            }
        }
    }
}

/// A guard whose hold may pass on, and nobody waits.
async fn passable(client: &Client) -> MutexGuard {
    let first = client.mutex("m").lock().await.unwrap();
    let (second, third) = (client.mutex("m").lock().into_future(), client.mutex("m").lock().into_future());
    let (second, third) = (tokio::spawn(second), tokio::spawn(third));
    tokio::task::yield_now().await;
    first.release().await.unwrap();
    let guard = second.await.unwrap().unwrap();
    third.abort();
    let _ = third.await;
    guard
}

fn poll_once<F: Future>(future: Pin<&mut F>) {
    assert!(future.poll(&mut Context::from_waker(Waker::noop())).is_pending(), "it ended at once");
}

/// P6: a waiter that was given the hold and does not run delays the next by no more than 150 ms. It gets its own turn when it runs.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_does_not_pick_up_its_hold_is_passed_over() {
    let world = world(Faults::default());
    let (mutex, guard) = (world.client.mutex("m"), passable(&world.client).await);
    let mut stalled = pin!(mutex.lock().into_future());
    poll_once(stalled.as_mut());
    let next = tokio::spawn(mutex.lock().into_future());
    tokio::task::yield_now().await;
    let (requests, began) = (world.requests(), Instant::now());
    guard.release().await.unwrap();
    assert_eq!(world.requests(), requests, "it was passed on");
    let guard = next.await.unwrap().unwrap();
    assert!(began.elapsed() <= ms(150), "{:?}", began.elapsed());
    let token = guard.token();
    guard.release().await.unwrap();
    let guard = stalled.await.unwrap();
    assert!(guard.token() > token);
    guard.release().await.unwrap();
    world.client.close().await.unwrap();
    assert!(world.store.is_empty());
}

/// A waiter that goes away before it picks up its hold leaves it to the next at once.
#[tokio::test(start_paused = true)]
async fn a_cancelled_waiter_passes_its_hold_on() {
    let world = world(Faults::default());
    let (mutex, guard) = (world.client.mutex("m"), passable(&world.client).await);
    let mut cancelled = Box::pin(mutex.lock().into_future());
    poll_once(cancelled.as_mut());
    let next = tokio::spawn(mutex.lock().into_future());
    tokio::task::yield_now().await;
    let (requests, began, token) = (world.requests(), Instant::now(), guard.token());
    drop(guard);
    drop(cancelled);
    let guard = next.await.unwrap().unwrap();
    assert!(began.elapsed() < ms(1) && world.requests() == requests && guard.token() > token);
    guard.release().await.unwrap();
}

/// First come, first served: a lease of its own needs a request of its own, and nobody overtakes.
#[tokio::test(start_paused = true)]
async fn a_waiter_with_a_lease_of_its_own_is_not_skipped() {
    let world = world(Faults::default());
    let (mutex, guard) = (world.client.mutex("m"), passable(&world.client).await);
    let leased = tokio::spawn(mutex.lock().lease(ms(5_000)).into_future());
    tokio::task::yield_now().await;
    let next = tokio::spawn(mutex.lock().into_future());
    tokio::task::yield_now().await;
    let requests = world.requests();
    guard.release().await.unwrap();
    let guard = leased.await.unwrap().unwrap();
    assert!(guard.remaining() <= ms(5_000) && !next.is_finished() && world.requests() > requests);
    guard.release().await.unwrap();
    next.await.unwrap().unwrap().release().await.unwrap();
}

/// P5: a client that closes while a hold is on its way from guard to guard leaves nothing.
#[tokio::test(start_paused = true)]
async fn close_releases_a_hold_that_nobody_has_picked_up() {
    let world = world(Faults::default());
    let (mutex, guard) = (world.client.mutex("m"), passable(&world.client).await);
    let mut waiting = Box::pin(mutex.lock().into_future());
    poll_once(waiting.as_mut());
    guard.release().await.unwrap();
    world.client.close().await.unwrap();
    assert!(world.store.is_empty());
    assert_eq!(waiting.await.map(drop).unwrap_err().kind(), ErrorKind::Closed);
}

/// A forced release is told to whoever has the hold, however often it has passed on.
#[tokio::test(start_paused = true)]
async fn the_last_holder_of_a_hold_is_told_of_its_loss() {
    let world = world(Faults::default());
    let (mutex, guard) = (world.client.mutex("m"), passable(&world.client).await);
    let next = tokio::spawn(mutex.lock().into_future());
    tokio::task::yield_now().await;
    guard.release().await.unwrap();
    let guard = next.await.unwrap().unwrap();
    let shown = mutex.holders().await.unwrap();
    assert_eq!(shown.iter().map(|holder| holder.owner.clone()).collect::<Vec<_>>(), [guard.owner().to_string()]);
    world.client.force_release("m").await.unwrap();
    tokio::time::timeout(ms(11_000), guard.lost()).await.expect("told within a third of the lease");
    assert!(!guard.is_valid());
}

/// Readers of one process share a hold at the store; all of them lose it together, and the last one to go releases it.
#[tokio::test(start_paused = true)]
async fn readers_of_one_process_share_a_hold() {
    let world = world(Faults::default());
    let rwlock = world.client.rwlock("r");
    let first = rwlock.read().await.unwrap();
    let requests = world.requests();
    let (second, third) = (rwlock.read().await.unwrap(), rwlock.read().await.unwrap());
    assert_eq!(world.requests(), requests, "they joined");
    assert_eq!((second.owner(), second.token()), (first.owner(), first.token()));
    first.release().await.unwrap();
    drop(second);
    assert!(third.is_valid() && rwlock.try_write().await.unwrap().is_none(), "the last one reads");
    third.release().await.unwrap();
    rwlock.try_write().await.unwrap().expect("nobody reads").release().await.unwrap();
    let (one, two) = (rwlock.read().await.unwrap(), rwlock.read().await.unwrap());
    world.client.force_release("r").await.unwrap();
    one.lost().await;
    two.lost().await;
}

/// Joins end 50 ms after the hold was asked for. A lease, a limit or an owner of its own, and a try, need a hold of their own.
#[tokio::test(start_paused = true)]
async fn what_a_reader_does_not_join() {
    let world = world(Faults::default());
    let rwlock = world.client.rwlock("r");
    let first = rwlock.read().await.unwrap();
    let owned = rwlock.owned_by(&world.client.owner());
    let others = [
        rwlock.try_read().await.unwrap().expect("nobody writes"),
        rwlock.read().lease(ms(5_000)).await.unwrap(),
        rwlock.read().max_hold(ms(5_000)).await.unwrap(),
        owned.read().await.unwrap(),
    ];
    assert!(others.iter().all(|reader| reader.owner() != first.owner()));
    sleep(ms(50)).await;
    assert_ne!(
        rwlock.read().await.unwrap().owner(),
        first.owner(),
        "a writer elsewhere waits no longer for those who came later"
    );
}

/// A writer of the same process ends joins at once: it comes in when those are gone that read when it came.
#[tokio::test(start_paused = true)]
async fn a_writer_of_the_same_process_waits_for_no_reader_that_comes_later() {
    let world = world(Faults::default());
    let end = Instant::now() + ms(2_000);
    let readers: Vec<_> = (0..8)
        .map(|number| {
            let rwlock = world.client.rwlock("r");
            tokio::spawn(async move {
                sleep(ms(number)).await;
                while Instant::now() < end {
                    let reader = rwlock.read().await.unwrap();
                    sleep(ms(8)).await;
                    reader.release().await.unwrap();
                }
            })
        })
        .collect();
    for _ in 0..20 {
        sleep(ms(37)).await;
        let began = Instant::now();
        let writer = world.client.rwlock("r").write().await.unwrap();
        assert!(began.elapsed() <= ms(10), "waited for {:?} beside readers of 8 ms", began.elapsed());
        writer.release().await.unwrap();
    }
    for reader in readers {
        reader.await.unwrap();
    }
    world.client.close().await.unwrap();
    assert!(world.store.is_empty());
}
