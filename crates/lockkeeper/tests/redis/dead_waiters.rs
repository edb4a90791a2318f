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
use crate::scale::without_slow_scripts;
use crate::site::until;

/// For how long the dead keep their places, unless a test ends them.
const PLACE: Duration = Duration::from_secs(600);

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

/// Ends the places of all that `die_waiting` left behind.
pub(crate) fn end_places(eyes: &mut Connection, name: &str) {
    const END: &str = "
        for _, owner in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
          if string.sub(owner, 1, #ARGV[1]) == ARGV[1] then
            redis.call('ZADD', KEYS[1], 1, owner)
          end
        end";
    let client = format!("{}:", ClientId::from_bits(77));
    redis::Script::new(END).key(format!("lockkeeper:fair:{{{name}}}")).arg(client).invoke::<()>(eyes).expect("a server");
}

/// The dead are in front of the only living waiter, which gets its turn; somebody else's short lease is renewed meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_dead_waiters_do_not_stop_the_server() {
    const DEAD: u64 = 5_000;
    let Some((server, client, mut eyes)) = own("dead fair waiters").await else { return };
    let bystander = Client::builder().lease(Duration::from_secs(3)).connect(server.url(0)).await.unwrap();
    let unrelated = bystander.mutex("unrelated").lock().await.unwrap();
    let mut own_eyes = redis::Client::open(server.url(0)).unwrap().get_connection().unwrap();
    let mut run = 0;
    without_slow_scripts(&mut eyes, || {
        run += 1;
        let (name, client, url) = (format!("m{run}"), client.clone(), server.url(0));
        let mut eyes = redis::Client::open(server.url(0)).unwrap().get_connection().unwrap();
        async move {
            let queue = format!("redisson_lock_queue:{{{name}}}");
            let holder = client.fair_mutex(&name).lock().await.unwrap();
            die_waiting(&url, &name, DEAD, PLACE).await;
            let living = tokio::spawn({
                let mutex = client.fair_mutex(&name);
                async move { mutex.lock().await.unwrap() }
            });
            until("it waits behind them", || eyes.llen::<_, u64>(&queue).unwrap() > DEAD).await;
            end_places(&mut eyes, &name);
            holder.release().await.unwrap();
            // Longer than a poll, and much shorter than the five minutes for which Java keeps a dead waiter.
            let guard = tokio::time::timeout(Duration::from_secs(20), living).await.expect("the living waiter comes in").unwrap();
            // One script removes a thousand; every request goes on with it.
            for _ in 0..5 {
                assert!(client.fair_mutex(&name).try_lock().await.unwrap().is_none());
            }
            assert_eq!(eyes.llen::<_, u64>(&queue).unwrap(), 0, "the dead are gone");
            guard.release().await.unwrap();
        }
    })
    .await;
    assert!(unrelated.is_valid());
    unrelated.release().await.unwrap();
    let left: Vec<String> = own_eyes.keys("*{m*").unwrap();
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
        assert!(began.elapsed() < place + Duration::from_secs(20), "busy for {:?}", began.elapsed());
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    guard.release().await.unwrap();
}
