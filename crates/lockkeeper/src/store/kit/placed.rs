//! What lies under one name of a store that keeps places: the places themselves, and the numbers of semaphores, counters and latches, which
//! follow the model. Pure.

use std::time::Duration;

use super::places::{Place, Places};
use crate::backend::{Acquire, Attempt, Claim, Count, CountOp, CountOutcome, Counted, Grant, Kind, SemaphoreOp, Snapshot};
use crate::error::{Error, ErrorKind, Result};
use crate::model::{Now, Record};
use crate::name::Name;
use crate::runtime::Instant;

/// What lies under one name.
#[derive(Debug, Default)]
pub(crate) struct PlacedRecord {
    pub(crate) places: Places,
    numbers: Record,
}

impl PlacedRecord {
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty() && self.numbers.is_empty()
    }

    /// Asks for the name, with a new place of this number in this session unless the owner has one. A grant is good for `good_for`.
    pub(crate) fn acquire(
        &mut self,
        request: &Acquire,
        (number, session): (u64, u64),
        good_for: Duration,
        at: Instant,
    ) -> Result<Attempt> {
        let Acquire { name, claim, owner, .. } = request;
        self.numbers.expire(at);
        self.check_kind(name, claim.kind(), at)?;
        if let Claim::Permits { take, of } = *claim {
            let total = self.total(name, at).unwrap_or(of);
            let known = self.places.find(*owner, *claim).is_some();
            if (total != of && !request.any_size) || take == 0 || (take > total && !known) {
                let message = format!("cannot take {take} of {of} permits of {name:?}, which has {total}");
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
            let op = CountOp::Semaphore(SemaphoreOp::Init(of));
            self.numbers.count(&Count::new(name.clone(), *owner, op, Duration::ZERO), Now { at, token: 0 })?;
        }
        let free = self.total(name, at).unwrap_or(0).saturating_sub(self.places.used());
        let place = Place::new(number, *owner, session, *claim);
        Ok(match self.places.ask(place, request.beside, free, request.place.is_some()) {
            Ok(place) => Attempt::Granted(Grant::new(place.token(), good_for).in_session(place.session)),
            Err(busy) => Attempt::Busy(busy),
        })
    }

    /// Counts; also tells whether those who wait for a number are to be woken. There is no clock in a request, so none is late.
    pub(crate) fn count(&mut self, request: &Count, at: Instant) -> Result<(CountOutcome, bool)> {
        let (name, op) = (&request.name, request.op);
        self.check_kind(name, op.kind(), at)?;
        if op == CountOp::Semaphore(SemaphoreOp::Remove) && !self.places.is_empty() {
            let value = i64::from(self.total(name, at).unwrap_or(0));
            return Ok((CountOutcome::Counted(Counted::new(false, value)), false));
        }
        let used = if op == CountOp::Semaphore(SemaphoreOp::Read) { self.places.used() } else { 0 };
        let step = self.numbers.count(&request.clone().with_not_after(Instant::NEVER), Now { at, token: 0 })?;
        let answer = match step.answer {
            CountOutcome::Counted(Counted { done, value }) => CountOutcome::Counted(Counted::new(done, value - i64::from(used))),
            late => late,
        };
        Ok((answer, step.wake.all))
    }

    pub(crate) fn snapshot(&self, name: &Name, at: Instant) -> Option<Snapshot> {
        let of_places = || self.places.kind().map(|kind| Snapshot::new(name.clone(), kind));
        let mut seen = self.numbers.snapshot(name, at).or_else(of_places)?;
        seen.value = seen.value.map(|value| value - i64::from(self.places.used()));
        (seen.holders, seen.queue) = self.places.describe();
        Some(seen)
    }

    /// Refuses a request for another kind than the one that lives there.
    fn check_kind(&self, name: &Name, wanted: Kind, at: Instant) -> Result<()> {
        match self.places.kind().or_else(|| self.numbers.snapshot(name, at).map(|found| found.kind)) {
            Some(kind) if kind != wanted => Err(kind.instead_of(wanted, name)),
            _ => Ok(()),
        }
    }

    /// The size of the semaphore, if there is one.
    fn total(&self, name: &Name, at: Instant) -> Option<u32> {
        self.numbers.snapshot(name, at).and_then(|found| found.total)
    }
}
