//! A first simulation: real clients on one thread, on tokio's paused clock, over a network and faults that a seed draws.
//!
//! It is not the exact simulation yet: see `docs/decisions/0014-towards-an-exact-simulation.md` for the doors that are still open.
#![allow(clippy::disallowed_methods, reason = "network and program around the clients stand outside of them")]

mod link;
mod trace;
mod work;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper::backend::Backend;
use lockkeeper::runtime::Runtime;
use lockkeeper::store::memory::MemoryStore;
use lockkeeper::{Client, Name, WireOwner};
use tokio::time::sleep;

use crate::history::{Event, What};
use crate::referee::{Limits, Referee, Verdict};
pub use link::Flaw;
use link::{Faults, Link, Network};
use trace::Trace;
use work::{NAMES, Resources, Worker};

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
}

impl History {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.verdict.violations.is_empty() && self.trouble.is_none()
    }
}

const LEASE: Duration = Duration::from_secs(3);
const LONGEST_DELAY: u64 = 20;

/// Runs the history of a seed.
///
/// # Panics
///
/// If tokio cannot make a runtime.
#[must_use]
pub fn simulate(seed: u64, flaw: Flaw) -> History {
    // For the pauses that the library draws by chance.
    fastrand::seed(seed);
    let executor = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let executor = executor.expect("a runtime of one thread");
    let (events, trouble, end) = executor.block_on(play(seed, flaw));
    let millis = |count: u64| count * 1_000_000;
    let limits = Limits {
        round_trip: millis(2 * LONGEST_DELAY + 10),
        slack: millis(5),
        longest_delay: millis(2 * LONGEST_DELAY),
        // A second without notifications, and the back-off after a release.
        free_while_waited_for: millis(1_100),
        asked_from: millis(3_000),
        ..Limits::default()
    };
    let mut referee = Referee::new(limits);
    events.iter().for_each(|event| referee.observe(event));
    History { seed, digest: trace::digest(&events), verdict: referee.finish(end), trouble, events }
}

/// Each seed draws its own subset of faults.
fn draw(chance: &mut fastrand::Rng) -> Faults {
    let mut percent = |most: u8| if chance.bool() { chance.u8(1..=most) } else { 0 };
    let (lose_request, lose_answer, double, lose_notification) = (percent(10), percent(10), percent(20), percent(100));
    Faults { lose_request, lose_answer, double, lose_notification, delay: chance.u64(0..=LONGEST_DELAY) }
}

async fn play(seed: u64, flaw: Flaw) -> (Vec<Event>, Option<String>, u64) {
    let mut chance = fastrand::Rng::with_seed(seed);
    let runtime = Runtime::simulated();
    let trace = Trace::new(runtime.clone());
    let store = Arc::new(MemoryStore::new(runtime.clone()));
    let clients = chance.u32(2..=3);
    let faults = draw(&mut chance);
    let network = Arc::new(Network {
        trace: trace.clone(),
        calm: AtomicBool::new(false),
        clients,
        seed,
        subscriptions: AtomicU64::new(0),
        store: Arc::<MemoryStore>::clone(&store),
        flaw,
    });
    let resources = Resources::default();
    let mut tasks = Vec::new();
    let mut handles = Vec::new();
    for client in 0..clients {
        let dead = Arc::new(AtomicBool::new(false));
        let rng = Arc::new(Mutex::new(fastrand::Rng::with_seed(chance.u64(..))));
        let link = Link { client, network: Arc::clone(&network), faults, chance: rng, dead: Arc::clone(&dead) };
        let builder = Client::builder().lease(LEASE).runtime(runtime.clone()).program("simulated");
        let handle = match builder.with_backend(Arc::new(link)) {
            Ok(handle) => handle,
            Err(error) => return (trace.take(), Some(format!("a client cannot be made: {error}")), trace.now()),
        };
        trace.meet(handle.id(), client);
        for task in 0..chance.u64(1..=3) {
            let worker = Worker {
                client,
                handle: handle.clone(),
                trace: trace.clone(),
                resources: resources.clone(),
                chance: fastrand::Rng::with_seed(chance.u64(..)),
                turns: chance.usize(3..12),
                first_call: task * 1_000,
            };
            tasks.push((client, tokio::spawn(worker.run())));
        }
        handles.push((handle, dead));
    }
    let store_faults = chance.usize(0..3);
    for _ in 0..store_faults {
        sleep(Duration::from_millis(chance.u64(1..400))).await;
        disturb(&mut chance, &trace, &store, &handles, &mut tasks).await;
    }
    sleep(Duration::from_millis(chance.u64(1..2_000))).await;
    network.calm.store(true, Ordering::Relaxed);
    let mut trouble = None;
    for (client, task) in tasks {
        match tokio::time::timeout(Duration::from_secs(600), task).await {
            Ok(Ok(())) => {}
            Ok(Err(panic)) => trouble = Some(format!("a task of client {client} panicked: {panic}")),
            Err(_) => trouble = Some(format!("a task of client {client} hangs")),
        }
    }
    // Undos of what was lost may still be under way.
    sleep(LEASE + Duration::from_secs(10)).await;
    if !store.is_empty() {
        trouble = trouble.or_else(|| Some("something is left in the store".to_owned()));
    }
    (trace.take(), trouble, trace.now())
}

type Task = (u32, tokio::task::JoinHandle<()>);

/// A fault of the store or of a whole client.
async fn disturb(
    chance: &mut fastrand::Rng,
    trace: &Trace,
    store: &MemoryStore,
    handles: &[(Client, Arc<AtomicBool>)],
    tasks: &mut Vec<Task>,
) {
    match chance.u8(0..4) {
        0 => {
            store.forget();
            trace.add(0, What::Unhealthy { forgot: true, lag: 0 });
        }
        1 => {
            store.flush();
            trace.add(0, What::Unhealthy { forgot: true, lag: 0 });
        }
        2 => {
            let name = NAMES[chance.usize(0..NAMES.len())].0;
            let Ok(from) = store.force_release(Name::try_from(name.to_owned()).expect("a valid name")).await else { return };
            for owner in from.from.iter().filter_map(|holder| holder.owner.parse::<WireOwner>().ok()) {
                let (client, owner) = trace.owner(owner);
                trace.add(client, What::Freed { name: name.to_owned(), owner, forced: true });
            }
        }
        _ => {
            let crashed = chance.usize(0..handles.len());
            handles[crashed].1.store(true, Ordering::Relaxed);
            let crashed = u32::try_from(crashed).unwrap_or(u32::MAX);
            trace.add(crashed, What::Crashed);
            tasks.retain(|(client, task)| {
                if *client == crashed {
                    task.abort();
                }
                *client != crashed
            });
        }
    }
}
