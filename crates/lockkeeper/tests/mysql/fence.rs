//! P7 without clocks: the fence in the transaction of a user.

use std::time::Duration;

use lockkeeper::fence::SqlFence;
use lockkeeper::{Client, ErrorKind};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Params, Value};

use super::bench::Bench;

const LONG: Duration = Duration::from_secs(30);

async fn client(url: &str) -> Client {
    Client::builder().lease(LONG).connect(url).await.expect("a running server")
}

async fn conn(bench: &Bench) -> Conn {
    let url = format!("mysql://root@127.0.0.1:{}/{}?prefer_socket=false", bench.server.port, bench.database);
    Conn::from_url(url).await.unwrap()
}

fn parameters(fence: &SqlFence) -> Params {
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

/// Who adds to the balance of the bank, each time in a transaction.
pub(crate) struct Teller {
    url: String,
    database: Conn,
}

impl Teller {
    /// Beside the store of that URL.
    pub(crate) async fn open(url: &str) -> Self {
        let url = url.replace("ssl-mode=disabled", "prefer_socket=false");
        let database = Conn::from_url(&url).await.unwrap();
        Self { url, database }
    }

    /// Creates the bank, with nothing in it.
    pub(crate) async fn found(&mut self) {
        for sql in ["DROP TABLE IF EXISTS bank", "CREATE TABLE bank (balance BIGINT)", "INSERT INTO bank VALUES (0)"] {
            self.database.query_drop(sql).await.unwrap();
        }
    }

    pub(crate) async fn balance(&mut self) -> i64 {
        self.database.query_first("SELECT balance FROM bank").await.unwrap().unwrap()
    }

    /// Adds one, with a pause between reading and writing. Tells whether that was committed.
    pub(crate) async fn add(&mut self, fence: Option<&SqlFence>, pause: impl Fn()) -> bool {
        let add = async {
            let mut transaction = self.database.start_transaction(mysql_async::TxOpts::default()).await?;
            if let Some(fence) = fence {
                transaction.exec_drop(fence.text(), parameters(fence)).await?;
            }
            let balance: Option<i64> = transaction.query_first("SELECT balance FROM bank").await?;
            pause();
            transaction.query_drop(format!("UPDATE bank SET balance = {}", balance.unwrap() + 1)).await?;
            transaction.commit().await
        };
        let added = add.await.is_ok();
        if !added {
            // Whatever is open is undone; a connection that broke is made anew.
            self.database = Conn::from_url(&self.url).await.unwrap();
        }
        added
    }
}

/// A fence lasts; the lock of a step, or of whoever else locks the row, is over soon.
#[tokio::test]
async fn an_acquire_behind_a_fence_comes_back_later_than_one_behind_a_step() {
    let Some(bench) = Bench::open("what a row lock is for").await else { return };
    assert!(super::bench::is_granted(bench.store.acquire(bench.ask("m", 1)).await.unwrap()));
    bench.store.release(super::bench::release("m", 1)).await.unwrap();
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
