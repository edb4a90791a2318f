//! Tells the session's observer what happens. The observer is code of the user (a metrics recorder, a log subscriber): what goes wrong in it
//! must not end the keeper or lose a lock.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Core;
use crate::backend::{Event, Observer};

/// Observes nothing.
#[derive(Debug)]
pub(super) struct Nobody;

impl Observer for Nobody {
    fn notify(&self, _event: &Event<'_>) {}
}

impl Core {
    /// Tells the observer. A panic in it is caught and logged.
    pub(crate) fn notify(&self, event: &Event<'_>) {
        if catch_unwind(AssertUnwindSafe(|| self.observer.notify(event))).is_err() {
            // The subscriber that takes this log may be what panicked.
            let _ = catch_unwind(|| tracing::error!("the observer of lock events panicked; the event was dropped"));
        }
    }
}
