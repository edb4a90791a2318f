//! What a store answers, as plain data. Busy and late are answers, not errors.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The answer to an acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
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
#[non_exhaustive]
pub struct Grant {
    /// The number of the fencing token; permits of a semaphore have none, and stores without fencing have none at all.
    pub token: Option<u64>,
    /// How long the hold is safe, counted from when the request was sent. Stores with leases answer the lease asked for; the caller
    /// subtracts what clocks may drift apart.
    pub good_for: Duration,
    /// The number of the client's session that the hold lives in, see [`KeptAlive`](super::KeptAlive); 0 where holds have leases.
    #[serde(default)]
    pub session: u64,
    /// How many numbers after `token` the store reserved for this hold too, so that the client can pass the hold on inside its process with
    /// a larger token each time. At most what [was asked for](super::Acquire::spare_tokens); a repeated grant may have 0.
    #[serde(default)]
    pub spare_tokens: u32,
}

impl Grant {
    /// A hold with this token that is safe for so long, counted from when the request was sent.
    #[must_use]
    pub const fn new(token: Option<u64>, good_for: Duration) -> Self {
        Self { token, good_for, session: 0, spare_tokens: 0 }
    }

    /// The same, living in the client's session of this number.
    #[must_use]
    pub const fn in_session(self, session: u64) -> Self {
        Self { session, ..self }
    }

    /// The largest token number that this grant may use.
    #[must_use]
    pub fn last_token(&self) -> Option<u64> {
        self.token.map(|token| token.saturating_add(u64::from(self.spare_tokens)))
    }

    /// The same, with so many further token numbers.
    #[must_use]
    pub const fn with_spare_tokens(self, spare_tokens: u32) -> Self {
        Self { spare_tokens, ..self }
    }
}

/// Why to wait, and how long at most before asking again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Busy {
    /// When something may change by itself: a lease or a place in the queue ends. `None`: not known.
    pub retry_in: Option<Duration>,
    /// How many stand before this owner in the queue, where there is one.
    pub ahead: Option<u32>,
    /// Whether the waiter left a mark in the store (a place in the queue) that a [`Release`](super::Release) must remove when it gives up.
    pub placed: bool,
    /// The store could not look who holds the name, because requests of others were in the way: perhaps nobody does.
    #[serde(default)]
    pub unseen: bool,
}

impl Busy {
    /// Something may change by itself after this time, if that is known; the waiter has left no mark.
    #[must_use]
    pub const fn new(retry_in: Option<Duration>) -> Self {
        Self { retry_in, ahead: None, placed: false, unseen: false }
    }

    /// So many stand before the owner in the queue.
    #[must_use]
    pub const fn with_ahead(self, ahead: u32) -> Self {
        Self { ahead: Some(ahead), ..self }
    }

    /// The store could not look who holds the name.
    #[must_use]
    pub const fn with_unseen(self) -> Self {
        Self { unseen: true, ..self }
    }

    /// Whether the waiter left a mark in the store.
    #[must_use]
    pub const fn with_placed(self, placed: bool) -> Self {
        Self { placed, ..self }
    }
}

/// The answer to an acquire of several names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
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
#[non_exhaustive]
pub struct Released {
    /// Whether the owner still held it. After a lost answer, `false` only says that the first request arrived.
    pub held: bool,
    /// What became of the successor.
    pub next: Option<Attempt>,
    /// How many listeners were notified, those of this client included; `None` if that is not known. A hint: the client backs off for
    /// a moment so that woken waiters of other clients get their turn, and does not when it is `None`.
    pub woke: Option<u32>,
}

impl Released {
    /// Whether the owner still held it; nothing was granted to a successor, and how many were notified is not known.
    #[must_use]
    pub const fn new(held: bool) -> Self {
        Self { held, next: None, woke: None }
    }

    /// What became of the successor.
    #[must_use]
    pub const fn with_next(self, next: Option<Attempt>) -> Self {
        Self { next, ..self }
    }

    /// So many listeners were notified.
    #[must_use]
    pub const fn with_woke(self, woke: u32) -> Self {
        Self { woke: Some(woke), ..self }
    }
}

/// The answer to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Renewed {
    /// Still held.
    Kept {
        /// How long the hold is safe, counted from when the request was sent; zero if the request only looked.
        good_for: Duration,
    },
    /// Not held by this owner any more.
    Gone,
}

impl Renewed {
    /// Kept for the lease asked for.
    #[must_use]
    pub fn kept(lease: Option<Duration>) -> Self {
        Self::Kept { good_for: lease.unwrap_or_default() }
    }

    /// Whether it is still held.
    #[must_use]
    pub const fn is_kept(self) -> bool {
        matches!(self, Self::Kept { .. })
    }
}

/// The answer to a counting request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum CountOutcome {
    /// It was carried out, now or when it first arrived.
    Counted(Counted),
    /// The request came after its `not_after`; nothing was changed.
    Late,
}

/// What a counting request did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Counted {
    /// Whether it did something: taken, set, counted down, removed.
    pub done: bool,
    /// The number afterwards (drain: the number before).
    pub value: i64,
}

impl Counted {
    /// Whether it did something, and the number afterwards.
    #[must_use]
    pub const fn new(done: bool, value: i64) -> Self {
        Self { done, value }
    }
}
