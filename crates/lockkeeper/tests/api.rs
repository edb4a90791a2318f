//! What the public API offers beyond acquiring and releasing: calls that own their handle, loss, permit ids, listing, limits for
//! outages, and what dropping the last client waits for.
#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper::backend::{Acquire, Attempt, Backend, Layer, Reply};
use lockkeeper::layer::{Chaos, Fault, Faulty};
use lockkeeper::store::memory::MemoryStore;
use lockkeeper::sync::Guard;
use lockkeeper::{Client, ErrorKind, LossReason, MultiLock, PermitId, Runtime};

/// A client on the paused clock, and the faults of its store.
fn with_faults() -> (Client, Chaos) {
    let runtime = Runtime::simulated();
    let chaos = Chaos::new(Arc::new(MemoryStore::new(runtime.clone())));
    let store: Arc<dyn Backend> = Arc::new(chaos.clone());
    (Client::builder().runtime(runtime).with_backend(store).unwrap(), chaos)
}

#[tokio::test(start_paused = true)]
async fn a_call_owns_its_handle_and_can_be_spawned() {
    let (client, _) = with_faults();
    let guard = tokio::spawn(async { 1 }).await.map(|_| client.mutex("m").lock()).unwrap();
    let task = tokio::spawn(std::future::IntoFuture::into_future(guard));
    task.await.unwrap().unwrap().release().await.unwrap();
}

/// The handle is gone when the call runs.
#[tokio::test(start_paused = true)]
async fn every_call_of_a_handle_can_be_spawned() {
    let (client, _) = with_faults();
    tokio::spawn(client.mutex("x").lock()).await.unwrap().unwrap().release().await.unwrap();
    tokio::spawn(client.mutex("x").try_lock()).await.unwrap().unwrap().expect("it is free").release().await.unwrap();
    assert!(!tokio::spawn(client.mutex("x").is_locked()).await.unwrap().unwrap());
    assert!(tokio::spawn(client.fair_mutex("x").holders()).await.unwrap().unwrap().is_empty());
    let writer = tokio::spawn(client.rwlock("r").write()).await.unwrap().unwrap();
    tokio::spawn(client.rwlock("r").downgrade(writer)).await.unwrap().unwrap().release().await.unwrap();

    let workers = || client.semaphore("workers", 3);
    let permit = tokio::spawn(workers().acquire()).await.unwrap().unwrap();
    assert_eq!(tokio::spawn(workers().available()).await.unwrap().unwrap(), 2);
    let permit = tokio::spawn(client.adopt(permit.detach())).await.unwrap().unwrap();
    let five = tokio::spawn(workers().resize(5)).await.unwrap().unwrap();
    assert!(!tokio::spawn(five.remove()).await.unwrap().unwrap(), "a permit is held");
    permit.release().await.unwrap();

    let stock = || client.counting_semaphore("stock");
    assert!(tokio::spawn(stock().try_set(3)).await.unwrap().unwrap());
    assert_eq!(tokio::spawn(stock().release(1)).await.unwrap().unwrap(), 4);
    assert_eq!(tokio::spawn(stock().add(1)).await.unwrap().unwrap(), 5);
    assert!(tokio::spawn(stock().try_acquire(2)).await.unwrap().unwrap());
    tokio::spawn(stock().acquire(1)).await.unwrap().unwrap();
    assert_eq!(tokio::spawn(stock().available()).await.unwrap().unwrap(), 2);
    assert_eq!(tokio::spawn(stock().drain()).await.unwrap().unwrap(), 2);
    assert!(tokio::spawn(stock().remove()).await.unwrap().unwrap());

    let parts = || client.latch("parts");
    assert!(tokio::spawn(parts().try_set(1)).await.unwrap().unwrap());
    assert_eq!(tokio::spawn(parts().count()).await.unwrap().unwrap(), 1);
    assert_eq!(tokio::spawn(parts().count_down()).await.unwrap().unwrap(), 0);
    tokio::spawn(parts().wait()).await.unwrap().unwrap();
    assert!(!tokio::spawn(parts().remove()).await.unwrap().unwrap());

    let both = client.multi_lock(["a", "b"]);
    tokio::spawn(both.lock()).await.unwrap().unwrap().release().await.unwrap();
    assert!(tokio::spawn(client.inspect(String::from("a"))).await.unwrap().unwrap().is_none());
    assert_eq!(tokio::spawn(client.list("*").into_future()).await.unwrap().unwrap().len(), 1, "the semaphore");
    assert!(tokio::spawn(client.force_release("a")).await.unwrap().unwrap().from.is_empty());
    assert_eq!(tokio::spawn(client.with_lock("a", async { 7 })).await.unwrap().unwrap(), 7);
    tokio::spawn(client.close()).await.unwrap().unwrap();
}

/// Tells with which place in the store's queue each request was sent.
#[derive(Debug)]
struct PlacesSeen(Arc<dyn Backend>, Arc<std::sync::Mutex<Vec<Option<Duration>>>>);

impl Layer for PlacesSeen {
    fn inner(&self) -> &Arc<dyn Backend> {
        &self.0
    }

    fn over(&self, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(Self(inner, Arc::clone(&self.1)))
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        self.1.lock().unwrap().push(request.place);
        self.0.acquire(request)
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_for_a_place_in_a_queue_reaches_the_store() {
    let default = Duration::from_secs(5);
    for (chosen, expected) in [(None, default), (Some(Duration::from_secs(7)), Duration::from_secs(7))] {
        let (runtime, seen) = (Runtime::simulated(), Arc::<std::sync::Mutex<Vec<_>>>::default());
        let store = PlacesSeen(Arc::new(MemoryStore::new(runtime.clone())), Arc::clone(&seen));
        let builder = Client::builder().runtime(runtime);
        let builder = if let Some(ttl) = chosen { builder.queue_ttl(ttl) } else { builder };
        let client = builder.with_backend(Arc::new(store)).unwrap();
        client.fair_mutex("m").lock().await.unwrap().release().await.unwrap();
        client.fair_mutex("m").try_lock().await.unwrap().unwrap().release().await.unwrap();
        assert_eq!(*seen.lock().unwrap(), [Some(expected), None], "a try takes no place");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_ends_a_call_at_its_own_limit() {
    let (client, chaos) = with_faults();
    let second = Duration::from_secs(1);
    for fault in [Fault::Refuse, Fault::LoseRequest] {
        chaos.always(Faulty::Acquire, fault);
        let began = tokio::time::Instant::now();
        let call = client.mutex("m").lock().timeout(10 * second).outage_timeout(second);
        let error = call.await.unwrap_err();
        let took = began.elapsed();
        assert!(error.is_outage() && error.is_retryable() && !error.is_busy(), "{error:?}");
        assert!(took >= second / 2 && took < 2 * second, "{fault:?}: {took:?}");
        assert!(!client.is_connected());
        chaos.calm();
        client.mutex("n").lock().await.unwrap().release().await.unwrap();
        assert!(client.is_connected());
    }
}

#[tokio::test(start_paused = true)]
async fn contention_is_not_cut_short_by_the_limit_for_outages() {
    let (client, _) = with_faults();
    let guard = client.mutex("m").lock().await.unwrap();
    let began = tokio::time::Instant::now();
    let call = client.mutex("m").lock().timeout(Duration::from_secs(5)).outage_timeout(Duration::from_millis(100));
    let error = call.await.unwrap_err();
    assert!(error.is_busy() && began.elapsed() >= Duration::from_secs(5), "{error:?} after {:?}", began.elapsed());
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_fails_leaves_nothing_to_retry() {
    let (client, chaos) = with_faults();
    let guard = client.mutex("m").lock().await.unwrap();
    chaos.always(Faulty::Release, Fault::Refuse);
    let error = guard.release().await.unwrap_err();
    assert!(error.is_outage() && !error.is_retryable(), "{error:?}");
}

/// Without an answer it may have been done: an operator who reads "nothing was done" would believe that the holder still has it.
#[tokio::test(start_paused = true)]
async fn a_forced_release_without_an_answer_is_indeterminate() {
    for fault in [Fault::LoseReply, Fault::BreakReply, Fault::LoseRequest] {
        let (client, chaos) = with_faults();
        let _guard = client.mutex("m").lock().await.unwrap();
        chaos.next(Faulty::ForceRelease, fault);
        let error = client.force_release("m").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Indeterminate, "{fault:?}: {error}");
    }
    let (client, chaos) = with_faults();
    chaos.next(Faulty::ForceRelease, Fault::Refuse);
    assert_eq!(client.force_release("m").await.unwrap_err().kind(), ErrorKind::Unavailable, "nothing was done");
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_told_to_another_task_and_a_release_ends_the_wait() {
    let (client, _) = with_faults();
    let guard = client.mutex("m").lock().await.unwrap();
    let (told, again) = (tokio::spawn(std::future::IntoFuture::into_future(guard.loss())), guard.loss());
    client.force_release("m").await.unwrap();
    assert_eq!(told.await.unwrap(), Some(LossReason::Gone));
    assert!(again.is_lost());
    drop(guard);
    let guard = client.mutex("m").lock().await.unwrap();
    let released = tokio::spawn(std::future::IntoFuture::into_future(guard.loss()));
    guard.release().await.unwrap();
    assert_eq!(released.await.unwrap(), None, "released, not lost");
}

#[test]
fn a_loss_is_told_to_a_thread() {
    let client = lockkeeper::blocking::Client::connect("memory:").unwrap();
    let guard = client.mutex("m").lock_with(|call| call.lease(Duration::from_millis(100))).unwrap();
    assert_eq!(guard.loss().wait_timeout(Duration::from_millis(1)), None);
    assert_eq!(guard.loss().wait_timeout(Duration::from_secs(20)), Some(LossReason::Expired));
}

#[tokio::test(start_paused = true)]
async fn detached_permits_are_adopted_once_released_they_are_not_held() {
    let (client, _) = with_faults();
    let workers = client.semaphore("workers", 3);
    let id: PermitId = workers.acquire_many(2).await.unwrap().detach().to_string().parse().unwrap();
    assert_eq!((id.name(), id.permits()), ("workers", 2));
    assert_eq!(workers.available().await.unwrap(), 1, "held without a guard");
    let permit = client.adopt(id.clone()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(permit.is_valid(), "renewed again");
    permit.release().await.unwrap();
    assert_eq!(workers.available().await.unwrap(), 3);
    assert_eq!(client.adopt(id).await.unwrap_err().kind(), ErrorKind::NotHeld);
}

#[tokio::test(start_paused = true)]
async fn handles_tell_who_holds_them_and_a_list_can_be_bounded() {
    let (client, _) = with_faults();
    assert!(!client.mutex("a").is_locked().await.unwrap());
    let guards = [client.mutex("a").lock().await.unwrap(), client.mutex("b").lock().await.unwrap()];
    assert!(client.mutex("a").is_locked().await.unwrap());
    assert_eq!(client.mutex("a").holders().await.unwrap()[0].owner, guards[0].owner().to_string());
    assert_eq!(client.rwlock("a").holders().await.unwrap_err().kind(), ErrorKind::WrongKind);
    assert_eq!(client.list("*").limit(1).await.unwrap().len(), 1);
    let (mut names, mut found) = (client.list("*").stream(), 0);
    while names.next().await.unwrap().is_some() {
        found += 1;
    }
    assert_eq!(found, 2);
}

#[tokio::test(start_paused = true)]
async fn generic_code_works_with_any_guard() {
    async fn finish<G: Guard>(guard: G) -> bool {
        let fenced = guard.is_valid() && guard.token().is_some();
        guard.release().await.unwrap();
        fenced
    }
    let (client, _) = with_faults();
    assert!(finish(client.mutex("m").lock().await.unwrap()).await);
    assert!(finish(client.rwlock("r").write().await.unwrap().downgrade().await.unwrap()).await);
    assert!(!finish(client.semaphore("s", 1).acquire().await.unwrap()).await, "permits have no token");
    let both = MultiLock::new().and(client.mutex("a")).and(client.rwlock("b").read());
    both.lock().await.unwrap().release().await.unwrap();
    assert_eq!(client.with_lock("m", async { 7 }).await.unwrap(), 7);
}

#[test]
fn the_end_of_a_short_program_releases_what_it_held() {
    let watching = lockkeeper::blocking::Client::connect("memory:short").unwrap();
    let client = lockkeeper::blocking::Client::connect("memory:short").unwrap();
    let guard = client.mutex("m").lock().unwrap();
    drop((guard, client));
    assert!(!watching.mutex("m").is_locked().unwrap(), "the last client waits for pending releases");
}

#[tokio::test]
async fn dropping_the_last_client_is_bounded_and_can_be_turned_off() {
    for (limit, at_least, at_most) in [(300, 300, 5_000), (0, 0, 250)] {
        let chaos = Chaos::new(Arc::new(MemoryStore::new(Runtime::system())));
        let store: Arc<dyn Backend> = Arc::new(chaos.clone());
        let client = Client::builder().drop_timeout(Duration::from_millis(limit)).with_backend(store).unwrap();
        let guard = client.mutex("m").lock().await.unwrap();
        chaos.always(Faulty::Release, Fault::LoseRequest);
        #[allow(clippy::disallowed_methods, reason = "the real clock is what is measured")]
        let began = Instant::now();
        drop((guard, client));
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(at_least) && took < Duration::from_millis(at_most), "{limit}: {took:?}");
    }
}

#[test]
fn a_runtime_without_timers_is_a_typed_error() {
    let bare = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let error = bare.block_on(Client::connect("redlock:memory:a,memory:b,memory:c")).unwrap_err();
    assert!(error.kind() == ErrorKind::Config && error.to_string().contains("timers"), "{error:?}");
}

/// Its servers forget a lease after ten seconds, so a default of 30 s kept everybody out, also those who only list.
#[tokio::test]
async fn a_store_of_short_leases_needs_no_lease_to_be_chosen() {
    const URL: &str = "redlock:memory:short-a,memory:short-b,memory:short-c,admit=new,max-lease=10s";
    let client = Client::connect(URL).await.unwrap();
    let guard = client.mutex("m").lock().await.unwrap();
    assert!(guard.remaining() <= Duration::from_secs(10), "{:?}", guard.remaining());
    assert_eq!(client.list("*").await.unwrap().len(), 1);
    guard.release().await.unwrap();
    let refused = Client::builder().lease(Duration::from_secs(30)).connect(URL).await.unwrap_err();
    assert!(refused.kind() == ErrorKind::InvalidArgument && refused.to_string().contains("10s"), "{refused}");
}

#[tokio::test]
async fn every_client_of_a_store_has_the_same_gate() {
    let (a, b) = (Client::connect("memory:gated").await.unwrap(), Client::connect("memory:gated").await.unwrap());
    let (early, gate) = (a.mutex("m").lock().await.unwrap(), a.gate().unwrap());
    let old = early.token().unwrap();
    gate.enter("r", old).await.unwrap();
    early.release().await.unwrap();
    let late = b.mutex("m").lock().await.unwrap();
    b.gate().unwrap().enter("r", late.token().unwrap()).await.unwrap();
    assert_eq!(gate.check("r", old).await.unwrap_err().kind(), ErrorKind::Lost);
}

/// Requests name times of the client's clock: one that counts in another way would be late, or never late.
#[tokio::test]
async fn a_shared_memory_store_has_one_clock() {
    let simulated = lockkeeper::runtime::Runtime::simulated();
    let connect = |runtime: &lockkeeper::runtime::Runtime| Client::builder().runtime(runtime.clone()).connect("memory:clocks");
    let (first, second) = (connect(&simulated).await.unwrap(), connect(&simulated).await.unwrap());
    for other in [lockkeeper::runtime::Runtime::system(), lockkeeper::runtime::Runtime::simulated()] {
        let error = connect(&other).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Config && error.to_string().contains("another clock"), "{error}");
    }
    for client in [first, second] {
        client.close().await.unwrap();
    }
    let system = lockkeeper::runtime::Runtime::system();
    lockkeeper_testkit::poll::async_until_within(Duration::from_secs(10), "nobody uses it any more", || async {
        connect(&system).await.is_ok()
    })
    .await;
}

/// How long, and by whom: the holder is named once it has announced itself.
#[tokio::test]
async fn a_timeout_says_how_long_and_by_whom() {
    let (holder, waiter) =
        (Client::connect("memory:timeout-words").await.unwrap(), Client::connect("memory:timeout-words").await.unwrap());
    let guard = holder.mutex("x").lock().await.unwrap();
    while holder.inspect("x").await.unwrap().is_none_or(|found| found.holders[0].client.is_none()) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let error = waiter.mutex("x").lock().timeout(Duration::from_millis(600)).await.unwrap_err();
    // In the words of the command line, and the program.
    let words = format!(" pid {} (", std::process::id());
    assert!(
        error.to_string().starts_with("\"x\" was not free within 600ms; it is held by ") && error.to_string().contains(&words),
        "{error}"
    );
    // A second one at once does not ask the store again, and one that waits less is not made longer.
    let error = waiter.mutex("x").lock().timeout(Duration::from_millis(100)).await.unwrap_err();
    assert_eq!(error.to_string(), "\"x\" was not free within 100ms; it is held by others");
    guard.release().await.unwrap();
}
