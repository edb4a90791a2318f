//! etcd: locks in the layout of Go's `concurrency` package and of `etcdctl lock`, so that all of them exclude and queue with each other.
//!
//! A hold is a key attached to the client's lease; the oldest key holds the name. `keys` has the layout, `locks` and `release` the transactions, `watch` and
//! `mirror` the notifications, `session` the lease.

mod config;
mod connection;
mod error;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod gather;
mod inspect;
mod keys;
mod locks;
mod mirror;
mod namespace;
mod numbers;
mod places;
mod probe;
#[rustfmt::skip]
mod proto;
mod release;
mod request;
mod rpc;
mod self_test;
mod session;
mod stream;
mod view;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{
    Acquire, Attempt, AttemptAll, Backend, Capabilities, ClientCard, Count, CountOutcome, Finding, Forced, KeptAlive, Kind,
    Listing, Page, Release, Released, Renew, Renewed, Reply, Snapshot, StoreEvents, Subscription, Watch,
};
use crate::error::{ErrorKind, Result};
use crate::name::Name;
use crate::runtime::Runtime;
use crate::store::kit::worker::Worker;
pub use config::Config;
use error::Failed;
use numbers::Counts;
use request::{get, is_absent, put, txn};
use rpc::Transport;
use session::Session;
use watch::Hub;

/// An etcd cluster.
#[derive(Debug)]
pub struct EtcdStore(Inner);

/// A way to the cluster, and the session that all ways of one client share.
#[derive(Debug)]
struct Inner {
    transport: Arc<Transport>,
    session: Arc<Session>,
    counts: Arc<Counts>,
    /// Ends the session with the last of them.
    end: Arc<SessionEnd>,
}

/// Ends the session when the store is dropped: nobody has to wait until the lease ends.
#[derive(Debug)]
struct SessionEnd {
    transport: Arc<Transport>,
    session: Arc<Session>,
}

impl Drop for SessionEnd {
    fn drop(&mut self) {
        let Some(lease) = self.session.lease() else { return };
        let transport = Arc::clone(&self.transport);
        // The task has the worker, so that the thread lives until it is done.
        self.transport.worker.spawn(async move { session::revoke(&transport, lease.id).await });
    }
}

impl EtcdStore {
    /// Connects to one of the members, and asks it something.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if none can be reached, or they have no leader;
    /// [`ErrorKind::Denied`] if the user is refused; [`ErrorKind::Config`] if what answers is no
    /// etcd.
    pub async fn connect(config: Config, runtime: &Runtime) -> Result<Arc<Self>> {
        let store = Self::unconnected(config, runtime)?;
        let transport = &store.0.transport;
        let Err(error) = self_test::bounded(&transport.config, store.0.identity()).await else { return Ok(Arc::new(store)) };
        if error.kind() != ErrorKind::Unavailable {
            return Err(error);
        }
        // On the thread: the caller's executor may have no I/O.
        let config = Arc::clone(&transport.config);
        Err(transport.worker.run(async move { probe::explained(&config, error).await }).await?)
    }

    /// A store that connects when it is first used.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if the machine gives no thread for its connections.
    pub fn unconnected(config: Config, runtime: &Runtime) -> Result<Self> {
        let worker = Worker::start(runtime, "etcd", std::future::ready(()))?;
        let transport = Arc::new(Transport::new(Arc::new(config), worker, runtime.clone()));
        let (hub, commands) = Hub::new(runtime.clone());
        let mirrors = hub.mirror();
        let session = Arc::new(Session::new(hub));
        let task = stream::run(Arc::new(transport.another()), Arc::downgrade(&session), mirrors, commands);
        transport.worker.spawn(task);
        let end = Arc::new(SessionEnd { transport: Arc::clone(&transport), session: Arc::clone(&session) });
        Ok(Self(Inner { transport, session, counts: Arc::default(), end }))
    }

    /// All that [`connect`](Self::connect) looks at, and what may surprise.
    pub async fn examine(config: Config, runtime: &Runtime) -> Vec<Finding> {
        match Self::connect(config, runtime).await {
            Ok(store) => store.0.findings().await,
            Err(error) => vec![Finding::unfit("server", &error)],
        }
    }
}

impl Inner {
    /// An id that the first client draws.
    async fn identity(&self) -> Result<String> {
        let (key, drawn) = (keys::identity_key(), self.transport.runtime.client_id().to_string());
        let write =
            txn(vec![is_absent(key.clone())], vec![put(key.clone(), drawn.into_bytes(), 0), get(key.clone())], vec![get(key)]);
        let read = txn(Vec::new(), vec![get(keys::identity_key())], Vec::new());
        let mut id = None;
        // A look first: a user that may only read what lies there can still connect.
        for request in [read, write] {
            let answer = self.transport.txn(request).await.map_err(Failed::into_error)?;
            id = request::found(answer.responses).flatten().next();
            if id.is_some() {
                break;
            }
        }
        Ok(id.map(|id| String::from_utf8_lossy(&id.value).into_owned()).unwrap_or_default())
    }
}

impl Backend for EtcdStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("etcd")
            .with_kinds(&[Kind::Mutex, Kind::RwLock, Kind::Semaphore, Kind::CountingSemaphore, Kind::Latch])
            .with_fair()
            .with_queues_mutexes()
            .with_fencing()
            .with_push(true)
            .with_events()
            .with_session(self.0.transport.config.session)
    }

    fn keeper_connection(self: Arc<Self>) -> Arc<dyn Backend> {
        let Inner { transport, session, counts, end } = &self.0;
        let transport = Arc::new(transport.another());
        let (session, counts, end) = (Arc::clone(session), Arc::clone(counts), Arc::clone(end));
        Arc::new(Self(Inner { transport, session, counts, end }))
    }

    fn identity(&self) -> Reply<'_, String> {
        Box::pin(self.0.identity())
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        Box::pin(self.0.acquire(request))
    }

    fn acquire_all(&self, _requests: Vec<Acquire>) -> Reply<'_, AttemptAll> {
        let error = self.capabilities().unsupported("several locks in one step");
        Box::pin(std::future::ready(Err(error)))
    }

    fn release(&self, request: Release) -> Reply<'_, Released> {
        Box::pin(self.0.release(request))
    }

    fn renew(&self, requests: Vec<Renew>) -> Reply<'_, Vec<Result<Renewed>>> {
        Box::pin(self.0.renew(requests))
    }

    fn keep_alive(&self) -> Reply<'_, KeptAlive> {
        Box::pin(async move {
            // Another one may have asked for the session before, and was answered late: then less is left of it.
            let sent = self.0.transport.runtime.now();
            let lease = self.0.session.keep_alive(&self.0.transport).await.map_err(Failed::into_error)?;
            self.0.look_later(lease.id);
            Ok(KeptAlive::new(lease.number, lease.good_for(sent)))
        })
    }

    fn events(&self) -> StoreEvents {
        let (sender, events) = StoreEvents::channel();
        self.0.session.listen(sender);
        events
    }

    fn count(&self, request: Count) -> Reply<'_, CountOutcome> {
        Box::pin(self.0.count(request))
    }

    fn watch(&self, watch: Watch) -> Reply<'_, Subscription> {
        Box::pin(async move {
            keys::check(&watch.name, self.0.transport.config.slashes)?;
            self.0.session.hub.subscribe(watch).await
        })
    }

    fn inspect(&self, name: Name) -> Reply<'_, Option<Snapshot>> {
        Box::pin(async move {
            keys::check(&name, self.0.transport.config.slashes)?;
            self.0.inspect(&name).await
        })
    }

    fn list(&self, listing: Listing) -> Reply<'_, Page> {
        Box::pin(self.0.list(listing))
    }

    fn force_release(&self, name: Name) -> Reply<'_, Forced> {
        Box::pin(async move { self.0.force_release(&name).await })
    }

    fn announce(&self, card: ClientCard, ttl: Duration) -> Reply<'_, ()> {
        Box::pin(self.0.announce(card, ttl))
    }
}

impl Inner {
    /// Looks for holds that somebody deleted, in the background: a keep-alive is answered at once. And removes old answers.
    fn look_later(&self, lease: i64) {
        self.sweep_counts();
        if self.session.places.held().is_empty() {
            return;
        }
        let (transport, session) = (Arc::clone(&self.transport), Arc::clone(&self.session));
        self.transport.worker.spawn(async move { session.look(&transport, lease).await });
    }
}
