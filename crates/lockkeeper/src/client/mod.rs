//! The façade: a store by its URL, and the synchronizers on it.

mod builder;
#[cfg(feature = "config")]
mod config;
#[cfg(all(feature = "fuzzing", target_os = "linux"))]
pub(crate) mod fuzzing;
mod gate;
mod handles;
mod inspect;
mod list;
mod schemes;
mod url;

pub use builder::Builder;
pub use inspect::Examination;
pub use list::{List, ListStream};

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
#[cfg(unix)]
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use crate::backend::Backend;
use crate::error::{Error, ErrorKind, Result};
use crate::fence::Gate;
use crate::owner::ClientId;
use crate::runtime::log;
use crate::session::{Core, Session};
use crate::sync::{Guard, Permit, PermitId};

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
/// println!("only one of us at a time, token {:?}", guard.token());
/// guard.release().await?;
/// client.close().await?;
/// # Ok(()) }
/// ```
///
/// Every synchronizer is a method, and costs nothing until it is used:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// # let client = lockkeeper::Client::connect("memory:").await?;
/// let turn = client.fair_mutex("printer").lock().await?;
/// let reader = client.rwlock("prices").read().await?;
/// println!("client {} at {}, connected: {}", client.id(), client.url(), client.is_connected());
/// # drop((turn, reader));
/// # Ok(()) }
/// ```
#[doc(alias = "RedissonClient")]
#[derive(Clone)]
pub struct Client {
    session: Session,
    prefix: Arc<str>,
    home: Arc<Home>,
}

/// Where a client's store is.
struct Home {
    /// Without its password.
    url: String,
    /// What the URL names; `None` for a store of the user's own.
    target: Option<url::Target>,
    gate: OnceLock<Arc<dyn Gate>>,
    core: Arc<Core>,
}

impl Drop for Home {
    fn drop(&mut self) {
        // The last client is gone. The session may end a moment later, on the keeper's thread, which does not wait for releases.
        if !self.core.is_forked() {
            self.core.wait_for_releases();
        }
    }
}

impl Client {
    /// Connects to the store at `url`: `memory:` (this process, private to this client), `memory:NAME` (this process, shared by name),
    /// `sqlite:PATH` (this machine; `sqlite:` is the user's own file), `redis://…`, `postgres://…`, `mysql://…`, `zookeeper://…`, `etcd://…`,
    /// `redlock:` and a list of URLs (a majority of independent servers: `docs/redlock.md`). The guide helps to choose:
    /// `docs/guide/src/stores.md`.
    ///
    /// # Errors
    ///
    /// `Config` for a URL that is not understood, or whose feature is off; `Unavailable` if the store cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is left behind.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// use lockkeeper::{Client, ErrorKind};
    ///
    /// let client = Client::connect("memory:").await?;
    /// let error = Client::connect("localhost:6379").await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Config);
    /// client.close().await?;
    /// # Ok(()) }
    /// ```
    pub async fn connect(url: impl AsRef<str>) -> Result<Self> {
        Self::builder().connect(url).await
    }

    /// A client with other settings than the default ones.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// let client = lockkeeper::Client::builder().program("billing").connect("memory:").await?;
    /// # Ok(()) }
    /// ```
    pub fn builder() -> Builder {
        Builder::default()
    }

    fn new(session: Session, url: String, target: Option<url::Target>) -> Self {
        let core = Arc::clone(session.core());
        Self { session, prefix: Arc::from(""), home: Arc::new(Home { url, target, gate: OnceLock::new(), core }) }
    }

    /// What is left in the tables of this client, in words; `None` if nothing is. For simulations.
    #[cfg(feature = "conformance")]
    #[doc(hidden)]
    #[must_use]
    pub fn remains(&self) -> Option<String> {
        self.session.remains()
    }

    /// Connects to the store that the environment variable `LOCKKEEPER_STORE` names, as the program `lockkeeper` does.
    ///
    /// # Errors
    ///
    /// `Config` if it is not set or not UTF-8; otherwise as [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is left behind.
    ///
    /// ```no_run
    /// # async fn example() -> lockkeeper::Result<()> {
    /// let client = lockkeeper::Client::from_env().await?; // LOCKKEEPER_STORE=redis://127.0.0.1
    /// # Ok(()) }
    /// ```
    pub async fn from_env() -> Result<Self> {
        Self::connect(store_from_env()?).await
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

    fn full_name<'a>(&self, name: &'a str) -> Cow<'a, str> {
        // An empty name stays one, so that it is refused instead of becoming the prefix.
        if name.is_empty() || self.prefix.is_empty() { Cow::Borrowed(name) } else { format!("{}{name}", self.prefix).into() }
    }

    /// Runs `work` while it holds the mutex `name`: acquires it, drops `work` if the hold is lost, and releases it.
    ///
    /// # Errors
    ///
    /// Those of [`lock`](crate::Mutex::lock); `Lost` if the hold was lost before `work` ended, or was found lost at the release. A release
    /// without an answer is not an error: it goes on in the background.
    ///
    /// # Cancel safety
    ///
    /// As safe as `work`; the mutex is released in the background.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// let client = lockkeeper::Client::connect("memory:").await?;
    /// let sum = client.with_lock("orders:42", async { 1 + 1 }).await?;
    /// assert_eq!(sum, 2);
    /// # Ok(()) }
    /// ```
    pub fn with_lock<N: AsRef<str>, F: Future>(&self, name: N, work: F) -> impl Future<Output = Result<F::Output>> + use<N, F> {
        let mutex = self.mutex(name);
        async move {
            let guard = mutex.lock().await?;
            let output = guard.run(work).await?;
            match guard.release().await {
                Err(error) if error.kind() == ErrorKind::Lost => Err(error),
                Err(error) => {
                    log!(debug, %error, "the release goes on in the background");
                    Ok(output)
                }
                Ok(()) => Ok(output),
            }
        }
    }

    /// Takes over permits that were [detached](Permit::detach), by this process or another one; they are renewed from now on.
    ///
    /// Adopt an id once: two guards for one id release each other's permits.
    ///
    /// # Errors
    ///
    /// `NotHeld` if the permits were released or their lease ended; the store's errors.
    ///
    /// # Cancel safety
    ///
    /// Safe: the permits stay as they were, or last for one more lease.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// # let client = lockkeeper::Client::connect("memory:").await?;
    /// let id = client.semaphore("workers", 2).acquire().await?.detach(); // send it to another process as text
    /// let permit = client.adopt(id.to_string().parse()?).await?;
    /// permit.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn adopt(&self, id: PermitId) -> impl Future<Output = Result<Permit>> + Send + use<> {
        let ((name, owner, claim), session) = (id.into_parts(), self.session.clone());
        async move { session.adopt(name, claim, owner).await.map(Permit::new) }
    }

    /// Whether the store answered the last request of this client. For readiness probes.
    ///
    /// It sends nothing: it is what the last acquire, release, renewal or look found out, so it may be old when the client is idle.
    /// [`inspect`](Self::inspect) of any name asks the store now.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// # let client = lockkeeper::Client::connect("memory:").await?;
    /// assert!(client.is_connected(), "memory: always answers");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.session.core().is_connected()
    }

    /// Releases everything that this client holds, waits until the store has confirmed it, and ends the client and all its clones.
    ///
    /// To release everything when the process is asked to end, wait for the signal, stop the work that needs the locks, and close:
    ///
    /// ```ignore
    /// use tokio::signal::unix::{SignalKind, signal};
    ///
    /// signal(SignalKind::terminate())?.recv().await; // SIGTERM
    /// stop_the_work().await;
    /// client.close().await?;
    /// ```
    ///
    /// Call it before the process ends: a guard that is dropped releases in the background, and the end of the process cuts that off.
    /// When the last client is dropped it waits for pending releases, but for a moment only
    /// ([`Builder::drop_timeout`]), and `std::process::exit` does not even drop it. What was not released ends with its lease.
    /// The guide has whole programs: `docs/guide/src/shutdown.md`.
    ///
    /// # Errors
    ///
    /// `Unavailable` if something could not be released in time; it ends with its lease.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the closing goes on in the background.
    pub fn close(&self) -> impl Future<Output = Result<()>> + Send + use<> {
        let session = self.session.clone();
        async move { session.close().await }
    }

    /// This client's id, the first part of every [owner](crate::Held::owner) of its holds.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// # let client = lockkeeper::Client::connect("memory:").await?;
    /// let guard = client.mutex("orders:42").lock().await?;
    /// assert!(guard.owner().to_string().starts_with(&client.id().to_string()));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn id(&self) -> ClientId {
        self.session.id()
    }

    /// A descriptor for a program that works under this client's locks, on stores that learn of a death from the kernel (`sqlite:`);
    /// `None` elsewhere.
    ///
    /// A program that runs another one under its lock clears the close-on-exec flag of this descriptor, starts the other program, and drops
    /// it. While this process lives, its holds end with their leases, as always. If it dies first, they last until no copy of the descriptor is
    /// open any more: nobody could renew them, and the other program still works. Call this while you hold a lock: a client
    /// that holds nothing may use another descriptor later.
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
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// # let client = lockkeeper::Client::connect("memory:").await?;
    /// assert_eq!(client.url(), "memory:");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn url(&self) -> &str {
        &self.home.url
    }

    pub(crate) fn backend(&self) -> &Arc<dyn Backend> {
        self.session.backend()
    }
}

/// The store that the environment names.
pub(crate) fn store_from_env() -> Result<String> {
    std::env::var("LOCKKEEPER_STORE").map_err(|error| {
        let message = "LOCKKEEPER_STORE names no store; set it to a URL such as redis://127.0.0.1:6379";
        Error::new(ErrorKind::Config, message).with_source(error)
    })
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("id", &self.session.id())
            .field("store", &self.home.url)
            .field("prefix", &self.prefix)
            .finish()
    }
}
