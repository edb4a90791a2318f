//! Requests that travel together: each key of a call is for itself, and a crowd costs the server less than its members one by one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lockkeeper::backend::{Acquire, Attempt, Backend, Claim};
use lockkeeper::name::Name;
use lockkeeper::owner::WireOwner;
use lockkeeper::runtime::Runtime;
use lockkeeper::store::redis::{Config, RedisStore};
use lockkeeper::{Client, Error, ErrorKind, MutexGuard};
use redis::{Commands, Connection};
use tokio::task::JoinHandle;

use crate::cost::own;
use crate::proxy::{Fault, Proxy};
use crate::site::scripts_run;

const CROWD: usize = 64;
const LONG: Duration = Duration::from_secs(30);

/// Asks for all these names at the same time: far more than go out alone.
fn crowd(client: &Client, names: impl Iterator<Item = String>) -> Vec<JoinHandle<Result<MutexGuard, Error>>> {
    names
        .map(|name| {
            let mutex = client.mutex(name);
            tokio::spawn(async move { mutex.lock().timeout(LONG).await })
        })
        .collect()
}

async fn all<T>(tasks: Vec<JoinHandle<T>>) -> Vec<T> {
    let mut done = Vec::new();
    for task in tasks {
        done.push(tokio::time::timeout(LONG * 2, task).await.expect("nobody hangs").unwrap());
    }
    done
}

/// Only the counter and the cards are left, at the latest when `limit` has passed.
async fn nothing_is_left(eyes: &mut Connection, limit: Duration) {
    let began = Instant::now();
    loop {
        let keys: Vec<String> = eyes.keys("*").unwrap();
        let left: Vec<_> = keys.iter().filter(|key| !key.starts_with("lockkeeper:")).collect();
        if left.is_empty() {
            return;
        }
        assert!(began.elapsed() < limit, "left behind: {left:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_takes_far_fewer_calls_than_it_has_members() {
    let Some((_server, client, mut eyes)) = own("a crowd").await else { return };
    let before = scripts_run(&mut eyes);
    for round in 0..10 {
        let guards = all(crowd(&client, (0..512).map(|n| format!("n{n}")))).await;
        let mut tokens: Vec<u64> = guards.iter().map(|guard| guard.as_ref().unwrap().token().unwrap().number()).collect();
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), 512, "round {round}: tokens are never given twice");
        let releases = guards.into_iter().map(|guard| tokio::spawn(async move { guard.unwrap().release().await })).collect();
        all(releases).await.into_iter().for_each(|released| released.unwrap());
    }
    let calls = scripts_run(&mut eyes) - before;
    assert!(calls < 10 * 2 * 512 / 4, "{calls} calls for {} requests", 10 * 2 * 512);
    nothing_is_left(&mut eyes, Duration::from_secs(1)).await;
}

/// Tokens of a name grow from grant to grant, whether granted alone or with others, also when the clock fell behind the counter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_across_calls_also_when_the_clock_is_behind() {
    let Some((_server, client, mut eyes)) = own("tokens of a crowd").await else { return };
    let mut highest = 0;
    for round in 0..6 {
        if round == 3 {
            let ahead: u64 = highest + 3_600_000_000;
            eyes.set::<_, _, ()>("lockkeeper:token", ahead).unwrap();
            highest = ahead;
        }
        let guards = all(crowd(&client, (0..CROWD).map(|n| format!("n{n}")))).await;
        let tokens: Vec<u64> = guards.iter().map(|guard| guard.as_ref().unwrap().token().unwrap().number()).collect();
        assert!(tokens.iter().all(|token| *token > highest), "round {round}: {tokens:?} after {highest}");
        highest = *tokens.iter().max().unwrap();
        for guard in guards {
            guard.unwrap().release().await.unwrap();
        }
    }
}

/// One key that is no lock and one that this user may not touch, among 64.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_and_a_forbidden_key_fail_alone() {
    let Some((server, _client, mut eyes)) = own("a foreign key in a crowd").await else { return };
    let rule = ["on", ">secret", "~n*", "~lockkeeper:*", "~redisson_*", "~{n*}*", "&*", "+@all"];
    redis::cmd("ACL").arg("SETUSER").arg("limited").arg(&rule).exec(&mut eyes).unwrap();
    let limited = Client::connect(format!("redis://limited:secret@127.0.0.1:{}", server.port)).await.unwrap();
    eyes.rpush::<_, _, ()>("n5", "not a lock").unwrap();
    eyes.hset::<_, _, _, ()>("n6", "field", "kept for ever").unwrap();
    eyes.set::<_, _, ()>("n7", "some text").unwrap();
    for _ in 0..5 {
        let names = (0..CROWD).map(|n| if n == 40 { "forbidden".to_owned() } else { format!("n{n}") });
        for (n, guard) in all(crowd(&limited, names)).await.into_iter().enumerate() {
            match (n, guard) {
                (5..=7, guard) => assert_eq!(guard.unwrap_err().kind(), ErrorKind::ForeignKey, "{n}"),
                (40, guard) => assert_eq!(guard.unwrap_err().kind(), ErrorKind::Denied, "{n}"),
                (_, guard) => guard.unwrap().release().await.unwrap(),
            }
        }
    }
    assert_eq!(eyes.lrange::<_, Vec<String>>("n5", 0, -1).unwrap(), ["not a lock"]);
    eyes.del::<_, ()>(&["n5", "n6", "n7"]).unwrap();
    nothing_is_left(&mut eyes, Duration::from_secs(2)).await;
}

/// A server that is out of memory grants nothing, and everything can be given back to it, by many at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_can_give_back_when_memory_is_out() {
    let Some((_server, client, mut eyes)) = own("a crowd without memory").await else { return };
    let guards = all(crowd(&client, (0..CROWD).map(|n| format!("n{n}")))).await;
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(1).exec(&mut eyes).unwrap();
    let refused: Vec<_> = (0..CROWD)
        .map(|n| {
            let mutex = client.mutex(format!("new{n}"));
            tokio::spawn(async move { mutex.lock().timeout(Duration::from_millis(300)).await.map(drop) })
        })
        .collect();
    for refusal in all(refused).await {
        assert_eq!(refusal.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    let releases = guards.into_iter().map(|guard| tokio::spawn(async move { guard.unwrap().release().await })).collect();
    all(releases).await.into_iter().for_each(|released| released.unwrap());
    nothing_is_left(&mut eyes, Duration::from_secs(2)).await;
}

/// The answer to a whole call is lost, again and again: everybody gets the lock all the same, once, and no release is called lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_to_a_whole_call_costs_nobody_the_lock() {
    let Some((server, _client, mut eyes)) = own("a lost call").await else { return };
    let proxy = Proxy::start(server.port).await;
    let client = Client::connect(format!("redis://127.0.0.1:{}", proxy.port)).await.unwrap();
    for round in 0..5 {
        // Only a call for several has so many keys.
        proxy.next(if round % 2 == 0 { "n20" } else { "n40" }, Fault::LoseReply);
        let guards = all(crowd(&client, (0..CROWD).map(|n| format!("n{n}")))).await;
        for (n, guard) in guards.iter().enumerate() {
            let guard = guard.as_ref().unwrap();
            assert_eq!(eyes.hget::<_, _, u32>(format!("n{n}"), guard.owner().to_string()).unwrap(), 1, "round {round}, {n}");
        }
        proxy.next(if round % 2 == 0 { "n40" } else { "n20" }, Fault::LoseReply);
        let releases = guards.into_iter().map(|guard| tokio::spawn(async move { guard.unwrap().release().await })).collect();
        all(releases).await.into_iter().for_each(|released| released.unwrap());
        assert!(proxy.met(), "round {round}: nothing was lost");
    }
    nothing_is_left(&mut eyes, Duration::from_secs(2)).await;
}

/// Members that go away in the middle leave the others their answers, and nothing behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_give_up_disturb_nobody() {
    let Some((server, _client, mut eyes)) = own("members that give up").await else { return };
    let proxy = Proxy::start(server.port).await;
    let client = Client::connect(format!("redis://127.0.0.1:{}", proxy.port)).await.unwrap();
    proxy.delay_answers(Duration::from_millis(20));
    for _ in 0..5 {
        let tasks = crowd(&client, (0..CROWD).map(|n| format!("n{n}")));
        tokio::time::sleep(Duration::from_millis(5)).await;
        let (gone, stay): (Vec<_>, Vec<_>) = tasks.into_iter().enumerate().partition(|(n, _)| n % 3 == 0);
        gone.iter().for_each(|(_, task)| task.abort());
        for guard in all(stay.into_iter().map(|(_, task)| task).collect()).await {
            guard.unwrap().release().await.unwrap();
        }
    }
    nothing_is_left(&mut eyes, Duration::from_secs(5)).await;
}

/// Exclusion, through calls for many: an unprotected counter per name, asked for by the tasks of two clients.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crowds_of_two_clients_lose_no_update() {
    const NAMES: usize = 24;
    let Some((server, ours, _eyes)) = own("crowds of two clients").await else { return };
    let theirs = Client::connect(server.url(0)).await.unwrap();
    let counters: Arc<Vec<AtomicU64>> = Arc::new((0..NAMES).map(|_| AtomicU64::new(0)).collect());
    let workers: Vec<_> = (0..NAMES * 4)
        .map(|n| {
            let (mutex, counters) = ([&ours, &theirs][n % 2].mutex(format!("n{}", n / 4)), Arc::clone(&counters));
            tokio::spawn(async move {
                for _ in 0..25 {
                    let guard = mutex.lock().timeout(LONG).await.unwrap();
                    let seen = counters[n / 4].load(Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    counters[n / 4].store(seen + 1, Ordering::SeqCst);
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    all(workers).await;
    assert!(counters.iter().all(|counter| counter.load(Ordering::SeqCst) == 100), "{counters:?}");
}

/// 5,000 names that others hold, each with a waiter of this process: asking again costs less than 200 requests a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_waited_names_are_not_a_load() {
    const NAMES: usize = 5_000;
    const LOOK: Duration = Duration::from_secs(6);
    let Some((server, _client, mut eyes)) = own("waited names").await else { return };
    let client = Client::connect(server.url(0)).await.unwrap();
    for n in 0..NAMES {
        let name = format!("n{n}");
        redis::pipe().hset(&name, "8d5b1c6e-0a3f-4f0e-9d1b-6b1b2f3c4d5e:1", 1).pexpire(&name, 300_000).exec(&mut eyes).unwrap();
    }
    let waiters: Vec<_> = (0..NAMES).map(|n| client.mutex(format!("n{n}"))).collect();
    let waiters: Vec<_> = waiters.into_iter().map(|mutex| tokio::spawn(async move { mutex.lock().await.map(drop) })).collect();
    let began = Instant::now();
    let waited = "redisson_lock__channel:*";
    while redis::cmd("PUBSUB").arg("CHANNELS").arg(waited).query::<Vec<String>>(&mut eyes).unwrap().len() < NAMES {
        assert!(began.elapsed() < LONG, "not all of them listen");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // What they ask once more after subscribing is over.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (before, began) = (scripts_run(&mut eyes), Instant::now());
    tokio::time::sleep(LOOK).await;
    let rate = (scripts_run(&mut eyes) - before) as f64 / began.elapsed().as_secs_f64();
    println!("{rate:.0} requests a second for {NAMES} waited names");
    assert!(rate < 200.0, "{rate:.0} requests a second");
    assert!(rate > 20.0, "{rate:.0} requests a second: nobody asks again");
    waiters.iter().for_each(JoinHandle::abort);
}

/// The same as the store asks: each step of a call has its own latest time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_gather_keep_their_own_latest_times() {
    let Some((server, _client, mut eyes)) = own("late requests").await else { return };
    let runtime = Runtime::system();
    let store = RedisStore::connect(Config::parse(&server.url(0)).unwrap(), &runtime).await.unwrap();
    let (now, client) = (runtime.now(), runtime.client_id());
    let is_late = |n: usize| n % 5 == 3;
    let asks = (0..20).map(|n| {
        Acquire::new(Name::new(format!("n{n}")).unwrap(), Claim::Mutex, WireOwner::new(client, n as u64 + 1), LONG)
            .with_times(now, if is_late(n) { now } else { now.plus(LONG) })
    });
    // The clock of the server is known to a moment only.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let before = scripts_run(&mut eyes);
    let tasks: Vec<_> = asks
        .map(|ask| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.acquire(ask).await.unwrap() })
        })
        .collect();
    for (n, attempt) in all(tasks).await.into_iter().enumerate() {
        match attempt {
            Attempt::Late => assert!(is_late(n), "{n} was not late"),
            Attempt::Granted(_) => assert!(!is_late(n), "{n} was late"),
            other => panic!("{n} is nobody's: {other:?}"),
        }
        assert_eq!(eyes.exists::<_, bool>(format!("n{n}")).unwrap(), !is_late(n), "{n}");
    }
    let calls = scripts_run(&mut eyes) - before;
    assert!(calls < 20, "{calls} calls: none was for several");
}
