//! Counting semaphores: a shared number without owners and leases.

use std::time::Duration;

use super::World;
use crate::error::ErrorKind;
use crate::layer::{Fault, Faulty};
use crate::sync::CountingSemaphore;

/// All clients see the same number, and acquiring never makes it negative.
pub async fn counts_what_is_given_and_taken(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let (here, there) = (CountingSemaphore::new(&ours, "c"), CountingSemaphore::new(&theirs, "c"));
    assert_eq!(here.available().await.unwrap(), 0, "never set");
    assert!(!here.try_acquire(1).await.unwrap());
    assert_eq!(here.release(3).await.unwrap(), 3);
    assert!(there.try_acquire(2).await.unwrap());
    assert!(!here.try_acquire(2).await.unwrap());
    assert_eq!(there.available().await.unwrap(), 1);
    here.acquire(1).await.unwrap();
    assert_eq!(there.available().await.unwrap(), 0);
}

/// P6: a waiter for two permits is not served by one, and is woken by the second, however it is added.
pub async fn wakes_a_waiter_when_enough_is_there(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let here = CountingSemaphore::new(&ours, "c");
    for by_release in [true, false] {
        let there = CountingSemaphore::new(&theirs, "c");
        let waiter = world.spawn(async move { there.acquire(2).await.unwrap() });
        world.settle().await;
        here.release(1).await.unwrap();
        world.settle().await;
        assert!(!waiter.is_finished(), "one is not two");
        let given = world.now();
        if by_release {
            here.release(1).await.unwrap()
        } else {
            here.add(1).await.unwrap()
        };
        waiter.await.unwrap();
        let took = world.since(given);
        assert!(took < world.soon(), "woken after {took:?}");
        assert_eq!(here.available().await.unwrap(), 0);
    }
}

/// P6: if notifications are lost, refused or unanswered, a waiter is at most a second late.
pub async fn a_lost_wake_up_costs_at_most_a_second(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    for fault in [None, Some(Fault::Refuse), Some(Fault::LoseRequest)] {
        world.chaos().calm();
        match fault {
            None => world.chaos().mute(),
            Some(fault) => world.chaos().always(Faulty::Watch, fault),
        }
        let there = CountingSemaphore::new(&theirs, "c");
        let waiter = world.spawn(async move { there.acquire(1).await.unwrap() });
        // Soon after it began to wait: a subscription that nobody answers is still being waited for then.
        world.pass(world.units(1) / 2).await;
        let given = world.now();
        CountingSemaphore::new(&ours, "c").release(1).await.unwrap();
        waiter.await.unwrap();
        let took = world.since(given);
        assert!(took <= Duration::from_secs(1) + world.slack(), "{fault:?}: noticed after {took:?}");
    }
}

/// Exactly as many as there are permits get one, however many ask at once.
pub async fn gives_out_exactly_what_is_there(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    assert!(CountingSemaphore::new(&ours, "c").try_set(10).await.unwrap());
    let takers: Vec<_> = (0..30)
        .map(|number| {
            let semaphore = CountingSemaphore::new(if number % 2 == 0 { &ours } else { &theirs }, "c");
            world.spawn(async move { semaphore.try_acquire(1).await.unwrap() })
        })
        .collect();
    let mut got = 0;
    for taker in takers {
        got += usize::from(taker.await.unwrap());
    }
    assert_eq!(got, 10);
}

/// Permits do not return by themselves: there is no lease.
pub async fn nothing_comes_back_by_itself(world: &World) {
    let client = world.client();
    let semaphore = CountingSemaphore::new(&client, "c");
    semaphore.release(3).await.unwrap();
    semaphore.acquire(1).await.unwrap();
    world.pass(world.lease() * 2).await;
    assert_eq!(semaphore.available().await.unwrap(), 2);
}

/// Acquiring zero permits always succeeds and creates nothing.
pub async fn taking_none_is_immediate_and_changes_nothing(world: &World) {
    let client = world.client();
    let semaphore = CountingSemaphore::new(&client, "c");
    semaphore.acquire(0).await.unwrap();
    assert!(semaphore.try_acquire(0).await.unwrap());
    assert!(semaphore.try_set(2).await.unwrap(), "it was set by nobody");
    semaphore.acquire(0).await.unwrap();
    assert_eq!(semaphore.available().await.unwrap(), 2);
}

/// Permits that were added before the number is set are not lost by setting it.
pub async fn what_is_given_before_it_is_set_stays(world: &World) {
    let client = world.client();
    let semaphore = CountingSemaphore::new(&client, "c");
    assert_eq!(semaphore.release(1).await.unwrap(), 1);
    assert!(!semaphore.try_set(5).await.unwrap());
    assert_eq!(semaphore.available().await.unwrap(), 1);
}

/// It can be set once; a number of zero counts as set.
pub async fn is_set_once(world: &World) {
    let client = world.client();
    let semaphore = CountingSemaphore::new(&client, "c");
    assert!(semaphore.try_set(1).await.unwrap());
    assert!(!semaphore.try_set(2).await.unwrap());
    semaphore.acquire(1).await.unwrap();
    assert!(!semaphore.try_set(2).await.unwrap(), "empty is not unset");
    assert_eq!(semaphore.available().await.unwrap(), 0);
}

/// The number may be reduced below zero; then nobody is served before it is positive again.
pub async fn adding_may_go_below_zero(world: &World) {
    let client = world.client();
    let semaphore = CountingSemaphore::new(&client, "c");
    assert_eq!(semaphore.add(2).await.unwrap(), 2);
    assert_eq!(semaphore.add(-5).await.unwrap(), -3);
    assert!(!semaphore.try_acquire(1).await.unwrap());
    assert_eq!(semaphore.release(3).await.unwrap(), 0);
    assert!(!semaphore.try_acquire(1).await.unwrap());
    assert_eq!(semaphore.release(1).await.unwrap(), 1);
    assert!(semaphore.try_acquire(1).await.unwrap());
    assert_eq!(semaphore.add(i32::MAX).await.unwrap(), i64::from(i32::MAX));
    assert_eq!(semaphore.release(u32::MAX).await.unwrap(), i64::from(i32::MAX) + i64::from(u32::MAX));
}

/// Draining leaves none and tells how many there were, also where that is a negative number.
pub async fn drains_all_there_are(world: &World) {
    let client = world.client();
    let semaphore = CountingSemaphore::new(&client, "c");
    assert_eq!(semaphore.drain().await.unwrap(), 0);
    semaphore.release(4).await.unwrap();
    assert_eq!(semaphore.drain().await.unwrap(), 4);
    assert_eq!(semaphore.available().await.unwrap(), 0);
    semaphore.add(-2).await.unwrap();
    assert_eq!(semaphore.drain().await.unwrap(), -2);
    assert_eq!(semaphore.available().await.unwrap(), 0);
}

/// After it is removed it can be set again.
pub async fn removing_starts_anew(world: &World) {
    let client = world.client();
    let semaphore = CountingSemaphore::new(&client, "c");
    assert!(!semaphore.remove().await.unwrap());
    semaphore.release(4).await.unwrap();
    assert!(semaphore.remove().await.unwrap());
    assert_eq!(semaphore.available().await.unwrap(), 0);
    assert!(semaphore.try_set(1).await.unwrap());
}

/// A number out of range is refused.
pub async fn giving_none_is_refused(world: &World) {
    let client = world.client();
    let error = CountingSemaphore::new(&client, "c").release(0).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

/// A waiter that times out has taken nothing, and times out at its limit.
pub async fn a_waiter_that_gives_up_takes_nothing(world: &World) {
    let client = world.client();
    let semaphore = CountingSemaphore::new(&client, "c");
    semaphore.release(1).await.unwrap();
    let (began, limit) = (world.now(), world.units(3));
    let error = semaphore.acquire(2).timeout(limit).await.unwrap_err();
    let took = world.since(began);
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(took >= limit && took < limit + world.slack(), "waited {took:?} of {limit:?}");
    semaphore.release(1).await.unwrap();
    world.settle().await;
    assert_eq!(semaphore.available().await.unwrap(), 2);
}

/// A request whose answer was lost is sent again and counts once. If the outcome stays unknown, the error is `Indeterminate`.
pub async fn a_lost_answer_counts_once(world: &World) {
    let client = world.client_with(|settings| settings.command_timeout = world.units(6));
    let semaphore = CountingSemaphore::new(&client, "c");
    world.chaos().next(Faulty::Count, Fault::BreakReply);
    assert_eq!(semaphore.release(2).await.unwrap(), 2);
    world.chaos().next(Faulty::Count, Fault::Refuse);
    assert!(semaphore.try_acquire(1).await.unwrap());
    assert_eq!(semaphore.available().await.unwrap(), 1);
    world.chaos().next(Faulty::Count, Fault::LoseReply);
    match semaphore.release(2).await {
        Ok(value) => assert_eq!(value, 3),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}"),
    }
    assert_eq!(semaphore.available().await.unwrap(), 3, "it counted more than once, or not at all");
}
