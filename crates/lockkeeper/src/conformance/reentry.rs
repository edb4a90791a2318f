//! Re-entry: only for callers that ask for it.

use super::World;
use crate::error::ErrorKind;
use crate::layer::Faulty;
use crate::sync::{FairMutex, Mutex, RwLock};

/// An owner re-enters without a request. The name is free when the last guard is gone, in any order.
pub async fn an_owner_takes_it_again_without_a_request(world: &World) {
    let client = world.client();
    let mutex = Mutex::new(&client, "m").owned_by(&world.owner(&client));
    let outer = mutex.lock().await.unwrap();
    let asked = world.chaos().carried_out(Faulty::Acquire);
    let inner = mutex.lock().await.unwrap();
    let innermost = mutex.try_lock().await.unwrap().expect("its own");
    assert_eq!(world.chaos().carried_out(Faulty::Acquire), asked);
    assert_eq!((inner.owner(), innermost.token().unwrap()), (outer.owner(), outer.token().unwrap()));
    for guard in [outer, innermost] {
        guard.release().await.unwrap();
        assert_eq!(world.holders("m").await, 1);
        assert!(inner.is_valid());
    }
    inner.release().await.unwrap();
    assert_eq!(world.holders("m").await, 0);
    mutex.lock().await.unwrap().release().await.unwrap();
}

/// A dropped guard counts like a released one.
pub async fn the_last_guard_frees_it_also_when_dropped(world: &World) {
    let client = world.client();
    let mutex = Mutex::new(&client, "m").owned_by(&world.owner(&client));
    let (outer, inner) = (mutex.lock().await.unwrap(), mutex.lock().await.unwrap());
    drop(outer);
    world.settle().await;
    assert_eq!(world.holders("m").await, 1);
    drop(inner);
    world.until("it is free", || async { world.holders("m").await == 0 }).await;
}

/// P1: nobody else gets in: neither a handle without an owner nor another owner of the same client.
pub async fn others_are_excluded(world: &World) {
    let client = world.client();
    let mutex = Mutex::new(&client, "m");
    let guard = mutex.owned_by(&world.owner(&client)).lock().await.unwrap();
    assert!(mutex.try_lock().await.unwrap().is_none());
    assert!(mutex.owned_by(&world.owner(&client)).try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
}

/// A guard can be re-entered by its holder.
pub async fn a_guard_is_taken_again(world: &World) {
    let client = world.client();
    let guard = Mutex::new(&client, "m").lock().await.unwrap();
    let again = guard.reenter().unwrap();
    assert_eq!(again.token().unwrap(), guard.token().unwrap());
    guard.release().await.unwrap();
    assert!(again.is_valid());
    assert_eq!(world.holders("m").await, 1);
    again.release().await.unwrap();
    assert_eq!(world.holders("m").await, 0);
}

/// What is lost is not entered again, nor granted anew under the old guard; with that one gone it is.
pub async fn a_lost_hold_is_not_entered_again(world: &World) {
    let client = world.client();
    let mutex = Mutex::new(&client, "m").owned_by(&world.owner(&client));
    let guard = mutex.lock().await.unwrap();
    world.force("m").await;
    guard.lost().await;
    assert_eq!(mutex.lock().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(mutex.try_lock().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(guard.reenter().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(world.holders("m").await, 0);
    drop(guard);
    mutex.lock().await.unwrap().release().await.unwrap();
}

/// Taking it again with a short lease does not shorten the hold.
pub async fn re_entry_never_shortens_the_lease(world: &World) {
    let client = world.client();
    let mutex = Mutex::new(&client, "m").owned_by(&world.owner(&client));
    let outer = mutex.lock().await.unwrap();
    let inner = mutex.lock().lease(world.units(2)).await.unwrap();
    world.pass(world.units(5)).await;
    assert!(outer.is_valid() && inner.is_valid());
    inner.release().await.unwrap();
    world.pass(world.lease() * 2).await;
    assert!(outer.is_valid(), "it is no longer kept alive");
    outer.release().await.unwrap();
}

/// Two tasks of one owner that come at once are both in, by one request.
pub async fn two_tasks_of_one_owner_come_in_together(world: &World) {
    world.chaos().yielding(3);
    let client = world.client();
    let mutex = Mutex::new(&client, "m").owned_by(&world.owner(&client));
    let tasks: Vec<_> = (0..2)
        .map(|_| {
            let mutex = mutex.clone();
            world.spawn(async move { mutex.lock().await.unwrap() })
        })
        .collect();
    let mut guards = Vec::new();
    for task in tasks {
        guards.push(task.await.unwrap());
    }
    assert_eq!(world.chaos().carried_out(Faulty::Acquire), 1);
    assert_eq!(guards[0].token().unwrap(), guards[1].token().unwrap());
    for guard in guards {
        guard.release().await.unwrap();
    }
    assert_eq!(world.holders("m").await, 0);
}

/// An owner belongs to its client.
pub async fn an_owner_of_another_client_is_refused(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let error = Mutex::new(&ours, "m").owned_by(&world.owner(&theirs)).lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(world.holders("m").await, 0);
}

/// A fair mutex and both sides of a read-write lock are re-entered in the same way.
pub async fn every_lock_can_be_taken_again(world: &World) {
    let client = world.client();
    let owner = world.owner(&client);
    let can = world.capabilities();
    if can.fair {
        let fair = FairMutex::new(&client, "f").owned_by(&owner);
        let (outer, inner) = (fair.lock().await.unwrap(), fair.try_lock().await.unwrap().expect("its own"));
        let plain = Mutex::new(&client, "f").owned_by(&owner).try_lock().await.unwrap().expect("the same lock");
        for guard in [outer, inner, plain] {
            guard.release().await.unwrap();
        }
        assert_eq!(world.holders("f").await, 0);
    }
    if can.rwlock {
        let lock = RwLock::new(&client, "r").owned_by(&owner);
        let (outer, inner) = (lock.read().await.unwrap(), lock.read().await.unwrap());
        assert_eq!(world.holders("r").await, 1);
        outer.release().await.unwrap();
        inner.release().await.unwrap();
        let (outer, inner) = (lock.write().await.unwrap(), lock.write().await.unwrap());
        outer.release().await.unwrap();
        assert_eq!(world.holders("r").await, 1);
        inner.release().await.unwrap();
        assert_eq!(world.holders("r").await, 0);
    }
}
