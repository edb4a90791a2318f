//! What happens to holds and waiters when connections break, sessions end, servers restart and processes stop.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::site::until;
use lockkeeper::LossReason;
use lockkeeper_testkit::proxy::{Door, Fault, Proxy};
use lockkeeper_testkit::signal;
use lockkeeper_testkit::zookeeper::ZooKeeper;
use tokio::time::{Instant, sleep, timeout};

use crate::site;

const SOON: Duration = Duration::from_secs(20);

async fn owner_of(raw: &zookeeper_client::Client, path: &str) -> i64 {
    raw.check_stat(path).await.unwrap().expect("there").ephemeral_owner
}

/// How much later than another one a task may be woken on a busy machine.
const SCHEDULING: Duration = Duration::from_millis(20);

/// The slowest of some openings of a session: the round trip in which a server tells that a session has ended.
async fn slowest_opening(port: u16) -> Duration {
    let mut slowest = Duration::ZERO;
    for _ in 0..20 {
        let began = Instant::now();
        let opened = zookeeper_client::Client::connect(&format!("127.0.0.1:{port}")).await.unwrap();
        slowest = slowest.max(began.elapsed());
        drop(opened);
    }
    slowest
}

#[tokio::test]
async fn a_session_that_is_closed_from_outside_is_told_to_every_hold() {
    let Some(server) = site::server("sessions") else { return };
    let (proxy, folder) = (Proxy::start(server.ports()[0]).await, site::fresh_folder(&server).await);
    let (raw, url) = (site::raw(&server).await, |host: &str| format!("zookeeper://{host}/{folder}?session=60s"));
    let (ours, rival) =
        (site::client(&url(&format!("127.0.0.1:{}", proxy.port))).await, site::client(&url(&server.hosts())).await);
    let mut guards = Vec::new();
    for name in ["a", "b", "c"] {
        guards.push(ours.mutex(name).lock().await.unwrap());
    }
    let node = site::nodes(&raw, &format!("/{folder}/a")).await.pop().expect("a node");
    let session = owner_of(&raw, &format!("/{folder}/a/{node}")).await;
    let port = server.ports()[0];
    let before = slowest_opening(proxy.port).await;
    // A session has one connection. If its owner could connect again meanwhile the two would take it from each other, and the driver waits twice as long after
    // each attempt.
    proxy.set_door(Door::Resets);
    proxy.reset_present_connections();
    tokio::task::spawn_blocking(move || site::close_session(port, session)).await.unwrap();
    proxy.set_door(Door::Open);
    // The server tells it on the next connection, of which only the driver decides when.
    let (mut connections, mut heard) = (proxy.connections(), Instant::now());
    let told = async {
        for guard in &guards {
            assert_eq!(timeout(SOON, guard.lost()).await.expect("told"), LossReason::Gone);
        }
    };
    let mut told = std::pin::pin!(told);
    while timeout(Duration::from_millis(1), &mut told).await.is_err() {
        if proxy.connections() > connections {
            (connections, heard) = (proxy.connections(), Instant::now());
        }
    }
    let late = heard.elapsed();
    // One round trip on that connection; the next keep-alive comes after 15 s.
    let round_trip = before.max(slowest_opening(proxy.port).await);
    println!("told {late:?} after the driver's connection; the slowest of 40 openings of a session took {round_trip:?}");
    let limit = (2 * round_trip + SCHEDULING).min(Duration::from_secs(1));
    assert!(late <= limit, "told {late:?} after the connection; a round trip takes {round_trip:?}");
    let next = timeout(SOON, rival.mutex("a").lock()).await.expect("free").unwrap();
    next.release().await.unwrap();
    let again = timeout(SOON, ours.mutex("a").lock()).await.expect("a new session").unwrap();
    again.release().await.unwrap();
}

#[tokio::test]
async fn a_broken_connection_keeps_holds_and_waiters_of_the_session() {
    let Some(server) = site::server("connections") else { return };
    let (proxy, folder) = (Proxy::start(server.ports()[0]).await, site::fresh_folder(&server).await);
    let ours = site::client(&format!("zookeeper://127.0.0.1:{}/{folder}?session=10s", proxy.port)).await;
    let rival = site::client(&format!("zookeeper://{}/{folder}?session=10s", server.hosts())).await;
    let guard = ours.mutex("m").lock().await.unwrap();
    let held = rival.mutex("other").lock().await.unwrap();
    let waiter = tokio::spawn({
        let ours = ours.clone();
        async move { ours.mutex("other").lock().await }
    });
    until("the waiter stands in the queue", async || {
        ours.inspect("other").await.is_ok_and(|seen| seen.is_some_and(|seen| seen.queue.len() == 1))
    })
    .await;
    for _ in 0..3 {
        proxy.reset_present_connections();
        sleep(Duration::from_millis(300)).await;
        assert!(guard.is_valid());
        assert!(rival.mutex("m").try_lock().await.unwrap().is_none());
    }
    held.release().await.unwrap();
    timeout(SOON, waiter).await.expect("woken").unwrap().unwrap().release().await.unwrap();
    timeout(SOON, guard.release()).await.expect("released").unwrap();
    rival.mutex("m").try_lock().await.unwrap().expect("free").release().await.unwrap();
}

/// The watch on a hold is set a moment after the grant; the connection breaks just then.
/// The driver doubles its pause after each attempt, so it is back within about as long again as the outage was.
#[tokio::test]
async fn an_outage_of_a_fifth_of_the_session_costs_no_hold() {
    let Some(server) = site::server("connections") else { return };
    let (proxy, folder) = (Proxy::start(server.ports()[0]).await, site::fresh_folder(&server).await);
    let ours = site::client(&format!("zookeeper://127.0.0.1:{}/{folder}?session=15s", proxy.port)).await;
    let guard = ours.mutex("m").lock().await.unwrap();
    proxy.set_door(Door::Resets);
    proxy.reset_present_connections();
    let outage = Duration::from_millis(3_200);
    sleep(outage).await;
    proxy.set_door(Door::Open);
    let began = Instant::now();
    until("it is connected again", async || ours.inspect("m").await.is_ok()).await;
    println!("connected again after {:?}", began.elapsed());
    assert!(began.elapsed() < outage + Duration::from_secs(2), "connected again after {:?}", began.elapsed());
    assert!(guard.is_valid());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_hold_is_watched_also_if_the_connection_broke_while_its_watch_was_set() {
    let Some(server) = site::server("watched holds") else { return };
    let (proxy, folder) = (Proxy::start(server.ports()[0]).await, site::fresh_folder(&server).await);
    let raw = site::raw(&server).await;
    let ours = site::client(&format!("zookeeper://127.0.0.1:{}/{folder}?session=60s", proxy.port)).await;
    ours.mutex("m").lock().await.unwrap().release().await.unwrap();
    for fault in [Fault::LoseReply, Fault::CutRequest(10)] {
        let guard = ours.mutex("m").lock().await.unwrap();
        proxy.next("-lock-", fault);
        until("the watch was lost", async || proxy.met()).await;
        until("the connection is back", async || ours.inspect("m").await.is_ok()).await;
        // The keeper asks about its holds when the connection is back, and not again for 15 s.
        sleep(Duration::from_millis(500)).await;
        assert!(guard.is_valid());
        let node = site::nodes(&raw, &format!("/{folder}/m")).await.pop().expect("a node");
        raw.delete(&format!("/{folder}/m/{node}"), None).await.unwrap();
        let deleted = Instant::now();
        assert_eq!(timeout(SOON, guard.lost()).await.expect("told"), LossReason::Gone);
        assert!(deleted.elapsed() < Duration::from_secs(5), "told after {:?}", deleted.elapsed());
    }
}

#[tokio::test]
async fn an_acquire_whose_answer_is_lost_is_one_hold_and_leaves_nothing() {
    let Some(server) = site::server("answers") else { return };
    let (proxy, folder) = (Proxy::start(server.ports()[0]).await, site::fresh_folder(&server).await);
    let raw = site::raw(&server).await;
    let ours = site::client(&format!("zookeeper://127.0.0.1:{}/{folder}?session=4s", proxy.port)).await;
    for (round, fault) in [Fault::LoseReply, Fault::CutReply(10), Fault::CutRequest(30), Fault::LoseReply].into_iter().enumerate()
    {
        let name = format!("m{round}");
        // Makes the folder, so that the next request is the creation of the node.
        ours.mutex(&name).lock().await.unwrap().release().await.unwrap();
        proxy.next("-lock-", fault);
        let guard = timeout(SOON, ours.mutex(&name).lock()).await.expect("locked").unwrap();
        assert!(proxy.met());
        until("one node is left", async || site::nodes(&raw, &format!("/{folder}/{name}")).await.len() == 1).await;
        assert!(guard.is_valid());
        guard.release().await.unwrap();
        until("nothing is left", async || site::nodes(&raw, &format!("/{folder}/{name}")).await.is_empty()).await;
    }
}

/// A node that a lost answer leaves in the queue of a semaphore blocks everybody.
#[tokio::test]
async fn permits_whose_answers_are_lost_leave_nothing_in_the_queue() {
    let Some(server) = site::server("answers") else { return };
    let (proxy, folder) = (Proxy::start(server.ports()[0]).await, site::fresh_folder(&server).await);
    let raw = site::raw(&server).await;
    let ours = site::client(&format!("zookeeper://127.0.0.1:{}/{folder}?session=20s", proxy.port)).await;
    let rival = site::client(&format!("zookeeper://{}/{folder}?session=20s", server.hosts())).await;
    // Of the node in the queue, and of the step that adds a permit and leaves the queue.
    for (round, text) in ["-lock-", "-lease-", "-lock-"].into_iter().enumerate() {
        let name = format!("s{round}");
        let semaphore = ours.semaphore(&name, 2);
        // Makes the folders, so that the next request is the creation of the node.
        semaphore.acquire().await.unwrap().release().await.unwrap();
        proxy.next(text, Fault::LoseReply);
        let permit = timeout(SOON, semaphore.acquire()).await.expect("acquired").unwrap();
        assert!(proxy.met());
        assert_eq!(site::nodes(&raw, &format!("/{folder}/{name}/locks")).await, Vec::<String>::new(), "{text}");
        assert_eq!(site::nodes(&raw, &format!("/{folder}/{name}/leases")).await.len(), 1, "{text}");
        rival.semaphore(&name, 2).try_acquire().await.unwrap().expect("one is free").release().await.unwrap();
        permit.release().await.unwrap();
        until("nothing is left", async || site::nodes(&raw, &format!("/{folder}/{name}/leases")).await.is_empty()).await;
    }
}

#[tokio::test]
async fn a_restarted_server_keeps_holds_of_living_sessions() {
    if ZooKeeper::missing().is_some() {
        let _ = site::server("restart");
        return;
    }
    let mut server = ZooKeeper::start();
    // Longer than a server takes to start on a busy machine.
    let url = site::fresh_url(&server, "60s").await;
    let ours = site::client(&url).await;
    // A waiter bears an outage for ten seconds; a server takes longer to start on a busy machine.
    let rival = lockkeeper::Client::builder().outage_timeout(Duration::from_secs(60)).connect(&url).await.unwrap();
    let guard = ours.mutex("m").lock().await.unwrap();
    let waiter = tokio::spawn(async move { rival.mutex("m").lock().await });
    until("the rival waits", async || ours.inspect("m").await.is_ok_and(|seen| seen.is_some_and(|seen| seen.queue.len() == 1)))
        .await;
    let mut server = tokio::task::spawn_blocking(move || {
        server.kill(0);
        server.start_again(0);
        server
    })
    .await
    .unwrap();
    until("the server answers our client", async || ours.inspect("m").await.is_ok()).await;
    assert!(guard.is_valid(), "the session went on");
    assert!(!waiter.is_finished(), "it waits: {:?}", waiter.await);
    timeout(SOON, guard.release()).await.expect("released").unwrap();
    timeout(SOON, waiter).await.expect("granted").unwrap().unwrap().release().await.unwrap();
    server.kill(0);
}

#[tokio::test]
async fn five_hundred_waiters_are_all_served_and_cancelled_ones_leave_no_node() {
    let Some(server) = site::server("waiters") else { return };
    let folder = site::fresh_folder(&server).await;
    let (raw, url) = (site::raw(&server).await, format!("zookeeper://{}/{folder}?session=20s", server.hosts()));
    let clients = [site::client(&url).await, site::client(&url).await];
    let guard = clients[0].mutex("m").lock().await.unwrap();
    let waiters: Vec<_> = (0..500)
        .map(|number| {
            let client = clients[number % 2].clone();
            tokio::spawn(async move { client.mutex("m").lock().await.unwrap().release().await.unwrap() })
        })
        .collect();
    let path = format!("/{folder}/m");
    // A process waits in the store with few nodes; its other waiters stand in its own queue.
    until("both processes wait", async || site::nodes(&raw, &path).await.len() >= 3).await;
    let mut served = 0;
    for waiter in waiters.iter().step_by(5) {
        waiter.abort();
    }
    guard.release().await.unwrap();
    for waiter in waiters {
        served += usize::from(timeout(Duration::from_secs(120), waiter).await.expect("served or cancelled").is_ok());
    }
    assert!(served >= 400, "{served}");
    until("no node is left", async || site::nodes(&raw, &path).await.is_empty()).await;
}

/// Held by a process of its own, which is stopped for longer than its session.
#[tokio::test]
async fn a_process_that_was_stopped_past_its_session_knows_that_it_lost() {
    let Some(server) = site::server("stopped") else { return };
    let url = site::fresh_url(&server, "1s").await;
    let rival = site::client(&url).await;
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "faults::child_that_holds", "--ignored", "--nocapture"])
        .env("LOCKKEEPER_TEST_URL", &url)
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
    let guard = timeout(SOON, rival.mutex("m").lock()).await.expect("the session ends").unwrap();
    signal::resume(child.id());
    assert_eq!(said(), "lost, valid: false");
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    assert!(child.wait().unwrap().success());
}

#[tokio::test]
#[ignore = "a part of a_process_that_was_stopped_past_its_session_knows_that_it_lost"]
async fn child_that_holds() {
    let client = site::client(&std::env::var("LOCKKEEPER_TEST_URL").unwrap()).await;
    let guard = client.mutex("m").lock().await.unwrap();
    println!("child: holds");
    guard.lost().await;
    println!("child: lost, valid: {}", guard.is_valid());
}
