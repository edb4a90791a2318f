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

/// What one wants of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Claim {
    /// All of it; may overtake those who wait.
    Mutex,
    /// All of it, in order of arrival among those who ask this way.
    Fair,
    /// A share, with other readers.
    Read,
    /// All of it, to the exclusion of readers.
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

    /// Whether the claim itself asks for a place in the store's queue. Other claims may leave one too: [`Busy::placed`](super::Busy::placed) says so.
    pub(crate) const fn queues(self) -> bool {
        matches!(self, Self::Fair | Self::Write)
    }
}

/// Asks to hold a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The granted token is at least this large (a quorum makes its servers agree by it).
    pub floor: u64,
}

/// Gives up whatever the owner has at a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// Where.
    pub name: Name,
    /// What it was a claim on.
    pub claim: Claim,
    /// Whose.
    pub owner: WireOwner,
    /// Who is to have it next, in the same step. Needs [`Capabilities::hand_over`](super::Capabilities::hand_over).
    pub then: Option<Box<Acquire>>,
    /// After the answer no earlier request of this owner can be granted any more. A store that [refuses late
    /// requests](super::Capabilities::refuses_late) may ignore it: its caller waits until `not_after` has passed and releases again.
    pub settle: bool,
}

/// Keeps a hold, or looks for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renew {
    /// Where.
    pub name: Name,
    /// What is held.
    pub claim: Claim,
    /// By whom.
    pub owner: WireOwner,
    /// Last at least this long from now; `None` only looks.
    pub lease: Option<Duration>,
}

/// Changes or reads a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Where.
    pub name: Name,
    /// New for each request, the same for its repetitions.
    pub id: WireOwner,
    /// Refuse if it arrives later than this; the same for all repetitions.
    pub not_after: Instant,
    /// Recognise a repetition for this long.
    pub remember: Duration,
    /// What to do.
    pub op: CountOp,
}

/// What to do with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CountOp {
    /// To a counting semaphore.
    Counter(CounterOp),
    /// To a latch.
    Latch(LatchOp),
    /// To the size of a semaphore.
    Semaphore(SemaphoreOp),
}

impl CountOp {
    /// The kind of synchronizer it works on.
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self {
            Self::Counter(_) => Kind::CountingSemaphore,
            Self::Latch(_) => Kind::Latch,
            Self::Semaphore(_) => Kind::Semaphore,
        }
    }

    /// Whether it only looks: such a request is neither remembered nor ever late.
    #[must_use]
    pub const fn is_read(self) -> bool {
        matches!(self, Self::Counter(CounterOp::Read) | Self::Latch(LatchOp::Read) | Self::Semaphore(SemaphoreOp::Read))
    }
}

/// What to do with a counting semaphore. A missing one counts as 0 permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CounterOp {
    /// Set, only if it is not there.
    Init(u32),
    /// Take so many, or none.
    Take(u32),
    /// Give so many back; creates it.
    Give(u32),
    /// Add, or take away also below zero; creates it.
    Add(i32),
    /// Take all there are.
    Drain,
    /// Look.
    Read,
    /// Remove it; afterwards it counts as 0 and may be set again.
    Remove,
}

/// What to do with a latch. A missing one counts as 0 and is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LatchOp {
    /// Close it with so many to go, only if it is open.
    Init(u32),
    /// One event happened; does nothing to an open latch.
    Down,
    /// Look.
    Read,
    /// Open it, however many were to go.
    Remove,
}

/// What to do with the size of a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SemaphoreOp {
    /// Set, only if it is not there.
    Init(u32),
    /// Set; permits above it stay with their holders and are not given out again.
    Resize(u32),
    /// Tell how many permits are free, and whether it is there.
    Read,
    /// Remove it if nobody holds a permit.
    Remove,
}

/// What to listen for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// Where.
    pub name: Name,
    /// On what.
    pub kind: Kind,
    /// Who waits: the owner of the acquire, or a new id for one that waits for a number.
    pub owner: WireOwner,
    /// What it waits for; `None` for a number.
    pub claim: Option<Claim>,
}

impl Watch {
    /// The owner, if only its own place in the queue concerns it: a fair claim. `None`: everything at the name does.
    #[must_use]
    pub fn own_place(&self) -> Option<WireOwner> {
        (self.claim == Some(Claim::Fair)).then_some(self.owner)
    }
}
