//! Thousands under one name: the work of one script does not grow with them, and nobody else notices.

use std::collections::BTreeSet;
use std::future::IntoFuture as _;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper::backend::{Acquire, Attempt, Backend as _, Claim};
use lockkeeper::name::Name;
use lockkeeper::owner::{ClientId, WireOwner};
use lockkeeper::runtime::Runtime;
use lockkeeper::store::redis::{Config, RedisStore};
use lockkeeper::{Client, RwLock, RwLockReadGuard};
use lockkeeper_testkit::poll::async_until_within;
use redis::{Commands, Connection};

use crate::cost::own;
use crate::dead_waiters::{LIMIT, die_waiting, server_cpu};
use crate::server::{Flavour, Server};
use crate::site::{plain_connection, scripts_run};

/// How often the server ran a command, inside scripts included.
pub(crate) fn calls(eyes: &mut Connection, command: &str) -> u64 {
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

/// Has the server log every script that takes longer than one may. Shows first that scripts are logged at all.
pub(crate) async fn log_slow_scripts(client: &Client, eyes: &mut Connection) {
    redis::cmd("CONFIG").arg("SET").arg("slowlog-log-slower-than").arg(0).exec(eyes).unwrap();
    client.mutex("probe").lock().await.unwrap().release().await.unwrap();
    assert!(!slow_scripts(eyes).is_empty(), "scripts are not logged: nothing is tested");
    let limit = LIMIT.as_micros().to_string();
    redis::cmd("CONFIG").arg("SET").arg("slowlog-log-slower-than").arg(limit).exec(eyes).unwrap();
    redis::cmd("SLOWLOG").arg("RESET").exec(eyes).unwrap();
}

/// The scripts of a part of a test that took longer than one may, without the time for which the machine did not run the server.
pub(crate) struct Part {
    waited: Duration,
}

impl Part {
    pub(crate) fn begin(eyes: &mut Connection) -> Self {
        redis::cmd("SLOWLOG").arg("RESET").exec(eyes).unwrap();
        Self { waited: kept_waiting(eyes) }
    }

    /// What was slow since it began. The next part begins here.
    pub(crate) fn end(&mut self, eyes: &mut Connection, what: &str) -> Vec<Duration> {
        let now = kept_waiting(eyes);
        let waited = now.saturating_sub(std::mem::replace(&mut self.waited, now));
        let mut slow = slow_scripts(eyes);
        eprintln!("{what}: slow scripts {slow:?}, the server was kept waiting for {waited:?}");
        slow.retain(|time| *time >= LIMIT + waited);
        slow
    }
}

/// How many bytes the server has written to its replication stream. It writes one from when it had a replica: see [`start_replication`].
pub(crate) fn replicated(eyes: &mut Connection) -> u64 {
    let info: String = redis::cmd("INFO").arg("replication").query(eyes).unwrap();
    let offset = info.lines().find_map(|line| line.strip_prefix("master_repl_offset:"));
    offset.and_then(|bytes| bytes.trim().parse().ok()).expect("a number of bytes")
}

/// Gives the server a replica for a moment. Its stream goes on without one, for the case that the replica comes back.
pub(crate) async fn start_replication(server: &Server, eyes: &mut Connection) {
    let replica = Server::start_with(Flavour::Redis, &["--replicaof", "127.0.0.1", &server.port.to_string()]);
    let mut there = plain_connection(&replica.url(0));
    async_until_within(Duration::from_secs(20), "the replica is connected", || {
        let info: String = redis::cmd("INFO").arg("replication").query(&mut there).unwrap();
        std::future::ready(info.contains("master_link_status:up"))
    })
    .await;
    drop(replica);
    let before = replicated(eyes);
    eyes.set::<_, _, ()>("probe", 1).unwrap();
    eyes.del::<_, ()>("probe").unwrap();
    assert!(replicated(eyes) > before, "writes are not replicated: nothing is tested");
}

/// What the removal of thousands may send to the replicas.
pub(crate) const STREAM: u64 = 10_000_000;

/// So many read. A try has a hold of its own at the server; other readers of one client share one.
async fn five_thousand_read(lock: &RwLock) -> Vec<RwLockReadGuard> {
    let mut guards = Vec::with_capacity(5_000);
    while guards.len() < 5_000 {
        let some = futures_util::future::join_all((0..50).map(|_| lock.try_read().into_future()));
        guards.extend(some.await.into_iter().map(|guard| guard.unwrap().expect("nobody writes")));
    }
    guards
}

/// No single script takes longer than one may, by the server's own log, without the time for which the machine did not run the server, whether
/// the holds are released 50 at a time or all at once. One good run of three is enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_script_is_slow_among_five_thousand_readers() {
    let Some((server, _, mut eyes)) = own("slow scripts of readers").await else { return };
    // All holds are renewed while they are there: every four seconds.
    let client = Client::builder().lease(Duration::from_secs(12)).connect(server.url(0)).await.unwrap();
    log_slow_scripts(&client, &mut eyes).await;
    let mut slow = Vec::new();
    for _ in 0..3 {
        let (lock, mut part) = (client.rwlock("shared"), Part::begin(&mut eyes));
        let mut guards = five_thousand_read(&lock).await;
        let before = calls(&mut eyes, "pexpire");
        async_until_within(Duration::from_secs(20), "all are renewed", || {
            std::future::ready(calls(&mut eyes, "pexpire") >= before + 5_000)
        })
        .await;
        assert!(guards.iter().all(|guard| guard.is_valid()), "a hold was lost");
        while !guards.is_empty() {
            let some = guards.drain(guards.len().saturating_sub(50)..).map(|guard| guard.release());
            for released in futures_util::future::join_all(some).await {
                released.expect("every release succeeds");
            }
        }
        slow = part.end(&mut eyes, "5,000 readers");
        let guards = five_thousand_read(&lock).await;
        for released in futures_util::future::join_all(guards.into_iter().map(|guard| guard.release())).await {
            released.expect("every release succeeds");
        }
        slow.extend(part.end(&mut eyes, "releasing 5,000 readers at once"));
        assert!(!eyes.exists::<_, bool>("shared").unwrap(), "a hold stays");
        if slow.is_empty() {
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

/// A process that died with 5,000 read holds: the writer that comes next is served in steps, each of which looks at a part of them. One
/// run of three without a slow script is enough; all else holds in each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_dead_readers_are_removed_in_steps() {
    let Some((server, client, mut eyes)) = own("many dead readers").await else { return };
    log_slow_scripts(&client, &mut eyes).await;
    start_replication(&server, &mut eyes).await;
    let mut slow = Vec::new();
    for _ in 0..3 {
        let mut fill = redis::pipe();
        fill.cmd("HSET").arg("dead").arg("mode").arg("read").ignore();
        for number in 0..5_000 {
            let owner = format!("8d5b1c6e-0a3f-4f0e-9d1b-6b1b2f3c4d5e:{number}");
            fill.cmd("HSET").arg("dead").arg(owner).arg(1).ignore();
        }
        fill.cmd("PEXPIRE").arg("dead").arg(600_000).ignore();
        fill.query::<()>(&mut eyes).unwrap();
        let (mut part, before, sent) = (Part::begin(&mut eyes), calls(&mut eyes, "pttl"), replicated(&mut eyes));
        let writer = client.rwlock("dead").write().timeout(Duration::from_secs(20)).await;
        let guard = writer.expect("only the dead are in the way");
        let (looked, sent) = (calls(&mut eyes, "pttl") - before, replicated(&mut eyes) - sent);
        slow = part.end(&mut eyes, "5,000 dead readers");
        eprintln!("{looked} looks at 5,000 holds, {sent} bytes for replicas");
        assert!(looked < 7_000, "{looked} looks at 5,000 holds");
        assert!(sent < STREAM, "{sent} bytes for replicas");
        guard.release().await.unwrap();
        assert!(!eyes.exists::<_, bool>("dead").unwrap());
        if slow.is_empty() {
            return;
        }
    }
    panic!("scripts took {slow:?}");
}

/// One request of a reader that does not come back.
fn read_request(name: &str, number: u64) -> Acquire {
    let owner = WireOwner::new(ClientId::from_bits(78), number);
    Acquire::new(Name::new(name).unwrap(), Claim::Read, owner, Duration::from_secs(600))
        .with_times(Runtime::system().now(), lockkeeper::runtime::Instant::NEVER)
}

/// Lets so many read for ten minutes.
async fn keep_reading(store: &Arc<RedisStore>, name: &str, count: u64) {
    for chunk in (0..count).collect::<Vec<_>>().chunks(500) {
        let asked = chunk.iter().map(|number| {
            let (store, request) = (Arc::clone(store), read_request(name, *number));
            tokio::spawn(async move { store.acquire(request).await.unwrap() })
        });
        for answer in futures_util::future::join_all(asked).await {
            assert!(matches!(answer.unwrap(), Attempt::Granted(_)));
        }
    }
}

fn hold_keys(eyes: &mut Connection, name: &str) -> Vec<String> {
    eyes.keys(format!("{{{name}}}:*:rwlock_timeout:*")).unwrap()
}

/// An operator looks at a lock that 5,000 read, and releases it by force: in steps, each of which is short. One script deletes the keys of a
/// thousand holds; the others end with their leases, and let nobody in until then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_readers_are_shown_and_released_by_force() {
    let Some((server, client, mut eyes)) = own("an operator among readers").await else { return };
    let store = RedisStore::connect(Config::parse(&server.url(0)).unwrap(), &Runtime::system()).await.unwrap();
    log_slow_scripts(&client, &mut eyes).await;
    let mut slow = Vec::new();
    for round in 0..3 {
        let name = format!("rw{round}");
        keep_reading(&store, &name, 5_000).await;
        let (mut part, looks, scripts) = (Part::begin(&mut eyes), calls(&mut eyes, "pttl"), scripts_run(&mut eyes));
        let seen = client.inspect(&name).await.unwrap().expect("held");
        let (looks, scripts) = (calls(&mut eyes, "pttl") - looks, scripts_run(&mut eyes) - scripts);
        assert!(looks <= scripts * 1_010, "{looks} looks at holds in {scripts} scripts");
        let owners: BTreeSet<&str> = seen.holders.iter().map(|holder| holder.owner.as_str()).collect();
        assert_eq!((seen.holders.len(), owners.len()), (5_000, 5_000), "each once");
        assert!(
            seen.holders.iter().all(|holder| holder.claim == Claim::Read && holder.lease_left > Some(Duration::from_secs(300)))
        );
        slow = part.end(&mut eyes, "inspecting 5,000 readers");
        let forced = client.force_release(&name).await.unwrap();
        assert_eq!(forced.from.len(), 5_000, "everybody is named");
        slow.extend(part.end(&mut eyes, "releasing 5,000 readers by force"));
        assert!(!eyes.exists::<_, bool>(&name).unwrap());
        let writer = client.rwlock(&name).try_write().await.unwrap().expect("it is free at once");
        let left = hold_keys(&mut eyes, &name);
        assert!(left.len() >= 4_000, "one script deleted the keys of {} holds", 5_000 - left.len());
        for key in left.iter().step_by(500) {
            assert!(eyes.pttl::<_, i64>(key).unwrap() > 0, "it ends by itself: {key}");
            let number = key.split(':').nth(2).and_then(|number| number.parse().ok()).expect("the number of an owner");
            let again = store.acquire(read_request(&name, number)).await.unwrap();
            assert!(matches!(again, Attempt::Busy(_)), "a reader beside a writer: {again:?}");
        }
        writer.release().await.unwrap();
        assert!(client.inspect(&name).await.unwrap().is_none(), "the keys that are left are no holds");
        if slow.is_empty() {
            break;
        }
    }
    assert!(slow.is_empty(), "scripts took {slow:?}");
    keep_reading(&store, "few", 1_000).await;
    assert_eq!(client.force_release("few").await.unwrap().from.len(), 1_000);
    assert_eq!(hold_keys(&mut eyes, "few"), Vec::<String>::new(), "of up to a thousand holds nothing stays");
}

/// The same for a mutex that 5,000 wait for. They keep their places, in their order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_fair_waiters_are_shown_and_stay_after_a_release_by_force() {
    let Some((server, client, mut eyes)) = own("an operator among fair waiters").await else { return };
    log_slow_scripts(&client, &mut eyes).await;
    let mut slow = Vec::new();
    for round in 0..3 {
        let name = format!("m{round}");
        let holder = client.fair_mutex(&name).lock().await.unwrap();
        die_waiting(&server.url(0), &name, 5_000, Duration::from_secs(600)).await;
        let queue: Vec<String> = eyes.lrange(format!("redisson_lock_queue:{{{name}}}"), 0, -1).unwrap();
        let (mut part, scripts) = (Part::begin(&mut eyes), scripts_run(&mut eyes));
        let seen = client.inspect(&name).await.unwrap().expect("held");
        let scripts = scripts_run(&mut eyes) - scripts;
        assert!(scripts >= 5, "5,000 places in {scripts} scripts");
        slow = part.end(&mut eyes, "inspecting 5,000 fair waiters");
        assert_eq!((seen.holders.len(), queue.len()), (1, 5_000));
        assert_eq!(seen.queue.into_iter().map(|waiter| waiter.owner).collect::<Vec<_>>(), queue, "in their order");
        assert_eq!(client.force_release(&name).await.unwrap().from.len(), 1);
        slow.extend(part.end(&mut eyes, "releasing a mutex with 5,000 fair waiters by force"));
        assert!(!eyes.exists::<_, bool>(&name).unwrap());
        assert_eq!(eyes.llen::<_, u64>(format!("redisson_lock_queue:{{{name}}}")).unwrap(), 5_000);
        drop(holder);
        if slow.is_empty() {
            return;
        }
    }
    panic!("scripts took {slow:?}");
}
