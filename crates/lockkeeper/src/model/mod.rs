//! The specification: what each request does to what lies under one name, as pure functions.
//!
//! No I/O, no clock: the time and the next token come in as [`Now`]. The memory store runs this as it is, SQL stores run it on the
//! rows that a request needs ([`Head`], [`Part`]), and tests compare the Redis scripts with it.
//!
//! ```
//! use std::time::Duration;
//! use lockkeeper::backend::{Acquire, Attempt, Claim};
//! use lockkeeper::model::{Now, Record};
//! use lockkeeper::owner::{ClientId, WireOwner};
//! use lockkeeper::runtime::Instant;
//!
//! let ask = |number| {
//!     let owner = WireOwner::new(ClientId::from_bits(1), number);
//!     Acquire::new("orders:42".to_owned().try_into().unwrap(), Claim::Mutex, owner, Duration::from_secs(30))
//! };
//! let mut record = Record::default();
//! let now = Now { at: Instant::from_nanos(1), token: 7 };
//! assert!(matches!(record.acquire(&ask(1), now)?.answer, Attempt::Granted(grant) if grant.token == Some(7)));
//! assert!(matches!(record.acquire(&ask(2), now)?.answer, Attempt::Busy(_)));
//! # Ok::<(), lockkeeper::Error>(())
//! ```

mod counter;
mod latch;
mod mutex;
mod pairs;
mod quarantine;
mod record;
mod renewal;
mod rows;
mod rwlock;
mod semaphore;

pub use quarantine::Quarantine;
pub use record::Record;
pub(crate) use renewal::Asked;
#[cfg(any(feature = "redis-single", feature = "postgres", feature = "mysql", test))]
pub(crate) use renewal::{FarEnd, MARGIN};
pub use rows::{Detail, Head, Part, RequestRef, Role, Roles, Want};

use serde::{Deserialize, Serialize};

use crate::backend::{Acquire, Attempt, Count, CountOutcome, Release, Released, Renew, Renewed};
use crate::error::Result;
use crate::owner::WireOwner;
use crate::runtime::Instant;

/// The moment at which a request is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The time on the store's clock.
    pub at: Instant,
    /// The token that a grant made now gets: larger than all that the store has given out for the name.
    pub token: u64,
}

/// Any request that concerns one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// See [`Record::acquire`].
    Acquire(Acquire),
    /// See [`Record::release`].
    Release(Release),
    /// See [`Record::renew`].
    Renew(Renew),
    /// See [`Record::count`].
    Count(Count),
    /// See [`Record::force_release`].
    Force,
}

impl Request {
    /// The same, borrowed.
    #[must_use]
    pub const fn as_ref(&self) -> RequestRef<'_> {
        match self {
            Self::Acquire(request) => RequestRef::Acquire(request),
            Self::Release(request) => RequestRef::Release(request),
            Self::Renew(request) => RequestRef::Renew(request),
            Self::Count(request) => RequestRef::Count(request),
            Self::Force => RequestRef::Whole,
        }
    }
}

/// The answer to a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// To an acquire.
    Acquire(Attempt),
    /// To a release.
    Release(Released),
    /// To a renewal.
    Renew(Renewed),
    /// To a counting request.
    Count(CountOutcome),
    /// To a forced release: whether somebody held it.
    Force(bool),
}

/// Which waiters a step may have made grantable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wake {
    /// All that subscribed to the name.
    pub all: bool,
    /// The head of the fair queue.
    pub head: Option<WireOwner>,
}

impl Wake {
    pub(crate) const NOBODY: Self = Self { all: false, head: None };
    pub(crate) const ALL: Self = Self { all: true, head: None };
}

/// An answer, and which waiters to wake after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<T> {
    /// The answer to the request.
    pub answer: T,
    /// Which waiters to wake.
    pub wake: Wake,
}

impl<T> Step<T> {
    pub(crate) const fn quiet(answer: T) -> Self {
        Self { answer, wake: Wake::NOBODY }
    }
}

/// Carries out one request on what lies under a name.
///
/// # Errors
///
/// [`ErrorKind::WrongKind`](crate::ErrorKind::WrongKind) or [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument), and then nothing but what had expired is changed.
pub fn step(record: &mut Record, request: &Request, now: Now) -> Result<Step<Outcome>> {
    fn wrap<T>(step: Step<T>, outcome: impl FnOnce(T) -> Outcome) -> Step<Outcome> {
        Step { answer: outcome(step.answer), wake: step.wake }
    }
    Ok(match request {
        Request::Acquire(request) => wrap(record.acquire(request, now)?, Outcome::Acquire),
        Request::Release(request) => wrap(record.release(request, now)?, Outcome::Release),
        Request::Renew(request) => Step::quiet(Outcome::Renew(record.renew(request, now))),
        Request::Count(request) => wrap(record.count(request, now)?, Outcome::Count),
        Request::Force => wrap(record.force_release(now), |from| Outcome::Force(!from.is_empty())),
    })
}
