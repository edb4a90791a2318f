//! What callers, guards and the keeper of one client share.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;

use super::queues::Queues;
use super::registry::Registry;
use super::{Settings, Undo, lock};
use crate::backend::{Backend, Capabilities, Observer};
use crate::error::{Error, ErrorKind, Result};
use crate::owner::{ClientId, WireOwner};
use crate::runtime::{self, Instant, Runtime};

/// What callers, guards and the keeper share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) id: ClientId,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) capabilities: Capabilities,
    pub(crate) runtime: Runtime,
    pub(crate) settings: Settings,
    pub(super) observer: Arc<dyn Observer>,
    /// The program's name on the client card, if it is not that of the executable.
    pub(super) program: OnceLock<String>,
    /// The process that opened the session. A forked child shares its connections and its owners, and must not use them.
    pub(super) process: u32,
    pub(super) next_number: AtomicU64,
    pub(super) queues: Queues,
    /// Acquires that are out: `close` waits for them.
    pub(super) asking: AtomicUsize,
    pub(super) registry: Mutex<Registry>,
    /// What the keeper is to release.
    pub(super) undos: Mutex<VecDeque<Undo>>,
    /// Undos that are queued or under way.
    pub(super) undoing: AtomicUsize,
    pub(super) keeper_wake: Notify,
    /// Told whenever an undo ends, and when the keeper ends.
    pub(super) progress: Notify,
    pub(super) closed: AtomicBool,
    /// Whether the store answered the last request that was answered or timed out.
    pub(super) connected: AtomicBool,
    pub(super) stopping: AtomicBool,
    /// The store's id, once asked for.
    pub(super) identity: tokio::sync::OnceCell<String>,
}

impl Core {
    pub(super) fn new(backend: Arc<dyn Backend>, settings: Settings, runtime: Runtime, observer: Arc<dyn Observer>) -> Self {
        Self {
            id: runtime.client_id(),
            capabilities: backend.capabilities(),
            backend,
            runtime,
            settings,
            observer,
            program: OnceLock::new(),
            process: runtime::process_id(),
            next_number: AtomicU64::new(1),
            queues: Queues::default(),
            asking: AtomicUsize::new(0),
            registry: Mutex::default(),
            undos: Mutex::default(),
            undoing: AtomicUsize::new(0),
            keeper_wake: Notify::new(),
            progress: Notify::new(),
            closed: AtomicBool::new(false),
            connected: AtomicBool::new(true),
            stopping: AtomicBool::new(false),
            identity: tokio::sync::OnceCell::new(),
        }
    }

    /// How long after `now` a waiter asks again when nothing is heard.
    pub(crate) fn poll_after(&self, now: Instant) -> Duration {
        if !self.capabilities.push {
            return runtime::jitter(Settings::POLL_WITHOUT_PUSH.0, Settings::POLL_WITHOUT_PUSH.1);
        }
        let after = runtime::jitter(Settings::POLL.0, Settings::POLL.1);
        let grid = Settings::POLL_GRID.as_nanos() as u64;
        // Every client has a grid of its own: the store is not asked by all processes at once.
        let ours = self.id.bits() as u64 % grid;
        let past = (now.plus(after).as_nanos() % grid + grid - ours) % grid;
        after.saturating_sub(Duration::from_nanos(past))
    }

    /// Whether this is a forked child of the process that opened the session.
    pub(crate) fn is_forked(&self) -> bool {
        runtime::process_id() != self.process
    }

    /// An error in a forked child.
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.is_forked() {
            let message =
                format!("this client belongs to process {}, which was forked; connect a new client in the child", self.process);
            return Err(Error::new(ErrorKind::Closed, message));
        }
        Ok(())
    }

    /// The owner of a new acquisition, or the id of a new counting request.
    pub(crate) fn next_owner(&self) -> WireOwner {
        WireOwner { client: self.id, number: self.next_number.fetch_add(1, Ordering::Relaxed) }
    }

    /// The store's own id, by which two ways to one store are known to be that.
    pub(crate) async fn identity(&self) -> Result<&str> {
        let asked = self.identity.get_or_try_init(|| self.call(self.settings.command_timeout, self.backend.identity()));
        Ok(asked.await?)
    }

    /// Sends one request, bounded: no answer in time is an unknown outcome.
    pub(crate) fn call<T>(
        &self,
        limit: Duration,
        reply: impl Future<Output = Result<T>> + Unpin,
    ) -> impl Future<Output = Result<T>> + Unpin {
        let (mut reply, store) = (runtime::within(limit, reply), self.capabilities.store);
        std::future::poll_fn(move |cx| {
            Pin::new(&mut reply).poll(cx).map(|answer| {
                let answer = answer.unwrap_or_else(|| {
                    let message = format!("the {store} store did not answer within {limit:?}");
                    Err(Error::new(ErrorKind::Indeterminate, message))
                });
                self.note_answer(answer.as_ref().err());
                answer
            })
        })
    }

    /// Whether the store answered the last request.
    pub(crate) fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    /// Remembers whether the store answers. Stores log an outage themselves, with the address of the server.
    fn note_answer(&self, error: Option<&Error>) {
        let trouble = error.filter(|error| error.is_trouble());
        if trouble.is_none() == self.is_connected()
            || self.connected.swap(trouble.is_none(), Ordering::Relaxed) == trouble.is_none()
        {
            return;
        }
        let store = self.capabilities.store;
        match trouble {
            Some(error) => tracing::debug!(store, %error, "the store does not answer"),
            None => tracing::debug!(store, "the store answers again"),
        }
    }

    /// Blocks for a moment while releases are pending that the end of the process would cut off.
    pub(super) fn wait_for_releases(&self) {
        let limit = self.settings.drop_timeout;
        if limit.is_zero() || !self.runtime.has_own_threads() || runtime::on_background_thread() {
            return;
        }
        let end = self.runtime.now().plus(limit);
        loop {
            let mut progress = pin!(self.progress.notified());
            progress.as_mut().enable();
            if self.undoing.load(Ordering::SeqCst) == 0 {
                return;
            }
            let left = end.since(self.runtime.now());
            if left.is_zero() {
                tracing::warn!("the last client was dropped while releases were pending; what is left ends with its lease");
                return;
            }
            runtime::park_on(left, progress);
        }
    }

    /// A request for a hold goes out: `close` waits until it [ends](Self::asking_ends).
    pub(crate) fn asking_begins(&self) {
        self.asking.fetch_add(1, Ordering::SeqCst);
    }

    /// Its answer is dealt with, and what it may have left is known to the keeper.
    pub(crate) fn asking_ends(&self) {
        if self.asking.fetch_sub(1, Ordering::SeqCst) == 1 && self.closed.load(Ordering::SeqCst) {
            self.progress.notify_waiters();
        }
    }

    /// Whether nothing is on its way that may hold something.
    pub(super) fn is_drained(&self) -> bool {
        self.asking.load(Ordering::SeqCst) == 0 && self.undoing.load(Ordering::SeqCst) == 0
    }

    pub(super) fn registry(&self) -> MutexGuard<'_, Registry> {
        lock(&self.registry)
    }

    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.keeper_wake.notify_one();
    }
}
