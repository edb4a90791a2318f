//! The end of an acquisition that succeeded: what was granted becomes a hold.

use super::driver::Driver;
use crate::backend::{Acquire, Event, Grant};
use crate::error::Result;
use crate::runtime::Instant;
use crate::session::{Closing, Grounds, Held, Hold, Moved, Ticket, Turn};

impl Driver<'_> {
    /// The answer to a request sent at `sent` is yes, for another owner if it `moved`: from here on the hold looks after itself.
    pub(super) fn granted(
        &mut self,
        grant: Grant,
        sent: Instant,
        handed_over: bool,
        moved: Option<Moved>,
        now: Instant,
    ) -> Result<Held> {
        self.wait_ends();
        self.unmark();
        let core = self.target.session.core();
        let Acquire { name, claim, owner: own, lease, .. } = &self.request;
        let mut unsettled_until = self.machine.unknown_until();
        match self.turn.as_ref().map_or(Closing::Nothing, Turn::close) {
            Closing::Nothing => {}
            Closing::OnItsWay(not_after) => unsettled_until = unsettled_until.max(not_after),
            Closing::Has(hold) => {
                if let Some(queue) = &self.target.queue {
                    core.release_unused(queue, name, hold.owner);
                }
            }
        }
        let (owner, passes) = moved.map_or((*own, 0), |moved| (moved.owner, moved.passes));
        if moved.is_some() {
            // The store has nothing else of the owner that it holds under.
            unsettled_until = Instant::default();
            self.undo(self.machine.has_left_beside());
        }
        let hold = Hold::new(
            &self.target.session,
            Grounds {
                name: name.clone(),
                claim: *claim,
                owner,
                id: own.number,
                spare_tokens: grant.spare_tokens,
                passes,
                token: grant.token.filter(|_| core.capabilities.fencing),
                lease: *lease,
                good_for: grant.good_for,
                session: grant.session,
                kept: self.kept,
                sent,
                unsettled_until,
                queue: self.target.queue.clone(),
                handed_over,
                until: self.max_hold.map_or(Instant::NEVER, |most| sent.plus(most)),
                place: self.ticket.as_ref().map(Ticket::place),
            },
        );
        let waited = now.since(self.began);
        core.notify(&Event::Acquired { name, claim: *claim, owner, waited, handed_over });
        if let Some(writers) = self.target.writers.as_ref().filter(|_| self.request.beside.is_none()) {
            core.share(writers, &hold);
        }
        if let Some(ticket) = self.ticket.take() {
            ticket.fill(&hold);
        }
        let held = hold.enter();
        // Dropped, it is released.
        self.target.session.check_closed()?;
        Ok(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{Acquisition, Command};

    fn returned<A, B, R>(_: impl FnOnce(A, B) -> R) -> usize {
        size_of::<R>()
    }

    /// Ten thousand waiters of one process are a use case: each has one of these, and a future of `go_on`.
    #[test]
    fn a_waiting_call_is_small() {
        assert!(size_of::<Driver<'_>>() <= 464, "the driver has {} bytes", size_of::<Driver<'_>>());
        assert!(size_of::<Acquisition>() <= 192 && size_of::<Command>() <= 104);
        let waiting = returned(Driver::go_on);
        assert!(waiting <= 640, "a future that waits has {waiting} bytes");
    }
}
