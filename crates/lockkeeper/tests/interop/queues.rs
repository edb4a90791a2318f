//! Fair queues in which both wait, and that last longer than either side's sign of life: order of arrival, and nobody waits on a free lock.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lockkeeper::backend::{Acquire, Attempt, Backend as _, Claim};
use lockkeeper::name::Name;
use lockkeeper::owner::{ClientId, WireOwner};
use lockkeeper::runtime::Runtime;
use lockkeeper::store::redis::{Config, RedisStore};

use crate::object::Object;
use crate::world::{Java, Thread, World, unique};

/// Who waits, in order of arrival. `R` is ours, `J` is theirs, `X` is one of ours whose process dies once all wait.
const PATTERNS: [&str; 5] = ["RJR", "RJRJ", "JRJRJR", "RJXRJ", "JXRJR"];
/// The same with one side only.
const CONTROLS: [&str; 2] = ["RRRR", "JJJJ"];

/// How long all holds together last.
const LASTING: [Duration; 2] = [Duration::from_secs(8), Duration::from_secs(40)];

/// How long a waiter of ours that died keeps its place, and a little more.
const DEATH: Duration = Duration::from_secs(6);

/// The longest time that a free lock is left alone while somebody waits.
const IDLE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
struct Cell {
    pattern: &'static str,
    /// `tryLock` with this limit, or `lock`.
    wait: Option<Duration>,
    lasting: Duration,
}

/// One turn of one waiter: its place in the pattern, when it was granted, and when it began to release.
type Turns = Arc<Mutex<Vec<(usize, Instant, Instant)>>>;

pub(crate) async fn queues_of_both_are_served_in_order(world: World) {
    let world = Arc::new(world);
    let mut cells = Vec::new();
    for pattern in PATTERNS.into_iter().chain(CONTROLS) {
        for lasting in LASTING {
            cells.push(Cell { pattern, wait: None, lasting });
            cells.push(Cell { pattern, wait: Some(lasting + Duration::from_secs(20)), lasting });
        }
    }
    let mut java = world.java.clone();
    let mut running = Vec::new();
    for (number, cell) in cells.into_iter().enumerate() {
        // A client of Java's listens to 40 channels at most.
        if number % 4 == 0 {
            java = world.java_with(crate::world::USUAL).await;
        }
        running.push((cell, tokio::spawn(run(Arc::clone(&world), java.clone(), cell))));
    }
    let mut wrong = Vec::new();
    for (cell, run) in running {
        if let Err(why) = run.await.unwrap_or_else(|panic| Err(panic.to_string())) {
            wrong.push(format!("{cell:?}: {why}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

async fn run(world: Arc<World>, java: Java, cell: Cell) -> Result<(), String> {
    let name = unique("queue");
    let holder = Object::Fair.take(&world.client, &name, None).await;
    let (turns, mut waiters, mut dead) = (Turns::default(), Vec::new(), None);
    let hold = cell.lasting / u32::try_from(cell.pattern.matches(['R', 'J']).count()).expect("few");
    for (place, kind) in cell.pattern.chars().enumerate() {
        let turns = Arc::clone(&turns);
        match kind {
            'R' => {
                let (world, name) = (Arc::clone(&world), name.clone());
                waiters.push(tokio::spawn(async move {
                    let mutex = world.client.fair_mutex(&name);
                    let lock = mutex.lock();
                    let guard = if let Some(wait) = cell.wait { lock.wait(wait).await } else { lock.await };
                    let (guard, granted) = (guard.unwrap(), Instant::now());
                    tokio::time::sleep(hold).await;
                    turns.lock().unwrap().push((place, granted, Instant::now()));
                    guard.release().await.unwrap();
                }));
            }
            'J' => waiters.push(tokio::spawn(turn_of_java(
                java.thread(&unique("waiter")),
                name.clone(),
                cell.wait,
                hold,
                turns,
                place,
            ))),
            _ => dead = Some(Mortal::start(&world.url(), &name).await),
        }
        world.queued(&name, place + 1).await;
    }
    if let Some(mortal) = dead {
        mortal.die();
        tokio::time::sleep(DEATH.saturating_sub(hold)).await;
    }
    let mut free = Instant::now();
    holder.release().await.map_err(|error| error.to_string())?;
    for waiter in waiters {
        waiter.await.map_err(|panic| panic.to_string())?;
    }
    let turns = turns.lock().unwrap();
    let order: String = turns.iter().map(|(place, ..)| cell.pattern.chars().nth(*place).unwrap_or('?')).collect();
    if !turns.is_sorted_by_key(|(place, ..)| *place) {
        return Err(format!("served as {order} {:?}", turns.iter().map(|(place, ..)| place).collect::<Vec<_>>()));
    }
    for (place, granted, released) in turns.iter() {
        let idle = granted.saturating_duration_since(free);
        if idle > IDLE {
            return Err(format!("free for {idle:?} before waiter {place} had it"));
        }
        free = *released;
    }
    Ok(())
}

async fn turn_of_java(java: Thread, name: String, wait: Option<Duration>, hold: Duration, turns: Turns, place: usize) {
    let asked = match wait {
        None => java.tell(format!("fair lock {name} -1")),
        Some(wait) => java.tell(format!("fair tryLock {name} {} -1", wait.as_millis())),
    };
    assert_eq!(asked.value().await, true, "waiter {place}");
    let granted = Instant::now();
    tokio::time::sleep(hold).await;
    turns.lock().unwrap().push((place, granted, Instant::now()));
    java.ask(format!("fair unlock {name}")).await;
}

/// A waiter of ours that asks as a client does, until it dies: then it neither asks again nor leaves.
struct Mortal(tokio::task::JoinHandle<()>);

impl Mortal {
    async fn start(url: &str, name: &str) -> Self {
        let runtime = Runtime::system();
        let store = RedisStore::connect(Config::parse(url).expect("a good URL"), &runtime).await.expect("a server");
        let request = Acquire {
            name: Name::new(name).expect("a name"),
            claim: Claim::Fair,
            owner: WireOwner { client: ClientId::from_bits(7 << 64 | u128::from(std::process::id())), number: 1 },
            lease: crate::world::USUAL,
            not_after: lockkeeper::runtime::Instant::NEVER,
            since: runtime.now(),
            beside: None,
            place: Some(Duration::from_secs(5)),
            floor: 0,
        };
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
