//! One holder at a time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as Local};
use std::time::Duration;

use super::World;
use crate::backend::{Claim, Liveness};
use crate::error::ErrorKind;
use crate::layer::{Fault, Faulty};
use crate::session::Session;
use crate::sync::Mutex;

/// Longer than any case lasts.
const PATIENTLY: Duration = Duration::from_secs(3_000);

/// P1: while one holds it nobody else gets it, neither another client nor another call of the same one.
pub async fn excludes_a_second_owner(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let guard = Mutex::new(&ours, "m").lock().await.unwrap();
    assert!(Mutex::new(&theirs, "m").try_lock().await.unwrap().is_none());
    assert!(Mutex::new(&ours, "m").try_lock().await.unwrap().is_none());
    assert_eq!(world.holders("m").await, 1);
    guard.release().await.unwrap();
    let guard = Mutex::new(&theirs, "m").try_lock().await.unwrap().expect("free");
    guard.release().await.unwrap();
}

/// P6: a waiter in another process gets it by push, long before it would have asked again by itself.
pub async fn wakes_a_waiter_when_released(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let guard = Mutex::new(&ours, "m").lock().await.unwrap();
    let waiter = world.spawn(async move { Mutex::new(&theirs, "m").lock().await.unwrap() });
    world.settle().await;
    let released = world.runtime().now();
    guard.release().await.unwrap();
    let guard = waiter.await.unwrap();
    let took = world.runtime().now().since(released);
    assert!(took < world.soon(), "woken after {took:?}");
    guard.release().await.unwrap();
}

/// P1: a read-modify-write that nothing else protects loses no update, with many tasks of several clients.
pub async fn loses_no_update_of_what_it_protects(world: &World) {
    count_under(world, |client| Mutex::new(client, "m"), 3, 6, 5).await;
}

/// Lets tasks of several clients add to a number that only the mutex protects, and sees that none of it is lost.
pub(super) async fn count_under(world: &World, mutex: fn(&Session) -> Mutex, clients: usize, tasks: usize, turns: usize) {
    let counter = Arc::new(AtomicUsize::new(0));
    let mut running = Vec::new();
    for client in (0..clients).map(|_| world.client()) {
        for _ in 0..tasks {
            let (mutex, counter) = (mutex(&client), Arc::clone(&counter));
            running.push(world.spawn(async move {
                for _ in 0..turns {
                    let guard = mutex.lock().await.unwrap();
                    let seen = counter.load(Ordering::Relaxed);
                    for _ in 0..3 {
                        tokio::task::yield_now().await;
                    }
                    counter.store(seen + 1, Ordering::Relaxed);
                    guard.release().await.unwrap();
                }
            }));
        }
    }
    for task in running {
        task.await.unwrap();
    }
    assert_eq!(counter.load(Ordering::Relaxed), clients * tasks * turns);
}

/// The tasks of one process are served in the order in which they came.
pub async fn serves_waiters_of_one_process_in_order(world: &World) {
    let client = world.client();
    let guard = Mutex::new(&client, "m").lock().await.unwrap();
    let order = Arc::new(Local::new(Vec::new()));
    let mut waiters = Vec::new();
    for number in 0..8 {
        let (client, order) = (client.clone(), Arc::clone(&order));
        waiters.push(world.spawn(async move {
            let guard = Mutex::new(&client, "m").lock().await.unwrap();
            order.lock().unwrap().push(number);
            guard.release().await.unwrap();
        }));
        world.beat().await;
    }
    guard.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..8).collect::<Vec<_>>());
}

/// A try answers at once, busy or free, and a busy one leaves nothing behind.
pub async fn a_try_never_waits(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let guard = Mutex::new(&ours, "m").lock().await.unwrap();
    let began = world.now();
    for client in [&ours, &theirs] {
        assert!(Mutex::new(client, "m").try_lock().await.unwrap().is_none());
    }
    let took = world.since(began);
    assert!(took < world.slack(), "a try took {took:?}");
    assert_eq!(world.queued("m").await, 0);
    guard.release().await.unwrap();
}

/// A call times out at its limit, not earlier and not much later; the error says that others held the name.
pub async fn keeps_a_wait_limit(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let guard = Mutex::new(&ours, "m").lock().await.unwrap();
    for client in [&ours, &theirs] {
        for limit in [Duration::ZERO, world.units(3)] {
            let began = world.now();
            let error = Mutex::new(client, "m").lock().timeout(limit).await.unwrap_err();
            let took = world.since(began);
            assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
            assert!(took >= limit && took < limit + world.slack(), "waited {took:?} of {limit:?}");
        }
    }
    guard.release().await.unwrap();
}

/// A wait without end in sight is not an overflow.
pub async fn bears_the_longest_wait_limit(world: &World) {
    let client = world.client();
    let guard = Mutex::new(&client, "m").lock().timeout(Duration::MAX).await.unwrap();
    let waiter = world.spawn({
        let client = client.clone();
        async move { Mutex::new(&client, "m").lock().timeout(Duration::MAX).await.unwrap() }
    });
    world.settle().await;
    guard.release().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
}

/// A release with a waiter in the same process is one request: the waiter asks nothing itself.
pub async fn hands_over_inside_the_process(world: &World) {
    // A name of its own: on some servers a listener at the same name in another database counts as one who waits.
    let client = world.client();
    let guard = Mutex::new(&client, "inside").lock().await.unwrap();
    let waiters: Vec<_> = (0..4)
        .map(|_| {
            let (client, runtime, moment) = (client.clone(), world.runtime().clone(), Duration::from_millis(50));
            world.spawn(async move {
                let guard = Mutex::new(&client, "inside").lock().await.unwrap();
                // Long enough for the next one to notice that it is the first, too short for it to ask whether all is well.
                runtime.sleep_until(runtime.now().plus(moment)).await;
                guard.release().await.unwrap();
            })
        })
        .collect();
    world.settle().await;
    let asked = world.chaos().carried_out(Faulty::Acquire);
    guard.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap();
    }
    assert_eq!(world.chaos().carried_out(Faulty::Acquire), asked, "requests beside the releases");
}

/// P6: hand-over must not starve others: with 64 local contenders that never rest, a waiter elsewhere has its turn soon.
pub async fn a_waiter_elsewhere_is_not_starved_by_local_contenders(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let (grants, enough) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let guard = Mutex::new(&ours, "m").lock().await.unwrap();
    let asked = world.chaos().carried_out(Faulty::Acquire);
    let waiter = world.spawn(async move { Mutex::new(&theirs, "m").lock().await.unwrap() });
    // A waiter that does not listen yet has not had its chance to be first.
    let listens =
        || async { world.chaos().carried_out(Faulty::Watch) >= 1 && world.chaos().carried_out(Faulty::Acquire) >= asked + 2 };
    world.until("the waiter elsewhere asks, listens, and asks again", listens).await;
    let crowd: Vec<_> = (0..64)
        .map(|_| {
            let (client, grants, enough) = (ours.clone(), Arc::clone(&grants), Arc::clone(&enough));
            world.spawn(async move {
                while !enough.load(Ordering::Relaxed) {
                    let guard = Mutex::new(&client, "m").lock().await.unwrap();
                    grants.fetch_add(1, Ordering::Relaxed);
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    world.settle().await;
    guard.release().await.unwrap();
    let guard = world.within(Duration::from_secs(10), waiter).await.expect("a turn").unwrap();
    let before = grants.load(Ordering::Relaxed);
    assert!(before <= 100, "{before} others were served first");
    enough.store(true, Ordering::Relaxed);
    guard.release().await.unwrap();
    for contender in crowd {
        contender.await.unwrap();
    }
}

/// However many wait in one process, the store is asked as if it were one.
pub async fn a_crowd_of_waiters_asks_as_one(world: &World) {
    let (client, holder) = (world.client(), world.occupy("m", Claim::Mutex).await);
    let waiters: Vec<_> = (0..100)
        .map(|_| {
            let client = client.clone();
            world.spawn(async move { Mutex::new(&client, "m").lock().timeout(PATIENTLY).await.unwrap().release().await.unwrap() })
        })
        .collect();
    let has_listened =
        || async { world.chaos().carried_out(Faulty::Watch) >= 1 && world.chaos().carried_out(Faulty::Acquire) >= 2 };
    world.until("one of them asks, listens, and asks again", has_listened).await;
    world.settle().await;
    let (asked, began) = (world.chaos().carried_out(Faulty::Acquire), world.now());
    assert!(asked <= 8, "{asked} requests of 100 waiters before anything happened");
    world.pass(world.units(5)).await;
    let more = world.chaos().carried_out(Faulty::Acquire) - asked;
    // Where every waiter has a place, the first caller got one before it joined the local queue, and the first of the queue another.
    let askers = if world.capabilities().liveness == Liveness::Lease { 1 } else { 2 };
    let bound = askers * (2 + world.since(began).as_millis() as usize / 500);
    assert!(more <= bound, "{more} requests while waiting, of at most {bound}");
    assert!(world.give_back("m", Claim::Mutex, holder).await);
    for waiter in waiters {
        waiter.await.unwrap();
    }
}

/// Holds the name while another client waits, releases it, and measures how long the waiter takes.
async fn noticed_after(world: &World, held_for: Duration) -> Duration {
    let (ours, theirs) = (world.client(), world.client_with(|settings| settings.outage_timeout = world.units(10)));
    let guard = Mutex::new(&ours, "m").lock().await.unwrap();
    let waiter = world.spawn(async move { Mutex::new(&theirs, "m").lock().await });
    world.settle().await;
    world.pass(held_for).await;
    let released = world.now();
    guard.release().await.unwrap();
    let guard = waiter.await.unwrap().expect("a store that answers is not unreachable");
    let took = world.since(released);
    guard.release().await.unwrap();
    took
}

/// P6: when all notifications are lost a waiter is a second late at most.
pub async fn a_lost_wake_up_costs_at_most_a_second(world: &World) {
    world.chaos().mute();
    let took = noticed_after(world, world.units(2)).await;
    assert!(took <= Duration::from_secs(1) + world.slack(), "noticed after {took:?}");
}

/// P6: a store that refuses to push (rights, too many subscribers) is still a store: waiting goes on by asking, for as long as it
/// takes.
pub async fn a_refused_subscription_costs_at_most_a_second(world: &World) {
    world.chaos().always(Faulty::Watch, Fault::Refuse);
    let took = noticed_after(world, world.units(25)).await;
    assert!(took <= Duration::from_secs(1) + world.slack(), "noticed after {took:?}");
}

/// P6: nor does a subscription that is never answered hold up the asking.
pub async fn an_unanswered_subscription_costs_at_most_a_second(world: &World) {
    world.chaos().always(Faulty::Watch, Fault::LoseRequest);
    let took = noticed_after(world, world.units(25)).await;
    assert!(took <= Duration::from_secs(1) + world.slack(), "noticed after {took:?}");
}

/// P5: a holder that died blocks others until its lease ends, and no longer.
pub async fn a_dead_holder_is_gone_with_its_lease(world: &World) {
    let client = world.client();
    let began = world.now();
    world.grant(world.ask("m", Claim::Mutex, world.stranger())).await;
    let guard = Mutex::new(&client, "m").lock().await.unwrap();
    let took = world.since(began);
    let lease = world.units(10);
    assert!(took + Duration::from_millis(5) >= lease, "taken from a living holder after {took:?}");
    assert!(took < lease + Duration::from_secs(1) + world.slack(), "free after {took:?}");
    guard.release().await.unwrap();
}

/// P1: a holder that releases after its lease gets an error, and does not release the present holder.
pub async fn a_late_release_is_refused_and_frees_nobody(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let late = Mutex::new(&ours, "m").lock().lease(world.units(4)).await.unwrap();
    let guard = Mutex::new(&theirs, "m").lock().await.unwrap();
    assert_eq!(late.release().await.unwrap_err().kind(), ErrorKind::Lost);
    world.settle().await;
    let found = world.look("m").await.expect("held");
    assert_eq!(found.holders[0].owner, guard.owner().to_string());
    guard.release().await.expect("never lost");
}

/// A forced release frees the name at once and names the old holder, which learns of the loss and releases nothing.
pub async fn a_forced_release_frees_and_tells_whom(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let old = Mutex::new(&ours, "m").lock().await.unwrap();
    let forced = world.force("m").await;
    assert_eq!(forced.from.len(), 1);
    assert_eq!(forced.from[0].owner, old.owner().to_string());
    assert!(world.force("m").await.from.is_empty(), "nobody left to take it from");
    let guard = Mutex::new(&theirs, "m").try_lock().await.unwrap().expect("free");
    assert_eq!(old.release().await.unwrap_err().kind(), ErrorKind::Lost);
    world.settle().await;
    assert!(world.look("m").await.is_some_and(|found| found.holders[0].owner == guard.owner().to_string()));
    guard.release().await.unwrap();
}

/// Two names are two locks.
pub async fn names_do_not_disturb_each_other(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let one = Mutex::new(&ours, "one").lock().await.unwrap();
    let two = Mutex::new(&theirs, "two").try_lock().await.unwrap().expect("another name");
    one.release().await.unwrap();
    assert_eq!(world.holders("two").await, 1);
    two.release().await.unwrap();
}

/// A waiter whose time is up does not keep the one behind it from its turn.
pub async fn a_waiter_that_gives_up_does_not_hold_up_the_next(world: &World) {
    let (client, holder) = (world.client(), world.occupy("m", Claim::Mutex).await);
    let first = world.spawn({
        let (client, limit) = (client.clone(), world.units(2));
        async move { Mutex::new(&client, "m").lock().timeout(limit).await.map(drop) }
    });
    world.beat().await;
    let second = world.spawn(async move { Mutex::new(&client, "m").lock().await.unwrap() });
    assert_eq!(first.await.unwrap().unwrap_err().kind(), ErrorKind::Timeout);
    assert!(world.give_back("m", Claim::Mutex, holder).await);
    let guard = world.within(Duration::from_secs(2), second).await.expect("its turn").unwrap();
    guard.release().await.unwrap();
}
