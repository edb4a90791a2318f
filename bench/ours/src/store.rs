//! A store without a session over it: acquire, subscribe, acquire again when notified. What the library adds is the difference.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bench_course::Lock;
use lockkeeper::backend::{Acquire, Attempt, Backend, Claim, Release, Subscription, Watch};
use lockkeeper::name::Name;
use lockkeeper::owner::{ClientId, WireOwner};
use lockkeeper::runtime::Runtime;
use lockkeeper::store::sqlite::{Config, SqliteStore};

pub(crate) struct Store {
    store: Arc<dyn Backend>,
    clock: Runtime,
    client: ClientId,
}

impl Store {
    pub(crate) async fn connect(url: &str) -> Self {
        let clock = Runtime::system();
        let file = url.strip_prefix("sqlite:").expect("a file");
        let store: Arc<dyn Backend> = SqliteStore::connect(Config::file(file), &clock).await.expect("a store");
        let client = clock.client_id();
        Self { store, clock, client }
    }

    pub(crate) fn named(&self, name: &str) -> Bare {
        let (store, clock) = (Arc::clone(&self.store), self.clock.clone());
        Bare { store, clock, name: Name::new(name).expect("a name"), client: self.client, last: AtomicU64::new(0) }
    }
}

pub(crate) struct Bare {
    store: Arc<dyn Backend>,
    clock: Runtime,
    name: Name,
    client: ClientId,
    last: AtomicU64,
}

impl Bare {
    fn request(&self, owner: WireOwner) -> Acquire {
        let now = self.clock.now();
        Acquire::new(self.name.clone(), Claim::Fair, owner, Duration::from_secs(30))
            .with_times(now, now.plus(Duration::from_secs(3)))
            .with_place(Duration::from_secs(5))
    }
}

impl Lock for Bare {
    type Guard = WireOwner;

    async fn take(&self) -> WireOwner {
        let owner = WireOwner::new(self.client, self.last.fetch_add(1, Ordering::Relaxed));
        let mut subscription: Option<Subscription> = None;
        loop {
            if let Attempt::Granted(_) = self.store.acquire(self.request(owner)).await.expect("an answer") {
                return owner;
            }
            match &subscription {
                // The poll is there as it always is; it should not be needed.
                Some(subscription) => drop(tokio::time::timeout(Duration::from_secs(1), subscription.notified()).await),
                None => {
                    let watch = Watch::new(self.name.clone(), Claim::Fair, owner);
                    subscription = Some(self.store.watch(watch).await.expect("a subscription"));
                }
            }
        }
    }

    async fn give(&self, owner: WireOwner) {
        let release = Release::new(self.name.clone(), Claim::Fair, owner);
        self.store.release(release).await.expect("an answer");
    }
}
