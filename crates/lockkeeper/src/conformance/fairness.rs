//! First come first served, across all processes: the queue of a fair mutex.

use std::sync::{Arc, Mutex as Local};
use std::time::Duration;

use super::World;
use crate::backend::{Acquire, Attempt, Claim, Kind, Liveness};
use crate::error::ErrorKind;
use crate::layer::Faulty;
use crate::sync::{FairMutex, Mutex};

/// Waiters of different clients acquire it in the order of arrival.
pub async fn serves_in_order_across_clients(world: &World) {
    let clients = [world.client(), world.client(), world.client()];
    let guard = FairMutex::new(&clients[0], "m").lock().await.unwrap();
    let order = Arc::new(Local::new(Vec::new()));
    let mut waiters = Vec::new();
    // Tasks of one client stand between those of others.
    for number in 0..9 {
        let (client, order) = (clients[number % 3].clone(), Arc::clone(&order));
        waiters.push(world.spawn(async move {
            let guard = FairMutex::new(&client, "m").lock().await.unwrap();
            order.lock().unwrap().push(number);
            guard.release().await.unwrap();
        }));
        world.until("it stands in the queue", || async { world.queued("m").await == number + 1 }).await;
    }
    guard.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..9).collect::<Vec<_>>());
}

/// P1: it is the same lock as the plain mutex of that name.
pub async fn excludes_a_plain_mutex_of_the_same_name(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let fair = FairMutex::new(&ours, "m").lock().await.unwrap();
    assert!(Mutex::new(&theirs, "m").try_lock().await.unwrap().is_none());
    assert!(FairMutex::new(&theirs, "m").try_lock().await.unwrap().is_none());
    fair.release().await.unwrap();
    let plain = Mutex::new(&theirs, "m").lock().await.unwrap();
    assert!(FairMutex::new(&ours, "m").try_lock().await.unwrap().is_none());
    plain.release().await.unwrap();
}

/// P6: the head of the queue is woken by push.
pub async fn wakes_the_head_when_released(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let guard = FairMutex::new(&ours, "m").lock().await.unwrap();
    let waiter = world.spawn(async move { FairMutex::new(&theirs, "m").lock().await.unwrap() });
    world.settle().await;
    let released = world.now();
    guard.release().await.unwrap();
    let guard = waiter.await.unwrap();
    let took = world.since(released);
    assert!(took < world.soon(), "woken after {took:?}");
    guard.release().await.unwrap();
}

/// P6: and within a second when all notifications are lost.
pub async fn a_lost_wake_up_costs_at_most_a_second(world: &World) {
    world.chaos().mute();
    let (ours, theirs) = (world.client(), world.client());
    let guard = FairMutex::new(&ours, "m").lock().await.unwrap();
    let waiter = world.spawn(async move { FairMutex::new(&theirs, "m").lock().await.unwrap() });
    world.settle().await;
    let released = world.now();
    guard.release().await.unwrap();
    let guard = waiter.await.unwrap();
    let took = world.since(released);
    assert!(took <= Duration::from_secs(1) + world.slack(), "noticed after {took:?}");
    guard.release().await.unwrap();
}

/// P5: a waiter that died is skipped when its place ends, and those behind it do not ask all the time until then.
pub async fn a_dead_waiter_is_skipped_when_its_place_ends(world: &World) {
    let holder = world.occupy("m", Claim::Fair).await;
    let place = world.units(6);
    let dead = Acquire { place: Some(place), ..world.ask("m", Claim::Fair, world.stranger()) };
    assert!(matches!(world.take(dead).await, Attempt::Busy(_)));
    let waiters: Vec<_> = [world.client(), world.client()]
        .into_iter()
        .map(|client| world.spawn(async move { FairMutex::new(&client, "m").lock().await.unwrap().release().await.unwrap() }))
        .collect();
    world.until("all stand in the queue", || async { world.queued("m").await >= 2 }).await;
    let (asked, began) = (world.chaos().carried_out(Faulty::Acquire), world.now());
    assert!(world.give_back("m", Claim::Fair, holder).await);
    for waiter in waiters {
        waiter.await.unwrap();
    }
    let took = world.since(began);
    assert!(took <= place + 2 * Duration::from_secs(1) + world.slack(), "the dead blocked the living for {took:?}");
    let more = world.chaos().carried_out(Faulty::Acquire) - asked;
    let bound = 2 * (5 + took.as_millis() as usize / 500);
    assert!(more <= bound, "{more} requests in {took:?}, of at most {bound}");
}

/// P5: a waiter whose time is up is not in the queue afterwards.
pub async fn a_waiter_that_gives_up_leaves_no_place(world: &World) {
    let client = world.client();
    let holder = world.occupy("m", Claim::Fair).await;
    for limit in [Duration::ZERO, world.units(2)] {
        let error = FairMutex::new(&client, "m").lock().timeout(limit).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        world.until("the queue is empty", || async { world.queued("m").await == 0 }).await;
    }
    assert!(world.give_back("m", Claim::Fair, holder).await);
}

/// A try has no place in the queue, and does not overtake waiters that have one, even while the lock is free.
pub async fn a_try_neither_queues_nor_overtakes(world: &World) {
    let client = world.client();
    let waiter = world.stranger();
    let holder = world.occupy("m", Claim::Fair).await;
    assert!(FairMutex::new(&client, "m").try_lock().await.unwrap().is_none());
    assert_eq!(world.queued("m").await, 0);
    let waiting = world.ask("m", Claim::Fair, waiter);
    assert!(matches!(world.take(waiting.clone()).await, Attempt::Busy(_)));
    assert!(world.give_back("m", Claim::Fair, holder).await);
    assert!(FairMutex::new(&client, "m").try_lock().await.unwrap().is_none(), "it overtook");
    world.grant(waiting).await;
    assert!(world.give_back("m", Claim::Fair, waiter).await);
}

/// P6: a first waiter that leaves while the lock is free passes its turn on: the next one is notified.
pub async fn a_withdrawn_head_passes_the_turn_on(world: &World) {
    let (head, next) = (world.stranger(), world.stranger());
    let holder = world.occupy("m", Claim::Fair).await;
    assert!(matches!(world.take(world.ask("m", Claim::Fair, head)).await, Attempt::Busy(_)));
    let subscription = world.listen("m", Kind::Mutex, Some(next)).await;
    let waiting = world.ask("m", Claim::Fair, next);
    assert!(matches!(world.take(waiting.clone()).await, Attempt::Busy(_)));
    assert!(world.give_back("m", Claim::Fair, holder).await);
    // Whether the first release notified this one too is left open: a notification may come for nothing.
    world.within(Duration::from_millis(50), subscription.notified()).await;
    assert!(matches!(world.take(waiting.clone()).await, Attempt::Busy(_)), "not its turn");
    let held = world.give_back("m", Claim::Fair, head).await;
    // Where places in a queue are holds, the first place held it without knowing.
    assert!(!held || world.capabilities().liveness != Liveness::Lease, "it held nothing");
    assert!(world.is_notified(&subscription).await, "the next was not told");
    world.grant(waiting).await;
    assert!(world.give_back("m", Claim::Fair, next).await);
}

/// `inspect` shows the queue in its order.
pub async fn the_queue_is_seen_in_its_order(world: &World) {
    let holder = world.occupy("m", Claim::Fair).await;
    // Numbers that do not grow with the order of arrival, so that it is not by their value.
    let mut waiting = [world.stranger(), world.stranger(), world.stranger()];
    waiting.reverse();
    for owner in waiting {
        assert!(matches!(world.take(world.ask("m", Claim::Fair, owner)).await, Attempt::Busy(_)));
    }
    let found = world.look("m").await.expect("held");
    let seen: Vec<_> = found.queue.iter().map(|waiting| waiting.owner.clone()).collect();
    assert_eq!(seen, waiting.map(|owner| owner.to_string()));
    assert!(
        found.queue.iter().all(|waiting| waiting.claim == Claim::Fair && waiting.expires_in.is_none_or(|left| !left.is_zero()))
    );
    for owner in waiting.into_iter().chain([holder]) {
        world.give_back("m", Claim::Fair, owner).await;
    }
}

/// Asking again keeps the place; later waiters stay behind.
pub async fn asking_again_keeps_the_place(world: &World) {
    let (first, second) = (world.stranger(), world.stranger());
    let holder = world.occupy("m", Claim::Fair).await;
    for owner in [first, second, first] {
        let Attempt::Busy(busy) = world.take(world.ask("m", Claim::Fair, owner)).await else { panic!("held by another") };
        let ahead = u32::from(owner == second);
        assert!(busy.ahead.is_none_or(|told| told == ahead), "{:?} ahead instead of {ahead}", busy.ahead);
    }
    assert_eq!(world.queued("m").await, 2);
    assert!(world.give_back("m", Claim::Fair, holder).await);
    assert!(matches!(world.take(world.ask("m", Claim::Fair, second)).await, Attempt::Busy(_)), "it overtook");
    world.grant(world.ask("m", Claim::Fair, first)).await;
    assert!(world.give_back("m", Claim::Fair, first).await);
    world.grant(world.ask("m", Claim::Fair, second)).await;
    assert!(world.give_back("m", Claim::Fair, second).await);
}

/// A living waiter keeps its place however long it waits, also beyond the time that one request keeps a place.
pub async fn a_place_lasts_while_its_waiter_lives(world: &World) {
    let holder = world.occupy("m", Claim::Fair).await;
    let patient = world.client_with(|settings| settings.place = Duration::from_secs(2));
    let first = world.spawn(async move { FairMutex::new(&patient, "m").lock().await.unwrap() });
    world.until("it stands in the queue", || async { world.queued("m").await == 1 }).await;
    world.pass(Duration::from_secs(3)).await;
    let late = world.stranger();
    assert!(matches!(world.take(world.ask("m", Claim::Fair, late)).await, Attempt::Busy(_)));
    assert!(world.give_back("m", Claim::Fair, holder).await);
    let guard = first.await.unwrap();
    assert!(matches!(world.take(world.ask("m", Claim::Fair, late)).await, Attempt::Busy(_)));
    guard.release().await.unwrap();
    world.grant(world.ask("m", Claim::Fair, late)).await;
    assert!(world.give_back("m", Claim::Fair, late).await);
}

/// P5: when a holder dies, the waiter that has waited longest acquires it, not the one that asks first.
pub async fn an_expired_hold_goes_to_the_head(world: &World) {
    let began = world.now();
    world.grant(world.ask("m", Claim::Fair, world.stranger())).await;
    let order = Arc::new(Local::new(Vec::new()));
    let mut waiters = Vec::new();
    for number in 0..3 {
        let (client, order) = (world.client(), Arc::clone(&order));
        waiters.push(world.spawn(async move {
            let guard = FairMutex::new(&client, "m").lock().await.unwrap();
            order.lock().unwrap().push(number);
            guard.release().await.unwrap();
        }));
        world.until("it stands in the queue", || async { world.queued("m").await == number + 1 }).await;
    }
    for waiter in waiters {
        waiter.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), [0, 1, 2]);
    let took = world.since(began);
    // The first waiter asks when the lease ends; each of the others is notified, or asks within a second.
    assert!(took < world.units(10) + 3 * Duration::from_secs(1) + world.slack(), "all served after {took:?}");
}
