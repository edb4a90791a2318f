//! Taken away by the other side: the next one gets it at once, and who had it learns of it.

use std::time::{Duration, Instant};

use crate::object::Object;
use crate::wake::at_once;
use crate::world::World;

pub(crate) async fn their_force_takes_ours(world: World, object: Object) {
    let (name, java) = (object.fresh(&world).await, world.java.thread("one"));
    let client = world.client_with(Duration::from_secs(3)).await;
    let ours = object.take(&client, &name, None).await;
    assert_eq!(java.ask(format!("{} forceUnlock {name}", object.word())).await, true);
    let theirs = object.try_theirs(&java, &name).await.expect("free");
    tokio::time::timeout(Duration::from_secs(20), ours.held().lost()).await.expect("we are told");
    assert!(!ours.held().is_valid());
    drop(ours);
    assert!(object.try_take(&world.client, &name).await.is_none(), "theirs is untouched");
    theirs.release().await;
}

pub(crate) async fn our_force_takes_theirs(world: World, object: Object) {
    let (name, java) = (object.fresh(&world).await, world.java.thread("one"));
    let theirs = object.theirs(&java, &name, Some(Duration::from_secs(30))).await;
    let waiting = object.begin(&world.java.thread("two"), &name, None);
    world.listeners(&object.channels(&name), 1).await;
    assert_eq!(world.client.force_release(&name).await.unwrap().from.len(), 1);
    // Its lease has half a minute to go: only a call wakes the waiter.
    let next = waiting.taken().await.unwrap();
    theirs.try_release().await.unwrap_err();
    assert!(object.is_locked(&java, &name).await, "the next one's is untouched");
    next.release().await;
}

/// A fair mutex has no queue inside the process: who waits is served by the store at once, and who had it is told at its next renewal.
pub(crate) async fn their_force_serves_our_next_waiter(world: World, object: Object) {
    let client = world.client_with(Duration::from_secs(3)).await;
    let mut served = Vec::new();
    for _ in 0..5 {
        let (name, java) = (object.fresh(&world).await, world.java.thread("one"));
        let ours = object.take(&client, &name, None).await;
        let waiting = tokio::spawn({
            let (client, name) = (client.clone(), name.clone());
            async move { object.take(&client, &name, None).await }
        });
        world.listeners(&object.channels(&name), 1).await;
        assert_eq!(java.ask(format!("{} forceUnlock {name}", object.word())).await, true);
        let began = Instant::now();
        let next = waiting.await.unwrap();
        served.push(began.elapsed());
        // A third of the lease, and what a busy machine takes.
        tokio::time::timeout(Duration::from_millis(2_500), ours.held().lost()).await.expect("we are told");
        assert!(next.held().is_valid(), "the next one's is untouched");
        next.release().await.unwrap();
    }
    at_once(served);
}

/// While another task of our process waits for what theirs takes from us, we are told at once, and that task has it.
pub(crate) async fn their_force_is_told_where_another_of_ours_waits(world: World, object: Object) {
    let (mut told, mut served) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let (name, java) = (object.fresh(&world).await, world.java.thread("one"));
        let ours = object.take(&world.client, &name, None).await;
        let waiting = tokio::spawn({
            let (client, name) = (world.client.clone(), name.clone());
            async move { object.take(&client, &name, None).await }
        });
        world.listeners(&object.channels(&name), 1).await;
        assert_eq!(java.ask(format!("{} forceUnlock {name}", object.word())).await, true);
        let began = Instant::now();
        let lost = async {
            ours.held().lost().await;
            began.elapsed()
        };
        let next = async {
            let next = waiting.await.unwrap();
            (next, began.elapsed())
        };
        let (lost, (next, had)) = tokio::join!(lost, next);
        told.push(lost);
        served.push(had);
        next.release().await.unwrap();
    }
    at_once(told);
    at_once(served);
}
