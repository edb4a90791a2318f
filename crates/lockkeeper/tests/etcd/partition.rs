//! One member of three is cut off from the others, with a holder that knows only this member: once the leader, once a follower.

use std::sync::Arc;
use std::time::Instant;

use lockkeeper_testkit::etcd::Etcd;
use lockkeeper_testkit::netns::Sides;
use lockkeeper_testkit::poll::{async_until_within, until_within};
use tokio::time::timeout;

use crate::bench::{LONG, client};

/// The first member is alone on its side.
const MEMBERS: [(usize, u16); 3] = [(0, 7301), (1, 7302), (1, 7303)];

/// Three members on two sides, or `None` with a word on why there are none.
fn members(test: &str) -> Option<Sides> {
    let made = Etcd::missing().map_or_else(Sides::make, Err);
    let mut sides = made.map_err(|why| lockkeeper::conformance::skip(test, &why)).ok()?;
    let url = |sides: &Sides, member: usize, more: u16| {
        let (side, port) = MEMBERS[member];
        format!("http://{}:{}", sides.host(side), port + more)
    };
    let cluster: Vec<String> = (0..3).map(|member| format!("m{member}={}", url(&sides, member, 100))).collect();
    for (member, (side, _)) in MEMBERS.into_iter().enumerate() {
        let (name, folder) = (format!("m{member}"), sides.directory(&format!("m{member}")));
        let (ours, peer) = (url(&sides, member, 0), url(&sides, member, 100));
        let mut words = vec!["--name", &name, "--data-dir", &folder, "--initial-cluster"];
        let cluster = cluster.join(",");
        words.extend([cluster.as_str(), "--listen-client-urls", &ours, "--advertise-client-urls", &ours]);
        words.extend(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer, "--log-level", "error"]);
        sides.run(side, "etcd", &words, None);
    }
    until_within(LONG, "all know a leader", || {
        (0..3).all(|member| status(&sides, member).is_some_and(|(_, leader)| leader != 0))
    });
    Some(sides)
}

fn host(sides: &Sides, member: usize) -> String {
    let (side, port) = MEMBERS[member];
    format!("{}:{port}", sides.host(side))
}

fn ctl(sides: &Sides, member: usize, words: &[&str]) -> Option<String> {
    let endpoint = host(sides, member);
    let done = std::process::Command::new("etcdctl")
        .env("ETCDCTL_API", "3")
        .args(["--command-timeout=2s", "--endpoints", &endpoint])
        .args(words)
        .output()
        .expect("etcdctl runs");
    done.status.success().then(|| String::from_utf8_lossy(&done.stdout).into_owned())
}

/// The ids of a member, and of the leader that it knows.
fn status(sides: &Sides, member: usize) -> Option<(u64, u64)> {
    let said = ctl(sides, member, &["endpoint", "status", "-w", "fields"])?;
    let field = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    Some((field("\"MemberID\" :")?, field("\"Leader\" :")?))
}

/// Makes this member the leader.
fn crown(sides: &Sides, member: usize) {
    until_within(LONG, "it leads", || {
        let Some((id, leader)) = status(sides, member) else { return false };
        if id != leader {
            // Refused while the member lags behind: asked again.
            let leading = (0..3).find(|other| status(sides, *other).is_some_and(|(id, _)| id == leader));
            leading.map(|leading| ctl(sides, leading, &["move-leader", &format!("{id:x}")]));
        }
        id == leader
    });
}

async fn is_cut_off(test: &str, leads: bool) {
    let Some(sides) = members(test) else { return };
    crown(&sides, if leads { 0 } else { 1 });
    let ours = client(&format!("etcd://{}?session=4s", host(&sides, 0))).await;
    let rival = client(&format!("etcd://{},{}?session=4s", host(&sides, 1), host(&sides, 2))).await;
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
    let waits = || async { ours.inspect("m").await.unwrap().is_some_and(|seen| seen.queue.len() == 1) };
    async_until_within(LONG, "the rival waits", waits).await;
    sides.part();
    let parted = Instant::now();
    timeout(LONG, guard.lost()).await.expect("told");
    let (granted, next) = timeout(LONG, waiting).await.expect("the other side goes on").unwrap();
    println!("granted on the other side after {:.1?}", granted - parted);
    // Alone, it grants nothing.
    let refused = ours.mutex("m").lock().timeout(std::time::Duration::from_secs(2)).await.unwrap_err();
    assert!(refused.is_outage() || refused.is_busy(), "{refused:?}");
    assert!(next.is_valid() && next.token().unwrap() > before);
    let after = next.token().unwrap();
    sides.join();
    next.release().await.unwrap();
    let again = timeout(LONG, ours.mutex("m").lock().timeout(LONG)).await.expect("joined").unwrap();
    assert!(again.token().unwrap() > after);
    again.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_cut_off_lets_nobody_in_twice() {
    is_cut_off("a leader cut off", true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_is_cut_off_lets_nobody_in_twice() {
    is_cut_off("a follower cut off", false).await;
}
