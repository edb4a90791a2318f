//! Cancelled calls: a call that is dropped at any point leaves nothing behind.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::World;
use super::any::{How, rival, take, try_take};
use crate::backend::{Acquire, Claim};
use crate::runtime::BoxFuture;
use crate::session::Session;
use crate::sync::{CountDownLatch, CountingSemaphore, MultiLock, Mutex, RwLock};

const PERMIT: Claim = Claim::Permits { take: 1, of: 1 };

/// Polls up to `times` times and lets other tasks run in between. Returns the result if the future completed.
async fn poll<T>(world: &World, future: &mut BoxFuture<'_, T>, times: usize) -> Option<T> {
    for _ in 0..times {
        if let Poll::Ready(ended) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Some(ended);
        }
        world.beat().await;
    }
    None
}

async fn becomes_free(world: &World) {
    world
        .until("nothing is left", || async {
            world.look("n").await.is_none_or(|found| found.holders.is_empty() && found.queue.is_empty())
        })
        .await;
}

/// A name that is free now may be acquired once more by a request of a dropped call that is still on its way; that is undone too.
async fn another_gets_it(world: &World, other: &Session, claim: Claim) {
    for _ in 0..100 {
        becomes_free(world).await;
        if let Some(guard) = try_take(other, "n", claim).await.unwrap() {
            return guard.release().await.unwrap();
        }
    }
    panic!("free again and again, and nobody gets it");
}

/// Drops the acquire of a free name after one poll, after two, … until it completes.
async fn cut_when_free(world: &World, claim: Claim) {
    world.chaos().yielding(2);
    let client = world.client();
    for polls in 1.. {
        let mut acquiring = take(&client, "n", claim, How::default());
        let ended = poll(world, &mut acquiring, polls).await;
        drop(acquiring);
        let done = ended.is_some_and(|guard| guard.is_ok());
        becomes_free(world).await;
        if done {
            assert!(polls > 3, "only {polls} polls: nothing was cut in two");
            return;
        }
    }
}

/// Drops the acquire of a held name after n polls, some of them after the holder released it; then another client acquires it.
async fn cut_when_held(world: &World, claim: Claim) {
    world.chaos().yielding(1);
    let (client, other) = (world.client(), world.client());
    let held = rival(claim);
    for polls in 1..=10 {
        for more in [0, 2, 5] {
            let holder = world.stranger();
            world.grant(Acquire { lease: Duration::from_secs(60), ..world.ask("n", held, holder) }).await;
            let mut acquiring = take(&client, "n", claim, How::default());
            assert!(poll(world, &mut acquiring, polls).await.is_none(), "it is held by another");
            assert!(world.give_back("n", held, holder).await);
            let ended = poll(world, &mut acquiring, more).await;
            drop(acquiring);
            drop(ended);
            another_gets_it(world, &other, claim).await;
        }
    }
}

/// P5: a mutex that is free.
pub async fn a_free_mutex_is_left_wherever_it_is_dropped(world: &World) {
    cut_when_free(world, Claim::Mutex).await;
}

/// P5: a mutex that another client holds.
pub async fn a_held_mutex_is_left_wherever_it_is_dropped(world: &World) {
    cut_when_held(world, Claim::Mutex).await;
}

/// P5: a fair mutex that is free.
pub async fn a_free_fair_mutex_is_left_wherever_it_is_dropped(world: &World) {
    cut_when_free(world, Claim::Fair).await;
}

/// P5: a fair mutex that another client holds: the queue is empty afterwards.
pub async fn a_held_fair_mutex_is_left_wherever_it_is_dropped(world: &World) {
    cut_when_held(world, Claim::Fair).await;
}

/// P5: the read side of a free lock.
pub async fn a_free_read_is_left_wherever_it_is_dropped(world: &World) {
    cut_when_free(world, Claim::Read).await;
}

/// P5: the read side of a lock that another client holds for writing.
pub async fn a_held_read_is_left_wherever_it_is_dropped(world: &World) {
    cut_when_held(world, Claim::Read).await;
}

/// P5: the write side of a free lock.
pub async fn a_free_write_is_left_wherever_it_is_dropped(world: &World) {
    cut_when_free(world, Claim::Write).await;
}

/// P5: the write side of a lock that another client holds: the mark that makes readers wait is removed too.
pub async fn a_held_write_is_left_wherever_it_is_dropped(world: &World) {
    cut_when_held(world, Claim::Write).await;
}

/// P5: a permit that is free.
pub async fn a_free_permit_is_left_wherever_it_is_dropped(world: &World) {
    cut_when_free(world, PERMIT).await;
}

/// P5: a permit that another client holds.
pub async fn a_held_permit_is_left_wherever_it_is_dropped(world: &World) {
    cut_when_held(world, PERMIT).await;
}

/// P5: several locks of which another client holds one: no hold and no place in a queue is left.
pub async fn a_held_multi_lock_is_left_wherever_it_is_dropped(world: &World) {
    world.chaos().yielding(1);
    let client = world.client();
    for held in ["n1", "n2"] {
        for polls in 1..=12 {
            let holder = world.stranger();
            world.grant(Acquire { lease: Duration::from_secs(60), ..world.ask(held, Claim::Mutex, holder) }).await;
            let all = MultiLock::new().and(Mutex::new(&client, "n1")).and(Mutex::new(&client, "n2"));
            let mut acquiring: BoxFuture<'_, _> = Box::pin(async { all.lock().await });
            assert!(poll(world, &mut acquiring, polls).await.is_none(), "{held} is held by another");
            drop(acquiring);
            assert!(world.give_back(held, Claim::Mutex, holder).await);
            for name in ["n1", "n2"] {
                world.until("nothing is left", || async { is_unused(world, name).await }).await;
            }
        }
    }
}

async fn is_unused(world: &World, name: &str) -> bool {
    world.look(name).await.is_none_or(|found| found.holders.is_empty() && found.queue.is_empty())
}

/// P5: a waiter for any claim that timed out or was dropped has no place in the queue.
pub async fn a_waiter_of_any_claim_that_gives_up_leaves_no_place(world: &World) {
    let client = world.client();
    for claim in world.claims() {
        let name = format!("{claim:?}");
        let holder = world.occupy(&name, rival(claim)).await;
        let gave_up = take(&client, &name, claim, How { wait: Some(world.units(2)), lease: None }).await;
        assert!(gave_up.is_err());
        world.until("no place is left", || async { world.queued(&name).await == 0 }).await;
        let mut waiting = take(&client, &name, claim, How::default());
        assert!(poll(world, &mut waiting, 20).await.is_none());
        drop(waiting);
        world.until("no place is left", || async { world.queued(&name).await == 0 }).await;
        assert!(world.give_back(&name, rival(claim), holder).await);
    }
}

/// P5: a waiter that is dropped while the holder in the same process hands over to it.
pub async fn a_hand_over_is_left_wherever_it_is_dropped(world: &World) {
    world.chaos().yielding(2);
    let client = world.client();
    for polls in 0..=12 {
        let guard = Mutex::new(&client, "n").lock().await.unwrap();
        let mut waiting = take(&client, "n", Claim::Mutex, How::default());
        assert!(poll(world, &mut waiting, 4).await.is_none());
        let mut releasing: BoxFuture<'_, _> = Box::pin(guard.release());
        let released = poll(world, &mut releasing, polls).await;
        let got = poll(world, &mut waiting, polls / 2).await;
        drop(waiting);
        if released.is_none() {
            releasing.await.unwrap();
        }
        drop(got);
        becomes_free(world).await;
    }
}

/// P5: a try that is dropped.
pub async fn a_try_is_left_wherever_it_is_dropped(world: &World) {
    world.chaos().yielding(2);
    let client = world.client();
    for claim in world.claims() {
        let name = format!("{claim:?}");
        for polls in 1..=6 {
            let mut trying = try_take(&client, &name, claim);
            let ended = poll(world, &mut trying, polls).await;
            drop((trying, ended));
            world.until("nothing is left", || async { world.holders(&name).await == 0 }).await;
        }
    }
}

/// P5: a release that is dropped half-way goes on in the background.
pub async fn a_dropped_release_still_releases(world: &World) {
    world.chaos().yielding(2);
    let client = world.client();
    for claim in world.claims() {
        let name = format!("{claim:?}");
        for polls in 0..=6 {
            let guard = take(&client, &name, claim, How::default()).await.unwrap();
            let mut releasing: BoxFuture<'_, _> = Box::pin(guard.release());
            let ended = poll(world, &mut releasing, polls).await;
            drop((releasing, ended));
            world.until("nothing is left", || async { world.holders(&name).await == 0 }).await;
        }
    }
}

/// An extension that is dropped never shortens the hold.
pub async fn a_dropped_extension_harms_nothing(world: &World) {
    world.chaos().yielding(2);
    let client = world.client();
    let guard = Mutex::new(&client, "n").lock().lease(world.units(20)).await.unwrap();
    for polls in 0..=6 {
        let mut extending: BoxFuture<'_, _> = Box::pin(guard.extend(world.units(40)));
        let ended = poll(world, &mut extending, polls).await;
        drop((extending, ended));
        assert!(guard.is_valid());
    }
    world.pass(world.units(5)).await;
    assert!(guard.is_valid());
    guard.release().await.unwrap();
}

/// P5: a downgrade that is dropped releases both sides.
pub async fn a_dropped_downgrade_releases_both_sides(world: &World) {
    world.chaos().yielding(2);
    let client = world.client();
    let lock = RwLock::new(&client, "n");
    for polls in 0..=14 {
        let writer = lock.write().await.unwrap();
        let mut downgrading: BoxFuture<'_, _> = Box::pin(lock.downgrade(writer));
        let ended = poll(world, &mut downgrading, polls).await;
        drop(downgrading);
        drop(ended);
        becomes_free(world).await;
    }
}

/// After a dropped acquire the same owner can acquire the name, and so can others.
pub async fn an_owner_can_take_it_after_a_dropped_acquire(world: &World) {
    world.chaos().yielding(2);
    let client = world.client();
    let mutex = Mutex::new(&client, "n").owned_by(&world.owner(&client));
    for polls in 0..=8 {
        let mut acquiring: BoxFuture<'_, _> = Box::pin(async { mutex.lock().await });
        let ended = poll(world, &mut acquiring, polls).await;
        drop((acquiring, ended));
        let guard = mutex.lock().timeout(world.units(100)).await.unwrap();
        assert_eq!(world.holders("n").await, 1);
        guard.release().await.unwrap();
        becomes_free(world).await;
    }
}

/// A dropped wait for permits of a counting semaphore takes no permit.
pub async fn a_dropped_wait_for_a_number_takes_nothing(world: &World) {
    let client = world.client();
    let counter = CountingSemaphore::new(&client, "c");
    for polls in 1..=6 {
        let mut waiting: BoxFuture<'_, _> = Box::pin(async { counter.acquire(1).await });
        assert!(poll(world, &mut waiting, polls).await.is_none());
        world.settle().await;
        drop(waiting);
    }
    counter.release(1).await.unwrap();
    world.settle().await;
    assert_eq!(counter.available().await.unwrap(), 1);
}

/// A wait for a latch changes nothing, wherever it is dropped.
pub async fn a_dropped_wait_for_a_latch_changes_nothing(world: &World) {
    world.chaos().yielding(1);
    let client = world.client();
    let latch = CountDownLatch::new(&client, "l");
    latch.try_set(2).await.unwrap();
    for polls in 0..=8 {
        let mut waiting: BoxFuture<'_, _> = Box::pin(async { latch.wait().await });
        assert!(poll(world, &mut waiting, polls).await.is_none());
        drop(waiting);
    }
    assert_eq!(latch.count().await.unwrap(), 2);
    latch.remove().await.unwrap();
}
