//! A release calls the other side's waiter at once. A waiter of Java's would else sleep for the lease, and ours for most of a second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::object::Object;
use crate::world::World;

const ROUNDS: usize = 5;

/// So many tasks of ours want the lock all the time.
const CROWD: usize = 64;

/// Most calls came at once. One or two of them may have met a busy machine; waiting for a lease or a poll would delay all.
pub(crate) fn at_once(mut took: Vec<Duration>) {
    took.sort();
    assert!(took[took.len() / 2] <= Duration::from_millis(200), "{took:?}");
}

pub(crate) async fn our_release_calls_their_waiter(world: World, object: Object) {
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        let name = object.fresh(&world).await;
        let ours = object.take(&world.client, &name, None).await;
        let waiting = object.begin(&world.java.thread("waiter"), &name, None);
        world.listeners(&object.channels(&name), 1).await;
        let began = Instant::now();
        ours.release().await.unwrap();
        let theirs = waiting.taken().await.unwrap();
        took.push(began.elapsed());
        theirs.release().await;
    }
    at_once(took);
}

pub(crate) async fn their_release_calls_our_waiter(world: World, object: Object) {
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        let name = object.fresh(&world).await;
        let theirs = object.theirs(&world.java.thread("holder"), &name, None).await;
        let waiting = tokio::spawn({
            let (client, name) = (world.client.clone(), name.clone());
            async move { object.take(&client, &name, None).await }
        });
        world.listeners(&object.channels(&name), 1).await;
        let began = Instant::now();
        theirs.release().await;
        let ours = waiting.await.unwrap();
        took.push(began.elapsed());
        ours.release().await.unwrap();
    }
    at_once(took);
}

/// A fair waiter of Java's behind a plain `Mutex` of ours, which publishes to both channels.
pub(crate) async fn our_plain_release_calls_their_fair_waiter(world: World, object: Object) {
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        let name = object.fresh(&world).await;
        let ours = Object::Mutex.take(&world.client, &name, None).await;
        let waiting = object.begin(&world.java.thread("waiter"), &name, None);
        world.listeners(&object.channels(&name), 1).await;
        let began = Instant::now();
        ours.release().await.unwrap();
        let theirs = waiting.taken().await.unwrap();
        took.push(began.elapsed());
        theirs.release().await;
    }
    at_once(took);
}

/// Our process hands a lock from one of its tasks to the next, but not for ever.
pub(crate) async fn their_waiter_comes_in_among_64_of_ours(world: World, object: Object) {
    let name = object.fresh(&world).await;
    let (over, turns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let crowd: Vec<_> = (0..CROWD)
        .map(|_| {
            let (client, name, over, turns) = (world.client.clone(), name.clone(), Arc::clone(&over), Arc::clone(&turns));
            tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    object.take(&client, &name, None).await.release().await.unwrap();
                    turns.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let (mut took, mut overtaken) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (began, before) = (Instant::now(), turns.load(Ordering::Relaxed));
        let theirs = object.theirs(&world.java.thread("waiter"), &name, None).await;
        took.push(began.elapsed());
        overtaken.push(turns.load(Ordering::Relaxed) - before);
        theirs.release().await;
    }
    over.store(true, Ordering::Relaxed);
    for task in crowd {
        task.await.unwrap();
    }
    let turns = turns.load(Ordering::Relaxed);
    assert!(turns > CROWD, "the crowd took only {turns} turns");
    if matches!(object, Object::Fair) {
        // First come, first served: those who were there before it, whose turns may take a while, and what went on before it was in the queue.
        overtaken.sort_unstable();
        assert!(overtaken[ROUNDS / 2] <= 2 * CROWD, "{overtaken:?} turns of ours went before theirs, in {took:?}");
        // While it sleeps at the head the crowd stands still.
        took.sort();
        assert!(took[ROUNDS / 2] < Duration::from_secs(5), "{took:?}");
    } else {
        at_once(took);
    }
}

pub(crate) async fn a_write_release_calls_readers_of_both(world: World, object: Object) {
    let mut took = Vec::new();
    for round in 0..ROUNDS {
        let name = object.fresh(&world).await;
        let (writer, reader) = (world.java.thread("writer"), world.java.thread("reader"));
        let theirs = if round % 2 == 0 { Some(Object::Write.theirs(&writer, &name, None).await) } else { None };
        let ours = if round % 2 == 1 { Some(Object::Write.take(&world.client, &name, None).await) } else { None };
        let their_reader = object.begin(&reader, &name, None);
        let our_reader = tokio::spawn({
            let (client, name) = (world.client.clone(), name.clone());
            async move { object.take(&client, &name, None).await }
        });
        world.listeners(&object.channels(&name), 2).await;
        let began = Instant::now();
        if let Some(theirs) = theirs {
            theirs.release().await;
        }
        if let Some(ours) = ours {
            ours.release().await.unwrap();
        }
        let (theirs, ours) = (their_reader.taken().await.unwrap(), our_reader.await.unwrap());
        took.push(began.elapsed());
        theirs.release().await;
        ours.release().await.unwrap();
    }
    at_once(took);
}

pub(crate) async fn the_last_reader_calls_their_writer(world: World, object: Object) {
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        let name = object.fresh(&world).await;
        let theirs = object.theirs(&world.java.thread("reader"), &name, None).await;
        let ours = object.take(&world.client, &name, None).await;
        let writer = Object::Write.begin(&world.java.thread("writer"), &name, None);
        world.listeners(&object.channels(&name), 1).await;
        theirs.release().await;
        let began = Instant::now();
        ours.release().await.unwrap();
        let writer = writer.taken().await.unwrap();
        took.push(began.elapsed());
        writer.release().await;
    }
    at_once(took);
}

pub(crate) async fn the_last_reader_calls_our_writer(world: World, object: Object) {
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        let name = object.fresh(&world).await;
        let ours = object.take(&world.client, &name, None).await;
        let theirs = object.theirs(&world.java.thread("reader"), &name, None).await;
        let writer = tokio::spawn({
            let (client, name) = (world.client.clone(), name.clone());
            async move { Object::Write.take(&client, &name, None).await }
        });
        world.listeners(&object.channels(&name), 1).await;
        ours.release().await.unwrap();
        let began = Instant::now();
        theirs.release().await;
        let writer = writer.await.unwrap();
        took.push(began.elapsed());
        writer.release().await.unwrap();
    }
    at_once(took);
}

/// Java raises the number of permits while ours wait in two clients: each new permit serves one of them, and none of them fails because the
/// number is not what its handle was made with. Then Java lowers it again.
pub(crate) async fn permits_that_java_adds_serve_our_waiters(world: World, object: Object) {
    const WAITERS: usize = 6;
    let (name, java) = (object.fresh(&world).await, world.java.thread("main"));
    let other = world.client_with(crate::world::USUAL).await;
    let first = object.take(&world.client, &name, None).await;
    let (served, mut turns) = tokio::sync::mpsc::unbounded_channel();
    let pools = [&world.client, &other].map(|client| client.semaphore(&name, 1));
    for waiter in 0..WAITERS {
        let (pool, served) = (pools[waiter % 2].clone(), served.clone());
        tokio::spawn(async move { served.send(pool.acquire().timeout(Duration::from_secs(40)).await) });
        if waiter == 1 {
            // The first of each client has asked, by which its handle is checked.
            world.listeners(&object.channels(&name), 2).await;
        }
    }
    let (mut permits, mut took) = (Vec::new(), Vec::new());
    for added in 1..=WAITERS {
        assert!(turns.try_recv().is_err(), "one was served, or failed, before permit {added}");
        let began = Instant::now();
        java.ask(format!("permit add {name} 1")).await;
        let turn = turns.recv().await.expect("a waiter");
        took.push(began.elapsed());
        permits.push(turn.unwrap_or_else(|error| panic!("permit {added}: {error}")));
        assert_eq!(java.ask(format!("permit available {name}")).await, 0);
    }
    eprintln!("{:?}: waiters were served {took:.1?} after addPermits", world.version);
    at_once(took);
    first.release().await.unwrap();
    for permit in permits {
        permit.release().await.unwrap();
    }
    assert_eq!(java.ask(format!("permit available {name}")).await, WAITERS + 1);
    // Handles that were checked go on with the number that is there, also when Java takes permits away that somebody holds.
    let pool = world.client.semaphore(&name, u32::try_from(WAITERS + 1).expect("few"));
    let all = pool.acquire_many(u32::try_from(WAITERS + 1).expect("few")).timeout(Duration::from_secs(40)).await.unwrap();
    let waiting = tokio::spawn(async move { pool.acquire().timeout(Duration::from_secs(40)).await });
    world.listeners(&object.channels(&name), 1).await;
    java.ask(format!("permit add {name} -5")).await;
    all.release().await.unwrap();
    let permit = waiting.await.unwrap().expect("two permits are left");
    assert_eq!(java.ask(format!("permit available {name}")).await, WAITERS + 1 - 5 - 1);
    permit.release().await.unwrap();
}
