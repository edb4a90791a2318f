//! Readers of one process share one read hold at the store: a reader that comes soon after another one joins its hold.
//!
//! All that share a hold have the same token, and lose it together. Joins end 50 ms after the hold was asked for, so that a writer elsewhere, which
//! is not seen here, waits for no reader that came later than that. A writer of this process ends them at once.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::LocalQueue;
use crate::runtime::Instant;
use crate::session::{Hold, lock};

/// How long after a read hold was asked for others may join it.
const JOINS_LAST: Duration = Duration::from_millis(50);

/// The read hold that readers of this process may join.
#[derive(Debug)]
pub(super) struct Shared {
    hold: Weak<Hold>,
    sent: Instant,
}

/// Whether a reader may join a hold that was asked for at `sent`, while so many calls of this process want to write.
fn may_join(sent: Instant, writers: u32, now: Instant) -> bool {
    writers == 0 && now.since(sent) < JOINS_LAST
}

impl LocalQueue {
    /// Others may join this read hold, unless somebody here wants to write. The hold that was asked for last counts.
    pub(in crate::session) fn share(&self, hold: &Arc<Hold>, sent: Instant) {
        let mut state = lock(&self.state);
        if state.wanted == 0 && state.shared.as_ref().is_none_or(|shared| shared.sent <= sent) {
            state.shared = Some(Shared { hold: Arc::downgrade(hold), sent });
        }
    }

    /// The read hold that a reader may join now.
    pub(in crate::session) fn shared_hold(&self, now: Instant) -> Option<Arc<Hold>> {
        let state = lock(&self.state);
        let shared = state.shared.as_ref()?;
        let free = state.held_by.is_none() && !state.closed;
        if free && may_join(shared.sent, state.wanted, now) { shared.hold.upgrade() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Instant = Instant::from_nanos(3_600_000_000_000);

    /// Readers come and go, and a writer begins to wait at some time. Tells whether a reader joined that came after it, or too late for writers
    /// elsewhere.
    fn joins_wrongly(rule: impl Fn(Instant, u32, Instant) -> bool, pauses: &[u64], writer: usize) -> bool {
        let (mut now, mut sent) = (NOW, NOW);
        for (index, pause) in pauses.iter().enumerate() {
            now = now.plus(Duration::from_micros(*pause));
            let writers = u32::from(index >= writer);
            if !rule(sent, writers, now) {
                // It asks for a hold of its own.
                sent = now;
            } else if writers > 0 || now.since(sent) >= JOINS_LAST {
                return true;
            }
        }
        false
    }

    proptest! {
        #[test]
        fn no_reader_joins_past_a_writer(pauses in proptest::collection::vec(0_u64..9_000, 0..200), writer in 0_usize..200) {
            prop_assert!(!joins_wrongly(may_join, &pauses, writer));
        }
    }

    /// Negative control.
    #[test]
    fn a_join_past_a_waiting_writer_is_caught() {
        let pauses = [1_000; 100];
        assert!(joins_wrongly(|sent, _, now| may_join(sent, 0, now), &pauses, 10), "past a writer of this process");
        assert!(joins_wrongly(|_, writers, _| writers == 0, &pauses, 100), "past a writer elsewhere");
        assert!(!joins_wrongly(may_join, &pauses, 10));
    }
}
