//! How each lock is taken and given back.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bench_course::{Lock, Order};
use lockkeeper::{Client, FairMutex, Mutex, MutexGuard, Permit, RwLock, RwLockReadGuard, RwLockWriteGuard, Semaphore};
use rustix::fs::{FlockOperation, flock};
use tokio::sync::OwnedMutexGuard;

/// One of ours: what it wraps, its guard, how it is asked.
macro_rules! ours {
    ($what:ident($over:ty), $guard:ty, $($ask:tt)*) => {
        pub(crate) struct $what(pub(crate) $over);

        impl Lock for $what {
            type Guard = $guard;

            async fn take(&self) -> $guard {
                self.0.$($ask)*.await.expect("granted")
            }

            async fn give(&self, guard: $guard) {
                guard.release().await.expect("held");
            }
        }
    };
}

ours!(Plain(Mutex), MutexGuard, lock());
// With a lease of its own, which nobody renews.
ours!(Leased(Mutex), MutexGuard, lock().lease(Duration::from_secs(5)));
ours!(Fair(FairMutex), MutexGuard, lock());
ours!(Permits(Semaphore), Permit, acquire());
ours!(Reading(RwLock), RwLockReadGuard, read());
ours!(Writing(RwLock), RwLockWriteGuard, write());

/// A name that nobody has used before, each time.
pub(crate) struct Fresh {
    client: Client,
    name: String,
    last: AtomicU64,
}

impl Fresh {
    pub(crate) fn new(client: Client, name: &str) -> Self {
        Self { client, name: format!("{name}:{}", std::process::id()), last: AtomicU64::new(0) }
    }
}

impl Lock for Fresh {
    type Guard = MutexGuard;

    async fn take(&self) -> MutexGuard {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        self.client.mutex(format!("{}:{number}", self.name)).lock().await.expect("granted")
    }

    async fn give(&self, guard: MutexGuard) {
        guard.release().await.expect("held");
    }
}

/// What a lock costs that no other process sees.
pub(crate) struct InProcess(pub(crate) Arc<tokio::sync::Mutex<()>>);

impl Lock for InProcess {
    type Guard = OwnedMutexGuard<()>;

    async fn take(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.0).lock_owned().await
    }

    async fn give(&self, guard: OwnedMutexGuard<()>) {
        drop(guard);
    }
}

/// The kernel's lock on a file. It blocks the thread, so it is for one task per process.
pub(crate) struct Flock(File);

impl Flock {
    pub(crate) fn open(order: &Order, name: &str) -> Self {
        let folder = order.text("folder").expect("a folder");
        Self(File::create(std::path::Path::new(folder).join(name.replace(':', "-"))).expect("a file"))
    }
}

impl Lock for Flock {
    type Guard = ();

    async fn take(&self) {
        flock(&self.0, FlockOperation::LockExclusive).expect("locked");
    }

    async fn give(&self, (): ()) {
        flock(&self.0, FlockOperation::Unlock).expect("unlocked");
    }
}
