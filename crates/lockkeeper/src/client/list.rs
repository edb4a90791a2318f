//! Listing what lies at the store, all at once or piece by piece.

use std::collections::VecDeque;
use std::fmt;
use std::future::IntoFuture;

use super::Client;
use crate::backend::{Listing, Snapshot};
use crate::error::Result;
use crate::runtime::BoxFuture;

/// Names asked for in one request.
const PAGE: usize = 256;

/// A listing that is being put together: see [`Client::list`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// # let client = lockkeeper::Client::connect("memory:").await?;
/// let guard = client.mutex("orders:42").lock().await?;
/// let first = client.list("orders:*").limit(10).await?;
/// assert_eq!(first[0].name.as_str(), "orders:42");
/// # drop(guard);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "it does nothing unless awaited or streamed"]
pub struct List {
    client: Client,
    pattern: String,
    limit: usize,
}

impl List {
    pub(super) fn new(client: Client, pattern: String) -> Self {
        Self { client, pattern, limit: usize::MAX }
    }

    /// Stops after this many names, whichever the store gives first.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Gives the names one by one, as the store gives them: in no order, and a name may come twice.
    pub fn stream(self) -> ListStream {
        let listing = Listing { pattern: self.pattern, after: None, limit: PAGE.min(self.limit).max(1) };
        ListStream { client: self.client, listing, page: VecDeque::new(), more: true, left: self.limit }
    }
}

impl IntoFuture for List {
    type Output = Result<Vec<Snapshot>>;
    type IntoFuture = BoxFuture<'static, Result<Vec<Snapshot>>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let mut stream = self.stream();
            let mut found = Vec::new();
            while let Some(next) = stream.next().await? {
                found.push(next);
            }
            found.sort_by(|a, b| a.name.cmp(&b.name));
            found.dedup_by(|a, b| a.name == b.name);
            Ok(found)
        })
    }
}

/// The names of a listing, one by one: see [`List::stream`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// # let client = lockkeeper::Client::connect("memory:").await?;
/// let guard = client.mutex("orders:42").lock().await?;
/// let mut names = client.list("*").stream(); // for stores with very many names
/// while let Some(found) = names.next().await? {
///     println!("{}: {} holders", found.name, found.holders.len());
/// }
/// # drop(guard);
/// # Ok(()) }
/// ```
#[must_use = "it does nothing unless asked for the next name"]
pub struct ListStream {
    client: Client,
    listing: Listing,
    page: VecDeque<Snapshot>,
    /// The store has more pages.
    more: bool,
    left: usize,
}

impl ListStream {
    /// The next name, or `None` at the end.
    ///
    /// # Errors
    ///
    /// The store's errors. It can be asked again afterwards.
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads, and no name is skipped.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// # let client = lockkeeper::Client::connect("memory:").await?;
    /// # let guard = client.mutex("orders:42").lock().await?;
    /// let mut names = client.list("orders:*").limit(1_000).stream();
    /// while let Some(found) = names.next().await? {
    ///     println!("{}: {} holders", found.name, found.holders.len());
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn next(&mut self) -> Result<Option<Snapshot>> {
        while self.left > 0 {
            if let Some(next) = self.page.pop_front() {
                self.left -= 1;
                return Ok(Some(next));
            }
            if !self.more {
                break;
            }
            let page = self.client.session.read(self.client.backend().list(self.listing.clone())).await?;
            self.more = page.next.is_some();
            self.listing.after = page.next;
            self.page.extend(page.found);
        }
        Ok(None)
    }
}

impl fmt::Debug for ListStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListStream").field("listing", &self.listing).field("left", &self.left).finish_non_exhaustive()
    }
}
