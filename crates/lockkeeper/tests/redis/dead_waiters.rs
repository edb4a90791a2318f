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
use crate::site::until;

/// What one script may take.
const LIMIT: Duration = Duration::from_millis(50);

/// One request of a fair waiter, as its client sends it about once a second.
pub(crate) fn fair_request(name: &str, number: u64, place: Duration) -> Acquire {
    Acquire {
        name: Name::new(name).expect("a name"),
        claim: Claim::Fair,
        owner: WireOwner { client: ClientId::from_bits(77), number },
        lease: Duration::from_secs(30),
        not_after: lockkeeper::runtime::Instant::NEVER,
        since: Runtime::system().now(),
        beside: None,
        place: Some(place),
        any_size: false,
    }
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

/// How long the slow ones took, in µs.
fn slow_scripts(eyes: &mut Connection) -> Vec<i64> {
    let log: Vec<Vec<redis::Value>> = redis::cmd("SLOWLOG").arg("GET").arg(100).query(eyes).expect("a log");
    log.iter().filter_map(|entry| if let Some(redis::Value::Int(took)) = entry.get(2) { Some(*took) } else { None }).collect()
}

/// The dead are in front of the only living waiter, which gets its turn; somebody else's short lease is renewed meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_dead_waiters_do_not_stop_the_server() {
    const DEAD: u64 = 5_000;
    let Some((server, client, mut eyes)) = own("dead fair waiters").await else { return };
    let place = Duration::from_secs(8);
    let bystander = Client::builder().lease(Duration::from_secs(1)).connect(server.url(0)).await.unwrap();
    let unrelated = bystander.mutex("unrelated").lock().await.unwrap();
    let holder = client.fair_mutex("m").lock().await.unwrap();
    let began = Instant::now();
    die_waiting(&server.url(0), "m", DEAD, place).await;
    assert_eq!(eyes.llen::<_, u64>("redisson_lock_queue:{m}").unwrap(), DEAD, "all were queued within {:?}", began.elapsed());
    redis::cmd("CONFIG").arg("SET").arg("slowlog-log-slower-than").arg(LIMIT.as_micros() as u64).exec(&mut eyes).unwrap();
    redis::cmd("SLOWLOG").arg("RESET").exec(&mut eyes).unwrap();
    let living = tokio::spawn({
        let mutex = client.fair_mutex("m");
        async move { mutex.lock().await.unwrap() }
    });
    until("it waits behind them", || eyes.llen::<_, u64>("redisson_lock_queue:{m}").unwrap() > DEAD).await;
    // The places end without a request of the dead.
    tokio::time::sleep(place).await;
    holder.release().await.unwrap();
    // Longer than a poll, and much shorter than the five minutes for which Java keeps a dead waiter.
    let guard = tokio::time::timeout(Duration::from_secs(10), living).await.expect("the living waiter comes in").unwrap();
    // One script removes a thousand; every request goes on with it.
    for _ in 0..5 {
        assert!(client.fair_mutex("m").try_lock().await.unwrap().is_none());
    }
    assert_eq!(eyes.llen::<_, u64>("redisson_lock_queue:{m}").unwrap(), 0, "the dead are gone");
    guard.release().await.unwrap();
    let slow = slow_scripts(&mut eyes);
    assert!(slow.is_empty(), "scripts took longer than {LIMIT:?}: {slow:?} µs");
    assert!(unrelated.is_valid());
    unrelated.release().await.unwrap();
    let left: Vec<String> = eyes.keys("*{m}*").unwrap();
    assert!(left.is_empty(), "{left:?}");
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
        assert!(began.elapsed() < place + Duration::from_secs(2), "busy for {:?}", began.elapsed());
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    guard.release().await.unwrap();
}
