//! All of several locks or none: no order deadlocks, nothing is left behind, and the guard is lost when one of them is.
#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use lockkeeper::backend::{Acquire, AttemptAll, Backend, Reply};
use lockkeeper::layer::{Chaos, Fault, Faulty, Layer};
use lockkeeper::runtime::Runtime;
use lockkeeper::store::memory::MemoryStore;
use lockkeeper::{Client, ErrorKind, MultiLock, Mutex};
use tokio::time::{Instant, timeout};

const LONG: Duration = Duration::from_secs(120);

fn client_of(store: &Arc<MemoryStore>, runtime: &Runtime) -> Client {
    Client::builder().runtime(runtime.clone()).with_backend(Arc::<MemoryStore>::clone(store)).unwrap()
}

fn both(one: &Mutex, other: &Mutex) -> MultiLock {
    MultiLock::new().and(one.lock()).and(other.lock())
}

/// Two tasks take the same two locks in opposite orders, `times` each, through `take`; how long it took, or `None` if it hung.
async fn opposite_orders<F>(clients: [(Client, Client); 2], times: u64, take: impl Fn(Mutex, Mutex) -> F) -> Option<Duration>
where
    F: Future<Output = Box<dyn Send>> + Send + 'static,
{
    let (inside, began) = (Arc::new(AtomicU64::new(0)), std::time::Instant::now());
    let tasks: Vec<_> = clients
        .into_iter()
        .enumerate()
        .map(|(task, (first, second))| {
            let (a, b) = (first.mutex("a"), second.mutex("b"));
            let takes: Vec<_> =
                (0..times).map(|_| if task == 0 { take(a.clone(), b.clone()) } else { take(b.clone(), a.clone()) }).collect();
            let inside = Arc::clone(&inside);
            tokio::spawn(async move {
                for take in takes {
                    let guards = take.await;
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two inside");
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(guards);
                }
            })
        })
        .collect();
    for task in tasks {
        timeout(LONG, task).await.ok()?.unwrap();
    }
    Some(began.elapsed())
}

async fn take_both(one: Mutex, other: Mutex) -> Box<dyn Send> {
    Box::new(both(&one, &other).lock().await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opposite_orders_on_one_store_neither_deadlock_nor_livelock() {
    let runtime = Runtime::system();
    let store = Arc::new(MemoryStore::new(runtime.clone()));
    let (ours, theirs) = (client_of(&store, &runtime), client_of(&store, &runtime));
    let took = opposite_orders([(ours.clone(), ours), (theirs.clone(), theirs)], 10_000, take_both).await;
    println!("10,000 times each on one store: {:?}", took.expect("it hangs"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opposite_orders_on_two_stores_neither_deadlock_nor_livelock() {
    let runtime = Runtime::system();
    let stores = [(); 2].map(|()| Arc::new(MemoryStore::new(runtime.clone())));
    let client = |store: usize| client_of(&stores[store], &runtime);
    let took = opposite_orders([(client(0), client(1)), (client(0), client(1))], 10_000, take_both).await;
    println!("10,000 times each on two stores: {:?}", took.expect("it hangs"));
}

/// The control: whoever takes them one by one in the order given, and waits for the second while holding the first, hangs.
#[tokio::test(start_paused = true)]
async fn waiting_while_holding_in_the_order_given_deadlocks() {
    let runtime = Runtime::simulated();
    let store = Arc::new(MemoryStore::new(runtime.clone()));
    let (ours, theirs) = (client_of(&store, &runtime), client_of(&store, &runtime));
    let wrong = |one: Mutex, other: Mutex| async move {
        let first = one.lock().await.unwrap();
        tokio::task::yield_now().await;
        Box::new((first, other.lock().await.unwrap())) as Box<dyn Send>
    };
    assert!(opposite_orders([(ours.clone(), ours), (theirs.clone(), theirs)], 50, wrong).await.is_none());
}

/// Any kind, any client, any store: one guard, a token for each that has one, in the order given.
#[tokio::test(start_paused = true)]
async fn locks_of_every_kind_are_taken_together() {
    let runtime = Runtime::simulated();
    let stores = [(); 2].map(|()| Arc::new(MemoryStore::new(runtime.clone())));
    let (here, there) = (client_of(&stores[0], &runtime), client_of(&stores[1], &runtime));
    let (mutex, fair, workers) = (here.mutex("m"), there.fair_mutex("f"), here.semaphore("s", 3));
    let (shared, own) = (there.rwlock("r"), here.rwlock("w"));
    let all =
        MultiLock::new().and(own.write()).and(mutex.lock()).and(fair.lock()).and(workers.acquire_many(2)).and(shared.read());
    let guard = all.lock().await.unwrap();
    assert_eq!(guard.tokens().map(|(name, _)| name.to_owned()).collect::<Vec<_>>(), ["w", "m", "f", "r"]);
    assert!(guard.is_valid() && guard.remaining() > Duration::from_secs(20));
    assert!(mutex.try_lock().await.unwrap().is_none() && fair.try_lock().await.unwrap().is_none());
    assert!(own.try_read().await.unwrap().is_none() && shared.try_write().await.unwrap().is_none());
    assert!(shared.try_read().await.unwrap().is_some());
    assert!(workers.try_acquire_many(2).await.unwrap().is_none());
    assert!(all.try_lock().await.unwrap().is_none());
    guard.extend(Duration::from_secs(60)).await.unwrap();
    guard.release().await.unwrap();
    all.try_lock().await.unwrap().expect("free again").release().await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(stores[1].is_empty());
}

/// One deadline for all: others keep one of them, and nothing of the rest is held meanwhile or left afterwards.
#[tokio::test(start_paused = true)]
async fn a_busy_one_leaves_the_others_free() {
    let runtime = Runtime::simulated();
    let stores = [(); 2].map(|()| Arc::new(MemoryStore::new(runtime.clone())));
    let (here, there) = (client_of(&stores[0], &runtime), client_of(&stores[1], &runtime));
    for busy in ["a", "b"] {
        let (a, b) = (here.mutex("a"), there.mutex("b"));
        let theirs = if busy == "a" { client_of(&stores[0], &runtime) } else { client_of(&stores[1], &runtime) };
        let holder = theirs.mutex(busy).lock().await.unwrap();
        let all = both(&a, &b);
        let began = Instant::now();
        let waiting = tokio::spawn(async move { all.lock().timeout(Duration::from_secs(5)).await.map(drop) });
        tokio::time::sleep(Duration::from_secs(2)).await;
        let free = if busy == "a" { &b } else { &a };
        free.try_lock().await.unwrap().expect("it waits for one while it holds another").release().await.unwrap();
        assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Timeout);
        assert!(began.elapsed() < Duration::from_millis(5_100), "{:?}", began.elapsed());
        let all = both(&a, &b);
        let waiting = tokio::spawn(async move { all.lock().await.map(|guard| (guard, Instant::now())) });
        tokio::time::sleep(Duration::from_secs(2)).await;
        holder.release().await.unwrap();
        let released = Instant::now();
        let (guard, got) = waiting.await.unwrap().unwrap();
        assert!(got - released < Duration::from_millis(50), "{:?} after the release", got - released);
        guard.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_lost_when_one_of_them_is() {
    let runtime = Runtime::simulated();
    let store = Arc::new(MemoryStore::new(runtime.clone()));
    let client = client_of(&store, &runtime);
    let guard = client.multi_lock(["a", "b", "c"]).lock().await.unwrap();
    client.force_release("b").await.unwrap();
    timeout(Duration::from_secs(30), guard.lost()).await.expect("told");
    assert!(!guard.is_valid() && guard.remaining().is_zero());
    assert_eq!(guard.run(std::future::pending::<()>()).await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(store.is_empty());
}

/// Answers late: which of the requests to all stores, by their numbers.
#[derive(Debug)]
struct Late {
    store: Arc<dyn Backend>,
    requests: Arc<AtomicU32>,
    late: std::ops::Range<u32>,
}

impl Layer for Late {
    fn inner(&self) -> &Arc<dyn Backend> {
        &self.store
    }

    fn over(&self, store: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(Self { store, requests: Arc::clone(&self.requests), late: self.late.clone() })
    }

    fn acquire_all(&self, requests: Vec<Acquire>) -> Reply<'_, AttemptAll> {
        Box::pin(async move {
            let answer = self.store.acquire_all(requests).await;
            if self.late.contains(&self.requests.fetch_add(1, Ordering::SeqCst)) {
                // Not so late that it is asked again.
                tokio::time::sleep(Duration::from_millis(700)).await;
            }
            answer
        })
    }
}

/// The first of six locks ends while the others are acquired: nobody gets a guard that has lost one of its locks already.
#[tokio::test(start_paused = true)]
async fn a_lock_that_ended_while_others_were_acquired_is_acquired_anew() {
    let runtime = Runtime::simulated();
    let world = |late: std::ops::Range<u32>| {
        let requests = Arc::new(AtomicU32::new(0));
        let stores: Vec<_> = (0..6).map(|_| Arc::new(MemoryStore::new(runtime.clone()))).collect();
        let parts = stores.iter().fold(MultiLock::new(), |all, store| {
            let store: Arc<dyn Backend> = Arc::<MemoryStore>::clone(store);
            let late = Late { store, requests: Arc::clone(&requests), late: late.clone() };
            all.and(Client::builder().runtime(runtime.clone()).with_backend(Arc::new(late)).unwrap().mutex("x"))
        });
        (parts, stores)
    };
    let (lease, (all, stores)) = (Duration::from_secs(3), world(1..6));
    let guard = all.lock().lease(lease).await.unwrap();
    assert!(guard.is_valid());
    assert!(guard.holds().iter().all(|held| held.remaining() > Duration::from_secs(2)), "{guard:?}");
    guard.release().await.unwrap();
    assert!(stores.iter().all(|store| store.is_empty()));
    // It never works out: that is said, and nothing is left.
    let (all, stores) = world(0..u32::MAX);
    let error = all.lock().lease(lease).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Lost && error.to_string().contains("longer lease"), "{error}");
    assert!(stores.iter().all(|store| store.is_empty()));
}

/// Named twice, also through two clients of one store; nothing; limits on a part; a part of an owner.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_asked_is_refused() {
    let runtime = Runtime::simulated();
    let store = Arc::new(MemoryStore::new(runtime.clone()));
    let (ours, theirs) = (client_of(&store, &runtime), client_of(&store, &runtime));
    let (mutex, namesake) = (ours.mutex("a"), theirs.mutex("a"));
    let owned = mutex.owned_by(&ours.owner());
    let limited = MultiLock::new().and(mutex.lock().timeout(Duration::from_secs(1)));
    for (wrong, says) in [
        (ours.multi_lock(["a", "b", "a"]), "named twice"),
        (both(&mutex, &namesake), "named twice"),
        (MultiLock::new(), "no lock at all"),
        (limited, "limits"),
        (MultiLock::new().and(owned.lock()), "owner"),
    ] {
        let error = wrong.lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(says), "{error}");
    }
    assert_eq!(ours.multi_lock(["a", ""]).lock().await.unwrap_err().kind(), ErrorKind::InvalidName);
    assert!(store.is_empty());
}

/// Dropped at any point, or with its request or answer lost, it leaves nothing behind.
#[tokio::test(start_paused = true)]
async fn nothing_is_left_wherever_it_is_dropped() {
    let runtime = Runtime::simulated();
    let stores = [(); 2].map(|()| Arc::new(MemoryStore::new(runtime.clone())));
    let chaos = stores.clone().map(|store| Arc::new(Chaos::new(store)));
    let clients = chaos.clone().map(|store| Client::builder().runtime(runtime.clone()).with_backend(store).unwrap());
    chaos.iter().for_each(|chaos| chaos.yielding(2));
    let all = clients
        .iter()
        .fold(MultiLock::new(), |all, client| ["a", "b"].into_iter().fold(all, |all, name| all.and(client.mutex(name).lock())));
    for busy in [false, true] {
        let holder = if busy { Some(clients[1].mutex("b").lock().await.unwrap()) } else { None };
        for polls in 0..60 {
            let mut taking = Box::pin(all.lock());
            let mut left = polls;
            let taken = poll_fn(|context| {
                if left == 0 {
                    return Poll::Ready(None);
                }
                left -= 1;
                context.waker().wake_by_ref();
                taking.as_mut().poll(context).map(Some)
            })
            .await;
            drop(taking);
            drop(taken);
            if !busy {
                tokio::time::sleep(Duration::from_secs(5)).await;
                assert!(stores.iter().all(|store| store.is_empty()), "left behind after {polls} polls");
            }
        }
        drop(holder);
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(stores.iter().all(|store| store.is_empty()), "left behind");
    }
    for fault in [Fault::LoseReply, Fault::LoseRequest, Fault::BreakReply, Fault::Refuse] {
        chaos[1].next(Faulty::Acquire, fault);
        all.lock().await.unwrap().release().await.unwrap();
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(stores.iter().all(|store| store.is_empty()), "{fault:?} left something behind");
    }
}
