//! A release calls the other side's waiter at once. A waiter of Java's would else sleep for the lease, and ours for most of a second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::object::Object;
use crate::world::World;

const ROUNDS: usize = 5;

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
    let over = Arc::new(AtomicBool::new(false));
    let crowd: Vec<_> = (0..64)
        .map(|_| {
            let (client, name, over) = (world.client.clone(), name.clone(), Arc::clone(&over));
            tokio::spawn(async move {
                let mut turns = 0;
                while !over.load(Ordering::Relaxed) {
                    object.take(&client, &name, None).await.release().await.unwrap();
                    turns += 1;
                }
                turns
            })
        })
        .collect();
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let theirs = object.theirs(&world.java.thread("waiter"), &name, None).await;
        took.push(began.elapsed());
        theirs.release().await;
    }
    over.store(true, Ordering::Relaxed);
    let mut turns = 0;
    for task in crowd {
        turns += task.await.unwrap();
    }
    assert!(turns > 64, "the crowd took only {turns} turns");
    at_once(took);
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
