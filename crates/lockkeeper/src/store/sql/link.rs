//! A way to the database: a connection that is made when needed, and made again when it broke.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::clock::Window;
use super::rows::NameRows;
use super::{Bounds, Failed, Outcome, Put, Statements};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::runtime::{self, BoxFuture, Instant, Runtime};
use crate::store::kit::worker::Worker;

/// The pauses between attempts to connect that fail: the first, and what they grow to. A request in between gets the last error.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// How a connection is made.
pub(crate) trait Dial: fmt::Debug + Send + Sync + 'static {
    type Live: Statements;

    fn runtime(&self) -> &Runtime;

    /// The thread that drives the connections.
    fn worker(&self) -> &Worker;

    /// Whether clients that wait queue for a named lock of the server, as a hint when to look.
    fn has_hints(&self) -> bool {
        false
    }

    /// Opens a connection to a server that can be written to, with its clock measured. Does not take for ever.
    fn open(&self) -> BoxFuture<'_, Result<Self::Live>>;
}

/// One connection at a time.
#[derive(Debug)]
pub(crate) struct Link<D: Dial>(Arc<Inner<D>>);

impl<D: Dial> Clone for Link<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

struct Inner<D: Dial> {
    dial: Arc<D>,
    live: Mutex<Option<Arc<D::Live>>>,
    connecting: tokio::sync::Mutex<Option<Refused>>,
}

impl<D: Dial> fmt::Debug for Inner<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Inner").field(&self.dial).finish()
    }
}

/// Why there is no connection, and until when nobody tries again.
struct Refused {
    error: Error,
    pause: Duration,
    until: Instant,
}

impl<D: Dial> Link<D> {
    pub(crate) fn new(dial: Arc<D>) -> Self {
        Self(Arc::new(Inner { dial, live: Mutex::default(), connecting: tokio::sync::Mutex::default() }))
    }

    pub(crate) fn dial(&self) -> &Arc<D> {
        &self.0.dial
    }

    /// The way of another connection to the same database.
    pub(crate) fn another(&self) -> Self {
        Self::new(Arc::clone(&self.0.dial))
    }

    /// A connection, with its clock measured.
    pub(crate) async fn live(&self) -> Result<Arc<D::Live>> {
        if let Some(live) = self.0.usable() {
            return Ok(live);
        }
        let us = Arc::clone(&self.0);
        // On the thread of the store: the request that needs the connection may be given up before there is one.
        self.0.dial.worker().run(async move { us.connected().await }).await?
    }

    /// As [`Statements::transaction`]. Runs to its end also if the caller goes away.
    pub(crate) async fn transaction<T: Send + 'static>(
        &self,
        live: Arc<D::Live>,
        name: Name,
        compute: impl FnOnce(NameRows, Window) -> (T, Option<(Put, Bounds)>) + Send + 'static,
    ) -> std::result::Result<(T, Option<Outcome>), Failed> {
        let us = Arc::clone(&self.0);
        let task = async move {
            let done = live.transaction(name, compute).await;
            us.drop_unusable();
            done
        };
        self.0.dial.worker().run(task).await.map_err(Failed::Error)?
    }
}

impl<D: Dial> Inner<D> {
    fn live(&self) -> MutexGuard<'_, Option<Arc<D::Live>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn usable(&self) -> Option<Arc<D::Live>> {
        self.live().clone().filter(|live| live.is_usable())
    }

    /// Ends a connection that was given up. The server undoes the transaction that may be open on it, and unlocks its row.
    fn drop_unusable(&self) {
        self.live().take_if(|live| !live.is_usable());
    }

    async fn connected(&self) -> Result<Arc<D::Live>> {
        let mut refused = self.connecting.lock().await;
        if let Some(live) = self.usable() {
            return Ok(live);
        }
        let runtime = self.dial.runtime();
        if let Some(Refused { error, until, .. }) = &*refused
            && runtime.now() < *until
        {
            return Err(error.clone());
        }
        match self.dial.open().await {
            Ok(live) => {
                let live = Arc::new(live);
                *refused = None;
                *self.live() = Some(Arc::clone(&live));
                Ok(live)
            }
            Err(error) => {
                let pause = refused.take().map_or(PAUSES.0, |before| (before.pause * 2).min(PAUSES.1));
                *refused = Some(Refused { error: error.clone(), pause, until: runtime.now().plus(pause) });
                Err(error)
            }
        }
    }
}

/// Opens a connection to the first of some servers that can be used; each has the same time for it, so that one that accepts and says
/// nothing does not hide the next. Fails as the first one did, except that a server that only reads is told of last.
pub(crate) async fn first_usable<'a, T, S: Sync>(
    servers: &'a [S],
    limit: Duration,
    open: impl Fn(&'a S) -> BoxFuture<'a, Result<T>> + Sync,
    silent: impl Fn(&S) -> Error + Sync,
) -> Result<T> {
    let mut first: Option<Error> = None;
    for server in servers {
        let error = match runtime::within(limit, open(server)).await {
            Some(Ok(live)) => return Ok(live),
            Some(Err(error)) => error,
            None => silent(server),
        };
        let worse = |known: &Error| known.kind() == ErrorKind::Unavailable && error.kind() != ErrorKind::Unavailable;
        if first.as_ref().is_none_or(worse) {
            first = Some(error);
        }
    }
    Err(first.unwrap_or_else(|| Error::new(ErrorKind::Config, "the URL names no server")))
}
