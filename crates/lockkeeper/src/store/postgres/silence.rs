//! Notices a connection whose request stays without an answer: it is not used again.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::statements::Live;
use crate::runtime::Instant;

/// A connection that answered nothing for this long, although it was asked, is not used again.
const SILENCE: Duration = Duration::from_secs(1);

/// A statement whose answer is waited for.
pub(super) struct InFlight<'a> {
    pub(super) live: &'a Live,
    pub(super) sent: Instant,
    pub(super) answered: bool,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let heard = Instant::from_nanos(self.live.heard.load(Ordering::Relaxed));
        if !self.answered && heard < self.sent && self.live.runtime.now().since(self.sent) > SILENCE {
            self.live.discard();
        }
    }
}
