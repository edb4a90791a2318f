//! Traps of SQL, each with a control: the obvious statement or layout falls into it here, and ours does not.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::ErrorKind;
use lockkeeper::backend::{Attempt, Renew, Renewed};
use lockkeeper::name::Name;
use lockkeeper_testkit::mysql::{Flavour, Mysql};
use lockkeeper_testkit::poll::async_until_within;
use lockkeeper_testkit::proxy::Fault;

use super::FLAVOUR;
use super::bench::{Bench, hex, is_granted, release, since};
use super::faults::behind;

async fn seen(bench: &Bench, name: &str) -> bool {
    bench.store.inspect(Name::new(name).unwrap()).await.unwrap().is_some()
}

/// A statement waits for a row lock and is carried out when it gets it: also when that is too late.
#[tokio::test]
async fn a_request_that_waited_for_a_row_lock_is_not_carried_out_late() {
    let Some(bench) = Bench::open("late after a row lock").await else { return };
    assert!(is_granted(bench.store.acquire(bench.ask("m", 1)).await.unwrap()));
    bench.store.release(release("m", 1)).await.unwrap();
    let (other, control) = (bench.plain().await, bench.plain().await);
    other.run("START TRANSACTION").await;
    other.run("SELECT * FROM lockkeeper_head FOR UPDATE").await;
    // The control: NOW is the time at which the statement began, however long it waited.
    let obvious = tokio::spawn(async move {
        control.run("SET @until = NOW(6) + INTERVAL 300000 MICROSECOND").await;
        control.run("UPDATE lockkeeper_head SET touched = 42 WHERE name = 'm' AND NOW(6) <= @until").await;
        control.first::<i64>("SELECT touched FROM lockkeeper_head").await
    });
    let now = bench.runtime.now();
    let asked = bench.ask("m", 2).with_times(now, now.plus(Duration::from_millis(300)));
    let late = tokio::spawn({
        let store = Arc::clone(&bench.store);
        // Each time it finds the row locked, it is told that the lock is busy, and asks again.
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
    other.run("ROLLBACK").await;
    assert_eq!(late.await.unwrap().unwrap(), Attempt::Late);
    assert_eq!(obvious.await.unwrap(), Some(42), "the control was carried out, 600 ms late");
    assert!(!seen(&bench, "m").await, "nothing is held");
}

/// `SYSDATE` as the time at which a statement began would make late requests look in time.
#[tokio::test]
async fn a_server_whose_sysdate_is_now_is_refused() {
    if let Some(why) = Mysql::missing(FLAVOUR) {
        return lockkeeper::conformance::skip("sysdate-is-now", &why);
    }
    let server = Mysql::start(FLAVOUR, &["--sysdate-is-now"]);
    let url = server.url(&server.fresh_database());
    let error = lockkeeper::Client::connect(&url).await.expect_err("refused");
    assert!(error.kind() == ErrorKind::Config && error.to_string().contains("--sysdate-is-now"), "{error}");
}

/// Idle rows are removed, and come again with another content: a version that counts would repeat, and an old guess would fit.
#[tokio::test]
async fn a_row_that_was_removed_and_created_again_does_not_fit_an_old_guess() {
    let Some(bench) = Bench::open("a row that comes again").await else { return };
    let (plain, other) = (bench.plain().await, bench.another().await);
    let version = async || plain.first::<i64>("SELECT version FROM lockkeeper_head").await.unwrap();
    let remove = async || {
        plain.run("DELETE FROM lockkeeper_head").await;
        plain.run("DELETE FROM lockkeeper_fence").await;
    };
    for counts in [false, true] {
        assert!(is_granted(bench.store.acquire(bench.ask("m", 1)).await.unwrap()));
        bench.store.release(release("m", 1)).await.unwrap();
        // The first client knows the empty row.
        let known = version().await;
        remove().await;
        assert!(is_granted(other.acquire(bench.ask("m", 2)).await.unwrap()));
        assert_ne!(version().await, known);
        if counts {
            // The control: as if versions were counted from one.
            plain.run(format!("UPDATE lockkeeper_head SET version = {known}")).await;
        }
        let second = bench.store.acquire(bench.ask("m", 3)).await.unwrap();
        assert_eq!(is_granted(second), counts, "{second:?}, versions that count: {counts}");
        remove().await;
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
    let body: Vec<u8> = plain.first("SELECT body FROM lockkeeper_head").await.unwrap();
    assert!(bench.store.release(release("m", 1)).await.unwrap().held);
    // The same grant again, not yet committed.
    plain.run("START TRANSACTION").await;
    plain.run(format!("UPDATE lockkeeper_head SET version = 42, body = {}", hex(&body))).await;
    // The control: a plain read says that nothing is held.
    assert!(!seen(&bench, "m").await);
    let store = Arc::clone(&bench.store);
    let mut releasing = tokio::spawn(async move { store.release(release("m", 1)).await });
    let early = tokio::time::timeout(Duration::from_millis(500), &mut releasing).await;
    assert!(early.is_err(), "answered before the commit: {early:?}");
    plain.run("COMMIT").await;
    assert!(releasing.await.unwrap().unwrap().held, "what was committed is released");
    assert!(!seen(&bench, "m").await);
}

/// The same of a name that has no row yet, which cannot be locked: the release waits for the insert.
#[tokio::test]
async fn a_release_waits_for_a_row_that_is_about_to_be_created() {
    let Some(bench) = Bench::open("a row that is about to be created").await else { return };
    let plain = bench.plain().await;
    assert!(is_granted(bench.store.acquire(bench.ask("m", 1)).await.unwrap()));
    let body: Vec<u8> = plain.first("SELECT body FROM lockkeeper_head").await.unwrap();
    plain.run("DELETE FROM lockkeeper_head").await;
    plain.run("START TRANSACTION").await;
    let insert = "INSERT INTO lockkeeper_head (name, version, token, body, touched) VALUES ('m', 42, 7, ";
    plain.run(format!("{insert}{}, 0)", hex(&body))).await;
    let store = bench.another().await;
    let mut releasing = tokio::spawn(async move { store.release(release("m", 1)).await });
    let early = tokio::time::timeout(Duration::from_millis(1_500), &mut releasing).await;
    assert!(early.is_err(), "answered before the commit: {early:?}");
    plain.run("COMMIT").await;
    assert!(releasing.await.unwrap().unwrap().held, "what was committed is released");
    assert!(!seen(&bench, "m").await);
}

/// One row that somebody's transaction has locked, or fences, is no reason why other holds are not renewed.
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
    plain.run("START TRANSACTION").await;
    plain.run("SELECT * FROM lockkeeper_head WHERE name = 'm7' FOR UPDATE").await;
    plain.run("SELECT * FROM lockkeeper_fence WHERE name = 'm8' LOCK IN SHARE MODE").await;
    // The control: without SKIP LOCKED one locked row fails all.
    let control = bench.plain().await;
    control.run("SET innodb_lock_wait_timeout = 1").await;
    assert!(
        control.try_run("UPDATE lockkeeper_head SET touched = touched + 1").await.is_err(),
        "one locked row fails an update of all"
    );
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
    plain.run("ROLLBACK").await;
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
    plain.run("DELETE FROM lockkeeper_head").await;
    plain.run("DELETE FROM lockkeeper_fence").await;
    plain.run(format!("UPDATE lockkeeper_store SET floor = {ahead}")).await;
    for number in 2..4 {
        let Attempt::Granted(next) = bench.another().await.acquire(bench.ask("m", number)).await.unwrap() else {
            panic!("not granted")
        };
        assert!(next.token.unwrap().cast_signed() > ahead, "{next:?} after {ahead}");
        bench.another().await.release(release("m", number)).await.unwrap();
    }
}

/// A client stops between the two round trips of its transaction. The server ends the transaction, so that others can release the names. The control, a
/// transaction without such a limit, keeps its row.
#[tokio::test]
async fn a_transaction_whose_client_stopped_ends() {
    let Some(bench) = Bench::open("a stopped transaction").await else { return };
    let mut renewals = Vec::new();
    for name in ["m", "n", "control"] {
        let asked = bench.ask(name, 1);
        renewals.push(Renew::new(asked.name.clone(), asked.claim, asked.owner, Some(Duration::from_secs(90))));
        assert!(is_granted(bench.store.acquire(asked).await.unwrap()));
    }
    renewals.pop();
    let (eyes, control) = (bench.plain().await, bench.plain().await);
    control.run("START TRANSACTION").await;
    control.run("SELECT * FROM lockkeeper_head WHERE name = 'control' FOR UPDATE").await;
    let is_locked = async |name: &str| {
        let free = format!("SELECT 1 FROM lockkeeper_head WHERE name = '{name}' FOR UPDATE SKIP LOCKED");
        eyes.first::<i64>(free).await.is_none()
    };
    // A renewal of several names locks their rows, and writes them with the second request.
    let (proxy, store) = behind(&bench).await;
    proxy.next("COMMIT", Fault::Hold);
    let stopped = tokio::spawn(async move { store.renew(renewals).await });
    async_until_within(Duration::from_secs(20), "the second request is held", async || proxy.met()).await;
    assert!(is_locked("m").await && is_locked("n").await, "the stopped transaction has the rows");
    // Ours is ended after two seconds by MariaDB, and after twelve by MySQL, which only knows a limit for all that is idle.
    let limit = Duration::from_secs(if FLAVOUR == Flavour::MariaDb { 8 } else { 25 });
    async_until_within(limit, "the rows are free again", async || !is_locked("m").await && !is_locked("n").await).await;
    assert!(is_locked("control").await, "without a limit the row stays locked");
    for name in ["m", "n"] {
        assert!(bench.store.release(release(name, 1)).await.unwrap().held, "{name} was not released");
    }
    let answers = stopped.await.unwrap();
    let failed = answers.map_or(true, |answers| answers.into_iter().all(|answer| answer.is_err()));
    assert!(failed, "what was undone was answered as done");
    proxy.let_go();
}
