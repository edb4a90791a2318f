//! Keeping and giving back with real threads and real time: stalled executors, executors that are gone, panics.
#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]

use lockkeeper_testkit::poll::async_until_within;
use std::future::Future;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use lockkeeper::backend::{Backend, Renew, Renewed, Reply};
use lockkeeper::layer::Layer;
use lockkeeper::runtime::Runtime;
use lockkeeper::store::memory::MemoryStore;
use lockkeeper::{Client, ErrorKind};

fn executor() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// A store of this test, with the two clients that look at it.
async fn two_clients(store: &str, lease: Duration) -> (Client, Client) {
    let url = format!("memory:{store}");
    (Client::builder().lease(lease).connect(&url).await.unwrap(), Client::connect(&url).await.unwrap())
}

/// Polls until the future says so.
async fn until<F: Future<Output = bool>>(what: &str, condition: impl FnMut() -> F) {
    async_until_within(Duration::from_secs(10), what, condition).await;
}

async fn until_free(client: &Client, name: &str) {
    until("it is free", || async { client.mutex(name).try_lock().await.unwrap().is_some() }).await;
}

#[test]
fn a_stalled_executor_loses_no_lock() {
    executor().block_on(async {
        let (ours, theirs) = two_clients("stalled", Duration::from_millis(300)).await;
        let guard = ours.mutex("m").lock().await.unwrap();
        // The only thread of this executor sleeps for four leases; the keeper has its own.
        std::thread::sleep(Duration::from_millis(1_200));
        assert!(guard.is_valid(), "renewed meanwhile");
        assert!(theirs.mutex("m").try_lock().await.unwrap().is_none());
        guard.release().await.unwrap();
    });
}

#[test]
fn a_guard_outlives_its_executor_and_is_released_without_one() {
    let (ours, theirs, guard) = executor().block_on(async {
        let (ours, theirs) = two_clients("gone", Duration::from_millis(300)).await;
        let guard = ours.mutex("m").lock().await.unwrap();
        (ours, theirs, guard)
    });
    // No executor lives in this thread any more.
    std::thread::sleep(Duration::from_millis(900));
    assert!(guard.is_valid(), "kept although its executor is gone");
    drop(guard);
    executor().block_on(until_free(&theirs, "m"));
    drop(ours);
}

#[test]
fn a_guard_dropped_on_another_thread_is_released() {
    executor().block_on(async {
        let (ours, theirs) = two_clients("elsewhere", Duration::from_secs(30)).await;
        let guard = ours.mutex("m").lock().await.unwrap();
        std::thread::spawn(move || drop(guard)).join().unwrap();
        until_free(&theirs, "m").await;
    });
}

#[test]
fn a_guard_dropped_in_a_panic_is_released() {
    executor().block_on(async {
        let (ours, theirs) = two_clients("panic", Duration::from_secs(30)).await;
        let mutex = ours.mutex("m");
        let task = tokio::spawn(async move {
            let _guard = mutex.lock().await.unwrap();
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        assert!(task.await.unwrap_err().is_panic());
        until_free(&theirs, "m").await;
    });
}

#[test]
fn an_acquire_whose_executor_is_dropped_leaves_nothing() {
    let (ours, theirs, holder) = executor().block_on(async {
        let (ours, theirs) = two_clients("dropped", Duration::from_secs(30)).await;
        let holder = theirs.fair_mutex("m").lock().await.unwrap();
        (ours, theirs, holder)
    });
    let waiting = executor();
    let mutex = ours.fair_mutex("m");
    waiting.spawn(async move { mutex.lock().await.map(drop) });
    waiting.block_on(until("it stands in line", || async { !theirs.inspect("m").await.unwrap().unwrap().queue.is_empty() }));
    drop(waiting);
    executor().block_on(async {
        until("its place is given up", || async { theirs.inspect("m").await.unwrap().unwrap().queue.is_empty() }).await;
        holder.release().await.unwrap();
    });
}

#[test]
fn the_last_guard_is_released_although_the_client_is_gone() {
    executor().block_on(async {
        let (ours, theirs) = two_clients("last", Duration::from_secs(30)).await;
        let guard = ours.mutex("m").lock().await.unwrap();
        drop(ours);
        assert!(guard.is_valid());
        drop(guard);
        until_free(&theirs, "m").await;
    });
}

#[test]
fn close_tells_the_guards_that_are_left() {
    executor().block_on(async {
        let (ours, theirs) = two_clients("closed", Duration::from_secs(30)).await;
        let guard = ours.mutex("m").lock().await.unwrap();
        ours.close().await.unwrap();
        assert!(!guard.is_valid());
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
        assert!(theirs.mutex("m").try_lock().await.unwrap().is_some());
        assert_eq!(ours.mutex("m").lock().await.unwrap_err().kind(), ErrorKind::Closed);
    });
}

/// P3 and P4 on the real clock: told by the deadline even by an executor that has just been stalled past it.
#[test]
fn a_loss_is_known_right_after_a_stall() {
    executor().block_on(async {
        let (ours, _theirs) = two_clients("stall", Duration::from_secs(30)).await;
        let guard = ours.mutex("m").lock().lease(Duration::from_millis(50)).await.unwrap();
        std::thread::sleep(Duration::from_millis(60));
        assert!(!guard.is_valid());
        let told = tokio::time::timeout(Duration::from_secs(1), guard.lost()).await;
        assert_eq!(told.unwrap(), lockkeeper::backend::LossReason::Expired);
    });
}

#[test]
fn many_threads_and_clients_never_meet_inside() {
    const THREADS: usize = 8;
    const TURNS: usize = 300;
    let inside = std::sync::atomic::AtomicUsize::new(0);
    let (done, all_done) = mpsc::channel();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (inside, done) = (&inside, done.clone());
            scope.spawn(move || {
                executor().block_on(async {
                    let client = Client::connect("memory:crowd").await.unwrap();
                    for turn in 0..TURNS {
                        let guard = client.mutex("m").lock().await.unwrap();
                        assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0, "two inside");
                        std::thread::yield_now();
                        inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                        // Both ways back.
                        if (turn + thread) % 2 == 0 {
                            guard.release().await.unwrap();
                        }
                    }
                    done.send(client).unwrap();
                });
            });
        }
    });
    drop(done);
    assert_eq!(all_done.iter().count(), THREADS);
}

/// Carries renewals out at once, and answers them after this long.
#[derive(Debug)]
struct SlowAnswers(Arc<dyn Backend>, Duration);

impl Layer for SlowAnswers {
    fn inner(&self) -> &Arc<dyn Backend> {
        &self.0
    }

    fn over(&self, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(Self(inner, self.1))
    }

    fn renew(&self, requests: Vec<Renew>) -> Reply<'_, Vec<lockkeeper::Result<Renewed>>> {
        Box::pin(async move {
            let answers = self.0.renew(requests).await;
            tokio::time::sleep(self.1).await;
            answers
        })
    }
}

/// The hold looked over for a while, so work under it was stopped: the extension must not say that all is well.
#[tokio::test(start_paused = true)]
async fn an_extension_that_is_answered_after_the_deadline_is_a_loss() {
    for (answered_after, is_late) in [(Duration::from_millis(500), false), (Duration::from_millis(2_500), true)] {
        let runtime = Runtime::simulated();
        let store = Arc::new(MemoryStore::new(runtime.clone()));
        let client = Client::builder().runtime(runtime).with_backend(Arc::new(SlowAnswers(store, answered_after))).unwrap();
        let guard = client.mutex("m").lock().lease(Duration::from_secs(2)).await.unwrap();
        let extended = guard.extend(Duration::from_secs(20)).await;
        match extended {
            Ok(()) => assert!(!is_late && guard.is_valid(), "{answered_after:?}"),
            Err(error) => assert!(is_late && error.kind() == ErrorKind::Lost && !guard.is_valid(), "{answered_after:?}: {error}"),
        }
    }
}
