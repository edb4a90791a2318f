//! Traps of SQL in which clients meet at rows, each with a control: the obvious statements fall into it here, and ours do not.

use std::time::Duration;

use lockkeeper::backend::{Attempt, Renew};
use lockkeeper::name::Name;
use lockkeeper::{Client, ErrorKind};

use super::bench::{
    self, Bench, INSERT_WAITS, ask, begin_with_new_row, begin_with_row, insert_once_checked, is_granted, lock_row, release,
    roll_back, version_of, write_if,
};

/// How often the control tries a write whose guess was wrong.
const GUESSES: u32 = 3;

/// Two that renew the same names in opposite order do not wait for each other.
#[tokio::test]
async fn renewals_in_opposite_order_do_not_deadlock() {
    let Some(bench) = Bench::open("renewals in opposite order").await else { return };
    let mut renewals = Vec::new();
    for number in 0..200 {
        let asked = bench.ask(&format!("m{number:03}"), number);
        renewals.push(Renew::new(asked.name.clone(), asked.claim, asked.owner, Some(Duration::from_secs(90))));
        assert!(is_granted(bench.store.acquire(asked).await.unwrap()));
    }
    let other = bench.another().await;
    let backwards: Vec<Renew> = renewals.iter().rev().cloned().collect();
    for _ in 0..5 {
        let (one, two) = tokio::join!(bench.store.renew(renewals.clone()), other.renew(backwards.clone()));
        // A row that the other one has just locked may be left for the next time.
        for answer in one.unwrap().into_iter().chain(two.unwrap()) {
            let fine = answer.as_ref().map_or_else(|error| error.kind() == ErrorKind::Unavailable, |kept| kept.is_kept());
            assert!(fine, "{answer:?}");
        }
    }
    // The control: transactions that wait for rows in opposite order.
    let (one, two) = (bench.plain().await, bench.plain().await);
    begin_with_row(&one, "m000").await;
    begin_with_row(&two, "m199").await;
    let (first, second) = tokio::join!(lock_row(&one, "m199"), lock_row(&two, "m000"));
    assert!(first.is_err() || second.is_err(), "the server ended neither of two transactions that waited for each other");
}

/// Many clients that want the same row at once: guesses fail, and everybody gets an answer.
#[tokio::test]
async fn a_contended_row_serves_everybody() {
    let Some(bench) = Bench::open("a contended row").await else { return };
    let mut clients = Vec::new();
    for client in 0..8_u64 {
        let (store, runtime) = (bench.another().await, bench.runtime.clone());
        clients.push(tokio::spawn(async move {
            for turn in 0..10 {
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
        client.await.unwrap();
    }
    // The control: clients that only guess, and give up as soon as a step of ours locks the row first.
    let mut guessing = Vec::new();
    for client in 0..8 {
        let plain = bench.plain().await;
        guessing.push(tokio::spawn(async move {
            let mut given_up = 0;
            for turn in 0..30 {
                let mut written = false;
                for _ in 0..GUESSES {
                    let known = version_of(&plain, "m").await;
                    written = written || write_if(&plain, "m", known, client * 1_000 + turn).await;
                }
                given_up += u32::from(!written);
            }
            given_up
        }));
    }
    let mut given_up = 0;
    for client in guessing {
        given_up += client.await.unwrap();
    }
    assert!(given_up > 0, "every guess of clients that only guess was right within {GUESSES} attempts");
}

/// The first acquire of a name inserts its row. It waits for a transaction that inserts the same row, and gets its turn when that one is undone: too late.
/// The control checks the time before it waits, and not again.
#[tokio::test]
async fn a_request_that_waited_for_a_row_that_was_not_created_is_not_carried_out_late() {
    let Some(bench) = Bench::open("late after an insert").await else { return };
    let (limit, held) = INSERT_WAITS;
    // A machine with little time may come to the row after it is free. Then there is nothing to be seen, so this is done three times.
    for round in 0..3 {
        let (name, control) = (format!("m{round}"), format!("control{round}"));
        let (ours, theirs, plain) = (bench.plain().await, bench.plain().await, bench.plain().await);
        begin_with_new_row(&ours, &name).await;
        begin_with_new_row(&theirs, &control).await;
        let obvious = tokio::spawn(async move { insert_once_checked(&plain, &control, limit).await });
        let now = bench.runtime.now();
        let asked = bench.ask(&name, 1).with_times(now, now.plus(limit));
        let late = tokio::spawn({
            let store = std::sync::Arc::clone(&bench.store);
            // If it waited for too long, it is told that the lock is busy, and asks again.
            async move {
                loop {
                    match store.acquire(asked.clone()).await {
                        Ok(Attempt::Busy(_)) => tokio::time::sleep(Duration::from_millis(1)).await,
                        told => return told,
                    }
                }
            }
        });
        tokio::time::sleep(held).await;
        roll_back(&ours).await;
        roll_back(&theirs).await;
        assert_eq!(late.await.unwrap().unwrap(), Attempt::Late);
        assert!(obvious.await.unwrap(), "the control was carried out, too late");
        assert_eq!(bench.store.inspect(Name::new(&name).unwrap()).await.unwrap(), None, "nothing is held");
        assert!(is_granted(bench.store.acquire(bench.ask(&name, 2)).await.unwrap()), "the name can be used");
    }
}

/// As the pages on PostgreSQL and MySQL say: requests, the keeper's, and one to be woken by.
const CONNECTIONS: i64 = 3;

/// However many tasks wait, a client has no more connections than that.
#[tokio::test]
async fn a_client_of_64_tasks_has_at_most_three_connections() {
    let Some(bench) = Bench::open("connections of a client").await else { return };
    bench.create_user("many_tasks", "right", 20).await;
    let url = bench.url.replace(&format!("{}@", bench::ADMIN), "many_tasks:right@");
    let (counted, other) = (Client::connect(&url).await.unwrap(), Client::connect(&bench.url).await.unwrap());
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..72_usize {
        // Another process, so that waiters have to be woken by the server.
        let client = if task < 64 { counted.clone() } else { other.clone() };
        tasks.spawn(async move {
            for turn in 0..2 {
                let name = format!("n{}", (task + turn) % 4);
                client.mutex(&name).lock().await.unwrap().release().await.unwrap();
                let permit = client.semaphore(format!("s{}", task % 2), 2).acquire().await.unwrap();
                tokio::time::sleep(Duration::from_millis(1)).await;
                permit.release().await.unwrap();
                client.fair_mutex("f").lock().await.unwrap().release().await.unwrap();
            }
        });
    }
    let mut most = 0;
    while !tasks.is_empty() {
        most = bench.connections_of("many_tasks").await.max(most);
        let _ = tokio::time::timeout(Duration::from_millis(50), tasks.join_next()).await.map(|ended| ended.unwrap().unwrap());
    }
    most = bench.connections_of("many_tasks").await.max(most);
    println!("64 tasks: at most {most} connections");
    assert!((2..=CONNECTIONS).contains(&most), "{most} connections of one client");
    // The control: what counts sees those of a second client, and so more than one client may have.
    let second = Client::connect(&url).await.unwrap();
    let guard = second.mutex("m").lock().await.unwrap();
    let waiting = tokio::spawn(counted.mutex("m").lock());
    let seen = async || bench.connections_of("many_tasks").await > CONNECTIONS;
    lockkeeper_testkit::poll::async_until_within(Duration::from_secs(20), "both clients are seen", seen).await;
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}
