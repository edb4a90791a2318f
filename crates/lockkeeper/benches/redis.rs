//! How fast locks on Redis are beside the floor, in one alternated run: printed, never asserted.
//!
//! The floor is one multiplexed connection, the same tasks, and the shortest scripts that take and give back a hash: no token, no
//! keeper, no lateness, no batches. `cargo xtask bench` runs it against a server that it starts.
#![allow(clippy::disallowed_methods, missing_docs, reason = "a benchmark reads the clock")]

#[path = "../tests/redis/server.rs"]
#[allow(dead_code, reason = "shared with the tests, which use more of it")]
mod server;

use std::time::{Duration, Instant};

use lockkeeper::Client;
use redis::aio::MultiplexedConnection;
use server::{Flavour, Server};

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(600);

fn main() {
    if let Some(why) = Server::missing(Flavour::Redis) {
        println!("skipped: {why}");
        return;
    }
    let server = Server::start(Flavour::Redis);
    let executor = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("an executor");
    executor.block_on(async {
        let client = Client::connect(server.url(0)).await.expect("a server");
        let floor = Floor::connect(&server.url(1)).await;
        println!("redis on loopback, {ROUNDS} alternated rounds of {ROUND:?}: median cycles/s (lock and release), ours beside the floor");
        for tasks in [1, 16, 64, 512] {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                ours.push(rate(tasks, |task| our_cycles(client.clone(), task)).await);
                theirs.push(rate(tasks, |task| floor_cycles(floor.clone(), task)).await);
            }
            let (ours, theirs) = (median(ours), median(theirs));
            println!("{tasks:>4} tasks, own locks   {ours:>9.0}   floor {theirs:>9.0}   ratio {:.2}", ours / theirs);
        }
        let pings = rate(1, |_| pings(floor.clone())).await;
        let ours = rate(1, |task| our_cycles(client.clone(), task)).await;
        println!("   1 task: a cycle takes {:.2} × two PINGs", pings / 2.0 / ours);
    });
}

/// Turns per second of all tasks together.
async fn rate<F: Future<Output = u64> + Send + 'static>(tasks: usize, work: impl Fn(usize) -> F) -> f64 {
    let began = Instant::now();
    let running: Vec<_> = (0..tasks).map(|task| tokio::spawn(work(task))).collect();
    let mut turns = 0;
    for task in running {
        turns += task.await.expect("no task panics");
    }
    turns as f64 / began.elapsed().as_secs_f64()
}

async fn our_cycles(client: Client, task: usize) -> u64 {
    let mutex = client.mutex(format!("bench:{task}"));
    let (began, mut turns) = (Instant::now(), 0);
    while began.elapsed() < ROUND {
        mutex.lock().await.expect("free").release().await.expect("held");
        turns += 1;
    }
    turns
}

#[derive(Clone)]
struct Floor {
    connection: MultiplexedConnection,
    take: redis::Script,
    give: redis::Script,
}

impl Floor {
    async fn connect(url: &str) -> Self {
        let client = redis::Client::open(format!("{url}?protocol=resp3")).expect("a URL");
        let connection = client.get_multiplexed_async_connection().await.expect("a server");
        let take = "if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('HSET', KEYS[1], ARGV[1], 1) redis.call('PEXPIRE', KEYS[1], 30000) return 1 end return 0";
        let give = "if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then redis.call('DEL', KEYS[1]) redis.call('PUBLISH', ARGV[2], '0') return 1 end return 0";
        Self { connection, take: redis::Script::new(take), give: redis::Script::new(give) }
    }
}

async fn floor_cycles(mut floor: Floor, task: usize) -> u64 {
    let (name, owner, channel) = (format!("bench:{task}"), format!("owner:{task}"), format!("channel:{task}"));
    let (began, mut turns) = (Instant::now(), 0);
    while began.elapsed() < ROUND {
        let _: i64 = floor.take.key(&name).arg(&owner).invoke_async(&mut floor.connection).await.expect("an answer");
        let _: i64 =
            floor.give.key(&name).arg(&owner).arg(&channel).invoke_async(&mut floor.connection).await.expect("an answer");
        turns += 1;
    }
    turns
}

async fn pings(mut floor: Floor) -> u64 {
    let (began, mut turns) = (Instant::now(), 0);
    while began.elapsed() < ROUND {
        redis::cmd("PING").exec_async(&mut floor.connection).await.expect("an answer");
        turns += 1;
    }
    turns
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}
