//! A client that releases and acquires again does not keep the lock from the waiters of other clients that its release woke.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::World;
use super::any::{How, take};
use crate::backend::{Claim, Kind, Release};
use crate::name::Name;
use crate::sync::Mutex;

/// How often a client may acquire it again while another one waits.
const AGAIN: usize = 10;

/// One client releases and acquires again, with a new handle each time, while another one waits.
async fn lets_another_in(world: &World, claim: Claim) {
    let (ours, theirs) = (world.client(), world.client());
    let mut guard = take(&ours, "m", claim, How::default()).await.unwrap();
    // Told as soon as it has it. The end of its task may come much later: that needs an executor that is not busy with the turns below.
    let had_its_turn = Arc::new(AtomicBool::new(false));
    let tell = Arc::clone(&had_its_turn);
    let waiter = world.spawn(async move {
        let guard = take(&theirs, "m", claim, How::default()).await.unwrap();
        tell.store(true, Ordering::Relaxed);
        guard.release().await.unwrap();
    });
    world.settle().await;
    let mut turns = Vec::new();
    while !had_its_turn.load(Ordering::Relaxed) {
        assert!(turns.len() <= AGAIN, "taken again while another waited, {} times, after {turns:?}", turns.len());
        let began = world.now();
        guard.release().await.unwrap();
        guard = take(&ours, "m", claim, How::default()).await.unwrap();
        turns.push(world.since(began));
    }
    waiter.await.unwrap();
    guard.release().await.unwrap();
}

/// A mutex.
pub async fn a_client_that_locks_again_lets_another_in(world: &World) {
    lets_another_in(world, Claim::Mutex).await;
}

/// The writer's side of a read-write lock.
pub async fn a_client_that_writes_again_lets_another_in(world: &World) {
    lets_another_in(world, Claim::Write).await;
}

/// The only permit.
pub async fn a_client_that_takes_a_permit_again_lets_another_in(world: &World) {
    lets_another_in(world, Claim::Permits { take: 1, of: 1 }).await;
}

/// A client that is woken and does not ask delays nobody: the lock is acquired again soon, and a try always asks the store.
pub async fn a_woken_client_that_does_not_ask_delays_nobody(world: &World) {
    let client = world.client();
    let subscription = world.listen("m", Kind::Mutex, None).await;
    let mutex = Mutex::new(&client, "m");
    mutex.lock().await.unwrap().release().await.unwrap();
    let began = world.now();
    let guard = mutex.lock().await.unwrap();
    let took = world.since(began);
    assert!(took < world.soon() + world.slack(), "taken again after {took:?}");
    guard.release().await.unwrap();
    let guard = mutex.try_lock().await.unwrap().expect("nobody has it, and nobody asks for it");
    guard.release().await.unwrap();
    drop(subscription);
}

/// A release tells whether it woke somebody.
pub async fn a_release_tells_whether_it_woke_somebody(world: &World) {
    // A name of its own: some stores notify for a name in every database, and other tests may use the same server.
    let name = format!("m-{}", world.client().id());
    let holder = world.occupy(&name, Claim::Mutex).await;
    let release = |owner| Release::new(Name::new(&name).unwrap(), Claim::Mutex, owner);
    assert_eq!(world.backend().release(release(holder)).await.unwrap().woke, Some(0), "nobody listened");
    let holder = world.occupy(&name, Claim::Mutex).await;
    let subscription = world.listen(&name, Kind::Mutex, None).await;
    assert_eq!(world.backend().release(release(holder)).await.unwrap().woke, Some(1));
    assert_eq!(world.backend().release(release(holder)).await.unwrap().woke, Some(0), "nothing was released");
    drop(subscription);
}
