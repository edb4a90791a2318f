//! Queues of many waiters: one that asks again reads a few rows and extends its place beside the steps of others.

use std::time::Duration;

use lockkeeper::Client;
use lockkeeper::backend::{Acquire, Attempt, Backend, Busy, Claim, Release};
use lockkeeper_testkit::poll::async_until_within;

use super::bench::{Bench, is_granted, release};

/// More than a client remembers the rows of.
const LONG: u64 = 80;
/// How long a place lasts, and how often its waiter asks again meanwhile.
const PLACE: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(500);

fn fair(bench: &Bench, number: u64) -> Acquire {
    let asked = bench.ask("m", number);
    let place = if number == 0 { None } else { Some(PLACE) };
    Acquire::new(asked.name.clone(), Claim::Fair, asked.owner, asked.lease)
        .with_times(asked.since, asked.not_after)
        .with_place(place)
}

fn left(number: u64) -> Release {
    let released = release("m", number);
    Release::new(released.name.clone(), Claim::Fair, released.owner)
}

fn busy(attempt: Attempt) -> Busy {
    match attempt {
        Attempt::Busy(busy) => busy,
        other => panic!("{other:?} instead of having to wait"),
    }
}

/// The first of them holds the lock, and the others stand in line.
async fn line_up(bench: &Bench, store: &dyn Backend, waiters: u64) {
    assert!(is_granted(store.acquire(fair(bench, 0)).await.unwrap()));
    for number in 1..=waiters {
        let busy = busy(store.acquire(fair(bench, number)).await.unwrap());
        assert_eq!((busy.ahead, busy.placed), (u32::try_from(number - 1).ok(), true), "waiter {number}");
    }
    // Those that came while the queue was short learn that it is not.
    for number in 1..=waiters {
        busy(store.acquire(fair(bench, number)).await.unwrap());
    }
}

/// Who waits, in the order of the queue.
async fn waiting(store: &dyn Backend) -> Vec<String> {
    let seen = store.inspect(release("m", 0).name).await.unwrap();
    seen.map_or_else(Vec::new, |seen| seen.queue.into_iter().map(|waiter| waiter.owner).collect())
}

/// They ask again for much longer than a place lasts, without a step on the name; then each has its turn.
#[tokio::test]
async fn waiters_of_a_long_queue_keep_their_places_beside_each_other() {
    let Some(bench) = Bench::open("a long queue").await else { return };
    let store = &*bench.store;
    line_up(&bench, store, LONG).await;
    let (queue, began) = (waiting(store).await, bench.runtime.now());
    let version = bench.version("m").await;
    while bench.runtime.now().since(began) < PLACE + AGAIN * 2 {
        let round = bench.runtime.now();
        for number in 1..=LONG {
            let busy = busy(store.acquire(fair(&bench, number)).await.unwrap());
            assert_eq!((busy.ahead, busy.placed), (u32::try_from(number - 1).ok(), true), "waiter {number}");
            assert!(busy.retry_in.is_some_and(|retry| retry <= Duration::from_secs(60)), "{busy:?}");
        }
        tokio::time::sleep(AGAIN.saturating_sub(bench.runtime.now().since(round))).await;
    }
    assert_eq!(bench.version("m").await, version, "a waiter that asked again took a step");
    assert_eq!(waiting(store).await, queue);
    // In their order, and nobody else.
    for number in 0..5 {
        let next = number + 1;
        assert!(store.release(left(number)).await.unwrap().held);
        busy(store.acquire(fair(&bench, next + 1)).await.unwrap());
        assert!(is_granted(store.acquire(fair(&bench, next)).await.unwrap()), "waiter {next}");
        assert!(
            busy(store.acquire(fair(&bench, LONG)).await.unwrap()).ahead.is_some_and(|ahead| u64::from(ahead) == LONG - next - 1)
        );
    }
}

/// Waiters that died, in front and in the middle, do not keep the others from their turn.
#[tokio::test]
async fn dead_waiters_of_a_long_queue_are_passed_over() {
    const DEAD: [u64; 8] = [1, 2, 3, 40, 41, 60, 61, LONG];
    let Some(bench) = Bench::open("dead waiters of a long queue").await else { return };
    let store = &*bench.store;
    line_up(&bench, store, LONG).await;
    let began = bench.runtime.now();
    let alive = || (1..=LONG).filter(|number| !DEAD.contains(number));
    while bench.runtime.now().since(began) < PLACE + AGAIN * 2 {
        let round = bench.runtime.now();
        for number in alive() {
            busy(store.acquire(fair(&bench, number)).await.unwrap());
        }
        tokio::time::sleep(AGAIN.saturating_sub(bench.runtime.now().since(round))).await;
    }
    assert!(store.release(left(0)).await.unwrap().held);
    for number in alive().take(5) {
        assert!(is_granted(store.acquire(fair(&bench, number)).await.unwrap()), "waiter {number}");
        assert!(store.release(left(number)).await.unwrap().held);
    }
    assert_eq!(waiting(store).await.len(), LONG as usize - DEAD.len() - 5);
}

/// A client that remembers when places were to end does not take them for ended: they may have been extended without a step.
#[tokio::test]
async fn a_client_that_remembers_older_ends_removes_nobody() {
    const STAY: u64 = 20;
    let Some(bench) = Bench::open("remembered places").await else { return };
    let (store, other) = (&*bench.store, bench.another().await);
    line_up(&bench, store, LONG).await;
    // Few enough to be remembered by the other client, and to ask again in time on a slow machine.
    let ask_again = async || {
        for number in 1..=STAY {
            busy(store.acquire(fair(&bench, number)).await.unwrap());
        }
    };
    for number in STAY + 1..=LONG {
        if number % 10 == 1 {
            ask_again().await;
        }
        store.release(left(number)).await.unwrap();
    }
    ask_again().await;
    let stranger = || fair(&bench, LONG + 1).with_place(None);
    busy(other.acquire(stranger()).await.unwrap());
    let (version, began) = (bench.version("m").await, bench.runtime.now());
    while bench.runtime.now().since(began) < PLACE + AGAIN * 2 {
        ask_again().await;
        tokio::time::sleep(AGAIN).await;
    }
    assert_eq!(bench.version("m").await, version, "the other client would not have used what it remembers");
    busy(other.acquire(stranger()).await.unwrap());
    assert!(!other.release(left(LONG + 1)).await.unwrap().held);
    assert_eq!(waiting(store).await.len(), STAY as usize);
}

/// Several hundred tasks of several clients on one fair mutex: all have their turn, and none of them an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_tasks_of_several_clients_have_their_turns() {
    const CLIENTS: usize = 8;
    const TASKS: usize = 30;
    let Some(bench) = Bench::open("hundreds of tasks").await else { return };
    let mut tasks = tokio::task::JoinSet::new();
    let first = Client::connect(&bench.url).await.unwrap();
    let held = first.fair_mutex("m").lock().await.unwrap();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        // A server that has work for longer than the usual ten seconds, on a machine that does other work too, is not down.
        clients.push(Client::builder().outage_timeout(Duration::from_secs(60)).connect(&bench.url).await.unwrap());
    }
    for client in &clients {
        for _ in 0..TASKS {
            let mutex = client.fair_mutex("m");
            tasks.spawn(async move { mutex.lock().await.unwrap().release().await.unwrap() });
        }
    }
    let all_wait = async || waiting(&*bench.store).await.len() == CLIENTS * TASKS;
    async_until_within(Duration::from_secs(60), "all of them wait", all_wait).await;
    // For longer than a place lasts.
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(waiting(&*bench.store).await.len(), CLIENTS * TASKS);
    held.release().await.unwrap();
    while let Some(ended) = tokio::time::timeout(Duration::from_secs(60), tasks.join_next()).await.expect("a turn") {
        ended.unwrap();
    }
    for client in clients {
        client.close().await.unwrap();
    }
}
