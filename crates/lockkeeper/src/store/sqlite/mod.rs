//! SQLite: one file for all processes of one machine, and no server. The model itself runs on its rows.
//!
//! Beside the file `F` lie SQLite's `F-wal` and `F-shm`, and the directory `F-live` with a named pipe for each client that is alive and a
//! socket for each that waits. Leases are on the boot clock, which all processes share; what another boot left is over.

mod book;
mod config;
mod engine;
mod error;
mod letters;
mod life;
mod look;
mod notify;
mod place;
mod self_test;
mod steps;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{
    Acquire, Attempt, AttemptAll, Backend, Capabilities, ClientCard, Count, CountOutcome, Event, Finding, Forced, Kind, Listing,
    Notifier, Page, Release, Released, Renew, Renewed, Reply, Snapshot, Subscription, Watch,
};
use crate::error::Result;
use crate::name::Name;
use crate::runtime::Runtime;
use book::Ties;
pub use config::Config;
use engine::Engine;
use life::{Instance, Lives};
use notify::Post;
use place::Place;

/// A file of locks on this machine.
#[derive(Debug)]
pub struct SqliteStore {
    engine: Engine,
}

impl SqliteStore {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the file is none of ours, damaged, from another machine, or on a network file system;
    /// [`ErrorKind::Denied`](crate::ErrorKind::Denied) if this user may not write there; [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if it cannot be used now.
    pub async fn connect(config: Config, runtime: &Runtime) -> Result<Arc<Self>> {
        let place = Arc::new(Place::open(&config)?);
        let lives = Arc::new(Lives::new(Arc::clone(&place), Instance(runtime.client_id().bits())));
        let post = Post::new(Arc::clone(&place), Arc::clone(&lives), runtime.clone())?;
        let boot = runtime.boot()?;
        let engine = Engine::new(Arc::new(Ties { runtime: runtime.clone(), place, lives, post, boot }));
        // In writing: whoever may only read is told now.
        engine.ask(|book| book.turn(true, |_| Ok(()))).await?;
        Ok(Arc::new(Self { engine }))
    }

    /// All that [`connect`](Self::connect) looks at, and who may use the file.
    pub async fn examine(config: Config, runtime: &Runtime) -> Vec<Finding> {
        match Self::connect(config.clone(), runtime).await {
            Ok(_) => vec![self_test::writable(config.path()), self_test::users(config.path())],
            Err(error) => vec![Finding::unfit("file", &error)],
        }
    }
}

/// Listens until it is dropped.
struct Listening {
    engine: Engine,
    name: Name,
    id: u64,
    enlisted: bool,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.engine.ties().post.take_down(&self.name, self.id);
        if self.enlisted && !self.engine.ties().post.wants_all(&self.name) {
            let name = self.name.clone();
            // A listener that is left is struck out by the first who writes to it in vain.
            let _ = self.engine.send(move |book| drop(book.enlist(&name)));
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
            .with_acquire_all()
            .with_any_name(true)
            .with_push(true)
            .with_refuses_late()
            .with_leases(Duration::from_millis(10), Duration::from_secs(365 * 24 * 3600))
    }

    fn keeper_connection(self: Arc<Self>) -> Arc<dyn Backend> {
        Arc::new(Self { engine: self.engine.another() })
    }

    /// Which file it is, however it was named.
    fn identity(&self) -> Reply<'_, String> {
        let place = &self.engine.ties().place;
        let known = place.identity().map(|(device, inode)| format!("{device}:{inode}"));
        Box::pin(async move { known.map_err(|cause| error::of_file(cause, "look at", place.file())) })
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        self.engine.ask(move |book| book.acquire(&request))
    }

    fn acquire_all(&self, requests: Vec<Acquire>) -> Reply<'_, AttemptAll> {
        self.engine.ask(move |book| book.acquire_all(&requests))
    }

    fn release(&self, request: Release) -> Reply<'_, Released> {
        self.engine.ask(move |book| book.release(&request))
    }

    fn renew(&self, requests: Vec<Renew>) -> Reply<'_, Vec<Result<Renewed>>> {
        // Nobody waits for it but those who let others go first, and these should not be done before the others have heard.
        self.engine.leave(move |book| book.renew(&requests))
    }

    fn count(&self, request: Count) -> Reply<'_, CountOutcome> {
        self.engine.ask(move |book| book.count(&request))
    }

    fn watch(&self, watch: Watch) -> Reply<'_, Subscription> {
        Box::pin(async move {
            let notifier = Notifier::default();
            let owner = watch.own_place();
            let name = watch.name;
            let id = self.engine.ties().post.hang(&name, owner, notifier.clone())?;
            // Whoever stands in a queue is known by the row it stands in.
            let enlisted = owner.is_none();
            let listening = Listening { engine: self.engine.clone(), name: name.clone(), id, enlisted };
            if enlisted {
                self.engine.ask(move |book| book.enlist(&name)).await?;
            }
            let subscription = Subscription::new(&notifier, listening);
            Ok(if owner.is_some() { subscription.only_for_owner() } else { subscription })
        })
    }

    fn inspect(&self, name: Name) -> Reply<'_, Option<Snapshot>> {
        self.engine.ask(move |book| book.inspect(&name))
    }

    fn list(&self, listing: Listing) -> Reply<'_, Page> {
        self.engine.ask(move |book| book.list(&listing))
    }

    fn force_release(&self, name: Name) -> Reply<'_, Forced> {
        self.engine.ask(move |book| book.force_release(&name).map(|from| Forced { from }))
    }

    fn announce(&self, card: ClientCard, ttl: Duration) -> Reply<'_, ()> {
        let until = self.engine.ties().runtime.now().plus(ttl);
        self.engine.ask(move |book| book.announce(&card, until))
    }

    fn liveness(&self) -> Result<Option<OwnedFd>> {
        self.engine.ties().lives.copy().map(Some)
    }

    fn note(&self, _event: &Event<'_>) {}
}
