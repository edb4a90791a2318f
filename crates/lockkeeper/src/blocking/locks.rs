//! What is held: each call runs the asynchronous one to its end, for the thread that calls.

use std::fmt;
use std::future::IntoFuture;
use std::ops::Deref;
use std::time::Duration;

use super::Client;
use crate::error::Result;
use crate::session::Held;
use crate::sync::{self, Acquiring, MultiLockGuard, MutexGuard, Permit, RwLockReadGuard, RwLockWriteGuard, TakingAll};

/// A guard of the blocking façade. Derefs to the guard it wraps, for `token()`, `is_valid()`, `remaining()`.
///
/// Dropping it gives the hold back in the background and never blocks.
#[must_use = "if unused the lock is released at once"]
pub struct Guard<G> {
    guard: G,
    client: Client,
}

impl<G: sync::Guard + Deref<Target = Held>> Guard<G> {
    /// Gives it back now; see [`MutexGuard::release`](crate::MutexGuard::release).
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
        self.client.block_on(self.guard.extend(lease))
    }
}

impl<G> Deref for Guard<G> {
    type Target = G;

    fn deref(&self) -> &G {
        &self.guard
    }
}

impl<G: fmt::Debug> fmt::Debug for Guard<G> {
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

            fn guard<G>(&self, guard: G) -> Guard<G> {
                Guard { guard, client: self.client.clone() }
            }
        }
    };
}
/// Taking something: waiting, waiting with options, trying. `$us` is the handle for the thread that calls.
macro_rules! taking {
    ($handle:ident, $guard:ident, |$this:ident| $us:expr, $async_lock:ident, $async_try:ident, $lock:ident, $lock_with:ident, $try_lock:ident) => {
        impl $handle {
            /// Takes it, waiting as long as it takes; kept alive until it is given back.
            ///
            /// # Errors
            ///
            /// As [`Acquiring`](crate::sync::Acquiring).
            pub fn $lock(&self) -> Result<Guard<$guard>> {
                self.$lock_with(|taking| taking)
            }

            /// Takes it with options: `|taking| taking.wait(limit).lease(length)`.
            ///
            /// # Errors
            ///
            /// As [`Acquiring`](crate::sync::Acquiring).
            pub fn $lock_with(
                &self,
                options: impl for<'a> FnOnce(Acquiring<'a, $guard>) -> Acquiring<'a, $guard>,
            ) -> Result<Guard<$guard>> {
                let $this = self;
                let ours = $us;
                let guard = self.client.block_on(options(ours.$async_lock()).into_future())?;
                Ok(self.guard(guard))
            }

            /// Takes it if it is free now.
            ///
            /// # Errors
            ///
            /// As [`TryAcquiring`](crate::sync::TryAcquiring).
            pub fn $try_lock(&self) -> Result<Option<Guard<$guard>>> {
                let $this = self;
                let ours = $us;
                let guard = self.client.block_on(ours.$async_try().into_future())?;
                Ok(guard.map(|guard| self.guard(guard)))
            }
        }
    };
}

handle!(
    /// A lock for one holder at a time; see [`lockkeeper::Mutex`](crate::Mutex). The thread that holds it may take it again.
    Mutex
);
handle!(
    /// A lock for one holder at a time, first come first served; see [`lockkeeper::FairMutex`](crate::FairMutex). The thread that holds
    /// it may take it again.
    FairMutex
);
handle!(
    /// A lock for many readers or one writer; see [`lockkeeper::RwLock`](crate::RwLock). A thread may take a side again that it has, and
    /// read while it writes.
    RwLock
);
handle!(
    /// A semaphore of leased permits; see [`lockkeeper::Semaphore`](crate::Semaphore).
    Semaphore
);

taking!(Mutex, MutexGuard, |this| this.inner.owned_by(&this.client.thread()), lock, try_lock, lock, lock_with, try_lock);
taking!(FairMutex, MutexGuard, |this| this.inner.owned_by(&this.client.thread()), lock, try_lock, lock, lock_with, try_lock);
taking!(RwLock, RwLockReadGuard, |this| this.inner.owned_by(&this.client.thread()), read, try_read, read, read_with, try_read);
taking!(
    RwLock,
    RwLockWriteGuard,
    |this| this.inner.owned_by(&this.client.thread()),
    write,
    try_write,
    write,
    write_with,
    try_write
);
taking!(Semaphore, Permit, |this| this.inner.clone(), acquire, try_acquire, acquire, acquire_with, try_acquire);

handle!(
    /// All of several locks, or none; see [`lockkeeper::MultiLock`](crate::MultiLock). The holds are its own: the thread cannot take one of them
    /// again.
    MultiLock
);

impl MultiLock {
    /// Takes all of them, waiting until they are free together.
    ///
    /// # Errors
    ///
    /// As [`TakingAll`].
    pub fn lock(&self) -> Result<Guard<MultiLockGuard>> {
        self.lock_with(|taking| taking)
    }

    /// Takes all of them with options: `|taking| taking.wait(limit).lease(length)`.
    ///
    /// # Errors
    ///
    /// As [`TakingAll`].
    pub fn lock_with(&self, options: impl for<'a> FnOnce(TakingAll<'a>) -> TakingAll<'a>) -> Result<Guard<MultiLockGuard>> {
        self.client.block_on(options(self.inner.lock()).into_future()).map(|guard| self.guard(guard))
    }

    /// Takes all of them if they are free now.
    ///
    /// # Errors
    ///
    /// As [`TryTakingAll`](crate::sync::TryTakingAll).
    pub fn try_lock(&self) -> Result<Option<Guard<MultiLockGuard>>> {
        let guard = self.client.block_on(self.inner.try_lock().into_future())?;
        Ok(guard.map(|guard| self.guard(guard)))
    }
}

impl Guard<MultiLockGuard> {
    /// Gives all of them back now; see [`MultiLockGuard::release`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn release(self) -> Result<()> {
        let Self { guard, client } = self;
        client.block_on(guard.release())
    }
}

impl Semaphore {
    /// Takes `count` permits together, waiting for them.
    ///
    /// # Errors
    ///
    /// As [`Acquiring`](crate::sync::Acquiring).
    pub fn acquire_many(&self, count: u32) -> Result<Guard<Permit>> {
        self.client.block_on(self.inner.acquire_many(count).into_future()).map(|guard| self.guard(guard))
    }

    /// How many permits are free.
    ///
    /// # Errors
    ///
    /// As [`lockkeeper::Semaphore::available`](crate::Semaphore::available).
    pub fn available(&self) -> Result<i64> {
        self.client.block_on(self.inner.available())
    }
}
