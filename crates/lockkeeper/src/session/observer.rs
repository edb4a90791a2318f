//! Tells the session's observer what happens. The observer is code of the user (a metrics recorder, a log subscriber): what goes wrong in it
//! must not end the keeper or lose a lock.

use std::time::Duration;

use super::Core;
use crate::backend::{Event, Observer};
use crate::runtime::sync::atomic::Ordering;
use crate::runtime::{Instant, caught, log, on_background_thread};

/// An event that keeps the keeper for longer than this is too slow: renewals of short leases wait for it.
const SLOW: Duration = Duration::from_millis(100);

/// Observes nothing.
#[derive(Debug)]
pub(super) struct Nobody;

impl Observer for Nobody {
    fn notify(&self, _event: &Event<'_>) {}
}

impl Core {
    /// Tells the observer. A panic in it is caught and logged. One that blocks the keeper is told, once.
    pub(crate) fn notify(&self, event: &Event<'_>) {
        let began = on_background_thread().then(|| self.runtime.now());
        match began {
            Some(began) => self.told_since.store(began.as_nanos(), Ordering::Relaxed),
            // The keeper notices losses first, so it may be stuck. The subscriber is about to be told of the loss on this thread in any case.
            None if matches!(event, Event::Lost { .. }) => self.warn_if_stuck(),
            None => {}
        }
        if caught(|| self.observer.notify(event)).is_none() {
            log!(error, "the observer of lock events panicked; the event was dropped");
        }
        if let Some(began) = began {
            self.told_since.store(0, Ordering::Relaxed);
            self.warn_if_slow(self.runtime.now().since(began));
        }
    }

    /// Looks from a caller's thread whether the keeper has been in the observer for long: one that never returns is not told by the keeper.
    fn warn_if_stuck(&self) {
        let since = self.told_since.load(Ordering::Relaxed);
        if since != 0 {
            self.warn_if_slow(self.runtime.now().since(Instant::from_nanos(since)));
        }
    }

    fn warn_if_slow(&self, took: Duration) {
        if took > SLOW && !self.told_slow.swap(true, Ordering::Relaxed) {
            log!(
                warn,
                ?took,
                "the metrics recorder or the log subscriber blocks the thread that renews locks; renewals and releases wait for it, and a \
                 lock whose renewal comes too late is lost"
            );
        }
    }
}
