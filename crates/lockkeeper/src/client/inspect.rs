//! For people: what is held, by whom, and taking it from them.

use super::{Client, url};
use crate::backend::{Finding, Forced, Listing, Reply, Snapshot};
use crate::error::{Error, ErrorKind, Result};
use crate::name::{Name, literal_pattern};
use crate::runtime::Runtime;

/// Names asked for in one page.
const PAGE: usize = 256;

impl Client {
    /// What is known about one name; `None` if nothing lies there.
    ///
    /// # Errors
    ///
    /// `InvalidName`; `ForeignKey` if what lies there is no lock; the store's errors.
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    pub async fn inspect(&self, name: impl AsRef<str>) -> Result<Option<Snapshot>> {
        let name = Name::new(self.full_name(name))?;
        self.bounded(self.backend().inspect(name)).await
    }

    /// Everything under the client's prefix whose name matches `pattern` (`*` any text, `?` any character), by name.
    ///
    /// The store goes on meanwhile: what comes or goes during the listing may or may not be in it.
    ///
    /// # Errors
    ///
    /// The store's errors.
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// let client = lockkeeper::Client::connect("memory:").await?;
    /// let guard = client.mutex("orders:42").lock().await?;
    /// let held = client.list("orders:*").await?;
    /// assert_eq!(held[0].holders[0].owner, guard.owner().to_string());
    /// # Ok(()) }
    /// ```
    pub async fn list(&self, pattern: impl AsRef<str>) -> Result<Vec<Snapshot>> {
        let pattern = format!("{}{}", literal_pattern(&self.prefix), pattern.as_ref());
        let mut listing = Listing { pattern, after: None, limit: PAGE };
        let mut found = Vec::new();
        loop {
            let page = self.bounded(self.backend().list(listing.clone())).await?;
            found.extend(page.found);
            listing.after = page.next;
            if listing.after.is_none() {
                found.sort_by(|a, b| a.name.cmp(&b.name));
                found.dedup_by(|a, b| a.name == b.name);
                return Ok(found);
            }
        }
    }

    /// Takes a name from whoever holds it, and tells whom. They learn it at their next renewal: only a [fence](crate::fence) keeps
    /// them from acting until then.
    ///
    /// # Errors
    ///
    /// `InvalidName`; the store's errors.
    ///
    /// # Cancel safety
    ///
    /// It may or may not have happened.
    #[doc(alias = "forceUnlock")]
    pub async fn force_release(&self, name: impl AsRef<str>) -> Result<Forced> {
        let name = Name::new(self.full_name(name))?;
        self.bounded(self.backend().force_release(name)).await
    }

    /// Looks whether locks can live at the store that `url` names, and tells all that it found, good and bad: the self-test of
    /// [`connect`](Self::connect) in full. The first part of the answer is the URL without its password.
    ///
    /// # Errors
    ///
    /// `Config` for a URL that is not understood, or whose feature is off. A store that cannot be reached is a finding.
    ///
    /// # Cancel safety
    ///
    /// Safe: it leaves nothing behind.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// let (url, found) = lockkeeper::Client::examine("memory:").await?;
    /// assert_eq!((url.as_str(), found[0].about), ("memory:", "reach"));
    /// # Ok(()) }
    /// ```
    pub async fn examine(url: impl AsRef<str>) -> Result<(String, Vec<Finding>)> {
        let target = url::parse(url.as_ref())?;
        let shown = target.to_string();
        Ok((shown, target.examine(&Runtime::system()).await))
    }

    async fn bounded<T>(&self, reply: Reply<'_, T>) -> Result<T> {
        self.session.check_open()?;
        let core = self.session.core();
        core.call(core.settings.command_timeout, reply).await.map_err(|error| {
            if error.kind() == ErrorKind::Indeterminate { Error::new(ErrorKind::Unavailable, error.to_string()) } else { error }
        })
    }
}
