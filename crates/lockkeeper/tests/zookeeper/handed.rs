//! A lock that goes from one task of a client to the next in the queue.

use std::time::Duration;

use tokio::time::timeout;

use crate::site::{self, until};
use crate::watched::watchers;

const SOON: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_whose_node_somebody_deleted_is_not_granted_the_lock_that_its_client_releases() {
    let Some(server) = site::server("a deleted waiter") else { return };
    let folder = site::fresh_folder(&server).await;
    let raw = site::raw(&server).await;
    let url = format!("zookeeper://{}/{folder}?session=30s", server.hosts());
    let (ours, rival) = (site::client(&url).await, site::client(&url).await);
    let path = format!("/{folder}/m");
    let in_order = async || {
        let mut nodes = site::nodes(&raw, &path).await;
        nodes.sort_by_key(|node| node[node.len() - 10..].to_owned());
        nodes
    };
    for _ in 0..5 {
        let guard = ours.mutex("m").lock().await.unwrap();
        let [waiting, theirs] = [&ours, &rival].map(|client| client.mutex("m"));
        let waiting = tokio::spawn(async move { waiting.lock().await.unwrap() });
        until("our other task waits", async || in_order().await.len() == 2).await;
        let theirs = tokio::spawn(async move { theirs.lock().await.unwrap() });
        until("the rival waits", async || in_order().await.len() == 3).await;
        let nodes = in_order().await;
        let session = raw.check_stat(&format!("{path}/{}", nodes[2])).await.unwrap().expect("there").ephemeral_owner;
        raw.delete(&format!("{path}/{}", nodes[1]), None).await.unwrap();
        let holder = format!("{path}/{}", nodes[0]);
        until("the rival is next", async || watchers(&server, &holder).await.contains(&session)).await;
        guard.release().await.unwrap();
        let granted = timeout(SOON, theirs).await.expect("it is next").unwrap();
        until("our task stands at the end", async || in_order().await.len() == 2).await;
        assert!(granted.is_valid() && !waiting.is_finished(), "two holders");
        assert!(ours.mutex("m").try_lock().await.unwrap().is_none());
        let before = granted.token();
        granted.release().await.unwrap();
        let last = timeout(SOON, waiting).await.expect("served").unwrap();
        assert!(last.token() > before);
        last.release().await.unwrap();
    }
}
