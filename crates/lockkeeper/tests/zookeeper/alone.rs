//! Locks that only one client acquires: after a few times it does not list the folder any more. It must never take a folder for empty that is not.

use lockkeeper_testkit::proxy::{Door, Proxy};
use lockkeeper_testkit::zookeeper::ZooKeeper;
use zookeeper_client::{Acls, CreateMode};

use crate::site;
use crate::site::until;

/// So often a name is acquired before its folder is not listed.
const WARM: usize = 4;

/// The packets that a server has received so far.
fn received(server: &ZooKeeper) -> u64 {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", server.ports()[0])).expect("a running server");
    stream.write_all(b"srvr").expect("sent");
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("an answer");
    let number = said.lines().find_map(|line| line.strip_prefix("Received: "));
    number.and_then(|number| number.trim().parse().ok()).unwrap_or_else(|| panic!("no count: {said}"))
}

async fn warm(client: &lockkeeper::Client, server: &ZooKeeper, folder: &str) {
    let mutex = client.mutex("m");
    for turn in 0..WARM {
        mutex.lock().await.unwrap().release().await.unwrap();
        if turn + 2 == WARM {
            // The last of them is after the watch.
            until("the folder is watched", async || !crate::watched::watchers(server, &format!("/{folder}/m")).await.is_empty())
                .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_nobody_else_wants_is_one_request_and_its_release_another() {
    const CYCLES: u64 = 200;
    if site::server("requests").is_none() {
        return;
    }
    let server = ZooKeeper::start_with("", &[]);
    let folder = site::fresh_folder(&server).await;
    let client = site::client(&format!("zookeeper://{}/{folder}?session=30s", server.hosts())).await;
    warm(&client, &server, &folder).await;
    let (mutex, before) = (client.mutex("m"), received(&server));
    for _ in 0..CYCLES {
        mutex.lock().await.unwrap().release().await.unwrap();
    }
    let each = received(&server) - before;
    // Some for pings, and for holds that a busy machine made long enough to be watched.
    assert!((2 * CYCLES..5 * CYCLES / 2).contains(&each), "{each} requests for {CYCLES} locks");
    // The control: a client that finds others there lists the folder each time.
    let rival = site::client(&format!("zookeeper://{}/{folder}?session=30s", server.hosts())).await;
    rival.mutex("m").lock().await.unwrap().release().await.unwrap();
    let before = received(&server);
    for turn in 0..CYCLES {
        let mutex = if turn.is_multiple_of(2) { client.mutex("m") } else { rival.mutex("m") };
        mutex.lock().await.unwrap().release().await.unwrap();
    }
    let each = received(&server) - before;
    assert!(each >= 3 * CYCLES, "{each} requests for {CYCLES} locks by turns");
}

/// Removes the folder of the mutex and makes it again, with so many nodes that the next one has the number which the client expects. The last of them holds.
async fn make_again(raw: &zookeeper_client::Client, path: &str, nodes: usize) {
    let anyone = Acls::anyone_all();
    raw.delete(path, None).await.expect("empty");
    raw.create(path, &[], &CreateMode::Persistent.with_acls(anyone)).await.expect("created");
    for number in 0..nodes {
        let node = format!("{path}/_c_00000000-0000-4000-8000-000000000000-lock-");
        let (_, made) = raw.create(&node, &[], &CreateMode::EphemeralSequential.with_acls(anyone)).await.expect("created");
        if number + 1 < nodes {
            raw.delete(&format!("{node}{made}"), None).await.expect("there");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_that_was_made_again_is_listed() {
    if site::server("a folder that was made again").is_none() {
        return;
    }
    // Of its own: the watchers of all tests are asked for.
    let server = ZooKeeper::start_with("", &[]);
    let raw = site::raw(&server).await;
    for connected in [true, false] {
        let folder = site::fresh_folder(&server).await;
        let proxy = Proxy::start(server.ports()[0]).await;
        let ours = site::client(&format!("zookeeper://127.0.0.1:{}/{folder}?session=30s", proxy.port)).await;
        warm(&ours, &server, &folder).await;
        let path = format!("/{folder}/m");
        if !connected {
            // The client learns of it when it has connected again.
            proxy.set_door(Door::Closed);
            proxy.reset_present_connections();
        }
        make_again(&raw, &path, WARM).await;
        proxy.set_door(Door::Open);
        let granted = ours.mutex("m").try_lock().await.unwrap();
        assert!(granted.is_none(), "granted beside another holder, connected: {connected}");
        assert_eq!(site::nodes(&raw, &path).await.len(), 1, "only the holder");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_take_turns_of_any_length_exclude_each_other() {
    let Some(server) = site::server("turns") else { return };
    let folder = site::fresh_folder(&server).await;
    let url = format!("zookeeper://{}/{folder}?session=30s", server.hosts());
    let clients = [site::client(&url).await, site::client(&url).await];
    let mut last = None;
    for turn in 0..24 {
        let (ours, theirs) = (&clients[turn % 2], &clients[(turn + 1) % 2]);
        for _ in 0..[1, 6, 2, 4, 5, 1, 3][turn % 7] {
            let guard = ours.mutex("m").lock().await.unwrap();
            assert!(guard.token() > last, "{:?} after {last:?}", guard.token());
            last = guard.token();
            assert!(theirs.mutex("m").try_lock().await.unwrap().is_none());
            guard.release().await.unwrap();
            // Also without anybody who looks: that is what a client learns from.
            ours.mutex("m").lock().await.unwrap().release().await.unwrap();
        }
        // A writer of one is seen by a reader of the other.
        let writer = ours.rwlock("rw").write().await.unwrap();
        assert!(theirs.rwlock("rw").try_read().await.unwrap().is_none());
        writer.release().await.unwrap();
        let reader = theirs.rwlock("rw").read().await.unwrap();
        assert!(ours.rwlock("rw").try_write().await.unwrap().is_none());
        reader.release().await.unwrap();
    }
}
