//! Any kind of hold under one type, so that a case for all kinds is written once.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use crate::backend::Claim;
use crate::error::Result;
use crate::runtime::BoxFuture;
use crate::session::{Held, Session};
use crate::sync::{FairMutex, Mutex, MutexGuard, Permit, RwLock, RwLockReadGuard, RwLockWriteGuard, Semaphore};

/// The guard of any kind of hold.
#[allow(missing_docs, reason = "named as the claims are")]
pub(super) enum AnyGuard {
    Mutex(MutexGuard),
    Read(RwLockReadGuard),
    Write(RwLockWriteGuard),
    Permit(Permit),
}

/// How to acquire something.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct How {
    /// Wait at most this long.
    pub(super) wait: Option<Duration>,
    /// The lease; `None`: the hold is renewed.
    pub(super) lease: Option<Duration>,
}

/// A call on `$handle` with the options in `$how`, and its guard wrapped.
macro_rules! taking {
    ($handle:expr, $call:ident($($count:ident)?), $how:expr, $wrap:path) => {{
        let handle = $handle;
        let mut acquiring = handle.$call($($count)?);
        if let Some(wait) = $how.wait {
            acquiring = acquiring.timeout(wait);
        }
        if let Some(lease) = $how.lease {
            acquiring = acquiring.lease(lease);
        }
        acquiring.await.map($wrap)
    }};
}

/// Acquires `name` through the handle for this claim.
#[must_use]
pub(super) fn take(session: &Session, name: &str, claim: Claim, how: How) -> BoxFuture<'static, Result<AnyGuard>> {
    let (session, name) = (session.clone(), name.to_owned());
    Box::pin(async move {
        match claim {
            Claim::Mutex => taking!(Mutex::new(&session, name), lock(), how, AnyGuard::Mutex),
            Claim::Fair => taking!(FairMutex::new(&session, name), lock(), how, AnyGuard::Mutex),
            Claim::Read => taking!(RwLock::new(&session, name), read(), how, AnyGuard::Read),
            Claim::Write => taking!(RwLock::new(&session, name), write(), how, AnyGuard::Write),
            Claim::Permits { take, of } => {
                taking!(Semaphore::new(&session, name, of), acquire_many(take), how, AnyGuard::Permit)
            }
        }
    })
}

/// Acquires `name` through the handle for this claim if it is free now.
#[must_use]
pub(super) fn try_take(session: &Session, name: &str, claim: Claim) -> BoxFuture<'static, Result<Option<AnyGuard>>> {
    let (session, name) = (session.clone(), name.to_owned());
    Box::pin(async move {
        Ok(match claim {
            Claim::Mutex => Mutex::new(&session, name).try_lock().await?.map(AnyGuard::Mutex),
            Claim::Fair => FairMutex::new(&session, name).try_lock().await?.map(AnyGuard::Mutex),
            Claim::Read => RwLock::new(&session, name).try_read().await?.map(AnyGuard::Read),
            Claim::Write => RwLock::new(&session, name).try_write().await?.map(AnyGuard::Write),
            Claim::Permits { take, of } => Semaphore::new(&session, name, of).try_acquire_many(take).await?.map(AnyGuard::Permit),
        })
    })
}

/// A claim that conflicts with this one: a writer for a reader, the same claim for all others.
#[must_use]
pub(super) const fn rival(claim: Claim) -> Claim {
    match claim {
        Claim::Read => Claim::Write,
        other => other,
    }
}

impl AnyGuard {
    /// Releases it.
    ///
    /// # Errors
    ///
    /// As the guard inside.
    pub(super) async fn release(self) -> Result<()> {
        match self {
            Self::Mutex(guard) => guard.release().await,
            Self::Read(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
            Self::Permit(guard) => guard.release().await,
        }
    }
}

impl Deref for AnyGuard {
    type Target = Held;

    fn deref(&self) -> &Held {
        match self {
            Self::Mutex(guard) => guard,
            Self::Read(guard) => guard,
            Self::Write(guard) => guard,
            Self::Permit(guard) => guard,
        }
    }
}

impl fmt::Debug for AnyGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
