//! A record as rows, for stores that keep tables: one head row per name, and one part row per waiter, reader, permit or remembered
//! request. A request needs few of them ([`Head::wants`]); the others stay where they are, and are neither read nor written.
//!
//! The steps on a partly loaded record are the same as on a whole one: `tests/model/rows.rs` compares both on random histories.

use serde::{Deserialize, Serialize};

use super::record::{Body, Hold, Record, Seen};
use super::{counter, latch, mutex, rwlock, semaphore};
use crate::backend::{Acquire, Claim, Count, CountOp, Counted, Kind, Release, Renew};
use crate::owner::WireOwner;
use crate::runtime::Instant;

/// Any request that concerns one name, borrowed.
#[derive(Clone, Copy, Debug)]
pub enum RequestRef<'a> {
    /// See [`Record::acquire`].
    Acquire(&'a Acquire),
    /// See [`Record::release`].
    Release(&'a Release),
    /// See [`Record::renew`].
    Renew(&'a Renew),
    /// See [`Record::count`].
    Count(&'a Count),
    /// See [`Record::force_release`] and [`Record::snapshot`].
    Whole,
}

impl RequestRef<'_> {
    /// The kind of synchronizer that it works on; `None`: any.
    fn kind(self) -> Option<Kind> {
        match self {
            Self::Acquire(request) => Some(request.claim.kind()),
            Self::Release(request) => Some(request.claim.kind()),
            Self::Renew(request) => Some(request.claim.kind()),
            Self::Count(request) => Some(request.op.kind()),
            Self::Whole => None,
        }
    }
}

/// What a part row stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Role {
    /// A place in the queue of a mutex.
    Waiter,
    /// A read hold.
    Reader,
    /// A writer that waits.
    WaitingWriter,
    /// Permits of a semaphore.
    Permits,
    /// A counting request that was carried out.
    Seen,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 5] = [Self::Waiter, Self::Reader, Self::WaitingWriter, Self::Permits, Self::Seen];

    /// The number under which tables keep it.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    const fn bit(self) -> u8 {
        1 << self.number()
    }
}

/// A set of roles: those of which a name may have rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Roles(u8);

impl Roles {
    /// Whether none is in it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0 == 0
    }

    /// Whether the role is in it.
    #[must_use]
    pub const fn contains(self, role: Role) -> bool {
        self.0 & role.bit() != 0
    }

    /// Adds the role.
    pub const fn insert(&mut self, role: Role) {
        self.0 |= role.bit();
    }

    /// Takes the role out.
    pub const fn remove(&mut self, role: Role) {
        self.0 &= !role.bit();
    }
}

/// What one owner has at the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// What it stands for.
    pub role: Role,
    /// The order among waiters of a mutex; 0 for other roles.
    pub seq: u64,
    /// Whose it is; of a counting request, its id.
    pub owner: WireOwner,
    /// It counts for nothing from then on.
    pub expires: Instant,
    /// The rest.
    pub detail: Detail,
}

impl Part {
    /// What tells it from the other parts of a name, in the order in which they are scanned.
    #[must_use]
    pub const fn key(&self) -> (Role, u64, WireOwner) {
        (self.role, self.seq, self.owner)
    }
}

/// What a part row holds that no store searches by. Tables keep it as text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detail {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<Instant>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    permits: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answer: Option<Counted>,
}

impl Detail {
    fn of(hold: Hold) -> Self {
        Self { since: Some(hold.since), token: hold.token, ..Self::default() }
    }

    fn hold(self, expires: Instant) -> Hold {
        Hold { since: self.since.unwrap_or_default(), expires, token: self.token }
    }
}

/// What a head row holds: the kind, its number or size, and the one who holds it alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Head(Shape);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Shape {
    Mutex { holder: Option<(WireOwner, Hold)> },
    RwLock { writer: Option<(WireOwner, Hold)> },
    Semaphore { total: Option<u32> },
    Counter(counter::State),
    Latch(latch::State),
}

/// Which part rows of one role a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// The role.
    pub role: Role,
    /// So many that have not ended, in order, those of `owners` not counted.
    pub first: usize,
    /// All of these owners. Among waiters, all that stand before them too: their number is the answer.
    pub owners: [Option<WireOwner>; 2],
}

impl Want {
    fn all(role: Role) -> Self {
        Self { role, first: usize::MAX, owners: [None; 2] }
    }

    fn of(role: Role, owner: WireOwner) -> Self {
        Self { role, first: 0, owners: [Some(owner), None] }
    }
}

impl Head {
    pub(crate) fn kind(&self) -> Kind {
        match self.0 {
            Shape::Mutex { .. } => Kind::Mutex,
            Shape::RwLock { .. } => Kind::RwLock,
            Shape::Semaphore { .. } => Kind::Semaphore,
            Shape::Counter(_) => Kind::CountingSemaphore,
            Shape::Latch(_) => Kind::Latch,
        }
    }

    /// The owner that holds it alone.
    #[must_use]
    pub fn holder(&self) -> Option<WireOwner> {
        match self.0 {
            Shape::Mutex { holder: one } | Shape::RwLock { writer: one } => one.map(|(owner, _)| owner),
            Shape::Semaphore { .. } | Shape::Counter(_) | Shape::Latch(_) => None,
        }
    }

    fn hold(&self) -> Option<&Hold> {
        match &self.0 {
            Shape::Mutex { holder: one } | Shape::RwLock { writer: one } => one.as_ref().map(|(_, hold)| hold),
            Shape::Semaphore { .. } | Shape::Counter(_) | Shape::Latch(_) => None,
        }
    }

    /// When the hold of the one that holds it alone ends.
    #[must_use]
    pub fn expires(&self) -> Option<Instant> {
        self.hold().map(|hold| hold.expires)
    }

    /// The one that holds it alone keeps it until then, whatever its lease: the store knows that it still works.
    pub fn lasts_until(&mut self, end: Instant) {
        if let Shape::Mutex { holder: Some((_, hold)) } | Shape::RwLock { writer: Some((_, hold)) } = &mut self.0 {
            hold.expires = end;
        }
    }

    /// The parts that a request needs where this head lies; `None`: only requests that were carried out are remembered there.
    #[must_use]
    pub fn wants(head: Option<&Self>, request: RequestRef<'_>) -> Vec<Want> {
        use Role::{Permits, Reader, Seen, Waiter, WaitingWriter};
        // Every so often all of them are read, which removes those that have ended.
        let seen = |id: WireOwner| if id.number.is_multiple_of(32) { Want::all(Seen) } else { Want::of(Seen, id) };
        // Of another kind, whether anything is alive there decides.
        if request.kind().is_none() || head.is_some_and(|head| request.kind() != Some(head.kind())) {
            return Role::ALL.map(Want::all).to_vec();
        }
        match request {
            RequestRef::Acquire(asked) => match asked.claim {
                Claim::Mutex | Claim::Fair => vec![Want { role: Waiter, first: 2, owners: [Some(asked.owner), None] }],
                Claim::Read => vec![Want::of(Reader, asked.owner), Want::all(WaitingWriter)],
                Claim::Write => vec![Want::all(Reader), Want::of(WaitingWriter, asked.owner)],
                Claim::Permits { .. } => vec![Want::all(Permits)],
            },
            RequestRef::Release(asked) => match asked.claim {
                Claim::Mutex | Claim::Fair => {
                    // A holder has no place.
                    let own = Some(asked.owner).filter(|owner| head.and_then(Self::holder) != Some(*owner));
                    vec![Want { role: Waiter, first: 2, owners: [own, asked.then.as_ref().map(|then| then.owner)] }]
                }
                // One other reader tells whether this was the last.
                Claim::Read => vec![Want { first: 1, ..Want::of(Reader, asked.owner) }],
                Claim::Write => vec![Want::of(WaitingWriter, asked.owner)],
                Claim::Permits { .. } => vec![Want::of(Permits, asked.owner)],
            },
            RequestRef::Renew(asked) => match asked.claim {
                Claim::Read => vec![Want::of(Reader, asked.owner)],
                Claim::Permits { .. } => vec![Want::of(Permits, asked.owner)],
                Claim::Mutex | Claim::Fair | Claim::Write => vec![],
            },
            RequestRef::Count(asked) => match asked.op {
                CountOp::Semaphore(_) => vec![Want::all(Permits), seen(asked.id)],
                CountOp::Counter(_) | CountOp::Latch(_) => vec![seen(asked.id)],
            },
            RequestRef::Whole => vec![],
        }
    }
}

impl Record {
    /// Makes a record of its rows. `unread` are the roles of which there may be more rows than these.
    #[must_use]
    pub fn from_rows(head: Option<Head>, parts: &[Part], mut unread: Roles) -> Self {
        let of = |role: Role| parts.iter().filter(move |part| part.role == role);
        let holds = |role: Role| of(role).map(|part| (part.owner, part.detail.hold(part.expires))).collect();
        let body = head.map(|head| match head.0 {
            Shape::Mutex { holder } => {
                let place = |part: &Part| mutex::QueuePlace { owner: part.owner, expires: part.expires, seq: part.seq };
                Body::Mutex(mutex::State { holder, queue: of(Role::Waiter).map(place).collect() })
            }
            Shape::RwLock { writer } => {
                let mark = |part: &Part| rwlock::Pending { since: part.detail.since.unwrap_or_default(), expires: part.expires };
                let pending = of(Role::WaitingWriter).map(|part| (part.owner, mark(part))).collect();
                Body::RwLock(rwlock::State { writer, readers: holds(Role::Reader), pending })
            }
            Shape::Semaphore { total } => {
                let permits = |part: &Part| semaphore::Permits {
                    count: part.detail.permits.unwrap_or_default(),
                    hold: part.detail.hold(part.expires),
                };
                Body::Semaphore(semaphore::State {
                    total,
                    held: of(Role::Permits).map(|part| (part.owner, permits(part))).collect(),
                })
            }
            Shape::Counter(state) => Body::Counter(state),
            Shape::Latch(state) => Body::Latch(state),
        });
        let seen = of(Role::Seen)
            .filter_map(|part| part.detail.answer.map(|answer| (part.owner, Seen { answer, expires: part.expires })));
        let seen = seen.collect();
        let more_seen = unread.contains(Role::Seen);
        unread.remove(Role::Seen);
        Self { body, seen, more_parts: !unread.is_empty(), more_seen }
    }

    /// The head row; `None` if no kind lives there.
    #[must_use]
    pub fn head(&self) -> Option<Head> {
        self.body.as_ref().map(|body| {
            Head(match body {
                Body::Mutex(state) => Shape::Mutex { holder: state.holder },
                Body::RwLock(state) => Shape::RwLock { writer: state.writer },
                Body::Semaphore(state) => Shape::Semaphore { total: state.total },
                Body::Counter(state) => Shape::Counter(*state),
                Body::Latch(state) => Shape::Latch(*state),
            })
        })
    }

    /// The part rows that are loaded, in the order of their keys.
    #[must_use]
    pub fn parts(&self) -> Vec<Part> {
        let part = |role, owner, expires, detail| Part { role, seq: 0, owner, expires, detail };
        let mut parts = Vec::new();
        match &self.body {
            Some(Body::Mutex(state)) => parts.extend(
                state
                    .queue
                    .iter()
                    .map(|place| Part { seq: place.seq, ..part(Role::Waiter, place.owner, place.expires, Detail::default()) }),
            ),
            Some(Body::RwLock(state)) => {
                parts.extend(
                    state.readers.iter().map(|(owner, hold)| part(Role::Reader, *owner, hold.expires, Detail::of(*hold))),
                );
                parts.extend(state.pending.iter().map(|(owner, mark)| {
                    part(Role::WaitingWriter, *owner, mark.expires, Detail { since: Some(mark.since), ..Detail::default() })
                }));
            }
            Some(Body::Semaphore(state)) => parts.extend(state.held.iter().map(|(owner, permits)| {
                let detail = Detail { permits: Some(permits.count), ..Detail::of(permits.hold) };
                part(Role::Permits, *owner, permits.hold.expires, detail)
            })),
            Some(Body::Counter(_) | Body::Latch(_)) | None => {}
        }
        parts.extend(
            self.seen
                .iter()
                .map(|(id, seen)| part(Role::Seen, *id, seen.expires, Detail { answer: Some(seen.answer), ..Detail::default() })),
        );
        parts
    }

    /// The owners whose death would bring a refused request further, apart from those that are not loaded.
    ///
    /// A waiter in a queue has one at a time: the holder if it is the first, else the one before it.
    #[must_use]
    pub fn blockers(&self, request: RequestRef<'_>) -> Vec<WireOwner> {
        match (&self.body, request) {
            (Some(Body::Mutex(state)), RequestRef::Acquire(asked)) => state.blockers(asked.owner),
            (Some(Body::RwLock(state)), RequestRef::Acquire(asked)) => state.blockers(asked),
            _ => self.owners(),
        }
    }
}
