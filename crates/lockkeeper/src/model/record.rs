//! All that lies under one name: the state of one synchronizer, and the ids of recent counting requests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::renewal::Asked;
use super::{Now, Step, Wake, counter, latch, mutex, rwlock, semaphore};
use crate::backend::{
    Acquire, Attempt, Claim, Count, CountOp, CountOutcome, Counted, Grant, Holder, Kind, Release, Released, Renew, Renewed,
    Snapshot,
};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::owner::WireOwner;
use crate::runtime::Instant;

/// All that lies under one name, or the rows of it that a request needs. The default is nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub(super) body: Option<Body>,
    /// Counting requests that were carried out, so that a repetition is recognised. Kept apart from the body: a latch that
    /// is open again is gone, and a repeated `Init` must still not close it a second time.
    #[serde(with = "super::pairs")]
    pub(super) seen: BTreeMap<WireOwner, Seen>,
    /// There may be parts of the body that are not loaded.
    #[serde(skip)]
    pub(super) more_parts: bool,
    /// There may be requests that are remembered and not loaded.
    #[serde(skip)]
    pub(super) more_seen: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Body {
    Mutex(mutex::State),
    RwLock(rwlock::State),
    Semaphore(semaphore::State),
    Counter(counter::State),
    Latch(latch::State),
}

impl Body {
    const fn kind(&self) -> Kind {
        match self {
            Self::Mutex(_) => Kind::Mutex,
            Self::RwLock(_) => Kind::RwLock,
            Self::Semaphore(_) => Kind::Semaphore,
            Self::Counter(_) => Kind::CountingSemaphore,
            Self::Latch(_) => Kind::Latch,
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Mutex(state) => state.is_empty(),
            Self::RwLock(state) => state.is_empty(),
            Self::Semaphore(state) => state.is_empty(),
            Self::Counter(state) => state.is_empty(),
            Self::Latch(state) => state.is_empty(),
        }
    }

    fn expire(&mut self, at: Instant) {
        match self {
            Self::Mutex(state) => state.expire(at),
            Self::RwLock(state) => state.expire(at),
            Self::Semaphore(state) => state.expire(at),
            Self::Counter(_) | Self::Latch(_) => {}
        }
    }
}

/// A hold: since when, how long it lasts unless renewed, and its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hold {
    pub(super) since: Instant,
    pub(super) expires: Instant,
    pub(super) token: Option<u64>,
}

impl Hold {
    /// A new hold for this request, with the token that is due.
    pub(super) fn granted(request: &Acquire, now: Now) -> Self {
        Self { since: now.at, expires: now.at.plus(request.lease), token: Some(now.token) }
    }

    /// The same grant given again, kept for the lease asked for now.
    pub(super) fn again(&mut self, request: &Acquire, now: Now) -> Attempt {
        self.keep(now.at.plus(request.lease));
        Attempt::Granted(Grant::new(self.token, request.lease))
    }

    /// Lasts at least until `until`: a lease is never shortened.
    pub(super) fn keep(&mut self, until: Instant) {
        self.expires = self.expires.max(until);
    }

    pub(super) fn describe(&self, owner: WireOwner, claim: Claim, at: Instant) -> Holder {
        Holder {
            owner: owner.to_string(),
            claim,
            held_for: Some(at.since(self.since)),
            lease_left: Some(self.expires.since(at)),
            token: self.token,
            client: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seen {
    pub(super) answer: Counted,
    pub(super) expires: Instant,
}

/// The state of one kind, made empty if nothing is there; `tidy` takes it away again if it stays empty.
macro_rules! state_of {
    ($record:expr, $kind:ident, $variant:ident, $name:expr) => {
        match $record.body.get_or_insert_with(|| Body::$variant(Default::default())) {
            Body::$variant(state) => Ok(state),
            other => Err(other.kind().instead_of(Kind::$kind, $name)),
        }
    };
}

impl Record {
    /// Whether nothing lies there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.body.is_none() && self.seen.is_empty() && !self.more_parts && !self.more_seen
    }

    /// Removes what has ended by `at`.
    pub fn expire(&mut self, at: Instant) {
        if let Some(body) = &mut self.body {
            body.expire(at);
        }
        if !self.seen.is_empty() {
            self.seen.retain(|_, seen| seen.expires > at);
        }
        self.tidy();
    }

    fn tidy(&mut self) {
        if !self.more_parts && self.body.as_ref().is_some_and(Body::is_empty) {
            self.body = None;
        }
    }

    /// Asks for the state "held by this owner until now + lease".
    ///
    /// # Errors
    ///
    /// `WrongKind` if another kind lives there; `InvalidArgument` if a semaphore has another size or too few permits in all.
    pub fn acquire(&mut self, request: &Acquire, now: Now) -> Result<Step<Attempt>> {
        self.expire(now.at);
        if now.at > request.not_after {
            return Ok(Step::quiet(Attempt::Late));
        }
        let answer = self.attempt(request, now);
        self.tidy();
        Ok(Step::quiet(match answer? {
            // Only a new grant has the token that is due; a repeated one keeps its own, and the numbers after that one are given out.
            Attempt::Granted(grant) if grant.token == Some(now.token) => {
                Attempt::Granted(grant.with_spare_tokens(request.spare_tokens.min(Acquire::MAX_SPARE_TOKENS)))
            }
            other => other,
        }))
    }

    fn attempt(&mut self, request: &Acquire, now: Now) -> Result<Attempt> {
        Ok(match request.claim {
            Claim::Mutex | Claim::Fair => state_of!(self, Mutex, Mutex, &request.name)?.acquire(request, now),
            Claim::Read => state_of!(self, RwLock, RwLock, &request.name)?.read(request, now),
            Claim::Write => state_of!(self, RwLock, RwLock, &request.name)?.write(request, now),
            Claim::Permits { take, of } => {
                state_of!(self, Semaphore, Semaphore, &request.name)?.acquire(request, take, of, now)?
            }
        })
    }

    /// Removes all that the owner's claim has here, then grants to the successor, if one is named and its condition is met.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the successor is the owner itself or asks for anything but this mutex; then nothing is released.
    pub fn release(&mut self, request: &Release, now: Now) -> Result<Step<Released>> {
        self.expire(now.at);
        if let Some(then) = &request.then
            && (then.name != request.name
                || then.owner == request.owner
                || then.claim.kind() != Kind::Mutex
                || request.claim.kind() != Kind::Mutex)
        {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "a successor must be another owner that asks for the mutex that is released",
            ));
        }
        let (held, wake) = match (&mut self.body, request.claim) {
            (Some(Body::Mutex(state)), Claim::Mutex | Claim::Fair) => state.release(request.owner),
            (Some(Body::RwLock(state)), Claim::Read) => state.release_read(request.owner),
            (Some(Body::RwLock(state)), Claim::Write) => state.release_write(request.owner),
            (Some(Body::Semaphore(state)), Claim::Permits { .. }) => state.release(request.owner),
            _ => (false, Wake::NOBODY),
        };
        self.tidy();
        let next = match &request.then {
            Some(then) if !request.if_alone || self.may_keep(held, then) => Some(self.acquire(then, now)?.answer),
            _ => None,
        };
        let wake = if matches!(next, Some(Attempt::Granted(_))) { Wake::NOBODY } else { wake };
        Ok(Step { answer: Released::new(held).with_next(next), wake })
    }

    /// Whether a client that released may go on as `then`: nobody is in the queue. A repeated request finds `then` as the holder.
    fn may_keep(&mut self, held: bool, then: &Acquire) -> bool {
        // Places may not be loaded.
        let queued = self.more_parts;
        match &mut self.body {
            Some(Body::Mutex(state)) => state.hold_of(then.owner).is_some() || held && !queued && state.queue.is_empty(),
            _ => held && !queued,
        }
    }

    /// Renews the owner's hold, or only looks whether it is there.
    pub fn renew(&mut self, request: &Renew, now: Now) -> Renewed {
        if self.renew_as(request, &Asked::plain(request.lease), now).is_some() {
            Renewed::kept(request.lease)
        } else {
            Renewed::Gone
        }
    }

    /// The same where the clock can be set back. When the hold ends now; `None`: it is gone.
    pub(crate) fn renew_as(&mut self, request: &Renew, asked: &Asked, now: Now) -> Option<Instant> {
        self.expire(now.at);
        let hold = match (&mut self.body, request.claim) {
            (Some(Body::Mutex(state)), Claim::Mutex | Claim::Fair) => state.hold_of(request.owner),
            (Some(Body::RwLock(state)), Claim::Read) => state.read_hold_of(request.owner),
            (Some(Body::RwLock(state)), Claim::Write) => state.write_hold_of(request.owner),
            (Some(Body::Semaphore(state)), Claim::Permits { .. }) => state.hold_of(request.owner),
            _ => None,
        };
        let hold = hold?;
        hold.expires = asked.end_after(hold.expires, now.at);
        Some(hold.expires)
    }

    /// Changes or reads a number; a repetition gets the first answer and changes nothing.
    ///
    /// # Errors
    ///
    /// `WrongKind` if another kind lives there; `InvalidArgument` if the number would leave its range.
    pub fn count(&mut self, request: &Count, now: Now) -> Result<Step<CountOutcome>> {
        self.expire(now.at);
        let read = request.op.is_read();
        // Before the check for lateness: a late repetition still gets the first answer.
        if let Some(seen) = self.seen.get(&request.id) {
            return Ok(Step::quiet(CountOutcome::Counted(seen.answer)));
        }
        if !read && now.at > request.not_after {
            return Ok(Step::quiet(CountOutcome::Late));
        }
        let done = match request.op {
            CountOp::Counter(op) => state_of!(self, CountingSemaphore, Counter, &request.name).and_then(|state| state.apply(op)),
            CountOp::Latch(op) => state_of!(self, Latch, Latch, &request.name).map(|state| state.apply(op)),
            CountOp::Semaphore(op) => state_of!(self, Semaphore, Semaphore, &request.name).map(|state| state.apply(op)),
        };
        self.tidy();
        let (answer, wake) = done?;
        if !read {
            self.seen.insert(request.id, Seen { answer, expires: now.at.plus(request.remember) });
        }
        Ok(Step { answer: CountOutcome::Counted(answer), wake })
    }

    /// Removes all holders and returns them.
    pub fn force_release(&mut self, now: Now) -> Step<Vec<Holder>> {
        self.expire(now.at);
        let answer = self.holders(now.at);
        let wake = match &mut self.body {
            Some(Body::Mutex(state)) => state.force(),
            Some(Body::RwLock(state)) => state.force(),
            Some(Body::Semaphore(state)) => state.force(),
            Some(Body::Counter(_) | Body::Latch(_)) | None => Wake::NOBODY,
        };
        self.tidy();
        Step { answer, wake }
    }

    /// All owners that hold something here or wait in a queue, holders first.
    #[must_use]
    pub fn owners(&self) -> Vec<WireOwner> {
        match &self.body {
            Some(Body::Mutex(state)) => state.owners(),
            Some(Body::RwLock(state)) => state.owners(),
            Some(Body::Semaphore(state)) => state.owners(),
            Some(Body::Counter(_) | Body::Latch(_)) | None => Vec::new(),
        }
    }

    /// Removes all that dead owners have here, before their leases end.
    pub fn forget(&mut self, gone: &dyn Fn(WireOwner) -> bool) -> Wake {
        let wake = match &mut self.body {
            Some(Body::Mutex(state)) => state.forget(gone),
            Some(Body::RwLock(state)) => state.forget(gone),
            Some(Body::Semaphore(state)) => state.forget(gone),
            Some(Body::Counter(_) | Body::Latch(_)) | None => Wake::NOBODY,
        };
        self.tidy();
        wake
    }

    fn holders(&self, at: Instant) -> Vec<Holder> {
        match &self.body {
            Some(Body::Mutex(state)) => state.holders(at),
            Some(Body::RwLock(state)) => state.holders(at),
            Some(Body::Semaphore(state)) => state.holders(at),
            Some(Body::Counter(_) | Body::Latch(_)) | None => Vec::new(),
        }
    }

    /// What can be seen of it now; `None` if nothing lies there.
    #[must_use]
    pub fn snapshot(&self, name: &Name, at: Instant) -> Option<Snapshot> {
        let mut living = self.clone();
        living.expire(at);
        let body = living.body.as_ref()?;
        let (queue, value, total) = match body {
            Body::Mutex(state) => (state.waiting(at), None, None),
            Body::RwLock(state) => (state.waiting(at), None, None),
            Body::Semaphore(state) => (Vec::new(), Some(state.free()), Some(state.total())),
            Body::Counter(state) => (Vec::new(), Some(state.value()), None),
            Body::Latch(state) => (Vec::new(), Some(state.value()), None),
        };
        Some(Snapshot { name: name.clone(), kind: body.kind(), holders: living.holders(at), queue, value, total, certain: true })
    }
}
