//! A lock for one holder at a time.

use super::call::{Acquiring, Target, TryAcquiring};
use super::{hold_guard, inspectable, reentrant_guard};
use crate::backend::{Claim, Kind};
use crate::session::{Held, Owner, Session};

/// A lock for one holder at a time, across processes and machines.
///
/// *Fairness:* within one process first come first served; between processes the first request after a release. On Redis (one server, or
/// sentinels) a release wakes one waiting process after the other, so all have about equal shares. For a strict order across processes use
/// [`FairMutex`](crate::FairMutex).
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// use std::time::Duration;
/// use lockkeeper::Client;
///
/// let client = Client::connect("memory:").await?;
/// let mutex = client.mutex("orders:42");
///
/// let guard = mutex.lock().timeout(Duration::from_secs(3)).await?;
/// assert!(mutex.try_lock().await?.is_none(), "held");
/// println!("token {:?}", guard.token());
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[doc(alias = "RLock")]
#[doc(alias = "RFencedLock")]
#[derive(Clone, Debug)]
pub struct Mutex(Target);

/// Holds a [`Mutex`] or a [`FairMutex`](crate::FairMutex).
///
/// Dropping it releases in the background: at once if the store is well, but not before `drop` returns. A process that ends right after it can
/// leave the name held for the rest of the lease: `client.close().await` waits for the release.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// # let client = lockkeeper::Client::connect("memory:").await?;
/// let guard = client.mutex("orders").lock().await?;
/// println!("{} is held for {:?}, token {:?}", guard.name(), guard.remaining(), guard.token());
/// guard.run(async { /* dropped if the lock is lost */ }).await?;
/// guard.release().await?; // Err(Lost) if it was lost meanwhile
/// # Ok(()) }
/// ```
#[must_use = "if unused the lock is released at once"]
#[clippy::has_significant_drop]
pub struct MutexGuard(Held);

impl Mutex {
    /// The mutex `name` at the session's store.
    #[doc(hidden)]
    pub fn new(session: &Session, name: impl AsRef<str>) -> Self {
        Self(Target::new(session, name).queued(Kind::Mutex))
    }

    /// The same mutex for this owner, which may acquire it again while it holds it.
    #[must_use]
    pub fn owned_by(&self, owner: &Owner) -> Self {
        Self(self.0.owned_by(owner))
    }

    /// Acquires the lock, waiting until it is free.
    #[doc(alias = "tryLock")]
    pub fn lock(&self) -> Acquiring<MutexGuard> {
        Acquiring::new(&self.0, Ok(Claim::Mutex))
    }

    /// Acquires the lock if it is free now; returns `None` otherwise.
    pub fn try_lock(&self) -> TryAcquiring<MutexGuard> {
        TryAcquiring::new(&self.0, Ok(Claim::Mutex))
    }
}

inspectable!(Mutex, Kind::Mutex, |this| &this.0);
hold_guard!(MutexGuard);
reentrant_guard!(MutexGuard);
