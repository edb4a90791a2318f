//! A deadlock, of which the server ends one transaction: a step of ours that it ended did nothing, and is tried again.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::ErrorKind;
use lockkeeper::backend::{Attempt, AttemptAll, Renew, Renewed};

use super::bench::{Bench, is_granted, release};

/// Each write of a head row ends as the one that the server chose to end. Which of two real transactions it ends is up to the server.
const DEADLOCKS: &str = "CREATE TRIGGER deadlock BEFORE UPDATE ON lockkeeper_head FOR EACH ROW \
    SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'Deadlock found when trying to get lock'";
const NO_DEADLOCKS: &str = "DROP TRIGGER deadlock";

#[tokio::test]
async fn a_step_that_a_deadlock_ended_did_nothing_and_the_next_one_works() {
    let Some(bench) = Bench::open("a deadlock").await else { return };
    let plain = bench.plain().await;
    for name in ["m", "n"] {
        assert!(is_granted(bench.store.acquire(bench.ask(name, 1)).await.unwrap()));
        assert!(bench.store.release(release(name, 1)).await.unwrap().held);
    }
    let versions = async || (bench.version("m").await, bench.version("n").await);
    let before = versions().await;
    plain.run(DEADLOCKS).await;
    // The control: a plain write gets the error that the store hides.
    let told = plain.try_run("UPDATE lockkeeper_head SET touched = touched + 1").await.expect_err("a deadlock");
    assert!(matches!(&told, mysql_async::Error::Server(told) if told.code == 1213), "{told:?}");
    let one = bench.store.acquire(bench.ask("m", 2)).await.unwrap();
    assert!(matches!(&one, Attempt::Busy(busy) if busy.unseen && !busy.placed), "{one:?}");
    let both = vec![bench.ask("m", 2), bench.ask("n", 2)];
    let all = bench.store.acquire_all(both.clone()).await.unwrap();
    assert!(matches!(&all, AttemptAll::Busy { busy, .. } if busy.unseen), "{all:?}");
    assert_eq!(versions().await, before, "a step that was ended wrote something");
    plain.run(NO_DEADLOCKS).await;
    assert!(is_granted(bench.store.acquire(bench.ask("m", 2)).await.unwrap()));
    assert!(bench.store.release(release("m", 2)).await.unwrap().held);
    assert!(matches!(bench.store.acquire_all(both).await.unwrap(), AttemptAll::Granted(_)));
}

/// Nothing stands in for what a release or a renewal is to do: it is done when deadlocks end, or told as not done.
#[tokio::test]
async fn a_release_and_a_renewal_outlast_deadlocks() {
    let Some(bench) = Bench::open("a release and deadlocks").await else { return };
    let plain = bench.plain().await;
    let mut renewals = Vec::new();
    for name in ["m", "n"] {
        let asked = bench.ask(name, 1);
        renewals.push(Renew::new(asked.name.clone(), asked.claim, asked.owner, Some(Duration::from_secs(90))));
        assert!(is_granted(bench.store.acquire(asked).await.unwrap()));
    }
    plain.run(DEADLOCKS).await;
    let answers = bench.store.renew(renewals.clone()).await.unwrap();
    for answer in answers {
        let error = answer.expect_err("it cannot be written");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    }
    let mut releasing = tokio::spawn({
        let store = Arc::clone(&bench.store);
        async move { store.release(release("m", 1)).await }
    });
    let early = tokio::time::timeout(Duration::from_millis(300), &mut releasing).await;
    assert!(early.is_err(), "answered although it cannot be written: {early:?}");
    plain.run(NO_DEADLOCKS).await;
    assert!(releasing.await.unwrap().unwrap().held, "it was not tried again");
    renewals.remove(0);
    let kept = bench.store.renew(renewals).await.unwrap();
    assert!(kept.into_iter().all(|answer| answer.is_ok_and(Renewed::is_kept)), "the other hold was lost");
}
