//! What can be held, on both sides of the fence: one word for ours and theirs.

use std::time::Duration;

use lockkeeper::sync::{Acquiring, Guard};
use lockkeeper::{Client, Held, MutexGuard, Permit, Result, RwLockReadGuard, RwLockWriteGuard};
use serde_json::Value;

use crate::driver::{Thrown, Told};
use crate::world::{Thread, World, tagged, unique};

/// Something that one of them keeps from the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    /// `Mutex` and `RLock`.
    Mutex,
    /// `Mutex` and `RFencedLock`.
    Fenced,
    /// `FairMutex` and `RFairLock`.
    Fair,
    /// The writing side of `RwLock` and `RReadWriteLock`.
    Write,
    /// Their reading side.
    Read,
    /// `Semaphore` and `RPermitExpirableSemaphore` with one permit.
    Permit,
}

/// Longer than anything takes that is right.
const PATIENCE: Duration = Duration::from_secs(40);

impl Object {
    /// As the driver calls it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Mutex => "lock",
            Self::Fenced => "fenced",
            Self::Fair => "fair",
            Self::Write => "write",
            Self::Read => "read",
            Self::Permit => "permit",
        }
    }

    /// A new name with such an object.
    pub(crate) async fn fresh(self, world: &World) -> String {
        self.named(world, &unique(self.word())).await
    }

    /// Such an object under this name.
    pub(crate) async fn named(self, world: &World, name: &str) -> String {
        if self == Self::Permit {
            assert_eq!(world.java.thread("main").ask(format!("permit set {name} 1")).await, true);
        }
        name.to_owned()
    }

    /// Where those who wait for it listen.
    pub(crate) fn channels(self, name: &str) -> String {
        let tagged = tagged(name);
        match self {
            Self::Mutex | Self::Fenced => format!("redisson_lock__channel:{tagged}"),
            Self::Fair => format!("redisson_lock__channel:{tagged}:*"),
            Self::Write | Self::Read => format!("redisson_rwlock:{tagged}"),
            Self::Permit => format!("redisson_sc:{tagged}"),
        }
    }

    /// We take it, waiting for it; without a lease it is kept.
    pub(crate) async fn take(self, client: &Client, name: &str, lease: Option<Duration>) -> Ours {
        self.take_within(client, name, lease, PATIENCE).await.unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub(crate) async fn take_within(self, client: &Client, name: &str, lease: Option<Duration>, wait: Duration) -> Result<Ours> {
        async fn taken<G: Guard>(asking: Acquiring<G>, lease: Option<Duration>, wait: Duration) -> Result<G> {
            let asking = asking.timeout(wait);
            if let Some(lease) = lease { asking.lease(lease).await } else { asking.await }
        }
        Ok(match self {
            Self::Mutex | Self::Fenced => Ours::Mutex(taken(client.mutex(name).lock(), lease, wait).await?),
            Self::Fair => Ours::Mutex(taken(client.fair_mutex(name).lock(), lease, wait).await?),
            Self::Write => Ours::Write(taken(client.rwlock(name).write(), lease, wait).await?),
            Self::Read => Ours::Read(taken(client.rwlock(name).read(), lease, wait).await?),
            Self::Permit => Ours::Permit(taken(client.semaphore(name, 1).acquire(), lease, wait).await?),
        })
    }

    /// We take it if it is free.
    pub(crate) async fn try_take(self, client: &Client, name: &str) -> Option<Ours> {
        let taken = match self {
            Self::Mutex | Self::Fenced => client.mutex(name).try_lock().await.map(|guard| guard.map(Ours::Mutex)),
            Self::Fair => client.fair_mutex(name).try_lock().await.map(|guard| guard.map(Ours::Mutex)),
            Self::Write => client.rwlock(name).try_write().await.map(|guard| guard.map(Ours::Write)),
            Self::Read => client.rwlock(name).try_read().await.map(|guard| guard.map(Ours::Read)),
            Self::Permit => client.semaphore(name, 1).try_acquire().await.map(|guard| guard.map(Ours::Permit)),
        };
        taken.unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Java begins to take it, waiting for it; without a lease its watchdog keeps it (a permit lasts for ever).
    pub(crate) fn begin(self, thread: &Thread, name: &str, lease: Option<Duration>) -> Taking {
        let verb = if self == Self::Permit { "acquire" } else { "lock" };
        let told = thread.tell(format!("{} {verb} {name} {}", self.word(), millis(lease)));
        Taking { told, object: self, thread: thread.clone(), name: name.to_owned() }
    }

    /// Java takes it, waiting for it.
    pub(crate) async fn theirs(self, thread: &Thread, name: &str, lease: Option<Duration>) -> Theirs {
        self.begin(thread, name, lease).taken().await.expect("it waits until it has it")
    }

    /// Java takes it if it is free.
    pub(crate) async fn try_theirs(self, thread: &Thread, name: &str) -> Option<Theirs> {
        let told = thread.tell(format!("{} try {name}", self.word()));
        Taking { told, object: self, thread: thread.clone(), name: name.to_owned() }.taken().await
    }

    /// What Java says about whether somebody has it.
    pub(crate) async fn is_locked(self, thread: &Thread, name: &str) -> bool {
        if self == Self::Permit {
            thread.ask(format!("permit available {name}")).await == 0
        } else {
            thread.ask(format!("{} isLocked {name}", self.word())).await == true
        }
    }
}

fn millis(lease: Option<Duration>) -> i64 {
    lease.map_or(-1, |lease| i64::try_from(lease.as_millis()).expect("a short lease"))
}

/// What we hold.
#[derive(Debug)]
pub(crate) enum Ours {
    Mutex(MutexGuard),
    Write(RwLockWriteGuard),
    Read(RwLockReadGuard),
    Permit(Permit),
}

impl Ours {
    pub(crate) fn held(&self) -> &Held {
        match self {
            Self::Mutex(guard) => guard,
            Self::Write(guard) => guard,
            Self::Read(guard) => guard,
            Self::Permit(permit) => permit,
        }
    }

    pub(crate) async fn release(self) -> Result<()> {
        match self {
            Self::Mutex(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
            Self::Read(guard) => guard.release().await,
            Self::Permit(permit) => permit.release().await,
        }
    }
}

/// Java waits for something.
#[derive(Debug)]
pub(crate) struct Taking {
    pub(crate) told: Told,
    object: Object,
    thread: Thread,
    name: String,
}

impl Taking {
    pub(crate) async fn taken(self) -> Option<Theirs> {
        let Self { told, object, thread, name } = self;
        let permit = match told.value().await {
            Value::Bool(true) => None,
            Value::String(permit) => Some(permit),
            _ => return None,
        };
        Some(Theirs { object, thread, name, permit })
    }
}

/// What Java holds.
#[derive(Debug)]
pub(crate) struct Theirs {
    object: Object,
    thread: Thread,
    name: String,
    /// Its id, if it is one.
    pub(crate) permit: Option<String>,
}

impl Theirs {
    pub(crate) async fn release(self) {
        self.try_release().await.unwrap_or_else(|thrown| panic!("{thrown:?}"));
    }

    /// Releases it; or gives the exception of one who has it no more.
    pub(crate) async fn try_release(self) -> std::result::Result<(), Thrown> {
        let command = match &self.permit {
            Some(permit) => format!("permit release {} {permit}", self.name),
            None => format!("{} unlock {}", self.object.word(), self.name),
        };
        self.thread.tell(command).answer().await.map(drop)
    }
}
