//! What can be asked of numbers: counting semaphores, latches, and the size of semaphores.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Kind;
use crate::name::Name;
use crate::owner::WireOwner;
use crate::runtime::Instant;

/// Changes or reads a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
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

impl Count {
    /// Counts once, however often it is sent within `remember`. It is never late until [`with_not_after`](Self::with_not_after) says more.
    #[must_use]
    pub const fn new(name: Name, id: WireOwner, op: CountOp, remember: Duration) -> Self {
        Self { name, id, not_after: Instant::NEVER, remember, op }
    }

    /// The same for another name.
    #[must_use]
    pub fn with_name(self, name: Name) -> Self {
        Self { name, ..self }
    }

    /// Refused if it arrives later than this.
    #[must_use]
    pub fn with_not_after(self, not_after: Instant) -> Self {
        Self { not_after, ..self }
    }
}

/// What to do with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
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
#[non_exhaustive]
pub enum CounterOp {
    /// Set, only if it is not there.
    Init(u32),
    /// Takes this many, or none.
    Take(u32),
    /// Adds this many; creates it.
    Give(u32),
    /// Add, or take away also below zero; creates it.
    Add(i32),
    /// Set it to 0 and tell what it was, as Redisson does; that may be negative.
    Drain,
    /// Look.
    Read,
    /// Remove it; afterwards it counts as 0 and may be set again.
    Remove,
}

/// What to do with a latch. A missing one counts as 0 and is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
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
#[non_exhaustive]
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
