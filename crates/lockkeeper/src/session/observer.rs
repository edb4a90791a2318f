//! Tells the session's observer what happens. The observer is code of the user (a metrics recorder, a log subscriber): what goes wrong in it
//! must not end the keeper or lose a lock.

use super::Core;
use crate::backend::{Event, Observer};
use crate::runtime::{caught, log};

/// Observes nothing.
#[derive(Debug)]
pub(super) struct Nobody;

impl Observer for Nobody {
    fn notify(&self, _event: &Event<'_>) {}
}

impl Core {
    /// Tells the observer. A panic in it is caught and logged.
    pub(crate) fn notify(&self, event: &Event<'_>) {
        if caught(|| self.observer.notify(event)).is_none() {
            log!(error, "the observer of lock events panicked; the event was dropped");
        }
    }
}
