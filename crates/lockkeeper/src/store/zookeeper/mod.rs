//! ZooKeeper: locks in the layout of Apache Curator, so that Java services exclude and queue with ours.
//!
//! Holds live as long as the client's session. Who holds a name follows from the nodes in its folder; `store/queue` has the rules.

mod alone;
mod config;
mod error;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod inspect;
mod locks;
mod names;
mod nodes;
mod permits;
mod probe;
mod records;
mod self_test;
mod session;
#[cfg(feature = "zookeeper-tls")]
mod tls;
mod watches;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use zookeeper_client::{Acls, CreateMode, Error as Cause};

use crate::backend::{
    Acquire, Attempt, AttemptAll, Backend, Capabilities, ClientCard, Count, CountOutcome, Finding, Forced, KeptAlive, Kind,
    Listing, Page, Release, Released, Renew, Renewed, Reply, Snapshot, StoreEvents, Subscription, Watch,
};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::runtime::Runtime;
pub use config::Config;
use names::OWN;
use nodes::Nodes;
use session::{Link, Live};
use watches::Watches;

/// A ZooKeeper ensemble.
#[derive(Debug)]
pub struct ZookeeperStore(Arc<Inner>);

/// What requests work on.
#[derive(Debug)]
struct Inner {
    link: Arc<Link>,
    nodes: Arc<Nodes>,
    watches: Watches,
    /// How long holds are safe without contact, as the first session said.
    lasts: Duration,
    id: OnceLock<String>,
    /// Host, process and program of ours, for the data of nodes.
    us: OnceLock<(String, u32, String)>,
}

impl ZookeeperStore {
    /// Opens a session, and checks that locks can live in the folder that the URL names.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if no server answers, or the one that does only reads; [`ErrorKind::Denied`] if it refuses the user;
    /// [`ErrorKind::Config`] if the folder is not there.
    pub async fn connect(config: Config, runtime: &Runtime) -> Result<Arc<Self>> {
        let link = Link::new(config, runtime)?;
        let live = link.live().await?;
        self_test::check_folder(&live, &link.config).await?;
        let (nodes, watches) = (Arc::default(), Watches::default());
        let inner = Inner { nodes, watches, lasts: live.lasts, id: OnceLock::new(), us: OnceLock::new(), link };
        Ok(Arc::new(Self(Arc::new(inner))))
    }

    /// All that [`connect`](Self::connect) looks at, and what may surprise.
    pub async fn examine(config: Config, runtime: &Runtime) -> Vec<Finding> {
        self_test::examine(config, runtime).await
    }

    /// Another session with the same ensemble, as another process has. Opened when it is first used.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if there is no thread for it.
    pub fn another(&self) -> Result<Arc<Self>> {
        let link = Link::new(self.0.link.config.clone(), &self.0.link.runtime)?;
        let (nodes, watches) = (Arc::default(), Watches::default());
        let inner = Inner { nodes, watches, lasts: self.0.lasts, id: OnceLock::new(), us: OnceLock::new(), link };
        Ok(Arc::new(Self(Arc::new(inner))))
    }
}

impl Inner {
    /// The folder of a name.
    fn path(&self, name: &Name) -> String {
        format!("/{}", names::element(name))
    }

    fn acls(&self) -> Acls<'static> {
        self.link.config.acls()
    }

    /// The children of a folder; none if it is not there.
    async fn children(&self, live: &Live, folder: &str) -> Result<Vec<String>> {
        live.sends();
        match live.client.list_children(folder).await {
            Ok(children) => Ok(children),
            Err(Cause::NoNode) => Ok(Vec::new()),
            Err(cause) => Err(error::of_read(cause)),
        }
    }

    /// Deletes a node; whether it was there.
    async fn delete(&self, live: &Live, path: &str) -> Result<bool> {
        let sent = live.sends();
        let deleted = match live.client.delete(path, None).await {
            Ok(()) => true,
            Err(Cause::NoNode) => false,
            Err(cause) => return Err(error::of_write(cause)),
        };
        live.confirms(sent);
        Ok(deleted)
    }

    /// Makes a folder that the server removes when it has been empty for a while.
    async fn make_folder(&self, live: &Live, path: &str) -> Result<()> {
        live.sends();
        match live.client.create(path, &[], &CreateMode::Container.with_acls(self.acls())).await {
            Ok(_) | Err(Cause::NodeExists) => Ok(()),
            Err(cause) => Err(self.of_folder(cause)),
        }
    }

    /// The error of a folder that cannot be made.
    fn of_folder(&self, cause: Cause) -> Error {
        match cause {
            Cause::NoNode => self_test::no_folder(&self.link.config),
            cause => error::of_write(cause),
        }
    }

    async fn identity(self: &Arc<Self>) -> Result<String> {
        if let Some(id) = self.id.get() {
            return Ok(id.clone());
        }
        let live = self.link.live().await?;
        let path = format!("/{OWN}/id");
        let new = self.link.runtime.client_id().to_string();
        for _ in 0..4 {
            match live.client.get_data(&path).await {
                Ok((data, _)) => {
                    let id =
                        String::from_utf8(data).map_err(|_| Error::new(ErrorKind::Protocol, format!("{path} is not UTF-8")))?;
                    return Ok(self.id.get_or_init(|| id).clone());
                }
                Err(Cause::NoNode) => {}
                Err(cause) => return Err(error::of_read(cause)),
            }
            self.make_own_folder(&live, "clients").await?;
            match live.client.create(&path, new.as_bytes(), &CreateMode::Persistent.with_acls(self.acls())).await {
                Ok(_) | Err(Cause::NodeExists | Cause::NoNode) => {}
                Err(cause) => return Err(error::of_write(cause)),
            }
        }
        Err(Error::new(ErrorKind::Unavailable, format!("{path} was removed while it was written")))
    }

    async fn keep_alive(self: &Arc<Self>) -> Result<KeptAlive> {
        let live = self.link.live().await?;
        live.sync().await?;
        Ok(KeptAlive::new(live.number, live.lasts))
    }
}

impl Backend for ZookeeperStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("zookeeper")
            .with_kinds(&[Kind::Mutex, Kind::RwLock, Kind::Semaphore, Kind::CountingSemaphore, Kind::Latch])
            .with_fair()
            .with_queues_mutexes()
            .with_fencing()
            .with_any_name(true)
            .with_push(true)
            .with_events()
            .with_session(self.0.lasts)
    }

    fn keeper_connection(self: Arc<Self>) -> Arc<dyn Backend> {
        // A hold lives in its session, and a session has one connection. It is driven by the store's own thread.
        self
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
        Box::pin(self.0.keep_alive())
    }

    fn events(&self) -> StoreEvents {
        self.0.link.events()
    }

    fn count(&self, request: Count) -> Reply<'_, CountOutcome> {
        Box::pin(self.0.count(request))
    }

    fn watch(&self, watch: Watch) -> Reply<'_, Subscription> {
        Box::pin(self.0.watch(watch))
    }

    fn inspect(&self, name: Name) -> Reply<'_, Option<Snapshot>> {
        Box::pin(self.0.inspect(name))
    }

    fn list(&self, listing: Listing) -> Reply<'_, Page> {
        Box::pin(self.0.list(listing))
    }

    fn force_release(&self, name: Name) -> Reply<'_, Forced> {
        Box::pin(self.0.force_release(name))
    }

    fn announce(&self, card: ClientCard, ttl: Duration) -> Reply<'_, ()> {
        Box::pin(self.0.announce(card, ttl))
    }

    fn extension(&self) -> Option<&(dyn std::any::Any + Send + Sync)> {
        Some(self)
    }
}
