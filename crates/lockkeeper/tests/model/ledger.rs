//! Who holds what, kept from the answers alone: an account of its own, against which the model is judged.

use lockkeeper::backend::{Acquire, Attempt, Claim};
use lockkeeper::model::{Outcome, Request};
use lockkeeper::owner::WireOwner;

use super::common::{Verdict, ensure};

pub(crate) const TWO_HOLD: &str = "what one holds alone nobody else holds";
pub(crate) const LOST: &str = "a hold lasts until its lease ends or it is given up";

#[derive(Clone, Copy, Debug)]
struct Held {
    owner: WireOwner,
    alone: bool,
    until: u64,
}

/// All that was granted on a mutex or a read-write lock and has neither ended nor been given up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    held: Vec<Held>,
}

impl Ledger {
    pub(crate) fn expire(&mut self, at: u64) {
        self.held.retain(|held| held.until > at);
    }

    pub(crate) fn holds(&self, owner: WireOwner, claim: Claim) -> bool {
        self.held.iter().any(|held| held.owner == owner && held.alone == claim.is_exclusive())
    }

    pub(crate) fn is_free(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether somebody else holds it alone.
    pub(crate) fn is_taken_from(&self, owner: WireOwner) -> bool {
        self.held.iter().any(|held| held.alone && held.owner != owner)
    }

    pub(crate) fn give_up(&mut self, owner: WireOwner, claim: Claim) {
        self.held.retain(|held| held.owner != owner || held.alone != claim.is_exclusive());
    }

    /// Enters what was answered, and complains if it cannot be.
    pub(crate) fn enter(&mut self, request: &Request, outcome: &Outcome, at: u64) -> Verdict {
        self.expire(at);
        match (request, outcome) {
            (Request::Acquire(asked), Outcome::Acquire(attempt)) => self.attempted(asked, attempt, at),
            (Request::Release(asked), Outcome::Release(released)) => {
                let held = self.holds(asked.owner, asked.claim);
                ensure(held == released.held, LOST, || format!("{} releases, held={}", asked.owner, released.held))?;
                self.give_up(asked.owner, asked.claim);
                match (&asked.then, &released.next) {
                    (Some(then), Some(attempt)) => self.attempted(then, attempt, at),
                    (None, None) => Ok(()),
                    (then, next) => Err(format!("a successor gets an answer: {next:?} to {then:?}")),
                }
            }
            (Request::Renew(asked), Outcome::Renew(renewed)) => {
                let held = self.holds(asked.owner, asked.claim);
                ensure(held == renewed.is_kept(), LOST, || format!("{} renews: {renewed:?}", asked.owner))?;
                if let (true, Some(lease)) = (held, asked.lease) {
                    self.keep(asked.owner, asked.claim, at + nanos_of(lease));
                }
                Ok(())
            }
            (Request::Force, Outcome::Force(held)) => {
                ensure(*held != self.held.is_empty(), LOST, || format!("a forced release found a holder: {held}"))?;
                self.held.clear();
                Ok(())
            }
            (request, outcome) => Err(format!("an answer fits its request: {outcome:?} to {request:?}")),
        }
    }

    fn attempted(&mut self, asked: &Acquire, attempt: &Attempt, at: u64) -> Verdict {
        match attempt {
            Attempt::Granted(_) => {
                let alone = asked.claim.is_exclusive();
                let other = self.held.iter().find(|held| held.owner != asked.owner && (held.alone || alone));
                ensure(other.is_none(), TWO_HOLD, || format!("{} is granted {:?} beside {other:?}", asked.owner, asked.claim))?;
                self.keep(asked.owner, asked.claim, at + nanos_of(asked.lease));
                Ok(())
            }
            Attempt::Busy(_) => {
                ensure(!self.holds(asked.owner, asked.claim), LOST, || format!("{} asks again and is refused", asked.owner))
            }
            Attempt::Late => Err(format!("what comes in time is not late: {asked:?}")),
            other => unreachable!("{other:?}"),
        }
    }

    fn keep(&mut self, owner: WireOwner, claim: Claim, until: u64) {
        let alone = claim.is_exclusive();
        match self.held.iter_mut().find(|held| held.owner == owner && held.alone == alone) {
            Some(held) => held.until = held.until.max(until),
            None => self.held.push(Held { owner, alone, until }),
        }
    }
}

pub(crate) fn nanos_of(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
