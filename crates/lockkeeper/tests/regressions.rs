//! Defects that were mended once, each as the property it broke, so that none of them comes back. Most need two things to happen at
//! once, or a fault at one certain moment, which the general suites only meet by luck.
#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]

use std::sync::{Arc, Barrier};
use std::time::Duration;

use lockkeeper::backend::{Acquire, Attempt, Backend, Release, Released, Reply};
use lockkeeper::layer::{Chaos, Fault, Faulty};
use lockkeeper::name::Name;
use lockkeeper::runtime::Runtime;
use lockkeeper::store::memory::MemoryStore;
use lockkeeper::{Client, ErrorKind};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tokio::time::{Instant, sleep};

/// A store of this test, and what disturbs the way to it.
struct World {
    runtime: Runtime,
    store: Arc<MemoryStore>,
    chaos: Arc<Chaos>,
}

impl World {
    fn new(runtime: Runtime) -> Self {
        let store = Arc::new(MemoryStore::new(runtime.clone()));
        let below: Arc<dyn Backend> = Arc::<MemoryStore>::clone(&store);
        Self { runtime, store, chaos: Arc::new(Chaos::new(below)) }
    }

    fn simulated() -> Self {
        Self::new(Runtime::simulated())
    }

    fn client(&self, lease: Duration) -> Client {
        let builder = Client::builder().lease(lease).runtime(self.runtime.clone());
        builder.with_backend(Arc::<Chaos>::clone(&self.chaos)).unwrap()
    }

    fn two_clients(&self) -> (Client, Client) {
        (self.client(secs(30)), self.client(secs(30)))
    }
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

// Read holds of an owner that also writes: each is a hold of its own at the store, and ends with its own guard only.

#[tokio::test(start_paused = true)]
async fn a_read_guard_dropped_beside_a_writer_does_not_free_the_next_one() {
    let world = World::simulated();
    let (ours, theirs) = world.two_clients();
    let owner = ours.owner();
    let rwlock = ours.rwlock("x").owned_by(&owner);
    let writer = rwlock.write().await.unwrap();
    drop(rwlock.read().await.unwrap());
    let reader = rwlock.read().await.unwrap();
    // The release of the first one is under way in the background: let it arrive.
    sleep(ms(10)).await;
    writer.release().await.unwrap();
    assert!(reader.is_valid());
    assert!(theirs.rwlock("x").try_write().await.unwrap().is_none(), "a writer beside a reader");
    reader.release().await.unwrap();
    assert!(theirs.rwlock("x").try_write().await.unwrap().is_some(), "nobody reads any more");
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_beside_a_read_guard_is_a_hold_of_its_own() {
    let world = World::simulated();
    let (ours, theirs) = world.two_clients();
    let owner = ours.owner();
    let rwlock = ours.rwlock("x").owned_by(&owner);
    let writer = rwlock.write().await.unwrap();
    let first = rwlock.read().await.unwrap();
    let second = rwlock.downgrade(writer).await.unwrap();
    first.release().await.unwrap();
    assert!(second.is_valid());
    assert!(theirs.rwlock("x").try_write().await.unwrap().is_none(), "a writer beside a reader");
    second.release().await.unwrap();
    assert!(theirs.rwlock("x").try_write().await.unwrap().is_some(), "nobody reads any more");
}

#[tokio::test(start_paused = true)]
async fn two_downgrades_of_one_writer_are_two_holds() {
    let world = World::simulated();
    let (ours, theirs) = world.two_clients();
    let rwlock = ours.rwlock("x");
    let outer = rwlock.write().await.unwrap();
    let inner = outer.reenter().unwrap();
    let first = rwlock.downgrade(outer).await.unwrap();
    let second = rwlock.downgrade(inner).await.unwrap();
    first.release().await.unwrap();
    assert!(second.is_valid());
    assert!(theirs.rwlock("x").try_write().await.unwrap().is_none(), "a writer beside a reader");
    second.release().await.unwrap();
    assert!(theirs.rwlock("x").try_write().await.unwrap().is_some(), "nobody reads any more");
}

/// On the real clock: the keeper's thread must hand over while the executor of the waiter stands still.
#[test]
fn a_waiter_that_wakes_after_the_lease_it_was_handed_asks_again() {
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    executor.block_on(async {
        let world = World::new(Runtime::system());
        let client = world.client(ms(200));
        let guard = client.mutex("x").lock().await.unwrap();
        let mutex = client.mutex("x");
        let waiter = tokio::spawn(async move { mutex.lock().timeout(secs(5)).await.map(drop) });
        sleep(ms(50)).await;
        drop(guard);
        std::thread::sleep(ms(400));
        let began = Instant::now();
        waiter.await.unwrap().expect("nobody holds it");
        assert!(began.elapsed() < secs(2), "took {:?}", began.elapsed());
    });
}

#[tokio::test(start_paused = true)]
async fn a_hold_near_its_end_is_not_looked_at_again_and_again() {
    let world = World::simulated();
    let client = world.client(secs(30));
    let guard = client.mutex("x").lock().lease(secs(6)).await.unwrap();
    sleep(ms(5_800)).await;
    let before = world.chaos.carried_out(Faulty::Renew);
    // Another hold wakes the keeper, which finds nothing to do yet. No time passes: a keeper that does not rest would never let it.
    drop(client.mutex("y").lock().await.unwrap());
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    let looked = world.chaos.carried_out(Faulty::Renew) - before;
    assert!(looked <= 2, "looked {looked} times in no time");
    drop(guard);
}

/// On the real clock: in a simulation a keeper without a rest would let no time pass, and the test would not end.
#[test]
fn refused_renewals_are_repeated_with_pauses_up_to_the_end() {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    metrics::with_local_recorder(&recorder, || {
        executor.block_on(async {
            // The keeper on this executor, where the recorder sees it.
            let world = World::simulated();
            let client = world.client(ms(900));
            let guard = client.mutex("x").lock().await.unwrap();
            world.chaos.always(Faulty::Renew, Fault::Refuse);
            // Others wake the keeper all the time; a pause is not over because of that.
            let others = async {
                loop {
                    drop(client.mutex("y").lock().await.unwrap());
                    sleep(ms(1)).await;
                }
            };
            tokio::select! {
                _ = guard.lost() => {}
                () = others => {}
            }
        });
    });
    let failed = snapshots.snapshot().into_vec().into_iter().find_map(|(key, _, _, value)| match value {
        DebugValue::Counter(count) if key.key().name() == "lockkeeper_renewals_failed_total" => Some(count),
        _ => None,
    });
    // Two thirds of the lease, in pauses of a fortieth of it at least: 27.
    let failed = failed.expect("failures are counted");
    assert!((3..=30).contains(&failed), "{failed} renewals failed in one lease");
}

/// With threads: one task enters at the moment when the other has just got in.
#[test]
fn two_tasks_of_one_owner_get_in_together() {
    let executor = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    executor.block_on(async {
        let client = Client::connect("memory:").await.unwrap();
        for round in 0..5_000 {
            let owner = client.owner();
            let barrier = Arc::new(Barrier::new(2));
            let tasks = [(); 2].map(|()| {
                let (mutex, barrier) = (client.mutex("x").owned_by(&owner), Arc::clone(&barrier));
                tokio::spawn(async move {
                    barrier.wait();
                    mutex.lock().timeout(ms(500)).await
                })
            });
            // Both before either is given back: what is free again proves nothing.
            let [first, second] = tasks;
            let guards = [first.await.unwrap(), second.await.unwrap()];
            for guard in guards {
                let guard = guard.unwrap_or_else(|error| panic!("round {round}: the owner waited for itself: {error}"));
                guard.release().await.unwrap();
            }
        }
    });
}

#[tokio::test(start_paused = true)]
async fn permits_whose_taking_is_unknown_are_not_taken_twice() {
    let world = World::simulated();
    let client = world.client(secs(30));
    let permits = client.counting_semaphore("s");
    permits.try_set(5).await.unwrap();
    world.chaos.always(Faulty::Count, Fault::LoseReply);
    let taking = tokio::spawn({
        let permits = permits.clone();
        async move { permits.acquire(1).timeout(secs(20)).await }
    });
    // Longer than one request may take with all its repetitions.
    sleep(ms(3_500)).await;
    world.chaos.calm();
    let taken = taking.await.unwrap();
    let left = permits.available().await.unwrap();
    assert!(left == 4 || (left == 5 && taken.is_err()), "one acquire(1) that ended with {taken:?} left {left} of 5");
}

#[tokio::test(start_paused = true)]
async fn an_acquire_under_way_when_the_client_is_closed_holds_nothing() {
    for steps in 0..45 {
        let world = World::simulated();
        // Twenty steps there and twenty back: `close` comes before, between and after.
        world.chaos.yielding(20);
        let client = world.client(secs(30));
        let mutex = client.mutex("x");
        let acquiring = tokio::spawn(async move { mutex.lock().await });
        for _ in 0..steps {
            tokio::task::yield_now().await;
        }
        client.close().await.unwrap();
        match acquiring.await.unwrap() {
            Ok(guard) => assert!(!guard.is_valid(), "after {steps} steps: valid although closed"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Closed, "after {steps} steps"),
        }
        // Less than a lease: given back, not left to expire.
        sleep(secs(10)).await;
        assert!(world.store.is_empty(), "after {steps} steps: left behind");
    }
}

#[tokio::test(start_paused = true)]
async fn a_forced_release_reaches_those_who_wait_in_the_holders_process() {
    let world = World::simulated();
    let client = world.client(secs(30));
    // A lease so long that nothing else would end the wait.
    let guard = client.mutex("x").lock().lease(secs(3_600)).await.unwrap();
    let mutex = client.mutex("x");
    let waiter = tokio::spawn(async move { mutex.lock().await });
    sleep(ms(100)).await;
    world.chaos.force_release(Name::new("x").unwrap()).await.unwrap();
    let began = Instant::now();
    let next = waiter.await.unwrap().unwrap();
    assert!(began.elapsed() < secs(1), "took {:?}", began.elapsed());
    assert!(next.is_valid());
    drop(guard);
}

/// So early, too, that the keeper has a connection before it needs one.
#[tokio::test(start_paused = true)]
async fn who_holds_a_name_can_be_seen_long_before_the_first_renewal() {
    let world = World::simulated();
    let (ours, theirs) = world.two_clients();
    let _guard = ours.mutex("x").lock().await.unwrap();
    sleep(ms(250)).await;
    let seen = theirs.inspect("x").await.unwrap().unwrap();
    let card = seen.holders[0].client.as_ref().expect("the holder has told who it is");
    assert_eq!(card.pid, std::process::id());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_of_another_kind_does_not_spoil_a_release() {
    let world = World::simulated();
    let client = world.client(secs(30));
    let writer = client.rwlock("x").write().await.unwrap();
    let mutex = client.mutex("x");
    let waiter = tokio::spawn({
        let mutex = mutex.clone();
        async move { mutex.lock().timeout(secs(5)).await.map(drop) }
    });
    sleep(ms(10)).await;
    writer.release().await.unwrap();
    // Whether it was refused or served is its own affair.
    let _ = waiter.await.unwrap();
    mutex.lock().timeout(secs(1)).await.unwrap().release().await.unwrap();
}

// Work under a lock, and guards, tell the truth about a hold that ended meanwhile.

#[tokio::test]
async fn work_whose_last_poll_crosses_the_deadline_is_a_loss() {
    let world = World::new(Runtime::system());
    let client = world.client(secs(30));
    let guard = client.mutex("x").lock().lease(ms(200)).await.unwrap();
    // It blocks its executor, so that nothing can be told before it is ready.
    let done = guard.run(async { std::thread::sleep(ms(300)) }).await;
    assert_eq!(done.unwrap_err().kind(), ErrorKind::Lost);
    let both = client.multi_lock(["y", "z"]).lock().lease(ms(200)).await.unwrap();
    let done = both.run(async { std::thread::sleep(ms(300)) }).await;
    assert_eq!(done.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test(start_paused = true)]
async fn an_inner_guard_that_is_released_after_a_loss_says_so() {
    let world = World::simulated();
    let (ours, theirs) = world.two_clients();
    let guard = ours.mutex("x").lock().await.unwrap();
    let inner = guard.reenter().unwrap();
    theirs.force_release("x").await.unwrap();
    guard.lost().await;
    assert_eq!(inner.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
}

// An undo that came before the request that it undoes, and whose answer comes when that request can no longer arrive.

/// Carries an acquire out late and never answers it; answers releases late.
#[derive(Debug)]
struct Slow(Arc<dyn Backend>);

impl lockkeeper::layer::Layer for Slow {
    fn inner(&self) -> &Arc<dyn Backend> {
        &self.0
    }

    fn over(&self, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(Self(inner))
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        let store = Arc::clone(&self.0);
        let arrives = async move {
            sleep(ms(2_950)).await;
            store.acquire(request).await
        };
        tokio::spawn(arrives);
        Box::pin(std::future::pending())
    }

    fn release(&self, request: Release) -> Reply<'_, Released> {
        Box::pin(async move {
            let released = self.0.release(request).await;
            sleep(ms(300)).await;
            released
        })
    }
}

#[tokio::test(start_paused = true)]
async fn an_undo_is_repeated_although_its_answer_comes_when_all_is_settled() {
    let runtime = Runtime::simulated();
    let store = Arc::new(MemoryStore::new(runtime.clone()));
    let slow = Arc::new(Slow(Arc::<MemoryStore>::clone(&store)));
    let client = Client::builder().lease(secs(30)).runtime(runtime).with_backend(slow).unwrap();
    // The request may arrive for 3 s; its caller gives up shortly before, and the undo is carried out at once.
    assert!(tokio::time::timeout(ms(2_900), client.mutex("x").lock()).await.is_err());
    sleep(ms(1_000)).await;
    assert!(store.is_empty(), "the name is held for nobody, for a whole lease");
}
