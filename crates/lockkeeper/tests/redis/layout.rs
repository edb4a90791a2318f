//! Every object, key by key, as Redisson lays it out, and the keys of our own beside it: pinned, because Java processes read them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper::Client;
use redis::{Commands, Connection};

use crate::server::{Flavour, Server};

/// A client on a fresh database, and a plain connection beside it. `None`: skipped, and said so.
async fn fresh(test: &str) -> Option<(Arc<Server>, Client, Connection)> {
    if let Some(why) = Server::missing(Flavour::Redis) {
        lockkeeper::conformance::skip(test, &why);
        return None;
    }
    let server = Server::shared(Flavour::Redis);
    let url = server.fresh_url();
    let client = Client::connect(&url).await.unwrap();
    Some((server, client, redis::Client::open(url).unwrap().get_connection().unwrap()))
}

/// All keys but those that say who a client is, with their types, and whether they expire.
fn keys(eyes: &mut Connection) -> BTreeMap<String, (String, bool)> {
    let keys: Vec<String> = eyes.keys("*").unwrap();
    let keep = keys.into_iter().filter(|key| !key.starts_with("lockkeeper:client:"));
    keep.map(|key| {
        let kind: String = redis::cmd("TYPE").arg(&key).query(eyes).unwrap();
        let expires = eyes.pttl::<_, i64>(&key).unwrap() >= 0;
        (key, (kind, expires))
    })
    .collect()
}

fn expected<const N: usize>(keys: [(&str, &str, bool); N]) -> BTreeMap<String, (String, bool)> {
    keys.into_iter().map(|(key, kind, expires)| (key.to_owned(), (kind.to_owned(), expires))).collect()
}

const TOKEN: (&str, &str, bool) = ("lockkeeper:token", "string", false);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fair_mutex_has_a_list_scores_and_signs_of_life() {
    let Some((_server, client, mut eyes)) = fresh("layout of a fair mutex").await else { return };
    for (name, tagged) in [("fair", "{fair}"), ("{fair}:2", "{fair}:2")] {
        let holder = client.fair_mutex(name).lock().await.unwrap();
        let waiter = tokio::spawn({
            let mutex = client.fair_mutex(name);
            async move { mutex.lock().await }
        });
        let (queue, scores) = (format!("redisson_lock_queue:{tagged}"), format!("redisson_lock_timeout:{tagged}"));
        let signs = format!("lockkeeper:fair:{tagged}");
        while eyes.llen::<_, usize>(&queue).unwrap() == 0 {
            tokio::task::yield_now().await;
        }
        let waiting = [(&*queue, "list", true), (&scores, "zset", true), (&signs, "zset", true)];
        assert_eq!(keys(&mut eyes), expected([(name, "hash", true), waiting[0], waiting[1], waiting[2], TOKEN]));
        let queued: Vec<String> = eyes.lrange(&queue, 0, -1).unwrap();
        let scored: Vec<(String, f64)> = eyes.zrange_withscores(&scores, 0, -1).unwrap();
        assert_eq!(queued, [scored[0].0.clone()]);
        let (seconds, _): (u64, u64) = redis::cmd("TIME").query(&mut eyes).unwrap();
        assert!((scored[0].1 / 1000.0 - seconds as f64) < 10.0, "{scored:?}: at the head a score is soon");
        let fields: Vec<(String, u32)> = eyes.hgetall(name).unwrap();
        assert_eq!(fields, [(holder.owner().to_string(), 1)]);
        holder.release().await.unwrap();
        let holder = waiter.await.unwrap().unwrap();
        assert_eq!(holder.owner().to_string(), queued[0]);
        assert_eq!(keys(&mut eyes), expected([(name, "hash", true), TOKEN]));
        holder.release().await.unwrap();
        assert_eq!(keys(&mut eyes), expected([TOKEN]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_write_lock_has_a_mode_and_a_key_per_read_hold() {
    let Some((_server, client, mut eyes)) = fresh("layout of a read-write lock").await else { return };
    let reader = client.rwlock("rw").read().await.unwrap();
    let hold = format!("{{rw}}:{}:rwlock_timeout:1", reader.owner());
    assert_eq!(keys(&mut eyes), expected([("rw", "hash", true), (&hold, "string", true), TOKEN]));
    let fields: BTreeMap<String, String> = eyes.hgetall("rw").unwrap();
    let as_read = [("mode".to_owned(), "read".to_owned()), (reader.owner().to_string(), "1".to_owned())];
    assert_eq!(fields, as_read.into());
    let writer = tokio::spawn({
        let lock = client.rwlock("rw");
        async move { lock.write().await }
    });
    while !eyes.exists::<_, bool>("lockkeeper:pending:{rw}").unwrap() {
        tokio::task::yield_now().await;
    }
    reader.release().await.unwrap();
    let writer = writer.await.unwrap().unwrap();
    assert_eq!(keys(&mut eyes), expected([("rw", "hash", true), TOKEN]));
    let fields: BTreeMap<String, String> = eyes.hgetall("rw").unwrap();
    let as_write = [("mode".to_owned(), "write".to_owned()), (format!("{}:write", writer.owner()), "1".to_owned())];
    assert_eq!(fields, as_write.into());
    writer.release().await.unwrap();
    assert_eq!(keys(&mut eyes), expected([TOKEN]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_semaphore_has_a_number_and_ids_of_sixteen_bytes() {
    let Some((_server, client, mut eyes)) = fresh("layout of a semaphore").await else { return };
    let permits = client.semaphore("pool", 5).acquire_many(2).await.unwrap();
    let mark = ("lockkeeper:kind:{pool}", "string", true);
    assert_eq!(keys(&mut eyes), expected([("pool", "string", false), ("{pool}:timeout", "zset", false), mark]));
    assert_eq!(eyes.get::<_, i64>("pool").unwrap(), 3);
    let out: Vec<(Vec<u8>, f64)> = eyes.zrange_withscores("{pool}:timeout", 0, -1).unwrap();
    assert!(out.len() == 2 && out.iter().all(|(id, _)| id.len() == 16), "{out:?}");
    // The card is found by the part of the client's id that the permits have, so a holder is named as of every other lock.
    let holder = loop {
        let found = client.inspect("pool").await.unwrap().unwrap();
        assert!(found.holders.len() == 1 && found.holders[0].is_of(permits.owner()), "{found:?}");
        // The keeper announces its client once it holds something.
        match found.holders.into_iter().next().filter(|holder| holder.client.is_some()) {
            Some(holder) => break holder,
            None => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    assert_eq!((holder.owner, holder.client.unwrap().pid), (permits.owner().to_string(), std::process::id()));
    permits.release().await.unwrap();
    assert_eq!(keys(&mut eyes), expected([("pool", "string", false), mark]));
    assert_eq!(eyes.get::<_, i64>("pool").unwrap(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_are_strings_and_requests_are_remembered_for_a_while() {
    let Some((_server, client, mut eyes)) = fresh("layout of numbers").await else { return };
    client.counting_semaphore("jobs").release(3).await.unwrap();
    client.latch("gate").try_set(2).await.unwrap();
    let mut found = keys(&mut eyes);
    let requests: Vec<_> = found.keys().filter(|key| key.starts_with("lockkeeper:request:{")).cloned().collect();
    assert_eq!(requests.len(), 2);
    for request in requests {
        assert_eq!(found.remove(&request), Some(("string".to_owned(), true)), "{request} expires");
    }
    assert_eq!(
        found,
        expected([
            ("jobs", "string", false),
            ("gate", "string", false),
            ("lockkeeper:kind:{jobs}", "string", true),
            ("lockkeeper:kind:{gate}", "string", true)
        ])
    );
    assert_eq!((eyes.get::<_, i64>("jobs").unwrap(), eyes.get::<_, i64>("gate").unwrap()), (3, 2));
    client.latch("gate").remove().await.unwrap();
    assert!(!eyes.exists::<_, bool>("gate").unwrap() && !eyes.exists::<_, bool>("lockkeeper:kind:{gate}").unwrap());
}

/// A name shared with Java's `RFencedLock`: its `INCR` goes on above our tokens, and ours above its.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_can_be_counted_under_redissons_key() {
    let Some((server, ..)) = fresh("tokens as Redisson counts them").await else { return };
    let url = server.fresh_url();
    let client = Client::connect(format!("{url}?tokens=redisson")).await.unwrap();
    let mut eyes = redis::Client::open(url).unwrap().get_connection().unwrap();
    for (name, key) in [("fenced", "redisson_lock_token:{fenced}"), ("{f}:2", "redisson_lock_token:{f}:2")] {
        let mut last = 0;
        let mut above = |token: u64, eyes: &mut Connection| {
            assert!(token > last, "{token} after {last}");
            assert_eq!(eyes.get::<_, u64>(key).unwrap(), token, "the counter stands at the last token");
            assert_eq!(eyes.pttl::<_, i64>(key).unwrap(), -1);
            // What a Java process would get next.
            last = eyes.incr(key, 1).unwrap();
            assert!(last > token);
        };
        let (seconds, _): (u64, u64) = redis::cmd("TIME").query(&mut eyes).unwrap();
        let guard = client.mutex(name).lock().await.unwrap();
        assert!(guard.token().unwrap().number() >= seconds * 1_000_000, "lifted to the clock");
        above(guard.token().unwrap().number(), &mut eyes);
        let next = tokio::spawn({
            let mutex = client.mutex(name);
            async move { mutex.lock().await.unwrap() }
        });
        tokio::task::yield_now().await;
        guard.release().await.unwrap();
        let guard = next.await.unwrap();
        above(guard.token().unwrap().number(), &mut eyes);
        guard.release().await.unwrap();
        let guard = client.fair_mutex(name).lock().await.unwrap();
        above(guard.token().unwrap().number(), &mut eyes);
        guard.release().await.unwrap();
        // Forgotten, it is lifted again.
        eyes.del::<_, ()>(key).unwrap();
        let guard = client.mutex(name).lock().await.unwrap();
        assert!(guard.token().unwrap().number() > last);
        guard.release().await.unwrap();
        assert_eq!(keys(&mut eyes), expected([(key, "string", false)]));
        eyes.del::<_, ()>(key).unwrap();
    }
}
