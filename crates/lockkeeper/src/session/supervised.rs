//! Runs the keeper's parts anew when code of the user's panics in them.

use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

use crate::runtime::{Runtime, caught, log};

/// So long after a panic the work begins anew: code that panics each time must not keep the processor busy.
const PAUSE: Duration = Duration::from_millis(100);

/// Runs `work` to its end, and begins it anew when it panics. Code of the user's runs in it: wakers, and what a store drops. If the keeper ended by
/// a panic, no hold of its client would be renewed or told lost any more.
pub(super) async fn supervised<W: Future<Output = ()> + Send>(runtime: &Runtime, mut work: impl FnMut() -> W) {
    loop {
        let mut work = Box::pin(work());
        let has_ended = poll_fn(|cx| match caught(|| work.as_mut().poll(cx)) {
            Some(poll) => poll.map(|()| true),
            None => Poll::Ready(false),
        })
        .await;
        // What is left of it may panic too.
        let dropped = caught(|| drop(work));
        if has_ended && dropped.is_some() {
            return;
        }
        log!(error, "the keeper of a client met a panic, in a waker or in the store; it goes on");
        if has_ended {
            return;
        }
        runtime.sleep_until(runtime.now().plus(PAUSE)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_that_panics_is_begun_anew_until_it_ends() {
        let (runtime, begun) = (Runtime::simulated(), AtomicU32::new(0));
        let from = runtime.now();
        supervised(&runtime, || {
            let number = begun.fetch_add(1, Ordering::SeqCst);
            async move {
                tokio::task::yield_now().await;
                if number < 3 {
                    std::panic::resume_unwind(Box::new("on purpose"));
                }
            }
        })
        .await;
        assert_eq!(begun.into_inner(), 4);
        assert!(runtime.now().since(from) >= PAUSE * 3, "it takes a pause after each panic");
    }
}
