//! A server that does not run for a while, as a virtual machine that is moved.

use std::time::Duration;

use lockkeeper_testkit::zookeeper::ZooKeeper;
use tokio::time::{sleep, timeout};

use crate::site::{self, until};

const SOON: Duration = Duration::from_secs(60);

/// A server of the test's own: others would notice that it stops.
fn own() -> Option<ZooKeeper> {
    if ZooKeeper::missing().is_some() {
        let _ = site::server("a server that stops");
        return None;
    }
    Some(ZooKeeper::start())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_for_less_than_a_session_costs_no_lock() {
    let Some(server) = own() else { return };
    let url = site::fresh_url(&server, "30s").await;
    let (ours, rival) = (site::client(&url).await, site::client(&url).await);
    let guard = ours.mutex("m").lock().await.unwrap();
    let waiting = tokio::spawn(async move { rival.mutex("m").lock().await });
    until("the rival waits", async || ours.inspect("m").await.unwrap().is_some_and(|seen| seen.queue.len() == 1)).await;
    server.pause(0);
    // The release is sent to a server that does not read it now.
    let releasing = tokio::spawn(guard.release());
    sleep(Duration::from_secs(2)).await;
    assert!(!waiting.is_finished());
    server.resume(0);
    timeout(SOON, releasing).await.expect("answered").unwrap().unwrap();
    timeout(SOON, waiting).await.expect("granted").unwrap().unwrap().release().await.unwrap();
    until("nothing is left", async || ours.inspect("m").await.unwrap().is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_for_longer_than_a_session_costs_the_hold_and_nothing_else() {
    let Some(server) = own() else { return };
    let url = site::fresh_url(&server, "2s").await;
    let (ours, rival) = (site::client(&url).await, site::client(&url).await);
    let guard = ours.mutex("m").lock().await.unwrap();
    let before = guard.token().unwrap();
    server.pause(0);
    // By our own clock: nobody can tell us.
    timeout(SOON, guard.lost()).await.expect("told");
    assert!(!guard.is_valid());
    // Longer than the driver keeps the session, too.
    sleep(Duration::from_secs(2)).await;
    server.resume(0);
    // Both go on by themselves when the server does.
    let next = timeout(SOON, rival.mutex("m").lock().timeout(SOON)).await.expect("granted").unwrap();
    assert!(next.token().unwrap() > before);
    next.release().await.unwrap();
    timeout(SOON, ours.mutex("m").lock().timeout(SOON)).await.expect("granted").unwrap().release().await.unwrap();
    drop(guard);
    until("nothing is left", async || ours.inspect("m").await.unwrap().is_none()).await;
}
