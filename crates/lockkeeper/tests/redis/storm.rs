//! A storm: many tasks ask for everything and give up at random, through a network that delays, loses replies, resets and falls silent.
//! When it is over nothing stays held, no task goes on, and everything can be had again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lockkeeper::{Client, MultiLock};
use lockkeeper_testkit::poll::async_until_within;
use redis::Commands as _;
use tokio::time::{sleep, timeout};

use crate::proxy::{Fault, Proxy};
use crate::server::{Flavour, Server};
use crate::site::{ms, plain_connection, scripts_run};

const TASKS: u64 = 200;
const SIZE: u32 = 3;

/// Much longer than [`QUIET`]: a hold that nobody undoes does not go by itself before the test looks.
const LEASE: Duration = Duration::from_secs(30);

/// From the end of the storm until nothing is held and no task goes on.
const QUIET: Duration = Duration::from_secs(12);

/// For what does not depend on leases: what a busy machine needs.
const BOUND: Duration = Duration::from_secs(40);

/// Few names, so that the tasks meet.
const NAMES: u64 = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_seconds_leave_nothing_behind() {
    storm(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute: cargo xtask faults"]
async fn thirty_seconds_leave_nothing_behind() {
    storm(Duration::from_secs(30)).await;
}

async fn storm(length: Duration) {
    if let Some(why) = Server::missing(Flavour::Redis) {
        lockkeeper::conformance::skip("storm", &why);
        return;
    }
    let server = Server::start_with(Flavour::Redis, &[]);
    let over = Arc::new(AtomicBool::new(false));
    let network = Network::start(server.port, Arc::clone(&over));
    let url = format!("redis://127.0.0.1:{}", network.port);
    let client = Client::builder().lease(LEASE).command_timeout(ms(500)).connect(&url).await.unwrap();
    client.mutex("warm").lock().await.unwrap().release().await.unwrap();
    let before = alive();
    let (began, calls) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let tasks: Vec<_> = (0..TASKS)
        .map(|number| {
            let (client, calls) = (client.clone(), Arc::clone(&calls));
            tokio::spawn(async move {
                let mut dice = Dice(number + 1);
                while began.elapsed() < length {
                    turn(&client, &mut dice).await;
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for task in tasks {
        timeout(length + BOUND, task).await.expect("every call ends once it is given up").unwrap();
    }
    over.store(true, Ordering::SeqCst);
    let (ended, mut eyes) = (Instant::now(), plain_connection(&server.url(0)));
    let so_far = scripts_run(&mut eyes);
    loop {
        let left = held(&mut eyes);
        if left.is_empty() {
            break;
        }
        let (waited, since) = (ended.elapsed(), scripts_run(&mut eyes) - so_far);
        assert!(waited < QUIET, "still held {waited:?} after the storm and after {since} more scripts: {left:#?}");
        sleep(ms(100)).await;
    }
    let free = ended.elapsed();
    while alive() > before + 8 {
        assert!(ended.elapsed() < QUIET, "{} tasks go on {:?} after the storm, {before} before it", alive(), ended.elapsed());
        sleep(ms(20)).await;
    }
    async_until_within(BOUND, "no channel is subscribed", || {
        let channels: Vec<String> = redis::cmd("PUBSUB").arg("CHANNELS").query(&mut eyes).unwrap();
        std::future::ready(channels.is_empty())
    })
    .await;
    let calls = calls.load(Ordering::Relaxed);
    eprintln!(
        "{calls} calls in {length:?}, {} connections; free after {free:?}, quiet after {:?}",
        network.connections(),
        ended.elapsed()
    );
    assert!(calls > TASKS, "the storm was none: {calls} calls");
    for name in 0..NAMES {
        let within = Duration::from_secs(10);
        client.mutex(format!("m{name}")).lock().timeout(within).await.unwrap().release().await.unwrap();
        client.fair_mutex(format!("f{name}")).lock().timeout(within).await.unwrap().release().await.unwrap();
        client.rwlock(format!("rw{name}")).write().timeout(within).await.unwrap().release().await.unwrap();
        let all = client.semaphore(format!("s{name}"), SIZE).acquire_many(SIZE).timeout(within).await;
        all.unwrap().release().await.unwrap();
    }
    let queues: Vec<String> = eyes.keys("*{f*").unwrap();
    assert!(queues.is_empty(), "the places of given-up waiters stay: {queues:?}");
    let mut last = (scripts_run(&mut eyes), Instant::now());
    async_until_within(BOUND, "no request goes on", || {
        let now = scripts_run(&mut eyes);
        if now != last.0 {
            last = (now, Instant::now());
        }
        std::future::ready(last.1.elapsed() > Duration::from_secs(2))
    })
    .await;
    timeout(BOUND, client.close()).await.expect("closing ends").unwrap();
}

/// How many tasks this runtime has; the proxy's are elsewhere.
fn alive() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// Everything in the server that holds or queues.
fn held(eyes: &mut redis::Connection) -> Vec<String> {
    let keys: Vec<String> = eyes.keys("*").unwrap();
    let holds = |key: &String| {
        // The numbers of semaphores stay, and so do marks that hold nothing. Ended places and ended permits are removed by the next request.
        let stays = ["lockkeeper:token", "lockkeeper:client:", "lockkeeper:kind:", "lockkeeper:request:", "redisson_lock_"];
        let is_number = key.starts_with('s') && key.len() == 2;
        !is_number && !stays.iter().any(|prefix| key.starts_with(prefix))
    };
    let (seconds, _): (u64, u64) = redis::cmd("TIME").query(eyes).unwrap();
    let mut left: Vec<String> = keys.into_iter().filter(holds).collect();
    let by_end = |key: &String| key.ends_with(":timeout") || key.starts_with("lockkeeper:fair:");
    left.retain(|key| !by_end(key) || eyes.zcount::<_, _, _, u64>(key, seconds * 1000, "+inf").unwrap_or(1) > 0);
    left.into_iter().map(|key| described(eyes, key)).collect()
}

/// A key with the time that it has left and what is in it.
fn described(eyes: &mut redis::Connection, key: String) -> String {
    let left: i64 = eyes.pttl(&key).unwrap();
    let kind: String = redis::cmd("TYPE").arg(&key).query(eyes).unwrap();
    let inside = match &*kind {
        "hash" => format!("{:?}", eyes.hgetall::<_, Vec<String>>(&key)),
        "list" => format!("{:?}", eyes.lrange::<_, Vec<String>>(&key, 0, -1)),
        "zset" => format!("{} members", eyes.zcard::<_, u64>(&key).unwrap()),
        _ => String::new(),
    };
    format!("{key} {kind} {left} ms {inside}")
}

/// One call, given up after 1 to 20 ms; what it got is released, dropped, or its release is given up too.
async fn turn(client: &Client, dice: &mut Dice) {
    let (name, patience) = (dice.below(NAMES), ms(1 + dice.below(20)));
    macro_rules! attempt {
        ($asking:expr) => {
            if let Ok(Ok(guard)) = timeout(patience, $asking).await {
                sleep(ms(dice.below(3))).await;
                match dice.below(3) {
                    0 => drop(guard),
                    1 => drop(timeout(patience, guard.release()).await),
                    _ => drop(guard.release().await),
                }
            }
        };
    }
    match dice.below(7) {
        0 => attempt!(client.mutex(format!("m{name}")).lock()),
        1 => attempt!(client.fair_mutex(format!("f{name}")).lock()),
        2 => attempt!(client.rwlock(format!("rw{name}")).read()),
        // A try has a hold of its own at the server; readers of one client share one.
        3 => {
            let rwlock = client.rwlock(format!("rw{name}"));
            attempt!(async { rwlock.try_read().await.ok().flatten().ok_or(()) });
        }
        4 => attempt!(client.rwlock(format!("rw{name}")).write()),
        5 => attempt!(client.semaphore(format!("s{name}"), SIZE).acquire()),
        _ => {
            let (mutex, rwlock) = (client.mutex(format!("m{name}")), client.rwlock(format!("rw{name}")));
            let all = MultiLock::new().and(mutex.lock()).and(rwlock.write());
            attempt!(all.lock());
        }
    }
}

/// The proxy, on a thread and an executor of its own, so that the tasks of the client can be counted.
struct Network {
    port: u16,
    proxy: Arc<Proxy>,
}

impl Network {
    fn start(server_port: u16, over: Arc<AtomicBool>) -> Self {
        let (told, heard) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let proxy = Arc::new(Proxy::start(server_port).await);
                told.send(Arc::clone(&proxy)).expect("somebody waits for it");
                // Time to connect.
                sleep(ms(1_000)).await;
                trouble(&proxy, &over).await;
                calm(&proxy);
                std::future::pending::<()>().await;
            });
        });
        let proxy = heard.recv().expect("a proxy");
        Self { port: proxy.port, proxy }
    }

    fn connections(&self) -> u64 {
        self.proxy.connections()
    }
}

async fn trouble(proxy: &Proxy, over: &AtomicBool) {
    let mut dice = Dice(99);
    while !over.load(Ordering::SeqCst) {
        match dice.below(12) {
            0..4 => proxy.delay_answers(ms(dice.below(15))),
            4..7 => proxy.next("EVALSHA", Fault::LoseReply),
            7 | 8 => proxy.next("EVALSHA", Fault::CutReply(7)),
            9 => proxy.next("SUBSCRIBE", Fault::LoseReply),
            10 => proxy.reset_present_connections(),
            // For good: a connection that loses bytes and goes on is none that a network makes.
            _ => proxy.kill_present_connections_silently(),
        }
        sleep(ms(20 + dice.below(80))).await;
    }
}

fn calm(proxy: &Proxy) {
    proxy.next("no request has this text", Fault::LoseRequest);
    proxy.delay_answers(Duration::ZERO);
}

/// Numbers that look random and are the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}
