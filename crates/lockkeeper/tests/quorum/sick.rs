//! Memory stores as servers of a quorum that fall ill on purpose.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper::backend::{
    Acquire, Attempt, Backend, ClientCard, Decision, Forced, KeepVotes, Listing, Page, Release, Released, Renew, Renewed, Reply,
    Snapshot, Standing, Subscription, Vote, VoteRequest, Voter, Watch,
};
use lockkeeper::layer::{Layer, Quorum};
use lockkeeper::name::Name;
use lockkeeper::runtime::Runtime;
use lockkeeper::store::memory::MemoryStore;
use lockkeeper::{Client, Error, ErrorKind, Result};

pub(crate) const MAX_LEASE: Duration = Duration::from_secs(3_600);

/// What is to be late next, and by how much.
type Delays = Arc<Mutex<VecDeque<(Sort, Option<Duration>)>>>;

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
    /// It carries out what it is sent after up to this long, drawn by chance, and answers after as long again.
    Jittery(Duration),
    /// It votes though it may have forgotten: a control.
    Forgetful,
    /// It tells its last token as its clock, so that clients learn the lead from tokens: a control.
    ClockFromTokens,
}

/// A sort of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    Vote,
    Renewal,
}

/// One server, through which clients of one side see it: two sides may see two illnesses of one store.
#[derive(Clone, Debug)]
pub(crate) struct Sick {
    pub(crate) store: Arc<MemoryStore>,
    /// The same store, as what the layer wraps.
    backend: Arc<dyn Backend>,
    illness: Arc<Mutex<Illness>>,
    /// Requests that the network will carry late, in order.
    late: Delays,
    /// How far its clock and its tokens are ahead of the store's, in microseconds.
    ahead: Arc<AtomicI64>,
}

impl Sick {
    /// If the next request of this sort is one that the network carries late: when it arrives. Its answer is lost.
    fn arrives_late(&self, sort: Sort) -> Option<Duration> {
        let mut late = self.late.lock().unwrap();
        let next = late.iter().position(|(of, _)| *of == sort)?;
        late.remove(next)?.1
    }

    /// Carries out a request of which the sender hears nothing, also if the sender has given up.
    fn carry_out_late<T: Send + 'static>(
        &self,
        by: Duration,
        request: impl FnOnce(Arc<MemoryStore>) -> Reply<'static, T>,
    ) -> Reply<'static, T> {
        let reply = request(Arc::clone(&self.store));
        tokio::spawn(async move {
            tokio::time::sleep(by).await;
            let _ = reply.await;
        });
        Box::pin(std::future::pending())
    }

    fn suffer<'a, T: Send + 'a>(&'a self, reply: Reply<'a, T>) -> Reply<'a, T> {
        let illness = *self.illness.lock().unwrap();
        Box::pin(async move {
            match illness {
                Illness::None | Illness::Forgetful => reply.await,
                Illness::Jittery(most) => {
                    let pause = || tokio::time::sleep(Duration::from_micros(fastrand::u64(0..=most.as_micros() as u64)));
                    pause().await;
                    let answer = reply.await;
                    pause().await;
                    answer
                }
                Illness::ClockFromTokens => {
                    tokio::time::sleep(Duration::from_micros(fastrand::u64(0..2_000))).await;
                    reply.await
                }
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
    ahead: Vec<Arc<AtomicI64>>,
    late: Vec<Delays>,
    runtime: Runtime,
}

impl Ward {
    pub(crate) fn new(servers: usize, runtime: &Runtime) -> Self {
        Self {
            stores: (0..servers).map(|_| Arc::new(MemoryStore::new(runtime.clone()))).collect(),
            illnesses: (0..servers).map(|_| Arc::new(Mutex::new(Illness::None))).collect(),
            ahead: (0..servers).map(|_| Arc::default()).collect(),
            late: (0..servers).map(|_| Arc::default()).collect(),
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

    /// Of the next requests of this sort to a server, these arrive so late (`None`: in time, and answered).
    pub(crate) fn carry_late(&self, server: usize, sort: Sort, by: impl IntoIterator<Item = Option<Duration>>) {
        self.late[server].lock().unwrap().extend(by.into_iter().map(|by| (sort, by)));
    }

    /// Sets a server's clock.
    pub(crate) fn set_clock_ahead(&self, server: usize, micros: i64) {
        self.ahead[server].store(micros, Ordering::SeqCst);
    }

    /// One server, as this side sees it.
    pub(crate) fn server(&self, index: usize) -> Sick {
        let store = Arc::clone(&self.stores[index]);
        let (illness, ahead) = (Arc::clone(&self.illnesses[index]), Arc::clone(&self.ahead[index]));
        let late = Arc::clone(&self.late[index]);
        Sick { backend: Arc::<MemoryStore>::clone(&store), store, illness, late, ahead }
    }

    /// As the layer, admitted.
    pub(crate) async fn quorum(&self) -> Quorum {
        let quorum = self.newcomers(MAX_LEASE);
        quorum.admit_new().await.unwrap();
        quorum
    }

    /// As the layer, not admitted.
    pub(crate) fn newcomers(&self, max_lease: Duration) -> Quorum {
        let server = |index: usize| -> Arc<dyn Voter> { Arc::new(self.server(index)) };
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

/// What a client of a quorum asks of its servers suffers.
impl Layer for Sick {
    fn inner(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    fn over(&self, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(Self { backend: inner, ..self.clone() })
    }

    fn identity(&self) -> Reply<'_, String> {
        self.suffer(self.store.identity())
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        self.suffer(self.store.acquire(request))
    }

    fn release(&self, request: Release) -> Reply<'_, Released> {
        self.suffer(self.store.release(request))
    }

    fn renew(&self, requests: Vec<Renew>) -> Reply<'_, Vec<Result<Renewed>>> {
        self.suffer(self.store.renew(requests))
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
}

impl Voter for Sick {
    fn vote(&self, request: VoteRequest) -> Reply<'_, Vote> {
        if let Some(by) = self.arrives_late(Sort::Vote) {
            return self.carry_out_late(by, |store| Box::pin(async move { store.vote(request).await }));
        }
        let illness = *self.illness.lock().unwrap();
        Box::pin(async move {
            let ahead = self.ahead.load(Ordering::SeqCst);
            let shifted = |time: u64, by: i64| time.saturating_add_signed(by);
            let floor = shifted(request.floor, -ahead);
            let request = request.with_floor(floor);
            let mut vote = if illness == Illness::Forgetful {
                let attempt = self.store.acquire(request.acquire).await?;
                Vote::new(Decision::Cast(attempt), 0)
            } else {
                self.suffer(self.store.vote(request)).await?
            };
            vote.clock = shifted(vote.clock, ahead);
            if let Decision::Cast(Attempt::Granted(grant)) = &mut vote.decision {
                grant.token = grant.token.map(|token| shifted(token, ahead));
                if illness == Illness::ClockFromTokens {
                    vote.clock = grant.token.unwrap_or_default();
                }
            }
            Ok(vote)
        })
    }

    fn keep_votes(&self, request: KeepVotes) -> Reply<'_, Vec<Result<Renewed>>> {
        if let Some(by) = self.arrives_late(Sort::Renewal) {
            return self.carry_out_late(by, |store| Box::pin(async move { store.keep_votes(request).await }));
        }
        self.suffer(self.store.keep_votes(request))
    }

    fn server_id(&self) -> Reply<'_, String> {
        self.suffer(self.store.server_id())
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
