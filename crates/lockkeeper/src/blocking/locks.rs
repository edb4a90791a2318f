//! What is held: each call runs the asynchronous one to its end, for the thread that calls.

use std::fmt;
use std::future::IntoFuture;
use std::ops::Deref;
use std::time::Duration;

use super::Client;
use crate::backend::Holder;
use crate::error::Result;
use crate::sync::{
    self, Acquiring, AcquiringAll, Guard, MultiLockGuard, MutexGuard, Permit, PermitId, RwLockReadGuard, RwLockWriteGuard,
    TryAcquiring, TryAcquiringAll,
};

/// A guard of the blocking façade. Derefs to the guard it wraps, for `token()`, `is_valid()`, `remaining()`, `loss()`.
///
/// Dropping it releases in the background and does not block.
#[must_use = "if unused the lock is released at once"]
pub struct LockGuard<G> {
    guard: G,
    client: Client,
}

impl<G: Guard> LockGuard<G> {
    /// Releases it now; see [`MutexGuard::release`](crate::MutexGuard::release).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn release(self) -> Result<()> {
        let Self { guard, client } = self;
        client.block_on(guard.into_held().release())
    }

    /// Asks that the hold last at least `lease` from now; see [`Held::extend`](crate::Held::extend).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn extend(&self, lease: Duration) -> Result<()> {
        self.client.block_on(self.guard.held().extend(lease))
    }
}

impl LockGuard<RwLockWriteGuard> {
    /// Goes from writing to reading; see [`RwLockWriteGuard::downgrade`](crate::RwLockWriteGuard::downgrade).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn downgrade(self) -> Result<LockGuard<RwLockReadGuard>> {
        let Self { guard, client } = self;
        let guard = client.block_on(guard.downgrade())?;
        Ok(LockGuard { guard, client })
    }
}

impl LockGuard<Permit> {
    /// Leaves the permits to whoever adopts them; see [`Permit::detach`](crate::Permit::detach).
    #[must_use = "the id is the only way to the permits before their lease ends"]
    pub fn detach(self) -> PermitId {
        self.guard.detach()
    }
}

impl LockGuard<MultiLockGuard> {
    /// Releases all of them now; see [`MultiLockGuard::release`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn release(self) -> Result<()> {
        let Self { guard, client } = self;
        client.block_on(guard.release())
    }

    /// Asks that all holds last at least `lease` from now; see [`MultiLockGuard::extend`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn extend(&self, lease: Duration) -> Result<()> {
        self.client.block_on(self.guard.extend(lease))
    }
}

impl<G> Deref for LockGuard<G> {
    type Target = G;

    fn deref(&self) -> &G {
        &self.guard
    }
}

impl<G: fmt::Debug> fmt::Debug for LockGuard<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}

/// A handle of the façade: the asynchronous one, and the client that runs it.
macro_rules! handle {
    ($(#[$doc:meta])* $handle:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $handle {
            inner: sync::$handle,
            client: Client,
        }

        impl $handle {
            pub(super) fn new(client: &Client, inner: sync::$handle) -> Self {
                Self { inner, client: client.clone() }
            }

            fn guard<G>(&self, guard: G) -> LockGuard<G> {
                LockGuard { guard, client: self.client.clone() }
            }
        }
    };
}

/// Acquiring something: waiting, trying, each with options. `$us` is the handle for the thread that calls.
macro_rules! acquiring {
    ($handle:ident, $guard:ident, |$this:ident| $us:expr, $lock:ident, $lock_with:ident, $try_lock:ident, $try_lock_with:ident) => {
        impl $handle {
            /// Acquires it, waiting as long as it takes; it is renewed until it is released.
            ///
            /// # Errors
            ///
            /// As [`Acquiring`](crate::sync::Acquiring).
            pub fn $lock(&self) -> Result<LockGuard<$guard>> {
                self.$lock_with(|call| call)
            }

            /// Acquires it with options: `|call| call.timeout(limit).lease(length)`.
            ///
            /// # Errors
            ///
            /// As [`Acquiring`](crate::sync::Acquiring).
            pub fn $lock_with(&self, options: impl FnOnce(Acquiring<$guard>) -> Acquiring<$guard>) -> Result<LockGuard<$guard>> {
                let $this = self;
                let guard = self.client.block_on(options($us.$lock()).into_future())?;
                Ok(self.guard(guard))
            }

            /// Acquires it if it is free now; returns `None` otherwise.
            ///
            /// # Errors
            ///
            /// As [`TryAcquiring`](crate::sync::TryAcquiring).
            pub fn $try_lock(&self) -> Result<Option<LockGuard<$guard>>> {
                self.$try_lock_with(|call| call)
            }

            /// Acquires it if it is free now, with options: `|call| call.lease(length)`.
            ///
            /// # Errors
            ///
            /// As [`TryAcquiring`](crate::sync::TryAcquiring).
            pub fn $try_lock_with(
                &self,
                options: impl FnOnce(TryAcquiring<$guard>) -> TryAcquiring<$guard>,
            ) -> Result<Option<LockGuard<$guard>>> {
                let $this = self;
                let guard = self.client.block_on(options($us.$try_lock()).into_future())?;
                Ok(guard.map(|guard| self.guard(guard)))
            }
        }
    };
}

/// Who holds it.
macro_rules! inspecting {
    ($($handle:ident),*) => {
        $(impl $handle {
            /// Who holds it now; see the asynchronous method of this name.
            ///
            /// # Errors
            ///
            /// As there.
            pub fn holders(&self) -> Result<Vec<Holder>> {
                self.client.block_on(self.inner.holders())
            }

            /// Whether anyone holds it now; see the asynchronous method of this name.
            ///
            /// # Errors
            ///
            /// As there.
            pub fn is_locked(&self) -> Result<bool> {
                self.client.block_on(self.inner.is_locked())
            }
        })*
    };
}

handle!(
    /// A lock for one holder at a time; see [`lockkeeper::Mutex`](crate::Mutex). The thread that holds it may acquire it again.
    Mutex
);
handle!(
    /// A lock for one holder at a time, first come first served; see [`lockkeeper::FairMutex`](crate::FairMutex). The thread that
    /// holds it may acquire it again.
    FairMutex
);
handle!(
    /// A lock for many readers or one writer; see [`lockkeeper::RwLock`](crate::RwLock). A thread may acquire a side again that it
    /// holds, and read while it writes.
    RwLock
);
handle!(
    /// A semaphore of leased permits; see [`lockkeeper::Semaphore`](crate::Semaphore).
    Semaphore
);
handle!(
    /// All of several locks, or none; see [`lockkeeper::MultiLock`](crate::MultiLock). The holds are its own: the thread cannot
    /// acquire one of them again.
    MultiLock
);

acquiring!(Mutex, MutexGuard, |this| this.inner.owned_by(&this.client.thread()), lock, lock_with, try_lock, try_lock_with);
acquiring!(FairMutex, MutexGuard, |this| this.inner.owned_by(&this.client.thread()), lock, lock_with, try_lock, try_lock_with);
acquiring!(RwLock, RwLockReadGuard, |this| this.inner.owned_by(&this.client.thread()), read, read_with, try_read, try_read_with);
acquiring!(
    RwLock,
    RwLockWriteGuard,
    |this| this.inner.owned_by(&this.client.thread()),
    write,
    write_with,
    try_write,
    try_write_with
);
acquiring!(Semaphore, Permit, |this| this.inner, acquire, acquire_with, try_acquire, try_acquire_with);
inspecting!(Mutex, FairMutex, RwLock, Semaphore);

impl MultiLock {
    /// Acquires all of them, waiting until they are free together.
    ///
    /// # Errors
    ///
    /// As [`AcquiringAll`].
    pub fn lock(&self) -> Result<LockGuard<MultiLockGuard>> {
        self.lock_with(|call| call)
    }

    /// Acquires all of them with options: `|call| call.timeout(limit).lease(length)`.
    ///
    /// # Errors
    ///
    /// As [`AcquiringAll`].
    pub fn lock_with(&self, options: impl FnOnce(AcquiringAll) -> AcquiringAll) -> Result<LockGuard<MultiLockGuard>> {
        self.client.block_on(options(self.inner.lock()).into_future()).map(|guard| self.guard(guard))
    }

    /// Acquires all of them if they are free now; returns `None` otherwise.
    ///
    /// # Errors
    ///
    /// As [`TryAcquiringAll`].
    pub fn try_lock(&self) -> Result<Option<LockGuard<MultiLockGuard>>> {
        self.try_lock_with(|call| call)
    }

    /// Acquires all of them if they are free now, with options: `|call| call.lease(length)`.
    ///
    /// # Errors
    ///
    /// As [`TryAcquiringAll`].
    pub fn try_lock_with(
        &self,
        options: impl FnOnce(TryAcquiringAll) -> TryAcquiringAll,
    ) -> Result<Option<LockGuard<MultiLockGuard>>> {
        let guard = self.client.block_on(options(self.inner.try_lock()).into_future())?;
        Ok(guard.map(|guard| self.guard(guard)))
    }
}

impl Semaphore {
    /// Acquires `count` permits together, waiting for them.
    ///
    /// # Errors
    ///
    /// As [`Acquiring`](crate::sync::Acquiring).
    pub fn acquire_many(&self, count: u32) -> Result<LockGuard<Permit>> {
        self.acquire_many_with(count, |call| call)
    }

    /// Acquires `count` permits together with options: `|call| call.timeout(limit).lease(length)`.
    ///
    /// # Errors
    ///
    /// As [`Acquiring`](crate::sync::Acquiring).
    pub fn acquire_many_with(
        &self,
        count: u32,
        options: impl FnOnce(Acquiring<Permit>) -> Acquiring<Permit>,
    ) -> Result<LockGuard<Permit>> {
        self.client.block_on(options(self.inner.acquire_many(count)).into_future()).map(|guard| self.guard(guard))
    }

    /// Acquires `count` permits together if they are free now; returns `None` otherwise.
    ///
    /// # Errors
    ///
    /// As [`TryAcquiring`](crate::sync::TryAcquiring).
    pub fn try_acquire_many(&self, count: u32) -> Result<Option<LockGuard<Permit>>> {
        let guard = self.client.block_on(self.inner.try_acquire_many(count).into_future())?;
        Ok(guard.map(|guard| self.guard(guard)))
    }

    /// How many permits are free.
    ///
    /// # Errors
    ///
    /// As [`lockkeeper::Semaphore::available`](crate::Semaphore::available).
    pub fn available(&self) -> Result<i64> {
        self.client.block_on(self.inner.available())
    }

    /// The same semaphore with whatever size it has at the store; see [`lockkeeper::Semaphore::any_size`](crate::Semaphore::any_size).
    #[must_use]
    pub fn any_size(self) -> Self {
        Self { inner: self.inner.any_size(), ..self }
    }

    /// Sets how many permits there are in all, and gives the handle for that.
    ///
    /// # Errors
    ///
    /// As [`lockkeeper::Semaphore::resize`](crate::Semaphore::resize).
    pub fn resize(&self, permits: u32) -> Result<Self> {
        let inner = self.client.block_on(self.inner.resize(permits))?;
        Ok(Self { inner, client: self.client.clone() })
    }

    /// Removes the semaphore if nobody holds a permit; tells whether it did.
    ///
    /// # Errors
    ///
    /// As [`lockkeeper::Semaphore::remove`](crate::Semaphore::remove).
    pub fn remove(&self) -> Result<bool> {
        self.client.block_on(self.inner.remove())
    }
}

impl Client {
    /// Adopts permits that were [detached](crate::Permit::detach); see [`lockkeeper::Client::adopt`](crate::Client::adopt).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn adopt(&self, id: PermitId) -> Result<LockGuard<Permit>> {
        let guard = self.block_on(self.inner.adopt(id))?;
        Ok(LockGuard { guard, client: self.clone() })
    }
}
