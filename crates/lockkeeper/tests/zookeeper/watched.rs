//! Watches that must be there after trouble, as the server itself lists them; and what counts as an answer of the ensemble.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use lockkeeper_testkit::proxy::{Fault, Proxy};
use lockkeeper_testkit::zookeeper::ZooKeeper;
use tokio::time::{Instant, timeout};

use crate::site::{self, until};

const SOON: Duration = Duration::from_secs(20);

/// The sessions that watch this node.
async fn watchers(server: &ZooKeeper, path: &str) -> Vec<i64> {
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
