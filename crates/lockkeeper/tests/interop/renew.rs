//! Each side keeps what is its own, and nothing that is the other's.

use std::time::{Duration, Instant};

use redis::Commands as _;

use crate::object::Object;
use crate::world::World;

/// Renewed every third of it.
const SHORT: Duration = Duration::from_millis(1500);

pub(crate) async fn their_watchdog_keeps_theirs(world: World, object: Object) {
    let (name, java) = (object.fresh(&world).await, world.java_with(SHORT).await);
    let theirs = object.theirs(&java.thread("one"), &name, None).await;
    outlives(&world, object, &name).await;
    theirs.release().await;
}

/// Redisson 3.44 to 3.52 did not: see `defects::a_read_hold_taken_twice_is_not_kept`.
pub(crate) async fn their_watchdog_keeps_a_read_hold_taken_twice(world: World, object: Object) {
    let (name, java) = (object.fresh(&world).await, world.java_with(SHORT).await);
    let reader = java.thread("one");
    let (first, second) = (object.theirs(&reader, &name, None).await, object.theirs(&reader, &name, None).await);
    outlives(&world, object, &name).await;
    first.release().await;
    second.release().await;
}

pub(crate) async fn our_keeper_keeps_ours(world: World, object: Object) {
    let (name, client) = (object.fresh(&world).await, world.client_with(SHORT).await);
    let ours = object.take(&client, &name, None).await;
    outlives(&world, object, &name).await;
    assert!(ours.held().is_valid());
    ours.release().await.unwrap();
}

/// Nobody else gets it for three leases.
async fn outlives(world: &World, object: Object, name: &str) {
    let other = if object == Object::Read { Object::Write } else { object };
    let (java, began) = (world.java.thread("other"), Instant::now());
    while began.elapsed() < 3 * SHORT {
        assert!(other.try_take(&world.client, name).await.is_none(), "free after {:?}", began.elapsed());
        assert!(other.try_theirs(&java, name).await.is_none(), "free after {:?}", began.elapsed());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

pub(crate) async fn their_watchdog_does_not_keep_ours(world: World, object: Object) {
    let (name, java) = (object.fresh(&world).await, world.java_with(SHORT).await);
    object.theirs(&java.thread("one"), &name, None).await;
    assert_eq!(world.client.force_release(&name).await.unwrap().from.len(), 1);
    // Java still thinks that it holds the lock, and its watchdog runs.
    let ours = object.take(&world.client, &name, Some(2 * SHORT)).await;
    only_falls(&world, &name).await;
    drop(ours);
}

pub(crate) async fn our_keeper_does_not_keep_theirs(world: World, object: Object) {
    let (name, java) = (object.fresh(&world).await, world.java.thread("one"));
    let client = world.client_with(SHORT).await;
    let ours = object.take(&client, &name, None).await;
    assert_eq!(java.ask(format!("{} forceUnlock {name}", object.word())).await, true);
    let theirs = object.theirs(&java, &name, Some(2 * SHORT)).await;
    only_falls(&world, &name).await;
    drop((ours, theirs));
}

/// The lease of the name runs out without ever getting longer.
async fn only_falls(world: &World, name: &str) {
    let mut eyes = world.eyes();
    let mut last: i64 = eyes.pttl(name).unwrap();
    assert!(last > 0);
    let began = Instant::now();
    while last > 0 {
        assert!(began.elapsed() < 10 * SHORT, "it never ends");
        tokio::time::sleep(Duration::from_millis(50)).await;
        let left: i64 = eyes.pttl(name).unwrap();
        assert!(left <= last, "renewed from {last} to {left} ms");
        last = left;
    }
}
