//! Waiting for a state by polling it, with a bound: a test that waits in vain fails and says for what.

use std::future::Future;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(5);

/// Polls until the condition holds, blocking the thread.
#[track_caller]
pub fn until_within(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(PAUSE);
    }
}

/// Polls until the future says so, without blocking the executor.
pub async fn async_until_within<F: Future<Output = bool>>(limit: Duration, what: &str, mut condition: impl FnMut() -> F) {
    let began = Instant::now();
    while !condition().await {
        assert!(began.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}
