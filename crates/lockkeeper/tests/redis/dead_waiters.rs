//! Waiters of a fair mutex whose process died: they cost the server little, however many they are, and nobody else anything.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper::backend::{Acquire, Attempt, Backend as _, Claim};
use lockkeeper::name::Name;
use lockkeeper::owner::{ClientId, WireOwner};
use lockkeeper::runtime::Runtime;
use lockkeeper::store::redis::{Config, RedisStore};
use lockkeeper::{Client, MultiLock};
use redis::{Commands as _, Connection};

use crate::cost::own;
use crate::scale::{Part, STREAM, log_slow_scripts, replicated, start_replication};
use crate::site::until;

/// What one script may cost.
pub(crate) const LIMIT: Duration = Duration::from_millis(50);

/// For how long the dead keep their places, unless a test ends them.
const PLACE: Duration = Duration::from_secs(600);

/// One request of a fair waiter, as its client sends it about once a second.
pub(crate) fn fair_request(name: &str, number: u64, place: Duration) -> Acquire {
    Acquire::new(
        Name::new(name).expect("a name"),
        Claim::Fair,
        WireOwner::new(ClientId::from_bits(77), number),
        Duration::from_secs(30),
    )
    .with_times(Runtime::system().now(), lockkeeper::runtime::Instant::NEVER)
    .with_place(place)
}

/// Lets so many wait whose process dies at once: they never ask again.
pub(crate) async fn die_waiting(url: &str, name: &str, count: u64, place: Duration) {
    let store = RedisStore::connect(Config::parse(url).expect("a good URL"), &Runtime::system()).await.expect("a server");
    for chunk in (0..count).collect::<Vec<_>>().chunks(500) {
        let asked: Vec<_> = chunk
            .iter()
            .map(|number| {
                let (store, request) = (Arc::clone(&store), fair_request(name, *number, place));
                tokio::spawn(async move { store.acquire(request).await.expect("a server") })
            })
            .collect();
        for answer in asked {
            assert!(matches!(answer.await.expect("no panic"), Attempt::Busy(_)));
        }
    }
}

/// Ends the places of all that `die_waiting` left behind, some at a time: this is not the work that is measured.
pub(crate) fn end_places(eyes: &mut Connection, name: &str) {
    let (signs, client) = (format!("lockkeeper:fair:{{{name}}}"), format!("{}:", ClientId::from_bits(77)));
    let owners: Vec<String> = eyes.zrange(&signs, 0, -1).expect("a server");
    let dead: Vec<(f64, String)> =
        owners.into_iter().filter(|owner| owner.starts_with(&client)).map(|owner| (1.0, owner)).collect();
    for some in dead.chunks(250) {
        eyes.zadd_multiple::<_, _, _, ()>(&signs, some).expect("a server");
    }
}

/// The processor time that the server has used so far. The time by the wall also counts when the machine ran something else.
pub(crate) fn server_cpu(eyes: &mut Connection) -> Duration {
    let info: String = redis::cmd("INFO").arg("cpu").query(eyes).expect("a server");
    let of = |field: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.and_then(|seconds| seconds.trim().parse::<f64>().ok()).expect("a number")
    };
    Duration::from_secs_f64(of("used_cpu_user") + of("used_cpu_sys"))
}

/// One request after the other meets the dead; each costs the server less than 50 ms, and so does each script by the server's own log. Somebody
/// else's lease is renewed meanwhile. One run of three without a slow script is enough; all else holds in each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_dead_waiters_do_not_stop_the_server() {
    let Some((server, client, mut eyes)) = own("dead fair waiters").await else { return };
    let bystander = Client::builder().lease(Duration::from_secs(10)).connect(server.url(0)).await.unwrap();
    let unrelated = bystander.mutex("unrelated").lock().await.unwrap();
    log_slow_scripts(&client, &mut eyes).await;
    start_replication(&server, &mut eyes).await;
    let mut slow = Vec::new();
    for name in ["m", "n", "o"] {
        slow = meet_the_dead(&server.url(0), &client, &mut eyes, name).await;
        assert!(unrelated.is_valid());
        if slow.is_empty() {
            break;
        }
    }
    assert!(slow.is_empty(), "scripts took {slow:?}");
    unrelated.release().await.unwrap();
}

/// Lets 5,000 die in the queue of `name`, and has them removed. Returns how long each script took that took too long.
async fn meet_the_dead(url: &str, client: &Client, eyes: &mut Connection, name: &str) -> Vec<Duration> {
    const DEAD: u64 = 5_000;
    let (queue, mutex) = (format!("redisson_lock_queue:{{{name}}}"), client.fair_mutex(name));
    let holder = mutex.lock().await.unwrap();
    let (mut part, sent, before) = (Part::begin(eyes), replicated(eyes), server_cpu(eyes));
    die_waiting(url, name, DEAD, PLACE).await;
    let (each, sent) = ((server_cpu(eyes) - before) / u32::try_from(DEAD).expect("few"), replicated(eyes) - sent);
    let mut slow = part.end(eyes, "5,000 queue");
    assert!(each < Duration::from_millis(5), "each that queues costs {each:?}");
    assert!(sent < STREAM, "{sent} bytes for replicas when they queue");
    assert_eq!(eyes.llen::<_, u64>(&queue).unwrap(), DEAD);
    end_places(eyes, name);
    let removed = replicated(eyes);
    let (mut costs, mut before) = (Vec::new(), server_cpu(eyes));
    part = Part::begin(eyes);
    let mut cost = |eyes: &mut Connection, what: &str| {
        slow.extend(part.end(eyes, what));
        let now = server_cpu(eyes);
        costs.push(now - std::mem::replace(&mut before, now));
    };
    holder.release().await.unwrap();
    cost(eyes, "a release meets the dead");
    let guard = mutex.try_lock().await.unwrap().expect("the dead do not keep it");
    cost(eyes, "a request meets the dead");
    // One script removes a thousand; every request goes on with it.
    for _ in 0..4 {
        assert!(mutex.try_lock().await.unwrap().is_none());
        cost(eyes, "one more request meets the dead");
    }
    let removed = replicated(eyes) - removed;
    eprintln!(
        "each that queued cost {each:?}, each request that met the dead {costs:?}; for replicas {sent} and {removed} bytes"
    );
    assert!(costs.iter().all(|cost| *cost < LIMIT), "{costs:?}");
    assert!(removed < STREAM, "{removed} bytes for replicas when they are removed");
    assert_eq!(eyes.llen::<_, u64>(&queue).unwrap(), 0, "the dead are gone");
    guard.release().await.unwrap();
    let left: Vec<String> = eyes.keys(format!("*{{{name}}}*")).unwrap();
    assert!(left.is_empty(), "{left:?}");
    slow
}

/// A living waiter behind more of them than one script removes gets its turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_living_waiter_passes_many_dead_ones() {
    const DEAD: u64 = 1_500;
    let Some((server, client, mut eyes)) = own("a living waiter behind dead ones").await else { return };
    let holder = client.fair_mutex("m").lock().await.unwrap();
    die_waiting(&server.url(0), "m", DEAD, PLACE).await;
    let living = tokio::spawn({
        let mutex = client.fair_mutex("m");
        async move { mutex.lock().await.unwrap() }
    });
    until("it waits behind them", || eyes.llen::<_, u64>("redisson_lock_queue:{m}").unwrap() > DEAD).await;
    end_places(&mut eyes, "m");
    holder.release().await.unwrap();
    // Longer than a poll, and much shorter than the five minutes for which Java keeps a dead waiter.
    let guard = tokio::time::timeout(Duration::from_secs(20), living).await.expect("the living waiter comes in").unwrap();
    guard.release().await.unwrap();
}

/// Nobody else waits: the first that asks has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_multi_lock_passes_dead_fair_waiters() {
    let Some((server, client, mut eyes)) = own("multi lock and dead fair waiters").await else { return };
    let holder = client.fair_mutex("m").lock().await.unwrap();
    let place = Duration::from_secs(2);
    die_waiting(&server.url(0), "m", 3, place).await;
    assert_eq!(eyes.llen::<_, u64>("redisson_lock_queue:{m}").unwrap(), 3);
    holder.release().await.unwrap();
    let (fair, mutex) = (client.fair_mutex("m"), client.mutex("n"));
    let all = MultiLock::new().and(fair.lock()).and(mutex.lock());
    let began = Instant::now();
    let guard = loop {
        // Each try asks once, for all or nothing.
        if let Some(guard) = all.try_lock().await.unwrap() {
            break guard;
        }
        assert!(began.elapsed() < place + Duration::from_secs(20), "busy for {:?}", began.elapsed());
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    guard.release().await.unwrap();
}
