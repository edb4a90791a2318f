//! What an acquisition may have left in the store: the session is told while the call does not look after it itself.

use std::time::Duration;

use super::driver::Driver;
use crate::backend::{Acquire, Release};
use crate::error::Result;
use crate::session::{Command, Left, Step, Turn, Undo};

/// So long after an answer was due a call has to run: the executor may be busy for a moment.
const READS_WITHIN: Duration = Duration::from_secs(1);

impl Driver<'_> {
    /// It sleeps, perhaps for long, and perhaps its caller does not run then: `close` does not wait for it, and undoes what it may have left.
    pub(super) fn pauses(&mut self) -> Result<()> {
        let core = self.target.session.core();
        if let Some(left) = self.machine.has_left() {
            // A place is kept as long as on stores that count that themselves. If it was taken back already, the call learns it when it runs again.
            let until = core.runtime.now().plus(core.settings.place);
            core.mark(self.undo_of(left), until, true, std::mem::replace(&mut self.marked, true));
        } else if self.marked {
            self.marked = !core.unmark(self.request.owner);
        }
        self.under_way = None;
        self.target.session.check_closed()
    }

    /// Its request goes out: where a grant that nobody reads would not end by itself, it is taken back if the call does not run when the answer is due.
    /// False if it must not go out: what the call had left before was taken back.
    pub(super) fn sends(&mut self) -> bool {
        let core = self.target.session.core();
        match self.machine.has_left() {
            Some(left) if core.capabilities.liveness.session().is_some() => {
                let until = self.request.not_after.plus(READS_WITHIN);
                core.mark(self.undo_of(left), until, false, std::mem::replace(&mut self.marked, true))
            }
            _ => true,
        }
    }

    /// Whether its owner may go on with what it got: nobody takes it back from here on.
    pub(super) fn keeps_owner(&mut self) -> bool {
        let unmarked = !std::mem::take(&mut self.marked) || self.target.session.core().unmark(self.request.owner);
        unmarked && !self.turn.as_ref().is_some_and(Turn::was_revoked)
    }

    /// It runs again, unless the keeper took back what it had in the store.
    pub(super) fn comes_back(&mut self, event: Step) -> Command {
        let event = if self.is_taken_back() { Step::Revoked } else { event };
        self.step(event)
    }

    fn is_taken_back(&self) -> bool {
        let revoked = self.turn.as_ref().is_some_and(Turn::was_revoked);
        revoked || self.marked && self.target.session.core().is_taken_back(self.request.owner)
    }

    /// Undoes what its owner may have left, and goes on under a new one.
    pub(super) fn renew_owner(&mut self, left: Option<Left>) {
        self.unmark();
        self.undo(left);
        self.subscription = None;
        self.request.owner = self.target.session.core().next_owner();
    }

    /// As that, if it did not run while it slept: nothing of it is out.
    pub(super) fn renew_owner_if_taken_back(&mut self) {
        if self.is_taken_back()
            && let Command::NewOwner { left } = self.step(Step::Revoked)
        {
            self.renew_owner(left);
        }
    }

    /// The session has nothing to undo for it any more.
    pub(super) fn unmark(&mut self) {
        if std::mem::take(&mut self.marked) {
            self.target.session.core().unmark(self.request.owner);
        }
    }

    /// Has the keeper release what this owner id may have left.
    pub(super) fn undo(&self, left: Option<Left>) {
        if let Some(left) = left {
            let (core, undo) = (self.target.session.core(), self.undo_of(left));
            if undo.unanswered > 0 && !core.is_forked() {
                core.backend.release_behind(&undo.release);
            }
            core.undo(undo);
        }
    }

    fn undo_of(&self, Left { settled_after, unanswered }: Left) -> Undo {
        let Acquire { name, claim, owner, lease, .. } = &self.request;
        let release = Release::new(name.clone(), *claim, *owner);
        Undo { release, lease: *lease, settled_after, unanswered, queue: None }
    }
}
