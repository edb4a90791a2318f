//! Processes that stop running for a while (SIGSTOP), as a paused container or virtual machine does: a client, and the server.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use lockkeeper_testkit::poll::async_until_within;
use lockkeeper_testkit::signal;
use tokio::time::timeout;

use crate::bench::{LONG, client, fresh, own, shared};

/// Held by a process of its own, which is stopped for longer than its lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_was_stopped_past_its_lease_knows_that_it_lost() {
    let Some(server) = shared("a stopped client") else { return };
    let (rival, name) = (client(&server.url()).await, fresh("stopped"));
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "stopped::child_that_holds", "--ignored", "--nocapture"])
        .env("LOCKKEEPER_TEST_URL", server.url())
        .env("LOCKKEEPER_TEST_NAME", &name)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut said = move || loop {
        let line = lines.next().expect("the child goes on").unwrap();
        if let Some(said) = line.strip_prefix("child: ") {
            return said.to_owned();
        }
    };
    assert_eq!(said(), "holds");
    signal::stop(child.id());
    let guard = timeout(LONG, rival.mutex(&name).lock()).await.expect("the lease ends").unwrap();
    signal::resume(child.id());
    assert_eq!(said(), "lost, valid: false");
    // It releases what it believed to hold: that is not ours.
    assert!(child.wait().unwrap().success());
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    async_until_within(LONG, "nothing is left", || async { server.keys(&format!("{name}/")).is_empty() }).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a part of a_process_that_was_stopped_past_its_lease_knows_that_it_lost"]
async fn child_that_holds() {
    let client = client(&std::env::var("LOCKKEEPER_TEST_URL").unwrap()).await;
    let guard = client.mutex(std::env::var("LOCKKEEPER_TEST_NAME").unwrap()).lock().await.unwrap();
    println!("child: holds");
    guard.lost().await;
    println!("child: lost, valid: {}", guard.is_valid());
    let _ = guard.release().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_for_less_than_a_session_costs_no_lock() {
    let Some(server) = own("a short stop of the server", 1, &[]) else { return };
    let url = format!("etcd://{}?session=30s", server.hosts());
    let (ours, rival) = (client(&url).await, client(&url).await);
    let guard = ours.mutex("m").lock().await.unwrap();
    let waiting = tokio::spawn(async move { rival.mutex("m").lock().await });
    async_until_within(LONG, "the rival waits", || async { server.keys("m/").len() == 2 }).await;
    server.pause(0);
    // The release is sent to a server that does not read it now.
    let releasing = tokio::spawn(guard.release());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!waiting.is_finished());
    server.resume(0);
    timeout(LONG, releasing).await.expect("answered").unwrap().unwrap();
    timeout(LONG, waiting).await.expect("granted").unwrap().unwrap().release().await.unwrap();
    async_until_within(LONG, "nothing is left", || async { server.keys("m/").is_empty() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_for_longer_than_a_session_costs_the_hold_and_nothing_else() {
    let Some(server) = own("a long stop of the server", 1, &[]) else { return };
    let (ours, rival) = (client(&server.url()).await, client(&server.url()).await);
    let guard = ours.mutex("m").lock().await.unwrap();
    let before = guard.token().unwrap();
    server.pause(0);
    // By our own clock: nobody can tell us.
    timeout(LONG, guard.lost()).await.expect("told");
    assert!(!guard.is_valid());
    server.resume(0);
    // Both go on by themselves when the server does.
    let next = timeout(LONG, rival.mutex("m").lock().timeout(LONG)).await.expect("granted").unwrap();
    assert!(next.token().unwrap() > before);
    next.release().await.unwrap();
    timeout(LONG, ours.mutex("m").lock().timeout(LONG)).await.expect("granted").unwrap().release().await.unwrap();
    drop(guard);
    async_until_within(LONG, "nothing is left", || async { server.keys("m/").is_empty() }).await;
}
