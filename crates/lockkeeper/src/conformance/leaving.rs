//! How a client lets go: by closing, by dropping a guard, wherever that happens.

use std::time::Duration;

use super::World;
use crate::backend::{Claim, LossReason};
use crate::error::ErrorKind;
use crate::sync::{CountDownLatch, Mutex, Semaphore};

/// Closing gives everything back before it returns, tells the guards, and refuses what is asked later.
pub async fn closing_gives_everything_back(world: &World) {
    let client = world.client();
    let guards = [Mutex::new(&client, "a").lock().await.unwrap(), Mutex::new(&client, "b").lock().await.unwrap()];
    client.close().await.unwrap();
    for (guard, name) in guards.into_iter().zip(["a", "b"]) {
        assert_eq!(world.holders(name).await, 0, "{name} is left");
        assert!(!guard.is_valid());
        assert_eq!(guard.lost().await, LossReason::Closed);
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    }
    assert_eq!(Mutex::new(&client, "a").lock().await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(Mutex::new(&client, "a").try_lock().await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(Semaphore::new(&client, "s", 1).acquire().await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(CountDownLatch::new(&client, "l").count_down().await.unwrap_err().kind(), ErrorKind::Closed);
    client.close().await.expect("closing twice is closing once");
}

/// Waiters of a closed client get an error within a second.
pub async fn closing_ends_those_who_wait(world: &World) {
    let client = world.client();
    let holder = world.occupy("m", Claim::Mutex).await;
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let client = client.clone();
            world.spawn(async move { Mutex::new(&client, "m").lock().await })
        })
        .collect();
    world.settle().await;
    client.close().await.unwrap();
    for waiter in waiters {
        let ended = world.within(Duration::from_secs(1) + world.slack(), waiter).await.expect("an end").unwrap();
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::Closed);
    }
    assert!(world.give_back("m", Claim::Mutex, holder).await);
}

/// P5: a dropped guard is released in the background, soon.
pub async fn a_dropped_guard_is_given_back(world: &World) {
    let client = world.client();
    drop(Mutex::new(&client, "m").lock().await.unwrap());
    world.until("it is free", || async { world.holders("m").await == 0 }).await;
}

/// P5: wherever it is dropped: on a thread that knows nothing of executors too, and though the client is gone.
pub async fn a_guard_dropped_on_a_bare_thread_is_given_back(world: &World) {
    let client = world.client();
    let guard = Mutex::new(&client, "m").lock().await.unwrap();
    drop(client);
    world.elsewhere(move || drop(guard));
    world.until("it is free", || async { world.holders("m").await == 0 }).await;
}

/// P5: and when it is dropped because its task panicked.
pub async fn a_guard_dropped_in_a_panic_is_given_back(world: &World) {
    let client = world.client();
    let task = world.spawn(async move {
        let _guard = Mutex::new(&client, "m").lock().await.unwrap();
        panic!("on purpose");
    });
    assert!(task.await.unwrap_err().is_panic());
    world.until("it is free", || async { world.holders("m").await == 0 }).await;
}
