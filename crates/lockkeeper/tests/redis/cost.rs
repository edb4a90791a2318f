//! What locks cost the server, counted by the server itself, and that no waiter depends on a notification.

use std::time::{Duration, Instant};

use lockkeeper::Client;
use redis::Connection;

use crate::server::{Flavour, Server};
use crate::site::scripts_run;

/// A server of the test's own, a client of it, and a plain connection. `None`: skipped, and said so.
pub(crate) async fn own(test: &str) -> Option<(Server, Client, Connection)> {
    if let Some(why) = Server::missing(Flavour::Redis) {
        lockkeeper::conformance::skip(test, &why);
        return None;
    }
    let server = Server::start(Flavour::Redis);
    let client = Client::connect(server.url(0)).await.unwrap();
    let eyes = redis::Client::open(server.url(0)).unwrap().get_connection().unwrap();
    Some((server, client, eyes))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_one_request_a_release_one_and_a_reentry_none() {
    let Some((_server, client, mut eyes)) = own("requests").await else { return };
    let mutex = client.mutex("m").owned_by(&client.owner());
    let before = scripts_run(&mut eyes);
    let guard = mutex.lock().await.unwrap();
    assert_eq!(scripts_run(&mut eyes) - before, 1);
    for _ in 0..100 {
        mutex.lock().await.unwrap().release().await.unwrap();
        drop(guard.reenter().unwrap());
    }
    assert_eq!(scripts_run(&mut eyes) - before, 1, "re-entry asks nobody");
    guard.release().await.unwrap();
    assert_eq!(scripts_run(&mut eyes) - before, 2);
}

/// How often the server was asked for the end of a key, by scripts.
fn ends_asked(eyes: &mut Connection) -> u64 {
    let stats: String = redis::cmd("INFO").arg("commandstats").query(eyes).unwrap();
    let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_pttl:calls="));
    calls.and_then(|calls| calls.split(',').next()?.parse().ok()).unwrap_or(0)
}

/// Where many read, one that lives shows that the lock is not free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_leaves_many_does_not_look_at_each() {
    let Some((_server, client, mut eyes)) = own("readers").await else { return };
    let mut readers = Vec::new();
    for _ in 0..100 {
        // With a lease of its own it shares no hold.
        readers.push(client.rwlock("rw").read().lease(Duration::from_secs(300)).await.unwrap());
    }
    let before = ends_asked(&mut eyes);
    for reader in readers.drain(..20) {
        reader.release().await.unwrap();
    }
    let asked = ends_asked(&mut eyes) - before;
    assert!(asked <= 3 * 20, "{asked} keys were looked at for 20 releases");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_local_waiters_cost_at_most_two_requests_per_hand_over() {
    const WAITERS: u64 = 1_000;
    let Some((_server, client, mut eyes)) = own("waiters").await else { return };
    let holder = client.mutex("m").lock().await.unwrap();
    let waiters: Vec<_> = (0..WAITERS)
        .map(|_| {
            let mutex = client.mutex("m");
            tokio::spawn(async move { mutex.lock().await.unwrap().release().await.unwrap() })
        })
        .collect();
    tokio::task::yield_now().await;
    let before = scripts_run(&mut eyes);
    holder.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap();
    }
    let asked = scripts_run(&mut eyes) - before;
    assert!(asked <= 2 * WAITERS, "{asked} requests for {WAITERS} hand-overs");
}

/// P6: a waiter whose notifications are all killed gets it within a second of the release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killing_every_subscription_costs_a_waiter_at_most_a_second() {
    let Some((server, theirs, mut eyes)) = own("killed subscriptions").await else { return };
    let ours = Client::connect(server.url(0)).await.unwrap();
    for _ in 0..3 {
        let holder = theirs.mutex("m").lock().await.unwrap();
        let waiter = tokio::spawn({
            let mutex = ours.mutex("m");
            async move {
                let guard = mutex.lock().await.unwrap();
                (guard, Instant::now())
            }
        });
        let channel = "redisson_lock__channel:{m}";
        let began = Instant::now();
        while redis::cmd("PUBSUB").arg("NUMSUB").arg(channel).query::<(String, u64)>(&mut eyes).unwrap().1 == 0 {
            assert!(began.elapsed() < Duration::from_secs(10), "nobody listens");
            tokio::task::yield_now().await;
        }
        redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("pubsub").exec(&mut eyes).unwrap();
        holder.release().await.unwrap();
        let released = Instant::now();
        let (guard, got) = waiter.await.unwrap();
        let took = got.saturating_duration_since(released);
        assert!(took <= Duration::from_secs(1), "{took:?} after the release");
        guard.release().await.unwrap();
    }
}
