//! rlock as a contestant of the benchmarks: its mutex, and its read-write lock.

use std::sync::Arc;

use bench_course::{Lock, contend, cycle, heats, race, readers};
use rlock::async_lock::{RLock, RLockGuard, RReadLockGuard, RWriteLockGuard};

/// One of its locks: its guard, and how it is asked for.
macro_rules! lock {
    ($what:ident, $guard:ty, $ask:ident) => {
        struct $what(RLock, String);

        impl Lock for $what {
            type Guard = $guard;

            async fn take(&self) -> $guard {
                self.0.$ask(&self.1).await.expect("granted")
            }

            async fn give(&self, mut guard: $guard) {
                guard.release().await.expect("held");
            }
        }
    };
}

lock!(Plain, RLockGuard, acquire_mutex);
lock!(Reading, RReadLockGuard, acquire_read);
lock!(Writing, RWriteLockGuard, acquire_write);

fn main() {
    race(async |order| {
        let manager = RLock::new(order.urls()[0].as_str()).await.expect("a server");
        let names = order.names();
        let locks: Vec<_> = names.iter().map(|name| Arc::new(Plain(manager.clone(), name.clone()))).collect();
        let reading: Vec<_> = names.iter().skip(1).map(|name| Arc::new(Reading(manager.clone(), name.clone()))).collect();
        let writing = Arc::new(Writing(manager.clone(), names[0].clone()));
        heats(&order, async |seconds| match order.workload.as_str() {
            "cycle" => cycle(&locks, seconds).await,
            "contend" => contend(&locks, &order, seconds).await,
            "readers" => readers(&reading, &writing, &order, seconds).await,
            other => panic!("it has no {other}"),
        })
        .await;
    });
}
