//! The call that is being put together: options chain, `.await` sends it.

use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::time::Duration;

use super::acquire::acquire;
use super::target::Target;
use super::wait::Patience;
use crate::backend::Claim;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::BoxFuture;
use crate::session::Held;

/// What can be made of a hold.
pub trait Guard: Sized + Send {
    #[doc(hidden)]
    fn new(held: Held) -> Self;

    #[doc(hidden)]
    fn into_held(self) -> Held;
}

/// Taking something, waiting for it: `lock().wait(…).lease(…).await`.
///
/// Without [`wait`](Self::wait) it waits as long as it takes; without [`lease`](Self::lease) the hold is kept alive until it is given back.
///
/// # Errors
///
/// `Timeout` if others held it for as long as it was allowed to wait; `Unavailable` or `Indeterminate` if the store could not be
/// reached in that time (or, without a limit, for the client's patience); `InvalidName`, `InvalidArgument`, `WrongKind`, `Unsupported` for
/// what cannot be asked; `Closed` after `close()`; `Lost` when an [`Owner`](crate::Owner) re-enters a hold that is gone.
///
/// # Cancel safety
///
/// Safe at every point: what a dropped call may have taken, or left in a queue, is given back in the background.
#[must_use = "it does nothing unless awaited"]
pub struct Acquiring<'a, G> {
    target: &'a Target,
    claim: Result<Claim, Error>,
    patience: Patience,
    lease: Option<Duration>,
    guard: PhantomData<fn() -> G>,
}

impl<'a, G: Guard> Acquiring<'a, G> {
    pub(super) fn new(target: &'a Target, claim: Result<Claim>) -> Self {
        Self { target, claim, patience: Patience::Forever, lease: None, guard: PhantomData }
    }

    /// What it would take; an error for one that has limits of its own.
    pub(super) fn into_part(self) -> Result<(Target, Claim)> {
        if self.patience != Patience::Forever || self.lease.is_some() {
            let message = "limits are given to the call that takes all of them, not to the parts";
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        self.target.name()?;
        Ok((self.target.clone(), self.claim?))
    }

    /// Waits at most this long, trouble with the store included.
    pub fn wait(mut self, limit: Duration) -> Self {
        self.patience = Patience::For(limit);
        self
    }

    /// Ends by itself after this long, unless [extended](crate::Held::extend); the keeper does not renew it.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }
}

impl<'a, G: Guard + 'a> IntoFuture for Acquiring<'a, G> {
    type Output = Result<G>;
    type IntoFuture = BoxFuture<'a, Result<G>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { target, claim, patience, lease, .. } = self;
        match claim {
            Ok(claim) => {
                Box::pin(
                    async move { acquire(target, claim, patience, lease).await?.map(G::new).ok_or_else(|| target.timeout()) },
                )
            }
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }
}

/// Taking something only if it is free now: `try_lock().lease(…).await`.
///
/// Busy is not an error but `None`.
///
/// # Errors
///
/// As [`Acquiring`], but never `Timeout`.
///
/// # Cancel safety
///
/// Safe at every point: what a dropped call may have taken is given back in the background.
#[must_use = "it does nothing unless awaited"]
pub struct TryAcquiring<'a, G>(Acquiring<'a, G>);

impl<'a, G: Guard> TryAcquiring<'a, G> {
    pub(super) fn new(target: &'a Target, claim: Result<Claim>) -> Self {
        Self(Acquiring { patience: Patience::Try, ..Acquiring::new(target, claim) })
    }

    /// Ends by itself after this long, unless [extended](crate::Held::extend); the keeper does not renew it.
    pub fn lease(self, lease: Duration) -> Self {
        Self(self.0.lease(lease))
    }
}

impl<'a, G: Guard + 'a> IntoFuture for TryAcquiring<'a, G> {
    type Output = Result<Option<G>>;
    type IntoFuture = BoxFuture<'a, Result<Option<G>>>;

    fn into_future(self) -> Self::IntoFuture {
        let Acquiring { target, claim, patience, lease, .. } = self.0;
        match claim {
            Ok(claim) => Box::pin(async move { Ok(acquire(target, claim, patience, lease).await?.map(G::new)) }),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }
}

impl<G> fmt::Debug for Acquiring<'_, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquiring")
            .field("name", &self.target)
            .field("claim", &self.claim)
            .field("patience", &self.patience)
            .field("lease", &self.lease)
            .finish()
    }
}

impl<G> fmt::Debug for TryAcquiring<'_, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
