//! Our part of a fair queue that Java processes share: what our waiters write there, and what they leave when they go. Java's waiters are
//! played by plain commands that write what Redisson writes.

use std::time::{Duration, Instant};

use lockkeeper::backend::{Attempt, Backend as _, Claim, Release};
use lockkeeper::runtime::Runtime;
use lockkeeper::store::redis::{Config, RedisStore};
use redis::{Commands as _, Connection};

use crate::cost::own;
use crate::dead_waiters::{die_waiting, end_places, fair_request};
use crate::scale::{Part, log_slow_scripts};
use crate::site::until;

const QUEUE: &str = "redisson_lock_queue:{m}";
const SCORES: &str = "redisson_lock_timeout:{m}";
const UNIT: f64 = 300_000.0;
const PLACE: Duration = Duration::from_secs(5);

/// The server's clock in ms.
fn now(eyes: &mut Connection) -> f64 {
    let (seconds, micros): (u64, u64) = redis::cmd("TIME").query(eyes).unwrap();
    (seconds * 1_000 + micros / 1_000) as f64
}

/// Queues as Redisson does: after the last one, with its own wait time more.
fn java_waits(eyes: &mut Connection, owner: &str, wait: f64) {
    let last: Option<String> = eyes.lindex(QUEUE, -1).unwrap();
    let base = match last {
        Some(last) => eyes.zscore::<_, _, f64>(SCORES, last).unwrap(),
        None => now(eyes) + 30_000.0,
    };
    eyes.zadd::<_, _, _, ()>(SCORES, owner, base + wait).unwrap();
    eyes.rpush::<_, _, ()>(QUEUE, owner).unwrap();
}

fn score(eyes: &mut Connection, owner: &str) -> f64 {
    eyes.zscore(SCORES, owner).unwrap()
}

async fn store(url: &str) -> std::sync::Arc<RedisStore> {
    RedisStore::connect(Config::parse(url).unwrap(), &Runtime::system()).await.unwrap()
}

async fn waits(store: &RedisStore, number: u64) {
    let answer = store.acquire(fair_request("m", number, PLACE)).await.unwrap();
    assert!(matches!(answer, Attempt::Busy(_)), "{answer:?}");
}

async fn leaves(store: &RedisStore, number: u64) {
    let request = fair_request("m", number, PLACE);
    store.release(Release::new(request.name, Claim::Fair, request.owner)).await.unwrap();
}

/// Ours before, between and behind theirs come and go: theirs keep the time that they had, or five minutes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_leaving_takes_from_a_foreign_score_no_more_than_ours_added() {
    let Some((server, client, mut eyes)) = own("foreign scores").await else { return };
    let holder = client.fair_mutex("m").lock().await.unwrap();
    let store = store(&server.url(0)).await;
    waits(&store, 1).await;
    java_waits(&mut eyes, "java:1", UNIT);
    waits(&store, 2).await;
    java_waits(&mut eyes, "java:2", 20_000.0);
    java_waits(&mut eyes, "java:3", UNIT);
    for _ in 0..3 {
        // Asking again changes nothing of theirs.
        let before = ["java:1", "java:2", "java:3"].map(|java| score(&mut eyes, java));
        waits(&store, 1).await;
        waits(&store, 2).await;
        assert_eq!(before, ["java:1", "java:2", "java:3"].map(|java| score(&mut eyes, java)));
    }
    for number in [2, 1] {
        let before = ["java:1", "java:2", "java:3"].map(|java| score(&mut eyes, java));
        leaves(&store, number).await;
        let after = ["java:1", "java:2", "java:3"].map(|java| score(&mut eyes, java));
        // A moment passed since.
        let least = now(&mut eyes) + UNIT - 10_000.0;
        for (before, after) in before.iter().zip(&after) {
            assert!(*after <= *before && *after >= before - UNIT, "{before} became {after}");
            assert!(*after >= least.min(*before), "{after} is before {least}");
        }
        // What Java subtracts when it serves one is still between it and the next.
        assert!(after[1] - after[0] >= 20_000.0 && after[2] - after[1] >= UNIT, "{after:?}");
    }
    holder.release().await.unwrap();
}

/// A foreign waiter behind 1,500 of ours that died: two scripts remove them, its score sinks by what they added.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_dead_waiters_before_a_foreign_one_leave_it_its_time() {
    let Some((server, client, mut eyes)) = own("dead before a foreign waiter").await else { return };
    let holder = client.fair_mutex("m").lock().await.unwrap();
    die_waiting(&server.url(0), "m", 1_500, Duration::from_secs(600)).await;
    java_waits(&mut eyes, "java:1", UNIT);
    let store = store(&server.url(0)).await;
    end_places(&mut eyes, "m");
    for length in [502, 2, 2] {
        waits(&store, 9_999).await;
        assert_eq!(eyes.llen::<_, usize>(QUEUE).unwrap(), length);
    }
    let left = score(&mut eyes, "java:1") - now(&mut eyes);
    // The place of the next one of ours, five minutes, and what passed since.
    assert!((UNIT - 20_000.0..=2.0 * UNIT).contains(&left), "{left} ms");
    assert_eq!(eyes.lrange::<_, Vec<String>>(QUEUE, 0, 0).unwrap(), ["java:1"]);
    holder.release().await.unwrap();
}

/// With Java in the queue the scores of all behind have to be lowered. One run of three without a slow script is enough; all else holds in each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_places_between_foreign_ones_do_not_stop_the_server() {
    const PLACES: u64 = 5_000;
    const LONG: Duration = Duration::from_secs(600);
    let Some((server, client, mut eyes)) = own("thousands between foreign waiters").await else { return };
    let store = store(&server.url(0)).await;
    log_slow_scripts(&client, &mut eyes).await;
    let mut slow = Vec::new();
    for _ in 0..3 {
        let holder = client.fair_mutex("m").lock().await.unwrap();
        let first = store.acquire(fair_request("m", PLACES, LONG)).await.unwrap();
        assert!(matches!(first, Attempt::Busy(_)), "{first:?}");
        java_waits(&mut eyes, "java:1", UNIT);
        die_waiting(&server.url(0), "m", PLACES, LONG).await;
        java_waits(&mut eyes, "java:2", UNIT);
        let mut part = Part::begin(&mut eyes);
        leaves(&store, PLACES).await;
        slow = part.end(&mut eyes, "one leaves before all others");
        end_places(&mut eyes, "m");
        // One script removes a thousand.
        for _ in 0..6 {
            assert!(client.fair_mutex("m").try_lock().await.unwrap().is_none(), "it is held");
            slow.extend(part.end(&mut eyes, "a request meets the dead"));
        }
        assert_eq!(eyes.lrange::<_, Vec<String>>(QUEUE, 0, -1).unwrap(), ["java:1", "java:2"]);
        for java in ["java:1", "java:2"] {
            let left = score(&mut eyes, java) - now(&mut eyes);
            assert!(left >= UNIT - 60_000.0, "{java} counts as dead in {left} ms");
        }
        holder.release().await.unwrap();
        eyes.del::<_, ()>(&[QUEUE, SCORES][..]).unwrap();
        if slow.is_empty() {
            break;
        }
    }
    assert!(slow.is_empty(), "scripts took {slow:?}");
}

/// It may only be slow, and would sleep on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_waiter_that_is_removed_is_notified() {
    let Some((server, client, mut eyes)) = own("foreign waiter removed").await else { return };
    let holder = client.fair_mutex("m").lock().await.unwrap();
    java_waits(&mut eyes, "java:1", -60_000.0);
    let mut ears = redis::Client::open(server.url(0)).unwrap().get_connection().unwrap();
    ears.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut ears = ears.as_pubsub();
    ears.subscribe("redisson_lock__channel:{m}:java:1").unwrap();
    let store = store(&server.url(0)).await;
    waits(&store, 1).await;
    assert_eq!(ears.get_message().expect("a notification").get_payload::<String>().unwrap(), "0");
    assert_eq!(eyes.zscore::<_, _, Option<f64>>(SCORES, "java:1").unwrap(), None);
    holder.release().await.unwrap();
}

/// Java waits behind one of ours that died: whoever of ours asks next sees to it that Java is woken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_head_of_a_free_mutex_is_reminded() {
    let Some((server, client, mut eyes)) = own("foreign head").await else { return };
    let holder = client.fair_mutex("m").lock().await.unwrap();
    java_waits(&mut eyes, "java:1", UNIT);
    holder.release().await.unwrap();
    let mut ears = redis::Client::open(server.url(0)).unwrap().get_connection().unwrap();
    ears.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut ears = ears.as_pubsub();
    ears.subscribe("redisson_lock__channel:{m}:java:1").unwrap();
    let store = store(&server.url(0)).await;
    waits(&store, 1).await;
    assert_eq!(ears.get_message().expect("a notification").get_payload::<String>().unwrap(), "0");
}

/// A Java client that took one of ours for dead removed it from the head: it comes back there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_living_waiter_that_java_removed_keeps_its_turn() {
    let Some((server, client, mut eyes)) = own("removed by Java").await else { return };
    let holder = client.fair_mutex("m").lock().await.unwrap();
    let store = store(&server.url(0)).await;
    waits(&store, 1).await;
    let ours: String = eyes.lpop(QUEUE, None).unwrap();
    eyes.zrem::<_, _, ()>(SCORES, &ours).unwrap();
    java_waits(&mut eyes, "java:1", UNIT);
    waits(&store, 1).await;
    assert_eq!(eyes.lrange::<_, Vec<String>>(QUEUE, 0, -1).unwrap(), [ours, "java:1".to_owned()]);
    holder.release().await.unwrap();
}

/// Keys of a queue that everybody left by dying go away; while Java waits they stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_of_ours_alone_expires() {
    let Some((server, client, mut eyes)) = own("queues expire").await else { return };
    let holder = client.fair_mutex("m").lock().await.unwrap();
    let store = store(&server.url(0)).await;
    waits(&store, 1).await;
    waits(&store, 2).await;
    for key in [QUEUE, SCORES, "lockkeeper:fair:{m}"] {
        assert!(eyes.pttl::<_, i64>(key).unwrap() > 60_000, "{key}");
    }
    java_waits(&mut eyes, "java:1", UNIT);
    leaves(&store, 1).await;
    for key in [QUEUE, SCORES] {
        assert_eq!(eyes.pttl::<_, i64>(key).unwrap(), -1, "{key}");
    }
    eyes.zrem::<_, _, ()>(SCORES, "java:1").unwrap();
    eyes.lrem::<_, _, ()>(QUEUE, 1, "java:1").unwrap();
    waits(&store, 2).await;
    for key in [QUEUE, SCORES] {
        assert!(eyes.pttl::<_, i64>(key).unwrap() > 60_000, "{key}");
    }
    // The list is written anew when a dead one is removed.
    let dead: String = eyes.lindex(QUEUE, 0).unwrap();
    eyes.zadd::<_, _, _, ()>("lockkeeper:fair:{m}", dead, 1).unwrap();
    java_waits(&mut eyes, "java:2", UNIT);
    waits(&store, 3).await;
    assert_eq!(eyes.lindex::<_, String>(QUEUE, 0).unwrap(), "java:2");
    for key in [QUEUE, SCORES] {
        assert_eq!(eyes.pttl::<_, i64>(key).unwrap(), -1, "{key}");
    }
    holder.release().await.unwrap();
}

/// A fair waiter listens to a channel of its own, to which a plain release speaks too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_release_wakes_a_fair_waiter() {
    let Some((server, theirs, mut eyes)) = own("plain release").await else { return };
    let ours = lockkeeper::Client::connect(server.url(0)).await.unwrap();
    let mut took = Vec::new();
    for _ in 0..7 {
        let holder = theirs.mutex("m").lock().await.unwrap();
        let waiter = tokio::spawn({
            let mutex = ours.fair_mutex("m");
            async move {
                let guard = mutex.lock().await.unwrap();
                (guard, Instant::now())
            }
        });
        until("it listens", || {
            let channels: Vec<String> =
                redis::cmd("PUBSUB").arg("CHANNELS").arg("redisson_lock__channel:{m}:*").query(&mut eyes).unwrap();
            !channels.is_empty()
        })
        .await;
        // It asks once more as soon as it listens.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let released = Instant::now();
        holder.release().await.unwrap();
        let (guard, got) = waiter.await.unwrap();
        took.push(got.saturating_duration_since(released));
        guard.release().await.unwrap();
    }
    took.sort();
    // Its own poll would come about 900 ms later, each time.
    assert!(took[3] < Duration::from_millis(500), "{took:?}");
}

/// What Java does when it serves the first waiter.
fn java_serves_first(eyes: &mut Connection, wait: f64) {
    let first: String = eyes.lpop(QUEUE, None).unwrap();
    eyes.zrem::<_, _, ()>(SCORES, first).unwrap();
    for other in eyes.zrange::<_, Vec<String>>(SCORES, 0, -1).unwrap() {
        eyes.zincr::<_, _, _, ()>(SCORES, other, -wait).unwrap();
    }
}

/// Java removes a waiter by the score of the head alone. Once ours is the head, a score of many minutes would make a dead one of ours block Java for
/// as long: it is lowered to our sign of life, also behind a `tryLock` of 20 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_score_sinks_to_our_sign_of_life_when_we_become_the_head() {
    let Some((server, client, mut eyes)) = own("scores at the head").await else { return };
    let holder = client.fair_mutex("m").lock().await.unwrap();
    let store = store(&server.url(0)).await;
    java_waits(&mut eyes, "java:1", 20_000.0);
    waits(&store, 1).await;
    let ours: String = eyes.lindex(QUEUE, 1).unwrap();
    let left = score(&mut eyes, &ours) - now(&mut eyes);
    assert!(left > UNIT, "behind others it is worth a place of Java's: {left} ms");
    java_waits(&mut eyes, "java:2", UNIT);
    java_serves_first(&mut eyes, 20_000.0);
    waits(&store, 1).await;
    let left = score(&mut eyes, &ours) - now(&mut eyes);
    assert!(left <= 5_000.0, "a dead waiter of ours would block Java for {left} ms");
    let left = score(&mut eyes, "java:2") - now(&mut eyes);
    assert!(left >= UNIT - 10_000.0, "Java's waiter behind ours counts as dead in {left} ms");
    holder.release().await.unwrap();
}

/// After a long hold two of ours are served within a second: the next one must not look dead to Java until it asks again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_score_of_ours_sinks_below_its_sign_of_life() {
    let Some((server, client, mut eyes)) = own("scores and signs of life").await else { return };
    let holder = client.fair_mutex("m").lock().await.unwrap();
    let store = store(&server.url(0)).await;
    java_waits(&mut eyes, "java:1", UNIT);
    for number in 1..=3 {
        waits(&store, number).await;
    }
    java_waits(&mut eyes, "java:2", UNIT);
    // The holder had it for 400 s meanwhile.
    for owner in eyes.lrange::<_, Vec<String>>(QUEUE, 0, -1).unwrap() {
        let by = if owner == "java:1" { 100_000.0 } else { 400_000.0 };
        eyes.zincr::<_, _, _, ()>(SCORES, owner, -by).unwrap();
    }
    for number in 1..=3 {
        waits(&store, number).await;
    }
    java_serves_first(&mut eyes, UNIT);
    for number in 1..=2 {
        leaves(&store, number).await;
        for owner in eyes.lrange::<_, Vec<String>>(QUEUE, 0, -1).unwrap() {
            let Some(sign) = eyes.zscore::<_, _, Option<f64>>("lockkeeper:fair:{m}", &owner).unwrap() else { continue };
            let score = score(&mut eyes, &owner);
            assert!(score >= sign, "{owner} ends for Java {} ms before its sign of life does", sign - score);
        }
    }
    let least = now(&mut eyes) + UNIT - 10_000.0;
    let java = score(&mut eyes, "java:2");
    assert!(java >= least, "{} ms too early", least - java);
    holder.release().await.unwrap();
}

/// It was first in the queue when Java removed it. The mutex is free when it asks again: it has it at once, not after one more second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_java_removed_is_served_when_it_comes_back_to_a_free_mutex() {
    let Some((server, client, mut eyes)) = own("removed by Java, and free").await else { return };
    let holder = client.fair_mutex("m").lock().await.unwrap();
    let store = store(&server.url(0)).await;
    waits(&store, 1).await;
    let ours: String = eyes.lpop(QUEUE, None).unwrap();
    eyes.zrem::<_, _, ()>(SCORES, &ours).unwrap();
    java_waits(&mut eyes, "java:1", UNIT);
    holder.release().await.unwrap();
    let answer = store.acquire(fair_request("m", 1, PLACE)).await.unwrap();
    assert!(matches!(answer, Attempt::Granted(_)), "{answer:?}");
    assert_eq!(eyes.lrange::<_, Vec<String>>(QUEUE, 0, -1).unwrap(), ["java:1"]);
    assert!(!eyes.exists::<_, bool>("lockkeeper:fair:{m}").unwrap(), "it left its sign of life behind");
}

/// The server's clock was set back by an hour: a place that was given before ends an hour too late, until its owner asks again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_from_before_a_clock_step_is_not_kept() {
    let Some((server, client, mut eyes)) = own("places and clock steps").await else { return };
    let holder = client.fair_mutex("m").lock().await.unwrap();
    let store = store(&server.url(0)).await;
    waits(&store, 1).await;
    let ours: String = eyes.lindex(QUEUE, 0).unwrap();
    eyes.zincr::<_, _, _, ()>("lockkeeper:fair:{m}", &ours, 3_600_000).unwrap();
    waits(&store, 1).await;
    let left = eyes.zscore::<_, _, f64>("lockkeeper:fair:{m}", &ours).unwrap() - now(&mut eyes);
    assert!(left <= 5_000.0, "a dead waiter would block for {left} ms");
    holder.release().await.unwrap();
}
