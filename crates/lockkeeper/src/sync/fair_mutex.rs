//! A lock for one holder at a time, in order of arrival.

use super::mutex::MutexGuard;
use super::options::{Acquiring, TryAcquiring};
use super::target::Target;
use crate::backend::Claim;
use crate::session::{Owner, Session};

/// A lock for one holder at a time, first come first served across all processes.
///
/// The queue lives in the store. A waiter that dies loses its place within seconds
/// ([`Settings::place`](crate::Settings)), so the dead do not block the living. It is the same lock as a [`Mutex`](crate::Mutex) of that name,
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
    pub fn new(session: &Session, name: impl AsRef<str>) -> Self {
        Self(Target::new(session, name))
    }

    /// The same mutex for this owner, who may take it again while holding it.
    #[must_use]
    pub fn owned_by(&self, owner: &Owner) -> Self {
        Self(self.0.owned_by(owner))
    }

    /// Takes the lock when it is this call's turn.
    pub fn lock(&self) -> Acquiring<'_, MutexGuard> {
        Acquiring::new(&self.0, Ok(Claim::Fair))
    }

    /// Takes the lock if it is free now and nobody waits for it; does not queue.
    pub fn try_lock(&self) -> TryAcquiring<'_, MutexGuard> {
        TryAcquiring::new(&self.0, Ok(Claim::Fair))
    }
}
