//! What SQL stores share: the pure engine on rows that were read, and one statement per step that writes what it changed.
//!
//! A client remembers the rows of a name with their version, a random number. A step computes on them, and one statement locks the
//! head row, compares the version and the server's clock, and writes. If either does not fit, nothing is written, and the same answer
//! carries the rows as they are now. After two wrong guesses the step runs in a transaction that locks the row first.
//!
//! A database implements [`Dial`] (how to connect) and [`Statements`]; it knows nothing of locks. [`store::SqlStore`] is the rest of a store.

mod batch;
pub(crate) mod cache;
pub(crate) mod clock;
mod hint;
pub(crate) mod link;
pub(crate) mod poll;
mod requests;
pub(crate) mod rows;
mod step;
pub(crate) mod store;
pub(crate) mod text;
pub(crate) mod waiting;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::model::Wake;
use crate::name::Name;
use crate::runtime::{BoxFuture, Instant, Runtime};
use crate::store::kit::far_ends::FarEnds;
use crate::store::kit::rows::PartRow;
use batch::Batch;
use cache::{Cache, Turns};
use clock::{Clock, Window};
pub(crate) use link::{Dial, Link};
use poll::Seen;
use rows::{NameRows, PartKey};
use store::Wakeups;
use waiting::{LongQueues, Standing};

/// What a step writes to one name.
#[derive(Clone, Debug)]
pub(crate) struct Put {
    pub(crate) name: Name,
    /// The version that the step was computed on; `None`: the name had no row.
    pub(crate) version: Option<i64>,
    /// The version that it gets.
    pub(crate) next: i64,
    pub(crate) token: u64,
    /// Whether the step grants a new token.
    pub(crate) grants: bool,
    /// The body of the head row; `None`: nothing lies there any more.
    pub(crate) body: Option<String>,
    pub(crate) parts: Vec<PartRow<()>>,
    pub(crate) deleted: Vec<PartKey>,
    pub(crate) wake: Wake,
    /// Nothing lies under the name afterwards, neither in its head row nor in part rows. Whoever is told of it knows all rows.
    pub(crate) frees: bool,
    /// It has to be on disk before it counts. A release has not: if it is lost in a crash, the hold ends with its lease.
    pub(crate) lasting: bool,
}

/// When the server may carry out a step, in µs on its clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) earliest: i64,
    pub(crate) until: i64,
}

/// What became of a [`Put`].
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It was written. The token of the row, and how many were made grantable as far as the rows tell: the head of a queue, and clients of other
    /// stores than this one.
    Done { token: u64, woke: u32 },
    /// Nothing was written; these are the rows now.
    Refused(Box<NameRows>),
    /// Nothing was written, and the statement had to wait for the row: it knows the head row, but not the part rows that belong to it.
    Outdated,
}

/// The answer of a statement.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    /// The server's clock in µs, read while the statement ran.
    pub(crate) clock: i64,
    pub(crate) told: T,
}

/// Why a statement failed.
#[derive(Clone, Debug)]
pub(crate) enum Failed {
    /// Another transaction was in the way, or the time was over. Nothing was done.
    Blocked(Error),
    /// As the error says.
    Error(Error),
}

impl Failed {
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Blocked(error) | Self::Error(error) => error,
        }
    }
}

/// The statements that steps are made of, on one connection. Each is one round trip and one transaction.
pub(crate) trait Statements: fmt::Debug + Send + Sync + 'static {
    fn clock(&self) -> &Clock;

    /// Whether further requests can be sent.
    fn is_usable(&self) -> bool;

    /// The connection is not used for further requests.
    fn discard(&self);

    /// Creates the row of a name that has none.
    fn insert<'a>(&'a self, put: &'a Put, bounds: Bounds) -> BoxFuture<'a, Result<Answer<Outcome>, Failed>>;

    /// Writes all, or nothing. Rows are locked in the order of their names, which is that of `puts`.
    fn put_all<'a>(&'a self, puts: &'a [Put], bounds: Bounds) -> BoxFuture<'a, Result<Answer<Vec<Outcome>>, Failed>>;

    /// Writes each by itself. A row that somebody else has locked is refused, and holds nobody up.
    fn put_each<'a>(&'a self, puts: &'a [Put], bounds: Bounds) -> BoxFuture<'a, Result<Answer<Vec<Outcome>>, Failed>>;

    /// The rows of some names, all as of one moment.
    fn read<'a>(&'a self, names: &'a [Name]) -> BoxFuture<'a, Result<Answer<Vec<NameRows>>, Failed>>;

    /// The head row of a name and few of its part rows: this place of a waiter, the first one and the one before it; and how many stand before it
    /// that have not ended by `at`.
    fn standing<'a>(&'a self, name: &'a Name, place: PartKey, at: Instant) -> BoxFuture<'a, Result<Answer<Standing>, Failed>>;

    /// Extends a place to `until`, if at least `left` of it is left on the server's clock. Tells whether it was. The version of the name stays.
    fn extend_place<'a>(
        &'a self,
        name: &'a Name,
        place: PartKey,
        left: Duration,
        until: Instant,
    ) -> BoxFuture<'a, Result<bool, Failed>>;

    /// Whether a transaction of a user fences the name, so that no grant passes before it ends.
    fn is_fenced<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<bool, Failed>>;

    /// Creates empty rows for names that have none.
    fn create<'a>(&'a self, names: &'a [Name], versions: &'a [i64]) -> BoxFuture<'a, Result<(), Failed>>;

    /// Locks the row of the name, reads its rows, and writes what `compute` makes of them, in one transaction. The caller does not stop
    /// waiting before its end.
    fn transaction<T: Send + 'static>(
        &self,
        name: Name,
        compute: impl FnOnce(NameRows, Window) -> (T, Option<(Put, Bounds)>) + Send + 'static,
    ) -> BoxFuture<'_, Result<(T, Option<Outcome>), Failed>>;

    /// The versions of some names. One that has no row is left out.
    fn versions<'a>(&'a self, names: &'a [Name]) -> BoxFuture<'a, Result<HashMap<Name, Seen>, Failed>>;

    /// Marks rows as waited for by this store for `window` µs, so that a release tells that somebody waits. A row that is locked is left out.
    fn mark<'a>(&'a self, names: &'a [Name], window: i64) -> BoxFuture<'a, Result<(), Failed>>;

    /// Queues for the named lock of a name for so long; tells whether it was got. Only asked where [`Dial::has_hints`].
    fn hint<'a>(&'a self, _name: &'a Name, _wait: Duration) -> BoxFuture<'a, Result<bool, Failed>> {
        Box::pin(std::future::ready(Ok(false)))
    }

    /// Gives the named lock of a name back.
    fn unhint<'a>(&'a self, _name: &'a Name) -> BoxFuture<'a, Result<(), Failed>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Keeps the card of a client for `ttl` µs.
    fn announce<'a>(&'a self, id: &'a str, ttl: i64, card: &'a [u8]) -> BoxFuture<'a, Result<(), Failed>>;

    /// The cards of some clients, those that are known.
    fn cards<'a>(&'a self, ids: &'a [String]) -> BoxFuture<'a, Result<Vec<Vec<u8>>, Failed>>;

    /// Names that something lies under, in their order, at most `limit`: after `after`, and not before `prefix`.
    fn names<'a>(&'a self, after: &'a str, prefix: &'a str, limit: usize) -> BoxFuture<'a, Result<Vec<Vec<u8>>, Failed>>;

    /// Removes cards that ended, and rows that were empty for `idle` µs.
    fn sweep(&self, idle: i64) -> BoxFuture<'_, Result<(), Failed>>;
}

/// The steps of a store over one connection.
#[derive(Debug)]
pub(crate) struct Steps<D: Dial> {
    pub(crate) link: Link<D>,
    pub(crate) runtime: Runtime,
    pub(crate) wakeups: Arc<dyn Wakeups>,
    cache: Arc<Cache>,
    turns: Turns,
    long_queues: Arc<LongQueues>,
    batch: Arc<Batch>,
    /// Holds of ours that the server keeps for too long.
    far_ends: FarEnds,
}

impl<D: Dial> Steps<D> {
    /// `cache` is what `wakeups` may know of names, too.
    pub(crate) fn new(link: Link<D>, runtime: Runtime, wakeups: Arc<dyn Wakeups>, cache: Arc<Cache>) -> Self {
        let (turns, long_queues, batch, far_ends) = (Turns::default(), Arc::default(), Arc::default(), FarEnds::default());
        Self { link, runtime, wakeups, cache, turns, long_queues, batch, far_ends }
    }

    /// The same over another connection. Both remember rows together.
    pub(crate) fn another(&self) -> Self {
        let (runtime, wakeups, cache) = (self.runtime.clone(), Arc::clone(&self.wakeups), Arc::clone(&self.cache));
        let (turns, batch, far_ends) = (Turns::default(), Arc::default(), self.far_ends.clone());
        let long_queues = Arc::clone(&self.long_queues);
        Self { link: self.link.another(), runtime, wakeups, cache, turns, long_queues, batch, far_ends }
    }

    /// A step was written: remembers its rows, and tells how many wait here for what it freed.
    fn wrote(&self, put: &Put, after: NameRows, token: u64) -> u32 {
        self.long_queues.wrote(put, after.parts.len());
        self.cache.keep(&put.name, step::written(after, put, token));
        self.wakeups.wrote(put)
    }

    /// A version that no row has had.
    pub(crate) fn version(&self) -> i64 {
        self.runtime.client_id().bits() as i64
    }
}
