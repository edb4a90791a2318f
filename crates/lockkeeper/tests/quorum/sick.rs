//! Memory stores as servers of a quorum that fall ill on purpose.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper::backend::{
    Acquire, Attempt, AttemptAll, Backend, Capabilities, ClientCard, Count, CountOutcome, Event, Forced, Listing, Page, Release,
    Released, Renew, Renewed, Reply, Snapshot, Standing, Subscription, Vote, Voter, Watch,
};
use lockkeeper::layer::Quorum;
use lockkeeper::name::Name;
use lockkeeper::runtime::Runtime;
use lockkeeper::store::memory::MemoryStore;
use lockkeeper::{Client, Error, ErrorKind, Result};

pub(crate) const MAX_LEASE: Duration = Duration::from_secs(3_600);

/// What is wrong with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Illness {
    None,
    /// It refuses connections.
    Dead,
    /// It takes everything and answers nothing; what it was sent is not carried out.
    Frozen,
    /// It carries out what it is sent so much later, and answers then.
    Slow(Duration),
    /// It carries out what it is sent, and the answer is lost.
    Mute,
    /// It votes though it may have forgotten: a control.
    Forgetful,
}

/// One server, through which clients of one side see it: two sides may see two illnesses of one store.
#[derive(Debug)]
pub(crate) struct Sick {
    pub(crate) store: Arc<MemoryStore>,
    illness: Arc<Mutex<Illness>>,
}

impl Sick {
    fn suffer<'a, T: Send + 'a>(&'a self, reply: Reply<'a, T>) -> Reply<'a, T> {
        let illness = *self.illness.lock().unwrap();
        Box::pin(async move {
            match illness {
                Illness::None | Illness::Forgetful => reply.await,
                Illness::Dead => Err(Error::new(ErrorKind::Unavailable, "it is dead")),
                Illness::Frozen => std::future::pending().await,
                Illness::Slow(by) => {
                    tokio::time::sleep(by).await;
                    reply.await
                }
                Illness::Mute => {
                    let _ = reply.await;
                    std::future::pending().await
                }
            }
        })
    }
}

/// Some servers.
#[derive(Clone, Debug)]
pub(crate) struct Ward {
    pub(crate) stores: Vec<Arc<MemoryStore>>,
    illnesses: Vec<Arc<Mutex<Illness>>>,
    runtime: Runtime,
}

impl Ward {
    pub(crate) fn new(servers: usize, runtime: &Runtime) -> Self {
        Self {
            stores: (0..servers).map(|_| Arc::new(MemoryStore::new(runtime.clone()))).collect(),
            illnesses: (0..servers).map(|_| Arc::new(Mutex::new(Illness::None))).collect(),
            runtime: runtime.clone(),
        }
    }

    /// The same servers as others see them, whose network is another.
    pub(crate) fn elsewhere(&self) -> Self {
        Self { illnesses: self.stores.iter().map(|_| Arc::new(Mutex::new(Illness::None))).collect(), ..self.clone() }
    }

    pub(crate) fn fall_ill(&self, server: usize, illness: Illness) {
        *self.illnesses[server].lock().unwrap() = illness;
    }

    /// As the layer, admitted.
    pub(crate) async fn quorum(&self) -> Quorum {
        let quorum = self.newcomers(MAX_LEASE);
        quorum.admit_new().await.unwrap();
        quorum
    }

    /// As the layer, not admitted.
    pub(crate) fn newcomers(&self, max_lease: Duration) -> Quorum {
        let server = |index: usize| -> Arc<dyn Voter> {
            Arc::new(Sick { store: Arc::clone(&self.stores[index]), illness: Arc::clone(&self.illnesses[index]) })
        };
        let servers = (0..self.stores.len()).map(|index| (format!("server-{index}"), server(index))).collect();
        Quorum::new(servers, max_lease, self.runtime.clone()).unwrap()
    }

    pub(crate) async fn client(&self, lease: Duration) -> Client {
        let builder = Client::builder().lease(lease).runtime(self.runtime.clone());
        builder.with_backend(Arc::new(self.quorum().await)).unwrap()
    }

    /// How many servers have something.
    pub(crate) fn occupied(&self) -> usize {
        self.stores.iter().filter(|store| !store.is_empty()).count()
    }

    /// Waits until nothing is left on these servers.
    pub(crate) async fn left_clean(&self, servers: impl Iterator<Item = usize> + Clone, within: Duration) {
        let began = self.runtime.now();
        while servers.clone().any(|server| !self.stores[server].is_empty()) {
            assert!(self.runtime.now().since(began) < within, "something is left behind after {within:?}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Backend for Sick {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn keeper_connection(self: Arc<Self>) -> Arc<dyn Backend> {
        self
    }

    fn identity(&self) -> Reply<'_, String> {
        self.suffer(self.store.identity())
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        self.suffer(self.store.acquire(request))
    }

    fn atomic_groups(&self, names: &[&Name]) -> Vec<Vec<usize>> {
        self.store.atomic_groups(names)
    }

    fn acquire_all(&self, requests: Vec<Acquire>) -> Reply<'_, AttemptAll> {
        self.suffer(self.store.acquire_all(requests))
    }

    fn release(&self, request: Release) -> Reply<'_, Released> {
        self.suffer(self.store.release(request))
    }

    fn renew(&self, requests: Vec<Renew>) -> Reply<'_, Vec<Result<Renewed>>> {
        self.suffer(self.store.renew(requests))
    }

    fn count(&self, request: Count) -> Reply<'_, CountOutcome> {
        self.suffer(self.store.count(request))
    }

    fn watch(&self, watch: Watch) -> Reply<'_, Subscription> {
        self.suffer(self.store.watch(watch))
    }

    fn inspect(&self, name: Name) -> Reply<'_, Option<Snapshot>> {
        self.suffer(self.store.inspect(name))
    }

    fn list(&self, listing: Listing) -> Reply<'_, Page> {
        self.suffer(self.store.list(listing))
    }

    fn force_release(&self, name: Name) -> Reply<'_, Forced> {
        self.suffer(self.store.force_release(name))
    }

    fn announce(&self, card: ClientCard, ttl: Duration) -> Reply<'_, ()> {
        self.suffer(self.store.announce(card, ttl))
    }

    fn note(&self, event: &Event<'_>) {
        self.store.note(event);
    }
}

impl Voter for Sick {
    fn vote(&self, request: Acquire, max_lease: Duration) -> Reply<'_, Vote> {
        if *self.illness.lock().unwrap() == Illness::Forgetful {
            return Box::pin(async move { self.store.acquire(request).await.map(Vote::Cast) });
        }
        self.suffer(self.store.vote(request, max_lease))
    }

    fn keep_votes(&self, requests: Vec<Renew>, max_lease: Duration) -> Reply<'_, Vec<Result<Renewed>>> {
        self.suffer(self.store.keep_votes(requests, max_lease))
    }

    fn standing(&self, max_lease: Duration) -> Reply<'_, Standing> {
        self.suffer(self.store.standing(max_lease))
    }

    fn admit(&self, max_lease: Duration) -> Reply<'_, ()> {
        self.suffer(self.store.admit(max_lease))
    }

    fn second(self: Arc<Self>) -> Arc<dyn Voter> {
        self
    }
}
