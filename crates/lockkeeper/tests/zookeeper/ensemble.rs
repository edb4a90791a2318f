//! Three servers: a follower and the leader are killed, and holds and waiters go on.

use std::time::Duration;

use crate::site::until;
use lockkeeper_testkit::zookeeper::ZooKeeper;
use tokio::time::timeout;

use crate::site;

const SOON: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_and_waiters_survive_the_death_of_a_follower_and_of_the_leader() {
    if ZooKeeper::missing().is_some() {
        let _ = site::server("ensemble");
        return;
    }
    let mut servers = tokio::task::spawn_blocking(ZooKeeper::ensemble).await.unwrap();
    let url = site::fresh_url(&servers, "20s").await;
    let (ours, rival) = (site::client(&url).await, site::client(&url).await);
    let guard = ours.mutex("m").lock().await.unwrap();
    let before = guard.token().unwrap();
    let waiter = tokio::spawn(async move { rival.mutex("m").lock().await });
    until("the rival waits", async || ours.inspect("m").await.is_ok_and(|seen| seen.is_some_and(|seen| seen.queue.len() == 1)))
        .await;
    let leader = servers.leader().expect("a leader");
    // A follower dies, perhaps ours, and comes back.
    let follower = (0..3).find(|server| *server != leader).unwrap();
    servers.kill(follower);
    until("we are with another server", async || ours.inspect("m").await.is_ok()).await;
    assert!(guard.is_valid() && !waiter.is_finished());
    let mut servers = tokio::task::spawn_blocking(move || {
        servers.start_again(follower);
        servers
    })
    .await
    .unwrap();
    servers.kill(leader);
    until("the others have a leader", async || ours.inspect("m").await.is_ok()).await;
    assert!(guard.is_valid() && !waiter.is_finished());
    timeout(SOON, guard.release()).await.expect("released").unwrap();
    let next = timeout(SOON, waiter).await.expect("granted").unwrap().unwrap();
    assert!(next.token().unwrap() > before, "tokens grow across leaders");
    next.release().await.unwrap();
    // Without a majority nothing is granted, and that is said.
    servers.kill(follower);
    let refused = ours.mutex("m").lock().timeout(Duration::from_secs(3)).await.unwrap_err();
    assert!(refused.is_outage(), "{refused:?}");
}
