//! A deadlock with a transaction of somebody else. A step tries rows that are there and never waits for them, so it meets one only where it creates a row.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::backend::Attempt;
use lockkeeper_testkit::poll::async_until_within;

use super::bench::{Bench, is_granted, release};

const LONG: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_deadlock_costs_an_acquire_a_retry_and_nothing_else() {
    let Some(bench) = Bench::open("a deadlock").await else { return };
    let (theirs, eyes) = (bench.plain().await, bench.plain().await);
    let waits = format!(
        "SELECT 1 FROM information_schema.innodb_trx AS t JOIN information_schema.processlist AS p ON p.id = t.trx_mysql_thread_id \
         WHERE t.trx_state = 'LOCK WAIT' AND p.db = '{}'",
        bench.database
    );
    let deadlocks = async || {
        let count = "SELECT count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'";
        eyes.first::<i64>(count).await.expect("the server counts them")
    };
    for round in 1.. {
        assert!(round <= 20, "no deadlock that ends our step");
        let name = format!("m{round}");
        theirs.run("START TRANSACTION").await;
        // The server ends the transaction that has written less.
        for filler in 0..20 {
            theirs.run(format!("INSERT INTO lockkeeper_fence (name, token) VALUES ('filler{filler}', 1)")).await;
        }
        theirs.run(format!("INSERT INTO lockkeeper_fence (name, token) VALUES ('{name}', 1)")).await;
        let asking = tokio::spawn({
            let (store, asked) = (Arc::clone(&bench.store), bench.ask(&name, 1));
            async move { store.acquire(asked).await }
        });
        // Ours has created the row of the name, and waits for that of its fence.
        async_until_within(LONG, "our step waits", async || {
            asking.is_finished() || eyes.first::<i64>(waits.clone()).await.is_some()
        })
        .await;
        if asking.is_finished() {
            theirs.run("ROLLBACK").await;
            continue;
        }
        let before = deadlocks().await;
        let insert = format!("INSERT INTO lockkeeper_head (name, version, token, touched) VALUES ('{name}', 42, 7, 0)");
        let created = theirs.try_run(&insert).await;
        let attempt = asking.await.unwrap();
        theirs.run("ROLLBACK").await;
        // A wait that only took too long is no deadlock; and theirs may have been undone instead of ours.
        if created.is_err() || deadlocks().await == before {
            continue;
        }
        match attempt {
            Ok(Attempt::Busy(busy)) => assert!(busy.unseen && busy.retry_in.is_some(), "{busy:?}"),
            other => panic!("{other:?} after a deadlock"),
        }
        assert!(bench.version(&name).await.is_none(), "nothing was done");
        assert!(is_granted(bench.store.acquire(bench.ask(&name, 1)).await.unwrap()), "the next attempt");
        assert!(bench.store.release(release(&name, 1)).await.unwrap().held);
        return;
    }
}
