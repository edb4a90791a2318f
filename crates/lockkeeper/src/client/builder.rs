//! A client with other settings than the default ones.

use std::sync::Arc;
use std::time::Duration;

use super::{Client, url};
use crate::backend::Backend;
use crate::error::Result;
use crate::layer::Observe;
use crate::runtime::Runtime;
use crate::session::{Session, Settings};

/// Puts a [`Client`] together; only [`connect`](Self::connect) can fail.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// use std::time::Duration;
/// let client = lockkeeper::Client::builder().lease(Duration::from_secs(10)).connect("memory:").await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "it does nothing until it connects"]
pub struct Builder {
    settings: Settings,
    runtime: Runtime,
}

impl Default for Builder {
    fn default() -> Self {
        Self { settings: Settings::default(), runtime: Runtime::system() }
    }
}

impl Builder {
    /// The lease of holds that are kept alive (default 30 s): how long a crashed holder blocks others at most.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// How long one request may take before its outcome counts as unknown (default 3 s).
    pub fn command_timeout(mut self, timeout: Duration) -> Self {
        self.settings.command_timeout = timeout;
        self
    }

    /// How long an unreachable store is tried again before a call without a wait limit gives up (default 10 s).
    pub fn patience(mut self, patience: Duration) -> Self {
        self.settings.patience = patience;
        self
    }

    /// Where time and background work come from (default: the machine). Tests pass [`Runtime::simulated`].
    pub fn runtime(mut self, runtime: Runtime) -> Self {
        self.runtime = runtime;
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
    pub async fn connect(self, url: impl AsRef<str>) -> Result<Client> {
        let target = url::parse(url.as_ref())?;
        target.fits(self.settings.command_timeout)?;
        let shown = target.to_string();
        let backend = target.open(&self.runtime).await?;
        self.over(backend, &shown)
    }

    /// A client of a store of your own.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for settings that the store cannot keep.
    pub fn with_backend(self, backend: Arc<dyn Backend>) -> Result<Client> {
        let shown = backend.capabilities().store;
        self.over(backend, shown)
    }

    fn over(self, backend: Arc<dyn Backend>, shown: &str) -> Result<Client> {
        let session = Session::new(Arc::new(Observe::new(backend)), self.settings, self.runtime)?;
        Ok(Client::new(session, shown))
    }
}
