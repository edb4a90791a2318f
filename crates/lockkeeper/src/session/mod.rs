//! Holding on: a client's identity at a store, and everything that outlives a single call: renewal, loss, background release.
//!
//! Acquire and release run where the caller runs. Renewal, loss and what `Drop` leaves behind run on the keeper: one thread
//! and one [lane](crate::backend::Backend::keeper_connection) per client, so that a stalled or vanished executor loses no lock.

mod hold;
mod keeper;
mod line;
mod loss;
mod observer;
mod owner;
mod registry;
mod releaser;
mod settings;

pub use hold::Held;
pub use loss::Loss;
pub use owner::Owner;
pub use settings::Settings;

pub(crate) use crate::retry::Trouble;
pub(crate) use hold::{Grounds, Hold};
pub(crate) use line::{Line, Stand, Turn};
pub(crate) use owner::{Entry, Ticket};
pub(crate) use releaser::Undo;

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::backend::{Backend, Capabilities, Claim, Kind, LossReason, Observer, Renew, Renewed, Reply};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::owner::{ClientId, WireOwner};
use crate::runtime::{self, Instant, Runtime};
use registry::Registry;

/// One client's standing at one store. Cheap to clone; the keeper ends when the last clone and the last guard are gone.
#[derive(Clone, Debug)]
pub struct Session(Arc<Life>);

/// Ends the keeper when dropped; the keeper itself holds only the core.
#[derive(Debug)]
struct Life(Arc<Core>);

impl Drop for Life {
    fn drop(&mut self) {
        if self.0.is_forked() {
            // The connections belong to the parent process: closing them here would disturb it.
            let _ = ManuallyDrop::new(Arc::clone(&self.0));
            return;
        }
        self.0.wait_for_releases();
        self.0.stop();
    }
}

/// What callers, guards and the keeper share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) id: ClientId,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) capabilities: Capabilities,
    pub(crate) runtime: Runtime,
    pub(crate) settings: Settings,
    observer: Arc<dyn Observer>,
    /// The program's name on the client card, if it is not that of the executable.
    program: OnceLock<String>,
    /// The process that opened the session. A forked child shares its connections and its owners, and must not use them.
    process: u32,
    next_number: AtomicU64,
    lines: Mutex<HashMap<(Name, Kind), Weak<Line>>>,
    /// The local queues that backed off last: a new handle for the name must know of it.
    backing_off: Mutex<VecDeque<Arc<Line>>>,
    registry: Mutex<Registry>,
    /// What the keeper is to give back.
    undos: Mutex<VecDeque<Undo>>,
    /// Undos that are queued or under way.
    undoing: AtomicUsize,
    keeper_wake: Notify,
    /// Told whenever an undo ends, and when the keeper ends.
    progress: Notify,
    closed: AtomicBool,
    /// Whether the store answered the last request that was answered or timed out.
    connected: AtomicBool,
    stopping: AtomicBool,
    /// The store's id, once asked for.
    identity: tokio::sync::OnceCell<String>,
}

impl Session {
    /// Opens a session at `backend` and starts its keeper.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if the settings do not fit the store; [`ErrorKind::Unavailable`] if the machine gives no
    /// thread for the keeper.
    pub fn new(backend: Arc<dyn Backend>, settings: Settings, runtime: Runtime) -> Result<Self> {
        Self::observed(backend, settings, runtime, Arc::new(observer::Nobody))
    }

    /// As [`Session::new`], with somebody who is told what happens to its waits and holds.
    ///
    /// # Errors
    ///
    /// As [`Session::new`].
    pub fn observed(
        backend: Arc<dyn Backend>,
        settings: Settings,
        runtime: Runtime,
        observer: Arc<dyn Observer>,
    ) -> Result<Self> {
        let capabilities = backend.capabilities();
        capabilities.check_lease(settings.lease)?;
        settings.check()?;
        let core = Arc::new(Core {
            id: runtime.client_id(),
            backend,
            capabilities,
            runtime,
            settings,
            observer,
            program: OnceLock::new(),
            process: runtime::process_id(),
            next_number: AtomicU64::new(1),
            lines: Mutex::default(),
            backing_off: Mutex::default(),
            registry: Mutex::default(),
            undos: Mutex::default(),
            undoing: AtomicUsize::new(0),
            keeper_wake: Notify::new(),
            progress: Notify::new(),
            closed: AtomicBool::new(false),
            connected: AtomicBool::new(true),
            stopping: AtomicBool::new(false),
            identity: tokio::sync::OnceCell::new(),
        });
        core.runtime.background("lockkeeper-keeper", keeper::keep(Arc::clone(&core)))?;
        Ok(Self(Arc::new(Life(core))))
    }

    /// Names the program on the client card. It counts before the first hold.
    pub(crate) fn set_program(&self, name: String) {
        // Set once, by the builder.
        let _ = self.core().program.set(name);
    }

    /// This client's id.
    #[must_use]
    pub fn id(&self) -> ClientId {
        self.core().id
    }

    /// The store below.
    #[must_use]
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.core().backend
    }

    /// Gives back everything that this client holds or has left on its way, and refuses everything asked later.
    ///
    /// Guards that still live are told that they lost their hold.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if something could not be given back within twice the command timeout; its lease ends it.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the closing goes on in the background if this future is dropped.
    pub async fn close(&self) -> Result<()> {
        let core = self.core();
        core.check_process()?;
        core.closed.store(true, Ordering::SeqCst);
        // Taken out first: releasing locks the registry itself.
        let holds = core.registry().holds();
        for hold in holds {
            hold.lose(LossReason::Closed);
            core.release_later(&hold);
        }
        let drained = Box::pin(async {
            loop {
                let progress = core.progress.notified();
                if core.undoing.load(Ordering::SeqCst) == 0 {
                    return;
                }
                progress.await;
            }
        });
        match runtime::within(core.settings.command_timeout * 2, drained).await {
            Some(()) => Ok(()),
            None => Err(Error::new(
                ErrorKind::Unavailable,
                "the store did not take everything back in time; what is left ends with its lease",
            )),
        }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.0.0
    }

    /// Sends a request that changes nothing: without an answer nothing has happened, so the error is `Unavailable`.
    pub(crate) async fn read<T>(&self, reply: Reply<'_, T>) -> Result<T> {
        self.check_open()?;
        let core = self.core();
        core.call(core.settings.command_timeout, reply).await.map_err(|error| {
            if error.kind() == ErrorKind::Indeterminate {
                Error::new(ErrorKind::Unavailable, error.to_string()).with_source(error)
            } else {
                error
            }
        })
    }

    /// Takes over a hold that an owner of another client, or of this one, left at the store; renewed from now on.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotHeld`] if that owner holds nothing there; the store's errors.
    pub(crate) async fn adopt(&self, name: Name, claim: Claim, owner: WireOwner) -> Result<Held> {
        self.check_open()?;
        let core = self.core();
        let lease = core.settings.lease;
        let sent = core.runtime.now();
        let request = Renew { name: name.clone(), claim, owner, lease: Some(lease) };
        let mut answers = core.call(core.settings.limit(lease), core.backend.renew(vec![request])).await?;
        let good_for = match answers.pop() {
            Some(Ok(Renewed::Kept { good_for })) => good_for,
            Some(Ok(Renewed::Gone)) => {
                let message = format!("{owner} holds nothing of {name:?}: it was released, or its lease ended");
                return Err(Error::new(ErrorKind::NotHeld, message));
            }
            Some(Err(error)) => return Err(error),
            None => return Err(Error::new(ErrorKind::Protocol, "the store left a renewal without an answer")),
        };
        let line = Some(self.line(&name, claim.kind()));
        let unsettled_until = Instant::default();
        let grounds =
            Grounds { name, claim, owner, token: None, lease, good_for, kept: true, sent, unsettled_until, line, place: None };
        let held = Hold::new(self, grounds).enter();
        self.check_closed()?;
        Ok(held)
    }

    /// An error in a forked child, and once the client is closed.
    pub(crate) fn check_open(&self) -> Result<()> {
        self.core().check_process()?;
        self.check_closed()
    }

    /// An error once the client is closed.
    pub(crate) fn check_closed(&self) -> Result<()> {
        if self.core().closed.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Closed, "the client was closed; connect a new one"));
        }
        Ok(())
    }

    /// The one local queue for a name of this kind. Who asks for another kind must not wait here for what it cannot have.
    pub(crate) fn line(&self, name: &Name, kind: Kind) -> Arc<Line> {
        let mut lines = match self.core().lines.try_lock() {
            Ok(lines) => lines,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // A thread of the parent process may have held it when this process was forked off: it stays locked for ever.
            Err(TryLockError::WouldBlock) if self.core().is_forked() => return Arc::default(),
            Err(TryLockError::WouldBlock) => lock(&self.core().lines),
        };
        let key = (name.clone(), kind);
        if let Some(line) = lines.get(&key).and_then(Weak::upgrade) {
            return line;
        }
        // A name that nobody uses any more leaves an empty entry; sweep when they may be many.
        if lines.len() >= 64 && lines.len().is_power_of_two() {
            lines.retain(|_, line| line.strong_count() > 0);
        }
        let line = Arc::new(Line::default());
        lines.insert(key, Arc::downgrade(&line));
        line
    }
}

impl Core {
    /// How long after `now` a waiter asks again when nothing is heard.
    pub(crate) fn poll_after(&self, now: Instant) -> Duration {
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
    fn wait_for_releases(&self) {
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

    fn registry(&self) -> MutexGuard<'_, Registry> {
        lock(&self.registry)
    }

    fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.keeper_wake.notify_one();
    }
}

/// Nothing here panics while it holds a lock, so a poisoned one is as good as a sound one.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
