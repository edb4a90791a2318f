//! Requests of all kinds that travel together: reads, writes, permits, counters and latches gather as mutexes do, and each step of a call is for
//! itself.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::backend::{Acquire, Attempt, Backend, Claim};
use lockkeeper::name::Name;
use lockkeeper::owner::WireOwner;
use lockkeeper::runtime::Runtime;
use lockkeeper::store::redis::{Config, RedisStore};
use lockkeeper::{Client, ErrorKind, Result};
use redis::{Commands as _, Connection};
use tokio::task::JoinSet;

use crate::cost::own;
use crate::proxy::{Fault, Proxy};
use crate::server::{Flavour, Server};
use crate::site::{plain_connection, scripts_run, until};

const CROWD: usize = 60;
const LONG: Duration = Duration::from_secs(30);

/// A turn with a name of a kind: acquired and released, or counted up and looked at. What the number of the kind is afterwards; 0 if it has none.
async fn turn(client: &Client, kind: usize, name: &str) -> Result<i64> {
    match kind {
        0 => client.rwlock(name).read().timeout(LONG).await?.release().await.map(|()| 0),
        1 => client.rwlock(name).write().timeout(LONG).await?.release().await.map(|()| 0),
        2 => client.semaphore(name, 3).acquire().timeout(LONG).await?.release().await.map(|()| 0),
        3 => client.counting_semaphore(name).add(1).await,
        4 => client.latch(name).try_set(5).await.map(i64::from),
        _ => client.mutex(name).lock().timeout(LONG).await?.release().await.map(|()| 0),
    }
}

/// Takes a turn with each of these names at the same time; the kinds alternate.
async fn crowd(client: &Client, names: impl Iterator<Item = String>) -> Vec<Result<i64>> {
    let mut tasks = JoinSet::new();
    for (number, name) in names.enumerate() {
        let client = client.clone();
        tasks.spawn(async move { (number, turn(&client, number % 6, &name).await) });
    }
    let mut done = tokio::time::timeout(2 * LONG, tasks.join_all()).await.expect("nobody hangs");
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, turn)| turn).collect()
}

fn names() -> impl Iterator<Item = String> {
    (0..CROWD).map(|n| format!("n{n}"))
}

/// Nobody holds anything, at the latest after a moment. Numbers stay.
async fn nothing_is_held(eyes: &mut Connection) {
    until("all is released", || {
        let keys: Vec<String> = eyes.keys("*").unwrap();
        keys.iter().all(|key| {
            let kind: String = redis::cmd("TYPE").arg(key).query(eyes).unwrap();
            kind == "string" && !key.contains("rwlock_timeout") || key.starts_with("lockkeeper:")
        })
    })
    .await;
}

/// A crowd takes turns five times: far fewer calls than requests, and each is carried out once.
async fn shares_calls(url: &str, eyes: &mut Connection) {
    let client = Client::connect(url).await.unwrap();
    let before = scripts_run(eyes);
    for round in 1..=5 {
        for (number, turn) in crowd(&client, names()).await.into_iter().enumerate() {
            let expected = [0, 0, 0, round, i64::from(round == 1), 0][number % 6];
            assert_eq!(turn.unwrap(), expected, "{url}: round {round}, {number}");
        }
    }
    let (calls, requests) = (scripts_run(eyes) - before, 5 * (CROWD as u64 / 6) * 10);
    assert!(calls < requests / 2, "{url}: {calls} calls for {requests} requests");
    nothing_is_held(eyes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_all_kinds_share_calls_on_every_server() {
    for flavour in [Flavour::Redis, Flavour::Redis62, Flavour::Redis8, Flavour::Valkey] {
        if let Some(why) = Server::missing(flavour) {
            lockkeeper::conformance::skip("calls for all kinds", &why);
            continue;
        }
        let server = Server::start(flavour);
        let mut eyes = plain_connection(&server.url(0));
        shares_calls(&server.url(0), &mut eyes).await;
        redis::cmd("FLUSHALL").exec(&mut eyes).unwrap();
        shares_calls(&format!("{}?push=off", server.url(0)), &mut eyes).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_all_kinds_share_calls_where_scripts_go_in_full_or_are_loaded() {
    for command in ["EVALSHA", "EVAL", "SCRIPT"] {
        if let Some(why) = Server::missing(Flavour::Redis) {
            return lockkeeper::conformance::skip("calls for all kinds", &why);
        }
        let server = Server::start_with(Flavour::Redis, &["--rename-command", command, ""]);
        shares_calls(&server.url(0), &mut plain_connection(&server.url(0))).await;
    }
}

/// A key of each kind that is no lock, and one that this user may not touch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_and_a_forbidden_key_of_any_kind_fail_alone() {
    let Some((server, _client, mut eyes)) = own("foreign keys of all kinds").await else { return };
    let rule = ["on", ">secret", "~n*", "~lockkeeper:*", "~redisson_*", "~{n*}*", "&*", "+@all"];
    redis::cmd("ACL").arg("SETUSER").arg("limited").arg(&rule).exec(&mut eyes).unwrap();
    let limited = Client::connect(format!("redis://limited:secret@127.0.0.1:{}", server.port)).await.unwrap();
    for round in 0..6 {
        // In one round more than in another a call has one that the user may not touch, and then it is sent one by one.
        let forbidden = round % 2 == 1;
        for n in 0..6 {
            eyes.rpush::<_, _, ()>(format!("n{}", 12 + n), "not a lock").unwrap();
        }
        let names = names().enumerate().map(|(n, name)| if forbidden && n == 40 { "forbidden".to_owned() } else { name });
        for (n, turn) in crowd(&limited, names).await.into_iter().enumerate() {
            match n {
                12..18 => assert_eq!(turn.unwrap_err().kind(), ErrorKind::ForeignKey, "{n}"),
                40 if forbidden => assert_eq!(turn.unwrap_err().kind(), ErrorKind::Denied, "{n}"),
                _ => assert!(turn.is_ok(), "{n}: {turn:?}"),
            }
        }
        for n in 12..18 {
            assert_eq!(eyes.lrange::<_, Vec<String>>(format!("n{n}"), 0, -1).unwrap().len(), round + 1);
        }
    }
    for n in 12..18 {
        eyes.del::<_, ()>(format!("n{n}")).unwrap();
    }
    for n in (0..CROWD).filter(|n| n % 6 == 3 && !(12..18).contains(n)) {
        assert_eq!(eyes.get::<_, i64>(format!("n{n}")).unwrap(), 6, "{n} is counted once for each request");
    }
    nothing_is_held(&mut eyes).await;
}

/// The answer to a whole call is lost, again and again: a count is carried out once, and a lock is granted once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_to_a_call_of_all_kinds_counts_nothing_twice() {
    let Some((server, _client, mut eyes)) = own("a lost call of all kinds").await else { return };
    let proxy = Proxy::start(server.port).await;
    let client = Client::connect(format!("redis://127.0.0.1:{}", proxy.port)).await.unwrap();
    for round in 1..=6 {
        // Names of different kinds, in the middle of the crowd: it is under way together with others.
        proxy.next(format!("n{}", 24 + round), Fault::LoseReply);
        for (n, turn) in crowd(&client, names()).await.into_iter().enumerate() {
            let expected = [0, 0, 0, round, i64::from(round == 1), 0][n % 6];
            assert_eq!(turn.unwrap(), expected, "round {round}, {n}");
        }
        assert!(proxy.met(), "round {round}: nothing was lost");
    }
    nothing_is_held(&mut eyes).await;
}

/// A server that is out of memory grants nothing, and everything can be given back and counted down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_of_all_kinds_can_be_given_back_together_when_memory_is_out() {
    let Some((_server, client, mut eyes)) = own("all kinds without memory").await else { return };
    let (mut reads, mut writes, mut permits, latch) = (Vec::new(), Vec::new(), Vec::new(), client.latch("latch"));
    assert!(latch.try_set(20).await.unwrap());
    for n in 0..20 {
        reads.push(client.rwlock(format!("r{n}")).read().await.unwrap());
        writes.push(client.rwlock(format!("w{n}")).write().await.unwrap());
        permits.push(client.semaphore(format!("s{n}"), 1).acquire().await.unwrap());
    }
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(1).exec(&mut eyes).unwrap();
    let mut refused = JoinSet::new();
    for n in 0..20 {
        let (lock, semaphore) = (client.rwlock(format!("new{n}")), client.semaphore(format!("permit{n}"), 1));
        refused.spawn(async move {
            let wait = Duration::from_millis(300);
            let write = lock.write().timeout(wait);
            let permit = semaphore.acquire().timeout(wait);
            let (write, permit) = tokio::join!(write.into_future(), permit.into_future());
            [write.map(drop), permit.map(drop)]
        });
    }
    for refusal in refused.join_all().await.into_iter().flatten() {
        assert_eq!(refusal.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    let mut given_back = JoinSet::new();
    for ((read, write), permit) in reads.into_iter().zip(writes).zip(permits) {
        let latch = latch.clone();
        given_back.spawn(async move { read.release().await });
        given_back.spawn(async move { write.release().await });
        given_back.spawn(async move { permit.release().await });
        given_back.spawn(async move { latch.count_down().await.map(drop) });
    }
    for done in given_back.join_all().await {
        done.unwrap();
    }
    assert_eq!(latch.count().await.unwrap(), 0);
    nothing_is_held(&mut eyes).await;
}

/// Each step of a call has its own latest time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_all_kinds_keep_their_own_latest_times() {
    let Some((server, _client, mut eyes)) = own("late requests of all kinds").await else { return };
    let runtime = Runtime::system();
    let store = RedisStore::connect(Config::parse(&server.url(0)).unwrap(), &runtime).await.unwrap();
    let (now, client) = (runtime.now(), runtime.client_id());
    let is_late = |n: usize| n % 5 == 3;
    // The clock of the server is known to a moment only.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let before = scripts_run(&mut eyes);
    let mut tasks = JoinSet::new();
    for n in 0..24 {
        let claim = [Claim::Read, Claim::Write, Claim::Permits { take: 1, of: 2 }, Claim::Mutex][n % 4];
        let owner = WireOwner::new(client, n as u64 + 1);
        let ask = Acquire::new(Name::new(format!("n{n}")).unwrap(), claim, owner, LONG)
            .with_times(now, if is_late(n) { now } else { now.plus(LONG) });
        let store = Arc::clone(&store);
        tasks.spawn(async move { (n, store.acquire(ask).await.unwrap()) });
    }
    for (n, attempt) in tasks.join_all().await {
        match attempt {
            Attempt::Late => assert!(is_late(n), "{n} was not late"),
            Attempt::Granted(_) => assert!(!is_late(n), "{n} was late"),
            other => panic!("{n} is nobody's: {other:?}"),
        }
        assert_eq!(eyes.exists::<_, bool>(format!("n{n}")).unwrap(), !is_late(n), "{n}");
    }
    let calls = scripts_run(&mut eyes) - before;
    assert!(calls < 24, "{calls} calls: none was for several");
}
