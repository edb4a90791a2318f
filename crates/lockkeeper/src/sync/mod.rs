//! The synchronizers: one file per primitive, its guard beside it, one wait loop for all.
//!
//! The guide says which one to choose (`docs/guide/src/synchronizers.md`), what a lease is (`docs/guide/src/leases.md`) and what to do when a
//! hold is lost (`docs/guide/src/loss.md`).
//!
//! | | who may hold it | ends by itself | fencing token |
//! |---|---|---|---|
//! | [`Mutex`] | one | with its lease | yes |
//! | [`FairMutex`] | one, first come first served across processes | with its lease | yes |
//! | [`RwLock`] | many readers or one writer; neither starves | with its lease | yes |
//! | [`Semaphore`] | up to n permits | with its lease | no |
//! | [`CountingSemaphore`] | nobody: a bare number | never | no |
//! | [`MultiLock`] | all of several locks, or none of them | with their leases | one per lock |
//! | [`CountDownLatch`] | nobody: open at zero | never | no |
//!
//! Handles are cheap to make and to clone and hold no state; guards hold it. Each call of `lock()` is its own owner, so clones of a
//! handle exclude each other as an `Arc<tokio::sync::Mutex>` does. A guard can be entered again on purpose:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
//! # let client = lockkeeper::Client::connect("memory:").await?;
//! let guard = client.mutex("orders").lock().await?;
//! let again = guard.reenter()?; // no round trip, the same token
//! assert_eq!(again.token(), guard.token());
//! guard.release().await?; // still held by `again`
//! again.release().await?;
//! # Ok(()) }
//! ```
//!
//! Several locks at once, and the guard of all of them:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
//! use std::time::Duration;
//! # let client = lockkeeper::Client::connect("memory:").await?;
//! let both = client.multi_lock(["account:7", "account:9"]).lock().lease(Duration::from_secs(10)).await?;
//! assert_eq!(both.holds().len(), 2);
//! both.extend(Duration::from_secs(20)).await?;
//! assert!(both.remaining() > Duration::from_secs(10));
//! assert!(both.losses().all(|loss| !loss.is_lost()));
//! both.release().await?;
//! # Ok(()) }
//! ```
//!
//! Permits, and bare numbers:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
//! # let client = lockkeeper::Client::connect("memory:").await?;
//! let printers = client.semaphore("printers", 3);
//! let two = printers.try_acquire_many(2).await?.expect("three are free");
//! assert_eq!(two.count(), 2);
//! let id = two.detach(); // held without a guard, until somebody adopts it
//! assert_eq!(id.permits(), 2);
//! client.adopt(id).await?.release().await?;
//! let five = printers.resize(5).await?;
//! assert_eq!(five.available().await?, 5);
//! assert!(five.remove().await?);
//!
//! let stock = client.counting_semaphore("stock");
//! stock.try_set(10).await?;
//! stock.add(5).await?;
//! assert_eq!(stock.drain().await?, 15);
//! assert!(stock.remove().await?);
//!
//! let parts = client.latch("parts");
//! parts.try_set(2).await?;
//! parts.count_down().await?;
//! assert_eq!(parts.count().await?, 1);
//! assert!(parts.remove().await?);
//! # Ok(()) }
//! ```

mod call;
mod counting;
mod counting_semaphore;
mod downgrade;
mod driver;
mod fair_mutex;
mod granted;
pub(crate) mod guard;
mod inspect;
mod latch;
mod left;
pub(crate) mod lockable;
mod multi_guard;
mod multi_lock;
mod mutex;
mod permit_id;
mod rwlock;
mod semaphore;
mod sleep;
mod together;

pub use call::{Acquiring, TryAcquiring};
pub use counting::WaitCall;
pub use counting_semaphore::CountingSemaphore;
pub use fair_mutex::FairMutex;
pub use guard::Guard;
pub use latch::CountDownLatch;
pub use lockable::Lockable;
pub use multi_guard::MultiLockGuard;
pub use multi_lock::{AcquiringAll, MultiLock, TryAcquiringAll};
pub use mutex::{Mutex, MutexGuard};
pub use permit_id::PermitId;
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::{Permit, Semaphore};

/// The parts of a guard that are the same for all: deref to [`Held`](crate::Held), release, debug.
macro_rules! hold_guard {
    ($guard:ident) => {
        impl crate::sync::guard::sealed::Sealed for $guard {}

        impl crate::sync::Guard for $guard {
            fn new(held: crate::session::Held) -> Self {
                Self(held)
            }

            fn into_held(self) -> crate::session::Held {
                self.0
            }

            fn held(&self) -> &crate::session::Held {
                &self.0
            }
        }

        impl std::ops::Deref for $guard {
            type Target = crate::session::Held;

            fn deref(&self) -> &crate::session::Held {
                &self.0
            }
        }

        impl $guard {
            /// Releases it now. When several guards of one owner hold it, the last one releases it.
            ///
            /// # Errors
            ///
            /// `Lost` if the hold was gone before: another holder may have worked at the same time. `Unavailable` or `Indeterminate` if the
            /// store did not answer: the release goes on in the background, and the hold ends with its lease at the latest. Neither is
            /// [retryable](crate::Error::is_retryable): the guard is gone.
            ///
            /// # Cancel safety
            ///
            /// Safe: the release goes on in the background.
            pub async fn release(self) -> crate::Result<()> {
                self.0.release().await
            }
        }

        impl std::fmt::Debug for $guard {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_tuple(stringify!($guard)).field(&self.0).finish()
            }
        }
    };
}

/// Re-entering the hold of a guard.
macro_rules! reentrant_guard {
    ($guard:ident) => {
        impl $guard {
            /// Acquires it once more, without a round trip: the same hold, the same token. It is free when all guards are gone.
            ///
            /// # Errors
            ///
            /// `Lost` if the hold is no longer good.
            pub fn reenter(&self) -> crate::Result<Self> {
                self.0.reenter().map(Self)
            }
        }
    };
}

use inspect::inspectable;
use {hold_guard, reentrant_guard};
