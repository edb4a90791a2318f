//! How contenders share a name, and that no waiter depends on another caller: neither on one that does not run, nor on one that went away.
#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use lockkeeper::backend::{Acquire, Attempt, Backend, Capabilities, Reply, Subscription, Watch};
use lockkeeper::layer::{Chaos, Layer};
use lockkeeper::runtime::Runtime;
use lockkeeper::store::memory::MemoryStore;
use lockkeeper::{Client, ErrorKind};
use tokio::time::{Instant, sleep};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn client_of(store: Arc<dyn Backend>, runtime: &Runtime) -> Client {
    Client::builder().runtime(runtime.clone()).with_backend(store).unwrap()
}

/// Polls a future once, as a caller does that then looks after something else.
fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) {
    assert!(future.poll(&mut Context::from_waker(Waker::noop())).is_pending(), "it ended at once");
}

/// A client that takes a moment to react: every acquire reaches the store late, as from another machine or a slow virtual machine.
#[derive(Debug)]
struct Late(Arc<dyn Backend>, Duration);

impl Layer for Late {
    fn inner(&self) -> &Arc<dyn Backend> {
        &self.0
    }

    fn over(&self, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(Self(inner, self.1))
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        Box::pin(async move {
            sleep(self.1).await;
            self.0.acquire(request).await
        })
    }
}

/// What the contenders of one client got: how many grants, and the longest wait of one of them.
async fn contend(client: Client, contenders: u32, hold: Duration, end: Instant) -> (u32, Duration) {
    let tasks: Vec<_> = (0..contenders)
        .map(|_| {
            let mutex = client.mutex("m");
            tokio::spawn(async move {
                let (mut grants, mut longest) = (0, Duration::ZERO);
                while Instant::now() < end {
                    let began = Instant::now();
                    let guard = mutex.lock().await.unwrap();
                    longest = longest.max(began.elapsed());
                    sleep(hold).await;
                    guard.release().await.unwrap();
                    grants += 1;
                }
                (grants, longest)
            })
        })
        .collect();
    let (mut grants, mut longest) = (0, Duration::ZERO);
    for task in tasks {
        let (of_task, wait) = task.await.unwrap();
        (grants, longest) = (grants + of_task, longest.max(wait));
    }
    (grants, longest)
}

/// No side gets less than half of its share by number of contenders, and nobody waits for long; also beside a client that reacts late.
#[tokio::test(start_paused = true)]
async fn contenders_of_two_clients_share_a_mutex() {
    for (ours, theirs) in [(1, 1), (2, 1), (8, 1), (6, 6), (1, 8)] {
        for hold in [ms(1), ms(20), ms(100)] {
            for late in [Duration::ZERO, ms(5)] {
                let runtime = Runtime::simulated();
                let store: Arc<dyn Backend> = Arc::new(MemoryStore::new(runtime.clone()));
                let here = client_of(Arc::clone(&store), &runtime);
                let there = client_of(Arc::new(Late(store, late)), &runtime);
                let end = Instant::now() + (hold + late) * 40 * (ours + theirs);
                let there = tokio::spawn(contend(there, theirs, hold, end));
                let ((got, longest), (foreign, foreign_longest)) = (contend(here, ours, hold, end).await, there.await.unwrap());
                let what = format!("{ours} beside {theirs} with holds of {hold:?}, {late:?} late: {got} to {foreign}");
                let (all, contenders) = (f64::from(got + foreign), f64::from(ours + theirs));
                assert!(f64::from(got) >= 0.5 * all * f64::from(ours) / contenders, "{what}");
                assert!(f64::from(foreign) >= 0.5 * all * f64::from(theirs) / contenders, "{what}");
                let bound = (hold + late) * 5 * (ours + theirs);
                let longest = longest.max(foreign_longest);
                assert!(longest <= bound, "{what}: waited {longest:?} of at most {bound:?}");
            }
        }
    }
}

/// Permits change hands inside a process without waiting for the store, and still each client has its share.
#[tokio::test(start_paused = true)]
async fn contenders_of_two_clients_share_permits() {
    for (ours, theirs) in [(8, 2), (6, 6), (2, 8)] {
        for hold in [ms(1), ms(20)] {
            let runtime = Runtime::simulated();
            let store: Arc<dyn Backend> = Arc::new(MemoryStore::new(runtime.clone()));
            let clients = [client_of(Arc::clone(&store), &runtime), client_of(Arc::new(Late(store, ms(1))), &runtime)];
            let end = Instant::now() + hold * 400;
            let turns = |client: &Client, tasks: u32| {
                let permits = client.semaphore("s", 2);
                let tasks = (0..tasks).map(|_| {
                    let permits = permits.clone();
                    tokio::spawn(async move {
                        let mut turns = 0;
                        while Instant::now() < end {
                            let permit = permits.acquire().await.unwrap();
                            sleep(hold).await;
                            permit.release().await.unwrap();
                            turns += 1;
                        }
                        turns
                    })
                });
                let tasks: Vec<_> = tasks.collect();
                async move {
                    let mut all = 0;
                    for task in tasks {
                        all += task.await.unwrap();
                    }
                    f64::from(all)
                }
            };
            let (here, there) = (turns(&clients[0], ours), turns(&clients[1], theirs));
            let (here, there) = (here.await, there.await);
            let share = |part: u32| 0.5 * (here + there) * f64::from(part) / f64::from(ours + theirs);
            assert!(here >= share(ours) && there >= share(theirs), "{ours} beside {theirs}, {hold:?}: {here} to {there}");
        }
    }
}

/// As many requests are under way as permits may be free, not one after the other.
#[tokio::test(start_paused = true)]
async fn free_permits_are_acquired_side_by_side() {
    let runtime = Runtime::simulated();
    let store = Arc::new(Late(Arc::new(MemoryStore::new(runtime.clone())), ms(5)));
    let permits = client_of(store, &runtime).semaphore("s", 8);
    let began = Instant::now();
    let all: Vec<_> = (0..8).map(|_| tokio::spawn(permits.clone().acquire().into_future())).collect();
    for one in all {
        drop(one.await.unwrap().unwrap());
    }
    assert!(began.elapsed() < ms(10), "eight free permits took {:?}", began.elapsed());
}

/// A store that does not notify.
#[derive(Debug)]
struct WithoutPush(Arc<dyn Backend>);

impl Layer for WithoutPush {
    fn inner(&self) -> &Arc<dyn Backend> {
        &self.0
    }

    fn over(&self, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(Self(inner))
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities().with_push(false)
    }

    fn watch(&self, _watch: Watch) -> Reply<'_, Subscription> {
        Box::pin(async { Ok(Subscription::silent()) })
    }
}

#[tokio::test(start_paused = true)]
async fn without_push_a_waiter_elsewhere_gets_in_soon() {
    for hold in [ms(1), ms(20), ms(100)] {
        let runtime = Runtime::simulated();
        let store: Arc<dyn Backend> = Arc::new(WithoutPush(Arc::new(MemoryStore::new(runtime.clone()))));
        let (here, there) = (client_of(Arc::clone(&store), &runtime), client_of(store, &runtime));
        let crowd = tokio::spawn(contend(here, 8, hold, Instant::now() + secs(120)));
        sleep(ms(777)).await;
        for _ in 0..10 {
            let began = Instant::now();
            there.mutex("m").lock().await.unwrap().release().await.unwrap();
            let waited = began.elapsed();
            assert!(waited < ms(2_500) + hold, "with holds of {hold:?} it waited {waited:?}");
            sleep(ms(310)).await;
        }
        crowd.abort();
    }
}

/// A waiter that gets what is free within the command timeout of the caller that does not run, and a little.
async fn waits_for_nobody(client: &Client) {
    let began = Instant::now();
    let guard = client.mutex("m").lock().timeout(secs(60)).await.expect("it waits for a caller that does not run");
    let waited = began.elapsed();
    assert!(waited < ms(3_500), "it waited {waited:?}");
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_acquire_that_is_polled_once_and_left_holds_nobody_up() {
    let runtime = Runtime::simulated();
    let chaos = Arc::new(Chaos::new(Arc::new(MemoryStore::new(runtime.clone()))));
    let client = client_of(Arc::<Chaos>::clone(&chaos), &runtime);
    chaos.yielding(1);
    let mutex = client.mutex("m");
    let mut left = pin!(mutex.lock().into_future());
    poll_once(left.as_mut());
    waits_for_nobody(&client).await;
    // It goes on after all, and gets it in its turn.
    left.await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_polled_once_and_left_holds_nobody_up() {
    let runtime = Runtime::simulated();
    let chaos = Arc::new(Chaos::new(Arc::new(MemoryStore::new(runtime.clone()))));
    let client = client_of(Arc::<Chaos>::clone(&chaos), &runtime);
    let guard = client.mutex("m").lock().await.unwrap();
    let first = tokio::spawn({
        let client = client.clone();
        async move { waits_for_nobody(&client).await }
    });
    sleep(ms(10)).await;
    chaos.yielding(1);
    let mut left = pin!(guard.release());
    poll_once(left.as_mut());
    waits_for_nobody(&client).await;
    first.await.unwrap();
    let _ = left.await;
    waits_for_nobody(&client).await;
}

/// The first waiter's executor stands still: the next one gets the lock meanwhile.
#[test]
fn a_first_waiter_that_does_not_run_holds_nobody_up() {
    let executor = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = Arc::new(MemoryStore::new(Runtime::system()));
    let client = client_of(store, &Runtime::system());
    let guard = executor().block_on(client.mutex("m").lock().into_future()).unwrap();
    let (go_on, stalled) = std::sync::mpsc::channel::<()>();
    let (waits, waiting) = std::sync::mpsc::channel();
    let first = std::thread::spawn({
        let client = client.clone();
        move || {
            executor().block_on(async {
                let mutex = client.mutex("m");
                let mut lock = pin!(mutex.lock().into_future());
                poll_once(lock.as_mut());
                waits.send(()).unwrap();
                stalled.recv().unwrap();
                lock.await.unwrap().release().await.unwrap();
            });
        }
    });
    waiting.recv().unwrap();
    executor().block_on(async {
        let second = client.mutex("m").lock().timeout(secs(20)).into_future();
        let second = tokio::spawn(second);
        tokio::task::yield_now().await;
        guard.release().await.unwrap();
        second.await.unwrap().expect("the first waiter does not run").release().await.unwrap();
    });
    go_on.send(()).unwrap();
    first.join().unwrap();
}

/// A waiter goes away while the release that hands over to it is under way: the name is free for the next one at once.
#[tokio::test(start_paused = true)]
async fn a_cancelled_successor_costs_nobody_a_command_timeout() {
    for steps in 0..45 {
        let runtime = Runtime::simulated();
        let chaos = Arc::new(Chaos::new(Arc::new(MemoryStore::new(runtime.clone()))));
        let store = Arc::<Chaos>::clone(&chaos);
        let (here, there) = (client_of(Arc::<Chaos>::clone(&chaos), &runtime), client_of(store, &runtime));
        let guard = here.mutex("m").lock().await.unwrap();
        let successor = tokio::spawn(here.mutex("m").lock().into_future());
        sleep(ms(10)).await;
        // Twenty steps there and twenty back: the successor goes before, between and after.
        chaos.yielding(20);
        let releasing = tokio::spawn(guard.release());
        for _ in 0..steps {
            tokio::task::yield_now().await;
        }
        successor.abort();
        // A guard that it got is dropped with it.
        drop(successor.await);
        let began = Instant::now();
        for client in [&here, &there] {
            client.mutex("m").lock().timeout(secs(10)).await.unwrap().release().await.unwrap();
        }
        assert!(began.elapsed() < ms(50), "after {steps} steps: {:?}", began.elapsed());
        releasing.await.unwrap().unwrap();
    }
}

/// Acquires go their way although the caller has gone, and reach the store after the undo that overtook them.
#[derive(Debug)]
struct Overtaken(Arc<dyn Backend>, Duration);

impl Layer for Overtaken {
    fn inner(&self) -> &Arc<dyn Backend> {
        &self.0
    }

    /// The keeper's connection is as fast as ever.
    fn over(&self, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(Self(inner, Duration::ZERO))
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        let (store, by) = (Arc::clone(&self.0), self.1);
        let travelling = tokio::spawn(async move {
            sleep(by).await;
            store.acquire(request).await
        });
        Box::pin(async { travelling.await.unwrap() })
    }
}

#[tokio::test(start_paused = true)]
async fn an_undo_that_overtakes_its_acquire_is_repeated_soon() {
    for late in [Duration::from_micros(100), ms(1), ms(3), ms(10)] {
        let runtime = Runtime::simulated();
        let store: Arc<dyn Backend> = Arc::new(MemoryStore::new(runtime.clone()));
        let here = client_of(Arc::new(Overtaken(Arc::clone(&store), late)), &runtime);
        let there = client_of(store, &runtime);
        for _ in 0..20 {
            let call = here.mutex("m").lock().into_future();
            assert!(tokio::time::timeout(late / 2, call).await.is_err(), "it is to be cancelled on its way");
            sleep(late).await;
            let began = Instant::now();
            there.mutex("m").lock().await.unwrap().release().await.unwrap();
            let waited = began.elapsed();
            assert!(waited <= 2 * late + ms(10), "{late:?} late: a free name was blocked for {waited:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_downgraded_is_told_that_it_would_wait_for_itself() {
    let runtime = Runtime::simulated();
    let client = client_of(Arc::new(MemoryStore::new(runtime.clone())), &runtime);
    let owner = client.owner();
    let rwlock = client.rwlock("r").owned_by(&owner);
    let reader = rwlock.write().await.unwrap().downgrade().await.unwrap();
    let error = rwlock.write().timeout(secs(5)).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Deadlock, "{error}");
    reader.release().await.unwrap();
    rwlock.write().timeout(secs(5)).await.expect("nobody reads any more").release().await.unwrap();
}

/// Nothing is left when `close` returns, whenever it comes while an acquire is on its way.
#[tokio::test(start_paused = true)]
async fn close_waits_for_a_grant_that_is_on_its_way() {
    for steps in 0..45 {
        let runtime = Runtime::simulated();
        let store = Arc::new(MemoryStore::new(runtime.clone()));
        let below: Arc<dyn Backend> = Arc::<MemoryStore>::clone(&store);
        let chaos = Arc::new(Chaos::new(below));
        // Twenty steps there and twenty back: `close` comes before, between and after.
        chaos.yielding(20);
        let client = client_of(chaos, &runtime);
        let acquiring = tokio::spawn(client.mutex("m").lock().into_future());
        for _ in 0..steps {
            tokio::task::yield_now().await;
        }
        client.close().await.unwrap();
        assert!(store.is_empty(), "after {steps} steps: left behind");
        let _ = acquiring.await.unwrap();
        assert!(store.is_empty(), "after {steps} steps: acquired after the end");
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_lease_that_was_extended_is_probed_for_loss() {
    let runtime = Runtime::simulated();
    let client = client_of(Arc::new(MemoryStore::new(runtime.clone())), &runtime);
    let guard = client.mutex("m").lock().lease(secs(2)).await.unwrap();
    guard.extend(secs(60)).await.unwrap();
    client.force_release("m").await.unwrap();
    let began = Instant::now();
    guard.lost().await;
    assert!(began.elapsed() <= secs(21), "told after {:?}", began.elapsed());
}
