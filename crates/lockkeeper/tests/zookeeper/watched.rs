//! Watches that must be there after trouble, as the server itself lists them; and what counts as an answer of the ensemble.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use lockkeeper::backend::{Backend as _, Verdict};
use lockkeeper::runtime::Runtime;
use lockkeeper::store::zookeeper::{Config, ZookeeperStore};
use lockkeeper_testkit::proxy::{Fault, Proxy};
use lockkeeper_testkit::zookeeper::ZooKeeper;
use tokio::time::{Instant, timeout};

use crate::site::{self, until};

const SOON: Duration = Duration::from_secs(20);

/// The sessions that watch this node.
pub(crate) async fn watchers(server: &ZooKeeper, path: &str) -> Vec<i64> {
    let port = server.ports()[0];
    let said = tokio::task::spawn_blocking(move || {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("a running server");
        stream.write_all(b"wchp").expect("sent");
        let mut said = String::new();
        stream.read_to_string(&mut said).expect("an answer");
        said
    });
    let said = said.await.unwrap();
    let of_path = said.lines().skip_while(|line| *line != path).skip(1).take_while(|line| line.starts_with('\t'));
    of_path.map(|line| u64::from_str_radix(line.trim().trim_start_matches("0x"), 16).expect("a session").cast_signed()).collect()
}

#[tokio::test]
async fn a_hold_is_watched_although_the_first_watch_had_no_answer() {
    let Some(server) = site::server("watches on holds") else { return };
    let (proxy, folder) = (Proxy::start(server.ports()[0]).await, site::fresh_folder(&server).await);
    let raw = site::raw(&server).await;
    let ours = site::client(&format!("zookeeper://127.0.0.1:{}/{folder}?session=20s", proxy.port)).await;
    for round in 0.. {
        assert!(round < 20, "the watch was always set before the fault");
        let name = format!("m{round}");
        let guard = ours.mutex(&name).lock().await.unwrap();
        proxy.next(format!("/{name}/_c_"), Fault::LoseReply);
        let began = Instant::now();
        while !proxy.met() && began.elapsed() < Duration::from_secs(2) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if !proxy.met() {
            continue;
        }
        let node = site::nodes(&raw, &format!("/{folder}/{name}")).await.pop().expect("the hold");
        let path = format!("/{folder}/{name}/{node}");
        until("the hold is watched", async || !watchers(&server, &path).await.is_empty()).await;
        assert!(guard.is_valid());
        raw.delete(&path, None).await.unwrap();
        timeout(SOON, guard.lost()).await.expect("told");
        return;
    }
}

#[tokio::test]
async fn a_waiter_watches_the_same_node_again_in_its_next_session() {
    let Some(server) = site::server("watches of the next session") else { return };
    let folder = site::fresh_folder(&server).await;
    let (raw, url) = (site::raw(&server).await, format!("zookeeper://{}/{folder}?session=20s", server.hosts()));
    let (holder, ours) = (site::client(&url).await, site::client(&url).await);
    let folder = format!("/{folder}/m");
    let guard = holder.mutex("m").lock().await.unwrap();
    let held = site::nodes(&raw, &folder).await.pop().expect("the hold");
    let waiter = tokio::spawn(async move { ours.mutex("m").lock().await.unwrap() });
    let session_of = async |except: &str| {
        let place = site::nodes(&raw, &folder).await.into_iter().find(|node| node != except)?;
        Some(raw.check_stat(&format!("{folder}/{place}")).await.unwrap()?.ephemeral_owner)
    };
    until("it waits", async || session_of(&held).await.is_some()).await;
    let old = session_of(&held).await.expect("its session");
    let path = format!("{folder}/{held}");
    until("it watches", async || watchers(&server, &path).await.contains(&old)).await;
    let port = server.ports()[0];
    tokio::task::spawn_blocking(move || site::close_session(port, old)).await.unwrap();
    until("it waits in a new session", async || session_of(&held).await.is_some_and(|session| session != old)).await;
    let new = session_of(&held).await.expect("its session");
    until("it watches in the new session", async || watchers(&server, &path).await.contains(&new)).await;
    // A change of the data is no deletion.
    raw.set_data(&path, b"other", None).await.unwrap();
    until("it watches after a change", async || watchers(&server, &path).await.contains(&new)).await;
    guard.release().await.unwrap();
    timeout(SOON, waiter).await.expect("woken").unwrap().release().await.unwrap();
}

/// A leader that has lost its followers answers `sync` until it notices: that must not lengthen a hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_without_followers_keeps_nothing_alive() {
    if ZooKeeper::missing().is_some() {
        let _ = site::server("a lonely leader");
        return;
    }
    let servers = tokio::task::spawn_blocking(ZooKeeper::ensemble).await.unwrap();
    let leader = servers.leader().expect("a leader");
    let folder = site::fresh_folder(&servers).await;
    let url = format!("zookeeper://127.0.0.1:{}/{folder}?session=20s", servers.ports()[leader]);
    let runtime = Runtime::system();
    let store = ZookeeperStore::connect(Config::parse(&url).unwrap(), &runtime).await.unwrap();
    store.keep_alive().await.expect("a majority");
    let followers = || (0..3).filter(|server| *server != leader);
    followers().for_each(|server| servers.pause(server));
    let answered = timeout(Duration::from_secs(1), store.keep_alive()).await;
    assert!(!matches!(answered, Ok(Ok(_))), "{answered:?}");
    followers().for_each(|server| servers.resume(server));
    until("a majority is back", async || store.keep_alive().await.is_ok()).await;
}

/// A follower reports sessions every half tick, which must fit into the quarter of a session in which holds are no longer valid.
#[tokio::test]
async fn doctor_warns_of_a_session_of_less_than_two_ticks() {
    if ZooKeeper::missing().is_some() {
        let _ = site::server("short sessions");
        return;
    }
    let server = ZooKeeper::start_with("tickTime=2000\nminSessionTimeout=1000\n", &[]);
    for (session, verdict) in [("3s", Verdict::Doubtful), ("4s", Verdict::Fine)] {
        let config = Config::parse(&site::fresh_url(&server, session).await).unwrap();
        let findings = ZookeeperStore::examine(config, &Runtime::system()).await;
        let found = findings.iter().find(|finding| finding.about == "session").expect("a finding");
        assert_eq!(found.verdict, verdict, "{}", found.says);
    }
}
