//! Blocking a thread until a future ends or a time has passed, without an executor.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

/// Blocks this thread until `future` ends, at most for `limit`; whether it ended. The future must need neither timers nor I/O.
pub(crate) fn park_on(limit: Duration, mut future: Pin<&mut impl Future<Output = ()>>) -> bool {
    let end = std::time::Instant::now().checked_add(limit);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if future.as_mut().poll(&mut context).is_ready() {
            return true;
        }
        match end.map(|end| end.saturating_duration_since(std::time::Instant::now())) {
            Some(Duration::ZERO) => return false,
            Some(left) => std::thread::park_timeout(left),
            None => std::thread::park(),
        }
    }
}

pub(super) struct Unpark(pub(super) std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
