//! rslock as a contestant of the benchmarks, on one server or on a majority of several.

use std::sync::Arc;
use std::time::Duration;

use bench_course::{Lock, contend, cycle, heats, race};
use rslock::{Lock as Held, LockManager};

/// It renews nothing, so the lease is what we have by default.
const LEASE: Duration = Duration::from_secs(30);

struct Named {
    manager: LockManager,
    name: String,
}

impl Lock for Named {
    type Guard = Held;

    async fn take(&self) -> Held {
        self.manager.acquire_no_guard(self.name.as_str(), LEASE).await.expect("granted")
    }

    async fn give(&self, held: Held) {
        self.manager.unlock(&held).await;
    }
}

fn main() {
    race(async |order| {
        let manager = LockManager::new(order.urls());
        let named = |name: String| Arc::new(Named { manager: manager.clone(), name });
        let locks: Vec<_> = order.names().into_iter().map(named).collect();
        heats(&order, async |seconds| match order.workload.as_str() {
            "cycle" => cycle(&locks, seconds).await,
            "contend" => contend(&locks, &order, seconds).await,
            other => panic!("it has no {other}"),
        })
        .await;
    });
}
