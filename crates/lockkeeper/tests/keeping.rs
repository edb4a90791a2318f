//! Keeping and giving back with real threads and real time: stalled executors, executors that are gone, panics.
#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]

use lockkeeper_testkit::poll::async_until_within;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use lockkeeper::backend::{Backend, ClientCard, Notifier, Release, Released, Renew, Renewed, Reply, Subscription, Watch};
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
    let inside = AtomicUsize::new(0);
    let (done, all_done) = mpsc::channel();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (inside, done) = (&inside, done.clone());
            scope.spawn(move || {
                executor().block_on(async {
                    let client = Client::connect("memory:crowd").await.unwrap();
                    for turn in 0..TURNS {
                        let guard = client.mutex("m").lock().await.unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two inside");
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
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

/// A store whose code panics now and then, while it prepares a request or while it carries it out: every other call of the keeper.
#[derive(Debug)]
struct Panics {
    inner: Arc<dyn Backend>,
    for_keeper: bool,
    calls: Arc<AtomicUsize>,
}

impl Panics {
    /// At once on the first call, later on the third, and so on.
    fn now(&self) -> bool {
        let call = if self.for_keeper { self.calls.fetch_add(1, Ordering::SeqCst) } else { 1 };
        match call % 4 {
            0 => std::panic::resume_unwind(Box::new("on purpose")),
            2 => true,
            _ => false,
        }
    }

    fn carry_out<'a, T: Send + 'a>(&'a self, work: impl FnOnce() -> Reply<'a, T>) -> Reply<'a, T> {
        let (soon, reply) = (self.now(), work());
        Box::pin(async move {
            tokio::task::yield_now().await;
            if soon {
                std::panic::resume_unwind(Box::new("on purpose"));
            }
            reply.await
        })
    }
}

impl Layer for Panics {
    fn inner(&self) -> &Arc<dyn Backend> {
        &self.inner
    }

    fn over(&self, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(Self { inner, for_keeper: true, calls: Arc::clone(&self.calls) })
    }

    fn renew(&self, requests: Vec<Renew>) -> Reply<'_, Vec<lockkeeper::Result<Renewed>>> {
        self.carry_out(|| self.inner.renew(requests))
    }

    fn release(&self, request: Release) -> Reply<'_, Released> {
        self.carry_out(|| self.inner.release(request))
    }

    fn announce(&self, card: ClientCard, ttl: Duration) -> Reply<'_, ()> {
        self.carry_out(|| self.inner.announce(card, ttl))
    }
}

/// Locks of other stores are kept, told lost and released all the same; `close` does not wait for ever.
#[test]
fn a_store_that_panics_does_not_end_the_keeper() {
    executor().block_on(async {
        let store: Arc<dyn Backend> = Arc::new(MemoryStore::new(Runtime::system()));
        let calls = Arc::new(AtomicUsize::new(0));
        let panics = Panics { inner: Arc::clone(&store), for_keeper: false, calls: Arc::clone(&calls) };
        let ours = Client::builder().lease(Duration::from_millis(600)).with_backend(Arc::new(panics)).unwrap();
        let theirs = Client::builder().with_backend(store).unwrap();
        let guards = [ours.mutex("a").lock().await.unwrap(), ours.mutex("b").lock().await.unwrap()];
        until("renewals were asked for, and panicked, for three leases", || async { calls.load(Ordering::SeqCst) > 12 }).await;
        assert!(guards.iter().all(|guard| guard.is_valid()), "kept all the same");
        // What another takes away is still told.
        theirs.force_release("a").await.unwrap();
        let [first, second] = guards;
        tokio::time::timeout(Duration::from_secs(5), first.lost()).await.expect("told");
        // And what is dropped is released, by the keeper.
        drop(second);
        until_free(&theirs, "b").await;
        tokio::time::timeout(Duration::from_secs(5), ours.close()).await.expect("closed").unwrap();
    });
}

/// Whether this is a thread on which holds are renewed.
fn on_the_keeper() -> bool {
    std::thread::current().name() == Some("lockkeeper-keeper")
}

/// What a subscription of [`EndsBadly`] leaves: the keeper panics when it drops it.
struct BadEnd(tokio::task::JoinHandle<()>, Arc<AtomicUsize>);

impl Drop for BadEnd {
    fn drop(&mut self) {
        self.0.abort();
        if on_the_keeper() {
            self.1.fetch_add(1, Ordering::SeqCst);
            std::panic::resume_unwind(Box::new("on purpose"));
        }
    }
}

/// A store whose subscriptions panic when they end on the keeper. They notify as usual.
#[derive(Debug)]
struct EndsBadly(Arc<dyn Backend>, Arc<AtomicUsize>);

impl Layer for EndsBadly {
    fn inner(&self) -> &Arc<dyn Backend> {
        &self.0
    }

    fn over(&self, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(Self(inner, Arc::clone(&self.1)))
    }

    fn watch(&self, watch: Watch) -> Reply<'_, Subscription> {
        Box::pin(async move {
            let (below, notifier) = (self.0.watch(watch).await?, Notifier::default());
            let passes_on = {
                let notifier = notifier.clone();
                async move {
                    loop {
                        below.notified().await;
                        notifier.notify();
                    }
                }
            };
            Ok(Subscription::new(&notifier, BadEnd(tokio::spawn(passes_on), Arc::clone(&self.1))))
        })
    }
}

#[test]
fn a_subscription_that_panics_when_it_ends_does_not_end_the_keeper() {
    executor().block_on(async {
        let store: Arc<dyn Backend> = Arc::new(MemoryStore::new(Runtime::system()));
        let panics = Arc::new(AtomicUsize::new(0));
        let layer = EndsBadly(Arc::clone(&store), Arc::clone(&panics));
        let ours = Client::builder().lease(Duration::from_secs(3)).with_backend(Arc::new(layer)).unwrap();
        let theirs = Client::builder().with_backend(store).unwrap();
        let kept = ours.mutex("kept").lock().await.unwrap();
        // Of a name that others want too it outlives the waiters, and ends on the keeper.
        until("a subscription has ended on the keeper", || async {
            let turn = async |client: &Client| {
                let guard = client.mutex("m").lock().await.unwrap();
                tokio::time::sleep(Duration::from_millis(2)).await;
                drop(guard);
                tokio::time::sleep(Duration::from_millis(2)).await;
            };
            tokio::join!(turn(&theirs), turn(&ours), turn(&theirs), turn(&ours), turn(&theirs));
            panics.load(Ordering::SeqCst) > 0
        })
        .await;
        tokio::time::sleep(Duration::from_millis(3_500)).await;
        assert!(kept.is_valid(), "the keeper has ended");
        drop(kept);
        until_free(&theirs, "kept").await;
        tokio::time::timeout(Duration::from_secs(5), ours.close()).await.expect("closed").unwrap();
    });
}

/// A task whose waker panics when the keeper wakes it.
struct PanicsWhenWoken(AtomicUsize);

impl Wake for PanicsWhenWoken {
    fn wake(self: Arc<Self>) {
        if on_the_keeper() {
            self.0.fetch_add(1, Ordering::SeqCst);
            std::panic::resume_unwind(Box::new("on purpose"));
        }
    }
}

/// Wakers are code of somebody's executor. A loss that cannot be told to one task costs no other hold.
#[test]
fn a_waker_that_panics_does_not_end_the_keeper() {
    executor().block_on(async {
        let (ours, theirs) = two_clients("waker", Duration::from_secs(3)).await;
        let kept = ours.mutex("kept").lock().await.unwrap();
        // Told by the deadline, and by an answer of the store.
        let short = ours.mutex("short").lock().lease(Duration::from_millis(200)).await.unwrap();
        let taken = ours.mutex("taken").lock().await.unwrap();
        let woken = Arc::new(PanicsWhenWoken(AtomicUsize::new(0)));
        let (waker, mut lost) = (Waker::from(Arc::clone(&woken)), [Box::pin(short.lost()), Box::pin(taken.lost())]);
        for lost in &mut lost {
            assert!(lost.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        theirs.force_release("taken").await.unwrap();
        until("the keeper has woken both", || async { woken.0.load(Ordering::SeqCst) >= 2 }).await;
        assert!(!short.is_valid() && !taken.is_valid());
        tokio::time::sleep(Duration::from_millis(3_500)).await;
        assert!(kept.is_valid(), "the keeper has ended");
        drop(kept);
        until_free(&theirs, "kept").await;
    });
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
