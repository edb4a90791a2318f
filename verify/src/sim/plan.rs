//! What a seed draws, and how it is played: machines with clocks of their own, stores, clients and their tasks; then faults, then calm, then
//! nothing may be left.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use lockkeeper::backend::{Backend, Voter};
use lockkeeper::layer::Quorum;
use lockkeeper::runtime::World as _;
use lockkeeper::store::memory::{MemoryStore, Saved};
use lockkeeper::{Client, Name, Result};

use super::connection::Connection;
use super::link::{Link, Network};
use super::sessions::Sessions;
use super::shrink::Part;
use super::trace::Trace;
use super::voter::{Recorder, VoterLink};
use super::wire::{Air, Faults, Line, Wire};
use super::work::{Lock, NAMES, Resources, Worker};
use super::world::{Node, Universe};
use super::{Flaw, Setting, WIDER, WIDEST};

pub(super) const LEASE: Duration = Duration::from_secs(3);

/// The longest lease of a quorum's clients: as long as a server that may have forgotten votes gives none.
pub(super) const MAX_LEASE: Duration = Duration::from_secs(5);

/// In microseconds.
pub(super) const LONGEST_DELAY: u64 = 20_000;

/// How far the clock of a machine gains or loses, in millionths. Two clocks differ by less than the hundredth that a deadline allows for.
const RATE: i64 = 4_500;

/// The same for servers of a quorum. Their clocks must stay together for the whole history.
const SERVER_RATE: i64 = 500;

/// How long all tasks may take to end once there are no faults any more.
const LONGEST: Duration = Duration::from_secs(600);

/// A client, the machine that it runs on, and its connections.
pub(super) struct Machine {
    pub(super) node: Node,
    pub(super) handle: Client,
    /// One for each store.
    pub(super) lines: Vec<Arc<Line>>,
    /// To a server of sessions.
    pub(super) connection: Weak<Connection>,
    /// How many of its tasks have not ended.
    pub(super) busy: Arc<AtomicUsize>,
    /// It closes, or is closed, in the middle of the history.
    pub(super) closed: bool,
}

impl Machine {
    /// Whether it can still be asked for anything.
    pub(super) fn serves(&self) -> bool {
        self.node.exists() && !self.closed
    }
}

/// A store, and the machine that it runs on.
pub(super) struct Server {
    pub(super) node: Node,
    pub(super) store: Arc<MemoryStore>,
    /// What it has on its disk.
    pub(super) saved: Saved,
    /// Its clock is far from that of the others.
    astray: bool,
}

/// What a seed has drawn.
pub(super) struct Plan {
    pub(super) setting: Setting,
    pub(super) flaw: Flaw,
    pub(super) air: Arc<Air>,
    pub(super) stores: Vec<Server>,
    /// The server of sessions, instead of stores with leases.
    pub(super) sessions: Option<Sessions>,
    pub(super) machines: Vec<Machine>,
    /// The network to the store, unless there are several.
    network: Option<Arc<Network>>,
    workers: Vec<Worker>,
    trouble: Option<String>,
    without: Vec<Part>,
}

impl Plan {
    pub(super) fn draw(chance: &mut fastrand::Rng, universe: &Universe, of: (u64, Flaw), without: &[Part]) -> Self {
        let (seed, flaw) = of;
        let setting = Setting::of(seed);
        let clocks = !without.contains(&Part::Clocks);
        let trace = Trace::new(universe);
        let (mut stores, mut sessions) = (Vec::new(), None);
        match setting {
            Setting::RedLock => {
                let servers = if chance.u8(0..4) == 0 { 3 } else { 5 };
                stores = drawn_servers(chance, universe, servers, clocks);
            }
            Setting::Sessions => {
                let (node, events) = (drawn_node(chance, universe, clocks), chance.u8(0..4) > 0);
                sessions = Some(Sessions::start(node, flaw, events, trace.clone()));
            }
            Setting::OneStore | Setting::Failover => stores.push(Server::new(drawn_node(chance, universe, clocks))),
        }
        let clients = chance.u32(2..=3);
        let faults = draw_faults(chance, without);
        let air = Arc::new(Air {
            trace: trace.clone(),
            calm: AtomicBool::new(false),
            clients,
            seed,
            subscriptions: AtomicU64::new(0),
            faults,
            flaw,
        });
        let events = chance.bool();
        let network = stores.first().filter(|_| setting != Setting::RedLock).map(|server| {
            let store: Arc<dyn Backend> = Arc::<MemoryStore>::clone(&server.store);
            Arc::new(Network { trace, store, events, flaw, grants: Mutex::default() })
        });
        let all = match (setting == Setting::RedLock, seed) {
            (true, ..WIDER) => &Lock::BY_MAJORITY[..],
            (true, _) => &Lock::WIDER_BY_MAJORITY[..],
            (false, ..WIDER) => &Lock::ALL[..],
            (false, WIDER..WIDEST) => &Lock::WIDER[..],
            (false, _) => &Lock::WIDEST[..],
        };
        let mut locks: Vec<Lock> = all.iter().copied().filter(|_| chance.u8(0..3) == 0).collect();
        if locks.is_empty() {
            locks.push(Lock::Mutex);
        }
        let (machines, workers, without) = (Vec::new(), Vec::new(), without.to_vec());
        let mut plan = Self { setting, flaw, air, stores, sessions, machines, network, workers, trouble: None, without };
        let resources = Resources::default();
        for client in 0..clients {
            if let Err(error) = plan.add_client(client, chance, universe, &locks, &resources) {
                plan.trouble = Some(format!("a client cannot be made: {error}"));
            }
        }
        plan
    }

    /// The machines that stores run on.
    pub(super) fn servers(&self) -> Vec<Node> {
        let sessions = self.sessions.iter().map(|sessions| sessions.node.clone());
        self.stores.iter().map(|server| server.node.clone()).chain(sessions).collect()
    }

    fn add_client(
        &mut self,
        client: u32,
        chance: &mut fastrand::Rng,
        universe: &Universe,
        locks: &[Lock],
        resources: &Resources,
    ) -> Result<()> {
        let node = drawn_node(chance, universe, !self.without.contains(&Part::Clocks));
        let mut wires = Vec::new();
        for server in self.servers() {
            let delay = Duration::from_micros(chance.u64(0..LONGEST_DELAY));
            let line = Arc::new(Line::new(node.now(), server.now(), delay));
            let rng = Arc::new(Mutex::new(fastrand::Rng::with_seed(chance.u64(..))));
            wires.push(Wire { air: Arc::clone(&self.air), chance: rng, node: node.clone(), server, line });
        }
        let lines = wires.iter().map(|wire| Arc::clone(&wire.line)).collect();
        let (backend, connection) = self.backend(&node, wires)?;
        let builder = Client::builder().lease(LEASE).runtime(node.runtime()).program("simulated");
        let handle = builder.with_backend(backend)?;
        let trace = &self.air.trace;
        trace.meet(handle.id(), client);
        for task in 0..chance.u64(1..=3) {
            let rng = fastrand::Rng::with_seed(chance.u64(..));
            let turns = chance.usize(3..12);
            let number = self.workers.len();
            self.workers.push(Worker {
                client,
                node: node.clone(),
                handle: handle.clone(),
                trace: trace.clone(),
                resources: resources.clone(),
                chance: rng,
                locks: locks.to_vec(),
                turns: Part::turns_left(&self.without, number, turns),
                first_call: task * 1_000,
                flaw: self.flaw,
            });
        }
        self.machines.push(Machine { node, handle, lines, connection, busy: Arc::default(), closed: false });
        Ok(())
    }

    /// What a client on `node` talks to, and its connection to a server of sessions.
    fn backend(&self, node: &Node, mut wires: Vec<Wire>) -> Result<(Arc<dyn Backend>, Weak<Connection>)> {
        if let Some(wire) = wires.pop_if(|_| self.setting != Setting::RedLock) {
            match (&self.network, &self.sessions) {
                (Some(network), _) => return Ok((Arc::new(Link { network: Arc::clone(network), wire }), Weak::new())),
                (None, Some(sessions)) => return Ok(sessions.connect(wire, self.flaw)),
                (None, None) => {}
            }
        }
        let lead = Arc::default();
        let voters = self.stores.iter().zip(wires).enumerate().map(|(index, (server, wire))| {
            let (store, below, lead) = (Arc::clone(&server.store), Arc::clone(&server.store), Arc::clone(&lead));
            let voter: Arc<dyn Voter> = Arc::new(VoterLink { wire, store, below, flaw: self.flaw, lead });
            (format!("server {index}"), voter)
        });
        let quorum = Quorum::new(voters.collect(), MAX_LEASE, node.runtime())?;
        let servers = self.stores.iter().filter(|server| !server.astray).map(|server| server.node.clone()).collect();
        let recorder = Recorder { quorum: Arc::new(quorum), trace: self.air.trace.clone(), servers, flaw: self.flaw };
        Ok((Arc::new(recorder), Weak::new()))
    }

    /// Lets everything happen; what went wrong beside the promises.
    pub(super) async fn play(mut self, director: &Node, chance: &mut fastrand::Rng) -> Option<String> {
        if self.setting == Setting::RedLock && chance.u8(0..8) > 0 {
            // A first deployment, as the option admit=new says. Otherwise all of them wait.
            for server in &self.stores {
                server.store.admit(MAX_LEASE).await.ok()?;
            }
        }
        for worker in self.workers.drain(..) {
            let busy = Arc::clone(&self.machines[worker.client as usize].busy);
            busy.fetch_add(1, Ordering::Relaxed);
            let node = worker.node.clone();
            node.start(async move {
                worker.run().await;
                busy.fetch_sub(1, Ordering::Relaxed);
            });
        }
        for number in 0..chance.usize(0..4) {
            director.sleep(Duration::from_micros(chance.u64(1_000..400_000))).await;
            // From a seed of its own, so that what follows does not change if it is left out.
            let mut own = fastrand::Rng::with_seed(chance.u64(..));
            if !self.without.contains(&Part::Fault(number)) {
                self.disturb(director, &mut own).await;
            }
        }
        director.sleep(Duration::from_micros(chance.u64(1_000..2_000_000))).await;
        self.air.calm.store(true, Ordering::Relaxed);
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
        if let Some(unserved) = self.serve_all(director).await {
            return Some(unserved);
        }
        if self.flaw == Flaw::HoldsAreKept {
            self.keep_a_hold().await;
        }
        if let Some(left) = self.left().await.or_else(|| self.entries_left()) {
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
        // The last client ends the server of sessions.
        self.sessions = None;
        director.sleep(Duration::from_secs(60)).await;
        self.trouble
    }

    /// What is left in a store. An idle semaphore keeps its size.
    async fn left(&self) -> Option<String> {
        let stores = self.stores.iter().map(|server| Arc::<MemoryStore>::clone(&server.store) as Arc<dyn Backend>);
        let sessions = self.sessions.iter().map(|sessions| Arc::new(sessions.store.clone()) as Arc<dyn Backend>);
        for (index, store) in stores.chain(sessions).enumerate() {
            for name in NAMES.into_iter().chain(["permits"]) {
                let found = store.inspect(Name::try_from(name.to_owned()).ok()?).await.ok()?;
                let in_use = |found: &lockkeeper::backend::Snapshot| !found.holders.is_empty() || !found.queue.is_empty();
                if let Some(found) = found.filter(|found| name != "permits" || in_use(found)) {
                    return Some(format!("something is left in store {index}: {found:?}"));
                }
            }
        }
        None
    }
}

impl Server {
    fn new(node: Node) -> Self {
        let store = Arc::new(MemoryStore::new(node.runtime()));
        let saved = store.save();
        Self { node, store, saved, astray: false }
    }
}

/// Each seed draws its own subset of faults.
fn draw_faults(chance: &mut fastrand::Rng, without: &[Part]) -> Faults {
    let mut percent = |most: u8| if chance.bool() { chance.u8(1..=most) } else { 0 };
    let (lose_request, lose_answer, double, lose_notification) = (percent(10), percent(10), percent(20), percent(100));
    let delay = chance.u64(0..=LONGEST_DELAY);
    let unless = |part: Part, percent: u8| if without.contains(&part) { 0 } else { percent };
    Faults {
        lose_request: unless(Part::LostRequests, lose_request),
        lose_answer: unless(Part::LostAnswers, lose_answer),
        double: unless(Part::Copies, double),
        lose_notification: unless(Part::LostNotifications, lose_notification),
        delay: if without.contains(&Part::Delays) { 0 } else { delay },
    }
}

/// A machine with clocks of its own.
fn drawn_node(chance: &mut fastrand::Rng, universe: &Universe, clocks: bool) -> Node {
    let ahead = Duration::from_millis(chance.u64(0..100_000));
    let wall = if chance.bool() { chance.i64(-600_000_000..600_000_000) } else { 0 };
    let rate = chance.i64(-RATE..=RATE);
    if clocks { universe.node(ahead, rate, wall) } else { universe.node(Duration::ZERO, 0, 0) }
}

/// The servers of a quorum. Their wall clocks are together, except that a minority may be far off.
fn drawn_servers(chance: &mut fastrand::Rng, universe: &Universe, servers: usize, clocks: bool) -> Vec<Server> {
    let astray = if chance.u8(0..4) == 0 { chance.usize(0..=servers / 2) } else { 0 };
    let together = Duration::from_millis(chance.u64(0..100_000));
    let mut drawn = Vec::new();
    for index in 0..servers {
        let rate = chance.i64(-SERVER_RATE..=SERVER_RATE);
        let near = chance.i64(-300_000..300_000);
        let far = chance.i64(20_000_000..600_000_000) * if chance.bool() { 1 } else { -1 };
        let wall = if index < astray { far } else { near };
        let node = if clocks { universe.node(together, rate, wall) } else { universe.node(Duration::ZERO, 0, 0) };
        drawn.push(Server { astray: index < astray && clocks, ..Server::new(node) });
    }
    drawn
}
