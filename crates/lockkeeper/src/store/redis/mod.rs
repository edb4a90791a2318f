//! Redis, spoken as Redisson speaks it: the same keys, fields, leases, channels and payloads. So a Java process with Redisson and this
//! one exclude, wake and queue with each other.
//!
//! Keys of our own stand beside Redisson's: `lockkeeper:token` (the last fencing token; in a cluster `lockkeeper:token:{TAG}`, one per slot), `lockkeeper:client:<id>` (who a client is; expires),
//! `lockkeeper:waiting:{NAME}` (clients that wait for a mutex, in the order in which they are woken; expires), `lockkeeper:told:{NAME}` (when listeners at replicas were last told; expires), `lockkeeper:pending:{NAME}` (writers that wait; expires), `lockkeeper:fair:{NAME}` (our fair waiters, by when their places end; expires), `lockkeeper:request:{NAME}:<id>` (counting requests that were carried out; expires),
//! `lockkeeper:kind:{NAME}` (what a number counts; expires), `lockkeeper:store` (an id by which a store is known to be the same), `lockkeeper:run`
//! (of a server that is one of a quorum: which run of it may vote).

#[cfg(lockkeeper_shuttle)]
pub(crate) mod batch;
#[cfg(not(lockkeeper_shuttle))]
mod batch;
mod carry;
#[cfg(feature = "redis-cluster")]
mod cluster;
#[cfg_attr(not(feature = "redis-cluster"), allow(dead_code, reason = "a part is for clusters only"))]
mod config;
mod connect;
mod count;
mod dial;
#[cfg_attr(not(feature = "redis-cluster"), allow(dead_code, reason = "a part is for clusters only"))]
mod error;
mod far;
#[cfg(feature = "redis-cluster")]
mod follow;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod gate;
mod inspect;
mod keep;
#[cfg_attr(not(feature = "redis-sentinel"), allow(dead_code, reason = "a part is for sentinels only"))]
mod live;
mod locks;
mod multi;
mod names;
#[cfg_attr(not(feature = "redis-cluster"), allow(dead_code, reason = "a part is for clusters only"))]
mod node;
mod notify;
mod options;
mod outages;
mod replicas;
#[cfg_attr(not(feature = "redis-cluster"), allow(dead_code, reason = "a part is for clusters only"))]
mod request;
mod script;
mod self_test;
#[cfg(feature = "redis-sentinel")]
mod sentinel;
#[cfg(feature = "redis-cluster")]
mod slot_map;
#[cfg_attr(not(feature = "redis-cluster"), allow(dead_code, reason = "a part is for clusters only"))]
mod slots;
#[cfg_attr(not(feature = "redis-cluster"), allow(dead_code, reason = "a part is for clusters only"))]
mod subscriptions;
mod transport;
mod vote;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{FromRedisValue, Value};

use crate::backend::{
    Acquire, Attempt, AttemptAll, Backend, Capabilities, Claim, ClientCard, Count, CountOutcome, Finding, Forced, Kind, Listing,
    Notifier, Page, Release, Released, Renew, Renewed, Reply, Snapshot, Subscription, Watch,
};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::runtime::Runtime;
use crate::store::kit::far_ends::FarEnds;
use crate::store::kit::listeners::Listeners;
use batch::Batcher;
pub use config::Config;
use config::Durability;
pub use gate::RedisGate;
use names::TurnChannels;
use notify::Wanted;
use transport::Transport;

/// Redis: a server, the master that sentinels name, or a cluster.
pub struct RedisStore {
    transport: Arc<Transport>,
    grants: Lane,
    releases: Lane,
    /// Which clients listen at which name through this store: one, unless it is shared.
    watching: Arc<Listeners>,
    /// Holds of ours that the server keeps for too long.
    far_ends: FarEnds,
    /// What one place in a fair queue is worth: Redisson's `fairLockWaitTimeout`, the same for all peers.
    fair_unit: Duration,
}

/// A connection to the server whose requests are batched. Grants that must reach replicas have one of their own: the server answers nothing
/// else on a connection that waits for them.
struct Lane {
    transport: Arc<Transport>,
    batcher: Arc<Batcher>,
}

impl RedisStore {
    fn over(transport: Arc<Transport>, fair_unit: Duration) -> Self {
        let durability = transport.config().durability;
        let releases = Lane { transport: Arc::clone(&transport), batcher: Batcher::new(Durability::Master) };
        let grants = if durability == Durability::Master {
            Lane { transport: Arc::clone(&releases.transport), batcher: Arc::clone(&releases.batcher) }
        } else {
            Lane { transport: transport.another(), batcher: Batcher::new(durability) }
        };
        Self { transport, grants, releases, watching: Arc::default(), far_ends: FarEnds::default(), fair_unit }
    }

    /// Refuses names whose keys would lie in several slots of a cluster, or be those of another name.
    fn admit(&self, name: &Name, kind: Kind) -> Result<()> {
        if let Some(word) = names::braced_word(name) {
            let message = format!(
                "{name:?} would share its queues and marks with {word:?}; use {word:?}, or braces around a part of the name"
            );
            return Err(Error::new(ErrorKind::InvalidName, message));
        }
        if names::is_own(name.as_str()) {
            let message = format!("{name:?} is the name of a key that lockkeeper keeps for itself; choose another name");
            return Err(Error::new(ErrorKind::InvalidName, message));
        }
        if !self.transport.is_cluster() || names::share_a_slot(name, kind) {
            return Ok(());
        }
        let message =
            format!("the braces of {name:?} put its keys in different slots of the cluster; use none, or one pair around a part");
        Err(Error::new(ErrorKind::InvalidName, message))
    }

    /// Connects to a server and looks whether locks can live there.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if it cannot be reached or is a replica; [`ErrorKind::Denied`] if it refuses the user, or the user
    /// lacks a right, which is named; [`ErrorKind::Config`] if it is too old or evicts keys.
    pub async fn connect(config: Config, runtime: &Runtime) -> Result<Arc<Self>> {
        let (store, found) = Self::look_at(config, runtime, false).await?;
        Finding::judge(&found)?;
        Ok(Arc::new(store))
    }

    /// All that [`connect`](Self::connect) looks at, also where it would fail.
    pub async fn examine(config: Config, runtime: &Runtime) -> Vec<Finding> {
        match Self::look_at(config, runtime, true).await {
            Ok((_, found)) => found,
            Err(error) => vec![Finding::unfit("server", &error)],
        }
    }

    async fn look_at(config: Config, runtime: &Runtime, thorough: bool) -> Result<(Self, Vec<Finding>)> {
        let store = Self::unconnected(config, runtime);
        let ready = Box::pin(async {
            store.transport.ready().await?;
            store.self_test(thorough).await
        });
        let found = crate::runtime::within(Duration::from_secs(10), ready)
            .await
            .unwrap_or_else(|| Err(Error::new(ErrorKind::Unavailable, "redis did not answer within 10s")))?;
        Ok((store, found))
    }

    /// The same, connected when it is first asked, and not looked at before: for one of a quorum that is down just now.
    pub(crate) fn unconnected(config: Config, runtime: &Runtime) -> Self {
        Self::over(Transport::new(config, runtime.clone()), Duration::from_secs(300))
    }

    /// The channels that tell what is watched for.
    fn wanted(&self, watch: &Watch) -> Wanted {
        let channel = names::channel(&watch.name, watch.kind, watch.own_place());
        if watch.claim != Some(Claim::Mutex) || !self.capabilities().wakes_in_turn {
            Wanted::All(vec![channel])
        } else if watch.in_turn {
            Wanted::Turn(TurnChannels::new(&watch.name, watch.owner.client))
        } else {
            Wanted::All(vec![channel, names::every(&watch.name)])
        }
    }

    fn over_another(&self) -> Self {
        let (watching, far_ends) = (Arc::clone(&self.watching), self.far_ends.clone());
        Self { watching, far_ends, ..Self::over(self.transport.another(), self.fair_unit) }
    }
}

/// Whole milliseconds, rounded up: the store never keeps a hold for less than was granted.
fn millis(time: Duration) -> Vec<u8> {
    time.as_nanos().div_ceil(1_000_000).to_string().into_bytes()
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisStore").field(&self.transport).finish()
    }
}

fn parsed<T: FromRedisValue>(answer: Value) -> Result<T> {
    T::from_redis_value(answer)
        .map_err(|error| Error::new(ErrorKind::Protocol, "redis answered something unexpected").with_source(error))
}

impl Backend for RedisStore {
    fn capabilities(&self) -> Capabilities {
        let redis = Capabilities::new("redis")
            .with_kinds(&[Kind::Mutex, Kind::RwLock, Kind::Semaphore, Kind::CountingSemaphore, Kind::Latch])
            .with_fair()
            .with_fencing()
            .with_hand_over()
            .with_acquire_all()
            .with_any_name(!self.transport.is_cluster())
            .with_push(self.transport.config().push)
            .with_refuses_late()
            .with_leases(Duration::from_millis(100), Duration::from_secs(365 * 24 * 3600));
        // Who waits is known by who subscribes. In a cluster our own subscription cannot be told from others': the connection that listens is
        // not the one that asks. And Redisson's counters of tokens know no ranges.
        let (config, cluster) = (self.transport.config(), self.transport.is_cluster());
        let keeps = config.push && !config.tokens_per_name && !cluster;
        let redis = if keeps { redis.with_hand_over_if_alone().with_token_ranges() } else { redis };
        // In a cluster a server does not know who listens at the others.
        if config.push && !cluster { redis.with_wakes_in_turn() } else { redis }
    }

    fn keeper_connection(self: Arc<Self>) -> Arc<dyn Backend> {
        Arc::new(self.over_another())
    }

    fn identity(&self) -> Reply<'_, String> {
        Box::pin(async move {
            let mut first = redis::cmd("SET");
            first.arg(names::STORE).arg(self.transport.runtime().client_id().to_string()).arg("NX");
            self.transport.command(names::STORE, &first).await?;
            parsed(self.transport.command(names::STORE, redis::cmd("GET").arg(names::STORE)).await?)
        })
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        Box::pin(async move { self.run_acquire(&request).await })
    }

    /// In a cluster those of one slot.
    fn atomic_groups(&self, names: &[&Name]) -> Vec<Vec<usize>> {
        self.transport.atomic_groups(&names.iter().map(|name| name.as_str()).collect::<Vec<_>>())
    }

    fn acquire_all(&self, requests: Vec<Acquire>) -> Reply<'_, AttemptAll> {
        Box::pin(async move { self.run_acquire_all(&requests).await })
    }

    fn release(&self, request: Release) -> Reply<'_, Released> {
        Box::pin(async move { self.run_release(&request).await })
    }

    /// On the connection of the acquires, whose requests the server carries out in their order.
    fn release_behind(&self, request: &Release) {
        let (script, arguments) = self.releasing(request);
        self.grants.transport.send_behind(script, &[request.name.as_str()], &arguments);
    }

    fn renew(&self, requests: Vec<Renew>) -> Reply<'_, Vec<Result<Renewed>>> {
        Box::pin(async move { self.run_renew(&requests).await })
    }

    fn count(&self, request: Count) -> Reply<'_, CountOutcome> {
        Box::pin(async move { self.run_count(&request).await })
    }

    fn watch(&self, watch: Watch) -> Reply<'_, Subscription> {
        Box::pin(async move {
            self.admit(&watch.name, watch.kind)?;
            let notifier = Notifier::default();
            let own_place = watch.own_place();
            let wanted = self.wanted(&watch);
            let shared = matches!(wanted, Wanted::Turn(_)).then(|| names::channel(&watch.name, watch.kind, None));
            let (_, watching) = self.watching.register_as(watch.name.clone(), watch, notifier.clone());
            let listening = match (self.transport.listen(wanted, &notifier).await, shared) {
                // A user that may listen to nothing but Redisson's channels: every release is told there, and it is counted as Redisson.
                (Err(error), Some(shared)) if error.kind() == ErrorKind::Denied => {
                    self.transport.listen(Wanted::All(vec![shared]), &notifier).await?
                }
                (listening, _) => listening?,
            };
            let subscription = Subscription::new(&notifier, (watching, listening));
            Ok(if own_place.is_some() { subscription.only_for_owner() } else { subscription })
        })
    }

    fn inspect(&self, name: Name) -> Reply<'_, Option<Snapshot>> {
        Box::pin(async move { self.run_inspect(&name).await })
    }

    fn list(&self, listing: Listing) -> Reply<'_, Page> {
        Box::pin(async move { self.run_list(&listing).await })
    }

    fn force_release(&self, name: Name) -> Reply<'_, Forced> {
        Box::pin(async move { self.run_force_release(&name).await })
    }

    fn announce(&self, card: ClientCard, ttl: Duration) -> Reply<'_, ()> {
        Box::pin(async move {
            let user = card.user.unwrap_or_default();
            let text = format!("{}\n{}\n{}\n{user}\n{}", card.pid, card.host, card.program, card.id);
            let mut set = redis::cmd("SET");
            let key = names::card(card.id.folded());
            set.arg(&key).arg(text).arg("PX").arg(ttl.as_millis() as u64);
            self.transport.command(&key, &set).await.map(drop)
        })
    }
}
