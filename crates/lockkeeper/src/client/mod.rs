//! The façade: a store by its URL, and the synchronizers on it.

mod builder;
#[cfg(feature = "config")]
mod config;
mod inspect;
mod url;

pub use builder::Builder;

use std::fmt;
#[cfg(unix)]
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::backend::Backend;
use crate::error::Result;
use crate::owner::ClientId;
use crate::session::{Owner, Session};
use crate::sync::{CountDownLatch, CountingSemaphore, FairMutex, MultiLock, Mutex, RwLock, Semaphore};

/// A client of one store. Cheap to clone; clones share one identity, one keeper and one set of connections.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// use lockkeeper::Client;
///
/// let client = Client::connect("memory:").await?;
/// let guard = client.mutex("orders:42").lock().await?;
/// println!("only one of us at a time, token {}", guard.token());
/// guard.release().await?;
/// client.close().await?;
/// # Ok(()) }
/// ```
#[doc(alias = "RedissonClient")]
#[derive(Clone)]
pub struct Client {
    session: Session,
    prefix: Arc<str>,
    url: Arc<str>,
}

impl Client {
    /// Connects to the store at `url`: `memory:` (this process, private to this client), `memory:NAME` (this process, shared by name),
    /// `sqlite:PATH` (this machine; `sqlite:` is the user's own file), `redis://…`,
    /// `redlock:` and a list of URLs (a majority of independent servers: `docs/redlock.md`).
    ///
    /// # Errors
    ///
    /// `Config` for a URL that is not understood, or whose feature is off; `Unavailable` if the store cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is left behind.
    pub async fn connect(url: impl AsRef<str>) -> Result<Self> {
        Self::builder().connect(url).await
    }

    /// A client with other settings than the default ones.
    pub fn builder() -> Builder {
        Builder::default()
    }

    fn new(session: Session, url: &str) -> Self {
        Self { session, prefix: Arc::from(""), url: Arc::from(url) }
    }

    /// The same client, with `prefix` put before every name that is given to it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// let client = lockkeeper::Client::connect("memory:").await?;
    /// let app = client.with_prefix("app:");
    /// let guard = app.mutex("orders").lock().await?;
    /// assert_eq!(guard.name(), "app:orders");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_prefix(&self, prefix: impl AsRef<str>) -> Self {
        Self { prefix: Arc::from(format!("{}{}", self.prefix, prefix.as_ref())), ..self.clone() }
    }

    fn full_name(&self, name: impl AsRef<str>) -> String {
        let name = name.as_ref();
        // An empty name stays one, so that it is refused instead of becoming the prefix.
        if name.is_empty() { String::new() } else { format!("{}{name}", self.prefix) }
    }

    /// A lock for one holder at a time.
    #[doc(alias = "getLock")]
    #[doc(alias = "getFencedLock")]
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        Mutex::new(&self.session, self.full_name(name))
    }

    /// A lock for one holder at a time, first come first served across processes.
    #[doc(alias = "getFairLock")]
    pub fn fair_mutex(&self, name: impl AsRef<str>) -> FairMutex {
        FairMutex::new(&self.session, self.full_name(name))
    }

    /// A lock for many readers or one writer.
    #[doc(alias = "getReadWriteLock")]
    pub fn rwlock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock::new(&self.session, self.full_name(name))
    }

    /// A semaphore of `permits` leased permits.
    #[doc(alias = "getPermitExpirableSemaphore")]
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Semaphore {
        Semaphore::new(&self.session, self.full_name(name), permits)
    }

    /// A bare shared number of permits.
    #[doc(alias = "getSemaphore")]
    pub fn counting_semaphore(&self, name: impl AsRef<str>) -> CountingSemaphore {
        CountingSemaphore::new(&self.session, self.full_name(name))
    }

    /// A gate that opens when a number of events have happened.
    #[doc(alias = "getCountDownLatch")]
    pub fn latch(&self, name: impl AsRef<str>) -> CountDownLatch {
        CountDownLatch::new(&self.session, self.full_name(name))
    }

    /// All of several mutexes of this client, or none: see [`MultiLock`], which takes locks of any kind, clients and stores.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// let client = lockkeeper::Client::connect("memory:").await?;
    /// let both = client.multi_lock(["account:7", "account:9"]).lock().await?;
    /// assert!(client.mutex("account:9").try_lock().await?.is_none(), "held");
    /// both.release().await?;
    /// # Ok(()) }
    /// ```
    #[doc(alias = "getMultiLock")]
    pub fn multi_lock<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> MultiLock {
        names.into_iter().fold(MultiLock::new(), |all, name| all.and(self.mutex(name).lock()))
    }

    /// Somebody who may take a lock again while holding it: see [`Owner`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// let client = lockkeeper::Client::connect("memory:").await?;
    /// let me = client.owner();
    /// let mutex = client.mutex("orders").owned_by(&me);
    /// let outer = mutex.lock().await?;
    /// let inner = mutex.lock().await?; // no round trip
    /// assert_eq!(outer.token(), inner.token());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn owner(&self) -> Owner {
        Owner::new(self.session.id())
    }

    /// Gives back everything that this client holds, and ends it and all its clones.
    ///
    /// # Errors
    ///
    /// `Unavailable` if something could not be given back in time; its lease ends it.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the closing goes on in the background.
    pub async fn close(&self) -> Result<()> {
        self.session.close().await
    }

    /// This client's id, the first part of every [owner](crate::Held::owner) of its holds.
    #[must_use]
    pub fn id(&self) -> ClientId {
        self.session.id()
    }

    /// A descriptor that stands for the life of this client's holds, on stores that learn of a death from the kernel (`sqlite:`);
    /// `None` elsewhere.
    ///
    /// As long as a copy of it is open anywhere, the holds count as alive; their leases end all the same. A program that runs
    /// another one under its lock clears the close-on-exec flag of this descriptor, starts the other program, and drops it: then
    /// the holder is dead only when both are gone. Ask while holding: a client that holds nothing may be given another life later.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the machine gives no descriptor.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// let client = lockkeeper::Client::connect("memory:").await?;
    /// assert!(client.liveness()?.is_none(), "the store is this process");
    /// # Ok(()) }
    /// ```
    #[cfg(unix)]
    pub fn liveness(&self) -> Result<Option<OwnedFd>> {
        url::liveness(&**self.backend())
    }

    /// The store's URL, without its password.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn backend(&self) -> &Arc<dyn Backend> {
        self.session.backend()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("id", &self.session.id()).field("store", &self.url).field("prefix", &self.prefix).finish()
    }
}
