//! What a store answers, as plain data. Busy and late are answers, not errors.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The answer to an acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attempt {
    /// It is held, for the lease asked for.
    Granted(Grant),
    /// Others have it, or are first.
    Busy(Busy),
    /// The request came after its `not_after`; nothing was changed.
    Late,
}

/// What was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The number of the fencing token; permits of a semaphore have none.
    pub token: Option<u64>,
}

/// Why to wait, and how long at most before asking again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Busy {
    /// When something may change by itself: a lease or a place in the queue ends. `None`: not known.
    pub retry_in: Option<Duration>,
    /// How many stand before this owner in the queue, where there is one.
    pub ahead: Option<u32>,
}

/// The answer to an acquire of several names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttemptAll {
    /// All are held; one grant each, in the order asked.
    Granted(Vec<Grant>),
    /// None was taken; this is the first that was busy.
    Busy {
        /// Its place in the request.
        index: usize,
        /// Why.
        busy: Busy,
    },
    /// The request came after its `not_after`; nothing was changed.
    Late,
}

/// The answer to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Released {
    /// Whether the owner still held it. After a lost answer, `false` only says that the first request arrived.
    pub held: bool,
    /// What became of the successor.
    pub next: Option<Attempt>,
    /// How many clients that listened were woken, this one included; where that is not known, 1 if it may be some. A hint: whoever asks
    /// again lets them go first.
    pub woke: u32,
}

/// The answer to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Renewed {
    /// Held, and for as long as was asked.
    Kept,
    /// Not held by this owner any more.
    Gone,
}

/// The answer to a counting request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CountOutcome {
    /// It was carried out, now or when it first arrived.
    Counted(Counted),
    /// The request came after its `not_after`; nothing was changed.
    Late,
}

/// What a counting request did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Whether it did something: taken, set, counted down, removed.
    pub done: bool,
    /// The number afterwards (drain: how many were taken).
    pub value: i64,
}
