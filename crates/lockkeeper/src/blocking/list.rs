//! Listing for threads: all at once, or name by name.

use std::fmt;
use std::future::IntoFuture;

use super::Client;
use crate::backend::Snapshot;
use crate::client::{self, List};
use crate::error::Result;

impl Client {
    /// Everything whose name matches `pattern`; see [`lockkeeper::Client::list`](crate::Client::list).
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// let guard = client.mutex("orders:42").lock()?;
    /// assert_eq!(client.list("orders:*")?.len(), 1);
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn list(&self, pattern: impl AsRef<str>) -> Result<Vec<Snapshot>> {
        self.list_with(pattern, |list| list)
    }

    /// The same with options: `|list| list.limit(100)`.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn list_with(&self, pattern: impl AsRef<str>, options: impl FnOnce(List) -> List) -> Result<Vec<Snapshot>> {
        self.block_on(options(self.inner.list(pattern.as_ref())).into_future())
    }

    /// Gives what matches `pattern` name by name, for stores with very many names: in no order, and a name may come twice.
    pub fn list_stream(&self, pattern: impl AsRef<str>) -> ListStream {
        ListStream { stream: self.inner.list(pattern.as_ref()).stream(), client: self.clone() }
    }
}

/// The names of a listing, one by one: see [`Client::list_stream`].
///
/// ```
/// # let client = lockkeeper::blocking::Client::connect("memory:")?;
/// let guard = client.mutex("orders:42").lock()?;
/// assert_eq!(client.list_with("orders:*", |list| list.limit(10))?.len(), 1);
/// for found in client.list_stream("*").take(1_000) {
///     println!("{}", found?.name);
/// }
/// # drop(guard);
/// # Ok::<(), lockkeeper::Error>(())
/// ```
///
/// An error is an item. After it the next item is asked for again.
#[must_use = "it does nothing unless asked for the next name"]
pub struct ListStream {
    stream: client::ListStream,
    client: Client,
}

impl Iterator for ListStream {
    type Item = Result<Snapshot>;

    fn next(&mut self) -> Option<Result<Snapshot>> {
        self.client.block_on(self.stream.next()).transpose()
    }
}

impl fmt::Debug for ListStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stream.fmt(f)
    }
}
