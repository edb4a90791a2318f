//! Fencing tokens: later grants have larger ones, whatever happened in between (P2).

use super::World;
use crate::backend::{Acquire, Claim};
use crate::layer::{Fault, Faulty};
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
        assert!(guard.token().unwrap().number() > last, "{} after {last}", guard.token().unwrap());
        assert_eq!(guard.token().unwrap().owner(), guard.owner());
        last = guard.token().unwrap().number();
        guard.release().await.unwrap();
    }
}

/// P2: across hand-overs inside a process.
pub async fn tokens_grow_across_hand_overs(world: &World) {
    let client = world.client();
    let guard = Mutex::new(&client, "m").lock().await.unwrap();
    let mut last = guard.token().unwrap().number();
    let waiters: Vec<_> = (0..5)
        .map(|_| {
            let client = client.clone();
            world.spawn(async move {
                let guard = Mutex::new(&client, "m").lock().await.unwrap();
                let token = guard.token().unwrap().number();
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
    assert!(guard.token().unwrap().number() > dead);
    guard.release().await.unwrap();
}

/// P2: across a forced release.
pub async fn tokens_grow_across_force(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let old = Mutex::new(&ours, "m").lock().await.unwrap();
    world.force("m").await;
    let new = Mutex::new(&theirs, "m").lock().await.unwrap();
    assert!(new.token().unwrap().number() > old.token().unwrap().number());
    assert!(old.release().await.is_err());
    new.release().await.unwrap();
}

/// P2: across a grant whose answer was lost: the token that the caller gets is larger than all earlier ones and smaller than all later ones.
pub async fn tokens_grow_across_lost_answers(world: &World) {
    let client = world.client();
    let mut last = 0;
    for fault in [Fault::BreakReply, Fault::LoseReply, Fault::LoseRequest, Fault::Pass] {
        world.chaos().next(Faulty::Acquire, fault);
        let guard = Mutex::new(&client, "m").lock().await.unwrap();
        assert!(guard.token().unwrap().number() > last, "{fault:?}");
        last = guard.token().unwrap().number();
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

/// Re-entry is the same hold with the same token.
pub async fn re_entry_mints_no_token(world: &World) {
    let client = world.client();
    let mutex = Mutex::new(&client, "m").owned_by(&world.owner(&client));
    let outer = mutex.lock().await.unwrap();
    let (inner, again) = (mutex.lock().await.unwrap(), outer.reenter().unwrap());
    assert_eq!(inner.token().unwrap(), outer.token().unwrap());
    assert_eq!(again.token().unwrap(), outer.token().unwrap());
    for guard in [outer, inner, again] {
        guard.release().await.unwrap();
    }
}

/// P2: a reader's token is not below the last writer's, and the next writer's is above all readers'.
pub async fn readers_and_writers_tokens_are_in_order(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let lock = RwLock::new(&ours, "r");
    let writer = lock.write().await.unwrap();
    let written = writer.token().unwrap().number();
    writer.release().await.unwrap();
    let readers = [lock.read().await.unwrap(), RwLock::new(&theirs, "r").read().await.unwrap()];
    let mut read = 0;
    for reader in readers {
        assert!(reader.token().unwrap().number() >= written, "a reader's token is below the last writer's");
        read = read.max(reader.token().unwrap().number());
        reader.release().await.unwrap();
    }
    let writer = RwLock::new(&theirs, "r").write().await.unwrap();
    assert!(writer.token().unwrap().number() > read && writer.token().unwrap().number() > written);
    writer.release().await.unwrap();
}
