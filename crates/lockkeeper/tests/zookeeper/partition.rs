//! One server of three is cut off from the others, with a holder that knows only this server: once the leader, once a follower.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper_testkit::netns::Sides;
use lockkeeper_testkit::poll::until_within;
use lockkeeper_testkit::zookeeper::ZooKeeper;
use tokio::time::timeout;

use crate::site::{self, until};

const SOON: Duration = Duration::from_secs(60);

/// The side and the port of each server. The first one is alone on its side.
const SERVERS: [(usize, u16); 3] = [(0, 7401), (1, 7402), (1, 7403)];

fn host(sides: &Sides, server: usize) -> String {
    let (side, port) = SERVERS[server];
    format!("{}:{port}", sides.host(side))
}

/// What a server says it is.
fn mode(sides: &Sides, server: usize) -> Option<String> {
    let mut stream = std::net::TcpStream::connect(host(sides, server)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    stream.write_all(b"srvr").ok()?;
    let mut said = String::new();
    stream.read_to_string(&mut said).ok()?;
    said.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_owned)
}

/// Three servers on two sides, or `None` with a word on why there are none. Of two that start together the one with the greater id leads.
fn servers(test: &str, leads: bool) -> Option<Sides> {
    let made = ZooKeeper::missing().map_or_else(Sides::make, Err);
    let mut sides = made.map_err(|why| lockkeeper::conformance::skip(test, &why)).ok()?;
    let ids = if leads { [3, 1, 2] } else { [1, 3, 2] };
    let peers: String = (0..3)
        .map(|server| {
            let (side, port) = SERVERS[server];
            format!("server.{}={}:{}:{}\n", ids[server], sides.host(side), port + 100, port + 200)
        })
        .collect();
    for (server, (side, port)) in SERVERS.into_iter().enumerate() {
        let folder = sides.directory(&format!("zk{server}"));
        std::fs::write(format!("{folder}/myid"), format!("{}\n", ids[server])).unwrap();
        let lines =
            "tickTime=100\ninitLimit=50\nsyncLimit=20\nadmin.enableServer=false\n4lw.commands.whitelist=*\nforceSync=no\n";
        let own = format!("maxSessionTimeout=60000\nclientPort={port}\ndataDir={folder}\n");
        std::fs::write(format!("{folder}/zoo.cfg"), format!("{lines}{own}{peers}")).unwrap();
        let log = std::fs::File::create(format!("{folder}/log")).unwrap();
        let config = format!("{folder}/zoo.cfg");
        let options = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", lockkeeper_testkit::zookeeper::JAR];
        let words = [&options[..], &["org.apache.zookeeper.server.quorum.QuorumPeerMain", &config]].concat();
        sides.run(side, "java", &words, Some(log));
        if server == 1 {
            let leader = if leads { 0 } else { 1 };
            until_within(SOON, "the first two have a leader", || mode(&sides, leader).is_some_and(|mode| mode == "leader"));
        }
    }
    until_within(SOON, "the third one follows", || (0..3).all(|server| mode(&sides, server).is_some()));
    Some(sides)
}

async fn is_cut_off(test: &'static str, leads: bool) {
    let Some(sides) = tokio::task::spawn_blocking(move || servers(test, leads)).await.unwrap() else { return };
    let ours = site::client(&format!("zookeeper://{}?session=4s", host(&sides, 0))).await;
    let rival = site::client(&format!("zookeeper://{},{}?session=4s", host(&sides, 1), host(&sides, 2))).await;
    let guard = Arc::new(ours.mutex("m").lock().await.unwrap());
    let before = guard.token().unwrap();
    let waiting = tokio::spawn({
        let held = Arc::clone(&guard);
        async move {
            let next = rival.mutex("m").lock().await.unwrap();
            assert!(!held.is_valid(), "two holders, and the first does not know");
            (Instant::now(), next)
        }
    });
    until("the rival waits", async || ours.inspect("m").await.is_ok_and(|seen| seen.is_some_and(|seen| seen.queue.len() == 1)))
        .await;
    sides.part();
    let parted = Instant::now();
    timeout(SOON, guard.lost()).await.expect("told");
    let (granted, next) = timeout(SOON, waiting).await.expect("the other side goes on").unwrap();
    println!("granted on the other side after {:.1?}", granted - parted);
    // Alone, it grants nothing.
    let refused = ours.mutex("m").lock().timeout(Duration::from_secs(2)).await.unwrap_err();
    assert!(refused.is_outage() || refused.is_busy(), "{refused:?}");
    let after = next.token().unwrap();
    assert!(next.is_valid() && after > before);
    sides.join();
    next.release().await.unwrap();
    until("the joined server serves", async || ours.inspect("m").await.is_ok()).await;
    let again = timeout(SOON, ours.mutex("m").lock()).await.expect("free").unwrap();
    assert!(again.token().unwrap() > after);
    again.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_lets_nobody_in_twice() {
    is_cut_off("a leader cut off", true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_is_cut_off_lets_nobody_in_twice() {
    is_cut_off("a follower cut off", false).await;
}
