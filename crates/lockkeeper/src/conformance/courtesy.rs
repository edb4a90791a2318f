//! Whoever gives something back and asks for it again at once does not keep it from those of other processes who were woken by that.

use super::World;
use super::any::{How, take};
use crate::backend::{Claim, Kind, Release};
use crate::name::Name;

/// How often one may take it again while another waits: as an exception, not as a rule.
const AGAIN: u32 = 10;

/// Has one client give back and take again, with a new handle each time, while another waits.
async fn lets_another_in(world: &World, claim: Claim) {
    let (ours, theirs) = (world.client(), world.client());
    let mut guard = take(&ours, "m", claim, How::default()).await.unwrap();
    let waiter = world.spawn(async move { take(&theirs, "m", claim, How::default()).await.unwrap().release().await.unwrap() });
    world.settle().await;
    for turn in 0.. {
        guard.release().await.unwrap();
        guard = take(&ours, "m", claim, How::default()).await.unwrap();
        if waiter.is_finished() {
            break;
        }
        assert!(turn < AGAIN, "taken again {turn} times while another waited");
    }
    waiter.await.unwrap();
    guard.release().await.unwrap();
}

/// A mutex.
pub async fn who_takes_a_mutex_again_lets_another_in(world: &World) {
    lets_another_in(world, Claim::Mutex).await;
}

/// The writer's side of a read-write lock.
pub async fn who_writes_again_lets_another_in(world: &World) {
    lets_another_in(world, Claim::Write).await;
}

/// The only permit.
pub async fn who_takes_a_permit_again_lets_another_in(world: &World) {
    lets_another_in(world, Claim::Permits { take: 1, of: 1 }).await;
}

/// A release tells whether it woke somebody.
pub async fn a_release_tells_whether_it_woke_somebody(world: &World) {
    let holder = world.occupy("m", Claim::Mutex).await;
    let release = |owner| Release { name: Name::new("m").unwrap(), claim: Claim::Mutex, owner, then: None };
    assert_eq!(world.backend().release(release(holder)).await.unwrap().woke, 0, "nobody listened");
    let holder = world.occupy("m", Claim::Mutex).await;
    let bell = world.listen("m", Kind::Mutex, None).await;
    assert_eq!(world.backend().release(release(holder)).await.unwrap().woke, 1);
    assert_eq!(world.backend().release(release(holder)).await.unwrap().woke, 0, "nothing was given back");
    drop(bell);
}
