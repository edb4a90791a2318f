//! What can be asked of a store, as plain data.
//!
//! Points in time are on the caller's clock ([`Runtime::now`](crate::runtime::Runtime::now)); a store with a clock of its own translates them.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};
use crate::name::Name;
use crate::owner::WireOwner;
use crate::runtime::Instant;

/// The kind of synchronizer that lives under a name; a name has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Kind {
    /// A mutex, fair or not.
    Mutex,
    /// A read-write lock.
    RwLock,
    /// A semaphore of leased permits.
    Semaphore,
    /// A bare counter of permits.
    CountingSemaphore,
    /// A count-down latch.
    Latch,
}

impl Kind {
    /// The error for a name under which this kind lives and `wanted` was asked for.
    #[must_use]
    pub fn instead_of(self, wanted: Self, name: &Name) -> Error {
        Error::new(
            ErrorKind::WrongKind,
            format!("{name:?} is in use as a {self}, not as a {wanted}; a name has one kind: choose another name"),
        )
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mutex => "mutex",
            Self::RwLock => "read-write lock",
            Self::Semaphore => "semaphore",
            Self::CountingSemaphore => "counting semaphore",
            Self::Latch => "count-down latch",
        })
    }
}

/// What a request asks of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Claim {
    /// Exclusive; may overtake waiters.
    Mutex,
    /// Exclusive, first come first served among requests of this kind.
    Fair,
    /// Shared with other readers.
    Read,
    /// Exclusive, without readers.
    Write,
    /// Some of the permits of a semaphore.
    Permits {
        /// How many to take.
        take: u32,
        /// How many the semaphore has in all; creates it with this size if it is not there.
        of: u32,
    },
}

impl Claim {
    /// The kind of synchronizer it is a claim on.
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self {
            Self::Mutex | Self::Fair => Kind::Mutex,
            Self::Read | Self::Write => Kind::RwLock,
            Self::Permits { .. } => Kind::Semaphore,
        }
    }

    /// Whether nobody else can hold the name meanwhile.
    #[must_use]
    pub const fn is_exclusive(self) -> bool {
        matches!(self, Self::Mutex | Self::Fair | Self::Write)
    }
}

/// Asks to hold a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Acquire {
    /// What to hold.
    pub name: Name,
    /// How.
    pub claim: Claim,
    /// For whom: new for each outermost acquisition, the same for its repetitions.
    pub owner: WireOwner,
    /// How long the grant lasts unless renewed.
    pub lease: Duration,
    /// Refuse if it arrives later than this.
    pub not_after: Instant,
    /// When this owner began to wait. A reader yields to writers that came before it, and to no others.
    pub since: Instant,
    /// The owner that writes and lets this reader in beside it: both belong to one holder in one process.
    pub beside: Option<WireOwner>,
    /// Keep a place for this owner for so long if it has to wait; `None`: it will not wait.
    pub place: Option<Duration>,
    /// Of permits: the semaphore's size was checked before, so use the size that it has now. `false`: refuse another size than `of`.
    pub any_size: bool,
    /// Reserve up to so many token numbers after the first, see [`Grant::spare_tokens`](super::Grant::spare_tokens). Needs
    /// [`Capabilities::token_ranges`](super::Capabilities::token_ranges); other stores ignore it.
    #[serde(default)]
    pub spare_tokens: u32,
    /// Whether to be woken in turn. Needs [`Capabilities::wakes_in_turn`](super::Capabilities::wakes_in_turn); other stores ignore it.
    #[serde(default)]
    pub register: Register,
}

/// Whether a request registers its client among those that wait for a mutex. A release wakes the client that registered first, and no other.
///
/// A client that registers [listens in turn](super::Watch::in_turn) before. Registered twice it keeps its place. Its place ends when it is woken or granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Register {
    /// It does not register.
    #[default]
    No,
    /// It registers behind all others if it is not granted.
    Last,
    /// It registers before all others if it is not granted: it has been woken, and another was faster.
    First,
    /// It registers and is not granted, also if the mutex is free: clients that were woken go first. The answer then is `Busy` and
    /// [unseen](super::Busy::unseen).
    Only,
}

impl Acquire {
    /// No store reserves more token numbers than this beside the first: tokens must not run ahead of the server's clock.
    pub const MAX_SPARE_TOKENS: u32 = 63;

    /// Asks without a place in the queue. It is never late, and as a reader it yields to every writer, until [`with_times`](Self::with_times)
    /// says more.
    #[must_use]
    pub const fn new(name: Name, claim: Claim, owner: WireOwner, lease: Duration) -> Self {
        let (not_after, since) = (Instant::NEVER, Instant::NEVER);
        Self {
            name,
            claim,
            owner,
            lease,
            not_after,
            since,
            beside: None,
            place: None,
            any_size: false,
            spare_tokens: 0,
            register: Register::No,
        }
    }

    /// The same for another name.
    #[must_use]
    pub fn with_name(self, name: Name) -> Self {
        Self { name, ..self }
    }

    /// The same for another owner.
    #[must_use]
    pub fn with_owner(self, owner: WireOwner) -> Self {
        Self { owner, ..self }
    }

    /// The same with another lease.
    #[must_use]
    pub fn with_lease(self, lease: Duration) -> Self {
        Self { lease, ..self }
    }

    /// Waits since `since`; refused if it arrives after `not_after`.
    #[must_use]
    pub fn with_times(self, since: Instant, not_after: Instant) -> Self {
        Self { not_after, since, ..self }
    }

    /// Reads beside this writer.
    #[must_use]
    pub fn with_beside(self, writer: impl Into<Option<WireOwner>>) -> Self {
        Self { beside: writer.into(), ..self }
    }

    /// Keeps a place in the queue for so long, or none.
    #[must_use]
    pub fn with_place(self, place: impl Into<Option<Duration>>) -> Self {
        Self { place: place.into(), ..self }
    }

    /// Whether to use the size that the semaphore has.
    #[must_use]
    pub fn with_any_size(self, any_size: bool) -> Self {
        Self { any_size, ..self }
    }

    /// Reserves up to so many further token numbers.
    #[must_use]
    pub fn with_spare_tokens(self, spare_tokens: u32) -> Self {
        Self { spare_tokens, ..self }
    }

    /// Whether to be woken in turn.
    #[must_use]
    pub fn with_register(self, register: Register) -> Self {
        Self { register, ..self }
    }
}

/// Gives up whatever the owner has at a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Release {
    /// Where.
    pub name: Name,
    /// What it was a claim on.
    pub claim: Claim,
    /// Whose.
    pub owner: WireOwner,
    /// Who is to have it next, in the same step. Needs [`Capabilities::hand_over`](super::Capabilities::hand_over).
    pub then: Option<Box<Acquire>>,
    /// Grants to `then` only if the owner held the name, nobody has a place in its queue, and no other client subscribes to it. Otherwise the
    /// name is free afterwards and [`Released::next`](super::Released::next) is `None`. Needs
    /// [`Capabilities::hand_over_if_alone`](super::Capabilities::hand_over_if_alone).
    ///
    /// A client keeps its hold this way unless others wait. Each such request names a new owner in `then`, so a copy that arrives twice or
    /// late finds its owner gone and grants nothing.
    #[serde(default)]
    pub if_alone: bool,
    /// After the answer no earlier request of this owner can be granted any more. A store that [refuses late
    /// requests](super::Capabilities::refuses_late) may ignore it: its caller waits until `not_after` has passed and releases again.
    pub settle: bool,
}

impl Release {
    /// Releases what this owner has, and grants to nobody.
    #[must_use]
    pub const fn new(name: Name, claim: Claim, owner: WireOwner) -> Self {
        Self { name, claim, owner, then: None, if_alone: false, settle: false }
    }

    /// Releases what `request` asked for.
    #[must_use]
    pub fn of(request: &Acquire) -> Self {
        Self::new(request.name.clone(), request.claim, request.owner)
    }

    /// The same for another name, the successor's included.
    #[must_use]
    pub fn with_name(self, name: Name) -> Self {
        let then = self.then.map(|then| Box::new(then.with_name(name.clone())));
        Self { name, then, ..self }
    }

    /// Grants to this successor in the same step.
    #[must_use]
    pub fn with_then(self, then: impl Into<Option<Acquire>>) -> Self {
        Self { then: then.into().map(Box::new), ..self }
    }

    /// Grants to the successor only if no other client waits.
    #[must_use]
    pub fn with_if_alone(self) -> Self {
        Self { if_alone: true, ..self }
    }

    /// Whether no earlier request of this owner can be granted after the answer.
    #[must_use]
    pub fn with_settle(self, settle: bool) -> Self {
        Self { settle, ..self }
    }
}

/// Keeps a hold, or looks for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Renew {
    /// Where.
    pub name: Name,
    /// What is held.
    pub claim: Claim,
    /// By whom.
    pub owner: WireOwner,
    /// Last at least this long from now; `None` only looks.
    pub lease: Option<Duration>,
    /// Until when the holder counts on the hold; `None`: not known. A store never ends a hold before that because of this request. A store whose
    /// clock was set back may use it to end the hold no later than that, see `docs/decisions/0024`; others ignore it.
    #[serde(default)]
    pub reach: Option<Reach>,
}

/// The latest time until which a holder may believe that it holds the lock, answers on their way included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Reach {
    /// The latest end of all leases that were asked for until `as_of`, each counted from when its request was sent.
    pub until: Instant,
    /// When that was computed. What is asked for later is not in it.
    pub as_of: Instant,
}

impl Reach {
    /// All leases that were asked for until `as_of` end at `until` or earlier.
    ///
    /// ```
    /// use lockkeeper::backend::{Instant, Reach};
    ///
    /// let reach = Reach::new(Instant::from_nanos(30_000), Instant::from_nanos(10_000));
    /// assert_eq!(reach.until.since(reach.as_of).as_nanos(), 20_000);
    /// ```
    #[must_use]
    pub const fn new(until: Instant, as_of: Instant) -> Self {
        Self { until, as_of }
    }
}

impl Renew {
    /// Renews a hold for a lease, or only looks for it.
    #[must_use]
    pub const fn new(name: Name, claim: Claim, owner: WireOwner, lease: Option<Duration>) -> Self {
        Self { name, claim, owner, lease, reach: None }
    }

    /// The same for another name.
    #[must_use]
    pub fn with_name(self, name: Name) -> Self {
        Self { name, ..self }
    }

    /// Says until when the holder counts on the hold.
    #[must_use]
    pub fn with_reach(self, reach: impl Into<Option<Reach>>) -> Self {
        Self { reach: reach.into(), ..self }
    }
}
