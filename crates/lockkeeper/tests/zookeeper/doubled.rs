//! Two nodes of one owner, because an answer was lost or a session ended: only the node counts that the present session made and knows of.

use std::time::Duration;

use lockkeeper_testkit::proxy::{Door, Fault, Proxy};
use tokio::time::timeout;
use zookeeper_client::{Acls, Client, CreateMode};

use crate::site::{self, until};

const SOON: Duration = Duration::from_secs(20);

/// What an owner's nodes begin with, up to and with its id.
fn id_of(node: &str) -> String {
    node[.."_c_".len() + 36].to_owned()
}

/// Makes a node that another session of the same owner could have made.
async fn leftover(raw: &Client, prefix: &str) -> String {
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let (_, number) = raw.create(prefix, &[], &options).await.expect("created");
    format!("{prefix}{number}")
}

/// Closes the session of the client that made this node.
async fn close_session_of(server: &lockkeeper_testkit::zookeeper::ZooKeeper, raw: &Client, path: &str) {
    let session = raw.check_stat(path).await.unwrap().expect("there").ephemeral_owner;
    let port = server.ports()[0];
    tokio::task::spawn_blocking(move || site::close_session(port, session)).await.unwrap();
    until("the session has ended", async || raw.check_stat(path).await.unwrap().is_none()).await;
}

#[tokio::test]
async fn a_lost_answer_leaves_no_node_in_the_queue_of_a_semaphore() {
    let Some(server) = site::server("doubled queue nodes") else { return };
    let (proxy, folder) = (Proxy::start(server.ports()[0]).await, site::fresh_folder(&server).await);
    let raw = site::raw(&server).await;
    let ours = site::client(&format!("zookeeper://127.0.0.1:{}/{folder}?session=10s", proxy.port)).await;
    let rival = site::client(&format!("zookeeper://{}/{folder}?session=10s", server.hosts())).await;
    let (queue, leases) = (format!("/{folder}/s/locks"), format!("/{folder}/s/leases"));
    // The place in the queue first, and then the transaction that adds the permit.
    for (round, text) in ["-lock-", "-lease-", "-lock-"].into_iter().enumerate() {
        ours.semaphore("s", 2).acquire().await.unwrap().release().await.unwrap();
        proxy.next(text, Fault::LoseReply);
        let guard = timeout(SOON, ours.semaphore("s", 2).acquire()).await.expect("acquired").unwrap();
        assert!(proxy.met());
        assert_eq!(site::nodes(&raw, &queue).await, Vec::<String>::new(), "round {round}");
        assert_eq!(site::nodes(&raw, &leases).await.len(), 1, "round {round}");
        let second = timeout(SOON, rival.semaphore("s", 2).acquire()).await.expect("a permit is free").unwrap();
        second.release().await.unwrap();
        guard.release().await.unwrap();
        until("nothing is left", async || site::nodes(&raw, &leases).await.is_empty()).await;
    }
}

#[tokio::test]
async fn tokens_grow_when_an_answer_was_lost_and_another_came_between() {
    let Some(server) = site::server("tokens of doubled nodes") else { return };
    let (proxy, folder) = (Proxy::start(server.ports()[0]).await, site::fresh_folder(&server).await);
    let raw = site::raw(&server).await;
    let path = format!("/{folder}/m");
    let ours = site::client(&format!("zookeeper://127.0.0.1:{}/{folder}?session=20s", proxy.port)).await;
    let url = format!("zookeeper://{}/{folder}?session=20s", server.hosts());
    let (holder, rival) = (site::client(&url).await, site::client(&url).await);
    let guard = holder.mutex("m").lock().await.unwrap();
    let waits = |client: &lockkeeper::Client| {
        let client = client.clone();
        tokio::spawn(async move {
            let guard = client.mutex("m").lock().await.unwrap();
            let token = guard.token().unwrap();
            guard.release().await.unwrap();
            token
        })
    };
    // Nobody gets in any more: it cannot ask again before the rival stands in the queue.
    proxy.set_door(Door::Closed);
    proxy.next("-lock-", Fault::LoseReply);
    let first = waits(&ours);
    until("the answer is lost", async || proxy.met()).await;
    until("the first node is there", async || site::nodes(&raw, &path).await.len() >= 2).await;
    let before = site::nodes(&raw, &path).await;
    let second = waits(&rival);
    until("the rival stands behind it", async || site::nodes(&raw, &path).await.len() > before.len()).await;
    proxy.set_door(Door::Open);
    // The client whose answer was lost has one node again, behind the rival's.
    until("it stands behind the rival", async || {
        let mut nodes = site::nodes(&raw, &path).await;
        nodes.sort_by_key(|node| node[node.len() - 10..].to_owned());
        nodes.len() == 3 && nodes.last().is_some_and(|last| before.iter().any(|node| id_of(node) == id_of(last)))
    })
    .await;
    let third = guard.token().unwrap();
    guard.release().await.unwrap();
    let second = timeout(SOON, second).await.expect("granted").unwrap();
    let first = timeout(SOON, first).await.expect("granted").unwrap();
    assert!(third < second && second < first, "{third} < {second} < {first}");
}

/// A server that was down for longer than a session knows the session for a while when it is back; its client has given it up.
#[tokio::test]
async fn a_node_of_an_ended_session_is_not_taken_for_a_hold_of_the_next_one() {
    let Some(server) = site::server("nodes of ended sessions") else { return };
    let folder = site::fresh_folder(&server).await;
    let (raw, old) = (site::raw(&server).await, site::raw(&server).await);
    let url = format!("zookeeper://{}/{folder}?session=10s", server.hosts());
    let (holder, ours) = (site::client(&url).await, site::client(&url).await);
    let path = format!("/{folder}/m");
    let guard = holder.mutex("m").lock().await.unwrap();
    let held = site::nodes(&raw, &path).await;
    let waiter = tokio::spawn({
        let ours = ours.clone();
        async move { ours.mutex("m").lock().await.unwrap() }
    });
    until("it waits", async || site::nodes(&raw, &path).await.len() == 2).await;
    let place = site::nodes(&raw, &path).await.into_iter().find(|node| !held.contains(node)).expect("its node");
    let left = leftover(&old, &format!("{path}/{}-lock-", id_of(&place))).await;
    close_session_of(&server, &raw, &format!("{path}/{place}")).await;
    until("it waits in its new session", async || {
        let nodes = site::nodes(&raw, &path).await;
        nodes.iter().any(|node| !held.contains(node) && !left.ends_with(node.as_str()))
            && raw.check_stat(&left).await.unwrap().is_none()
    })
    .await;
    guard.release().await.unwrap();
    let guard = timeout(SOON, waiter).await.expect("granted").unwrap();
    // The old session is over at the server, too.
    drop(old);
    assert!(timeout(Duration::from_secs(1), guard.lost()).await.is_err(), "the hold went with the old session");
    assert!(holder.mutex("m").try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn permits_of_an_ended_session_are_not_taken_for_those_of_the_next_one() {
    let Some(server) = site::server("permits of ended sessions") else { return };
    let folder = site::fresh_folder(&server).await;
    let (raw, old) = (site::raw(&server).await, site::raw(&server).await);
    let url = format!("zookeeper://{}/{folder}?session=10s", server.hosts());
    let (holder, ours) = (site::client(&url).await, site::client(&url).await);
    let (queue, leases) = (format!("/{folder}/s/locks"), format!("/{folder}/s/leases"));
    let guard = holder.semaphore("s", 1).acquire().await.unwrap();
    let waiter = tokio::spawn({
        let ours = ours.clone();
        async move { ours.semaphore("s", 1).acquire().await.unwrap() }
    });
    until("it waits", async || site::nodes(&raw, &queue).await.len() == 1).await;
    let place = site::nodes(&raw, &queue).await.pop().expect("its node");
    leftover(&old, &format!("{leases}/{}-lease-", id_of(&place))).await;
    close_session_of(&server, &raw, &format!("{queue}/{place}")).await;
    until("only the holder has a permit", async || {
        assert!(!waiter.is_finished(), "granted beside the holder");
        site::nodes(&raw, &leases).await.len() == 1 && site::nodes(&raw, &queue).await.len() == 1
    })
    .await;
    drop(old);
    guard.release().await.unwrap();
    let guard = timeout(SOON, waiter).await.expect("granted").unwrap();
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    until("nothing is left", async || site::nodes(&raw, &queue).await.len() + site::nodes(&raw, &leases).await.len() == 0).await;
}
