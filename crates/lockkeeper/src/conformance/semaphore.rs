//! Semaphores: a number of permits, each with a lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::World;
use crate::backend::{Acquire, Claim, CountOp, Kind, SemaphoreOp};
use crate::error::ErrorKind;
use crate::sync::Semaphore;

/// P1: all clients together get as many permits as the semaphore has.
pub async fn gives_out_so_many_and_no_more(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let mut permits = Vec::new();
    for client in [&ours, &theirs, &ours] {
        permits.push(Semaphore::new(client, "s", 3).try_acquire().await.unwrap().expect("one is free"));
    }
    assert!(Semaphore::new(&theirs, "s", 3).try_acquire().await.unwrap().is_none());
    permits.pop().unwrap().release().await.unwrap();
    permits.push(Semaphore::new(&theirs, "s", 3).try_acquire().await.unwrap().expect("one came back"));
    for permit in permits {
        permit.release().await.unwrap();
    }
}

/// P1: never more holders than permits, however many ask.
pub async fn never_are_more_inside(world: &World) {
    let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = Vec::new();
    for client in [world.client(), world.client()] {
        for _ in 0..8 {
            let (client, inside, most) = (client.clone(), Arc::clone(&inside), Arc::clone(&most));
            tasks.push(world.spawn(async move {
                for _ in 0..3 {
                    let permit = Semaphore::new(&client, "s", 3).acquire().await.unwrap();
                    most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    for _ in 0..3 {
                        tokio::task::yield_now().await;
                    }
                    inside.fetch_sub(1, Ordering::SeqCst);
                    permit.release().await.unwrap();
                }
            }));
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    let most = most.load(Ordering::SeqCst);
    assert!((1..=3).contains(&most), "{most} were inside");
}

/// Several permits are acquired together or not at all, and released together.
pub async fn takes_several_at_once(world: &World) {
    let client = world.client();
    let semaphore = Semaphore::new(&client, "s", 3);
    let two = semaphore.acquire_many(2).await.unwrap();
    assert!(semaphore.try_acquire_many(2).await.unwrap().is_none());
    assert_eq!(semaphore.available().await.unwrap(), 1, "a refusal took something");
    two.release().await.unwrap();
    let all = semaphore.try_acquire_many(3).await.unwrap().expect("all are free");
    all.release().await.unwrap();
}

/// P6: a waiter of another client is woken when a permit is released.
pub async fn wakes_a_waiter_when_a_permit_comes_back(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let permit = Semaphore::new(&ours, "s", 1).acquire().await.unwrap();
    let waiter = world.spawn(async move { Semaphore::new(&theirs, "s", 1).acquire().await.unwrap() });
    world.settle().await;
    let released = world.now();
    permit.release().await.unwrap();
    let permit = waiter.await.unwrap();
    let took = world.since(released);
    assert!(took < world.soon(), "woken after {took:?}");
    permit.release().await.unwrap();
}

/// P6: and within a second when all notifications are lost.
pub async fn a_lost_wake_up_costs_at_most_a_second(world: &World) {
    world.chaos().mute();
    let (ours, theirs) = (world.client(), world.client());
    let permit = Semaphore::new(&ours, "s", 1).acquire().await.unwrap();
    let waiter = world.spawn(async move { Semaphore::new(&theirs, "s", 1).acquire().await.unwrap() });
    world.settle().await;
    let released = world.now();
    permit.release().await.unwrap();
    let permit = waiter.await.unwrap();
    let took = world.since(released);
    assert!(took <= Duration::from_secs(1) + world.slack(), "noticed after {took:?}");
    permit.release().await.unwrap();
}

/// Two waiters for two permits each both succeed, in one process or in two.
pub async fn two_waiters_for_two_permits_both_succeed(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let all = Semaphore::new(&ours, "s", 4).acquire_many(4).await.unwrap();
    let waiters: Vec<_> = [ours.clone(), ours.clone(), theirs.clone(), theirs]
        .into_iter()
        .map(|client| {
            world.spawn(async move { Semaphore::new(&client, "s", 4).acquire_many(2).await.unwrap().release().await.unwrap() })
        })
        .collect();
    world.settle().await;
    all.release().await.unwrap();
    for waiter in waiters {
        world.within(Duration::from_secs(5), waiter).await.expect("permits").unwrap();
    }
}

/// In one process a large request is not overtaken for ever by small ones.
pub async fn a_large_request_keeps_its_turn(world: &World) {
    let client = world.client();
    let semaphore = Semaphore::new(&client, "s", 3);
    let (one, other) = (semaphore.acquire().await.unwrap(), semaphore.acquire().await.unwrap());
    let large = world.spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire_many(3).await.unwrap() }
    });
    world.settle().await;
    let small = world.spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await.unwrap() }
    });
    one.release().await.unwrap();
    world.settle().await;
    assert!(!small.is_finished(), "the small request overtook the large one");
    other.release().await.unwrap();
    large.await.unwrap().release().await.unwrap();
    small.await.unwrap().release().await.unwrap();
}

/// P5: the permits of a crashed client are free when their lease ends, and waiters get them then.
pub async fn a_crash_gives_its_permits_back(world: &World) {
    let client = world.client();
    let began = world.now();
    world.grant(world.ask("s", Claim::Permits { take: 2, of: 3 }, world.stranger())).await;
    let living = Acquire { lease: world.units(100), ..world.ask("s", Claim::Permits { take: 1, of: 3 }, world.stranger()) };
    let owner = living.owner;
    world.grant(living).await;
    let semaphore = Semaphore::new(&client, "s", 3);
    assert_eq!(semaphore.available().await.unwrap(), 0);
    let permit = semaphore.acquire_many(2).await.unwrap();
    let took = world.since(began);
    assert!(took + Duration::from_millis(5) >= world.units(10), "taken from the living after {took:?}");
    assert!(took < world.units(10) + Duration::from_secs(1) + world.slack(), "back after {took:?}");
    assert_eq!(semaphore.available().await.unwrap(), 0, "the living one lost its permit");
    permit.release().await.unwrap();
    assert!(world.give_back("s", Claim::Permits { take: 1, of: 3 }, owner).await);
}

/// A handle with another size gets an error with the true size, and acquires nothing.
pub async fn another_size_is_refused_naming_the_stored_one(world: &World) {
    let client = world.client();
    let permit = Semaphore::new(&client, "s", 3).acquire().await.unwrap();
    for wrong in [2, 4] {
        let error = Semaphore::new(&client, "s", wrong).try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains('3'), "{error}");
    }
    assert_eq!(Semaphore::new(&client, "s", 3).available().await.unwrap(), 2);
    permit.release().await.unwrap();
}

/// Numbers out of range are refused.
pub async fn zero_and_too_many_are_refused(world: &World) {
    let client = world.client();
    let semaphore = Semaphore::new(&client, "s", 3);
    let none = Semaphore::new(&client, "s", 0);
    for error in [
        semaphore.acquire_many(0).await.unwrap_err(),
        semaphore.try_acquire_many(0).await.unwrap_err(),
        semaphore.acquire_many(4).await.unwrap_err(),
        none.acquire().await.unwrap_err(),
        semaphore.resize(0).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
    assert!(world.look("s").await.is_none(), "a refusal left something");
}

/// It exists from its first use on, and keeps its size when all permits are released.
pub async fn keeps_its_size_when_all_permits_are_back(world: &World) {
    let client = world.client();
    let semaphore = Semaphore::new(&client, "s", 3);
    assert_eq!(semaphore.available().await.unwrap(), 3, "before the first use");
    let permits = semaphore.acquire_many(2).await.unwrap();
    assert_eq!(semaphore.available().await.unwrap(), 1);
    permits.release().await.unwrap();
    assert_eq!(semaphore.available().await.unwrap(), 3);
    let error = Semaphore::new(&client, "s", 5).try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

/// Added permits are free at once, and waiters are notified.
pub async fn growing_tells_those_who_wait(world: &World) {
    let client = world.client();
    let semaphore = Semaphore::new(&client, "s", 1);
    let permit = semaphore.acquire().await.unwrap();
    let subscription = world.listen("s", Kind::Semaphore, None).await;
    let grown = semaphore.resize(2).await.unwrap();
    assert!(world.is_notified(&subscription).await, "nobody was told");
    let second = grown.try_acquire().await.unwrap().expect("a new permit");
    for permit in [permit, second] {
        permit.release().await.unwrap();
    }
}

/// A handle of any size uses the size that is there; its own counts only for a semaphore that is new.
pub async fn a_handle_of_any_size_uses_what_is_there(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let two = Semaphore::new(&ours, "s", 2).acquire_many(2).await.unwrap();
    let strict = Semaphore::new(&theirs, "s", 5);
    assert_eq!(strict.try_acquire().await.unwrap_err().kind(), ErrorKind::InvalidArgument, "it has 2");
    let any = strict.clone().any_size();
    assert!(any.try_acquire().await.unwrap().is_none(), "it has 2, and both are held");
    two.release().await.unwrap();
    let two = any.try_acquire_many(2).await.unwrap().expect("both are free");
    assert_eq!(strict.try_acquire().await.unwrap_err().kind(), ErrorKind::InvalidArgument, "another handle still checks");
    two.release().await.unwrap();
    let new = Semaphore::new(&theirs, "new", 3).any_size();
    let three = new.try_acquire_many(3).await.unwrap().expect("its own size");
    assert!(new.try_acquire().await.unwrap().is_none());
    three.release().await.unwrap();
}

/// A waiter whose handle has the old size uses the new one at once, and so do later calls of its handle.
pub async fn a_waiter_learns_of_a_resize(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let semaphore = Semaphore::new(&ours, "s", 1);
    let permit = semaphore.acquire().await.unwrap();
    let handle = Semaphore::new(&theirs, "s", 1);
    let waiting = handle.clone();
    let waiter = world.spawn(async move { waiting.acquire().await });
    world.settle().await;
    semaphore.resize(3).await.unwrap();
    let second = world.within(Duration::from_secs(1) + world.slack(), waiter).await.expect("an answer").unwrap().unwrap();
    let third = handle.try_acquire().await.unwrap().expect("there are three");
    assert!(handle.try_acquire().await.unwrap().is_none() && semaphore.try_acquire().await.unwrap().is_none());
    let error = Semaphore::new(&ours, "s", 1).try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "a new handle is checked");
    for permit in [permit, second, third] {
        permit.release().await.unwrap();
    }
}

/// Shrinking takes no permit from its holder; released permits above the new size are not granted again.
pub async fn shrinking_takes_nothing_from_holders(world: &World) {
    let client = world.client();
    let semaphore = Semaphore::new(&client, "s", 3);
    let (two, one) = (semaphore.acquire_many(2).await.unwrap(), semaphore.acquire().await.unwrap());
    let small = semaphore.resize(1).await.unwrap();
    assert_eq!(small.available().await.unwrap(), -2);
    world.pass(world.lease() * 2).await;
    assert!(two.is_valid() && one.is_valid(), "holds from before must be kept alive");
    two.release().await.unwrap();
    assert!(small.try_acquire().await.unwrap().is_none(), "one is still held");
    one.release().await.unwrap();
    let permit = small.try_acquire().await.unwrap().expect("the one there is");
    assert!(small.try_acquire().await.unwrap().is_none());
    permit.release().await.unwrap();
}

/// It can be removed while nobody holds a permit, and created again with another size.
pub async fn is_removed_only_when_nobody_holds_a_permit(world: &World) {
    let client = world.client();
    let semaphore = Semaphore::new(&client, "s", 2);
    assert!(!semaphore.remove().await.unwrap(), "nothing there");
    let permit = semaphore.acquire().await.unwrap();
    assert!(!semaphore.remove().await.unwrap(), "somebody holds a permit");
    assert_eq!(semaphore.available().await.unwrap(), 1);
    permit.release().await.unwrap();
    assert!(semaphore.remove().await.unwrap());
    let permit = Semaphore::new(&client, "s", 5).acquire_many(5).await.unwrap();
    permit.release().await.unwrap();
}

/// The size may be set before the first use, once.
pub async fn the_size_is_set_once(world: &World) {
    let client = world.client();
    for (size, done) in [(3, true), (5, false)] {
        let request = world.tell("s", CountOp::Semaphore(SemaphoreOp::Init(size)));
        assert!(matches!(world.count(&request).await, crate::backend::CountOutcome::Counted(counted) if counted.done == done));
    }
    Semaphore::new(&client, "s", 3).acquire().await.unwrap().release().await.unwrap();
}
