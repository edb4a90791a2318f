//! A lock for one holder at a time, in order of arrival.

use super::call::{Acquiring, Target, TryAcquiring};
use super::inspectable;
use super::mutex::MutexGuard;
use crate::backend::{Claim, Kind};
use crate::session::{Owner, Session};

/// A lock for one holder at a time, first come first served across all processes.
///
/// The queue lives in the store. A waiter that dies loses its place within seconds
/// ([`Builder::queue_ttl`](crate::Builder::queue_ttl)), so that it does not block the others. It is the same lock as a [`Mutex`](crate::Mutex) of that name,
/// whose users do not queue: for order let all use this one.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// let client = lockkeeper::Client::connect("memory:").await?;
/// let guard = client.fair_mutex("printer").lock().await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[doc(alias = "RFairLock")]
#[derive(Clone, Debug)]
pub struct FairMutex(Target);

impl FairMutex {
    /// The fair mutex `name` at the session's store.
    #[doc(hidden)]
    pub fn new(session: &Session, name: impl AsRef<str>) -> Self {
        Self(Target::new(session, name))
    }

    /// The same mutex for this owner, which may acquire it again while it holds it.
    #[must_use]
    pub fn owned_by(&self, owner: &Owner) -> Self {
        Self(self.0.owned_by(owner))
    }

    /// Acquires the lock, waiting in the queue for its turn.
    pub fn lock(&self) -> Acquiring<MutexGuard> {
        Acquiring::new(&self.0, Ok(Claim::Fair))
    }

    /// Acquires the lock if it is free now and nobody waits for it; returns `None` otherwise, and does not queue.
    pub fn try_lock(&self) -> TryAcquiring<MutexGuard> {
        TryAcquiring::new(&self.0, Ok(Claim::Fair))
    }
}

inspectable!(FairMutex, Kind::Mutex, |this| &this.0);
