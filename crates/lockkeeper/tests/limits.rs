//! Limits of time are kept, whatever the store does or does not answer. Each of these was broken once.
#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::layer::{Chaos, Fault, Faulty};
use lockkeeper::runtime::Runtime;
use lockkeeper::store::memory::MemoryStore;
use lockkeeper::{Client, ErrorKind};
use tokio::time::Instant;

/// A store of this test, and what disturbs the way to it.
struct World {
    runtime: Runtime,
    chaos: Arc<Chaos>,
}

impl World {
    fn simulated() -> Self {
        let runtime = Runtime::simulated();
        let store = Arc::new(MemoryStore::new(runtime.clone()));
        Self { runtime, chaos: Arc::new(Chaos::new(store)) }
    }

    fn client(&self) -> Client {
        Client::builder().runtime(self.runtime.clone()).with_backend(Arc::<Chaos>::clone(&self.chaos)).unwrap()
    }
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[tokio::test(start_paused = true)]
async fn a_wait_limit_holds_although_the_store_confirms_no_subscription() {
    let world = World::simulated();
    let (ours, theirs) = (world.client(), world.client());
    let _guard = theirs.mutex("x").lock().await.unwrap();
    world.chaos.always(Faulty::Watch, Fault::LoseRequest);
    let began = Instant::now();
    let error = ours.mutex("x").lock().timeout(ms(100)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(began.elapsed() < ms(700), "took {:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_wait_limit_holds_although_the_store_does_not_count() {
    let world = World::simulated();
    let latch = world.client().latch("l");
    world.chaos.always(Faulty::Count, Fault::LoseRequest);
    let began = Instant::now();
    latch.wait().timeout(ms(100)).await.unwrap_err();
    assert!(began.elapsed() < secs(1), "took {:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_wait_limit_holds_although_the_store_does_not_answer() {
    let world = World::simulated();
    let client = world.client();
    world.chaos.always(Faulty::Acquire, Fault::LoseRequest);
    let began = Instant::now();
    client.mutex("x").lock().timeout(ms(100)).await.unwrap_err();
    assert!(began.elapsed() < ms(700), "took {:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_try_ends_within_about_the_command_timeout() {
    let world = World::simulated();
    let client = world.client();
    world.chaos.always(Faulty::Acquire, Fault::LoseRequest);
    let mutex = client.mutex("x");
    for attempt in [mutex.try_lock(), mutex.try_lock().lease(secs(1))] {
        let began = Instant::now();
        attempt.await.unwrap_err();
        // Three seconds by default.
        assert!(began.elapsed() < ms(3_500), "took {:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn times_that_cannot_be_reckoned_with_are_refused() {
    let world = World::simulated();
    let builder = Client::builder().command_timeout(Duration::MAX).runtime(world.runtime.clone());
    let error = builder.with_backend(Arc::<Chaos>::clone(&world.chaos)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    // No limit at all is a limit that can be asked for.
    world.client().mutex("x").lock().timeout(Duration::MAX).await.unwrap().release().await.unwrap();
}
