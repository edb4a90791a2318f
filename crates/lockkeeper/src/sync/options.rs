//! A call that is being put together: options are chained, `.await` sends it.

use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::time::Duration;

use super::acquire::acquire;
use super::driver::Terms;
use super::guard::Guard;
use super::target::Target;
use super::wait::Patience;
use crate::backend::Claim;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::BoxFuture;

/// How long a call may wait, as its options say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) timeout: Option<Duration>,
    pub(super) outage_timeout: Option<Duration>,
}

impl Limits {
    pub(super) fn patience(self) -> Patience {
        match (self.timeout, self.outage_timeout) {
            (None, None) => Patience::Forever,
            (Some(timeout), None) => Patience::For(timeout),
            (timeout, Some(outage)) => Patience::Limited { wait: timeout.unwrap_or(Duration::MAX), outage },
        }
    }
}

/// A call that acquires something and waits for it: `lock().timeout(…).lease(…).await`.
///
/// It owns what it needs, so it can be spawned. Without [`timeout`](Self::timeout) it waits as long as it takes; without
/// [`lease`](Self::lease) the hold is renewed until it is released.
///
/// # Errors
///
/// `Timeout` if others held it until the time limit; `Unavailable` or `Indeterminate` if the store could not be reached for as long
/// as trouble may last (see [`outage_timeout`](Self::outage_timeout)); `InvalidName`, `InvalidArgument`, `WrongKind`, `Unsupported`
/// for what cannot be asked; `Closed` after `close()`; `Lost` when an [`Owner`](crate::Owner) re-enters a hold that is gone.
///
/// # Cancel safety
///
/// Safe at every point: what a dropped call may have acquired, or left in a queue, is released in the background.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// use std::future::IntoFuture;
/// let client = lockkeeper::Client::connect("memory:").await?;
/// let task = tokio::spawn(client.mutex("orders").lock().into_future());
/// # let _ =
/// task.await;
/// # Ok(()) }
/// ```
#[must_use = "it does nothing unless awaited"]
pub struct Acquiring<G> {
    target: Target,
    claim: Result<Claim, Error>,
    limits: Limits,
    terms: Terms,
    guard: PhantomData<fn() -> G>,
}

impl<G: Guard> Acquiring<G> {
    pub(super) fn new(target: &Target, claim: Result<Claim>) -> Self {
        Self { target: target.clone(), claim, limits: Limits::default(), terms: Terms::default(), guard: PhantomData }
    }

    /// What it would acquire; an error for a call that has limits of its own.
    pub(super) fn part(&self) -> Result<(Target, Claim)> {
        if self.limits != Limits::default() || self.terms != Terms::default() {
            let message = "limits are given to the call that acquires all of them, not to the parts";
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        self.target.name()?;
        Ok((self.target.clone(), self.claim.clone()?))
    }

    /// Waits at most this long, trouble with the store included.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.limits.timeout = Some(limit);
        self
    }

    /// Bears trouble with the store for at most this long: without an answer it fails with `Unavailable` or `Indeterminate`, however
    /// long it may wait for others. Without this, trouble may last as long as [`timeout`](Self::timeout), or else as long as the
    /// client's [`patience`](crate::Builder::patience).
    ///
    /// The time counts from the begin of the outage as far as this client knows it. If the store has not answered other calls for so long
    /// already, this call fails at once; about four calls in a second still ask, so that the return of the store is noticed. In a Redis cluster,
    /// where some servers may be down and others not, each call asks.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// use std::time::Duration;
    /// # let client = lockkeeper::Client::connect("memory:").await?;
    /// let call = client.mutex("orders").lock().timeout(Duration::from_secs(10)).outage_timeout(Duration::from_secs(1));
    /// let guard = call.await?;
    /// # guard.release().await }
    /// ```
    pub fn outage_timeout(mut self, limit: Duration) -> Self {
        self.limits.outage_timeout = Some(limit);
        self
    }

    /// Ends by itself after this long, unless [extended](crate::Held::extend); it is not renewed.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.terms.lease = Some(lease);
        self
    }

    /// Ends after this long even though it is renewed: then the hold is lost ([`MaxHold`](crate::LossReason::MaxHold)), the guard says so, and others
    /// can acquire it. For work that may hang.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// use std::time::Duration;
    /// # let client = lockkeeper::Client::connect("memory:").await?;
    /// let guard = client.mutex("report").lock().max_hold(Duration::from_secs(3600)).await?;
    /// guard.run(async { /* dropped after an hour at the latest */ }).await?;
    /// # guard.release().await }
    /// ```
    pub fn max_hold(mut self, limit: Duration) -> Self {
        self.terms.max_hold = Some(limit);
        self
    }
}

impl<G: Guard> IntoFuture for Acquiring<G> {
    type Output = Result<G>;
    type IntoFuture = BoxFuture<'static, Result<G>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { target, claim, limits, terms, .. } = self;
        match claim {
            Ok(claim) => Box::pin(async move {
                acquire(&target, claim, limits.patience(), terms).await?.map(G::new).ok_or_else(|| target.timeout())
            }),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }
}

/// A call that acquires something only if it is free now: `try_lock().lease(…).await`.
///
/// A busy lock is not an error but `None`.
///
/// # Errors
///
/// As [`Acquiring`], but never `Timeout`.
///
/// # Cancel safety
///
/// Safe at every point: what a dropped call may have acquired is released in the background.
#[must_use = "it does nothing unless awaited"]
pub struct TryAcquiring<G>(Acquiring<G>);

impl<G: Guard> TryAcquiring<G> {
    pub(super) fn new(target: &Target, claim: Result<Claim>) -> Self {
        Self(Acquiring::new(target, claim))
    }

    /// Ends by itself after this long, unless [extended](crate::Held::extend); it is not renewed.
    pub fn lease(self, lease: Duration) -> Self {
        Self(self.0.lease(lease))
    }

    /// Ends after this long even though it is renewed: see [`Acquiring::max_hold`].
    pub fn max_hold(self, limit: Duration) -> Self {
        Self(self.0.max_hold(limit))
    }
}

impl<G: Guard> IntoFuture for TryAcquiring<G> {
    type Output = Result<Option<G>>;
    type IntoFuture = BoxFuture<'static, Result<Option<G>>>;

    fn into_future(self) -> Self::IntoFuture {
        let Acquiring { target, claim, terms, .. } = self.0;
        match claim {
            Ok(claim) => Box::pin(async move { Ok(acquire(&target, claim, Patience::Try, terms).await?.map(G::new)) }),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }
}

impl<G> fmt::Debug for Acquiring<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquiring")
            .field("name", &self.target)
            .field("claim", &self.claim)
            .field("limits", &self.limits)
            .field("terms", &self.terms)
            .finish()
    }
}

impl<G> fmt::Debug for TryAcquiring<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
