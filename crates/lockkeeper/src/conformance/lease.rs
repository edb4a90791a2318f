//! How long a hold is valid, and how its end is reported.

use std::time::Duration;

use super::World;
use super::any::{How, take};
use crate::backend::LossReason;
use crate::error::ErrorKind;
use crate::layer::{Fault, Faulty};
use crate::sync::{Mutex, MutexGuard};

/// What clocks may drift apart over a lease, which validity is shorter by (P3).
fn drift(lease: Duration) -> Duration {
    lease / 100 + Duration::from_millis(2)
}

/// Without an explicit lease a hold of any kind is renewed.
pub async fn a_kept_hold_outlives_many_leases(world: &World) {
    let (client, other) = (world.client(), world.client());
    let mut guards = Vec::new();
    for (number, claim) in world.claims().into_iter().enumerate() {
        guards.push(take(&client, &format!("n{number}"), claim, How::default()).await.unwrap());
    }
    for _ in 0..3 {
        world.pass(world.lease()).await;
        for guard in &guards {
            assert!(guard.is_valid(), "{guard:?}");
        }
    }
    assert!(Mutex::new(&other, "n0").try_lock().await.unwrap().is_none());
    for guard in guards {
        guard.release().await.unwrap();
    }
}

/// P3, P5: with an explicit lease a hold of any kind ends by itself, and the guard reports it.
pub async fn an_explicit_lease_ends_by_itself(world: &World) {
    let client = world.client();
    for claim in world.claims() {
        let name = format!("{claim:?}");
        let lease = world.units(4);
        let guard = take(&client, &name, claim, How { lease: Some(lease), wait: None }).await.unwrap();
        let granted = world.now();
        assert!(guard.is_valid());
        assert_eq!(guard.lost().await, LossReason::Expired);
        assert!(world.since(granted) <= lease + world.slack());
        assert!(!guard.is_valid() && guard.remaining().is_zero());
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
        world.until("the store let go of it", || async { world.holders(&name).await == 0 }).await;
    }
}

/// P3: validity ends no later than the lease, counted from before the request was sent, less what clocks may drift.
pub async fn validity_ends_before_the_lease_does(world: &World) {
    let client = world.client();
    let lease = world.units(6);
    let guard = Mutex::new(&client, "m").lock().lease(lease).await.unwrap();
    let answered = world.now();
    assert!(guard.remaining() <= lease - drift(lease), "good for {:?} of {lease:?}", guard.remaining());
    // The request was sent before the answer came, so this is the latest that P3 allows.
    world.runtime().sleep_until(answered.plus(lease - drift(lease))).await;
    assert!(!guard.is_valid());
    drop(guard);
}

/// What is left of a hold goes down, and a renewal brings it up again.
pub async fn what_remains_goes_down_until_renewed(world: &World) {
    let client = world.client();
    let guard = Mutex::new(&client, "m").lock().lease(world.units(10)).await.unwrap();
    let before = guard.remaining();
    world.pass(world.units(2)).await;
    let after = guard.remaining();
    assert!(after <= before - world.units(2) && !after.is_zero(), "{before:?}, then {after:?}");
    guard.release().await.unwrap();
    let kept = Mutex::new(&client, "m").lock().await.unwrap();
    world.pass(world.lease() * 2 / 3).await;
    assert!(kept.remaining() > world.lease() / 2, "only {:?} left", kept.remaining());
    kept.release().await.unwrap();
}

/// More time may be asked for, and is then there, in the store too.
pub async fn extending_lengthens(world: &World) {
    let (client, other) = (world.client(), world.client());
    let guard = Mutex::new(&client, "m").lock().lease(world.units(6)).await.unwrap();
    world.pass(world.units(3)).await;
    guard.extend(world.units(20)).await.unwrap();
    assert!(guard.remaining() > world.units(15));
    world.pass(world.units(10)).await;
    assert!(guard.is_valid());
    assert!(Mutex::new(&other, "m").try_lock().await.unwrap().is_none());
    assert_eq!(guard.lost().await, LossReason::Expired);
    drop(guard);
}

/// A shorter extension never shortens a hold.
pub async fn extending_never_shortens(world: &World) {
    let (client, other) = (world.client(), world.client());
    let guard = Mutex::new(&client, "m").lock().lease(world.units(40)).await.unwrap();
    // Not too short: a request may take only a part of the lease that it asks for.
    guard.extend(world.units(10)).await.unwrap();
    assert!(guard.remaining() > world.units(30));
    world.pass(world.units(12)).await;
    assert!(guard.is_valid());
    assert!(Mutex::new(&other, "m").try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
}

/// A lost hold cannot be extended, whether the loss is known or the store is the first to report it.
pub async fn a_lost_hold_cannot_be_extended(world: &World) {
    let client = world.client();
    let expired = Mutex::new(&client, "a").lock().lease(world.units(2)).await.unwrap();
    let forced = Mutex::new(&client, "b").lock().await.unwrap();
    world.force("b").await;
    assert_eq!(forced.extend(world.units(9)).await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(!forced.is_valid(), "the store said so");
    expired.lost().await;
    assert_eq!(expired.extend(world.units(9)).await.unwrap_err().kind(), ErrorKind::Lost);
}

/// Leases out of the store's range are refused, and nothing is acquired.
pub async fn a_lease_out_of_range_is_refused(world: &World) {
    let client = world.client();
    let (least, most) = (world.capabilities().min_lease, world.capabilities().max_lease);
    let held = Mutex::new(&client, "held").lock().await.unwrap();
    for lease in [Duration::ZERO, Duration::MAX, least / 2, most + Duration::from_secs(1)] {
        for claim in world.claims() {
            let error = take(&client, "m", claim, How { lease: Some(lease), wait: None }).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{claim:?} for {lease:?}: {error}");
        }
        assert_eq!(held.extend(lease).await.unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    assert!(world.look("m").await.is_none(), "a refusal left something");
    for lease in [least, most] {
        drop(Mutex::new(&client, "edge").lock().lease(lease).await);
        world.until("it is free", || async { world.holders("edge").await == 0 }).await;
    }
    held.release().await.unwrap();
}

/// Work under a lock is dropped when the lock is lost, and runs to its end when it is not.
pub async fn work_is_dropped_when_the_hold_is_lost(world: &World) {
    let client = world.client();
    let guard = Mutex::new(&client, "m").lock().await.unwrap();
    assert_eq!(guard.run(async { 42 }).await.unwrap(), 42);
    world.force("m").await;
    let error = guard.run(std::future::pending::<()>()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert_eq!(guard.run(async { 42 }).await.unwrap_err().kind(), ErrorKind::Lost, "lost before it began");
}

/// Releases the name by force and checks that its holder learns of it in time (P4).
async fn told_in_time(world: &World, guard: MutexGuard, lease: Duration) {
    let began = world.now();
    world.force("m").await;
    assert_eq!(guard.lost().await, LossReason::Gone);
    let took = world.since(began);
    assert!(took <= lease / 3 + world.slack(), "told after {took:?}");
    assert!(!guard.is_valid());
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
}

/// P4: while the store answers, a loss is reported within a third of the lease.
pub async fn a_loss_is_told_within_a_third_of_the_lease(world: &World) {
    let client = world.client();
    let guard = Mutex::new(&client, "m").lock().await.unwrap();
    told_in_time(world, guard, world.lease()).await;
    // And so it is later in a hold's life.
    let guard = Mutex::new(&client, "m").lock().await.unwrap();
    world.pass(world.lease()).await;
    told_in_time(world, guard, world.lease()).await;
}

/// P4: a store that tells of deleted holds does so at once, to the one that held it and to nobody else.
pub async fn a_deleted_hold_is_told_at_once(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let guard = Mutex::new(&ours, "m").lock().await.unwrap();
    let others = [Mutex::new(&ours, "a").lock().await.unwrap(), Mutex::new(&theirs, "b").lock().await.unwrap()];
    let began = world.now();
    world.force("m").await;
    assert_eq!(guard.lost().await, LossReason::Gone);
    let took = world.since(began);
    assert!(took < world.soon() && took < world.lease() / 3, "told after {took:?}");
    for other in others {
        assert!(other.is_valid());
        other.release().await.unwrap();
    }
}

/// P4: a long lease of its own is not renewed, but looked at.
pub async fn a_long_explicit_lease_is_looked_at(world: &World) {
    let client = world.client();
    let lease = world.units(60).max(Duration::from_secs(3));
    let guard = Mutex::new(&client, "m").lock().lease(lease).await.unwrap();
    told_in_time(world, guard, lease).await;
}

/// P4: with an unreachable store the loss is reported at the deadline: not later, and not earlier, because unknown is not lost.
pub async fn an_unreachable_store_is_told_at_the_deadline(world: &World) {
    for fault in [Fault::Refuse, Fault::LoseRequest, Fault::LoseReply] {
        let client = world.client();
        let guard = Mutex::new(&client, "m").lock().await.unwrap();
        world.pass(world.units(3)).await;
        world.chaos().always(Faulty::Renew, fault);
        let deadline = world.now().plus(guard.remaining());
        assert_eq!(guard.lost().await, LossReason::Expired);
        let now = world.now();
        assert!(now >= deadline, "{fault:?}: told {:?} too early", deadline.since(now));
        assert!(now.since(deadline) <= world.slack(), "{fault:?}: told {:?} too late", now.since(deadline));
        world.chaos().calm();
        drop(guard);
        world.until("it is free", || async { world.holders("m").await == 0 }).await;
    }
}

/// P4: renewals that fail for a while cost nothing, if one gets through before the deadline.
pub async fn renewals_that_fail_for_a_while_cost_nothing(world: &World) {
    let client = world.client();
    let guard = Mutex::new(&client, "m").lock().await.unwrap();
    for fault in [Fault::Refuse, Fault::BreakReply, Fault::LoseRequest, Fault::Refuse] {
        world.chaos().next(Faulty::Renew, fault);
    }
    world.pass(world.lease() * 2).await;
    assert!(guard.is_valid());
    guard.release().await.expect("never lost");
}

/// A thousand holds are renewed by a few requests, not by a thousand.
pub async fn renewals_travel_together(world: &World) {
    let client = world.client();
    let mut guards = Vec::new();
    for number in 0..1_000 {
        guards.push(Mutex::new(&client, format!("m{number}")).lock().await.unwrap());
    }
    let (before, began) = (world.chaos().carried_out(Faulty::Renew), world.now());
    world.pass(world.lease()).await;
    let periods = 1 + (world.since(began).as_millis() / (world.lease() / 3).as_millis()) as usize;
    let renewals = world.chaos().carried_out(Faulty::Renew) - before;
    assert!((1..=12 * periods).contains(&renewals), "{renewals} requests in {periods} periods");
    assert!(guards.iter().all(|guard| guard.is_valid()));
    client.close().await.unwrap();
}

/// A hold near its end is looked at now and then, not all the time, whatever else the client is doing.
pub async fn a_hold_near_its_end_is_not_asked_about_all_the_time(world: &World) {
    let client = world.client();
    let lease = world.units(60).max(Duration::from_secs(3));
    let guard = Mutex::new(&client, "m").lock().lease(lease).await.unwrap();
    world.pass(guard.remaining() - lease / 60).await;
    let before = world.chaos().carried_out(Faulty::Renew);
    // Something that the keeper has to see to.
    drop(Mutex::new(&client, "other").lock().await.unwrap());
    guard.lost().await;
    let asked = world.chaos().carried_out(Faulty::Renew) - before;
    assert!(asked <= 3, "asked {asked} times");
}
