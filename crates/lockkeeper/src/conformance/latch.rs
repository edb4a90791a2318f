//! A gate that opens when so many events have happened.

use std::time::Duration;

use super::World;
use crate::backend::{CountOp, CountOutcome, LatchOp};
use crate::error::ErrorKind;
use crate::layer::{Fault, Faulty};
use crate::sync::CountDownLatch;

/// It is closed until the last event has happened, for all clients, and open then.
pub async fn opens_when_all_events_have_happened(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let (here, there) = (CountDownLatch::new(&ours, "l"), CountDownLatch::new(&theirs, "l"));
    assert!(here.try_set(2).await.unwrap());
    assert_eq!(there.count().await.unwrap(), 2);
    assert_eq!(there.wait().timeout(world.units(1)).await.unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(there.count_down().await.unwrap(), 1);
    assert_eq!(here.count_down().await.unwrap(), 0);
    here.wait().await.unwrap();
    there.wait().await.unwrap();
}

/// P6: all waiters are woken together, and not before the count is zero.
pub async fn wakes_all_who_wait(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let latch = CountDownLatch::new(&ours, "l");
    latch.try_set(2).await.unwrap();
    let waiters: Vec<_> = (0..6)
        .map(|number| {
            let latch = CountDownLatch::new(if number % 2 == 0 { &ours } else { &theirs }, "l");
            world.spawn(async move { latch.wait().await.unwrap() })
        })
        .collect();
    world.settle().await;
    latch.count_down().await.unwrap();
    world.settle().await;
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()), "one event is still to come");
    let opened = world.now();
    latch.count_down().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap();
    }
    let took = world.since(opened);
    assert!(took < world.soon(), "woken after {took:?}");
}

/// P6: with notifications lost, refused or unanswered a waiter is a second late at most.
pub async fn a_lost_wake_up_costs_at_most_a_second(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let latch = CountDownLatch::new(&ours, "l");
    for fault in [None, Some(Fault::Refuse), Some(Fault::LoseRequest)] {
        world.chaos().calm();
        match fault {
            None => world.chaos().mute(),
            Some(fault) => world.chaos().always(Faulty::Watch, fault),
        }
        latch.try_set(1).await.unwrap();
        let there = CountDownLatch::new(&theirs, "l");
        let waiter = world.spawn(async move { there.wait().await.unwrap() });
        // Soon after it began to wait: a subscription that nobody answers is still being waited for then.
        world.pass(world.units(1) / 2).await;
        let opened = world.now();
        latch.count_down().await.unwrap();
        waiter.await.unwrap();
        let took = world.since(opened);
        assert!(took <= Duration::from_secs(1) + world.slack(), "{fault:?}: noticed after {took:?}");
    }
}

/// As many events as waiters, all at once: nobody is left standing.
pub async fn many_events_and_many_waiters_all_end(world: &World) {
    let clients = [world.client(), world.client()];
    CountDownLatch::new(&clients[0], "l").try_set(20).await.unwrap();
    let tasks: Vec<_> = (0..20)
        .map(|number| {
            let latch = CountDownLatch::new(&clients[number % 2], "l");
            world.spawn(async move {
                latch.count_down().await.unwrap();
                latch.wait().await.unwrap();
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(CountDownLatch::new(&clients[0], "l").count().await.unwrap(), 0);
}

/// Further events do nothing to an open latch, nor to one that never was.
pub async fn further_events_do_nothing(world: &World) {
    let client = world.client();
    let latch = CountDownLatch::new(&client, "l");
    assert_eq!(latch.count_down().await.unwrap(), 0, "never set");
    latch.try_set(1).await.unwrap();
    for _ in 0..3 {
        assert_eq!(latch.count_down().await.unwrap(), 0);
    }
    assert!(latch.try_set(2).await.unwrap());
    assert_eq!(latch.count().await.unwrap(), 2, "events from before count now");
    latch.remove().await.unwrap();
}

/// It is set only while it is open, and may be used again when it is.
pub async fn is_set_only_while_open(world: &World) {
    let client = world.client();
    let latch = CountDownLatch::new(&client, "l");
    assert!(latch.try_set(1).await.unwrap());
    assert!(!latch.try_set(5).await.unwrap());
    assert_eq!(latch.count().await.unwrap(), 1);
    latch.count_down().await.unwrap();
    assert!(latch.try_set(5).await.unwrap(), "it is open and may be set again");
    assert_eq!(latch.wait().timeout(Duration::ZERO).await.unwrap_err().kind(), ErrorKind::Timeout);
    latch.remove().await.unwrap();
}

/// Waiting for a latch that is not there is over at once.
pub async fn a_missing_one_is_open(world: &World) {
    let client = world.client();
    let latch = CountDownLatch::new(&client, "l");
    assert_eq!(latch.count().await.unwrap(), 0);
    latch.wait().timeout(Duration::ZERO).await.unwrap();
    assert!(world.look("l").await.is_none(), "looking left something");
}

/// P6: removing a latch wakes its waiters.
pub async fn removing_lets_those_who_wait_go_on(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let latch = CountDownLatch::new(&ours, "l");
    assert!(!latch.remove().await.unwrap(), "nothing there");
    latch.try_set(3).await.unwrap();
    let there = CountDownLatch::new(&theirs, "l");
    let waiter = world.spawn(async move { there.wait().await.unwrap() });
    world.settle().await;
    let removed = world.now();
    assert!(latch.remove().await.unwrap());
    waiter.await.unwrap();
    let took = world.since(removed);
    assert!(took < world.soon(), "woken after {took:?}");
}

/// It stays closed without a time limit: there is no lease.
pub async fn stays_closed_without_a_lease(world: &World) {
    let client = world.client();
    let latch = CountDownLatch::new(&client, "l");
    latch.try_set(2).await.unwrap();
    drop(client);
    world.pass(world.lease() * 2).await;
    assert_eq!(latch.count().await.unwrap(), 2);
    latch.remove().await.unwrap();
}

/// A wait limit is kept: not less, and not much more.
pub async fn keeps_a_wait_limit(world: &World) {
    let client = world.client();
    let latch = CountDownLatch::new(&client, "l");
    latch.try_set(1).await.unwrap();
    let (began, limit) = (world.now(), world.units(3));
    assert_eq!(latch.wait().timeout(limit).await.unwrap_err().kind(), ErrorKind::Timeout);
    let took = world.since(began);
    assert!(took >= limit && took < limit + world.slack(), "waited {took:?} of {limit:?}");
    latch.remove().await.unwrap();
}

/// A latch of zero events makes no sense and is refused.
pub async fn a_latch_of_none_is_refused(world: &World) {
    let client = world.client();
    let error = CountDownLatch::new(&client, "l").try_set(0).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

/// A count whose answer was lost is sent again and counts once. If the outcome stays unknown, the error is `Indeterminate`.
pub async fn a_lost_answer_counts_once(world: &World) {
    let client = world.client_with(|settings| settings.command_timeout = world.units(6));
    let latch = CountDownLatch::new(&client, "l");
    world.chaos().next(Faulty::Count, Fault::BreakReply);
    assert!(latch.try_set(5).await.unwrap(), "it was we who set it");
    world.chaos().next(Faulty::Count, Fault::BreakReply);
    assert_eq!(latch.count_down().await.unwrap(), 4);
    world.chaos().next(Faulty::Count, Fault::LoseReply);
    match latch.count_down().await {
        Ok(to_go) => assert_eq!(to_go, 3),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}"),
    }
    assert_eq!(latch.count().await.unwrap(), 3, "it counted more than once, or not at all");
    latch.remove().await.unwrap();
}

/// A repeated request is recognised though the latch it set is open, and gone, meanwhile: it does not close it again.
pub async fn a_repeated_set_does_not_close_it_again(world: &World) {
    let set = world.tell("l", CountOp::Latch(LatchOp::Init(1)));
    let down = world.tell("l", CountOp::Latch(LatchOp::Down));
    for request in [&set, &down, &set, &down] {
        assert!(matches!(world.count(request).await, CountOutcome::Counted(counted) if counted.done), "{:?}", request.op);
    }
    CountDownLatch::new(&world.client(), "l").wait().timeout(Duration::ZERO).await.expect("open");
}
