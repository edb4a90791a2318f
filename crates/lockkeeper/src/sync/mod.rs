//! The synchronizers: one file per primitive, its guard beside it, one wait loop for all.
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
//! handle exclude each other as an `Arc<tokio::sync::Mutex>` does.

mod acquire;
mod counting;
mod counting_semaphore;
mod fair_mutex;
mod latch;
mod multi_guard;
mod multi_lock;
mod mutex;
mod options;
mod rwlock;
mod semaphore;
mod target;
mod wait;

pub use counting::Waiting;
pub use counting_semaphore::CountingSemaphore;
pub use fair_mutex::FairMutex;
pub use latch::CountDownLatch;
pub use multi_guard::MultiLockGuard;
pub use multi_lock::{MultiLock, TakingAll, TryTakingAll};
pub use mutex::{Mutex, MutexGuard};
pub use options::{Acquiring, Guard, TryAcquiring};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::{Permit, Semaphore};

/// The parts of a guard that are the same for all: deref to [`Held`](crate::Held), release, debug.
macro_rules! guard {
    ($guard:ident) => {
        impl crate::sync::Guard for $guard {
            fn new(held: crate::session::Held) -> Self {
                Self(held)
            }

            fn into_held(self) -> crate::session::Held {
                self.0
            }
        }

        impl std::ops::Deref for $guard {
            type Target = crate::session::Held;

            fn deref(&self) -> &crate::session::Held {
                &self.0
            }
        }

        impl $guard {
            /// Gives it back now. When several guards of one owner hold it, the last one frees it.
            ///
            /// # Errors
            ///
            /// `Lost` if the hold was gone before: the work may not have been alone. `Unavailable` or `Indeterminate` if the store did not
            /// answer: the release goes on in the background, and the lease ends it at the latest.
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

/// The fencing token of a guard, and taking it again.
macro_rules! fenced_guard {
    ($guard:ident) => {
        impl $guard {
            /// The fencing token of this hold: give it to the resource, see [`fence`](crate::fence).
            #[must_use]
            pub fn token(&self) -> crate::Token {
                self.0.token()
            }

            /// Takes it once more, without a round trip: the same hold, the same token. It is free when all guards are gone.
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

use {fenced_guard, guard};
