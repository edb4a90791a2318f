//! SQLite: one file for all processes of one machine, and no server. The model itself runs on its rows.
//!
//! Beside the file `F` lie SQLite's `F-wal` and `F-shm`, and the directory `F-live` with a named pipe for each live client and a
//! socket for each that waits. Leases are on the boot clock, which all processes share; leases of another boot are over.

mod config;
mod connection;
mod error;
mod files;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod layout;
mod liveness;
mod message;
mod requests;
mod rows;
mod self_test;
mod waiting;
mod wake;
mod watch;
mod worker;

use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{
    Acquire, Attempt, AttemptAll, Backend, Capabilities, ClientCard, Count, CountOutcome, Finding, Forced, Kind, Listing, Page,
    Release, Released, Renew, Renewed, Reply, Snapshot, Subscription, Watch,
};
use crate::error::Result;
use crate::name::Name;
use crate::runtime::Runtime;
use crate::store::kit::listeners::Registration;
pub use config::Config;
use connection::Shared;
use files::Files;
use liveness::{Instance, Liveness};
use wake::Wakeups;
use worker::Worker;

/// A file of locks on this machine.
#[derive(Debug)]
pub struct SqliteStore {
    worker: Worker,
}

impl SqliteStore {
    /// A descriptor for programs that work under this client's holds. While the client lives its holds end with their leases, as always. If it
    /// dies first, they last for as long as a copy of the descriptor is open anywhere.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if the machine gives no descriptor.
    pub fn liveness(&self) -> Result<OwnedFd> {
        self.worker.shared().liveness.copy()
    }

    /// Opens the file, or makes it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the file is none of ours, damaged, from another machine, or on a network file system;
    /// [`ErrorKind::Denied`](crate::ErrorKind::Denied) if this user may not write there; [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if it cannot be used now.
    pub async fn connect(config: Config, runtime: &Runtime) -> Result<Arc<Self>> {
        let files = Arc::new(Files::open(&config)?);
        let liveness = Arc::new(Liveness::new(Arc::clone(&files), Instance(runtime.client_id().bits())));
        let wakeups = Wakeups::new(Arc::clone(&files), Arc::clone(&liveness), runtime.clone())?;
        let boot = runtime.boot()?;
        let worker = Worker::new(Arc::new(Shared { runtime: runtime.clone(), files, liveness, wakeups, boot }));
        // A write: a user who may only read is refused now.
        worker.run(|database| database.transaction(true, |_| Ok(()))).await?;
        Ok(Arc::new(Self { worker }))
    }

    /// All that [`connect`](Self::connect) looks at, and who may use the file.
    pub async fn examine(config: Config, runtime: &Runtime) -> Vec<Finding> {
        match Self::connect(config.clone(), runtime).await {
            Ok(_) => vec![self_test::writable(config.path()), self_test::users(config.path())],
            Err(error) => vec![Finding::unfit("file", &error)],
        }
    }
}

/// Ends a subscription when dropped.
struct Listener {
    worker: Worker,
    name: Name,
    registration: Option<Registration>,
    /// The store is in the table of listeners.
    listed: bool,
}

impl Drop for Listener {
    fn drop(&mut self) {
        drop(self.registration.take());
        let wakeups = &self.worker.shared().wakeups;
        wakeups.stop_watching(&self.name);
        if self.listed && !wakeups.listeners().has_unfiltered(&self.name) {
            let name = self.name.clone();
            // A listener that stays is removed by the first who cannot reach it.
            let _ = self.worker.spawn(move |database| drop(database.update_listener(&name)));
        }
    }
}

impl Backend for SqliteStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("sqlite")
            .with_kinds(&[Kind::Mutex, Kind::RwLock, Kind::Semaphore, Kind::CountingSemaphore, Kind::Latch])
            .with_fair()
            .with_fencing()
            .with_hand_over()
            .with_hand_over_if_alone()
            .with_token_ranges()
            .with_acquire_all()
            .with_any_name(true)
            .with_push(true)
            .with_refuses_late()
            .with_leases(Duration::from_millis(10), Duration::from_secs(365 * 24 * 3600))
    }

    fn keeper_connection(self: Arc<Self>) -> Arc<dyn Backend> {
        Arc::new(Self { worker: self.worker.second_connection() })
    }

    /// Which file it is, however it was named.
    fn identity(&self) -> Reply<'_, String> {
        let files = &self.worker.shared().files;
        let known = files.identity().map(|(device, inode)| format!("{device}:{inode}"));
        Box::pin(async move { known.map_err(|cause| error::of_file(cause, "look at", files.file())) })
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        self.worker.run(move |database| database.acquire(&request))
    }

    fn acquire_all(&self, requests: Vec<Acquire>) -> Reply<'_, AttemptAll> {
        self.worker.run(move |database| database.acquire_all(&requests))
    }

    fn release(&self, request: Release) -> Reply<'_, Released> {
        self.worker.run(move |database| database.release(&request))
    }

    fn renew(&self, requests: Vec<Renew>) -> Reply<'_, Vec<Result<Renewed>>> {
        // On the thread: the keeper is in no hurry, and a client that backs off after a release must not finish before others were woken.
        self.worker.run_on_thread(move |database| database.renew(&requests))
    }

    fn count(&self, request: Count) -> Reply<'_, CountOutcome> {
        self.worker.run(move |database| database.count(&request))
    }

    fn watch(&self, watch: Watch) -> Reply<'_, Subscription> {
        Box::pin(async move {
            let (name, in_queue) = (watch.name.clone(), watch.own_place().is_some());
            let (notifier, registration) = self.worker.shared().wakeups.register(watch)?;
            // A waiter in a queue is found by its row.
            let listed = !in_queue;
            let listening =
                Listener { worker: self.worker.clone(), name: name.clone(), registration: Some(registration), listed };
            if listed {
                self.worker.run(move |database| database.update_listener(&name)).await?;
            }
            let subscription = Subscription::new(&notifier, listening);
            Ok(if in_queue { subscription.only_for_owner() } else { subscription })
        })
    }

    fn inspect(&self, name: Name) -> Reply<'_, Option<Snapshot>> {
        self.worker.run(move |database| database.inspect(&name))
    }

    fn list(&self, listing: Listing) -> Reply<'_, Page> {
        self.worker.run(move |database| database.list(&listing))
    }

    fn force_release(&self, name: Name) -> Reply<'_, Forced> {
        self.worker.run(move |database| database.force_release(&name))
    }

    fn announce(&self, card: ClientCard, ttl: Duration) -> Reply<'_, ()> {
        let until = self.worker.shared().runtime.now().plus(ttl);
        self.worker.run(move |database| database.announce(&card, until))
    }

    fn extension(&self) -> Option<&(dyn Any + Send + Sync)> {
        Some(self)
    }
}
