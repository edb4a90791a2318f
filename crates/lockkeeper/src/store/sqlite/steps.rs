//! Each request as one turn of the book.

use std::sync::Arc;

use rusqlite::params;

use super::book::{Answer, Book};
use super::error;
use super::life::Sign;
use crate::backend::{
    Acquire, Attempt, AttemptAll, ClientCard, Count, CountOutcome, Grant, Holder, Release, Released, Renew, Renewed,
};
use crate::error::{Error, ErrorKind, Result};
use crate::model::{Now, Wake};
use crate::name::Name;
use crate::runtime::Instant;

impl Answer for Attempt {
    fn is_blocked(&self) -> bool {
        matches!(self, Self::Busy(_))
    }

    fn token(&self) -> Option<u64> {
        if let Self::Granted(grant) = self { grant.token } else { None }
    }
}

impl Answer for Released {
    /// A release succeeds whoever is there; a successor that does not asks again by itself.
    fn is_blocked(&self) -> bool {
        false
    }

    fn token(&self) -> Option<u64> {
        self.next.and_then(|next| next.token())
    }
}

impl Answer for CountOutcome {
    /// A semaphore that is held is not removed.
    fn is_blocked(&self) -> bool {
        matches!(self, Self::Counted(counted) if !counted.done)
    }

    fn token(&self) -> Option<u64> {
        None
    }
}

impl Answer for Renewed {
    fn is_blocked(&self) -> bool {
        false
    }

    fn token(&self) -> Option<u64> {
        None
    }
}

impl Answer for Vec<Holder> {
    fn is_blocked(&self) -> bool {
        false
    }

    fn token(&self) -> Option<u64> {
        None
    }
}

impl Book {
    pub(super) fn acquire(&mut self, request: &Acquire) -> Result<Attempt> {
        let known = self.ties.lives.holds(request.owner);
        let life = self.ties.lives.hold(request.owner, self.ties.runtime.now().plus(request.lease))?;
        let attempt = self.turn(true, |turn| {
            turn.step(&request.name, Some((request.owner, life)), |record, now| {
                record.acquire(request, now).map(|step| (step.answer, step.wake))
            })
        });
        // Unknown counts as held; nothing else does.
        let open = matches!(&attempt, Err(error) if error.kind() == ErrorKind::Indeterminate);
        if !(open || known && attempt.is_err() || matches!(attempt, Ok(Attempt::Granted(_)))) {
            self.ties.lives.let_go(request.owner);
        }
        attempt
    }

    pub(super) fn acquire_all(&mut self, requests: &[Acquire]) -> Result<AttemptAll> {
        if requests.is_empty() {
            return Err(Error::new(ErrorKind::InvalidArgument, "asked for no lock at all; name at least one"));
        }
        let now = self.ties.runtime.now();
        let mut lives = Vec::with_capacity(requests.len());
        for request in requests {
            lives.push(self.ties.lives.hold(request.owner, now.plus(request.lease))?);
        }
        let mut refused = None;
        let done = self.turn(true, |turn| {
            let mut grants: Vec<Grant> = Vec::with_capacity(requests.len());
            for (index, (request, life)) in requests.iter().zip(&lives).enumerate() {
                // Whoever asks for several does not stand in line for one.
                let request = Acquire { place: None, ..request.clone() };
                let attempt = turn.step(&request.name, Some((request.owner, *life)), |record, now| {
                    record.acquire(&request, now).map(|step| (step.answer, step.wake))
                })?;
                refused = match attempt {
                    Attempt::Granted(grant) => {
                        grants.push(grant);
                        continue;
                    }
                    Attempt::Busy(busy) => Some(AttemptAll::Busy { index, busy }),
                    Attempt::Late => Some(AttemptAll::Late),
                };
                // An error undoes the turn; which one does not matter.
                return Err(Error::new(ErrorKind::InvalidArgument, "one of them is not free"));
            }
            Ok(AttemptAll::Granted(grants))
        });
        let open = matches!(&done, Err(error) if error.kind() == ErrorKind::Indeterminate);
        if done.is_err() && !open {
            requests.iter().for_each(|request| self.ties.lives.let_go(request.owner));
        }
        match refused {
            Some(refused) => Ok(refused),
            None => done,
        }
    }

    pub(super) fn release(&mut self, request: &Release) -> Result<Released> {
        let life = match &request.then {
            Some(then) => Some((then.owner, self.ties.lives.hold(then.owner, self.ties.runtime.now().plus(then.lease))?)),
            None => None,
        };
        let released = self.turn(true, |turn| {
            let released =
                turn.step(&request.name, life, |record, now| record.release(request, now).map(|step| (step.answer, step.wake)))?;
            Ok(Released { woke: Some(turn.called()), ..released })
        });
        if let Some(then) = &request.then {
            let open = matches!(&released, Err(error) if error.kind() == ErrorKind::Indeterminate);
            if !(open || matches!(&released, Ok(Released { next: Some(Attempt::Granted(_)), .. }))) {
                self.ties.lives.let_go(then.owner);
            }
        }
        match released {
            Err(error) if self.may_die_for(&error) => {
                let held = self.ties.lives.holds(request.owner);
                // Nobody can be told in writing. Under a life that ends nothing is held, and the kernel tells that.
                if self.ties.lives.give_up_for(request.owner, self.ties.runtime.now()) {
                    tracing::warn!(name = %request.name, owner = %request.owner, %error, "released by ending the sign of life");
                    Ok(Released { held, next: None, woke: None })
                } else {
                    Err(error)
                }
            }
            Ok(released) => {
                self.ties.lives.let_go(request.owner);
                Ok(released)
            }
            refused => refused,
        }
    }

    /// Whether it was the disk that failed, and not the request.
    fn may_die_for(&self, error: &Error) -> bool {
        matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate | ErrorKind::Denied) && !error::is_busy(error)
    }

    pub(super) fn renew(&mut self, requests: &[Renew]) -> Result<Vec<Result<Renewed>>> {
        let answers = self.turn(true, |turn| {
            let mut answers = Vec::with_capacity(requests.len());
            for request in requests {
                let life = turn.read(&request.name)?.row.life_of(request.owner);
                if life.is_some_and(|life| matches!(turn.lives.sign(life), Sign::Dead)) {
                    answers.push(Ok(Renewed::Gone));
                    continue;
                }
                let renewed = turn.step(&request.name, None, |record, now| {
                    // A renewal mints no token.
                    Ok((record.renew(request, Now { token: 0, ..now }), Wake::NOBODY))
                });
                answers.push(renewed);
            }
            Ok(answers)
        })?;
        let now = self.ties.runtime.now();
        for (request, answer) in requests.iter().zip(&answers) {
            match (answer, request.lease) {
                (Ok(Renewed::Gone), _) => self.ties.lives.let_go(request.owner),
                (Ok(Renewed::Kept { .. }), Some(lease)) if self.ties.lives.holds(request.owner) => {
                    self.ties.lives.hold(request.owner, now.plus(lease))?;
                }
                _ => {}
            }
        }
        Ok(answers)
    }

    pub(super) fn count(&mut self, request: &Count) -> Result<CountOutcome> {
        self.turn(true, |turn| {
            turn.step(&request.name, None, |record, now| record.count(request, now).map(|step| (step.answer, step.wake)))
        })
    }

    pub(super) fn force_release(&mut self, name: &Name) -> Result<Vec<Holder>> {
        self.turn(true, |turn| {
            // The dead hold nothing that could be taken from them.
            turn.bury(name)?;
            let from = turn.step(name, None, |record, now| {
                let step = record.force_release(now);
                Ok((step.answer, step.wake))
            })?;
            from.into_iter().map(|holder| turn.introduce(holder)).collect()
        })
    }

    pub(super) fn announce(&mut self, card: &ClientCard, until: Instant) -> Result<()> {
        let text = serde_json::to_string(card)
            .map_err(|cause| Error::new(ErrorKind::Protocol, "a card cannot be written").with_source(cause))?;
        self.turn(true, |turn| {
            turn.execute("DELETE FROM client WHERE ends <= ?1", params![nanos(turn.at())])?;
            turn.execute(
                "INSERT INTO client (id, ends, card) VALUES (?1, ?2, ?3) ON CONFLICT (id) DO UPDATE SET ends = ?2, card = ?3",
                params![card.id.to_string(), nanos(until), text],
            )
            .map(drop)
        })
    }

    /// Has mail sent here for the name, as long as somebody here wants it.
    pub(super) fn enlist(&mut self, name: &Name) -> Result<()> {
        let ties = Arc::clone(&self.ties);
        let instance = ties.lives.instance().to_string();
        self.turn(true, |turn| {
            let sql = if ties.post.wants_all(name) {
                "INSERT INTO listener (name, instance) VALUES (?1, ?2) ON CONFLICT DO NOTHING"
            } else {
                "DELETE FROM listener WHERE name = ?1 AND instance = ?2"
            };
            turn.execute(sql, params![name.as_str(), instance]).map(drop)
        })
    }
}

/// A point in time as SQLite keeps it; the boot clock reaches the end of that in three hundred years.
pub(super) fn nanos(at: Instant) -> i64 {
    i64::try_from(at.as_nanos()).unwrap_or(i64::MAX)
}
