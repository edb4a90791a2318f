//! What people see: holders, queue, numbers. What a store does not know is `None`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Claim, Kind};
use crate::name::{Name, matches_pattern};
use crate::owner::{ClientId, WireOwner};

/// One name, as it was at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Snapshot {
    /// The name.
    pub name: Name,
    /// What lives there.
    pub kind: Kind,
    /// Who holds it.
    pub holders: Vec<Holder>,
    /// Who waits in the store's own queue, first come first.
    pub queue: Vec<Waiter>,
    /// The permits or the count: of a semaphore and a counting semaphore what is free, of a latch what is to go.
    pub value: Option<i64>,
    /// The size of a semaphore.
    pub total: Option<u32>,
    /// Whether the store knows the kind. `false`: a bare number in Redis that this library did not mark, or that somebody else changed since. It may
    /// be Redisson's or an application's own, and `kind` is a guess.
    pub certain: bool,
}

impl Snapshot {
    /// A name of this kind that nobody holds or waits for, and of which nothing more is known.
    #[must_use]
    pub const fn new(name: Name, kind: Kind) -> Self {
        Self { name, kind, holders: Vec::new(), queue: Vec::new(), value: None, total: None, certain: true }
    }
}

/// A holder of a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Holder {
    /// Its owner, as the store writes it.
    pub owner: String,
    /// What it holds.
    pub claim: Claim,
    /// Since how long.
    pub held_for: Option<Duration>,
    /// How long unless renewed.
    pub lease_left: Option<Duration>,
    /// The number of its token.
    pub token: Option<u64>,
    /// Who it is, if it told.
    pub client: Option<ClientCard>,
}

impl Holder {
    /// A holder of which nothing more is known.
    #[must_use]
    pub const fn new(owner: String, claim: Claim) -> Self {
        Self { owner, claim, held_for: None, lease_left: None, token: None, client: None }
    }

    /// Whether this is `owner`. Redis keeps only a part of the owner of a permit, so the texts may differ.
    ///
    /// ```
    /// use lockkeeper::backend::{Claim, Holder};
    /// use lockkeeper::{ClientId, WireOwner};
    ///
    /// let owner = WireOwner::new(ClientId::from_bits(7), 1);
    /// assert!(Holder::new(owner.to_string(), Claim::Mutex).is_of(owner));
    /// assert!(!Holder::new("somebody".to_owned(), Claim::Mutex).is_of(owner));
    /// ```
    #[must_use]
    pub fn is_of(&self, owner: WireOwner) -> bool {
        let short = || owner.short().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        self.owner == owner.to_string() || (self.owner.len() == 32 && self.owner.starts_with(&short()))
    }
}

/// A waiter in a store's queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Waiter {
    /// Its owner, as the store writes it.
    pub owner: String,
    /// What it waits for.
    pub claim: Claim,
    /// How long its place is kept unless it asks again.
    pub expires_in: Option<Duration>,
    /// Who it is, if it told.
    #[serde(default)]
    pub client: Option<ClientCard>,
}

impl Waiter {
    /// A waiter whose place does not end by itself.
    #[must_use]
    pub const fn new(owner: String, claim: Claim) -> Self {
        Self { owner, claim, expires_in: None, client: None }
    }
}

/// Who a client is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClientCard {
    /// Its id.
    pub id: ClientId,
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// The program: the file name of its executable, unless the client gave another name.
    pub program: String,
    /// The user that the process runs as, if known.
    #[serde(default)]
    pub user: Option<String>,
}

impl ClientCard {
    /// A client of a process whose user is not known.
    #[must_use]
    pub const fn new(id: ClientId, host: String, pid: u32, program: String) -> Self {
        Self { id, host, pid, program, user: None }
    }
}

/// Which names to list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listing {
    /// A pattern: `*` is any text, `?` any character, `\` takes the next one literally.
    pub pattern: String,
    /// Where the page before ended.
    pub after: Option<String>,
    /// About how many to give.
    pub limit: usize,
}

impl Listing {
    /// The first page of the names that match `pattern`, of about so many.
    pub fn new(pattern: impl Into<String>, limit: usize) -> Self {
        Self { pattern: pattern.into(), after: None, limit }
    }

    /// Whether the name matches the pattern.
    #[must_use]
    pub fn matches(&self, name: &Name) -> bool {
        matches_pattern(&self.pattern, name.as_str())
    }
}

/// Some of the names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page {
    /// What was found.
    pub found: Vec<Snapshot>,
    /// Where to go on; `None`: that was all.
    pub next: Option<String>,
}

impl Page {
    /// What was found, and where to go on.
    #[must_use]
    pub const fn new(found: Vec<Snapshot>, next: Option<String>) -> Self {
        Self { found, next }
    }
}

/// What a forced release did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Forced {
    /// Who held it.
    pub from: Vec<Holder>,
}

impl Forced {
    /// These held it.
    #[must_use]
    pub const fn new(from: Vec<Holder>) -> Self {
        Self { from }
    }
}
