//! Holding on: a client's identity at a store, and everything that outlives a single call: renewal, loss, background release.
//!
//! Acquire and release run where the caller runs. Renewal, loss and what `Drop` leaves behind run on the keeper: one thread
//! and one [connection](crate::backend::Backend::keeper_connection) per client, so that a stalled or vanished executor loses no lock.

mod acquisition;
mod closing;
mod grounds;
mod held;
mod hold;
mod holders;
mod keeper;
mod link;
mod liveness;
mod local_queue;
mod loss;
mod marks;
mod observer;
mod owner;
mod passing;
mod patience;
mod queues;
mod reach;
mod registry;
mod releaser;
#[cfg(feature = "conformance")]
mod remains;
mod settings;
mod shared;
mod stand;
mod step;
mod supervised;
mod wire_hold;

pub use held::Held;
pub use loss::Loss;
pub use owner::Owner;
pub use settings::Settings;

pub(crate) use crate::retry::Trouble;
pub(crate) use acquisition::Acquisition;
pub(crate) use closing::UnderWay;
pub(crate) use grounds::Grounds;
pub(crate) use hold::Hold;
pub(crate) use local_queue::{Closing, LocalQueue, Turn, Wanted};
pub(crate) use owner::{Entry, Ticket};
pub(crate) use patience::{Patience, late};
pub(crate) use releaser::Undo;
pub(crate) use shared::Core;
pub(crate) use step::{Command, Left, Moment, Step};
pub(crate) use wire_hold::{MOST_PASSES, Moved, WireHold};

use std::mem::ManuallyDrop;
use std::sync::{Arc, PoisonError};

use crate::backend::{Backend, Claim, Event, Kind, Observer, Renew, Renewed, Reply};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::owner::{ClientId, WireOwner};
use crate::runtime::sync::{Mutex, MutexGuard, atomic::Ordering};
use crate::runtime::{Instant, Runtime};

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
        let connected = self.0.link_ends();
        self.0.notify(&Event::ClientEnded { connected });
    }
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
        // Where holds live in the client's session, that is their lease.
        let settings = Settings { lease: capabilities.liveness.session().unwrap_or(settings.lease), ..settings };
        capabilities.check_lease(settings.lease)?;
        settings.check()?;
        let core = Arc::new(Core::new(backend, settings, runtime, observer));
        core.runtime.background("lockkeeper-keeper", keeper::keep(Arc::clone(&core)))?;
        core.notify(&Event::ClientStarted);
        Ok(Self(Arc::new(Life(core))))
    }

    /// Names the program on the client card. It counts before the first hold.
    pub(crate) fn set_program(&self, name: String) {
        // Set once, by the builder.
        let _ = self.core().program.set(name);
    }

    /// Says where the store is, for the log.
    pub(crate) fn set_place(&self, url: String) {
        // Set once, by the builder.
        let _ = self.core().place.set(url);
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
        let core = self.core();
        let _under_way = core.under_way();
        self.check_open()?;
        if core.capabilities.liveness.session().is_some() {
            return Err(core.capabilities.unsupported("hold that outlives the client that acquired it"));
        }
        let lease = core.settings.lease;
        let sent = core.runtime.now();
        let request = Renew::new(name.clone(), claim, owner, Some(lease));
        let mut answers = core.call(core.settings.limit(lease), core.backend.renew(vec![request])).await?;
        let good_for = match answers.pop() {
            Some(Ok(Renewed::Kept { good_for })) => good_for,
            Some(Ok(Renewed::Gone)) => {
                let message = format!("{owner} holds nothing of {name:?}: it was released, or its lease ended");
                return Err(Error::new(ErrorKind::NotHeld, message));
            }
            Some(Err(error)) => return Err(error),
            None => return Err(Error::new(ErrorKind::Protocol, "store returned 0 answers for 1 renewal")),
        };
        let grounds = Grounds {
            queue: Some(self.queue(&name, claim.kind())),
            name,
            claim,
            owner,
            id: owner.number,
            token: None,
            lease,
            good_for,
            session: 0,
            kept: true,
            sent,
            unsettled_until: Instant::default(),
            handed_over: false,
            spare_tokens: 0,
            passes: 0,
            until: Instant::NEVER,
            place: None,
        };
        let hold = Hold::new(self, grounds);
        hold.asked_until.forget();
        let held = hold.enter();
        let waited = core.runtime.now().since(sent);
        core.notify(&Event::Acquired { name: held.full_name(), claim, owner, waited, handed_over: false });
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

    /// The local queue for a name of this kind.
    pub(crate) fn queue(&self, name: &Name, kind: Kind) -> Arc<LocalQueue> {
        self.core().queues.get(self.core(), name, kind)
    }
}

/// Nothing here panics while it holds a lock, so a poisoned one is as good as a sound one.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
