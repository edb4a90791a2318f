//! Sessions: all that lives in one ends with it, at once, and nothing else does.

use std::time::Duration;

use super::World;
use super::any::{How, rival, take, try_take};
use crate::backend::{Acquire, Attempt, Claim, LossReason};
use crate::error::ErrorKind;
use crate::layer::{Fault, Faulty};
use crate::sync::Mutex;

/// After this time a session that nobody kept alive has ended at the store, and the store has acted on it.
fn over(world: &World) -> Duration {
    world.lease() + world.lease() / 10 + world.slack()
}

/// P5: all holds of a dead client are free when its session ends, and no earlier.
pub async fn the_holds_of_a_dead_client_end_with_its_session(world: &World) {
    let client = world.client();
    for claim in world.claims() {
        let name = format!("{claim:?}");
        let dead = world.connect();
        let holds = dead.acquire(world.ask(&name, rival(claim), world.stranger())).await.unwrap();
        assert!(matches!(holds, Attempt::Granted(_)), "{holds:?}");
        assert!(try_take(&client, &name, claim).await.unwrap().is_none());
        let began = world.now();
        let guard = take(&client, &name, claim, How { wait: Some(2 * over(world)), lease: None }).await.unwrap();
        let took = world.since(began);
        assert!(took + world.slack() >= world.lease() && took <= over(world), "{claim:?}: free after {took:?}");
        guard.release().await.unwrap();
    }
}

/// P5: a place in a queue of a client that died does not outlive its session.
pub async fn the_places_of_a_dead_client_end_with_its_session(world: &World) {
    for claim in world.claims() {
        let name = format!("{claim:?}");
        let holder = world.occupy(&name, rival(claim)).await;
        let dead = world.connect();
        let waits = dead.acquire(world.ask(&name, claim, world.stranger())).await.unwrap();
        assert!(matches!(waits, Attempt::Busy(busy) if busy.placed), "{waits:?}");
        assert_eq!(world.queued(&name).await, 1);
        world.pass(over(world)).await;
        assert_eq!(world.queued(&name).await, 0, "{claim:?}");
        assert!(world.give_back(&name, rival(claim), holder).await, "a hold of another session went with it");
    }
}

/// P1: a request that was sent in a session that has ended is refused, or granted in a new session; never in the old one.
pub async fn a_request_of_an_ended_session_is_not_granted(world: &World) {
    for claim in world.claims() {
        let name = format!("{claim:?}");
        let connection = world.connect();
        let old = connection.keep_alive().await.unwrap().session;
        world.pass(over(world)).await;
        let owner = world.stranger();
        match connection.acquire(world.ask(&name, claim, owner)).await {
            Ok(Attempt::Granted(grant)) => assert!(grant.session > old, "{claim:?}: granted in a session that has ended"),
            Ok(other) => panic!("{claim:?}: {other:?}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "nothing was done: {error}"),
        }
        let next = connection.keep_alive().await.unwrap().session;
        assert!(next > old, "{claim:?}: an ended session was continued");
        world.give_back(&name, claim, owner).await;
        assert_eq!(world.holders(&name).await, 0);
    }
}

/// A keep-alive keeps everything that lives in the session, whatever it is and however many, and answers for how long.
pub async fn a_kept_alive_session_keeps_its_holds(world: &World) {
    let connection = world.connect();
    let mut held = Vec::new();
    for claim in world.claims() {
        let request = world.ask(&format!("{claim:?}"), claim, world.stranger());
        let attempt = connection.acquire(request.clone()).await.unwrap();
        let Attempt::Granted(grant) = attempt else { panic!("{claim:?}: {attempt:?}") };
        assert!(grant.session > 0 && grant.good_for <= world.lease(), "{grant:?}");
        held.push((request, grant));
    }
    for _ in 0..8 {
        world.pass(world.lease() / 2).await;
        let kept = connection.keep_alive().await.unwrap();
        assert!(held.iter().all(|(_, grant)| grant.session == kept.session) && kept.good_for <= world.lease());
    }
    for (Acquire { name, claim, owner, .. }, _) in held {
        assert!(world.renew(name.as_str(), claim, owner, None).await.is_kept(), "{claim:?}");
        assert!(world.give_back(name.as_str(), claim, owner).await, "{claim:?}");
    }
}

/// P4: when the session of a client ends, all its holds are lost; no other client's are.
pub async fn an_ended_session_ends_every_hold_of_the_client(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let mut guards = Vec::new();
    for claim in world.claims() {
        guards.push(take(&ours, &format!("{claim:?}"), claim, How::default()).await.unwrap());
    }
    world.chaos().always(Faulty::Renew, Fault::LoseRequest);
    let began = world.now();
    for guard in &guards {
        guard.lost().await;
        assert!(world.since(began) <= world.lease() + world.slack(), "told after {:?}", world.since(began));
    }
    world.chaos().calm();
    world.pass(over(world)).await;
    for claim in world.claims() {
        let guard = try_take(&theirs, &format!("{claim:?}"), claim).await.unwrap().expect("free");
        world.pass(world.lease() / 10).await;
        assert!(guard.is_valid());
        guard.release().await.unwrap();
    }
    for guard in guards {
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    }
    let again = Mutex::new(&ours, "again").lock().await.unwrap();
    world.pass(2 * world.lease()).await;
    assert!(again.is_valid(), "a new session is kept alive as the first one was");
    again.release().await.unwrap();
}

/// P1, P3: a client that is cut off knows that its hold is over before the store can give it to another.
pub async fn a_cut_connection_makes_no_second_holder(world: &World) {
    let ours = world.client();
    let guard = Mutex::new(&ours, "m").lock().await.unwrap();
    let waiting = world.ask("m", Claim::Mutex, world.stranger());
    assert!(matches!(world.take(waiting.clone()).await, Attempt::Busy(_)));
    world.pass(world.lease() / 2).await;
    assert!(guard.is_valid());
    world.chaos().always(Faulty::Renew, Fault::LoseRequest);
    let deadline = world.now().plus(2 * over(world));
    while matches!(world.take(waiting.clone()).await, Attempt::Busy(_)) {
        assert!(world.now() < deadline, "the session of a client that is cut off does not end");
        world.pass(world.lease() / 100).await;
    }
    assert!(!guard.is_valid(), "two holders");
    assert!(matches!(guard.loss().reason(), Some(LossReason::Expired | LossReason::Gone)));
    world.chaos().calm();
    assert!(world.give_back("m", Claim::Mutex, waiting.owner).await);
}
