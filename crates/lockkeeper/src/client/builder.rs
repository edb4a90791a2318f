//! A client with other settings than the default ones.

use std::sync::Arc;
use std::time::Duration;

use super::{Client, url};
use crate::backend::Backend;
use crate::error::Result;
use crate::layer::{Metrics, Observe};
use crate::runtime::{self, Runtime};
use crate::runtime::{caught, log};
use crate::session::{Session, Settings};

/// Puts a [`Client`] together; only [`connect`](Self::connect) can fail.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// use std::time::Duration;
/// let client = lockkeeper::Client::builder().lease(Duration::from_secs(10)).connect("memory:").await?;
/// # Ok(()) }
/// ```
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// use std::time::Duration;
/// use lockkeeper::Client;
///
/// let client = Client::builder()
///     .lease(Duration::from_secs(20))
///     .command_timeout(Duration::from_secs(2))
///     .outage_timeout(Duration::from_secs(10))
///     .queue_ttl(Duration::from_secs(10))
///     .drop_timeout(Duration::from_secs(1))
///     .program("billing")
///     .connect("memory:")
///     .await?;
/// # client.close().await
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "it does nothing until it connects"]
pub struct Builder {
    settings: Settings,
    /// If it was chosen.
    lease: Option<Duration>,
    runtime: Runtime,
    program: Option<String>,
    #[cfg(feature = "referee")]
    layers: Layers,
}

/// Puts a layer around a backend.
#[cfg(feature = "referee")]
type Around = dyn Fn(Arc<dyn Backend>) -> Arc<dyn Backend> + Send + Sync;

/// What is put around the store, the innermost first.
#[cfg(feature = "referee")]
#[derive(Clone, Default)]
struct Layers(Vec<Arc<Around>>);

#[cfg(feature = "referee")]
impl std::fmt::Debug for Layers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} layers", self.0.len())
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            lease: None,
            runtime: Runtime::system(),
            program: None,
            #[cfg(feature = "referee")]
            layers: Layers::default(),
        }
    }
}

impl Builder {
    /// The lease of holds that are kept alive: how long a crashed holder blocks others at most. Default: 30 s, or the longest that the store
    /// keeps (`max-lease` of a `redlock:` URL).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// use std::time::Duration;
    /// let client = lockkeeper::Client::builder().lease(Duration::from_secs(10)).connect("memory:").await?;
    /// let guard = client.mutex("orders:42").lock().await?;
    /// assert!(guard.remaining() <= Duration::from_secs(10));
    /// # Ok(()) }
    /// ```
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// How long one request may take before its outcome counts as unknown (default 3 s).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// use std::time::Duration;
    /// let client = lockkeeper::Client::builder().command_timeout(Duration::from_secs(1)).connect("memory:").await?;
    /// # Ok(()) }
    /// ```
    pub fn command_timeout(mut self, timeout: Duration) -> Self {
        self.settings.command_timeout = timeout;
        self
    }

    /// How long an unreachable store is tried again before a call without a wait limit gives up (default 10 s). A call sets its own with
    /// [`outage_timeout`](crate::sync::Acquiring::outage_timeout).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// use std::time::Duration;
    /// let client = lockkeeper::Client::builder().outage_timeout(Duration::from_secs(30)).connect("memory:").await?;
    /// # Ok(()) }
    /// ```
    pub fn outage_timeout(mut self, timeout: Duration) -> Self {
        self.settings.outage_timeout = timeout;
        self
    }

    /// How long a waiter's place in a store's queue is kept without a sign of life (default 5 s, at least 2 s): how long a crashed
    /// waiter of a [`FairMutex`](crate::FairMutex) blocks those behind it at most. On ZooKeeper and etcd a waiter that
    /// is not polled loses its place after this time, and one that crashed when its session ends.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// use std::time::Duration;
    /// let client = lockkeeper::Client::builder().queue_ttl(Duration::from_secs(10)).connect("memory:").await?;
    /// let turn = client.fair_mutex("printer").lock().await?;
    /// # Ok(()) }
    /// ```
    pub fn queue_ttl(mut self, ttl: Duration) -> Self {
        self.settings.place = ttl;
        self
    }

    /// How long dropping the last clone of the client blocks while releases are pending (default 500 ms; zero turns it off). Without
    /// it a guard dropped at the end of `main` would leave its name held for a whole lease.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// use std::time::Duration;
    /// // This program calls `client.close()`, so a drop need not wait.
    /// let client = lockkeeper::Client::builder().drop_timeout(Duration::ZERO).connect("memory:").await?;
    /// client.close().await?;
    /// # Ok(()) }
    /// ```
    pub fn drop_timeout(mut self, timeout: Duration) -> Self {
        self.settings.drop_timeout = timeout;
        self
    }

    /// The program's name as operators see it beside the client's holds (default: the file name of the executable). Others can read it:
    /// pass no command line, which may contain a password.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// let client = lockkeeper::Client::builder().program("billing").connect("memory:").await?;
    /// # Ok(()) }
    /// ```
    pub fn program(mut self, name: impl Into<String>) -> Self {
        // Stores keep a client's card as lines of text.
        self.program = Some(name.into().replace(char::is_control, "\u{fffd}"));
        self
    }

    /// Where time and background work come from (default: the machine). Tests pass [`Runtime::simulated`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// use lockkeeper::{Client, Runtime};
    ///
    /// let client = Client::builder().runtime(Runtime::system()).connect("memory:").await?;
    /// # Ok(()) }
    /// ```
    pub fn runtime(mut self, runtime: Runtime) -> Self {
        self.runtime = runtime;
        self
    }

    /// Puts a layer around the store: for programs that record what happens there. Not part of the public API.
    #[cfg(feature = "referee")]
    #[doc(hidden)]
    pub fn layer(mut self, layer: impl Fn(Arc<dyn Backend>) -> Arc<dyn Backend> + Send + Sync + 'static) -> Self {
        self.layers.0.push(Arc::new(layer));
        self
    }

    /// Connects to the store at `url`; see [`Client::connect`].
    ///
    /// # Errors
    ///
    /// As [`Client::connect`], and `InvalidArgument` for settings that the store cannot keep.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is left behind.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// let client = lockkeeper::Client::builder().program("billing").connect("memory:").await?;
    /// assert_eq!(client.url(), "memory:");
    /// # Ok(()) }
    /// ```
    pub async fn connect(self, url: impl AsRef<str>) -> Result<Client> {
        let target = url::parse(url.as_ref())?;
        self.check_clock();
        target.fits(self.settings.command_timeout)?;
        if !target.is_private() {
            Runtime::check_timers()?;
        }
        let backend = target.clone().open(&self.runtime).await?;
        self.over(backend, target.to_string(), Some(target))
    }

    /// A client of a store of your own.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// use std::sync::Arc;
    /// use lockkeeper::{Client, Runtime, testing::MemoryStore};
    ///
    /// let runtime = Runtime::system();
    /// let store = Arc::new(MemoryStore::new(runtime.clone()));
    /// let client = Client::builder().runtime(runtime).with_backend(store)?;
    /// client.mutex("orders").lock().await?.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for settings that the store cannot keep.
    pub fn with_backend(self, backend: Arc<dyn Backend>) -> Result<Client> {
        let store = backend.capabilities().store;
        self.check_clock();
        self.over(backend, store.to_owned(), None)
    }

    /// Says that the client and the test that pauses tokio's clock do not share a clock.
    fn check_clock(&self) {
        if self.runtime.has_own_threads() && runtime::is_clock_paused() {
            log!(
                warn,
                "tokio's clock is paused, but this client runs on the clock of the machine: its requests time out at once and its leases do \
                 not end when the test moves the clock; use lockkeeper::testing::client(), or Builder::runtime(Runtime::simulated())"
            );
        }
    }

    fn over(self, backend: Arc<dyn Backend>, url: String, target: Option<url::Target>) -> Result<Client> {
        // Code of the user: a recorder that panics costs metrics, not clients.
        if caught(Metrics::register).is_none() {
            log!(error, "the metrics recorder panicked");
        }
        #[cfg(feature = "referee")]
        let backend = self.layers.0.iter().fold(backend, |below, layer| layer(below));
        let longest = backend.capabilities().max_lease;
        let lease = self.lease.unwrap_or_else(|| self.settings.lease.min(longest));
        let settings = Settings { lease, ..self.settings };
        let session = Session::observed(Arc::new(Observe::new(backend)), settings, self.runtime, Arc::new(Metrics))?;
        if let Some(program) = self.program {
            session.set_program(program);
        }
        session.set_place(url.clone());
        Ok(Client::new(session, url, target))
    }
}
