//! Fair queues in which both wait, and that last longer than either side's sign of life: order of arrival, and nobody waits on a free lock.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper::Client;
use lockkeeper::backend::{Acquire, Attempt, Backend as _, Claim};
use lockkeeper::name::Name;
use lockkeeper::owner::{ClientId, WireOwner};
use lockkeeper::runtime::Runtime;
use lockkeeper::store::redis::{Config, RedisStore};
use tokio::sync::Barrier;

use crate::driver::{Driver, Told};
use crate::free::{FreeTimes, Span};
use crate::object::{Object, Ours};
use crate::shares::{continuous, continuous_plain};
use crate::stalls::{Meter, Stalls, wall};
use crate::world::{Java, Thread, World, unique};

/// Who waits, in order of arrival. `R` is ours, `J` is theirs, `X` is one of ours whose process dies once all wait, `D` is one of theirs
/// whose process is killed once all wait. Where one of ours that dies comes first, theirs is also the holder: only they are left to remove it.
const PATTERNS: [&str; 9] = ["RJR", "RJRJ", "JRJRJR", "RJXRJ", "JXRJR", "DJRJ", "RDJR", "JDRJ", "XJJ"];
/// The same with one side only.
const CONTROLS: [&str; 2] = ["RRRR", "JJJJ"];

/// How long all holds together last.
const LASTING: [Duration; 2] = [Duration::from_secs(8), Duration::from_secs(40)];

/// How long a waiter of ours that died keeps its place, and a little more.
const DEATH: Duration = Duration::from_secs(6);

/// The limit of the `tryLock` of a waiter of theirs that is killed: more than it takes until all wait.
const DOOMED_WAIT: Duration = Duration::from_secs(15);

/// The lease of those for whom a waiter waits that is killed. It is as long as a waiter of ours at the head of the queue is taken for alive.
const DOOMED_LEASE: Duration = Duration::from_secs(5);

/// How long a waiter of theirs that died in `tryLock` keeps its place, from when it queued: its wait and a lease.
const JAVA_DEATH: Duration = DOOMED_WAIT.saturating_add(DOOMED_LEASE);

/// The longest time for which a free lock is left alone while somebody waits, on a machine that runs everybody.
const IDLE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
struct Cell {
    pattern: &'static str,
    /// `tryLock` with this limit, or `lock`.
    wait: Option<Duration>,
    lasting: Duration,
}

impl Cell {
    /// Whether a waiter of Java's is killed in it.
    fn is_doomed(&self) -> bool {
        self.pattern.contains('D')
    }

    /// Whether nobody of ours lives in it.
    fn is_left_to_java(&self) -> bool {
        self.pattern.starts_with('X')
    }

    /// How long all of it may last.
    fn limit(&self) -> Duration {
        self.lasting + Duration::from_secs(15) + if self.is_doomed() { JAVA_DEATH } else { Duration::ZERO }
    }
}

/// A Java process whose waiters die together, once those of all cells wait.
struct Doomed {
    process: Arc<Driver>,
    java: Java,
    /// Our client whose holds have a short lease.
    client: Client,
    all_wait: Barrier,
    is_dead: Barrier,
}

impl Doomed {
    async fn start(world: &World) -> Arc<Self> {
        let (process, java) = world.doomed(crate::world::USUAL).await;
        let client = world.client_with(DOOMED_LEASE).await;
        let count = cells().iter().filter(|cell| cell.is_doomed()).count();
        Arc::new(Self { process, java, client, all_wait: Barrier::new(count), is_dead: Barrier::new(count) })
    }

    /// Returns once all cells came here and the process was killed.
    async fn die(&self) {
        if self.all_wait.wait().await.is_leader() {
            self.process.kill();
        }
        self.is_dead.wait().await;
    }
}

/// A waiter of Java's that is killed.
struct Victim {
    owner: String,
    /// When its place ends at the latest, in ms since the epoch.
    until: u64,
    _told: Told,
}

impl Victim {
    async fn start(world: &World, java: &Java, name: &str, place: usize) -> Self {
        let thread = java.thread(&unique("victim"));
        let owner = thread.owner().await;
        let told = thread.tell(format!("fair tryLock {name} {} -1", DOOMED_WAIT.as_millis()));
        world.queued(name, place + 1).await;
        Self { owner, until: wall() + u64::try_from(JAVA_DEATH.as_millis()).expect("short"), _told: told }
    }
}

/// The places in the pattern, in the order in which they were served.
type Turns = Arc<Mutex<Vec<usize>>>;

/// When a name was free while somebody waited, or what was wrong with the order.
type Found = Result<Vec<Span>, String>;

/// All cells of all versions side by side, each on a name of its own, and beside them queues that are never empty.
pub(crate) async fn queues_of_both_are_served_in_order(worlds: Vec<Arc<World>>) {
    let (meter, mut running, mut contests) = (Meter::start(), Vec::new(), Vec::new());
    for world in &worlds {
        let free = Arc::new(FreeTimes::watch(world));
        let doomed = Doomed::start(world).await;
        let mut java = world.java.clone();
        for (number, cell) in cells().into_iter().enumerate() {
            // A client of Java's listens to 40 channels at most.
            if number % 4 == 0 {
                java = world.java_with(crate::world::USUAL).await;
            }
            let cell_run = run(Arc::clone(world), java.clone(), Arc::clone(&doomed), Arc::clone(&free), cell);
            running.push((world, cell, tokio::spawn(cell_run)));
        }
        contests.push(tokio::spawn(continuous(Arc::clone(world))));
    }
    contests.push(tokio::spawn(continuous_plain(Arc::clone(&worlds[0]))));
    let (mut found, mut wrong, mut worst) = (Vec::new(), Vec::new(), Duration::ZERO);
    for (world, cell, run) in running {
        found.push((world, cell, run.await.unwrap_or_else(|panic| Err(panic.to_string()))));
    }
    for contest in contests {
        wrong.extend(contest.await.expect("no panic"));
    }
    for (world, cell, found) in found {
        let stalls = meter.read(world).await;
        match found.and_then(|spans| longest_idle(&spans, &stalls)) {
            Ok(idle) => worst = worst.max(idle),
            Err(why) => wrong.push(format!("{:?} {cell:?}: {why}", world.version)),
        }
    }
    eprintln!("{} cells, a free lock was left alone for {worst:?} at most", worlds.len() * cells().len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for pattern in PATTERNS.into_iter().chain(CONTROLS) {
        for lasting in LASTING {
            let cell = Cell { pattern, wait: None, lasting };
            cells.push(cell);
            cells.push(Cell { wait: Some(cell.limit() + Duration::from_secs(5)), ..cell });
        }
    }
    cells
}

/// The longest time for which the name was free while somebody waited; an error if that is too long, also without the stalls, of which three
/// times as much as is allowed count at most.
fn longest_idle(spans: &[Span], stalls: &Stalls) -> Result<Duration, String> {
    let mut longest = Duration::ZERO;
    for (from, to) in spans {
        let (idle, stalled) = (Duration::from_millis(to - from), stalls.within(*from, *to));
        if idle > IDLE + stalled.min(3 * IDLE) {
            return Err(format!("free for {idle:?} while somebody waited, {stalled:?} of it stalled"));
        }
        longest = longest.max(idle);
    }
    Ok(longest)
}

async fn run(world: Arc<World>, java: Java, doomed: Arc<Doomed>, free: Arc<FreeTimes>, cell: Cell) -> Found {
    let name = unique("queue");
    let holder = Holder::start(&world, &java, &doomed, &name, cell).await;
    free.add(&name);
    let (turns, mut waiters, mut dead, mut victim) = (Turns::default(), Vec::new(), None, None);
    let hold = cell.lasting / u32::try_from(cell.pattern.matches(['R', 'J']).count()).expect("few");
    for (place, kind) in cell.pattern.chars().enumerate() {
        let turns = Arc::clone(&turns);
        match kind {
            'R' => waiters.push(tokio::spawn(turn_of_ours(Arc::clone(&world), name.clone(), cell.wait, hold, turns, place))),
            'J' => {
                let thread = java.thread(&unique("waiter"));
                waiters.push(tokio::spawn(turn_of_java(thread, name.clone(), cell.wait, hold, turns, place)));
            }
            'X' => dead = Some(Mortal::start(&world.url(), &name).await),
            _ => victim = Some(Victim::start(&world, &doomed.java, &name, place).await),
        }
        world.queued(&name, place + 1).await;
    }
    if let Some(mortal) = dead {
        mortal.die();
        // Those who are served before it take their time, too.
        tokio::time::sleep(if cell.is_left_to_java() { DEATH } else { DEATH.saturating_sub(hold) }).await;
    }
    if let Some(victim) = &victim {
        doomed.die().await;
        free.excuse(&name, &victim.owner, victim.until);
        if !state(&world, &name).contains(&victim.owner) {
            return Err(format!("the waiter that was to die gave up before; the server has {}", state(&world, &name)));
        }
    }
    holder.release(&name).await?;
    let served = tokio::time::timeout(cell.limit(), futures_util::future::try_join_all(waiters)).await;
    match served {
        Ok(all) => drop(all.map_err(|panic| panic.to_string())?),
        Err(_) => return Err(format!("served only {:?}; the server has {}", turns.lock().unwrap(), state(&world, &name))),
    }
    if victim.is_some() {
        let blocked = free.blocked(&name);
        eprintln!("{:?} {cell:?}: a dead waiter of Java's blocked a free lock for {blocked:?}", world.version);
        // A dead waiter that is gone before its turn blocks nobody: then nothing was tested.
        if cell.pattern.starts_with('D') && blocked.is_zero() {
            return Err("the dead waiter was gone before its turn".to_owned());
        }
    }
    let spans = free.remove(&name);
    let turns = turns.lock().unwrap();
    if !turns.is_sorted() {
        return Err(format!("served in the order {turns:?}"));
    }
    Ok(spans)
}

/// Who holds the lock until all wait.
enum Holder {
    Ours(Ours),
    Theirs(Thread),
}

impl Holder {
    async fn start(world: &World, java: &Java, doomed: &Doomed, name: &str, cell: Cell) -> Self {
        if cell.is_left_to_java() {
            let thread = java.thread(&unique("holder"));
            thread.ask(format!("fair lock {name} -1")).await;
            return Self::Theirs(thread);
        }
        let client = if cell.is_doomed() { &doomed.client } else { &world.client };
        Self::Ours(Object::Fair.take(client, name, None).await)
    }

    async fn release(self, name: &str) -> Result<(), String> {
        match self {
            Self::Ours(guard) => guard.release().await.map_err(|error| error.to_string()),
            Self::Theirs(thread) => {
                thread.ask(format!("fair unlock {name}")).await;
                Ok(())
            }
        }
    }
}

/// The queue with the scores relative to now in ms, who listens, and what is left of the holder's lease.
fn state(world: &World, name: &str) -> String {
    const LOOK: &str = "
        local time, found, tagged = redis.call('TIME'), {}, '{' .. KEYS[1] .. '}'
        local now = time[1] * 1000 + math.floor(time[2] / 1000)
        for _, owner in ipairs(redis.call('LRANGE', 'redisson_lock_queue:' .. tagged, 0, -1)) do
          local score = redis.call('ZSCORE', 'redisson_lock_timeout:' .. tagged, owner)
          local listens = redis.call('PUBSUB', 'NUMSUB', 'redisson_lock__channel:' .. tagged .. ':' .. owner)[2]
          found[#found + 1] = owner .. ' ' .. tostring(score and score - now) .. ' ' .. listens
        end
        found[#found + 1] = 'lease ' .. redis.call('PTTL', KEYS[1])
        return found";
    let found: Vec<String> = redis::Script::new(LOOK).key(name).invoke(&mut world.eyes()).expect("a server");
    format!("{found:?}")
}

async fn turn_of_ours(world: Arc<World>, name: String, wait: Option<Duration>, hold: Duration, turns: Turns, place: usize) {
    let mutex = world.client.fair_mutex(&name);
    let lock = mutex.lock();
    let guard = if let Some(wait) = wait { lock.timeout(wait).await } else { lock.await };
    let guard = guard.unwrap_or_else(|error| panic!("waiter {place}: {error}"));
    turns.lock().unwrap().push(place);
    tokio::time::sleep(hold).await;
    guard.release().await.unwrap();
}

async fn turn_of_java(java: Thread, name: String, wait: Option<Duration>, hold: Duration, turns: Turns, place: usize) {
    let asked = match wait {
        None => java.tell(format!("fair lock {name} -1")),
        Some(wait) => java.tell(format!("fair tryLock {name} {} -1", wait.as_millis())),
    };
    assert_eq!(asked.value().await, true, "waiter {place}");
    turns.lock().unwrap().push(place);
    tokio::time::sleep(hold).await;
    java.ask(format!("fair unlock {name}")).await;
}

/// A waiter of ours that asks as a client does, until it dies: then it neither asks again nor leaves.
struct Mortal(tokio::task::JoinHandle<()>);

impl Mortal {
    async fn start(url: &str, name: &str) -> Self {
        let runtime = Runtime::system();
        let store = RedisStore::connect(Config::parse(url).expect("a good URL"), &runtime).await.expect("a server");
        let request = Acquire::new(
            Name::new(name).expect("a name"),
            Claim::Fair,
            WireOwner::new(ClientId::from_bits(7 << 64 | u128::from(std::process::id())), 1),
            crate::world::USUAL,
        )
        .with_times(runtime.now(), lockkeeper::runtime::Instant::NEVER)
        .with_place(Duration::from_secs(5));
        Self(tokio::spawn(async move {
            loop {
                let answer = store.acquire(request.clone()).await.expect("a server");
                assert!(matches!(answer, Attempt::Busy(_)), "{answer:?}");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }))
    }

    fn die(self) {
        self.0.abort();
    }
}
