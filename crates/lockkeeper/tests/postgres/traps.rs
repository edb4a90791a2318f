//! Traps of SQL, each with a control: the obvious statement or layout falls into it here, and ours does not.

use std::time::Duration;

use lockkeeper::ErrorKind;
use lockkeeper::backend::{Acquire, Attempt, Claim, Reach, Renew, Renewed};
use lockkeeper::name::Name;
use lockkeeper_testkit::poll::async_until_within;
use lockkeeper_testkit::proxy::Fault;

use crate::bench::{Bench, begin_with_row, is_granted, release, since};
use crate::faults::behind;

const NAME: &[u8] = b"m";

/// A statement waits for a row lock and is carried out when it gets it: also when that is too late.
#[tokio::test]
async fn a_request_that_waited_for_a_row_lock_is_not_carried_out_late() {
    let Some(bench) = Bench::open("late after a row lock").await else { return };
    assert!(is_granted(bench.store.acquire(bench.ask("m", 1)).await.unwrap()));
    bench.store.release(release("m", 1)).await.unwrap();
    let (other, control) = (bench.plain().await, bench.plain().await);
    other.batch_execute("BEGIN; SELECT * FROM lockkeeper_head FOR UPDATE").await.unwrap();
    // The control: the condition is checked before the wait, and not again when the other transaction is undone.
    let obvious = tokio::spawn(async move {
        let update =
            "UPDATE lockkeeper_head SET touched = touched WHERE name = $1 AND clock_timestamp() <= now() + interval '300ms'";
        control.execute(update, &[&NAME]).await.expect("the control waits without a limit")
    });
    let now = bench.runtime.now();
    let asked = bench.ask("m", 2).with_times(now, now.plus(Duration::from_millis(300)));
    let late = tokio::spawn({
        let store = std::sync::Arc::clone(&bench.store);
        // Each time it waits for the row, it is told that the lock is busy, and asks again.
        async move {
            loop {
                match store.acquire(asked.clone()).await {
                    Ok(Attempt::Busy(_)) => {}
                    told => return told,
                }
            }
        }
    });
    tokio::time::sleep(Duration::from_millis(900)).await;
    other.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(late.await.unwrap().unwrap(), Attempt::Late);
    assert_eq!(obvious.await.unwrap(), 1, "the control was carried out, 600 ms late");
    assert_eq!(bench.store.inspect(Name::new("m").unwrap()).await.unwrap(), None, "nothing is held");
}

/// Idle rows are removed, and come again with another content: a version that counts would repeat, and an old guess would fit.
#[tokio::test]
async fn a_row_that_was_removed_and_created_again_does_not_fit_an_old_guess() {
    let Some(bench) = Bench::open("a row that comes again").await else { return };
    let (plain, other) = (bench.plain().await, bench.another().await);
    let version = async || plain.query_one("SELECT version FROM lockkeeper_head", &[]).await.unwrap().get::<_, i64>(0);
    for counts in [false, true] {
        assert!(is_granted(bench.store.acquire(bench.ask("m", 1)).await.unwrap()));
        bench.store.release(release("m", 1)).await.unwrap();
        // The first client knows the empty row.
        let known = version().await;
        plain.execute("DELETE FROM lockkeeper_head", &[]).await.unwrap();
        assert!(is_granted(other.acquire(bench.ask("m", 2)).await.unwrap()));
        assert_ne!(version().await, known);
        if counts {
            // The control: as if versions were counted from one.
            plain.execute("UPDATE lockkeeper_head SET version = $1", &[&known]).await.unwrap();
        }
        let second = bench.store.acquire(bench.ask("m", 3)).await.unwrap();
        assert_eq!(is_granted(second), counts, "{second:?}, versions that count: {counts}");
        plain.execute("DELETE FROM lockkeeper_head", &[]).await.unwrap();
        // What both clients remember is outdated now.
        for store in [&bench.store, &other] {
            assert_eq!(store.inspect(Name::new("m").unwrap()).await.unwrap(), None);
        }
    }
}

/// A grant whose commit takes long is not seen by a plain read: a release that believes it would leave the lock held.
#[tokio::test]
async fn a_release_waits_for_a_grant_that_is_about_to_commit() {
    let Some(bench) = Bench::open("a commit that takes long").await else { return };
    let plain = bench.plain().await;
    assert!(is_granted(bench.store.acquire(bench.ask("m", 1)).await.unwrap()));
    let body: String = plain.query_one("SELECT body FROM lockkeeper_head", &[]).await.unwrap().get(0);
    assert!(bench.store.release(release("m", 1)).await.unwrap().held);
    // The same grant again, not yet committed.
    plain.batch_execute("BEGIN").await.unwrap();
    plain.execute("UPDATE lockkeeper_head SET version = 42, body = $1", &[&body]).await.unwrap();
    // The control: a plain read says that nothing is held.
    assert_eq!(bench.store.inspect(Name::new("m").unwrap()).await.unwrap(), None);
    let store = std::sync::Arc::clone(&bench.store);
    let mut releasing = tokio::spawn(async move { store.release(release("m", 1)).await });
    let early = tokio::time::timeout(Duration::from_millis(500), &mut releasing).await;
    assert!(early.is_err(), "answered before the commit: {early:?}");
    plain.batch_execute("COMMIT").await.unwrap();
    assert!(releasing.await.unwrap().unwrap().held, "what was committed is released");
    assert_eq!(bench.store.inspect(Name::new("m").unwrap()).await.unwrap(), None);
}

/// One row that somebody's transaction has locked is no reason why other holds are not renewed.
#[tokio::test]
async fn a_locked_row_holds_up_no_other_renewal() {
    let Some(bench) = Bench::open("a locked row").await else { return };
    let name = |number: u64| format!("m{number}");
    for number in 0..50 {
        assert!(is_granted(bench.store.acquire(bench.ask(&name(number), number)).await.unwrap()));
    }
    let renewals: Vec<Renew> = (0..50)
        .map(|number| {
            let asked = bench.ask(&name(number), number);
            Renew::new(asked.name, asked.claim, asked.owner, Some(Duration::from_secs(90)))
        })
        .collect();
    let plain = bench.plain().await;
    plain.batch_execute("BEGIN; SELECT * FROM lockkeeper_head WHERE name = 'm7' FOR UPDATE").await.unwrap();
    // The control: without SKIP LOCKED one locked row fails all.
    let control = bench.plain().await;
    let all = "SET lock_timeout = '100ms'; UPDATE lockkeeper_head SET touched = touched";
    assert!(control.batch_execute(all).await.is_err(), "one locked row fails a plain update of all");
    let began = bench.runtime.now();
    let answers = bench.store.renew(renewals.clone()).await.unwrap();
    let took = since(&bench.runtime, began);
    for (number, answer) in answers.iter().enumerate() {
        match answer {
            Ok(renewed) => assert!(number != 7 && renewed.is_kept(), "{number}: {renewed:?}"),
            Err(error) => assert!(number == 7 && error.kind() == ErrorKind::Unavailable, "{number}: {error}"),
        }
    }
    assert!(took < Duration::from_secs(10), "renewing beside a locked row took {took:?}");
    plain.batch_execute("ROLLBACK").await.unwrap();
    let answers = bench.store.renew(renewals).await.unwrap();
    assert!(answers.into_iter().all(|answer| answer.is_ok_and(Renewed::is_kept)));
}

/// Tokens grow although the row was removed and the clock was set back: what was removed is remembered.
#[tokio::test]
async fn tokens_grow_over_a_row_that_was_removed() {
    let Some(bench) = Bench::open("tokens of removed rows").await else { return };
    let plain = bench.plain().await;
    let Attempt::Granted(first) = bench.store.acquire(bench.ask("m", 1)).await.unwrap() else { panic!("not granted") };
    bench.store.release(release("m", 1)).await.unwrap();
    // As the sweep does, of a server whose clock was an hour ahead then.
    let ahead = first.token.unwrap().cast_signed() + 3_600_000_000;
    plain.execute("DELETE FROM lockkeeper_head", &[]).await.unwrap();
    plain.execute("UPDATE lockkeeper_store SET floor = $1", &[&ahead]).await.unwrap();
    for number in 2..4 {
        let Attempt::Granted(next) = bench.another().await.acquire(bench.ask("m", number)).await.unwrap() else {
            panic!("not granted")
        };
        assert!(next.token.unwrap().cast_signed() > ahead, "{next:?} after {ahead}");
        bench.another().await.release(release("m", number)).await.unwrap();
    }
}

/// A clock that was set back by an hour is an end that lies an hour further ahead. The second renewal brings it back; the control, which does not
/// tell until when the hold is counted on, never does.
#[tokio::test]
async fn renewals_bring_an_end_from_before_a_clock_step_back() {
    let Some(bench) = Bench::open("an end that is far ahead").await else { return };
    let (plain, lease) = (bench.plain().await, Duration::from_secs(30));
    for (name, tells) in [("s", true), ("control", false)] {
        let owner = bench.ask(name, 1).owner;
        let asked = Acquire::new(Name::new(name).unwrap(), Claim::Permits { take: 1, of: 1 }, owner, lease);
        assert!(is_granted(bench.store.acquire(asked.clone()).await.unwrap()));
        let key = name.as_bytes();
        plain.execute("UPDATE lockkeeper_part SET expires = expires + 3600000000000 WHERE name = $1", &[&key]).await.unwrap();
        plain.execute("UPDATE lockkeeper_head SET version = version + 1 WHERE name = $1", &[&key]).await.unwrap();
        let mut left = Vec::new();
        for _ in 0..3 {
            let now = bench.runtime.now();
            let renewal = Renew::new(asked.name.clone(), asked.claim, owner, Some(lease));
            let renewal = renewal.with_reach(tells.then(|| Reach::new(now.plus(lease), now)));
            assert!(bench.store.renew(vec![renewal]).await.unwrap().remove(0).unwrap().is_kept());
            let of = "SELECT expires / 1000 - (extract(epoch FROM clock_timestamp()) * 1000000)::int8 FROM lockkeeper_part WHERE name = $1";
            left.push(plain.query_one(of, &[&key]).await.unwrap().get::<_, i64>(0) / 1_000_000);
        }
        assert!(left[0] > 3_000, "{name}: it was not far ahead, or one answer was enough: {left:?}");
        assert_eq!(left[1] <= 31 && left[1] >= 29, tells, "{name}: {left:?}");
        assert_eq!(left[2] <= 31, tells, "{name}: {left:?}");
    }
}

/// The same of a name that has no row yet, which cannot be locked: the release waits for the insert.
#[tokio::test]
async fn a_release_waits_for_a_row_that_is_about_to_be_created() {
    let Some(bench) = Bench::open("a row that is about to be created").await else { return };
    let plain = bench.plain().await;
    assert!(is_granted(bench.store.acquire(bench.ask("m", 1)).await.unwrap()));
    let body: String = plain.query_one("SELECT body FROM lockkeeper_head", &[]).await.unwrap().get(0);
    plain.execute("DELETE FROM lockkeeper_head", &[]).await.unwrap();
    plain.batch_execute("BEGIN").await.unwrap();
    let insert = "INSERT INTO lockkeeper_head (name, version, token, body, touched) VALUES ($1, 42, 7, $2, 0)";
    plain.execute(insert, &[&NAME, &body]).await.unwrap();
    let store = bench.another().await;
    let mut releasing = tokio::spawn(async move { store.release(release("m", 1)).await });
    let early = tokio::time::timeout(Duration::from_millis(1_500), &mut releasing).await;
    assert!(early.is_err(), "answered before the commit: {early:?}");
    plain.batch_execute("COMMIT").await.unwrap();
    assert!(releasing.await.unwrap().unwrap().held, "what was committed is released");
    assert_eq!(bench.store.inspect(Name::new("m").unwrap()).await.unwrap(), None);
}

/// Renewals lock rows as a fence allows, alone and in a batch. The control: a share lock as one would write it holds up the renewal of the very hold that it
/// protects. It holds up no other one.
#[tokio::test]
async fn renewals_pass_beside_an_open_fence() {
    let Some(bench) = Bench::open("renewals beside a fence").await else { return };
    let names = ["m0", "m1", "m2", "m3", "m4"];
    let mut renewals = Vec::new();
    for name in names {
        let asked = bench.ask(name, 1);
        renewals.push(Renew::new(asked.name.clone(), asked.claim, asked.owner, Some(Duration::from_secs(90))));
        assert!(is_granted(bench.store.acquire(asked).await.unwrap()));
    }
    let plain = bench.plain().await;
    for (mode, passes) in [("FOR KEY SHARE", true), ("FOR SHARE", false)] {
        for batch in [vec![renewals[2].clone()], renewals.clone()] {
            plain.batch_execute(&format!("BEGIN; SELECT * FROM lockkeeper_head WHERE name = 'm2' {mode}")).await.unwrap();
            let answers = bench.store.renew(batch.clone()).await.unwrap();
            plain.batch_execute("ROLLBACK").await.unwrap();
            assert_eq!(answers.len(), batch.len());
            for (renewal, answer) in batch.iter().zip(&answers) {
                let kept = answer.as_ref().is_ok_and(|renewed| renewed.is_kept());
                assert_eq!(kept, passes || renewal.name.as_str() != "m2", "{mode}, {:?}: {answer:?}", renewal.name);
            }
        }
    }
}

/// A client stops between the two round trips of its transaction. The server ends the transaction, so that others can release the name. The control, a
/// transaction without such a limit, keeps its row.
#[tokio::test]
async fn a_transaction_whose_client_stopped_ends() {
    let Some(bench) = Bench::open("a stopped transaction").await else { return };
    for name in ["m", "control"] {
        assert!(is_granted(bench.store.acquire(bench.ask(name, 1)).await.unwrap()));
    }
    let (eyes, control) = (bench.plain().await, bench.plain().await);
    begin_with_row(&control, "control").await;
    let is_locked = async |name: &str| {
        let lock = "SELECT 1 FROM lockkeeper_head WHERE name = $1 FOR UPDATE NOWAIT";
        eyes.query(lock, &[&name.as_bytes()]).await.is_err()
    };
    let (proxy, store) = behind(&bench).await;
    // Single statements fail beside a locked row. So the step is in a transaction when the row is free.
    let other = bench.plain().await;
    begin_with_row(&other, "m").await;
    proxy.next("COMMIT\0", Fault::Hold);
    let stopped = tokio::spawn(async move { store.release(release("m", 1)).await });
    let in_transaction = async || {
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%FOR NO KEY UPDATE' AND wait_event_type = 'Lock' AND query LIKE $1";
        eyes.query_one(waits, &[&format!("%\"{}\".%", bench.schema)]).await.unwrap().get::<_, i64>(0) > 0
    };
    async_until_within(Duration::from_secs(20), "a transaction waits for the row", in_transaction).await;
    other.batch_execute("ROLLBACK").await.unwrap();
    async_until_within(Duration::from_secs(20), "its second request is held", async || proxy.met()).await;
    assert!(is_locked("m").await, "the stopped transaction has the row");
    // Ours is ended after two seconds.
    async_until_within(Duration::from_secs(8), "the row is free again", async || !is_locked("m").await).await;
    assert!(is_locked("control").await, "without a limit the row stays locked");
    assert!(bench.store.release(release("m", 1)).await.unwrap().held, "the stopped release was undone");
    let error = stopped.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error:?}");
    proxy.let_go();
}
