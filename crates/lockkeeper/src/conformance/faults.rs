//! Trouble between the client and the store: lost requests, lost answers, refusals. Each call ends with the right answer, and leaves nothing.

use std::time::Duration;

use super::World;
use super::any::{How, take, try_take};
use super::mutex::count_under;
use crate::backend::Claim;
use crate::error::ErrorKind;
use crate::layer::{Fault, Faulty};
use crate::name::Name;
use crate::sync::Mutex;

/// Acquires every kind of lock while the first request meets `fault`. It is then held once, by the guard's owner.
async fn acquire_despite(world: &World, fault: Fault, carried_out: usize) {
    let client = world.client();
    for claim in world.claims() {
        let name = format!("{claim:?}");
        let before = world.chaos().carried_out(Faulty::Acquire);
        world.chaos().next(Faulty::Acquire, fault);
        let guard = take(&client, &name, claim, How::default()).await.unwrap();
        assert_eq!(world.chaos().carried_out(Faulty::Acquire) - before, carried_out, "{claim:?}");
        let found = world.look(&name).await.expect("held");
        assert_eq!(found.holders.len(), 1, "{claim:?} {fault:?}: {found:?}");
        // Permits may be known to a store by ids of their own.
        if claim.kind() != crate::backend::Kind::Semaphore {
            assert_eq!(found.holders[0].owner, guard.owner().to_string());
        }
        guard.release().await.unwrap();
        assert_eq!(world.holders(&name).await, 0, "{claim:?}: one release was not enough");
    }
}

/// P5: a grant whose answer never came is asked for again by the same owner, and is one hold.
pub async fn a_grant_without_an_answer_is_asked_for_again(world: &World) {
    acquire_despite(world, Fault::LoseReply, 2).await;
}

/// P5: the same for a broken answer.
pub async fn a_grant_with_a_broken_answer_is_asked_for_again(world: &World) {
    acquire_despite(world, Fault::BreakReply, 2).await;
}

/// A request that never arrived is sent again.
pub async fn a_lost_request_is_sent_again(world: &World) {
    acquire_despite(world, Fault::LoseRequest, 1).await;
}

/// A store that refuses for a moment is asked again.
pub async fn a_refusal_is_tried_again(world: &World) {
    acquire_despite(world, Fault::Refuse, 1).await;
}

/// A try does not wait for others, but it does not give up because of one lost answer either.
pub async fn a_try_survives_a_lost_answer(world: &World) {
    let client = world.client();
    for claim in world.claims() {
        let name = format!("{claim:?}");
        for fault in [Fault::LoseReply, Fault::BreakReply, Fault::LoseRequest, Fault::Refuse] {
            world.chaos().next(Faulty::Acquire, fault);
            let guard = try_take(&client, &name, claim).await.unwrap().unwrap_or_else(|| panic!("{claim:?} is free"));
            assert_eq!(world.holders(&name).await, 1);
            guard.release().await.unwrap();
            world.until("it is free", || async { world.holders(&name).await == 0 }).await;
        }
    }
}

/// A release whose answer was lost, or that had to be sent again, is a release.
pub async fn a_release_without_an_answer_is_success(world: &World) {
    let client = world.client();
    for claim in world.claims() {
        let name = format!("{claim:?}");
        for fault in [Fault::LoseReply, Fault::BreakReply, Fault::LoseRequest, Fault::Refuse] {
            let guard = take(&client, &name, claim, How::default()).await.unwrap();
            world.chaos().next(Faulty::Release, fault);
            guard.release().await.unwrap_or_else(|error| panic!("{claim:?} {fault:?}: {error}"));
            world.until("it is free", || async { world.holders(&name).await == 0 }).await;
        }
    }
}

/// A dropped guard is released although the first attempts fail.
pub async fn a_dropped_guard_is_given_back_despite_trouble(world: &World) {
    let client = world.client();
    for fault in [Fault::LoseReply, Fault::BreakReply, Fault::LoseRequest, Fault::Refuse] {
        let guard = Mutex::new(&client, "m").lock().await.unwrap();
        world.chaos().next(Faulty::Release, fault);
        drop(guard);
        world.until("it is free", || async { world.holders("m").await == 0 }).await;
    }
}

/// When the store does not answer a release, the caller gets an error, and the release is retried: the name is free once the store is back.
pub async fn a_failed_release_goes_on_in_the_background(world: &World) {
    let client = world.client_with(|settings| settings.command_timeout = world.units(4));
    let guard = Mutex::new(&client, "m").lock().await.unwrap();
    world.chaos().always(Faulty::Release, Fault::Refuse);
    let error = guard.release().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(world.holders("m").await, 1);
    world.chaos().calm();
    let back = world.now();
    world.until("it is free", || async { world.holders("m").await == 0 }).await;
    assert!(world.since(back) < Duration::from_secs(2) + world.slack());
}

/// The error for an unreachable store differs from the one for a held lock, and comes within the timeout.
pub async fn an_unreachable_store_is_told_within_the_wait(world: &World) {
    let client = world.client();
    for (fault, kind) in [
        (Fault::Refuse, ErrorKind::Unavailable),
        (Fault::LoseRequest, ErrorKind::Indeterminate),
        (Fault::LoseReply, ErrorKind::Indeterminate),
    ] {
        for claim in world.claims() {
            let name = format!("{claim:?}");
            world.chaos().always(Faulty::Acquire, fault);
            let (began, wait) = (world.now(), world.units(5));
            let error = take(&client, &name, claim, How { wait: Some(wait), lease: None }).await.unwrap_err();
            let took = world.since(began);
            assert_eq!(error.kind(), kind, "{claim:?} {fault:?}: {error}");
            assert!(took <= wait + Duration::from_secs(1) + world.slack(), "{claim:?} {fault:?}: told after {took:?}");
            world.chaos().calm();
            world.until("it is free", || async { world.holders(&name).await == 0 }).await;
            // The client learns that the store is back: otherwise the next call may fail without asking.
            client.read(client.backend().inspect(Name::new(&name).unwrap())).await.unwrap();
        }
    }
}

/// A try at an unreachable store is an error, not "busy", and comes within about the time that a command may take.
pub async fn a_try_at_an_unreachable_store_is_an_error(world: &World) {
    let client = world.client_with(|settings| settings.command_timeout = world.units(6));
    for (fault, kind) in [(Fault::Refuse, ErrorKind::Unavailable), (Fault::LoseRequest, ErrorKind::Indeterminate)] {
        world.chaos().always(Faulty::Acquire, fault);
        let began = world.now();
        assert_eq!(Mutex::new(&client, "m").try_lock().await.unwrap_err().kind(), kind);
        let took = world.since(began);
        assert!(took <= world.units(6) + Duration::from_secs(2) + world.slack(), "{fault:?}: told after {took:?}");
        world.chaos().calm();
    }
}

/// A call without a wait limit waits for others as long as it takes, but for an unreachable store only as long as its patience.
pub async fn a_call_without_limit_gives_an_unreachable_store_up(world: &World) {
    let client = world.client_with(|settings| settings.outage_timeout = world.units(10));
    world.chaos().always(Faulty::Acquire, Fault::Refuse);
    let began = world.now();
    assert_eq!(Mutex::new(&client, "m").lock().await.unwrap_err().kind(), ErrorKind::Unavailable);
    let took = world.since(began);
    assert!(took >= world.units(10) - Duration::from_millis(100), "gave up after {took:?}");
    assert!(took <= world.units(10) + Duration::from_secs(2) + world.slack(), "gave up after {took:?}");
}

/// A waiter bears trouble with the store and gets its turn when that is over.
pub async fn a_waiter_survives_trouble_with_the_store(world: &World) {
    let (client, holder) = (world.client(), world.occupy("m", Claim::Mutex).await);
    let waiter = world.spawn(async move { Mutex::new(&client, "m").lock().await.unwrap() });
    world.settle().await;
    world.chaos().always(Faulty::Acquire, Fault::Refuse);
    assert!(world.give_back("m", Claim::Mutex, holder).await);
    world.pass(world.units(3)).await;
    world.chaos().calm();
    let guard = world.within(Duration::from_secs(2) + world.slack(), waiter).await.expect("its turn").unwrap();
    guard.release().await.unwrap();
}

/// P5: a call that gives up after a lost grant leaves the name free long before the lease ends.
pub async fn a_grant_that_nobody_heard_of_is_given_back(world: &World) {
    let client = world.client();
    for claim in world.claims() {
        let name = format!("{claim:?}");
        world.chaos().always(Faulty::Acquire, Fault::LoseReply);
        let how = How { wait: Some(world.units(2)), lease: Some(world.capabilities().max_lease) };
        assert!(take(&client, &name, claim, how).await.is_err());
        world.chaos().calm();
        world.until("it is free", || async { world.holders(&name).await == 0 }).await;
    }
}

/// P5: a hand-over whose answer was lost leaves one holder: the waiter it was for.
pub async fn a_hand_over_without_an_answer_is_one_hold(world: &World) {
    let client = world.client();
    for fault in [Fault::LoseReply, Fault::BreakReply, Fault::LoseRequest, Fault::Refuse] {
        let guard = Mutex::new(&client, "m").lock().await.unwrap();
        let waiter = world.spawn({
            let client = client.clone();
            async move { Mutex::new(&client, "m").lock().await.unwrap() }
        });
        world.settle().await;
        world.chaos().next(Faulty::Release, fault);
        guard.release().await.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        let guard = world.within(Duration::from_secs(10), waiter).await.unwrap_or_else(|| panic!("{fault:?}: no turn")).unwrap();
        let found = world.look("m").await.expect("held");
        assert_eq!(found.holders[0].owner, guard.owner().to_string());
        guard.release().await.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        world.until("it is free", || async { world.holders("m").await == 0 }).await;
    }
}

/// P1: with all faults at once no update is lost, and everybody gets turns.
pub async fn a_storm_of_faults_loses_no_update(world: &World) {
    for round in 0..40 {
        for (number, which) in [Faulty::Acquire, Faulty::Release, Faulty::Renew, Faulty::Watch].into_iter().enumerate() {
            let fault =
                [Fault::Pass, Fault::Refuse, Fault::BreakReply, Fault::Pass, Fault::LoseReply, Fault::Pass, Fault::LoseRequest]
                    [(round * 3 + number) % 7];
            // Silence costs real time: less of it.
            let silent = matches!(fault, Fault::LoseReply | Fault::LoseRequest);
            world.chaos().next(which, if silent && round % 10 != 0 { Fault::Pass } else { fault });
        }
    }
    count_under(world, |client| Mutex::new(client, "m"), 2, 4, 4).await;
}
