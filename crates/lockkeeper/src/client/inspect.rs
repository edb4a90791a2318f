//! For operators: what is held, by whom, and releasing it by force.

use super::{Client, List, url};
use crate::backend::{Finding, Forced, Snapshot};
use crate::error::Result;
use crate::name::{Name, literal_pattern};
use crate::runtime::{BoxFuture, Runtime};

/// What [`Client::examine`] found.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// let found = lockkeeper::Client::examine("memory:").await?;
/// for finding in &found.findings {
///     println!("{}: {}: {}", found.url, finding.about, finding.says);
/// }
/// lockkeeper::backend::Finding::judge(&found.findings)?; // Err if locks are not safe there
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Examination {
    /// The URL without its password.
    pub url: String,
    /// What was found, good and bad.
    pub findings: Vec<Finding>,
}

impl Client {
    /// What is known about one name; `None` if nothing lies there.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// # let client = lockkeeper::Client::connect("memory:").await?;
    /// let guard = client.mutex("orders:42").lock().await?;
    /// let found = client.inspect("orders:42").await?.expect("it is held");
    /// println!("held for {:?} by {:?}", found.holders[0].held_for, found.holders[0].client);
    /// guard.release().await?;
    /// assert!(client.inspect("orders:42").await?.is_none());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidName`; `ForeignKey` if what lies there is no lock; the store's errors.
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    pub fn inspect(&self, name: impl AsRef<str>) -> BoxFuture<'static, Result<Option<Snapshot>>> {
        let (name, session) = (Name::new(self.full_name(name.as_ref())), self.session.clone());
        Box::pin(async move { session.read(session.backend().inspect(name?)).await })
    }

    /// Lists what lies under the client's prefix and matches `pattern` (`*` any text, `?` any character).
    ///
    /// Awaited, it gives everything by name. [`limit`](List::limit) bounds it, [`stream`](List::stream) gives one name after the other.
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
    pub fn list(&self, pattern: impl AsRef<str>) -> List {
        List::new(self.clone(), format!("{}{}", literal_pattern(&self.prefix), pattern.as_ref()))
    }

    /// Releases a name by force, and tells who held it.
    ///
    /// The holders learn it at their next renewal; on `memory:`, ZooKeeper and etcd the store tells them at once. Only a
    /// [fence](crate::fence) keeps them from acting until then.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// # let client = lockkeeper::Client::connect("memory:").await?;
    /// let guard = client.mutex("orders:42").lock().await?;
    /// let forced = client.force_release("orders:42").await?;
    /// assert_eq!(forced.from.len(), 1);
    /// assert!(guard.release().await.is_err(), "it was lost");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidName`; the store's errors: `Unavailable` if nothing was done, `Indeterminate` if no answer came and it may have been
    /// done.
    ///
    /// # Cancel safety
    ///
    /// It may or may not have happened.
    #[doc(alias = "forceUnlock")]
    pub fn force_release(&self, name: impl AsRef<str>) -> BoxFuture<'static, Result<Forced>> {
        let (name, session) = (Name::new(self.full_name(name.as_ref())), self.session.clone());
        Box::pin(async move {
            let name = name?;
            session.check_open()?;
            let core = session.core();
            core.call(core.settings.command_timeout, session.backend().force_release(name)).await
        })
    }

    /// Checks whether locks are safe at the store that `url` names, and reports everything it found, good and bad: the self-test of
    /// [`connect`](Self::connect) in full.
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
    /// let report = lockkeeper::Client::examine("memory:").await?;
    /// assert_eq!((report.url.as_str(), report.findings[0].about), ("memory:", "reach"));
    /// # Ok(()) }
    /// ```
    pub async fn examine(url: impl AsRef<str>) -> Result<Examination> {
        let target = url::parse(url.as_ref())?;
        let url = target.to_string();
        Ok(Examination { url, findings: target.examine(&Runtime::system()).await })
    }

    /// The SQL that prepares the store that `url` names, for stores whose user may not create tables; `None` if the store needs none.
    ///
    /// [`connect`](Self::connect) does the same by itself where the user may. Nothing is connected to.
    ///
    /// # Errors
    ///
    /// `Config` for a URL that is not understood, or whose feature is off.
    ///
    /// ```
    /// assert_eq!(lockkeeper::Client::setup_sql("memory:")?, None);
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn setup_sql(url: impl AsRef<str>) -> Result<Option<String>> {
        Ok(url::parse(url.as_ref())?.setup_sql())
    }
}
