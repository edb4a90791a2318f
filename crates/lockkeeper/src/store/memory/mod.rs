//! The store inside the process: the model itself, under one lock. For tests, examples, and programs that are one process.

mod state;
mod vote;

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::backend::{
    Acquire, Attempt, AttemptAll, Backend, Capabilities, ClientCard, Count, CountOutcome, Forced, Kind, Listing, Page, Release,
    Released, Renew, Renewed, Reply, Snapshot, StoreEvents, Subscription, Watch,
};
use crate::error::Result;
use crate::name::Name;
use crate::owner::ClientId;
use crate::runtime::Runtime;
use crate::runtime::sync::{Mutex, MutexGuard};
pub use state::Saved;
use state::State;

/// A store inside this process.
#[derive(Debug)]
pub struct MemoryStore {
    id: ClientId,
    runtime: Runtime,
    state: Mutex<State>,
}

impl MemoryStore {
    /// An empty store that keeps time by `runtime`.
    #[must_use]
    pub fn new(runtime: Runtime) -> Self {
        let state = State::new(runtime.wall_micros(), runtime.now());
        Self { id: runtime.client_id(), runtime, state: Mutex::new(state) }
    }

    /// What it keeps time by.
    pub(crate) const fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Forgets everything, as a server does that restarts empty; tokens still grow.
    pub fn forget(&self) {
        self.state().forget();
    }

    /// Forgets everything and the last token, as a server does that is flushed.
    pub fn flush(&self) {
        self.state().flush();
    }

    /// Begins a new run and keeps everything, as a server does that restarts from a file.
    pub fn restart(&self) {
        self.state().restart();
    }

    /// What the store knows now, to be [restored](Self::restore) later.
    #[must_use]
    pub fn save(&self) -> Saved {
        self.state().save()
    }

    /// Goes back to what was saved, with the wall clock of now: as a server does that reads an old file, or a replica that takes over without
    /// the last requests. The run stays the same; a server that [restarts](Self::restart) begins a new one.
    pub fn restore(&self, saved: &Saved) {
        self.state().restore(saved, (self.runtime.wall_micros(), self.runtime.now()));
    }

    /// Sends no notifications from now on, as a server does whose notifications are lost.
    pub fn mute(&self) {
        self.state().mute();
    }

    /// The number of names in use; expired ones do not count.
    #[must_use]
    pub fn len(&self) -> usize {
        let now = self.runtime.now();
        self.state().len(now)
    }

    /// Whether no name is in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many names are listened to. For simulations: when nobody waits, none may be.
    #[cfg(feature = "conformance")]
    #[doc(hidden)]
    #[must_use]
    pub fn listening(&self) -> usize {
        self.state().listeners.count()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The step is done within the first poll of the future, so a cancelled request was carried out either not at all or entirely.
macro_rules! at_once {
    ($step:expr) => {
        Box::pin(async move { $step })
    };
}

impl Backend for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("memory")
            .with_kinds(&[Kind::Mutex, Kind::RwLock, Kind::Semaphore, Kind::CountingSemaphore, Kind::Latch])
            .with_fair()
            .with_fencing()
            .with_hand_over()
            .with_hand_over_if_alone()
            .with_token_ranges()
            .with_pushed_grants()
            .with_acquire_all()
            .with_any_name(true)
            .with_push(true)
            .with_refuses_late()
            .with_events()
            .with_leases(Duration::from_millis(10), Duration::from_secs(365 * 24 * 3600))
    }

    fn keeper_connection(self: Arc<Self>) -> Arc<dyn Backend> {
        self
    }

    fn identity(&self) -> Reply<'_, String> {
        at_once!(Ok(self.id.to_string()))
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        at_once!(self.state().acquire(&request, self.runtime.now()))
    }

    fn acquire_all(&self, requests: Vec<Acquire>) -> Reply<'_, AttemptAll> {
        at_once!(self.state().acquire_all(&requests, self.runtime.now()))
    }

    fn release(&self, request: Release) -> Reply<'_, Released> {
        at_once!(self.state().release(&request, self.runtime.now()))
    }

    fn renew(&self, requests: Vec<Renew>) -> Reply<'_, Vec<Result<Renewed>>> {
        at_once!({
            let mut state = self.state();
            let now = self.runtime.now();
            Ok(requests.iter().map(|request| state.renew(request, now)).collect())
        })
    }

    fn events(&self) -> StoreEvents {
        let (sender, events) = StoreEvents::channel();
        self.state().events.push(sender);
        events
    }

    fn count(&self, request: Count) -> Reply<'_, CountOutcome> {
        at_once!(self.state().count(&request, self.runtime.now()))
    }

    fn watch(&self, watch: Watch) -> Reply<'_, Subscription> {
        at_once!(Ok(self.state().listeners.subscribe(watch)))
    }

    fn inspect(&self, name: Name) -> Reply<'_, Option<Snapshot>> {
        at_once!(self.state().inspect(&name, self.runtime.now()))
    }

    fn list(&self, listing: Listing) -> Reply<'_, Page> {
        at_once!(self.state().list(&listing, self.runtime.now()))
    }

    fn force_release(&self, name: Name) -> Reply<'_, Forced> {
        at_once!(self.state().force_release(&name, self.runtime.now()))
    }

    fn announce(&self, card: ClientCard, ttl: Duration) -> Reply<'_, ()> {
        at_once!({
            let now = self.runtime.now();
            self.state().announce(card, now, now.plus(ttl));
            Ok(())
        })
    }
}
