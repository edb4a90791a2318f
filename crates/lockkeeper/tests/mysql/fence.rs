//! P7 without clocks: the fence in the transaction of a user.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lockkeeper::{Client, ErrorKind};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Params, Value};

use crate::bench::{Bench, plain};

const LONG: Duration = Duration::from_secs(30);

async fn client(url: &str) -> Client {
    Client::builder().lease(LONG).connect(url).await.expect("a running server")
}

async fn conn(bench: &Bench) -> Conn {
    let url = format!("mysql://root@127.0.0.1:{}/{}?prefer_socket=false", bench.server.port, bench.database);
    Conn::from_url(url).await.unwrap()
}

fn parameters(fence: &lockkeeper::fence::SqlFence) -> Params {
    Params::Positional(vec![Value::Bytes(fence.name().to_vec()), Value::Int(fence.token())])
}

fn is_refused(error: &mysql_async::Error) -> bool {
    matches!(error, mysql_async::Error::Server(told) if told.code == 1242)
}

#[tokio::test]
async fn a_later_grant_waits_for_the_commit_and_a_late_transaction_is_refused() {
    let Some(bench) = Bench::open("a fenced transaction").await else { return };
    let (ours, theirs) = (client(&bench.url).await, client(&bench.url).await);
    let mut database = conn(&bench).await;
    let guard = ours.mutex("m").lock().await.unwrap();
    let fence = ours.sql_fence(&guard).unwrap();
    let mut transaction = database.start_transaction(mysql_async::TxOpts::default()).await.unwrap();
    transaction.exec_drop(fence.text(), parameters(&fence)).await.expect("the holder passes");
    // Renewals pass beside the open transaction.
    guard.extend(LONG * 2).await.unwrap();
    theirs.force_release("m").await.unwrap();
    let mut waiting = tokio::spawn({
        let theirs = theirs.clone();
        async move { theirs.mutex("m").lock().timeout(LONG).await.expect("after the commit") }
    });
    let early = tokio::time::timeout(Duration::from_secs(2), &mut waiting).await;
    assert!(early.is_err(), "granted before the commit: {early:?}");
    // Others of that client are served meanwhile.
    theirs.mutex("other").lock().timeout(LONG).await.unwrap().release().await.unwrap();
    transaction.commit().await.unwrap();
    let next = waiting.await.unwrap();
    assert!(next.token() > guard.token());

    // The old holder begins another transaction: refused.
    let mut late = database.start_transaction(mysql_async::TxOpts::default()).await.unwrap();
    let error = late.exec_drop(fence.text(), parameters(&fence)).await.expect_err("a later holder has it");
    assert!(is_refused(&error), "{error:?}");
    late.rollback().await.unwrap();
    // The same with the values in the text, for scripts.
    assert!(is_refused(&database.query_drop(fence.literal()).await.unwrap_err()));
    database.query_drop(theirs.sql_fence(&next).unwrap().literal()).await.expect("the holder passes");
    next.release().await.unwrap();
}

/// A transaction whose snapshot is older than the grant of the next holder.
#[tokio::test]
async fn a_repeatable_read_that_began_before_the_next_grant_is_refused() {
    let Some(bench) = Bench::open("a fence by an old snapshot").await else { return };
    let (ours, theirs) = (client(&bench.url).await, client(&bench.url).await);
    let mut database = conn(&bench).await;
    let guard = ours.mutex("m").lock().await.unwrap();
    let fence = ours.sql_fence(&guard).unwrap();
    database.query_drop("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ").await.unwrap();
    database.query_drop("START TRANSACTION WITH CONSISTENT SNAPSHOT").await.unwrap();
    theirs.force_release("m").await.unwrap();
    let next = theirs.mutex("m").lock().timeout(LONG).await.unwrap();
    // The control: a plain read of the snapshot still has the old token.
    let old: Option<i64> = database.query_first("SELECT token FROM lockkeeper_fence").await.unwrap();
    assert_eq!(old, Some(fence.token()));
    let error = database.exec_drop(fence.text(), parameters(&fence)).await.expect_err("a later holder has it");
    assert!(is_refused(&error), "{error:?}");
    database.query_drop("ROLLBACK").await.unwrap();
    next.release().await.unwrap();
}

#[tokio::test]
async fn only_exclusive_holds_are_fenced() {
    let Some(bench) = Bench::open("what is fenced").await else { return };
    let ours = client(&bench.url).await;
    let reader = ours.rwlock("rw").read().await.unwrap();
    assert_eq!(ours.sql_fence(&reader).unwrap_err().kind(), ErrorKind::Unsupported);
    reader.release().await.unwrap();
    let writer = ours.rwlock("rw").write().await.unwrap();
    bench.plain().await.run(ours.sql_fence(&writer).unwrap().literal()).await;
    writer.release().await.unwrap();
    // A lock that came with others, in one request.
    let both = ours.multi_lock(["a", "b"]).lock().await.unwrap();
    let tokens: Vec<i64> = bench.plain().await.all("SELECT token FROM lockkeeper_fence WHERE name IN ('a', 'b')").await;
    assert!(tokens.len() == 2 && tokens.iter().all(|token| *token > 0), "{tokens:?}");
    both.release().await.unwrap();
}

/// The lease of the bank's workers. They are paused for longer.
const LEASE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(1_300);

/// Set for a worker: `fenced` or `plain`, and the URL.
const ROLE: &str = "LOCKKEEPER_TEST_BANK";

/// No test by itself: a process that adds to a balance under a lock, stops itself between reading and writing now and then, and says how
/// many additions were acknowledged.
#[tokio::test]
async fn bank_worker() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (fenced, url) = role.split_once(' ').map(|(kind, url)| (kind == "fenced", url)).expect("a role and a URL");
    let client = Client::builder().lease(LEASE).connect(url).await.unwrap();
    let plain_url = url.replace("ssl-mode=disabled", "prefer_socket=false");
    let mut database = Conn::from_url(&plain_url).await.unwrap();
    let me = std::process::id().to_string();
    let (mut acknowledged, mut turn) = (0_u32, 0_u32);
    while std::fs::exists(std::env::var("LOCKKEEPER_TEST_BANK_OPEN").unwrap()).unwrap() {
        turn += 1;
        let Ok(guard) = client.mutex("bank").lock().timeout(LONG).await else { continue };
        let fence = client.sql_fence(&guard).unwrap();
        let add = async {
            let mut transaction = database.start_transaction(mysql_async::TxOpts::default()).await?;
            if fenced {
                transaction.exec_drop(fence.text(), parameters(&fence)).await?;
            }
            let balance: Option<i64> = transaction.query_first("SELECT balance FROM bank").await?;
            if turn % 3 == 0 {
                Command::new("kill").args(["-STOP", &me]).status().unwrap();
            }
            transaction.query_drop(format!("UPDATE bank SET balance = {}", balance.unwrap() + 1)).await?;
            transaction.commit().await
        };
        let added = add.await;
        acknowledged += u32::from(added.is_ok());
        if added.is_err() {
            // Whatever is open is undone; a connection that broke is made anew.
            database = Conn::from_url(&plain_url).await.unwrap();
        }
        // The lock may be lost by now; that is what the fence is for.
        let _ = guard.release().await;
    }
    println!("acknowledged {acknowledged}");
}

/// Lets processes add to a balance while they are stopped past their leases; gives how many acknowledged additions are missing.
async fn lost_updates(bench: &Bench, role: &str, pauses: u32) -> i64 {
    let database = plain(bench.server.port, &bench.database).await;
    database.run("DROP TABLE IF EXISTS bank").await;
    database.run("CREATE TABLE bank (balance BIGINT)").await;
    database.run("INSERT INTO bank VALUES (0)").await;
    let open = std::env::temp_dir().join(format!("lockkeeper-mysql-bank-{}-{role}", std::process::id()));
    std::fs::write(&open, "").unwrap();
    let mut workers: Vec<Child> = (0..3)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "fence::bank_worker", "--nocapture"])
                .env(ROLE, format!("{role} {}", bench.url))
                .env("LOCKKEEPER_TEST_BANK_OPEN", &open)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let stopped = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    };
    let (mut seen, mut since) = (0, vec![None::<Instant>; workers.len()]);
    let deadline = Instant::now() + Duration::from_secs(120) + PAUSE * pauses * 2;
    while seen < pauses || since.iter().any(Option::is_some) {
        assert!(Instant::now() < deadline, "{seen} pauses of {pauses}");
        for (worker, since) in workers.iter().zip(&mut since) {
            match *since {
                None if stopped(worker.id()) => *since = Some(Instant::now()),
                Some(then) if then.elapsed() >= PAUSE => {
                    Command::new("kill").args(["-CONT", &worker.id().to_string()]).status().unwrap();
                    *since = None;
                    seen += 1;
                    if seen == pauses {
                        // Workers end after the addition that they are at.
                        std::fs::remove_file(&open).unwrap();
                    }
                }
                _ => {}
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for worker in &mut workers {
        // One that stopped itself a last time goes on.
        while worker.try_wait().unwrap().is_none() {
            Command::new("kill").args(["-CONT", &worker.id().to_string()]).status().unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    let mut acknowledged = 0;
    for worker in workers {
        let said = worker.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let number =
            said.split("acknowledged ").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("a worker says it");
        acknowledged += number.parse::<i64>().unwrap();
    }
    let balance: i64 = database.first("SELECT balance FROM bank").await.unwrap();
    println!("{role}: {pauses} pauses, {acknowledged} acknowledged, {balance} in the bank");
    assert!(acknowledged > 0);
    acknowledged - balance
}

/// `LOCKKEEPER_PAUSES` makes more of them.
#[tokio::test]
async fn with_the_fence_paused_processes_lose_no_update_and_without_it_they_do() {
    let Some(bench) = Bench::open("the bank").await else { return };
    let pauses = std::env::var("LOCKKEEPER_PAUSES").map_or(6, |text| text.parse().expect("a number"));
    assert_eq!(lost_updates(&bench, "fenced", pauses).await, 0);
    // The control.
    assert!(lost_updates(&bench, "plain", pauses).await > 0, "without the fence updates are lost");
}

/// A fence lasts; the lock of a step, or of whoever else locks the row, is over soon.
#[tokio::test]
async fn an_acquire_behind_a_fence_comes_back_later_than_one_behind_a_step() {
    let Some(bench) = Bench::open("what a row lock is for").await else { return };
    assert!(crate::bench::is_granted(bench.store.acquire(bench.ask("m", 1)).await.unwrap()));
    bench.store.release(crate::bench::release("m", 1)).await.unwrap();
    let plain = bench.plain().await;
    let fence = "SELECT * FROM lockkeeper_fence LOCK IN SHARE MODE";
    for (locking, shortest, longest) in [(fence, 300, 300), ("SELECT * FROM lockkeeper_head FOR UPDATE", 10, 30)] {
        plain.run("START TRANSACTION").await;
        plain.run(locking).await;
        let attempt = bench.store.acquire(bench.ask("m", 2)).await.unwrap();
        plain.run("ROLLBACK").await;
        let lockkeeper::backend::Attempt::Busy(busy) = attempt else { panic!("{attempt:?} beside {locking}") };
        let retry = busy.retry_in.expect("a time").as_millis();
        assert!((shortest..=longest).contains(&retry) && busy.unseen, "{locking}: {busy:?}");
    }
}
