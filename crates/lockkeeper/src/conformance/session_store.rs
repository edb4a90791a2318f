//! A simulated store whose holds live as long as the client's session, as on ZooKeeper and etcd: it proves the contract for them.
//!
//! One [`SessionStore`] is one connection with one session. A request is carried out although its caller has gone, in the order of sending, and
//! not at all if the session ended before it arrived.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::session_server::{Observer, Server, State};
use crate::backend::{
    Acquire, Attempt, Backend, Capabilities, ClientCard, Count, CountOutcome, Forced, Holder, KeptAlive, Kind, Listing, Page,
    Release, Released, Renew, Renewed, Reply, Snapshot, StoreEvents, Subscription, Watch,
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
    /// A watch that was lost while it was armed is not reported.
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
    /// The session in which requests of this handle were sent, if that is not the one that there is when they arrive.
    sent_in: Option<u64>,
}

/// What lies under a name after a step that changed it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Changed {
    /// Where.
    pub name: Name,
    /// Its holders now.
    pub holders: Vec<Holder>,
    /// The number of a latch or a counting semaphore.
    pub value: Option<i64>,
    /// An operator did it: those who hold no more may not know yet.
    pub forced: bool,
}

impl SessionStore {
    /// Starts an empty server whose sessions last so long without contact, and connects to it. Needs an executor.
    #[must_use]
    pub fn start(runtime: Runtime, lasts: Duration, flaw: SessionFlaw) -> Self {
        let server = Arc::new(Server::new(runtime, lasts, flaw));
        runtime::spawn(Server::end_sessions(Arc::downgrade(&server)));
        Self { server, connection: 0, session: Arc::default(), sent_in: None }
    }

    /// Another connection to the same server, with a session of its own.
    #[must_use]
    pub fn connect(&self) -> Self {
        let connection = self.server.state().next_number();
        Self { server: Arc::clone(&self.server), connection, session: Arc::default(), sent_in: None }
    }

    /// The session of this connection; 0 if it has none.
    #[must_use]
    pub fn session(&self) -> u64 {
        self.session.load(Ordering::SeqCst)
    }

    /// This connection for requests that were sent in `session` and arrive now; 0 if they were sent before there was one.
    #[must_use]
    pub fn sent_in(&self, session: u64) -> Self {
        Self { sent_in: (session > 0).then_some(session), ..self.clone() }
    }

    /// Ends the session of this connection at the server, as an operator can.
    pub fn end_session(&self) {
        self.server.state().end_session(self.session(), true);
    }

    /// Every session lasts as long from now on as if it had just been heard of, as after a restart of the server with its data.
    pub fn restart(&self) {
        let now = self.server.runtime.now();
        self.server.state().restart(now);
    }

    /// Has `tell` told of every step that changes a name, in the order of the steps. It must not call the store.
    pub fn observe(&self, tell: impl Fn(&Changed) + Send + Sync + 'static) {
        self.server.state().observer = Observer(Some(Arc::new(tell)));
    }

    /// Whether nothing lies at the server.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.server.state().names.is_empty()
    }

    /// Sends a request in the session that there is now. Once sent it arrives, also if the caller goes away.
    fn send<T: Send + 'static>(&self, step: impl FnOnce(&mut State, u64, Instant) -> Result<T> + Send + 'static) -> Reply<'_, T> {
        Box::pin(async move {
            let (server, current, connection) = (Arc::clone(&self.server), Arc::clone(&self.session), self.connection);
            let sent_in = self.sent_in.unwrap_or_else(|| current.load(Ordering::SeqCst));
            let answer = runtime::beside(async move {
                tokio::task::yield_now().await;
                let (mut state, now) = (server.state(), server.runtime.now());
                let opened = if sent_in == 0 { current.load(Ordering::SeqCst) } else { sent_in };
                let arrived = state.arrived(opened, connection, now);
                // An ended session is replaced by the next request, unless another one has done so.
                let session = arrived.inspect_err(|_| {
                    let _ = current.compare_exchange(opened, 0, Ordering::SeqCst, Ordering::SeqCst);
                })?;
                current.store(session, Ordering::SeqCst);
                step(&mut state, session, now)
            });
            let lost = || Err(Error::new(ErrorKind::Indeterminate, "the server went away"));
            answer.await.unwrap_or_else(lost)
        })
    }
}

impl Backend for SessionStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("session")
            .with_kinds(&[Kind::Mutex, Kind::RwLock, Kind::Semaphore, Kind::CountingSemaphore, Kind::Latch])
            .with_fair()
            .with_queues_mutexes()
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

    fn release(&self, request: Release) -> Reply<'_, Released> {
        self.send(move |state, _, _| Ok(state.release(&request)))
    }

    fn renew(&self, requests: Vec<Renew>) -> Reply<'_, Vec<Result<Renewed>>> {
        self.send(move |state, _, _| Ok(requests.iter().map(|request| Ok(state.renew(request))).collect()))
    }

    fn keep_alive(&self) -> Reply<'_, KeptAlive> {
        self.send(move |state, session, _| Ok(KeptAlive::new(session, state.lasts)))
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
        let connection = self.connection;
        self.send(move |state, _, _| Ok(state.watch(watch, connection)))
    }

    fn inspect(&self, name: Name) -> Reply<'_, Option<Snapshot>> {
        self.send(move |state, _, now| state.inspect(&name, now))
    }

    fn list(&self, listing: Listing) -> Reply<'_, Page> {
        self.send(move |state, _, now| {
            let all = |state: &State| state.names.keys().cloned().collect();
            listing::page_of_all(state, &listing, all, |state, name| state.inspect(name, now))
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
