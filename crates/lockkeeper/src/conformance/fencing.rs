//! Tokens: later is larger, whatever happened in between (P2).

use super::World;
use crate::backend::{Acquire, Attempt, Claim, Release};
use crate::layer::{Fault, Faulty};
use crate::name::Name;
use crate::sync::{FairMutex, Mutex, RwLock};

/// P2: across releases, clients, and the kinds of mutex.
pub async fn tokens_grow_across_releases_and_clients(world: &World) {
    let clients = [world.client(), world.client()];
    let mut last = 0;
    for round in 0..10 {
        let client = &clients[round % 2];
        let guard = if round % 3 == 0 && world.capabilities().fair {
            FairMutex::new(client, "m").lock().await.unwrap()
        } else {
            Mutex::new(client, "m").lock().await.unwrap()
        };
        assert!(guard.token().number() > last, "{} after {last}", guard.token());
        assert_eq!(guard.token().owner(), guard.owner());
        last = guard.token().number();
        guard.release().await.unwrap();
    }
}

/// P2: across hand-overs inside a process.
pub async fn tokens_grow_across_hand_overs(world: &World) {
    let client = world.client();
    let guard = Mutex::new(&client, "m").lock().await.unwrap();
    let mut last = guard.token().number();
    let waiters: Vec<_> = (0..5)
        .map(|_| {
            let client = client.clone();
            world.spawn(async move {
                let guard = Mutex::new(&client, "m").lock().await.unwrap();
                let token = guard.token().number();
                guard.release().await.unwrap();
                token
            })
        })
        .collect();
    world.settle().await;
    guard.release().await.unwrap();
    for waiter in waiters {
        let token = waiter.await.unwrap();
        assert!(token > last, "{token} after {last}");
        last = token;
    }
}

/// P2: across the expiry of a holder that died.
pub async fn tokens_grow_across_expiry(world: &World) {
    let client = world.client();
    let short = Acquire { lease: world.units(2), ..world.ask("m", Claim::Mutex, world.stranger()) };
    let dead = world.grant(short).await.token.expect("a token");
    let guard = Mutex::new(&client, "m").lock().await.unwrap();
    assert!(guard.token().number() > dead);
    guard.release().await.unwrap();
}

/// P2: across a forced release.
pub async fn tokens_grow_across_force(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let old = Mutex::new(&ours, "m").lock().await.unwrap();
    world.force("m").await;
    let new = Mutex::new(&theirs, "m").lock().await.unwrap();
    assert!(new.token().number() > old.token().number());
    assert!(old.release().await.is_err());
    new.release().await.unwrap();
}

/// P2: across a grant whose answer was lost: what the caller is told is larger than all before, and smaller than all after.
pub async fn tokens_grow_across_lost_answers(world: &World) {
    let client = world.client();
    let mut last = 0;
    for fault in [Fault::BreakReply, Fault::LoseReply, Fault::LoseRequest, Fault::Pass] {
        world.chaos().next(Faulty::Acquire, fault);
        let guard = Mutex::new(&client, "m").lock().await.unwrap();
        assert!(guard.token().number() > last, "{fault:?}");
        last = guard.token().number();
        guard.release().await.unwrap();
    }
}

/// A grant that is asked for again may carry a larger token, and never a smaller one.
pub async fn a_repeated_grant_has_no_smaller_token(world: &World) {
    for claim in world.claims().into_iter().filter(|claim| !matches!(claim, Claim::Permits { .. })) {
        let request = world.ask(&format!("{claim:?}"), claim, world.stranger());
        let first = world.grant(request.clone()).await.token.expect("a token");
        let again = world.grant(request.clone()).await.token.expect("a token");
        assert!(again >= first, "{claim:?}: {again} after {first}");
        assert!(world.give_back(request.name.as_str(), claim, request.owner).await);
    }
}

/// A token is at least the floor that was asked for, and later ones are larger still.
pub async fn the_floor_is_respected(world: &World) {
    let first = world.stranger();
    let usual = world.grant(world.ask("m", Claim::Mutex, first)).await.token.expect("a token");
    assert!(world.give_back("m", Claim::Mutex, first).await);
    let floor = usual + 1_000_000_000_000;
    let second = world.stranger();
    let lifted = world.grant(Acquire { floor, ..world.ask("m", Claim::Mutex, second) }).await.token.expect("a token");
    assert!(lifted >= floor);
    assert!(world.give_back("m", Claim::Mutex, second).await);
    let third = world.stranger();
    let after = world.grant(world.ask("m", Claim::Mutex, third)).await.token.expect("a token");
    assert!(after > lifted, "{after} after {lifted}");
    assert!(world.give_back("m", Claim::Mutex, third).await);
}

/// The floor holds for a successor, too.
pub async fn the_floor_is_respected_in_a_hand_over(world: &World) {
    let (first, second) = (world.stranger(), world.stranger());
    let usual = world.grant(world.ask("m", Claim::Mutex, first)).await.token.expect("a token");
    let floor = usual + 1_000_000_000_000;
    let then = Acquire { floor, ..world.ask("m", Claim::Mutex, second) };
    let name = Name::new("m").unwrap();
    let release = Release { name, claim: Claim::Mutex, owner: first, then: Some(Box::new(then)), settle: false };
    let released = world.backend().release(release).await.unwrap();
    assert!(matches!(released.next, Some(Attempt::Granted(grant)) if grant.token >= Some(floor)), "{released:?}");
    assert!(world.give_back("m", Claim::Mutex, second).await);
}

/// Re-entry is the same hold with the same token.
pub async fn re_entry_mints_no_token(world: &World) {
    let client = world.client();
    let mutex = Mutex::new(&client, "m").owned_by(&world.owner(&client));
    let outer = mutex.lock().await.unwrap();
    let (inner, again) = (mutex.lock().await.unwrap(), outer.reenter().unwrap());
    assert_eq!(inner.token(), outer.token());
    assert_eq!(again.token(), outer.token());
    for guard in [outer, inner, again] {
        guard.release().await.unwrap();
    }
}

/// P2: a reader's token is not below the last writer's, and the next writer's is above all readers'.
pub async fn readers_and_writers_tokens_are_in_order(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let lock = RwLock::new(&ours, "r");
    let writer = lock.write().await.unwrap();
    let written = writer.token().number();
    writer.release().await.unwrap();
    let readers = [lock.read().await.unwrap(), RwLock::new(&theirs, "r").read().await.unwrap()];
    let mut read = 0;
    for reader in readers {
        assert!(reader.token().number() >= written, "a reader's token is below the last writer's");
        read = read.max(reader.token().number());
        reader.release().await.unwrap();
    }
    let writer = RwLock::new(&theirs, "r").write().await.unwrap();
    assert!(writer.token().number() > read && writer.token().number() > written);
    writer.release().await.unwrap();
}
