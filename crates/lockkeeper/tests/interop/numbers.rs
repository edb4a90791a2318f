//! Bare numbers: counting semaphores and latches.

use std::time::{Duration, Instant};

use crate::names::NAMES;
use crate::wake::at_once;
use crate::world::{World, tagged, unique};

const ROUNDS: usize = 5;

pub(crate) async fn what_one_takes_the_other_misses(world: World) {
    let (name, java) = (unique("jobs"), world.java.thread("one"));
    let jobs = world.client.counting_semaphore(&name);
    assert!(jobs.try_set(3).await.unwrap());
    assert_eq!(java.ask(format!("semaphore set {name} 9")).await, false, "set once, by either");
    assert_eq!(java.ask(format!("semaphore try {name} 2")).await, true);
    assert!(!jobs.try_acquire(2).await.unwrap());
    assert!(jobs.try_acquire(1).await.unwrap());
    assert_eq!(java.ask(format!("semaphore try {name} 1")).await, false);
    assert_eq!(java.ask(format!("semaphore available {name}")).await, 0);
    java.ask(format!("semaphore release {name} 4")).await;
    assert_eq!(jobs.available().await.unwrap(), 4);
    assert_eq!(jobs.add(-6).await.unwrap(), -2);
    assert_eq!(java.ask(format!("semaphore available {name}")).await, -2);
    java.ask(format!("semaphore add {name} 7")).await;
    assert_eq!(jobs.drain().await.unwrap(), 5);
    assert_eq!(java.ask(format!("semaphore drain {name}")).await, 0);
    // Below zero both give the number, and leave 0.
    assert_eq!(jobs.add(-2).await.unwrap(), -2);
    assert_eq!(java.ask(format!("semaphore drain {name}")).await, -2);
    assert_eq!(java.ask(format!("semaphore available {name}")).await, 0);
    assert_eq!(jobs.add(-2).await.unwrap(), -2);
    assert_eq!(jobs.drain().await.unwrap(), -2);
    assert_eq!(java.ask(format!("semaphore available {name}")).await, 0);
}

pub(crate) async fn our_release_calls_their_waiter(world: World) {
    let (java, mut took) = (world.java.thread("one"), Vec::new());
    for _ in 0..ROUNDS {
        let name = unique("jobs");
        let waiting = java.tell(format!("semaphore acquire {name} 2"));
        world.listeners(&format!("redisson_sc:{}", tagged(&name)), 1).await;
        let jobs = world.client.counting_semaphore(&name);
        jobs.release(1).await.unwrap();
        let began = Instant::now();
        assert_eq!(jobs.release(1).await.unwrap(), 2);
        waiting.value().await;
        took.push(began.elapsed());
        assert_eq!(jobs.available().await.unwrap(), 0);
    }
    at_once(took);
}

pub(crate) async fn their_release_calls_our_waiter(world: World) {
    let (java, mut took) = (world.java.thread("one"), Vec::new());
    for _ in 0..ROUNDS {
        let name = unique("jobs");
        let jobs = world.client.counting_semaphore(&name);
        let waiting = tokio::spawn({
            let jobs = jobs.clone();
            async move { jobs.acquire(2).timeout(Duration::from_secs(40)).await }
        });
        world.listeners(&format!("redisson_sc:{}", tagged(&name)), 1).await;
        java.ask(format!("semaphore release {name} 1")).await;
        let began = Instant::now();
        java.ask(format!("semaphore release {name} 1")).await;
        waiting.await.unwrap().unwrap();
        took.push(began.elapsed());
        assert_eq!(java.ask(format!("semaphore available {name}")).await, 0);
    }
    at_once(took);
}

pub(crate) async fn permits_agree_after_mixed_traffic(world: World) {
    let name = unique("jobs");
    let jobs = world.client.counting_semaphore(&name);
    jobs.try_set(3).await.unwrap();
    let ours: Vec<_> = (0..4)
        .map(|_| {
            let jobs = jobs.clone();
            tokio::spawn(async move {
                for _ in 0..50 {
                    jobs.acquire(2).timeout(Duration::from_secs(40)).await.unwrap();
                    jobs.release(2).await.unwrap();
                }
            })
        })
        .collect();
    let theirs: Vec<_> = (0..4)
        .map(|thread| {
            let (thread, name) = (world.java.thread(&format!("t{thread}")), name.clone());
            tokio::spawn(async move {
                for _ in 0..50 {
                    thread.ask(format!("semaphore acquire {name} 1")).await;
                    thread.ask(format!("semaphore release {name} 1")).await;
                }
            })
        })
        .collect();
    for task in ours.into_iter().chain(theirs) {
        task.await.unwrap();
    }
    assert_eq!(jobs.available().await.unwrap(), 3);
    assert_eq!(world.java.thread("one").ask(format!("semaphore available {name}")).await, 3);
}

pub(crate) async fn semaphore_names_with_braces_and_letters(world: World) {
    let java = world.java.thread("one");
    for name in NAMES {
        let name = unique(name);
        let jobs = world.client.counting_semaphore(&name);
        let waiting = java.tell(format!("semaphore acquire {name} 1"));
        world.listeners(&format!("redisson_sc:{}", tagged(&name)), 1).await;
        // Java's waiter has no timer: without the call it would wait for ever.
        jobs.release(2).await.unwrap();
        waiting.value().await;
        assert_eq!(java.ask(format!("semaphore available {name}")).await, 1);
        assert!(jobs.try_acquire(1).await.unwrap());
    }
}

fn gate(name: &str) -> String {
    format!("redisson_countdownlatch__channel__{{{name}}}")
}

pub(crate) async fn our_last_event_calls_their_waiter(world: World) {
    let (java, mut took) = (world.java.thread("one"), Vec::new());
    for _ in 0..ROUNDS {
        let name = unique("gate");
        let latch = world.client.latch(&name);
        assert!(latch.try_set(2).await.unwrap());
        let waiting = java.tell(format!("latch await {name}"));
        world.listeners(&gate(&name), 1).await;
        latch.count_down().await.unwrap();
        let began = Instant::now();
        assert_eq!(latch.count_down().await.unwrap(), 0);
        waiting.value().await;
        took.push(began.elapsed());
    }
    at_once(took);
}

pub(crate) async fn their_last_event_calls_our_waiter(world: World) {
    let (java, mut took) = (world.java.thread("one"), Vec::new());
    for _ in 0..ROUNDS {
        let name = unique("gate");
        assert_eq!(java.ask(format!("latch set {name} 2")).await, true);
        let waiting = tokio::spawn({
            let latch = world.client.latch(&name);
            async move { latch.wait().timeout(Duration::from_secs(40)).await }
        });
        world.listeners(&gate(&name), 1).await;
        java.ask(format!("latch down {name}")).await;
        let began = Instant::now();
        java.ask(format!("latch down {name}")).await;
        waiting.await.unwrap().unwrap();
        took.push(began.elapsed());
    }
    at_once(took);
}

pub(crate) async fn events_agree_after_mixed_traffic(world: World) {
    let (name, java) = (unique("gate"), world.java.thread("one"));
    let latch = world.client.latch(&name);
    assert!(latch.try_set(101).await.unwrap());
    let waiting = world.java.thread("waiter").tell(format!("latch await {name}"));
    let ours = tokio::spawn({
        let latch = latch.clone();
        async move {
            for _ in 0..50 {
                latch.count_down().await.unwrap();
            }
        }
    });
    for _ in 0..50 {
        java.ask(format!("latch down {name}")).await;
    }
    ours.await.unwrap();
    assert_eq!((latch.count().await.unwrap(), java.ask(format!("latch count {name}")).await), (1, 1.into()));
    assert_eq!(latch.count_down().await.unwrap(), 0);
    waiting.value().await;
    assert_eq!(java.ask(format!("latch count {name}")).await, 0);
    // One event too many does nothing, on either side.
    java.ask(format!("latch down {name}")).await;
    assert_eq!(latch.count_down().await.unwrap(), 0);
}

pub(crate) async fn a_latch_is_set_once_by_either(world: World) {
    let (name, java) = (unique("gate"), world.java.thread("one"));
    let latch = world.client.latch(&name);
    assert_eq!(java.ask(format!("latch set {name} 3")).await, true);
    assert!(!latch.try_set(5).await.unwrap());
    assert_eq!(latch.count().await.unwrap(), 3);
    // Ours wakes those who wait; Redisson's `delete` would leave them waiting.
    let waiting = java.tell(format!("latch await {name}"));
    world.listeners(&gate(&name), 1).await;
    assert!(latch.remove().await.unwrap());
    waiting.value().await;
    assert!(latch.try_set(5).await.unwrap());
    assert_eq!(java.ask(format!("latch set {name} 3")).await, false);
    assert_eq!(java.ask(format!("latch count {name}")).await, 5);
}

pub(crate) async fn latch_names_with_braces_and_letters(world: World) {
    let java = world.java.thread("one");
    for name in NAMES {
        let name = unique(name);
        let latch = world.client.latch(&name);
        assert!(latch.try_set(1).await.unwrap());
        let waiting = java.tell(format!("latch await {name}"));
        world.listeners(&gate(&name), 1).await;
        // Java's waiter has no timer: without the call it would wait for ever.
        latch.count_down().await.unwrap();
        waiting.value().await;
    }
}
