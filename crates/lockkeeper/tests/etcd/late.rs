//! What comes late or fails half-way leaves no key behind: requests that a member kept back, releases during an outage, refusals after the key
//! was made, a full database, a member that hangs.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::ErrorKind;
use lockkeeper::backend::Backend;
use lockkeeper::runtime::Runtime;
use lockkeeper::store::etcd::{Config, EtcdStore};
use lockkeeper_testkit::etcd::Etcd;
use lockkeeper_testkit::poll::async_until_within;
use lockkeeper_testkit::proxy::{Fault, Proxy};

use crate::bench::{LONG, client, fresh, own, shared};

/// So many ways to the same server, as to the members of a cluster.
async fn members(server: &Etcd, number: usize) -> (Vec<Proxy>, String) {
    let mut proxies = Vec::new();
    for _ in 0..number {
        proxies.push(Proxy::start(server.port(0)).await);
    }
    let hosts: Vec<String> = proxies.iter().map(|proxy| format!("127.0.0.1:{}", proxy.port)).collect();
    (proxies, hosts.join(","))
}

async fn until_no_key_is_left(server: &Etcd, name: &str) {
    async_until_within(LONG, "no key is left", || async { server.keys(&format!("{name}/")).is_empty() }).await;
}

/// The first request sits in a member that hangs, the second one is granted by another member. The member goes on after the release.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_arrives_after_the_release_leaves_no_key() {
    let Some(server) = shared("a request kept back") else { return };
    for dropped in [false, true] {
        let (members, hosts) = members(&server, 2).await;
        let client = client(&format!("etcd://{hosts}?session=4s")).await;
        client.mutex(fresh("warm")).lock().await.unwrap().release().await.unwrap();
        let name = fresh("kept-back");
        members[0].next(format!("{name}/"), Fault::Hold);
        let guard = client.mutex(&name).lock().await.unwrap();
        assert!(members[0].met());
        if dropped {
            drop(guard);
        } else {
            guard.release().await.unwrap();
        }
        until_no_key_is_left(&server, &name).await;
        members[0].let_go();
        // Absence cannot be waited for: a late request that counts makes its key within milliseconds.
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert_eq!(server.keys(&format!("{name}/")), Vec::<String>::new(), "dropped {dropped}: held for nobody");
        }
    }
}

/// A server that comes back counts every lease anew, so what was not released would be kept alive for as long as the client lives.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_goes_on_after_an_outage_that_is_longer_than_the_session() {
    let Some(mut server) = own("a long outage", 1, &[]) else { return };
    let client = client(&server.url()).await;
    let guard = client.mutex("m").lock().await.unwrap();
    server.kill(0);
    drop(guard);
    tokio::time::sleep(Duration::from_secs(6)).await;
    server.start_again(0);
    assert!(server.answers());
    until_no_key_is_left(&server, "m").await;
    client.mutex("m").lock().await.unwrap().release().await.unwrap();
}

/// A full database takes no new keys, but what is held can be released.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_database_keeps_no_hold() {
    let Some(server) = own("a full database", 1, &["--quota-backend-bytes", "8388608"]) else { return };
    let (members, hosts) = members(&server, 1).await;
    let client = client(&format!("etcd://{hosts}?session=20s")).await;
    client.mutex("warm").lock().await.unwrap().release().await.unwrap();
    // One request without an answer, so that the release has to settle it.
    members[0].next("m/", Fault::LoseReply);
    let guard = client.mutex("m").lock().await.unwrap();
    assert!(members[0].met());
    let large = server.directory().join("large");
    std::fs::write(&large, "x".repeat(1_000_000)).unwrap();
    let put = || server.ctl_command(&["put", "large"]).stdin(std::fs::File::open(&large).unwrap()).output().unwrap();
    let is_full = || async { String::from_utf8_lossy(&put().stderr).contains("space exceeded") };
    async_until_within(LONG, "the database is full", is_full).await;
    drop(guard);
    until_no_key_is_left(&server, "m").await;
}

/// The key was made before the request was refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_on_foreign_data_fails_and_leaves_no_key() {
    let Some(server) = shared("foreign data") else { return };
    let (client, name) = (client(&server.url()).await, fresh("foreign"));
    let record = format!("{name}/.record");
    assert!(server.ctl(&["put", &record, "not ours"]).status.success());
    let error = client.mutex(&name).lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ForeignKey, "{error}");
    async_until_within(LONG, "only the record is left", || async { server.keys(&format!("{name}/")) == [record.clone()] }).await;
    let error = client.rwlock(&name).read().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ForeignKey, "{error}");
    async_until_within(LONG, "only the record is left", || async { server.keys(&format!("{name}/")) == [record.clone()] }).await;
}

/// A connection that says nothing is noticed after 15 s; the session ends before.
#[tokio::test(flavor = "multi_thread")]
async fn one_silent_member_of_three_costs_no_hold() {
    let Some(server) = shared("a silent member") else { return };
    let (members, hosts) = members(&server, 3).await;
    let client = client(&format!("etcd://{hosts}?session=4s")).await;
    let guard = client.mutex(fresh("silent")).lock().await.unwrap();
    for silent in &members {
        silent.fall_silent(true);
        let lost = tokio::time::timeout(Duration::from_secs(8), guard.lost()).await;
        assert!(lost.is_err(), "lost: {lost:?}");
        silent.fall_silent(false);
    }
    guard.release().await.unwrap();
}

/// A host that is off, or behind a firewall that drops packets: connecting to it takes longer than a keep-alive may take.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_cannot_be_connected_to_costs_no_hold() {
    let Some(server) = shared("a member that is off") else { return };
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let off = socket.listen(0).unwrap();
    let address = off.local_addr().unwrap();
    // Once nobody accepts and the queue is full, the kernel drops what comes.
    let mut queue = Vec::new();
    while let Ok(connected) = tokio::time::timeout(Duration::from_millis(300), tokio::net::TcpStream::connect(address)).await {
        queue.push(connected.unwrap());
    }
    let client = client(&format!("etcd://{address},{}?session=2s", server.hosts())).await;
    let guard = client.mutex(fresh("off")).lock().await.unwrap();
    let lost = tokio::time::timeout(Duration::from_secs(8), guard.lost()).await;
    assert!(lost.is_err(), "lost: {lost:?}");
    guard.release().await.unwrap();
}

/// A keep-alive that finds a session being opened sends nothing itself: the session counts from when it was asked for.
#[tokio::test(flavor = "multi_thread")]
async fn a_keep_alive_that_waits_for_a_new_session_counts_from_its_own_sending() {
    let Some(server) = shared("a slow session") else { return };
    let proxy = Proxy::start(server.port(0)).await;
    let config = Config::parse(&format!("etcd://127.0.0.1:{}?session=20s", proxy.port)).unwrap();
    let store = EtcdStore::connect(config, &Runtime::system()).await.unwrap();
    proxy.delay_answers(Duration::from_secs(2));
    let opening = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.keep_alive().await.unwrap() }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let kept = store.keep_alive().await.unwrap();
    let opened = opening.await.unwrap();
    assert_eq!(kept.session, opened.session);
    assert!(kept.good_for + Duration::from_millis(800) <= opened.good_for, "{kept:?} after {opened:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forced_release_deletes_nothing_that_is_no_lock() {
    let Some(server) = shared("a forced release of foreign data") else { return };
    let (client, name) = (client(&server.url()).await, fresh("users"));
    let key = format!("{name}/42");
    assert!(server.ctl(&["put", &key, "Ann"]).status.success());
    let error = client.force_release(&name).await.unwrap_err();
    assert!(error.kind() == ErrorKind::ForeignKey && error.to_string().contains(&key), "{error}");
    assert_eq!(server.keys(&format!("{name}/")), [key]);
    assert!(client.list(&name).await.unwrap().is_empty(), "it is no lock");
    // It blocks locks of that name, here as in Go, and people see why.
    assert!(client.mutex(&name).try_lock().await.unwrap().is_none());
    assert_eq!(client.inspect(&name).await.unwrap().unwrap().holders.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_and_numbers_can_be_made_above_other_keys() {
    let Some(server) = shared("deeper keys") else { return };
    let client = client(&server.url()).await;
    let above = |name: &str| {
        let name = fresh(name);
        assert!(server.ctl(&["put", &format!("{name}/deep/er"), "x"]).status.success());
        name
    };
    let name = above("permits");
    let permit = client.semaphore(&name, 2).acquire().await.unwrap();
    let error = client.mutex(&name).lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongKind, "{error}");
    permit.release().await.unwrap();
    let latch = client.latch(above("latch"));
    assert!(latch.try_set(1).await.unwrap());
    latch.count_down().await.unwrap();
    // A name still has one kind.
    let name = above("mutex");
    let guard = client.mutex(&name).lock().await.unwrap();
    for error in [
        client.semaphore(&name, 2).acquire().await.map(drop).unwrap_err(),
        client.latch(&name).try_set(1).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::WrongKind, "{error}");
    }
    guard.release().await.unwrap();
}
