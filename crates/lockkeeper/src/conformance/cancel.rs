//! Giving up: a call that is dropped at any point leaves nothing behind.

use std::future::IntoFuture;
use std::task::{Context, Poll, Waker};

use super::World;
use crate::sync::Mutex;

/// P5: polls an acquire n times and drops it, for every n until it completes: each time the name is free afterwards.
pub async fn nothing_is_left_wherever_an_acquire_is_dropped(world: &World) {
    world.chaos().yielding(2);
    let client = world.client();
    for polls in 1.. {
        let mutex = Mutex::new(&client, "m");
        let mut acquiring = mutex.lock().into_future();
        let mut ended = false;
        for _ in 0..polls {
            if let Poll::Ready(guard) = acquiring.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                ended = true;
                guard.unwrap().release().await.unwrap();
                break;
            }
            world.settle().await;
        }
        drop(acquiring);
        world.until("the name is free", || async { world.holders("m").await == 0 }).await;
        if ended {
            assert!(polls > 3, "only {polls} polls: nothing was cut in two");
            return;
        }
    }
}
