//! Transactions that the server undoes because of others: serialization failures and deadlocks. Steps are repeated, and nothing is lost.

use std::time::Duration;

use lockkeeper::backend::Attempt;
use lockkeeper_testkit::poll::async_until_within;

use crate::bench::{Bench, ask, begin_with_row, connect, is_granted, lock_row, release};

const LONG: Duration = Duration::from_secs(20);

/// Clients of one row under `SERIALIZABLE`. The control, two plain transactions, gets the failure that the store hides.
#[tokio::test]
async fn under_serializable_everybody_gets_an_answer() {
    let Some(bench) = Bench::open("serializable").await else { return };
    let url = format!("{}&options=-c%20default_transaction_isolation%3Dserializable", bench.url);
    let mut clients = Vec::new();
    for client in 0..6_u64 {
        let (store, runtime) = (connect(&url, &bench.runtime).await, bench.runtime.clone());
        clients.push(tokio::spawn(async move {
            for turn in 0..5 {
                let number = client * 100 + turn;
                loop {
                    match store.acquire(ask(&runtime, "m", number)).await.expect("an answer") {
                        Attempt::Granted(_) => break,
                        _ => tokio::time::sleep(Duration::from_millis(1)).await,
                    }
                }
                assert!(store.release(release("m", number)).await.expect("an answer").held);
            }
        }));
    }
    for client in clients {
        tokio::time::timeout(LONG * 3, client).await.expect("everybody gets a turn").unwrap();
    }
    let (one, two) = (bench.plain().await, bench.plain().await);
    for plain in [&one, &two] {
        plain.batch_execute("BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT * FROM lockkeeper_head").await.unwrap();
    }
    one.batch_execute("UPDATE lockkeeper_head SET touched = touched + 1; COMMIT").await.unwrap();
    let failed = two.batch_execute("UPDATE lockkeeper_head SET touched = touched + 1").await.unwrap_err();
    assert_eq!(failed.code().map(|code| code.code()), Some("40001"), "{failed:?}");
}

/// A request for two names and a transaction that locks their rows in the other order: the server ends ours, and it is granted afterwards.
#[tokio::test]
async fn a_deadlock_is_survived() {
    let Some(bench) = Bench::open("a deadlock").await else { return };
    for name in ["a", "b"] {
        assert!(is_granted(bench.store.acquire(bench.ask(name, 1)).await.unwrap()));
        bench.store.release(release(name, 1)).await.unwrap();
    }
    // Ours looks for a deadlock before it has waited for 100 ms, and the other one never does: ours is ended.
    let url = format!("{}&application_name=deadlock&options=-c%20deadlock_timeout%3D60ms", bench.url);
    let store = connect(&url, &bench.runtime).await;
    let (other, eyes) = (bench.plain().await, bench.plain().await);
    other.batch_execute("SET deadlock_timeout = '60s'").await.unwrap();
    let deadlocks = async || {
        let count = "SELECT pg_stat_clear_snapshot()::text, deadlocks FROM pg_stat_database WHERE datname = current_database()";
        eyes.query_one(count, &[]).await.unwrap().get::<_, i64>(1)
    };
    let before = deadlocks().await;
    let end = tokio::time::Instant::now() + LONG;
    let mut number = 2;
    // Whether the other one comes within 60 ms is up to the machine.
    while deadlocks().await == before {
        assert!(tokio::time::Instant::now() < end, "no deadlock came about");
        number += 1;
        begin_with_row(&other, "b").await;
        let both = vec![bench.ask("a", number), bench.ask("b", number)];
        let asking = tokio::spawn({
            let store = std::sync::Arc::clone(&store);
            async move { store.acquire_all(both).await }
        });
        let waits = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'deadlock' AND wait_event_type = 'Lock'";
        async_until_within(LONG, "ours waits", async || eyes.query_opt(waits, &[]).await.unwrap().is_some()).await;
        lock_row(&other, "a").await.expect("ours is ended, not this one");
        other.batch_execute("ROLLBACK").await.unwrap();
        let answer = tokio::time::timeout(LONG, asking).await.expect("it ends").unwrap();
        assert!(answer.is_ok(), "{answer:?}");
        for name in ["a", "b"] {
            bench.store.release(release(name, number)).await.unwrap();
        }
        // The server counts with a delay.
        let counted = async || deadlocks().await > before;
        let _ = tokio::time::timeout(Duration::from_secs(2), async {
            while !counted().await {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
    }
}
