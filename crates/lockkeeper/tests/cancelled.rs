//! Cancelled calls, in simulated time: how long what they sent blocks a free name.
#![allow(clippy::disallowed_methods, reason = "tests use tokio's clock")]

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper::Client;
use lockkeeper::backend::{Acquire, Attempt, Backend, Release, Released, Reply};
use lockkeeper::layer::Layer;
use lockkeeper::runtime::Runtime;
use lockkeeper::store::memory::MemoryStore;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The callers' connection. While it stalls requests collect; then they reach the store in the order of their sending, also those whose callers
/// have gone. The keeper's connection is as fast as ever.
#[derive(Clone, Debug)]
struct Stalling {
    inner: Arc<dyn Backend>,
    is_keeper: bool,
    /// Waiters of a fair semaphore pass in the order in which they came.
    open: Arc<Semaphore>,
}

impl Stalling {
    fn carried<T: Send + 'static>(
        &self,
        request: impl FnOnce(Arc<dyn Backend>) -> Reply<'static, T> + Send + 'static,
    ) -> Reply<'_, T> {
        let (inner, open, is_keeper) = (Arc::clone(&self.inner), Arc::clone(&self.open), self.is_keeper);
        let travelling = tokio::spawn(async move {
            let _passing = if is_keeper { None } else { Some(open.acquire().await) };
            request(inner).await
        });
        Box::pin(async { travelling.await.unwrap() })
    }
}

impl Layer for Stalling {
    fn inner(&self) -> &Arc<dyn Backend> {
        &self.inner
    }

    fn over(&self, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(Self { inner, is_keeper: true, open: Arc::clone(&self.open) })
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        self.carried(|store| Box::pin(async move { store.acquire(request).await }))
    }

    fn release(&self, request: Release) -> Reply<'_, Released> {
        self.carried(|store| Box::pin(async move { store.release(request).await }))
    }
}

/// A request that is stuck for so long in the caller's process, or on its connection, and arrives when its caller has gone: its undo arrives right
/// behind it, and not only at its next repetition, which comes ever later.
#[tokio::test(start_paused = true)]
async fn an_undo_follows_a_request_that_was_stuck() {
    for stuck in [2, 5, 17, 33, 70, 130, 260, 600, 1_100] {
        let runtime = Runtime::simulated();
        let store: Arc<dyn Backend> = Arc::new(MemoryStore::new(runtime.clone()));
        let open = Arc::new(Semaphore::new(1));
        let ours = Arc::new(Stalling { inner: Arc::clone(&store), is_keeper: false, open: Arc::clone(&open) });
        let client = |backend| Client::builder().runtime(runtime.clone()).with_backend(backend).unwrap();
        let (here, there) = (client(ours), client(store));
        here.mutex("m").lock().await.unwrap().release().await.unwrap();
        let stall = open.acquire().await.unwrap();
        let call = here.mutex("m").lock().into_future();
        assert!(tokio::time::timeout(ms(1), call).await.is_err(), "it is to be cancelled on its way");
        sleep(ms(stuck)).await;
        drop(stall);
        let began = Instant::now();
        // The request arrives.
        sleep(Duration::from_micros(10)).await;
        there.mutex("m").lock().await.unwrap().release().await.unwrap();
        assert!(began.elapsed() <= ms(10), "stuck for {stuck} ms: a free name was blocked for {:?}", began.elapsed());
    }
}
