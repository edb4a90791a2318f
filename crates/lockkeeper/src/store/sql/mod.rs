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
pub(crate) mod link;
pub(crate) mod poll;
mod requests;
pub(crate) mod rows;
mod step;
pub(crate) mod store;
pub(crate) mod text;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::error::Error;
use crate::model::Wake;
use crate::name::Name;
use crate::runtime::{BoxFuture, Runtime};
use crate::store::kit::rows::PartRow;
use batch::Batch;
use cache::{Cache, Turns};
use clock::{Clock, Window};
pub(crate) use link::{Dial, Link};
use poll::Seen;
use rows::{NameRows, PartKey};
use store::Wakeups;

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
    batch: Arc<Batch>,
}

impl<D: Dial> Steps<D> {
    pub(crate) fn new(link: Link<D>, runtime: Runtime, wakeups: Arc<dyn Wakeups>) -> Self {
        Self { link, runtime, wakeups, cache: Arc::default(), turns: Turns::default(), batch: Arc::default() }
    }

    /// The same over another connection. Both remember rows together.
    pub(crate) fn another(&self) -> Self {
        let (runtime, wakeups, cache) = (self.runtime.clone(), Arc::clone(&self.wakeups), Arc::clone(&self.cache));
        Self { link: self.link.another(), runtime, wakeups, cache, turns: Turns::default(), batch: Arc::default() }
    }

    /// A step was written: remembers its rows, and tells how many wait here for what it freed.
    fn wrote(&self, put: &Put, after: NameRows, token: u64) -> u32 {
        self.cache.keep(&put.name, step::written(after, put, token));
        self.wakeups.wrote(put)
    }

    /// A version that no row has had.
    pub(crate) fn version(&self) -> i64 {
        self.runtime.client_id().bits() as i64
    }
}
