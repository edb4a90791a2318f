//! Many readers or one writer, neither starving.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::World;
use crate::backend::{Acquire, Attempt, Claim};
use crate::error::ErrorKind;
use crate::runtime::Instant;
use crate::sync::RwLock;

/// Readers of several clients read together.
pub async fn readers_share(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let guards = [
        RwLock::new(&ours, "r").read().await.unwrap(),
        RwLock::new(&ours, "r").try_read().await.unwrap().expect("shared"),
        RwLock::new(&theirs, "r").try_read().await.unwrap().expect("shared"),
    ];
    assert_eq!(world.holders("r").await, 3);
    for guard in guards {
        guard.release().await.unwrap();
    }
}

/// P1: a writer is alone.
pub async fn a_writer_excludes_readers_and_writers(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let writer = RwLock::new(&ours, "r").write().await.unwrap();
    for client in [&ours, &theirs] {
        assert!(RwLock::new(client, "r").try_read().await.unwrap().is_none());
        assert!(RwLock::new(client, "r").try_write().await.unwrap().is_none());
    }
    writer.release().await.unwrap();
    let reader = RwLock::new(&theirs, "r").try_read().await.unwrap().expect("free");
    assert!(RwLock::new(&ours, "r").try_write().await.unwrap().is_none(), "somebody reads");
    reader.release().await.unwrap();
}

/// P1: a writer waits for the last of the readers, not for the first.
pub async fn a_writer_waits_for_the_longest_reader(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let lock = RwLock::new(&ours, "r");
    let (short, long) = (lock.read().await.unwrap(), lock.read().await.unwrap());
    let writer = world.spawn(async move { RwLock::new(&theirs, "r").write().await.unwrap() });
    world.settle().await;
    short.release().await.unwrap();
    world.settle().await;
    assert!(!writer.is_finished(), "it writes while somebody reads");
    long.release().await.unwrap();
    writer.await.unwrap().release().await.unwrap();
}

/// P6: the last reader to leave wakes the writer, and a writer that leaves wakes all readers together.
pub async fn wakes_a_writer_and_then_all_readers(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let reader = RwLock::new(&ours, "r").read().await.unwrap();
    let writer = world.spawn({
        let theirs = theirs.clone();
        async move { RwLock::new(&theirs, "r").write().await.unwrap() }
    });
    world.settle().await;
    let released = world.now();
    reader.release().await.unwrap();
    let writer = writer.await.unwrap();
    let took = world.since(released);
    assert!(took < world.soon(), "the writer was woken after {took:?}");
    let readers: Vec<_> = (0..20)
        .map(|number| {
            let client = if number % 2 == 0 { ours.clone() } else { theirs.clone() };
            world.spawn(async move { RwLock::new(&client, "r").read().await.unwrap() })
        })
        .collect();
    world.settle().await;
    let released = world.now();
    writer.release().await.unwrap();
    let mut guards = Vec::new();
    for reader in readers {
        guards.push(reader.await.unwrap());
    }
    let took = world.since(released);
    assert!(took < world.soon() * 9 / 5, "the readers came in after {took:?}");
    assert_eq!(world.holders("r").await, 20);
    for guard in guards {
        guard.release().await.unwrap();
    }
}

/// P6: within a second when all notifications are lost, both ways.
pub async fn a_lost_wake_up_costs_at_most_a_second(world: &World) {
    world.chaos().mute();
    let (ours, theirs) = (world.client(), world.client());
    let reader = RwLock::new(&ours, "r").read().await.unwrap();
    let writer = world.spawn(async move { RwLock::new(&theirs, "r").write().await.unwrap() });
    world.settle().await;
    let released = world.now();
    reader.release().await.unwrap();
    let writer = writer.await.unwrap();
    let took = world.since(released);
    assert!(took <= Duration::from_secs(1) + world.slack(), "the writer noticed after {took:?}");
    let reader = world.spawn(async move { RwLock::new(&ours, "r").read().await.unwrap() });
    world.settle().await;
    let released = world.now();
    writer.release().await.unwrap();
    reader.await.unwrap().release().await.unwrap();
    let took = world.since(released);
    assert!(took <= Duration::from_secs(1) + world.slack(), "the reader noticed after {took:?}");
}

/// P5: a reader that died does not block a writer for longer than its lease.
pub async fn a_dead_reader_is_gone_with_its_lease(world: &World) {
    let client = world.client();
    let began = world.now();
    world.grant(world.ask("r", Claim::Read, world.stranger())).await;
    world.grant(Acquire { lease: world.units(5), ..world.ask("r", Claim::Read, world.stranger()) }).await;
    let writer = RwLock::new(&client, "r").write().await.unwrap();
    let took = world.since(began);
    assert!(took + Duration::from_millis(5) >= world.units(10), "it wrote beside a reader, after {took:?}");
    assert!(took < world.units(10) + Duration::from_secs(1) + world.slack(), "free after {took:?}");
    writer.release().await.unwrap();
}

/// A writer gets its turn though new readers keep coming, so that there is always one.
pub async fn writers_do_not_starve(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let enough = Arc::new(AtomicBool::new(false));
    let mut readers = Vec::new();
    for number in 0..3 {
        let (client, enough, runtime) = (ours.clone(), Arc::clone(&enough), world.runtime().clone());
        let (offset, length) = (world.units(2) * number / 3, world.units(2));
        readers.push(world.spawn(async move {
            runtime.sleep_until(runtime.now().plus(offset)).await;
            while !enough.load(Ordering::Relaxed) {
                let guard = RwLock::new(&client, "r").read().await.unwrap();
                runtime.sleep_until(runtime.now().plus(length)).await;
                guard.release().await.unwrap();
            }
        }));
    }
    world.pass(world.units(3)).await;
    let writer = RwLock::new(&theirs, "r").write().timeout(world.units(40)).await;
    enough.store(true, Ordering::Relaxed);
    writer.expect("a turn").release().await.unwrap();
    for reader in readers {
        reader.await.unwrap();
    }
}

/// A reader that began to wait before the writer did is not held up by it; one that came after is.
pub async fn a_reader_yields_only_to_writers_that_came_first(world: &World) {
    let (writer, early, late) = (world.stranger(), world.stranger(), world.stranger());
    let reader = world.occupy("r", Claim::Read).await;
    let came = world.now();
    world.pass(world.units(1)).await;
    assert!(matches!(world.take(world.ask("r", Claim::Write, writer)).await, Attempt::Busy(_)));
    world.pass(world.units(1)).await;
    world.grant(Acquire { since: came, ..world.ask("r", Claim::Read, early) }).await;
    assert!(matches!(world.take(world.ask("r", Claim::Read, late)).await, Attempt::Busy(_)), "it overtook the writer");
    for owner in [reader, early] {
        assert!(world.give_back("r", Claim::Read, owner).await);
    }
    world.grant(world.ask("r", Claim::Write, writer)).await;
    assert!(world.give_back("r", Claim::Write, writer).await);
}

/// A reader that asked before the writer did is not held up by it; one that asks after it is.
pub async fn a_reader_that_asked_first_is_not_held_up_by_a_writer(world: &World) {
    let (writer, early, late) = (world.stranger(), world.stranger(), world.stranger());
    let holder = world.occupy("r", Claim::Write).await;
    let came = world.now();
    let reads = |owner| Acquire { since: came, ..world.ask("r", Claim::Read, owner) };
    assert!(matches!(world.take(reads(early)).await, Attempt::Busy(_)));
    world.pass(world.units(1)).await;
    assert!(matches!(world.take(world.ask("r", Claim::Write, writer)).await, Attempt::Busy(_)));
    world.pass(world.units(1)).await;
    assert!(world.give_back("r", Claim::Write, holder).await);
    world.grant(reads(early)).await;
    assert!(matches!(world.take(world.ask("r", Claim::Read, late)).await, Attempt::Busy(_)), "it overtook the writer");
    assert!(world.give_back("r", Claim::Read, early).await);
    world.grant(world.ask("r", Claim::Write, writer)).await;
    assert!(world.give_back("r", Claim::Write, writer).await);
    world.give_back("r", Claim::Read, late).await;
}

/// P6: a writer that gives up lets the readers behind it in at once.
pub async fn a_writer_that_gives_up_lets_readers_in(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let reader = RwLock::new(&ours, "r").read().await.unwrap();
    let writer = world.spawn({
        let (theirs, limit) = (theirs.clone(), world.units(6));
        async move { RwLock::new(&theirs, "r").write().timeout(limit).await.map(drop) }
    });
    world.until("the writer waits", || async { world.queued("r").await == 1 }).await;
    let behind = world.spawn(async move { RwLock::new(&theirs, "r").read().await.unwrap() });
    world.settle().await;
    assert!(!behind.is_finished(), "it overtook the writer");
    assert_eq!(writer.await.unwrap().unwrap_err().kind(), ErrorKind::Timeout);
    let gave_up = world.now();
    let behind = behind.await.unwrap();
    let took = world.since(gave_up);
    assert!(took < world.soon(), "in after {took:?}");
    for guard in [reader, behind] {
        guard.release().await.unwrap();
    }
}

/// P5: a writer that died waiting holds readers up until its place ends, and no longer.
pub async fn a_dead_waiting_writer_is_skipped(world: &World) {
    let client = world.client();
    let holder = world.occupy("r", Claim::Read).await;
    let began = world.now();
    let place = world.units(6);
    let dead = Acquire { place: Some(place), ..world.ask("r", Claim::Write, world.stranger()) };
    assert!(matches!(world.take(dead).await, Attempt::Busy(_)));
    let reader = RwLock::new(&client, "r").read().await.unwrap();
    let took = world.since(began);
    assert!(took <= place + Duration::from_secs(1) + world.slack(), "held up for {took:?}");
    reader.release().await.unwrap();
    world.give_back("r", Claim::Read, holder).await;
}

/// P1: a downgrade lets no other writer in between. Waiting readers are granted, a waiting writer waits on.
pub async fn a_downgrade_lets_readers_in_and_no_writer_between(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let lock = RwLock::new(&ours, "r");
    let writer = lock.write().await.unwrap();
    let waiting = world.spawn({
        let theirs = theirs.clone();
        async move { RwLock::new(&theirs, "r").read().await.unwrap() }
    });
    // The reader came first, and not at the same moment.
    world.pass(world.units(1)).await;
    let rival = world.spawn(async move { RwLock::new(&theirs, "r").write().await.unwrap() });
    world.settle().await;
    let (token, downgraded) = (writer.token().unwrap().number(), world.now());
    let reader = lock.downgrade(writer).await.unwrap();
    let waiting = waiting.await.unwrap();
    let took = world.since(downgraded);
    assert!(took <= Duration::from_secs(1) + world.slack(), "the waiting reader came in after {took:?}");
    assert!(reader.is_valid() && reader.token().unwrap().number() >= token);
    assert!(!rival.is_finished(), "a writer came between");
    let claims: Vec<_> = world.look("r").await.expect("read").holders.iter().map(|holder| holder.claim).collect();
    assert_eq!(claims, [Claim::Read; 2]);
    reader.release().await.unwrap();
    waiting.release().await.unwrap();
    rival.await.unwrap().release().await.unwrap();
}

/// P1: a writer whose hold was taken away becomes no reader beside the writer that came after it.
pub async fn a_downgrade_after_a_forced_release_fails(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let lock = RwLock::new(&ours, "r");
    let writer = lock.write().await.unwrap();
    world.force("r").await;
    let rival = RwLock::new(&theirs, "r").write().await.unwrap();
    assert!(lock.downgrade(writer).await.is_err(), "a reader beside a writer");
    let claims: Vec<_> = world.look("r").await.expect("write").holders.iter().map(|holder| holder.claim).collect();
    assert_eq!(claims, [Claim::Write]);
    rival.release().await.unwrap();
}

/// A downgraded hold is renewed like any other.
pub async fn a_downgraded_hold_is_kept(world: &World) {
    let client = world.client();
    let lock = RwLock::new(&client, "r");
    let reader = lock.downgrade(lock.write().await.unwrap()).await.unwrap();
    world.pass(world.lease() * 2).await;
    assert!(reader.is_valid());
    assert!(lock.try_write().await.unwrap().is_none());
    reader.release().await.unwrap();
}

/// The guard of another lock is refused, and released.
pub async fn a_downgrade_needs_the_guard_of_this_lock(world: &World) {
    let client = world.client();
    let other = RwLock::new(&client, "other").write().await.unwrap();
    let error = RwLock::new(&client, "r").downgrade(other).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(world.holders("r").await, 0);
    world.until("the guard is released", || async { world.holders("other").await == 0 }).await;
}

/// An owner that writes may read too; it goes on reading when it has stopped writing, and others may join it then.
pub async fn an_owner_reads_while_it_writes(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let lock = RwLock::new(&ours, "r").owned_by(&world.owner(&ours));
    let writer = lock.write().await.unwrap();
    let reader = lock.try_read().await.unwrap().expect("its own");
    let again = lock.try_write().await.unwrap().expect("its own");
    assert!(RwLock::new(&theirs, "r").try_read().await.unwrap().is_none());
    again.release().await.unwrap();
    writer.release().await.unwrap();
    let other = RwLock::new(&theirs, "r").try_read().await.unwrap().expect("nobody writes");
    assert!(RwLock::new(&theirs, "r").try_write().await.unwrap().is_none());
    assert!(reader.is_valid());
    reader.release().await.unwrap();
    other.release().await.unwrap();
}

/// Releasing one side keeps the other.
pub async fn releasing_one_side_leaves_the_other(world: &World) {
    let (ours, theirs) = (world.client(), world.client());
    let lock = RwLock::new(&ours, "r").owned_by(&world.owner(&ours));
    let writer = lock.write().await.unwrap();
    lock.read().await.unwrap().release().await.unwrap();
    assert!(RwLock::new(&theirs, "r").try_read().await.unwrap().is_none(), "the write hold went with it");
    assert!(writer.is_valid());
    writer.release().await.unwrap();
    assert_eq!(world.holders("r").await, 0);
}

/// An owner that reads and asks to write would wait for itself: it gets an error at once.
pub async fn an_owner_that_reads_and_wants_to_write_is_told(world: &World) {
    let client = world.client();
    let lock = RwLock::new(&client, "r").owned_by(&world.owner(&client));
    let reader = lock.read().await.unwrap();
    let began = world.now();
    assert_eq!(lock.write().await.unwrap_err().kind(), ErrorKind::Deadlock);
    assert_eq!(lock.try_write().await.unwrap_err().kind(), ErrorKind::Deadlock);
    assert!(world.since(began) < world.slack());
    assert_eq!(world.queued("r").await, 0);
    reader.release().await.unwrap();
    lock.write().await.unwrap().release().await.unwrap();
}

/// A forced release removes readers and writers alike.
pub async fn a_forced_release_frees_both_sides(world: &World) {
    let client = world.client();
    let owners = [world.stranger(), world.stranger()];
    for owner in owners {
        world.grant(Acquire { since: Instant::default(), ..world.ask("r", Claim::Read, owner) }).await;
    }
    assert_eq!(world.force("r").await.from.len(), 2);
    let writer = RwLock::new(&client, "r").try_write().await.unwrap().expect("free");
    assert_eq!(world.force("r").await.from.len(), 1);
    assert_eq!(writer.release().await.unwrap_err().kind(), ErrorKind::Lost);
}
