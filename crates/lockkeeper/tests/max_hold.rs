//! A hold that is renewed, but not for ever.
#![allow(clippy::disallowed_methods, reason = "tests move tokio's clock")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper::backend::{Acquire, Attempt, Backend, Reply};
use lockkeeper::layer::Layer;
use lockkeeper::runtime::Runtime;
use lockkeeper::store::memory::MemoryStore;
use lockkeeper::{Client, ErrorKind, LossReason, MultiLock};
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

async fn client(lease: Duration) -> Client {
    Client::builder().lease(lease).runtime(Runtime::simulated()).connect("memory:").await.unwrap()
}

/// With a limit that is longer than the lease, about as long, and shorter.
#[tokio::test(start_paused = true)]
async fn a_hold_is_renewed_until_its_limit_and_then_lost_and_free() {
    for limit in [100 * SECOND, 10 * SECOND, 11 * SECOND, 2 * SECOND] {
        let client = client(10 * SECOND).await;
        let began = Instant::now();
        let guard = client.mutex("m").lock().max_hold(limit).await.unwrap();
        let waiter = client.mutex("m").lock().timeout(200 * SECOND);
        tokio::time::sleep(limit - SECOND).await;
        assert!(guard.is_valid() && guard.remaining() <= SECOND, "{limit:?}: {:?}", guard.remaining());
        assert_eq!(guard.lost().await, LossReason::MaxHold, "{limit:?}");
        assert!(began.elapsed() >= limit && began.elapsed() < limit + SECOND / 10, "{limit:?}: {:?}", began.elapsed());
        assert!(!guard.is_valid());
        let next = waiter.await.expect("free");
        assert!(began.elapsed() < limit + SECOND, "{limit:?}: the store keeps it for {:?}", began.elapsed());
        let error = guard.release().await.unwrap_err();
        assert!(error.kind() == ErrorKind::Lost && error.to_string().contains("max_hold"), "{error}");
        assert!(next.is_valid(), "the release of a lost hold frees nobody");
        next.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn work_under_the_lock_is_dropped_at_the_limit_and_an_extension_does_not_help() {
    let client = client(10 * SECOND).await;
    let guard = client.mutex("m").try_lock().max_hold(20 * SECOND).await.unwrap().unwrap();
    tokio::time::sleep(15 * SECOND).await;
    guard.extend(60 * SECOND).await.unwrap();
    assert!(guard.remaining() <= 5 * SECOND, "{:?}", guard.remaining());
    let began = Instant::now();
    let error = guard.run(std::future::pending::<()>()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(began.elapsed() < 6 * SECOND, "{:?}", began.elapsed());
    tokio::time::sleep(SECOND / 2).await;
    assert!(client.mutex("m").try_lock().await.unwrap().is_some(), "the store freed it too");
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_is_released_in_time_knows_nothing_of_its_limit() {
    let client = client(10 * SECOND).await;
    for _ in 0..3 {
        let guard = client.mutex("m").lock().max_hold(30 * SECOND).await.unwrap();
        tokio::time::sleep(29 * SECOND).await;
        guard.release().await.unwrap();
    }
    let error = client.mutex("m").lock().max_hold(Duration::ZERO).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
}

/// Notes how long each request for a hold may take.
#[derive(Debug)]
struct Limits(Arc<dyn Backend>, Arc<Mutex<Vec<Duration>>>, Runtime);

impl Layer for Limits {
    fn inner(&self) -> &Arc<dyn Backend> {
        &self.0
    }

    fn over(&self, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(Self(inner, Arc::clone(&self.1), self.2.clone()))
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        self.1.lock().unwrap().push(request.not_after.since(self.2.now()));
        self.0.acquire(request)
    }
}

/// A request takes at most a quarter of the lease that it asks for, so that a lost answer is noticed while the hold is worth something.
#[tokio::test(start_paused = true)]
async fn a_request_for_a_short_hold_is_given_up_in_time() {
    let (runtime, limits) = (Runtime::simulated(), Arc::default());
    let store = Arc::new(MemoryStore::new(runtime.clone()));
    let store = Arc::new(Limits(store, Arc::clone(&limits), runtime.clone()));
    let client = Client::builder().runtime(runtime).with_backend(store).unwrap();
    client.mutex("m").lock().max_hold(2 * SECOND).await.unwrap().release().await.unwrap();
    let limit = limits.lock().unwrap()[0];
    assert!(limit <= SECOND / 2, "{limit:?}");
}

/// All holds of a MultiLock end at the limit, and with the first one the guard is lost.
#[tokio::test(start_paused = true)]
async fn all_of_several_locks_are_held_for_no_longer_than_the_limit() {
    let client = client(10 * SECOND).await;
    let (mutex, rwlock) = (client.mutex("m"), client.rwlock("rw"));
    let both = MultiLock::new().and(&mutex).and(rwlock.write());
    for tries in [false, true] {
        let began = Instant::now();
        let guard = if tries {
            both.try_lock().max_hold(25 * SECOND).await.unwrap().expect("free")
        } else {
            both.lock().max_hold(25 * SECOND).await.unwrap()
        };
        tokio::time::sleep(24 * SECOND).await;
        assert!(guard.is_valid() && guard.remaining() <= SECOND, "{:?}", guard.remaining());
        assert_eq!(guard.lost().await, LossReason::MaxHold);
        assert!(began.elapsed() < 26 * SECOND, "{:?}", began.elapsed());
        tokio::time::sleep(SECOND).await;
        mutex.try_lock().await.unwrap().expect("free in the store too").release().await.unwrap();
        rwlock.try_write().await.unwrap().expect("free in the store too").release().await.unwrap();
        assert!(guard.release().await.is_err());
    }
    let part = MultiLock::new().and(mutex.lock().max_hold(SECOND)).lock().await.unwrap_err();
    assert_eq!(part.kind(), ErrorKind::InvalidArgument, "{part}");
}
