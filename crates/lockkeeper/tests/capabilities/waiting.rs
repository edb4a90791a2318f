//! What a waiter, a release and the keeper do where a store lacks something: how often the store is asked, and for what.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::backend::{Backend, Capabilities, Claim, Register, Watch};
use lockkeeper::conformance::{SessionFlaw, SessionStore};
use lockkeeper::runtime::Runtime;
use lockkeeper::{Mutex, Name, WireOwner};

use super::{Asked, lacking, over};

#[tokio::test(start_paused = true)]
async fn without_push_a_waiter_polls() {
    let store = lacking(|can| can.push = false);
    let [ours, theirs] = store.clients.clone();
    let guard = Mutex::new(&ours, "m").lock().await.unwrap();
    let waiter = tokio::spawn(async move { Mutex::new(&theirs, "m").lock().await.unwrap() });
    tokio::time::sleep(Duration::from_secs(5)).await;
    let released = store.runtime.now();
    guard.release().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
    let took = store.runtime.now().since(released);
    assert!(took <= Duration::from_secs(1), "noticed after {took:?}");
    let asked = store.asked().iter().filter(|asked| **asked == Asked::Acquire).count();
    assert!((6..=60).contains(&asked), "{asked} requests in six seconds");
}

/// What a waiter and its release ask for beside the lock.
async fn waits_for_its_turn(change: impl FnOnce(&mut Capabilities)) -> Vec<Asked> {
    let store = lacking(change);
    let [ours, theirs] = store.clients.clone();
    let guard = Mutex::new(&ours, "m").lock().await.unwrap();
    let waiter = tokio::spawn(async move { Mutex::new(&theirs, "m").lock().await.unwrap() });
    tokio::time::sleep(Duration::from_millis(500)).await;
    guard.release().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
    let beside = |asked: &Asked| matches!(asked, Asked::Registers(_) | Asked::WatchInTurn);
    store.asked().into_iter().filter(beside).collect()
}

#[tokio::test(start_paused = true)]
async fn a_waiter_registers_where_clients_are_woken_in_turn_and_nowhere_else() {
    assert_eq!(waits_for_its_turn(|can| can.any_name = false).await, []);
    let asked = waits_for_its_turn(|can| *can = can.with_wakes_in_turn()).await;
    let expected = [Asked::WatchInTurn, Asked::Registers(Register::Last), Asked::Registers(Register::First)];
    assert_eq!(asked, expected, "it listens, asks again, and asks when it is notified");
}

/// What was asked for while twenty tasks of one process had the same mutex one after the other, and how many releases there were.
async fn twenty_turns(change: impl FnOnce(&mut Capabilities)) -> (Vec<Asked>, usize) {
    let store = lacking(change);
    let [client, _] = store.clients.clone();
    let guard = Mutex::new(&client, "m").lock().await.unwrap();
    let waiters: Vec<_> = (0..19)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { Mutex::new(&client, "m").lock().await.unwrap().release().await.unwrap() })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(100)).await;
    guard.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap();
    }
    let asked = store.asked();
    let releases = asked.iter().filter(|asked| matches!(asked, Asked::Release { .. })).count();
    (asked, releases)
}

#[tokio::test(start_paused = true)]
async fn without_token_ranges_or_a_release_if_alone_each_turn_is_a_request() {
    let (asked, releases) = twenty_turns(|can| can.any_name = false).await;
    assert!(releases < 10 && asked.contains(&Asked::SpareTokens) && asked.contains(&Asked::ReleaseIfAlone), "{asked:?}");
    let without: [fn(&mut Capabilities); 2] = [|can| can.hand_over_if_alone = false, |can| can.token_ranges = false];
    for remove in without {
        let (asked, releases) = twenty_turns(remove).await;
        assert_eq!(releases, 20, "{asked:?}");
        assert!(!asked.contains(&Asked::SpareTokens) && !asked.contains(&Asked::ReleaseIfAlone), "{asked:?}");
    }
}

/// No caller asks for it, whether the store has it or not.
#[tokio::test(start_paused = true)]
async fn with_and_without_pushed_grants_nobody_asks_for_one() {
    let changes: [fn(&mut Capabilities); 2] = [|can| can.any_name = false, |can| can.pushed_grants = false];
    for change in changes {
        let store = lacking(change);
        let [ours, theirs] = store.clients.clone();
        let guard = Mutex::new(&ours, "m").lock().await.unwrap();
        let waiter = tokio::spawn(async move { Mutex::new(&theirs, "m").lock().await.unwrap() });
        tokio::time::sleep(Duration::from_millis(500)).await;
        guard.release().await.unwrap();
        waiter.await.unwrap().release().await.unwrap();
        assert!(!store.asked().contains(&Asked::WatchForGrant), "{:?}", store.asked());
    }
}

/// How many requests for a mutex there were while a task of the process held it, and another one waited for 500 ms.
async fn asks_behind_its_own_process(change: impl FnOnce(&mut Capabilities)) -> usize {
    let store = lacking(change);
    let [client, _] = store.clients.clone();
    let guard = Mutex::new(&client, "m").lock().await.unwrap();
    let waiter = tokio::spawn(async move { Mutex::new(&client, "m").lock().await.unwrap() });
    tokio::time::sleep(Duration::from_millis(500)).await;
    let asked = store.asked().iter().filter(|asked| **asked == Asked::Acquire).count();
    guard.release().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
    asked
}

#[tokio::test(start_paused = true)]
async fn a_waiter_behind_its_own_process_asks_only_where_mutexes_have_a_queue() {
    assert_eq!(asks_behind_its_own_process(|can| can.any_name = false).await, 1, "the holder");
    assert_eq!(asks_behind_its_own_process(|can| *can = can.with_queues_mutexes()).await, 2, "and the waiter takes its place");
}

/// How long a process that released waits before it asks again, where somebody listens who never asks.
async fn backs_off_for(change: impl FnOnce(&mut Capabilities)) -> Duration {
    let store = lacking(change);
    let [ours, theirs] = &store.clients;
    let guard = Mutex::new(ours, "m").lock().await.unwrap();
    let listener = WireOwner::new(theirs.id(), 1_000_000);
    let listens = store.chaos.watch(Watch::new(Name::new("m").unwrap(), Claim::Mutex, listener)).await.unwrap();
    guard.release().await.unwrap();
    let released = store.runtime.now();
    Mutex::new(ours, "m").lock().await.unwrap().release().await.unwrap();
    drop(listens);
    store.runtime.now().since(released)
}

#[tokio::test(start_paused = true)]
async fn a_release_gives_others_as_long_as_a_notification_takes() {
    let short = backs_off_for(|can| can.any_name = false).await;
    assert!(short > Duration::ZERO && short <= Duration::from_millis(100), "{short:?}");
    let slow = Duration::from_millis(400);
    let long = backs_off_for(|can| *can = can.with_notifies_within(slow)).await;
    assert!(long >= slow && long <= slow + Duration::from_millis(100), "{long:?}");
}

/// How often a session store was asked about a hold in two sessions' time, and what else.
async fn asks_about_a_hold(change: impl FnOnce(&mut Capabilities)) -> (usize, bool) {
    let (runtime, session) = (Runtime::simulated(), Duration::from_secs(20));
    let store = over(Arc::new(SessionStore::start(runtime.clone(), session, SessionFlaw::None)), runtime, change);
    let guard = Mutex::new(&store.clients[0], "m").lock().await.unwrap();
    tokio::time::sleep(2 * session).await;
    assert!(guard.is_valid());
    let asked = store.asked();
    (asked.iter().filter(|asked| **asked == Asked::Renew).count(), asked.contains(&Asked::Events))
}

#[tokio::test(start_paused = true)]
async fn without_events_the_keeper_asks_every_third_of_the_lease() {
    let (asked, listens) = asks_about_a_hold(|can| can.any_name = !can.any_name).await;
    assert!(asked <= 1 && listens, "{asked} requests about a hold of which the store tells by itself");
    let (asked, listens) = asks_about_a_hold(|can| can.events = false).await;
    assert!((5..=8).contains(&asked) && !listens, "{asked} requests in six thirds");
}
