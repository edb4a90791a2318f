//! Clients of different processes take turns, also where they find out by polling that a lock is free.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::Client;
use lockkeeper::backend::{Backend, Claim, Watch};
use lockkeeper::name::Name;

use super::bench::{Bench, POLLING, ask, connect, is_granted, owner, release};

/// How often a client may lock again while another one waits.
const AGAIN: u32 = 10;

/// Enough for several looks of a client that polls.
const LOOKS: Duration = Duration::from_millis(300);

const LIMIT: Duration = Duration::from_secs(20);

/// Acquires and releases; gives how many waiters the release woke.
async fn woken(bench: &Bench, store: &Arc<dyn Backend>, name: &str, number: u64) -> u32 {
    assert!(is_granted(store.acquire(ask(&bench.runtime, name, number)).await.unwrap()));
    store.release(release(name, number)).await.unwrap().woke.expect("a store that knows who waits")
}

/// A client backs off for those who wait elsewhere. Taken for one of them, a mark of its own would make it back off for nobody; one of theirs that is
/// taken for its own would let them starve.
#[tokio::test]
async fn a_release_tells_waiters_of_other_processes_from_its_own() {
    let Some(bench) = Bench::open("whom a release wakes").await else { return };
    for (round, url) in [bench.url.clone(), format!("{}{POLLING}", bench.url)].into_iter().enumerate() {
        let (ours, theirs) = (connect(&url, &bench.runtime).await, connect(&url, &bench.runtime).await);
        // A name that no other test uses: a server may notify in all databases.
        let name = format!("{url}-turns-{round}");
        let watch = |number| Watch::new(Name::new(&name).unwrap(), Claim::Mutex, owner(number));
        assert_eq!(woken(&bench, &ours, &name, 1).await, 0, "nobody waits");
        let (first, second) = (ours.watch(watch(11)).await.unwrap(), ours.watch(watch(12)).await.unwrap());
        assert_eq!(woken(&bench, &ours, &name, 2).await, 2, "two wait here");
        drop((first, second));
        assert_eq!(woken(&bench, &ours, &name, 3).await, 0, "the mark in the row is still there, and our own");
        let their_watch = theirs.watch(watch(21)).await.unwrap();
        assert_eq!(woken(&bench, &ours, &name, 4).await, 1, "somebody waits elsewhere");
        let our_watch = ours.watch(watch(13)).await.unwrap();
        assert_eq!(woken(&bench, &ours, &name, 5).await, 2, "and here");
        assert_eq!(woken(&bench, &theirs, &name, 6).await, 2, "seen from there, the same");
        drop((our_watch, their_watch));
    }
}

/// What a store tells of its own steps, a look does not tell again: a waiter that is notified after that knows that somebody else had the name.
#[tokio::test]
async fn a_client_that_polls_tells_steps_of_others_from_its_own() {
    let Some(bench) = Bench::open("steps of others").await else { return };
    let url = format!("{}{POLLING}", bench.url);
    let (ours, theirs) = (connect(&url, &bench.runtime).await, connect(&url, &bench.runtime).await);
    woken(&bench, &ours, "m", 1).await;
    let watch = ours.watch(Watch::new(Name::new("m").unwrap(), Claim::Mutex, owner(9))).await.unwrap();
    for turn in 0..5 {
        woken(&bench, &ours, "m", 10 + turn).await;
        assert!(tokio::time::timeout(Duration::ZERO, watch.notified()).await.is_ok(), "told before the release is answered");
        let again = tokio::time::timeout(LOOKS, watch.notified()).await;
        assert!(again.is_err(), "turn {turn}: a look told of a step of its own");
    }
    woken(&bench, &theirs, "m", 20).await;
    tokio::time::timeout(LIMIT, watch.notified()).await.expect("a look tells of steps of others");
}

/// A step of one's own right after one of another process, before the next look, does not hide that one.
#[tokio::test]
async fn a_step_of_its_own_does_not_hide_one_of_others() {
    let Some(bench) = Bench::open("steps that hide others").await else { return };
    let url = format!("{}{POLLING}", bench.url);
    let (ours, theirs) = (connect(&url, &bench.runtime).await, connect(&url, &bench.runtime).await);
    for turn in 0..5 {
        let name = format!("h{turn}");
        assert!(is_granted(theirs.acquire(ask(&bench.runtime, &name, 1)).await.unwrap()));
        let watch = ours.watch(Watch::new(Name::new(&name).unwrap(), Claim::Mutex, owner(9))).await.unwrap();
        // Nothing changes for some looks, so they become rare, and the next two steps come between two of them.
        assert!(tokio::time::timeout(LOOKS, watch.notified()).await.is_err(), "turn {turn}: told of nothing");
        assert!(theirs.release(release(&name, 1)).await.unwrap().held);
        assert!(is_granted(ours.acquire(ask(&bench.runtime, &name, 2)).await.unwrap()));
        tokio::time::timeout(LIMIT, watch.notified())
            .await
            .unwrap_or_else(|_| panic!("turn {turn}: their release was never told"));
    }
}

/// A client that releases and locks again leaves the lock to one that waits, and finds out by polling.
#[tokio::test]
async fn a_client_that_locks_again_lets_one_in_that_polls() {
    let Some(bench) = Bench::open("turns of clients that poll").await else { return };
    let url = format!("{}{POLLING}", bench.url);
    let (ours, theirs) = (Client::connect(&url).await.unwrap(), Client::connect(&url).await.unwrap());
    for round in 0..5 {
        let name = format!("m{round}");
        let mut guard = ours.mutex(&name).lock().await.unwrap();
        let waiter = tokio::spawn({
            let theirs = theirs.mutex(&name);
            async move { theirs.lock().await.unwrap().release().await.unwrap() }
        });
        bench.until_waited_for(&name).await;
        for turn in 0.. {
            guard.release().await.unwrap();
            guard = ours.mutex(&name).lock().await.unwrap();
            if waiter.is_finished() {
                break;
            }
            assert!(turn < AGAIN, "round {round}: locked again {turn} times while another waited");
        }
        waiter.await.unwrap();
        guard.release().await.unwrap();
    }
}

/// A step of another client keeps the row locked for long, because its process gets no CPU: the lock is free all the same.
#[tokio::test]
async fn a_free_lock_is_granted_although_a_step_keeps_its_row_locked_for_a_while() {
    let Some(bench) = Bench::open("a slow step").await else { return };
    woken(&bench, &bench.store, "m", 1).await;
    let locked = bench.lock_rows(Duration::from_millis(350)).await;
    let attempt = bench.store.acquire(bench.ask("m", 2)).await.unwrap();
    assert!(is_granted(attempt), "{attempt:?}");
    locked.await.unwrap();
    // One that is locked for longer is not waited for without end, and the caller still waits when it is told so.
    let locked = bench.lock_rows(Duration::from_secs(10)).await;
    let now = bench.runtime.now();
    let attempt = bench.store.acquire(bench.ask("m", 3).with_times(now, now.plus(Duration::from_millis(900)))).await.unwrap();
    assert!(!is_granted(attempt), "{attempt:?}");
    assert!(!locked.is_finished(), "answered while the row is locked");
    locked.abort();
}
