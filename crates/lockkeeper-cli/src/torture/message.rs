//! What the processes of `torture` and their parent tell each other: one line of JSON each, over stdout and stdin.

use std::time::Duration;

use lockkeeper::referee::Event;
use serde::{Deserialize, Serialize};

/// What is locked. The names of locks are below the prefix of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Lock {
    Mutex,
    Fair,
    Read,
    Write,
    Permits,
    /// Two mutexes at once.
    Several,
    /// A mutex that its owner enters twice.
    Twice,
    /// A latch and a counting semaphore: numbers, which nobody holds.
    Latch,
    Counter,
}

impl Lock {
    pub(super) const ALL: [Self; 9] =
        [Self::Mutex, Self::Fair, Self::Read, Self::Write, Self::Permits, Self::Several, Self::Twice, Self::Latch, Self::Counter];

    pub(super) const fn names(self) -> &'static [&'static str] {
        match self {
            Self::Mutex | Self::Twice => &["mutex"],
            Self::Fair => &["fair"],
            Self::Read | Self::Write => &["rw"],
            Self::Permits => &["permits"],
            Self::Several => &["mutex", "second"],
            Self::Latch => &["latch", GATE],
            Self::Counter => &["counter"],
        }
    }

    pub(super) const fn shown(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Fair => "fair mutex",
            Self::Read => "read lock",
            Self::Write => "write lock",
            Self::Permits => "semaphore",
            Self::Several => "multi-lock",
            Self::Twice => "mutex entered twice",
            Self::Latch => "latch",
            Self::Counter => "counting semaphore",
        }
    }

    pub(super) const fn is_number(self) -> bool {
        matches!(self, Self::Latch | Self::Counter)
    }
}

/// A small latch that opens and is closed again, so that it is waited for.
pub(super) const GATE: &str = "gate";

/// How many permits the semaphore has.
pub(super) const PERMITS: u32 = 2;

/// What a process is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Orders {
    /// Its number in the history.
    pub(super) client: u32,
    pub(super) prefix: String,
    pub(super) lease: Duration,
    pub(super) tasks: usize,
    pub(super) locks: Vec<Lock>,
    pub(super) seed: u64,
}

/// From a process to its parent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Said {
    /// It is connected and begins.
    Ready,
    Event(Event),
    Ask {
        id: u64,
        ask: Ask,
    },
    /// It is about to change a number.
    Counting {
        lock: Lock,
        id: u64,
        by: i64,
    },
    /// The store said that the change was made (or not: then `by` is 0).
    Counted {
        id: u64,
        by: i64,
    },
    /// A call ended with an error of this kind.
    Trouble(String),
    /// It could not begin.
    Failed(String),
}

/// What a process asks of the resources that the parent keeps.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Ask {
    /// Enters the gate; the answer is the value behind it, unless the token is too old.
    Enter { resource: String, token: u64, owner: String },
    /// Writes `read` + 1 if the gate still lets the token pass.
    Write { resource: String, token: u64, owner: String, read: u64 },
    /// The value that no gate protects.
    Look { resource: String },
    /// Writes `read` + 1 there.
    Put { resource: String, read: u64 },
}

/// From the parent to a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Told {
    Answer {
        id: u64,
        value: Option<u64>,
    },
    /// Release everything and end.
    Stop,
}
