//! The session with the ensemble: opened on the store's own thread, numbered, and ended when nobody keeps it alive.
//!
//! The driver keeps a session alive by itself for as long as it exists, also if the keeper of this client has stopped. A hold would then block its name
//! although no guard can be valid any more. So a session that nobody asked for anything for as long as its holds are valid is closed here.
//!
//! How long a hold is valid is less than the session lasts at the server ([`safe`]): a follower tells the leader only every half tick whom it has heard
//! of. If it is cut off from the leader, the leader may count from an earlier contact than the follower has answered.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::watch;
use zookeeper_client::{Client, Error as Cause, SessionState};

use super::alone::Folders;
use super::{Config, error, probe};
use crate::backend::{EventSender, StoreEvent, StoreEvents};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::{self, Instant, Runtime};
use crate::store::kit::worker::Worker;

/// How long the end of the store waits until the server knows that its session is over.
const FAREWELL: Duration = Duration::from_secs(2);

/// A node that nobody makes.
const NOTHING: &str = "/_lockkeeper/nothing";

/// How long a hold is safe after a contact with the leader, of what a session lasts at the server: all but the half tick between two reports of a
/// follower (a fifth of the session, by default at most) and the time between two pings of the driver.
pub(super) const fn safe(session: Duration) -> Duration {
    Duration::from_nanos((session.as_nanos() / 4 * 3) as u64)
}

/// One session.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) client: Client,
    /// The sessions of a store are numbered from 1.
    pub(super) number: u64,
    /// How long holds are safe without a further answer.
    pub(super) lasts: Duration,
    pub(super) folders: Folders,
    /// When the last request was sent that the leader has answered.
    confirmed: AtomicU64,
    /// When the last request was sent.
    contact: AtomicU64,
    runtime: Runtime,
}

impl Live {
    /// A request is sent now.
    pub(super) fn sends(&self) -> Instant {
        let now = self.runtime.now();
        self.contact.fetch_max(now.as_nanos(), Ordering::SeqCst);
        now
    }

    /// The leader has answered a request that was sent at this time.
    pub(super) fn confirms(&self, sent: Instant) {
        self.confirmed.fetch_max(sent.as_nanos(), Ordering::SeqCst);
    }

    /// How long a hold is safe, counted from `sent`, by what the leader has answered so far.
    pub(super) fn good_for(&self, sent: Instant) -> Duration {
        Instant::from_nanos(self.confirmed.load(Ordering::SeqCst)).plus(self.lasts).since(sent)
    }

    /// Asks a majority for an answer. Whatever was done before is seen by what is read afterwards.
    pub(super) async fn sync(&self) -> Result<()> {
        let sent = self.sends();
        self.ask_majority().await?;
        self.confirms(sent);
        Ok(())
    }

    /// Sends a write that changes nothing: a majority agrees to writes, also to those that fail. ZooKeeper's `sync` is answered by a leader alone, also
    /// by one that has been deposed and has not noticed, while the next leader counts the session anew.
    pub(super) fn ask_majority(&self) -> impl Future<Output = Result<()>> + Send {
        let deleting = self.client.delete(NOTHING, None);
        async move {
            match deleting.await {
                Ok(()) | Err(Cause::NoNode) => Ok(()),
                Err(cause) => Err(error::of_read(cause)),
            }
        }
    }

    fn ends(&self) -> Instant {
        Instant::from_nanos(self.contact.load(Ordering::SeqCst)).plus(self.lasts)
    }
}

/// The sessions of a store, one after the other.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) config: Config,
    pub(super) runtime: Runtime,
    pub(super) worker: Worker,
    current: Mutex<Option<Arc<Live>>>,
    opening: tokio::sync::Mutex<u64>,
    listeners: Mutex<Vec<EventSender>>,
    /// The sessions that the driver has not closed yet.
    open: watch::Sender<usize>,
}

impl Link {
    pub(super) fn new(config: Config, runtime: &Runtime) -> Result<Arc<Self>> {
        let (open, mut left) = watch::channel(0);
        let farewell = async move {
            let closed = Box::pin(async move {
                let _ = left.wait_for(|left| *left == 0).await;
            });
            runtime::within(FAREWELL, closed).await;
        };
        let worker = Worker::start(runtime, "zookeeper", farewell)?;
        Ok(Arc::new(Self {
            config,
            runtime: runtime.clone(),
            worker,
            current: Mutex::default(),
            opening: tokio::sync::Mutex::new(0),
            listeners: Mutex::default(),
            open,
        }))
    }

    /// The session that there is now.
    pub(super) fn current(&self) -> Option<Arc<Live>> {
        lock(&self.current).clone()
    }

    /// The session that there is now, or a new one. The store's thread opens it: a caller whose future is not polled any more would keep all others
    /// from it, the keeper too.
    pub(super) async fn live(self: &Arc<Self>) -> Result<Arc<Live>> {
        if let Some(live) = self.current() {
            return Ok(live);
        }
        let us = Arc::clone(self);
        self.worker.run_while_wanted(async move { us.opened().await }).await?
    }

    /// On the store's thread: neither this nor the driver's task may end with the caller's executor.
    async fn opened(self: &Arc<Self>) -> Result<Arc<Live>> {
        let mut last = self.opening.lock().await;
        if let Some(live) = self.current() {
            return Ok(live);
        }
        let sent = self.runtime.now();
        let (connector, cluster) = (self.config.connector()?, self.config.cluster());
        let client = match connector.connect(&cluster).await {
            Ok(client) => client,
            Err(cause) => return Err(self.not_opened(cause).await),
        };
        *last += 1;
        let live = Arc::new(Live {
            lasts: safe(client.session_timeout()),
            folders: Folders::default(),
            client,
            number: *last,
            confirmed: AtomicU64::new(sent.as_nanos()),
            contact: AtomicU64::new(self.runtime.now().as_nanos()),
            runtime: self.runtime.clone(),
        });
        *lock(&self.current) = Some(Arc::clone(&live));
        self.open.send_modify(|open| *open += 1);
        self.worker.spawn(follow(Arc::downgrade(self), live.client.state_watcher(), live.number, self.open.clone()));
        self.worker.spawn(end_if_silent(Arc::downgrade(self), Arc::downgrade(&live), self.runtime.clone()));
        Ok(live)
    }

    /// The error of a session that could not be opened.
    async fn not_opened(&self, cause: Cause) -> Error {
        if matches!(cause, Cause::NoHosts | Cause::Timeout | Cause::ConnectionLoss | Cause::Custom(_))
            && let Ok(Some(error)) = self.worker.run(probe::tls_trouble(self.config.clone())).await
        {
            return error.with_source(cause);
        }
        let error = error::of_write(cause);
        let kind = if error.kind() == ErrorKind::Indeterminate { ErrorKind::Unavailable } else { error.kind() };
        Error::new(kind, format!("cannot open a session at {}: {error}", self.config)).with_source(error)
    }

    /// The session of this number is over: everybody who listens is told, and the next request opens another one.
    fn ended(&self, number: u64) {
        {
            let mut current = lock(&self.current);
            if current.as_ref().is_some_and(|live| live.number == number) {
                *current = None;
            }
        }
        self.tell(&StoreEvent::SessionEnded(number));
    }

    pub(super) fn tell(&self, event: &StoreEvent) {
        lock(&self.listeners).retain(|listener| listener.send(event.clone()));
    }

    pub(super) fn events(&self) -> StoreEvents {
        let (sender, events) = StoreEvents::channel();
        lock(&self.listeners).push(sender);
        events
    }
}

/// Reports what the driver says of a session, until it is over.
async fn follow(link: Weak<Link>, mut states: zookeeper_client::StateWatcher, number: u64, open: watch::Sender<usize>) {
    loop {
        let state = states.changed().await;
        if let Some(link) = link.upgrade() {
            match state {
                // Watches are set again by the driver, but a server that was restored may not know what happened before.
                SessionState::SyncConnected | SessionState::ConnectedReadOnly => link.tell(&StoreEvent::EventsMissed),
                SessionState::Disconnected => {}
                SessionState::Expired | SessionState::Closed | SessionState::AuthFailed => link.ended(number),
            }
        }
        if state.is_terminated() {
            open.send_modify(|open| *open = open.saturating_sub(1));
            return;
        }
    }
}

/// Closes a session for which nobody sends requests any more.
async fn end_if_silent(link: Weak<Link>, live: Weak<Live>, runtime: Runtime) {
    loop {
        let Some(ends) = live.upgrade().map(|live| live.ends()) else { return };
        if runtime.now() < ends {
            runtime.sleep_until(ends).await;
            continue;
        }
        let (Some(link), Some(live)) = (link.upgrade(), live.upgrade()) else { return };
        // The driver closes the session when the last handle is gone; those of requests under way end with their callers.
        link.ended(live.number);
        return;
    }
}

pub(super) fn lock<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
