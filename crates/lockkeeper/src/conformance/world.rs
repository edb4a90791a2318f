//! What a case runs in: an empty store behind a layer of faults, its clients, and a clock that the case advances.
#![allow(clippy::disallowed_methods, reason = "a test stands outside the simulation it runs")]

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Need, Running};
use crate::backend::{
    Acquire, Attempt, Backend, Capabilities, Claim, Count, CountOp, CountOutcome, Forced, Grant, Kind, Listing, Release, Renew,
    Renewed, Snapshot, Subscription, Watch,
};
use crate::layer::{self, Chaos, Metrics, Observe};
use crate::name::Name;
use crate::owner::{ClientId, WireOwner};
use crate::runtime::{Instant, Runtime};
use crate::session::{Owner, Session, Settings};

/// Whose clock a store keeps time by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Time {
    /// The runtime's: it can be moved, and a day passes at once.
    Simulated,
    /// A server's: time passes by waiting.
    Real,
    /// As [`Time::Real`], on a machine that many share: everything may take four times as long.
    Crowded,
}

impl Time {
    /// The unit that cases count in, unless the harness has another one.
    const fn unit(self) -> Duration {
        match self {
            Self::Simulated => Duration::from_secs(1),
            Self::Real => Duration::from_millis(50),
            Self::Crowded => Duration::from_millis(200),
        }
    }
}

/// What the author of a store provides.
pub trait Harness: Send + Sync + 'static {
    /// Whose clock the store keeps time by.
    fn time(&self) -> Time;

    /// The unit that the cases count time in: long for the store, short for the test. A store three times as slow as a local server
    /// gives three times as much as the default, and every bound grows with it.
    fn unit(&self) -> Duration {
        self.time().unit()
    }

    /// Why the store cannot be had on this machine, if so: its cases are skipped then, see [`skip`](super::skip).
    fn missing(&self) -> Option<String> {
        None
    }

    /// Opens an empty store that nobody else uses. What it needs is kept alive with the backend.
    fn open(&self, runtime: Runtime) -> impl Future<Output = Arc<dyn Backend>> + Send;

    /// Another connection to the store that `open` returned, as another process would have. A store with sessions opens another session.
    fn connect(&self, store: &Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::clone(store)
    }
}

/// An empty store, and all a case wants of it.
pub struct World {
    chaos: Arc<Chaos>,
    connect: Box<dyn Fn() -> Arc<dyn Backend>>,
    runtime: Runtime,
    time: Time,
    unit: Duration,
    next: AtomicU64,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("chaos", &self.chaos).field("time", &self.time).finish_non_exhaustive()
    }
}

impl World {
    /// The faults between all clients and the store; none unless asked for.
    #[must_use]
    pub fn chaos(&self) -> &Chaos {
        &self.chaos
    }

    /// The store, through the layer of faults.
    #[must_use]
    pub fn backend(&self) -> &dyn Backend {
        &*self.chaos
    }

    /// What the store can do.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.chaos.capabilities()
    }

    /// Another connection to the store, as another process has, through the same layer of faults. Nobody keeps its session alive.
    #[must_use]
    pub fn connect(&self) -> Arc<dyn Backend> {
        layer::Layer::over(&*self.chaos, (self.connect)())
    }

    /// A new client of the store, as another process would be. Its kept holds have a lease of [`World::lease`].
    #[must_use]
    pub fn client(&self) -> Session {
        self.client_with(|_| {})
    }

    /// As [`World::client`], with other settings.
    #[must_use]
    pub fn client_with(&self, change: impl FnOnce(&mut Settings)) -> Session {
        let mut settings = Settings { lease: self.lease(), ..Settings::default() };
        change(&mut settings);
        let backend = Arc::new(Observe::new(self.connect()));
        Session::observed(backend, settings, self.runtime.clone(), Arc::new(Metrics)).expect("a session on a sound store")
    }

    /// An owner of this client that can re-enter what it holds.
    #[must_use]
    pub fn owner(&self, client: &Session) -> Owner {
        Owner::new(client.id())
    }

    /// The lease of holds that are renewed.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.capabilities().liveness.session().unwrap_or_else(|| self.units(30))
    }

    /// A length of time that is long for the store and short for the test: a second where time is simulated, less where it is not.
    #[must_use]
    pub fn units(&self, count: u32) -> Duration {
        count * self.unit
    }

    /// Scales a time measured on a local idle server to this store.
    fn scaled(&self, millis: u32) -> Duration {
        millis * self.unit / 50
    }

    /// Within this time a waiter is woken by push: long before it would ask again by itself.
    #[must_use]
    pub fn soon(&self) -> Duration {
        Duration::from_millis(500).mul_f64(self.unit.as_secs_f64() / self.time.unit().as_secs_f64())
    }

    /// How much later than promised something may be seen: almost nothing where time is simulated, the delay of a busy machine
    /// where it is not.
    #[must_use]
    pub fn slack(&self) -> Duration {
        if self.time == Time::Simulated { Duration::from_millis(20) } else { self.scaled(500) }
    }

    /// The time now.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.runtime.now()
    }

    /// How long ago `then` was.
    #[must_use]
    pub fn since(&self, then: Instant) -> Duration {
        self.now().since(then)
    }

    /// Where the case gets its time from.
    #[must_use]
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Lets time pass: what is due in it happens.
    pub async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Lets all tasks run that need no time to pass (where time is real, for a moment).
    pub async fn settle(&self) {
        match self.time {
            Time::Simulated => {
                for _ in 0..64 {
                    tokio::task::yield_now().await;
                }
            }
            Time::Real | Time::Crowded => tokio::time::sleep(self.scaled(100)).await,
        }
    }

    /// As [`World::settle`], but only one step on: where time is real, a few milliseconds.
    pub async fn beat(&self) {
        match self.time {
            Time::Simulated => self.settle().await,
            Time::Real | Time::Crowded => tokio::time::sleep(self.scaled(3)).await,
        }
    }

    /// What `future` gives if it does so within `limit`.
    pub async fn within<F: Future>(&self, limit: Duration, future: F) -> Option<F::Output> {
        tokio::time::timeout(limit, future).await.ok()
    }

    /// Does `work` on a thread that has no executor, and waits for it.
    pub fn elsewhere(&self, work: impl FnOnce() + Send + 'static) {
        std::thread::spawn(work).join().expect("no panic");
    }

    /// Starts `task` beside the case.
    pub fn spawn<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> tokio::task::JoinHandle<T> {
        tokio::spawn(task)
    }

    /// Waits until `state` is so, by looking; fails if it does not become so.
    pub async fn until<F: Future<Output = bool>>(&self, what: &str, mut state: impl FnMut() -> F) {
        for _ in 0..1_000 {
            if state().await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("waited in vain until {what}");
    }

    /// An owner that no client has.
    #[must_use]
    pub fn stranger(&self) -> WireOwner {
        WireOwner { client: ClientId::from_bits(0xc0f0), number: self.next.fetch_add(1, Ordering::Relaxed) }
    }

    /// A request at the level of the contract, sent now by `owner`, that waits if the claim queues.
    #[must_use]
    pub fn ask(&self, name: &str, claim: Claim, owner: WireOwner) -> Acquire {
        let now = self.runtime.now();
        Acquire::new(Name::new(name).expect("a good name"), claim, owner, self.units(10))
            .with_times(now, now.plus(self.units(60)))
            .with_place(Duration::from_secs(5))
    }

    /// Acquires a name by a plain request.
    pub async fn take(&self, request: Acquire) -> Attempt {
        self.chaos.acquire(request).await.expect("an answer")
    }

    /// Acquires a name, which must be free, by a plain request.
    pub async fn grant(&self, request: Acquire) -> Grant {
        match self.take(request).await {
            Attempt::Granted(grant) => grant,
            other => panic!("not granted: {other:?}"),
        }
    }

    /// Another client acquires a name, which must be free, for longer than the case lasts.
    pub async fn occupy(&self, name: &str, claim: Claim) -> WireOwner {
        let owner = self.stranger();
        self.grant(Acquire { lease: Duration::from_secs(3_000), ..self.ask(name, claim, owner) }).await;
        owner
    }

    /// Releases a name by a plain request; whether it was held.
    pub async fn give_back(&self, name: &str, claim: Claim, owner: WireOwner) -> bool {
        let request = Release::new(Name::new(name).expect("a good name"), claim, owner);
        self.chaos.release(request).await.expect("an answer").held
    }

    /// Renews, or only looks, by a plain request.
    pub async fn renew(&self, name: &str, claim: Claim, owner: WireOwner, lease: Option<Duration>) -> Renewed {
        let request = Renew::new(Name::new(name).expect("a good name"), claim, owner, lease);
        let mut answers = self.chaos.renew(vec![request]).await.expect("an answer");
        answers.pop().expect("one answer each").expect("no trouble")
    }

    /// A counting request at the level of the contract, sent now.
    #[must_use]
    pub fn tell(&self, name: &str, op: CountOp) -> Count {
        let not_after = self.now().plus(self.units(60));
        Count { name: Name::new(name).expect("a good name"), id: self.stranger(), not_after, remember: self.units(120), op }
    }

    /// Counts by a plain request.
    pub async fn count(&self, request: &Count) -> CountOutcome {
        self.chaos.count(request.clone()).await.expect("an answer")
    }

    /// Subscribes by a plain request.
    pub async fn listen(&self, name: &str, kind: Kind, owner: Option<WireOwner>) -> Subscription {
        let name = Name::new(name).expect("a good name");
        let watch = match owner {
            Some(owner) => Watch::new(name, Claim::Fair, owner),
            None => Watch::number(name, kind, self.stranger()),
        };
        self.chaos.watch(watch).await.expect("a subscription")
    }

    /// Whether the subscription is notified soon.
    pub async fn is_notified(&self, subscription: &Subscription) -> bool {
        self.within(self.soon(), subscription.notified()).await.is_some()
    }

    /// Releases a name by force.
    pub async fn force(&self, name: &str) -> Forced {
        self.chaos.force_release(Name::new(name).expect("a good name")).await.expect("an answer")
    }

    /// One claim of each kind that the store supports.
    #[must_use]
    pub fn claims(&self) -> Vec<Claim> {
        let can = self.capabilities();
        [Claim::Mutex, Claim::Fair, Claim::Read, Claim::Write, Claim::Permits { take: 1, of: 1 }]
            .into_iter()
            .filter(|claim| can.supports(claim.kind()) && (can.fair || *claim != Claim::Fair))
            .collect()
    }

    /// What lies under a name.
    pub async fn look(&self, name: &str) -> Option<Snapshot> {
        self.chaos.inspect(Name::new(name).expect("a good name")).await.expect("an answer")
    }

    /// How many hold a name.
    pub async fn holders(&self, name: &str) -> usize {
        self.look(name).await.map_or(0, |found| found.holders.len())
    }

    /// How many wait for a name in the store's own queue.
    pub async fn queued(&self, name: &str) -> usize {
        self.look(name).await.map_or(0, |found| found.queue.len())
    }

    /// Everything that somebody holds or waits for.
    async fn left_behind(&self) -> Vec<Snapshot> {
        let listing = Listing { pattern: "*".to_owned(), after: None, limit: 1_000 };
        let page = self.chaos.list(listing).await.expect("a listing");
        page.found.into_iter().filter(|found| !found.holders.is_empty() || !found.queue.is_empty()).collect()
    }
}

/// Keeps the session of the world's own requests alive, which has no keeper.
async fn keep_alive(store: Arc<dyn Backend>, every: Duration) {
    loop {
        let _ = store.keep_alive().await;
        tokio::time::sleep(every).await;
    }
}

pub(super) fn run<H: Harness>(harness: H, name: &str, needs: &[Need], case: fn(&World) -> Running<'_>) {
    if let Some(why) = harness.missing() {
        super::skip(name, &why);
        return;
    }
    let (time, unit) = (harness.time(), harness.unit());
    let executor = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(time == Time::Simulated)
        .build()
        .expect("an executor");
    executor.block_on(async {
        let runtime = if time == Time::Simulated { Runtime::simulated() } else { Runtime::system() };
        let store = harness.open(runtime.clone()).await;
        let (opened, further) = (Arc::clone(&store), harness);
        let connect = Box::new(move || further.connect(&opened));
        let chaos = Arc::new(Chaos::new(Arc::clone(&store)));
        let world = World { chaos, connect, runtime, time, unit, next: AtomicU64::new(1) };
        let capabilities = world.capabilities();
        if let Some(lasts) = capabilities.liveness.session() {
            tokio::spawn(keep_alive(store, lasts / 3));
        }
        if let Some(unmet) = needs.iter().find(|need| !need.is_met(&capabilities)) {
            println!("skipped {name}: the {} store has no {unmet:?}", capabilities.store);
            return;
        }
        let limit = if time == Time::Simulated { Duration::from_secs(3_600) } else { world.scaled(60_000) };
        assert!(tokio::time::timeout(limit, case(&world)).await.is_ok(), "{name} did not end within {limit:?}");
        // Every case ends with this check. What ends by its lease gets the time for it.
        world.chaos.calm();
        let deadline = world.runtime.now().plus(world.lease() + Duration::from_secs(10));
        loop {
            let left = world.left_behind().await;
            if left.is_empty() {
                break;
            }
            assert!(world.runtime.now() < deadline, "{name} left something behind: {left:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
}
