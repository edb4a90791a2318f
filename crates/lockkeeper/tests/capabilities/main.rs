//! One store per capability that lacks exactly that one: the answer is a typed error that names it, or the documented way without it.
#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]

mod waiting;

use std::fmt;
use std::sync::{Arc, Mutex as Local};
use std::time::Duration;

use lockkeeper::backend::{
    Acquire, Attempt, AttemptAll, Backend, Capabilities, Grant, Layer, Register, Release, Released, Renew, Renewed, Reply,
    StoreEvents, Subscription, Watch,
};
use lockkeeper::layer::{Chaos, Fault, Faulty};
use lockkeeper::runtime::Runtime;
use lockkeeper::session::{Session, Settings};
use lockkeeper::store::memory::MemoryStore;
use lockkeeper::{CountDownLatch, CountingSemaphore, Error, ErrorKind, FairMutex, MultiLock, Mutex, Result, RwLock, Semaphore};

/// A store that lacks something, and does not do what it says it cannot.
struct Without {
    store: Arc<dyn Backend>,
    capabilities: Capabilities,
    /// What it was asked for.
    asked: Arc<Local<Vec<Asked>>>,
}

#[derive(Clone, Debug, PartialEq)]
enum Asked {
    Acquire,
    AcquireAll,
    Registers(Register),
    SpareTokens,
    WatchInTurn,
    WatchForGrant,
    Release { handed_over: bool, settle: bool },
    ReleaseIfAlone,
    Renew,
    Events,
}

impl Without {
    fn ask(&self, what: Asked) {
        self.asked.lock().unwrap().push(what);
    }

    fn grant(&self, grant: Grant) -> Grant {
        // A store without tokens may leave anything in their place.
        if self.capabilities.fencing { grant } else { Grant::new(Some(0), grant.good_for) }
    }
}

impl fmt::Debug for Without {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Without")
    }
}

impl Layer for Without {
    fn inner(&self) -> &Arc<dyn Backend> {
        &self.store
    }

    fn over(&self, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(Self { store: inner, capabilities: self.capabilities, asked: Arc::clone(&self.asked) })
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        self.ask(Asked::Acquire);
        if request.register != Register::No {
            self.ask(Asked::Registers(request.register));
        }
        if request.spare_tokens > 0 {
            self.ask(Asked::SpareTokens);
        }
        if !self.capabilities.any_name && request.name.as_str().contains('/') {
            let refused = Error::new(ErrorKind::InvalidName, "no \"/\" in names here");
            return Box::pin(async { Err(refused) });
        }
        Box::pin(async move {
            Ok(match self.store.acquire(request).await? {
                Attempt::Granted(grant) => Attempt::Granted(self.grant(grant)),
                other => other,
            })
        })
    }

    fn acquire_all(&self, requests: Vec<Acquire>) -> Reply<'_, AttemptAll> {
        self.ask(Asked::AcquireAll);
        self.store.acquire_all(requests)
    }

    fn release(&self, request: Release) -> Reply<'_, Released> {
        self.ask(Asked::Release { handed_over: request.then.is_some(), settle: request.settle });
        if request.if_alone {
            self.ask(Asked::ReleaseIfAlone);
        }
        if request.then.as_ref().is_some_and(|then| then.spare_tokens > 0) {
            self.ask(Asked::SpareTokens);
        }
        self.store.release(request)
    }

    fn renew(&self, requests: Vec<Renew>) -> Reply<'_, Vec<Result<Renewed>>> {
        self.ask(Asked::Renew);
        self.store.renew(requests)
    }

    fn events(&self) -> StoreEvents {
        self.ask(Asked::Events);
        if self.capabilities.events { self.store.events() } else { StoreEvents::none() }
    }

    fn watch(&self, watch: Watch) -> Reply<'_, Subscription> {
        if watch.in_turn {
            self.ask(Asked::WatchInTurn);
        }
        if watch.grant.is_some() {
            self.ask(Asked::WatchForGrant);
        }
        if self.capabilities.push { self.store.watch(watch) } else { Box::pin(async { Ok(Subscription::silent()) }) }
    }
}

/// A store that lacks what `remove` takes away.
struct Lacking {
    clients: [Session; 2],
    asked: Arc<Local<Vec<Asked>>>,
    runtime: Runtime,
    chaos: Arc<Chaos>,
}

fn lacking(remove: impl FnOnce(&mut Capabilities)) -> Lacking {
    let runtime = Runtime::simulated();
    over(Arc::new(MemoryStore::new(runtime.clone())), runtime, remove)
}

fn over(store: Arc<dyn Backend>, runtime: Runtime, remove: impl FnOnce(&mut Capabilities)) -> Lacking {
    let mut capabilities = store.capabilities();
    remove(&mut capabilities);
    assert_ne!(capabilities, store.capabilities(), "nothing is lacking");
    let asked = Arc::<Local<Vec<Asked>>>::default();
    let without = Arc::new(Without { store, capabilities, asked: Arc::clone(&asked) });
    let chaos = Arc::new(Chaos::new(without));
    let client = || Session::new(Arc::clone(&chaos) as Arc<dyn Backend>, Settings::default(), runtime.clone()).unwrap();
    Lacking { clients: [client(), client()], asked, runtime: runtime.clone(), chaos: Arc::clone(&chaos) }
}

impl Lacking {
    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// Each of these errors names what is missing, and the store was not asked.
    fn refuses(&self, what: &str, errors: impl IntoIterator<Item = Error>) {
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            let message = error.to_string();
            assert!(message.contains(what) && message.contains("memory"), "{message:?} does not name {what:?}");
        }
        assert_eq!(self.asked(), [], "the store was asked for what it cannot do");
    }
}

#[tokio::test(start_paused = true)]
async fn without_mutexes_a_mutex_is_refused_by_name() {
    let store = lacking(|can| can.mutex = false);
    let [client, _] = &store.clients;
    let (mutex, fair) = (Mutex::new(client, "n"), FairMutex::new(client, "n"));
    let all = MultiLock::new().and(mutex.clone()).and(Mutex::new(client, "m"));
    store.refuses(
        "mutex",
        [
            mutex.lock().await.unwrap_err(),
            mutex.try_lock().await.unwrap_err(),
            fair.lock().await.unwrap_err(),
            all.lock().await.unwrap_err(),
            all.try_lock().await.unwrap_err(),
        ],
    );
    RwLock::new(client, "n").write().await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_a_queue_a_fair_mutex_is_refused_by_name() {
    let store = lacking(|can| can.fair = false);
    let [client, _] = &store.clients;
    let fair = FairMutex::new(client, "n");
    store.refuses("fair mutex", [fair.lock().await.unwrap_err(), fair.try_lock().await.unwrap_err()]);
    Mutex::new(client, "n").lock().await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_read_write_locks_they_are_refused_by_name() {
    let store = lacking(|can| can.rwlock = false);
    let [client, _] = &store.clients;
    let lock = RwLock::new(client, "n");
    store.refuses(
        "read-write lock",
        [
            lock.read().await.unwrap_err(),
            lock.write().await.unwrap_err(),
            lock.try_read().await.unwrap_err(),
            lock.try_write().await.unwrap_err(),
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn without_semaphores_they_are_refused_by_name() {
    let store = lacking(|can| can.semaphore = false);
    let [client, _] = &store.clients;
    let semaphore = Semaphore::new(client, "n", 2);
    store.refuses(
        "semaphore",
        [
            semaphore.acquire().await.unwrap_err(),
            semaphore.try_acquire().await.unwrap_err(),
            semaphore.available().await.unwrap_err(),
            semaphore.resize(3).await.unwrap_err(),
            semaphore.remove().await.unwrap_err(),
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn without_counting_semaphores_they_are_refused_by_name() {
    let store = lacking(|can| can.counting_semaphore = false);
    let [client, _] = &store.clients;
    let counter = CountingSemaphore::new(client, "n");
    store.refuses(
        "counting semaphore",
        [
            counter.acquire(1).await.unwrap_err(),
            counter.try_acquire(1).await.unwrap_err(),
            counter.release(1).await.unwrap_err(),
            counter.available().await.unwrap_err(),
            counter.drain().await.unwrap_err(),
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn without_latches_they_are_refused_by_name() {
    let store = lacking(|can| can.latch = false);
    let [client, _] = &store.clients;
    let latch = CountDownLatch::new(client, "n");
    store.refuses(
        "count-down latch",
        [
            latch.try_set(1).await.unwrap_err(),
            latch.count_down().await.unwrap_err(),
            latch.count().await.unwrap_err(),
            latch.wait().await.unwrap_err(),
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn without_fencing_there_is_no_token_rather_than_a_zero() {
    let store = lacking(|can| can.fencing = false);
    let [client, _] = &store.clients;
    let guard = Mutex::new(client, "m").lock().await.unwrap();
    assert_eq!(guard.token(), None);
    guard.release().await.unwrap();
    let lock = RwLock::new(client, "r");
    let reader = lock.downgrade(lock.write().await.unwrap()).await.unwrap();
    assert_eq!(reader.token(), None);
    reader.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_hand_over_waiters_of_one_process_still_get_their_turn() {
    let store = lacking(|can| can.hand_over = false);
    let [client, _] = store.clients.clone();
    let guard = Mutex::new(&client, "m").lock().await.unwrap();
    let waiters: Vec<_> = (0..5)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { Mutex::new(&client, "m").lock().await.unwrap().release().await.unwrap() })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(100)).await;
    guard.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap();
    }
    let handed_over = store.asked().iter().any(|asked| matches!(asked, Asked::Release { handed_over: true, .. }));
    assert!(!handed_over, "the store was asked to hand over");
}

#[tokio::test(start_paused = true)]
async fn without_several_names_in_one_step_they_are_acquired_one_by_one() {
    let store = lacking(|can| can.acquire_all = false);
    let [ours, theirs] = &store.clients;
    let all = MultiLock::new().and(Mutex::new(ours, "a")).and(Mutex::new(ours, "b"));
    let guard = all.lock().await.unwrap();
    for name in ["a", "b"] {
        assert!(Mutex::new(theirs, name).try_lock().await.unwrap().is_none());
    }
    guard.release().await.unwrap();
    let held = Mutex::new(theirs, "b").lock().await.unwrap();
    assert!(all.try_lock().await.unwrap().is_none());
    assert!(Mutex::new(theirs, "a").try_lock().await.unwrap().is_some(), "a refused call kept a part");
    held.release().await.unwrap();
    assert!(!store.asked().contains(&Asked::AcquireAll));
}

#[tokio::test(start_paused = true)]
async fn a_name_that_the_store_cannot_keep_is_refused_as_a_name() {
    let store = lacking(|can| can.any_name = false);
    let [client, _] = &store.clients;
    let error = Mutex::new(client, "a/b").lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidName, "{error}");
    Mutex::new(client, "a:b").lock().await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn where_late_requests_are_carried_out_an_unanswered_one_is_settled_by_its_release() {
    let store = lacking(|can| can.refuses_late = false);
    let [client, _] = &store.clients;
    store.chaos.always(Faulty::Acquire, Fault::LoseReply);
    let error = Mutex::new(client, "m").lock().timeout(Duration::from_secs(2)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate);
    store.chaos.calm();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let asked = store.asked();
    assert!(asked.contains(&Asked::Release { handed_over: false, settle: true }), "{asked:?}");
    Mutex::new(client, "m").try_lock().await.unwrap().expect("free").release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lease_or_a_name_beyond_the_limits_of_the_store_is_refused_with_the_limit() {
    let store = lacking(|can| {
        *can = can.with_leases(Duration::from_secs(1), Duration::from_secs(60)).with_longest_name(20);
    });
    let [client, _] = &store.clients;
    for lease in [Duration::from_millis(999), Duration::from_secs(61)] {
        let error = Mutex::new(client, "m").lock().lease(lease).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("1s to 60s"), "{error}");
    }
    let long = "x".repeat(21);
    for error in
        [Mutex::new(client, &long).lock().await.unwrap_err(), CountDownLatch::new(client, &long).count().await.unwrap_err()]
    {
        assert_eq!(error.kind(), ErrorKind::InvalidName);
        assert!(error.to_string().contains("20"), "{error}");
    }
    Mutex::new(client, &long[..20]).lock().lease(Duration::from_secs(1)).await.unwrap().release().await.unwrap();
}

/// The rows of the table in docs/store-authors.md, each with the names in its first cell.
fn rows() -> Vec<Vec<&'static str>> {
    const PAGE: &str = include_str!("../../../../docs/store-authors.md");
    let table = PAGE.split("| left out |").nth(1).and_then(|rest| rest.split("\n\n").next()).expect("the table of capabilities");
    let cells = table.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    cells.map(|cell| cell.split('`').skip(1).step_by(2).collect()).collect()
}

/// Whether a test here takes this capability away, or adds it.
fn is_tested(capability: &str) -> bool {
    let here = concat!(include_str!("main.rs"), include_str!("waiting.rs"));
    let with = if ["min_lease", "max_lease"].contains(&capability) { "leases" } else { capability };
    here.contains(&format!("can.{capability} =")) || here.contains(&format!(".with_{with}("))
}

#[test]
fn each_row_of_the_page_for_authors_of_stores_has_a_test() {
    let rows = rows();
    assert!(rows.len() >= 12, "{rows:?}");
    let missing: Vec<_> = rows.iter().flatten().filter(|capability| !is_tested(capability)).collect();
    assert!(missing.is_empty(), "no test for {missing:?}");
    assert!(!is_tested("telepathy"));
}
