//! What callers, guards and the keeper of one client share.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::link::{Connection, Link};
use super::liveness::Ended;
use super::marks::Marks;
use super::queues::Queues;
use super::registry::Registry;
use super::releaser::UNDOS_AT_ONCE;
use super::{Settings, Undo, lock};
use crate::backend::{Backend, Capabilities, Observer};
use crate::error::{Error, ErrorKind, Result};
use crate::owner::{ClientId, WireOwner};
use crate::runtime::sync::{
    Mutex, MutexGuard, Notify,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};
use crate::runtime::{self, Instant, Runtime, log};

/// What callers, guards and the keeper share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) id: ClientId,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) capabilities: Capabilities,
    pub(crate) runtime: Runtime,
    pub(crate) settings: Settings,
    pub(super) observer: Arc<dyn Observer>,
    /// The user was told that the observer blocks the keeper.
    pub(super) told_slow: AtomicBool,
    /// Since when the keeper has been in the observer, in nanoseconds; 0: it is not there.
    pub(super) told_since: AtomicU64,
    /// The program's name on the client card, if it is not that of the executable.
    pub(super) program: OnceLock<String>,
    /// The store's URL without a password, if it has one.
    pub(super) place: OnceLock<String>,
    /// The next look at the holders of a name, after a call timed out: not before this time, in nanoseconds.
    pub(super) next_look: AtomicU64,
    /// The process that opened the session. A forked child shares its connections and its owners, and must not use them.
    pub(super) process: u32,
    pub(super) next_number: AtomicU64,
    pub(super) queues: Queues,
    /// Calls that `close` waits for.
    pub(super) under_way: AtomicUsize,
    /// What calls may have left in the store.
    pub(super) marks: Marks,
    pub(super) registry: Mutex<Registry>,
    /// What the keeper is to release.
    pub(super) undos: Mutex<VecDeque<Undo>>,
    /// Undos that are queued or under way.
    pub(super) undoing: AtomicUsize,
    /// Bounds how many of them are sent at a time.
    pub(super) undo_slots: Semaphore,
    pub(super) keeper_wake: Notify,
    /// A call of this client has a place in a queue of the store, since the last client card was sent.
    pub(super) queued: AtomicBool,
    /// What the store said has ended.
    pub(super) ended: Ended,
    /// Told whenever an undo ends, and when the keeper ends.
    pub(super) progress: Notify,
    pub(super) closed: AtomicBool,
    /// Tells calls that sleep that the client is closed.
    pub(super) closing: Notify,
    pub(super) link: Link,
    pub(super) stopping: AtomicBool,
    /// Dropping has waited for releases as long as it may.
    pub(super) waited_in_vain: AtomicBool,
    /// The store's id, once asked for.
    pub(super) identity: tokio::sync::OnceCell<String>,
}

impl Core {
    pub(super) fn new(backend: Arc<dyn Backend>, settings: Settings, runtime: Runtime, observer: Arc<dyn Observer>) -> Self {
        let (link, capabilities) = (Link::new(&*backend), backend.capabilities());
        Self {
            id: runtime.client_id(),
            capabilities,
            backend,
            runtime,
            settings,
            observer,
            told_slow: AtomicBool::new(false),
            told_since: AtomicU64::new(0),
            program: OnceLock::new(),
            place: OnceLock::new(),
            next_look: AtomicU64::new(0),
            process: runtime::process_id(),
            next_number: AtomicU64::new(1),
            queues: Queues::default(),
            under_way: AtomicUsize::new(0),
            marks: Marks::default(),
            registry: Mutex::new(Registry::new(capabilities.events)),
            undos: Mutex::default(),
            undoing: AtomicUsize::new(0),
            undo_slots: Semaphore::new(UNDOS_AT_ONCE),
            keeper_wake: Notify::new(),
            queued: AtomicBool::new(false),
            ended: Ended::default(),
            progress: Notify::new(),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
            link,
            stopping: AtomicBool::new(false),
            waited_in_vain: AtomicBool::new(false),
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

    /// Whether the keeper asks about a hold when a notification comes that this process does not explain. Not where the store tells of deleted holds by
    /// itself, and not where it finds notifications by polling: it would poll for each hold that somebody waits for.
    pub(crate) const fn probes_when_notified(&self) -> bool {
        self.capabilities.push && !self.capabilities.events && self.capabilities.notifies_within.is_zero()
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

    /// Sends one request on the callers' connection, bounded: no answer in time is an unknown outcome.
    pub(crate) fn call<T>(
        &self,
        limit: Duration,
        reply: impl Future<Output = Result<T>> + Unpin,
    ) -> impl Future<Output = Result<T>> + Unpin {
        self.call_by(Connection::Callers, limit, || reply)
    }

    /// As [`call`](Self::call), on the connection that is named. The store may be the user's: a panic in it is the caller's, but it must not end the
    /// keeper. There it is an answer that tells nothing.
    pub(super) fn call_by<T, R>(
        &self,
        way: Connection,
        limit: Duration,
        ask: impl FnOnce() -> R,
    ) -> impl Future<Output = Result<T>> + Unpin
    where
        R: Future<Output = Result<T>> + Unpin,
    {
        let for_keeper = way == Connection::Keeper;
        let reply = if for_keeper { runtime::caught(ask) } else { Some(ask()) };
        let mut reply = reply.map(|reply| runtime::within(limit, reply));
        std::future::poll_fn(move |cx| {
            let panicked = || Poll::Ready(Some(Err(self.panicked())));
            let poll = match &mut reply {
                Some(reply) if for_keeper => runtime::caught(|| Pin::new(reply).poll(cx)).unwrap_or_else(panicked),
                Some(reply) => Pin::new(reply).poll(cx),
                None => panicked(),
            };
            // A reply is the store's also when it is dropped.
            if for_keeper && poll.is_ready() && runtime::caught(|| drop(reply.take())).is_none() {
                log!(error, store = self.capabilities.store, "the store panicked when a reply was dropped");
            }
            poll.map(|answer| {
                let silent_for = if answer.is_none() { limit } else { Duration::ZERO };
                let answer = answer.unwrap_or_else(|| Err(self.no_answer(limit)));
                self.note_answer(way, answer.as_ref().err(), silent_for);
                answer
            })
        })
    }

    fn panicked(&self) -> Error {
        let store = self.capabilities.store;
        let message = format!("the {store} store panicked, so it is unknown whether the request was carried out");
        Error::new(ErrorKind::Indeterminate, message)
    }

    fn no_answer(&self, limit: Duration) -> Error {
        // A test that pauses tokio's clock ends every time limit at once.
        let paused = self.runtime.has_own_threads() && runtime::is_clock_paused();
        let why = if paused { "; tokio's clock is paused, use lockkeeper::testing" } else { "" };
        let message = format!("the {} store did not answer within {limit:?}{why}", self.capabilities.store);
        Error::new(ErrorKind::Indeterminate, message)
    }

    /// Blocks for a moment while releases are pending that the end of the process would cut off.
    pub(crate) fn wait_for_releases(&self) {
        let limit = self.settings.drop_timeout;
        if limit.is_zero()
            || self.waited_in_vain.load(Ordering::SeqCst)
            || !self.runtime.has_own_threads()
            || runtime::on_background_thread()
        {
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
                self.waited_in_vain.store(true, Ordering::SeqCst);
                log!(warn, "the last client was dropped while releases were pending; what is left ends with its lease");
                return;
            }
            runtime::park_on(left, progress);
        }
    }

    pub(super) fn registry(&self) -> MutexGuard<'_, Registry> {
        lock(&self.registry)
    }

    /// A waiter that has a place in a queue of the store is shown there: so the store is told who it is.
    pub(crate) fn saw_place(&self, placed: bool) {
        if placed && !self.queued.swap(true, Ordering::Relaxed) {
            self.keeper_wake.notify_one();
        }
    }

    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.keeper_wake.notify_one();
    }
}
