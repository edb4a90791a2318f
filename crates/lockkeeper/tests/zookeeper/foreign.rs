//! Folders that hold something else, or refuse us: an acquire that fails leaves no node, and a forced release deletes only what belongs to a lock.

use std::time::Duration;

use lockkeeper::ErrorKind;
use lockkeeper_testkit::proxy::{Fault, Proxy};
use tokio::time::timeout;
use zookeeper_client::{Acls, Client, CreateMode};

use crate::site::{self, until};
use crate::watched::watchers;

const SOON: Duration = Duration::from_secs(20);

async fn make(raw: &Client, path: &str, data: &[u8], acls: Acls<'_>) {
    raw.create(path, data, &CreateMode::Persistent.with_acls(acls)).await.expect("created");
}

#[tokio::test]
async fn a_lock_that_cannot_be_acquired_leaves_no_node() {
    let Some(server) = site::server("refused") else { return };
    let folder = site::fresh_folder(&server).await;
    let raw = site::raw(&server).await;
    let ours = site::client(&format!("zookeeper://{}/{folder}?session=20s", server.hosts())).await;
    // The record of the name is not ours.
    make(&raw, &format!("/{folder}/m"), &[], Acls::anyone_all()).await;
    make(&raw, &format!("/{folder}/m/_lockkeeper"), b"not ours", Acls::anyone_all()).await;
    let refused = ours.mutex("m").lock().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ForeignKey, "{refused}");
    assert_eq!(site::nodes(&raw, &format!("/{folder}/m")).await, ["_lockkeeper"]);
    // Permits cannot be added.
    make(&raw, &format!("/{folder}/s"), &[], Acls::anyone_all()).await;
    make(&raw, &format!("/{folder}/s/locks"), &[], Acls::anyone_all()).await;
    make(&raw, &format!("/{folder}/s/leases"), &[], Acls::anyone_read()).await;
    let refused = ours.semaphore("s", 2).acquire().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
    assert_eq!(site::nodes(&raw, &format!("/{folder}/s/locks")).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_forced_release_deletes_no_node_that_is_not_ephemeral() {
    let Some(server) = site::server("forced") else { return };
    let folder = site::fresh_folder(&server).await;
    let raw = site::raw(&server).await;
    let ours = site::client(&format!("zookeeper://{}/{folder}?session=20s", server.hosts())).await;
    for (name, child) in [("orders", "block-5"), ("bills", "release-12")] {
        make(&raw, &format!("/{folder}/{name}"), &[], Acls::anyone_all()).await;
        make(&raw, &format!("/{folder}/{name}/{child}"), b"data", Acls::anyone_all()).await;
        let refused = ours.force_release(name).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ForeignKey, "{refused}");
        assert_eq!(site::nodes(&raw, &format!("/{folder}/{name}")).await, [child]);
    }
    let guard = ours.mutex("m").lock().await.unwrap();
    assert_eq!(ours.force_release("m").await.unwrap().from.len(), 1);
    timeout(SOON, guard.lost()).await.expect("told");
}

#[tokio::test]
async fn a_writer_becomes_a_reader_under_names_that_look_like_nodes() {
    let Some(server) = site::server("names like nodes") else { return };
    let url = site::fresh_url(&server, "20s").await;
    let (ours, rival) = (site::client(&url).await, site::client(&url).await);
    for name in ["lock-a", "block-1", "a__READ__b", "__WRIT__7", "release-2"] {
        let writer = ours.rwlock(name).write().await.unwrap();
        let reader = writer.downgrade().await.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(rival.rwlock(name).try_write().await.unwrap().is_none(), "{name}");
        let beside = timeout(SOON, rival.rwlock(name).read()).await.expect("readers share").unwrap();
        beside.release().await.unwrap();
        reader.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_waiter_for_permits_keeps_its_place_when_an_answer_is_lost() {
    let Some(server) = site::server("places") else { return };
    let (proxy, folder) = (Proxy::start(server.ports()[0]).await, site::fresh_folder(&server).await);
    let raw = site::raw(&server).await;
    let ours = site::client(&format!("zookeeper://127.0.0.1:{}/{folder}?session=20s", proxy.port)).await;
    let rival = site::client(&format!("zookeeper://{}/{folder}?session=20s", server.hosts())).await;
    let queue = format!("/{folder}/s/locks");
    let guard = rival.semaphore("s", 1).acquire().await.unwrap();
    let waits = |client: &lockkeeper::Client| {
        let client = client.clone();
        tokio::spawn(async move { client.semaphore("s", 1).acquire().await.unwrap() })
    };
    let first = waits(&ours);
    until("ours waits", async || site::nodes(&raw, &queue).await.len() == 1).await;
    let place = site::nodes(&raw, &queue).await.pop().expect("its node");
    // Its first request has ended. If that had no answer it would withdraw, and queue up anew.
    let size = format!("/{folder}/s/_lockkeeper");
    until("it watches the size", async || !watchers(&server, &size).await.is_empty()).await;
    // The next listing of the queue has no answer.
    proxy.next("/s/locks", Fault::LoseReply);
    until("the answer is lost", async || proxy.met()).await;
    // These go the same way as whatever it sent then.
    for _ in 0..3 {
        until("it is connected again", async || ours.inspect("s").await.is_ok()).await;
    }
    assert_eq!(site::nodes(&raw, &queue).await, [place]);
    let second = waits(&rival);
    until("the rival waits", async || site::nodes(&raw, &queue).await.len() == 2).await;
    guard.release().await.unwrap();
    let guard = timeout(SOON, first).await.expect("granted").unwrap();
    assert!(!second.is_finished());
    guard.release().await.unwrap();
    timeout(SOON, second).await.expect("granted").unwrap().release().await.unwrap();
}
