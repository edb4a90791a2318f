//! Thousands under one name: the work of one script does not grow with them, and nobody else notices.

use std::future::IntoFuture as _;
use std::time::Duration;

use lockkeeper::Client;
use redis::{Commands, Connection};

use crate::cost::own;

/// How often the server ran a command, inside scripts included.
fn calls(eyes: &mut Connection, command: &str) -> u64 {
    let stats: String = redis::cmd("INFO").arg("commandstats").query(eyes).unwrap();
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:")));
    line.and_then(|line| line.split(',').find_map(|part| part.strip_prefix("calls="))?.parse().ok()).unwrap_or(0)
}

/// Scripts that took longer than 50 ms since the last look.
fn slow_scripts(eyes: &mut Connection) -> u64 {
    let slow: u64 = redis::cmd("SLOWLOG").arg("LEN").query(eyes).unwrap();
    redis::cmd("SLOWLOG").arg("RESET").exec(eyes).unwrap();
    slow
}

/// Runs `work` up to three times: on a machine that is busy with other things a server may be stopped for 50 ms in any script, but not
/// in each of three runs.
pub(crate) async fn without_slow_scripts<F: Future<Output = ()>>(eyes: &mut Connection, mut work: impl FnMut() -> F) {
    redis::cmd("CONFIG").arg("SET").arg("slowlog-log-slower-than").arg(50_000).exec(eyes).unwrap();
    redis::cmd("SLOWLOG").arg("RESET").exec(eyes).unwrap();
    let mut slow = Vec::new();
    for _ in 0..3 {
        work().await;
        slow.push(slow_scripts(eyes));
        if slow.last() == Some(&0) {
            return;
        }
    }
    panic!("scripts over 50 ms, in each of three runs: {slow:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_readers_come_and_go() {
    const READERS: usize = 5_000;
    let Some((server, client, mut eyes)) = own("many readers").await else { return };
    // Somebody else, whose lock would not survive a server that is busy for long.
    let other = Client::builder().lease(Duration::from_secs(5)).connect(server.url(0)).await.unwrap();
    let bystander = other.mutex("elsewhere").lock().await.unwrap();
    let before = calls(&mut eyes, "pttl");
    let mut runs = 0;
    without_slow_scripts(&mut eyes, || {
        runs += 1;
        let lock = client.rwlock("shared");
        async move {
            let mut guards = Vec::with_capacity(READERS);
            for _ in 0..READERS / 50 {
                let some = futures_util::future::join_all((0..50).map(|_| lock.read().into_future()));
                guards.extend(some.await.into_iter().map(|guard| guard.unwrap()));
            }
            let mut guards = guards.into_iter();
            loop {
                let some: Vec<_> = guards.by_ref().take(50).map(|guard| guard.release()).collect();
                if some.is_empty() {
                    break;
                }
                for released in futures_util::future::join_all(some).await {
                    released.expect("every release succeeds");
                }
            }
        }
    })
    .await;
    let each = (calls(&mut eyes, "pttl") - before) / (READERS as u64 * runs);
    assert!(each < 60, "{each} looks at other readers' holds per reader");
    assert!(!eyes.exists::<_, bool>("shared").unwrap() && bystander.is_valid());
    bystander.release().await.unwrap();
}

/// A process that died with 5,000 read holds: the writer that comes next is served in steps, each of which looks at a part of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_dead_readers_are_removed_in_steps() {
    let Some((_server, client, mut eyes)) = own("many dead readers").await else { return };
    let mut fill = redis::pipe();
    fill.cmd("HSET").arg("dead").arg("mode").arg("read").ignore();
    for number in 0..5_000 {
        let owner = format!("8d5b1c6e-0a3f-4f0e-9d1b-6b1b2f3c4d5e:{number}");
        fill.cmd("HSET").arg("dead").arg(owner).arg(1).ignore();
    }
    fill.cmd("PEXPIRE").arg("dead").arg(600_000).ignore();
    fill.query::<()>(&mut eyes).unwrap();
    let before = calls(&mut eyes, "pttl");
    let guard = client.rwlock("dead").write().timeout(Duration::from_secs(20)).await.expect("only the dead are in the way");
    let looked = calls(&mut eyes, "pttl") - before;
    assert!(looked < 7_000, "{looked} looks at 5,000 holds");
    guard.release().await.unwrap();
    assert!(!eyes.exists::<_, bool>("dead").unwrap());
}
