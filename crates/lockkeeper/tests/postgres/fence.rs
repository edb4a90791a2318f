//! P7 without clocks: the fence in the transaction of a user.

use std::time::Duration;

use lockkeeper::{Client, ErrorKind};
use lockkeeper_testkit::examples::printed_with;
use tokio_postgres::error::SqlState;

use crate::bench::Bench;

const LONG: Duration = Duration::from_secs(30);

async fn client(url: &str) -> Client {
    Client::builder().lease(LONG).connect(url).await.expect("a running server")
}

#[tokio::test]
async fn a_later_grant_waits_for_the_commit_and_a_late_transaction_is_refused() {
    let Some(bench) = Bench::open("a fenced transaction").await else { return };
    let (ours, theirs) = (client(&bench.url).await, client(&bench.url).await);
    let mut database = bench.plain().await;
    let guard = ours.mutex("m").lock().await.unwrap();
    let fence = ours.sql_fence(&guard).unwrap();
    let transaction = database.transaction().await.unwrap();
    transaction.query(fence.text(), &[&fence.name(), &fence.token()]).await.expect("the holder passes");
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

    // The old holder begins another transaction: refused, and nothing of it is kept.
    let late = database.transaction().await.unwrap();
    let error = late.query(fence.text(), &[&fence.name(), &fence.token()]).await.expect_err("a later holder has it");
    assert!(error.as_db_error().is_some_and(|error| error.message().contains("lockkeeper: the lock was lost")), "{error:?}");
    assert!(late.execute("SELECT 1", &[]).await.is_err(), "the transaction is over");
    late.rollback().await.unwrap();
    // The same with the values in the text, for scripts.
    assert!(database.batch_execute(fence.literal()).await.is_err());
    database.batch_execute(theirs.sql_fence(&next).unwrap().literal()).await.expect("the holder passes");
    next.release().await.unwrap();
}

/// A transaction whose snapshot is older than the grant of the next holder.
#[tokio::test]
async fn a_repeatable_read_that_began_before_the_next_grant_is_refused() {
    let Some(bench) = Bench::open("a fence by an old snapshot").await else { return };
    let (ours, theirs) = (client(&bench.url).await, client(&bench.url).await);
    let mut database = bench.plain().await;
    let guard = ours.mutex("m").lock().await.unwrap();
    let fence = ours.sql_fence(&guard).unwrap();
    let level = tokio_postgres::IsolationLevel::RepeatableRead;
    let transaction = database.build_transaction().isolation_level(level).start().await.unwrap();
    transaction.query("SELECT count(*) FROM lockkeeper_head", &[]).await.unwrap();
    theirs.force_release("m").await.unwrap();
    let next = theirs.mutex("m").lock().timeout(LONG).await.unwrap();
    let error = transaction.query(fence.text(), &[&fence.name(), &fence.token()]).await.expect_err("a later holder has it");
    assert_eq!(error.code(), Some(&SqlState::T_R_SERIALIZATION_FAILURE));
    transaction.rollback().await.unwrap();
    next.release().await.unwrap();
}

#[tokio::test]
async fn only_exclusive_holds_of_this_client_are_fenced() {
    let Some(bench) = Bench::open("what is fenced").await else { return };
    let (ours, theirs) = (client(&bench.url).await, client(&bench.url).await);
    let reader = ours.rwlock("rw").read().await.unwrap();
    assert_eq!(ours.sql_fence(&reader).unwrap_err().kind(), ErrorKind::Unsupported);
    reader.release().await.unwrap();
    let permit = ours.semaphore("s", 1).acquire().await.unwrap();
    assert_eq!(ours.sql_fence(&permit).unwrap_err().kind(), ErrorKind::Unsupported);
    permit.release().await.unwrap();
    let writer = ours.rwlock("rw").write().await.unwrap();
    assert_eq!(theirs.sql_fence(&writer).unwrap_err().kind(), ErrorKind::InvalidArgument);
    bench.plain().await.batch_execute(ours.sql_fence(&writer).unwrap().literal()).await.expect("the writer passes");
    writer.release().await.unwrap();
    let elsewhere = Client::connect("memory:").await.unwrap();
    let guard = elsewhere.mutex("m").lock().await.unwrap();
    assert_eq!(elsewhere.sql_fence(&guard).unwrap_err().kind(), ErrorKind::Unsupported);
}

/// The example: processes that add to a balance, stopped at random for longer than their lease.
#[tokio::test]
async fn stopped_processes_lose_updates_only_without_the_fence() {
    let Some(bench) = Bench::open("a bank").await else { return };
    let url = format!("{}&options=-c%20search_path%3D{}", bench.server.url(), bench.schema);
    let printed = tokio::task::spawn_blocking(move || printed_with("sql_fence_bank", &[&url])).await.unwrap();
    println!("{printed}");
    let figures = |kind: &str| -> Vec<i64> {
        let line = printed.lines().find(|line| line.starts_with(kind)).unwrap_or_else(|| panic!("{kind:?} is not in {printed}"));
        line.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    };
    let [pauses, acknowledged, refused, lost] = figures("with the fence")[..] else { panic!("other figures: {printed}") };
    assert!(pauses >= 200 && acknowledged > 0 && refused > 0, "{printed}");
    assert_eq!(lost, 0, "{printed}");
    // The control.
    let [_, acknowledged, refused, lost] = figures("without the fence")[..] else { panic!("other figures: {printed}") };
    assert!(acknowledged > 0 && refused == 0 && lost > 0, "{printed}");
}

/// A fence lasts; the lock of a step, or of whoever else locks the row, is over soon.
#[tokio::test]
async fn an_acquire_behind_a_fence_comes_back_later_than_one_behind_a_step() {
    let Some(bench) = Bench::open("what a row lock is for").await else { return };
    assert!(crate::bench::is_granted(bench.store.acquire(bench.ask("m", 1)).await.unwrap()));
    bench.store.release(crate::bench::release("m", 1)).await.unwrap();
    let plain = bench.plain().await;
    for (strength, shortest, longest) in [("KEY SHARE", 300, 300), ("NO KEY UPDATE", 10, 30)] {
        plain.batch_execute(&format!("BEGIN; SELECT * FROM lockkeeper_head FOR {strength}")).await.unwrap();
        let attempt = bench.store.acquire(bench.ask("m", 2)).await.unwrap();
        plain.batch_execute("ROLLBACK").await.unwrap();
        let lockkeeper::backend::Attempt::Busy(busy) = attempt else { panic!("{attempt:?} beside {strength}") };
        let retry = busy.retry_in.expect("a time").as_millis();
        assert!((shortest..=longest).contains(&retry) && busy.unseen, "{strength}: {busy:?}");
    }
}
