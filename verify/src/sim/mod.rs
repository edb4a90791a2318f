//! The simulation: real clients, a store and a network in one world, in which everything follows from a seed.
//!
//! Each history draws what it locks, which faults there are, and how likely they are. The referee judges it in true time.

mod link;
mod trace;
mod work;
mod world;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockkeeper::backend::Backend as _;
use lockkeeper::runtime::World as _;
use lockkeeper::store::memory::MemoryStore;
use lockkeeper::{Client, Name, WireOwner};

use crate::history::{Event, What};
use crate::referee::{Limits, Referee, Verdict};
pub use link::Flaw;
use link::{Faults, Line, Link, Network};
use trace::Trace;
use work::{Lock, NAMES, Resources, Worker};
use world::{Node, Universe};

/// What came of one seed.
#[derive(Debug)]
pub struct History {
    /// The seed it was drawn from.
    pub seed: u64,
    /// A digest of all events; two runs of a seed must agree.
    pub digest: u64,
    /// What the referee says.
    pub verdict: Verdict,
    /// What went wrong beside the promises: a task that hangs, something left in the store.
    pub trouble: Option<String>,
    /// The events.
    pub events: Vec<Event>,
    /// How often tasks were polled.
    pub polls: u64,
}

impl History {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.verdict.violations.is_empty() && self.trouble.is_none()
    }
}

const LEASE: Duration = Duration::from_secs(3);

/// In microseconds.
const LONGEST_DELAY: u64 = 20_000;

/// How far the clock of a machine gains or loses, in millionths. Two clocks differ by less than the hundredth that a deadline allows for.
const RATE: i64 = 4_500;

/// A history that needs more polls hangs.
const MOST_POLLS: u64 = 20_000_000;

/// How long all tasks may take to end once there are no faults any more.
const LONGEST: Duration = Duration::from_secs(600);

/// Runs the history of a seed.
#[must_use]
pub fn simulate(seed: u64, flaw: Flaw) -> History {
    let mut chance = fastrand::Rng::with_seed(seed);
    let cost = if chance.bool() { Duration::from_micros(chance.u64(1..50)) } else { Duration::ZERO };
    let universe = Universe::new(chance.u64(..), cost);
    // It stands outside: its clock is the true time.
    let director = universe.node(Duration::ZERO, 0, 0);
    let plan = Plan::draw(&mut chance, &universe, seed, flaw);
    let (trace, server, doubles) = (plan.network.trace.clone(), plan.network.server.clone(), plan.faults.double > 0);
    let trouble = Arc::new(Mutex::new(None));
    let done = Arc::new(AtomicBool::new(false));
    {
        let (trouble, done) = (Arc::clone(&trouble), Arc::clone(&done));
        let node = director.clone();
        director.start(async move {
            let found = plan.play(&node, &mut chance).await;
            *trouble.lock().unwrap_or_else(PoisonError::into_inner) = found;
            done.store(true, Ordering::Relaxed);
        });
    }
    let ended = universe.run_until(|| done.load(Ordering::Relaxed), MOST_POLLS);
    let (end, polls, left) = (universe.now(), universe.polls(), universe.tasks_left(&director, &server));
    let events = trace.take();
    universe.end();
    let mut trouble = trouble.lock().unwrap_or_else(PoisonError::into_inner).take();
    if !ended {
        trouble = Some(format!("the history does not end: {polls} polls, {:.3} s", end as f64 / 1e9));
    } else if left > 0 {
        trouble = trouble.or_else(|| Some(format!("{left} tasks are left after all clients were closed")));
    }
    let mut referee = Referee::new(limits(doubles));
    events.iter().for_each(|event| referee.observe(event));
    History { seed, digest: trace::digest(&events), verdict: referee.finish(end), trouble, events, polls }
}

fn limits(copies: bool) -> Limits {
    let micros = |count: u64| count * 1_000;
    Limits {
        round_trip: micros(2 * LONGEST_DELAY + 10_000),
        slack: micros(5_000),
        longest_delay: micros(2 * LONGEST_DELAY),
        // A second without notifications, and the back-off after a release.
        free_while_waited_for: micros(1_100_000),
        asked_from: micros(3_000_000),
        clock_error: 5_000,
        copies,
        ..Limits::default()
    }
}

/// A client, the machine that it runs on, and its connection.
struct Machine {
    node: Node,
    handle: Client,
    line: Arc<Line>,
    /// How many of its tasks have not ended.
    busy: Arc<AtomicUsize>,
}

/// What a seed has drawn.
struct Plan {
    network: Arc<Network>,
    store: Arc<MemoryStore>,
    faults: Faults,
    machines: Vec<Machine>,
    workers: Vec<Worker>,
    trouble: Option<String>,
}

impl Plan {
    fn draw(chance: &mut fastrand::Rng, universe: &Universe, seed: u64, flaw: Flaw) -> Self {
        let server = drawn_node(chance, universe);
        let store = Arc::new(MemoryStore::new(server.runtime()));
        let trace = Trace::new(universe, &server);
        let clients = chance.u32(2..=3);
        let faults = draw_faults(chance);
        let network = Arc::new(Network {
            trace: trace.clone(),
            calm: AtomicBool::new(false),
            clients,
            seed,
            subscriptions: AtomicU64::new(0),
            server,
            store: Arc::<MemoryStore>::clone(&store),
            events: chance.bool(),
            flaw,
            grants: Mutex::default(),
        });
        let mut locks: Vec<Lock> = Lock::ALL.into_iter().filter(|_| chance.u8(0..3) == 0).collect();
        if locks.is_empty() {
            locks.push(Lock::Mutex);
        }
        let mut plan = Self { network, store, faults, machines: Vec::new(), workers: Vec::new(), trouble: None };
        let resources = Resources::default();
        for client in 0..clients {
            plan.add_client(client, chance, universe, &locks, &resources);
        }
        plan
    }

    fn add_client(
        &mut self,
        client: u32,
        chance: &mut fastrand::Rng,
        universe: &Universe,
        locks: &[Lock],
        resources: &Resources,
    ) {
        let node = drawn_node(chance, universe);
        let (network, trace) = (Arc::clone(&self.network), self.network.trace.clone());
        let delay = Duration::from_micros(chance.u64(0..LONGEST_DELAY));
        let line = Arc::new(Line::new(node.now(), network.server.now(), delay));
        let rng = Arc::new(Mutex::new(fastrand::Rng::with_seed(chance.u64(..))));
        let link = Link { network, faults: self.faults, chance: rng, node: node.clone(), line: Arc::clone(&line) };
        let builder = Client::builder().lease(LEASE).runtime(node.runtime()).program("simulated");
        let handle = match builder.with_backend(Arc::new(link)) {
            Ok(handle) => handle,
            Err(error) => {
                self.trouble = Some(format!("a client cannot be made: {error}"));
                return;
            }
        };
        trace.meet(handle.id(), client);
        for task in 0..chance.u64(1..=3) {
            self.workers.push(Worker {
                client,
                node: node.clone(),
                handle: handle.clone(),
                trace: trace.clone(),
                resources: resources.clone(),
                chance: fastrand::Rng::with_seed(chance.u64(..)),
                locks: locks.to_vec(),
                turns: chance.usize(3..12),
                first_call: task * 1_000,
            });
        }
        self.machines.push(Machine { node, handle, line, busy: Arc::default() });
    }

    /// Lets everything happen; what went wrong beside the promises.
    async fn play(mut self, director: &Node, chance: &mut fastrand::Rng) -> Option<String> {
        for worker in self.workers.drain(..) {
            let busy = Arc::clone(&self.machines[worker.client as usize].busy);
            busy.fetch_add(1, Ordering::Relaxed);
            let node = worker.node.clone();
            node.start(async move {
                worker.run().await;
                busy.fetch_sub(1, Ordering::Relaxed);
            });
        }
        for _ in 0..chance.usize(0..4) {
            director.sleep(Duration::from_micros(chance.u64(1_000..400_000))).await;
            self.disturb(director, chance).await;
        }
        director.sleep(Duration::from_micros(chance.u64(1_000..2_000_000))).await;
        self.network.calm.store(true, Ordering::Relaxed);
        let mut waited = Duration::ZERO;
        while self.machines.iter().any(|machine| machine.node.exists() && machine.busy.load(Ordering::Relaxed) > 0) {
            if waited >= LONGEST {
                return Some("a task hangs".to_owned());
            }
            waited += Duration::from_millis(100);
            director.sleep(Duration::from_millis(100)).await;
        }
        // Undos of what was lost may still be under way.
        director.sleep(LEASE + Duration::from_secs(10)).await;
        if let Some(left) = self.left().await {
            return Some(left);
        }
        for machine in self.machines.drain(..).filter(|machine| machine.node.exists()) {
            let (handle, busy) = (machine.handle, Arc::clone(&machine.busy));
            busy.fetch_add(1, Ordering::Relaxed);
            machine.node.start(async move {
                // What it says was judged by what is left.
                drop(handle.close().await);
                busy.fetch_sub(1, Ordering::Relaxed);
            });
        }
        director.sleep(Duration::from_secs(60)).await;
        self.trouble
    }

    /// What is left in the store. An idle semaphore keeps its size.
    async fn left(&self) -> Option<String> {
        for name in NAMES.into_iter().chain(["permits"]) {
            let found = self.store.inspect(Name::try_from(name.to_owned()).ok()?).await.ok()?;
            if let Some(found) = found.filter(|found| name != "permits" || !found.holders.is_empty() || !found.queue.is_empty()) {
                return Some(format!("something is left in the store: {found:?}"));
            }
        }
        None
    }

    /// A fault of the store, of a whole client or of its connection.
    async fn disturb(&mut self, director: &Node, chance: &mut fastrand::Rng) {
        let trace = &self.network.trace;
        let which = chance.usize(0..self.machines.len());
        let (client, machine) = (u32::try_from(which).unwrap_or(u32::MAX), &self.machines[which]);
        let time = Duration::from_micros(chance.u64(1_000..6_000_000));
        match chance.u8(0..8) {
            0 => {
                self.store.forget();
                trace.add(0, What::Unhealthy { forgot: true, lag: 0 });
            }
            1 => {
                self.store.flush();
                trace.add(0, What::Unhealthy { forgot: true, lag: 0 });
            }
            2 => {
                let name = NAMES[chance.usize(0..NAMES.len())];
                let Ok(name) = Name::try_from(name.to_owned()) else { return };
                let Ok(forced) = self.store.force_release(name.clone()).await else { return };
                for owner in forced.from.iter().filter_map(|holder| holder.owner.parse::<WireOwner>().ok()) {
                    let (client, owner) = trace.owner(owner);
                    trace.add(client, What::Freed { name: name.as_str().to_owned(), owner, forced: true });
                }
            }
            3 => {
                machine.node.crash();
                machine.line.dead.store(true, Ordering::Relaxed);
                trace.add(client, What::Crashed);
            }
            4 | 5 => {
                trace.add(client, What::Paused);
                machine.node.stall(time);
                director.sleep(time).await;
                if machine.node.exists() {
                    trace.add(client, What::Resumed);
                }
            }
            6 => {
                trace.add(client, What::Cut);
                machine.line.requests_cut.store(chance.bool(), Ordering::Relaxed);
                machine.line.answers_cut.store(true, Ordering::Relaxed);
                director.sleep(time).await;
                machine.line.requests_cut.store(false, Ordering::Relaxed);
                machine.line.answers_cut.store(false, Ordering::Relaxed);
                trace.add(client, What::Healed);
                // A request without an answer is repeated when its time limit is over.
                trace.add(client, What::Disturbed { lasts: link::DISTURBANCE });
            }
            _ => machine.node.step_wall(chance.i64(-600_000_000..600_000_000)),
        }
    }
}

/// Each seed draws its own subset of faults.
fn draw_faults(chance: &mut fastrand::Rng) -> Faults {
    let mut percent = |most: u8| if chance.bool() { chance.u8(1..=most) } else { 0 };
    let (lose_request, lose_answer, double, lose_notification) = (percent(10), percent(10), percent(20), percent(100));
    Faults { lose_request, lose_answer, double, lose_notification, delay: chance.u64(0..=LONGEST_DELAY) }
}

/// A machine with clocks of its own.
fn drawn_node(chance: &mut fastrand::Rng, universe: &Universe) -> Node {
    let ahead = Duration::from_millis(chance.u64(0..100_000));
    let wall = if chance.bool() { chance.i64(-600_000_000..600_000_000) } else { 0 };
    universe.node(ahead, chance.i64(-RATE..=RATE), wall)
}
