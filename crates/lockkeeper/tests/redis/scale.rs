//! Thousands under one name: the work of one script does not grow with them, and nobody else notices.

use std::future::IntoFuture as _;
use std::time::Duration;

use lockkeeper::Client;
use redis::{Commands, Connection};

use crate::cost::own;
use crate::dead_waiters::{LIMIT, server_cpu};

/// How often the server ran a command, inside scripts included.
fn calls(eyes: &mut Connection, command: &str) -> u64 {
    let stats: String = redis::cmd("INFO").arg("commandstats").query(eyes).unwrap();
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:")));
    line.and_then(|line| line.split(',').find_map(|part| part.strip_prefix("calls="))?.parse().ok()).unwrap_or(0)
}

/// How long each script took that took longer than one may, as the server measured it; forgotten by this.
fn slow_scripts(eyes: &mut Connection) -> Vec<Duration> {
    let entries: Vec<redis::Value> = redis::cmd("SLOWLOG").arg("GET").arg(-1).query(eyes).unwrap();
    redis::cmd("SLOWLOG").arg("RESET").exec(eyes).unwrap();
    let slow = entries.into_iter().filter_map(|entry| {
        // Id, time, µs, the command with its arguments, and so on.
        let redis::Value::Array(parts) = entry else { panic!("{entry:?}") };
        let (micros, words): (u64, Vec<redis::Value>) =
            (redis::from_redis_value(parts[2].clone()).unwrap(), redis::from_redis_value(parts[3].clone()).unwrap());
        let command: String = redis::from_redis_value(words[0].clone()).unwrap();
        command.starts_with("EVAL").then(|| Duration::from_micros(micros))
    });
    slow.collect()
}

/// For how long the server was ready to run and the machine ran something else, as the kernel counts it; zero where it does not say.
fn kept_waiting(eyes: &mut Connection) -> Duration {
    let info: String = redis::cmd("INFO").arg("server").query(eyes).unwrap();
    let id = info.lines().find_map(|line| line.strip_prefix("process_id:")).expect("an id").trim();
    let text = std::fs::read_to_string(format!("/proc/{id}/schedstat")).unwrap_or_default();
    Duration::from_nanos(text.split_whitespace().nth(1).and_then(|nanos| nanos.parse().ok()).unwrap_or_default())
}

/// No single script takes longer than one may, by the server's own log, without the time for which the machine did not run the server. One
/// good run of three is enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_script_is_slow_among_five_thousand_readers() {
    let Some((_server, client, mut eyes)) = own("slow scripts of readers").await else { return };
    redis::cmd("CONFIG").arg("SET").arg("slowlog-log-slower-than").arg(0).exec(&mut eyes).unwrap();
    client.mutex("probe").lock().await.unwrap().release().await.unwrap();
    assert!(!slow_scripts(&mut eyes).is_empty(), "scripts are not logged: nothing is tested");
    let limit = LIMIT.as_micros().to_string();
    redis::cmd("CONFIG").arg("SET").arg("slowlog-log-slower-than").arg(limit).exec(&mut eyes).unwrap();
    redis::cmd("SLOWLOG").arg("RESET").exec(&mut eyes).unwrap();
    let mut slow = Vec::new();
    for _ in 0..3 {
        let (lock, before) = (client.rwlock("shared"), kept_waiting(&mut eyes));
        let mut guards = Vec::with_capacity(5_000);
        while guards.len() < 5_000 {
            // A try has a hold of its own at the server; other readers of one client share one.
            let some = futures_util::future::join_all((0..50).map(|_| lock.try_read().into_future()));
            guards.extend(some.await.into_iter().map(|guard| guard.unwrap().expect("nobody writes")));
        }
        while !guards.is_empty() {
            let some = guards.drain(guards.len().saturating_sub(50)..).map(|guard| guard.release());
            for released in futures_util::future::join_all(some).await {
                released.expect("every release succeeds");
            }
        }
        let waited = kept_waiting(&mut eyes).saturating_sub(before);
        slow = slow_scripts(&mut eyes);
        eprintln!("slow in this run: {slow:?}, the server was kept waiting for {waited:?}");
        if slow.iter().all(|time| *time < LIMIT + waited) {
            return;
        }
    }
    panic!("scripts took {slow:?}");
}

/// Twenty together cost the server less than one script may. Its processor time is measured: a machine that is busy with other things
/// may stop it for longer in any script. (Some batches also meet the renewals of all holds, a thousand in one script.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_readers_come_and_go() {
    const READERS: usize = 5_000;
    const BATCH: usize = 20;
    let Some((server, client, mut eyes)) = own("many readers").await else { return };
    // Somebody else, whose lock would not survive a server that is busy for long.
    let other = Client::builder().lease(Duration::from_secs(10)).connect(server.url(0)).await.unwrap();
    let bystander = other.mutex("elsewhere").lock().await.unwrap();
    let (before, lock) = (calls(&mut eyes, "pttl"), client.rwlock("shared"));
    let (mut guards, mut costs, mut used) = (Vec::with_capacity(READERS), Vec::new(), server_cpu(&mut eyes));
    let mut cost = |costs: &mut Vec<Duration>| {
        let now = server_cpu(&mut eyes);
        costs.push(now - std::mem::replace(&mut used, now));
    };
    while guards.len() < READERS {
        let some = futures_util::future::join_all((0..BATCH).map(|_| lock.try_read().into_future()));
        guards.extend(some.await.into_iter().map(|guard| guard.unwrap().expect("nobody writes")));
        cost(&mut costs);
    }
    let mut guards = guards.into_iter();
    loop {
        let some: Vec<_> = guards.by_ref().take(BATCH).map(|guard| guard.release()).collect();
        if some.is_empty() {
            break;
        }
        for released in futures_util::future::join_all(some).await {
            released.expect("every release succeeds");
        }
        cost(&mut costs);
    }
    costs.sort();
    let (most, usual) = (costs[costs.len() - 1], costs[costs.len() * 19 / 20]);
    eprintln!("{BATCH} readers cost {usual:?}, at most {most:?}");
    assert!(usual < LIMIT && most < 6 * LIMIT, "{BATCH} readers cost {usual:?}, at most {most:?}");
    let each = (calls(&mut eyes, "pttl") - before) / READERS as u64;
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
