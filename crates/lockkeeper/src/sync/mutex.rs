//! A lock for one holder at a time.

use super::options::{Acquiring, TryAcquiring};
use super::target::Target;
use super::{fenced_guard, guard};
use crate::backend::{Claim, Kind};
use crate::session::{Held, Owner, Session};

/// A lock for one holder at a time, across processes and machines.
///
/// *Fairness:* within one process first come first served; between processes whoever asks first after a release. For order across
/// processes use [`FairMutex`](crate::FairMutex).
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
/// let guard = mutex.lock().wait(Duration::from_secs(3)).await?;
/// assert!(mutex.try_lock().await?.is_none(), "held");
/// println!("token {}", guard.token());
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[doc(alias = "RLock")]
#[doc(alias = "RFencedLock")]
#[derive(Clone, Debug)]
pub struct Mutex(Target);

/// Holds a [`Mutex`] or a [`FairMutex`](crate::FairMutex).
///
/// Dropping it releases in the background: at once if the store is well, but not before `drop` returns.
#[must_use = "if unused the lock is released at once"]
#[clippy::has_significant_drop]
pub struct MutexGuard(Held);

impl Mutex {
    /// The mutex `name` at the session's store.
    pub fn new(session: &Session, name: impl AsRef<str>) -> Self {
        Self(Target::new(session, name).lined(Kind::Mutex))
    }

    /// The same mutex for this owner, who may take it again while holding it.
    #[must_use]
    pub fn owned_by(&self, owner: &Owner) -> Self {
        Self(self.0.owned_by(owner))
    }

    /// Takes the lock, waiting for it.
    #[doc(alias = "tryLock")]
    pub fn lock(&self) -> Acquiring<'_, MutexGuard> {
        Acquiring::new(&self.0, Ok(Claim::Mutex))
    }

    /// Takes the lock if it is free now.
    pub fn try_lock(&self) -> TryAcquiring<'_, MutexGuard> {
        TryAcquiring::new(&self.0, Ok(Claim::Mutex))
    }
}

guard!(MutexGuard);
fenced_guard!(MutexGuard);
