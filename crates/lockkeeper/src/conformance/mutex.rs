//! One holder at a time.

use std::time::Duration;

use super::World;
use crate::sync::Mutex;

/// P1: while one holds it nobody else gets it, neither another client nor another call of the same one.
pub async fn excludes_a_second_owner(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let guard = Mutex::new(&ours, "m").lock().await.unwrap();
    assert!(Mutex::new(&theirs, "m").try_lock().await.unwrap().is_none());
    assert!(Mutex::new(&ours, "m").try_lock().await.unwrap().is_none());
    assert_eq!(world.holders("m").await, 1);
    guard.release().await.unwrap();
    let guard = Mutex::new(&theirs, "m").try_lock().await.unwrap().expect("free");
    guard.release().await.unwrap();
}

/// P6: a waiter in another process gets it by push, long before it would have asked again by itself.
pub async fn wakes_a_waiter_when_released(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let guard = Mutex::new(&ours, "m").lock().await.unwrap();
    let waiter = world.spawn(async move { Mutex::new(&theirs, "m").lock().await.unwrap() });
    world.settle().await;
    let released = world.runtime().now();
    guard.release().await.unwrap();
    let guard = waiter.await.unwrap();
    let took = world.runtime().now().since(released);
    assert!(took < Duration::from_millis(500), "woken after {took:?}");
    guard.release().await.unwrap();
}
