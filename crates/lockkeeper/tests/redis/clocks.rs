//! The server's clock is set: validity is ours, tokens still grow, and what is known of its clock is found out again.

use std::time::{Duration, Instant};

use lockkeeper::Client;
use lockkeeper::backend::LossReason;
use lockkeeper::runtime::Runtime;
use lockkeeper::store::redis::{Config, RedisStore};
use redis::Commands;
use tokio::time::{sleep, timeout};

use crate::clock::WallClock;
use crate::proxy::Fault;
use crate::server::{Flavour, Server};
use crate::site::{Site, ms, scripts_run, until};

/// A site whose server has a clock that can be set. `None`: skipped, and said so.
async fn under_a_clock(test: &str) -> Option<(Site, WallClock)> {
    if let Some(why) = Server::missing(Flavour::Redis) {
        lockkeeper::conformance::skip(test, &why);
        return None;
    }
    let clock = WallClock::new(test)?;
    let server = Server::start_in(clock.environment(), Flavour::Redis, &[]);
    Some((Site::before(server, None).await, clock))
}

fn server_time(site: &Site) -> u64 {
    redis::cmd("TIME").query::<(u64, u64)>(&mut site.eyes()).unwrap().0
}

/// All leases end at once: the holder is told, and nobody's requests are late for long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_clock_set_forward_ends_leases_and_the_holder_is_told() {
    let Some((site, clock)) = under_a_clock("server clock forward").await else { return };
    let lease = ms(1_500);
    let (client, before) = (site.client(Client::builder().lease(lease)).await, server_time(&site));
    let guard = client.mutex("m").lock().await.unwrap();
    clock.set(60);
    assert!(server_time(&site) >= before + 60, "the clock was not set: nothing was tested");
    assert_eq!(timeout(lease * 4, guard.lost()).await.expect("told"), LossReason::Gone);
    let began = Instant::now();
    let next = client.mutex("m").lock().timeout(ms(5_000)).await.expect("not late for ever");
    assert!(began.elapsed() < ms(3_000), "only after {:?}", began.elapsed());
    assert!(next.token().unwrap().number() > guard.token().unwrap().number());
    next.release().await.unwrap();
}

/// The server keeps the name for longer; the holder's validity is its own, and the next token is larger although its clock is behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_clock_set_back_lengthens_no_validity_and_tokens_still_grow() {
    let Some((site, clock)) = under_a_clock("server clock back").await else { return };
    let client = site.client(Client::builder()).await;
    let guard = client.mutex("m").lock().lease(ms(700)).await.unwrap();
    clock.set(-90);
    assert_eq!(timeout(ms(3_000), guard.lost()).await.expect("told"), LossReason::Expired);
    assert!(!guard.is_valid());
    let left: i64 = site.eyes().pttl("m").unwrap();
    assert!(left > 60_000, "the lease is not longer at the server: nothing was tested ({left} ms)");
    let before = guard.token().unwrap().number();
    // Lost or not, giving it back frees it, here long before its stretched end.
    drop(guard);
    until("it is free", || !site.eyes().exists::<_, bool>("m").unwrap()).await;
    let next = client.mutex("m").lock().await.unwrap();
    assert!(next.token().unwrap().number() > before, "a token went back with the clock");
    next.release().await.unwrap();
}

/// A request's last moment is told in the server's time. If that was set back, and nobody looked again, a request could come a minute late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_clock_set_back_is_noticed_on_a_connection_in_use() {
    let Some((site, clock)) = under_a_clock("server clock noticed").await else { return };
    // A short lease: the keeper is busy soon.
    let (client, mut eyes) = (site.client(Client::builder().lease(ms(3_000)).command_timeout(ms(600))).await, site.eyes());
    // Somebody holds something: both connections are made.
    let _held = client.mutex("held").lock().await.unwrap();
    until("the keeper is connected", || !eyes.keys::<_, Vec<String>>("lockkeeper:client:*").unwrap().is_empty()).await;
    let connections = site.proxy.connections();
    clock.set(-90);
    // What is known of the clock grows old; the next request has it looked up.
    sleep(Duration::from_secs(6)).await;
    client.mutex("other").lock().await.unwrap().release().await.unwrap();
    client.mutex("other").lock().await.unwrap().release().await.unwrap();
    sleep(ms(100)).await;
    assert_eq!(site.proxy.connections(), connections, "a new connection would have asked anyway: nothing was tested");
    site.proxy.next("EVALSHA", Fault::Hold);
    let waited = client.mutex("m").lock().lease(Duration::from_secs(60)).timeout(ms(100)).await;
    assert!(waited.is_err() && site.proxy.met());
    // Given up, given back, and given back once more.
    sleep(ms(1_200)).await;
    let before = scripts_run(&mut eyes);
    site.proxy.let_go();
    until("the late request has arrived", || scripts_run(&mut eyes) > before).await;
    assert!(!eyes.exists::<_, bool>("m").unwrap(), "a request that its sender gave up holds the lock");
}

/// A counting request that the server refuses as late was not carried out: it is sent again once the server's clock is known.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_clock_set_forward_does_not_refuse_counting_requests() {
    let Some((site, clock)) = under_a_clock("counting under a clock set forward").await else { return };
    let client = site.client(Client::builder()).await;
    let latch = client.latch("l");
    latch.try_set(3).await.unwrap();
    client.counting_semaphore("c").release(5).await.unwrap();
    clock.set(60);
    let began = Instant::now();
    assert_eq!(latch.count_down().await.expect("not late"), 2);
    client.counting_semaphore("c").acquire(1).await.expect("not late");
    client.mutex("m").lock().await.expect("not late").release().await.unwrap();
    assert!(began.elapsed() < ms(1_000), "after {:?}", began.elapsed());
    assert_eq!((site.eyes().get::<_, i64>("l").unwrap(), site.eyes().get::<_, i64>("c").unwrap()), (2, 4), "each counted once");
}

/// A counting request that the network keeps was sent by what was known of the server's clock before it was set back, so it is in time there for
/// as long as that step. Its repetition was counted: it is not, soon afterwards or late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_counting_request_does_not_count_beside_its_repetition() {
    let Some((site, clock)) = under_a_clock("a held counting request").await else { return };
    for (name, held_for) in [("soon", Duration::ZERO), ("late", Duration::from_secs(5))] {
        clock.set(0);
        // Long enough for the silent connection to be replaced and the request to be repeated.
        let client = site.client(Client::builder().command_timeout(ms(1_800))).await;
        let latch = client.latch(name);
        latch.try_set(3).await.unwrap();
        clock.set(-90);
        site.proxy.next("EVALSHA", Fault::Hold);
        assert_eq!(latch.count_down().await.expect("repeated, and answered"), 2, "{name}");
        assert!(site.proxy.met(), "{name}");
        sleep(held_for).await;
        let before = scripts_run(&mut site.eyes());
        site.proxy.let_go();
        until("the held request has arrived", || scripts_run(&mut site.eyes()) > before).await;
        assert_eq!(site.eyes().get::<_, i64>(name).unwrap(), 2, "{name}: counted twice");
    }
}

/// Grants that must reach replicas have a connection of their own; a late request costs neither that one nor the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_request_with_replicas_drops_no_connection() {
    let Some((site, clock)) = under_a_clock("late with replicas").await else { return };
    let _replica = Server::start_with(Flavour::Redis, &["--replicaof", "127.0.0.1", &site.server.port.to_string()]);
    // A replica that is online may still be busy with what it got: it is there when it confirms a write.
    until("the replica confirms", || {
        let mut eyes = site.eyes();
        eyes.set::<_, _, ()>("written", 1).unwrap();
        redis::cmd("WAIT").arg(1).arg(100).query::<u64>(&mut eyes).unwrap() == 1
    })
    .await;
    let client = site.client_at(Client::builder().lease(ms(3_000)), &format!("{}?replicas=1", site.url())).await;
    let _held = client.mutex("held").lock().await.unwrap();
    until("the keeper is connected", || !site.eyes().keys::<_, Vec<String>>("lockkeeper:client:*").unwrap().is_empty()).await;
    let connections = site.proxy.connections();
    clock.set(60);
    let began = Instant::now();
    client.mutex("m").lock().await.unwrap().release().await.unwrap();
    assert!(began.elapsed() < ms(1_500), "after {:?}", began.elapsed());
    assert_eq!(site.proxy.connections(), connections, "a connection was dropped");
}

/// What is known of the server's clock is measured before it is used when it is old: nothing ran that could have noticed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_clock_offset_is_measured_before_it_is_used() {
    let Some((site, clock)) = under_a_clock("old offset").await else { return };
    // A short lease: the keeper is busy soon.
    let (client, mut eyes) = (site.client(Client::builder().lease(ms(3_000)).command_timeout(ms(600))).await, site.eyes());
    // Its connection is made when somebody holds something for a while.
    let held = client.mutex("held").lock().await.unwrap();
    until("the keeper is connected", || !eyes.keys::<_, Vec<String>>("lockkeeper:client:*").unwrap().is_empty()).await;
    held.release().await.unwrap();
    let connections = site.proxy.connections();
    clock.set(-90);
    sleep(Duration::from_secs(31)).await;
    site.proxy.next("EVALSHA", Fault::Hold);
    let waited = client.mutex("m").lock().lease(Duration::from_secs(60)).timeout(ms(100)).await;
    assert!(waited.is_err() && site.proxy.met());
    assert_eq!(site.proxy.connections(), connections, "a new connection would have asked anyway: nothing was tested");
    // Given up, released, and released once more.
    sleep(ms(1_200)).await;
    let before = scripts_run(&mut eyes);
    site.proxy.let_go();
    until("the late request has arrived", || scripts_run(&mut eyes) > before).await;
    assert!(!eyes.exists::<_, bool>("m").unwrap(), "a request that its sender gave up holds the lock");
}

/// A replica that is promoted goes on by its own clock: `doctor` compares it with the master's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_clocks_of_replicas_are_compared_by_a_thorough_look() {
    let Some((site, clock)) = under_a_clock("clocks of replicas").await else { return };
    let _replica = Server::start_with(Flavour::Redis, &["--replicaof", "127.0.0.1", &site.server.port.to_string()]);
    until("the replica is there", || {
        redis::cmd("INFO").arg("replication").query::<String>(&mut site.eyes()).unwrap().contains("state=online")
    })
    .await;
    let config = Config::parse(&site.server.url(0)).unwrap();
    for (ahead, words) in [(0, "of the master's"), (60, "the clock of a replica differs by")] {
        clock.set(ahead);
        let found = RedisStore::examine(config.clone(), &Runtime::system()).await;
        let said: Vec<&str> = found.iter().filter(|found| found.about == "replicas").map(|found| found.says.as_str()).collect();
        assert!(said.len() == 1 && said[0].contains(words), "{ahead}: {said:?}");
    }
}
