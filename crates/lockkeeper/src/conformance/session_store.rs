//! A simulated store whose holds live as long as the client's session, as on ZooKeeper and etcd: it proves the contract for them.
//!
//! One [`SessionStore`] is one connection with one session. A request is carried out although its caller has gone, in the order of sending, and
//! not at all if the session ended before it arrived.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::session_server::{Server, State};
use crate::backend::{
    Acquire, Attempt, AttemptAll, Backend, Capabilities, ClientCard, Count, CountOutcome, Forced, KeptAlive, Kind, Listing,
    Notifier, Page, Release, Released, Renew, Renewed, Reply, Snapshot, StoreEvents, Subscription, Watch,
};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::runtime::{self, Instant, Runtime};
use crate::store::kit::listing;

/// What is wrong with a simulated store, for tests of the suite itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionFlaw {
    /// Nothing.
    #[default]
    None,
    /// A waiter that gives up stays in the queue.
    ForgetsPlaces,
    /// A request whose session has ended is carried out.
    AcceptsEndedSessions,
    /// The end of a session leaves its holds and places.
    KeepsHoldsOfEndedSessions,
    /// A watch that was lost while it was armed is not told.
    LosesWatchesSilently,
}

/// A connection to a simulated session store. A clone is the same connection.
#[derive(Clone, Debug)]
pub struct SessionStore {
    server: Arc<Server>,
    /// Its number among the connections.
    connection: u64,
    /// The session that it has; 0 if it has to open one.
    session: Arc<AtomicU64>,
}

impl SessionStore {
    /// Starts an empty server whose sessions last so long without contact, and connects to it. Needs an executor.
    #[must_use]
    pub fn start(runtime: Runtime, lasts: Duration, flaw: SessionFlaw) -> Self {
        let server = Arc::new(Server::new(runtime, lasts, flaw));
        runtime::spawn(Arc::clone(&server).end_sessions());
        Self::to(server)
    }

    /// Another connection to the same server, with a session of its own.
    #[must_use]
    pub fn connect(&self) -> Self {
        Self::to(Arc::clone(&self.server))
    }

    fn to(server: Arc<Server>) -> Self {
        let connection = server.state().next_number();
        Self { server, connection, session: Arc::default() }
    }

    /// Ends the session of this connection at the server, as an operator can.
    pub fn end_session(&self) {
        self.server.state().end_session(self.session.load(Ordering::SeqCst));
    }

    /// How many names have something lying under them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.server.state().names.len()
    }

    /// Whether nothing lies at the server.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sends a request in the session that there is now. Once sent it arrives, also if the caller goes away.
    fn send<T: Send + 'static>(&self, step: impl FnOnce(&mut State, u64, Instant) -> Result<T> + Send + 'static) -> Reply<'_, T> {
        Box::pin(async move {
            let (server, current, connection) = (Arc::clone(&self.server), Arc::clone(&self.session), self.connection);
            let sent_in = current.load(Ordering::SeqCst);
            let answer = runtime::beside(async move {
                tokio::task::yield_now().await;
                let (mut state, now) = (server.state(), server.runtime.now());
                let opened = if sent_in == 0 { current.load(Ordering::SeqCst) } else { sent_in };
                match state.arrived(opened, connection, now) {
                    Ok(session) => {
                        current.store(session, Ordering::SeqCst);
                        step(&mut state, session, now)
                    }
                    Err(ended) => {
                        let _ = current.compare_exchange(opened, 0, Ordering::SeqCst, Ordering::SeqCst);
                        Err(ended)
                    }
                }
            });
            let lost = || Err(Error::new(ErrorKind::Indeterminate, "the server went away"));
            answer.await.unwrap_or_else(lost)
        })
    }
}

/// Ends a subscription when dropped.
struct Registration(Weak<Server>, u64);

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(server) = self.0.upgrade() {
            server.state().unwatch(self.1);
        }
    }
}

impl Backend for SessionStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("session")
            .with_kinds(&[Kind::Mutex, Kind::RwLock, Kind::Semaphore, Kind::CountingSemaphore, Kind::Latch])
            .with_fair()
            .with_fencing()
            .with_any_name(true)
            .with_push(true)
            .with_events()
            .with_session(self.server.lasts)
    }

    fn keeper_connection(self: Arc<Self>) -> Arc<dyn Backend> {
        self
    }

    fn identity(&self) -> Reply<'_, String> {
        let id = format!("{:p}", Arc::as_ptr(&self.server));
        self.send(move |_, _, _| Ok(id))
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        self.send(move |state, session, now| state.acquire(&request, session, now))
    }

    fn acquire_all(&self, _requests: Vec<Acquire>) -> Reply<'_, AttemptAll> {
        let error = self.capabilities().unsupported("several locks in one step");
        Box::pin(std::future::ready(Err(error)))
    }

    fn release(&self, request: Release) -> Reply<'_, Released> {
        self.send(move |state, _, _| Ok(state.release(&request)))
    }

    fn renew(&self, requests: Vec<Renew>) -> Reply<'_, Vec<Result<Renewed>>> {
        let lasts = self.server.lasts;
        self.send(move |state, _, _| {
            let answer = |request: Renew| match state.is_held(&request.name, request.owner, request.claim) {
                true => Renewed::kept(request.lease.map(|_| lasts)),
                false => Renewed::Gone,
            };
            Ok(requests.into_iter().map(|request| Ok(answer(request))).collect())
        })
    }

    fn keep_alive(&self) -> Reply<'_, KeptAlive> {
        let lasts = self.server.lasts;
        self.send(move |_, session, _| Ok(KeptAlive::new(session, lasts)))
    }

    fn events(&self) -> StoreEvents {
        let (sender, events) = StoreEvents::channel();
        self.server.state().listeners.push((self.connection, sender));
        events
    }

    fn count(&self, request: Count) -> Reply<'_, CountOutcome> {
        self.send(move |state, _, now| state.count(&request, now))
    }

    fn watch(&self, watch: Watch) -> Reply<'_, Subscription> {
        let (server, connection) = (Arc::downgrade(&self.server), self.connection);
        self.send(move |state, _, _| {
            let notifier = Notifier::default();
            let id = state.watch(watch, connection, notifier.clone());
            // Each waiter has a place of its own, and another one before it.
            Ok(Subscription::new(&notifier, Registration(server, id)).only_for_owner())
        })
    }

    fn inspect(&self, name: Name) -> Reply<'_, Option<Snapshot>> {
        self.send(move |state, _, now| state.inspect(&name, now))
    }

    fn list(&self, listing: Listing) -> Reply<'_, Page> {
        self.send(move |state, _, now| {
            let names = |state: &mut State, after: &str, from: &str| {
                Ok(state.names.keys().filter(|name| name.as_str() > after && name.as_str() >= from).cloned().collect())
            };
            listing::page(state, &listing, names, |state, name| state.inspect(name, now))
        })
    }

    fn force_release(&self, name: Name) -> Reply<'_, Forced> {
        self.send(move |state, _, now| state.force_release(&name, now))
    }

    fn announce(&self, card: ClientCard, ttl: Duration) -> Reply<'_, ()> {
        self.send(move |state, _, now| {
            state.cards.announce(card, now, now.plus(ttl));
            Ok(())
        })
    }

    fn extension(&self) -> Option<&(dyn Any + Send + Sync)> {
        Some(self)
    }
}
