//! A call, from the handle to the hold: what it points at, the options that are chained to it, and the acquisition that `.await` starts.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use super::driver::{Driver, Next, Terms};
use super::guard::Guard;
use crate::backend::{Claim, Event, GaveUp, Kind};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::runtime::{self, BoxFuture};
use crate::session::{Command, Entry, Held, LocalQueue, Owner, Patience, Session};

/// What a handle points at: a name at a store, and for whom. Cheap to clone: every call owns one.
#[derive(Clone)]
pub(super) struct Target(Arc<TargetState>);

#[derive(Clone)]
pub(super) struct TargetState {
    pub(super) session: Session,
    /// A bad name is told when the handle is used, so that making a handle needs no `?`.
    name: Result<Name>,
    pub(super) owner: Option<Owner>,
    /// The local queue, where one of this process's waiters asks for all.
    pub(super) queue: Option<Arc<LocalQueue>>,
    /// For readers, who do not queue here: the queue of the writers of this process.
    pub(super) writers: Option<Arc<LocalQueue>>,
    /// For semaphores: set once the store has accepted the size of this handle, or of the one that it was cloned from.
    size_checked: Option<Arc<AtomicBool>>,
}

impl Target {
    pub(super) fn new(session: &Session, name: impl AsRef<str>) -> Self {
        Self::of(session, Name::new(name))
    }

    pub(super) fn of(session: &Session, name: Result<Name>) -> Self {
        Self(Arc::new(TargetState {
            session: session.clone(),
            name,
            owner: None,
            queue: None,
            writers: None,
            size_checked: None,
        }))
    }

    /// The same, with the local queue for its name.
    pub(super) fn queued(mut self, kind: Kind) -> Self {
        let queue = self.name.as_ref().ok().map(|name| self.session.queue(name, kind));
        Arc::make_mut(&mut self.0).queue = queue;
        self
    }

    pub(super) fn beside_writers(mut self, writing: &Self) -> Self {
        Arc::make_mut(&mut self.0).writers.clone_from(&writing.queue);
        self
    }

    pub(super) fn owned_by(&self, owner: &Owner) -> Self {
        Self(Arc::new(TargetState { owner: Some(owner.clone()), ..(*self.0).clone() }))
    }

    /// Of a semaphore: its size is checked by the first request that the store answers, and by no later one.
    pub(super) fn sized(mut self) -> Self {
        Arc::make_mut(&mut self.0).size_checked = Some(Arc::default());
        self
    }

    /// Whether the size of the semaphore was checked.
    pub(super) fn is_size_checked(&self) -> bool {
        self.size_checked.as_ref().is_some_and(|checked| checked.load(Ordering::Relaxed))
    }

    /// The store has agreed to the size.
    pub(super) fn size_is_checked(&self) {
        if let Some(checked) = &self.size_checked {
            checked.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn name(&self) -> Result<&Name> {
        self.name.as_ref().map_err(Clone::clone)
    }

    /// The error for a wait of so long that others outlasted. It names them, if the store tells at once.
    async fn timeout(&self, waited: Duration) -> Error {
        let name = self.name.as_ref().map_or("", Name::as_str);
        let holders = match &self.name {
            Ok(name) => self.session.core().holders(name, waited).await,
            Err(_) => None,
        };
        let by = holders.unwrap_or_else(|| "others".to_owned());
        Error::new(ErrorKind::Timeout, format!("{name:?} was not free within {waited:?}; it is held by {by}"))
    }
}

impl Deref for Target {
    type Target = TargetState;

    fn deref(&self) -> &TargetState {
        &self.0
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Ok(name) => name.fmt(f),
            Err(error) => write!(f, "<{error}>"),
        }
    }
}

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
/// let client = lockkeeper::Client::connect("memory:").await?;
/// let task = tokio::spawn(client.mutex("orders").lock());
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
    running: Running<Result<G>>,
}

/// What a call has become with its first poll; nothing before.
pub(super) type Running<T> = Option<BoxFuture<'static, T>>;

impl<G: Guard> Acquiring<G> {
    pub(super) fn new(target: &Target, claim: Result<Claim>) -> Self {
        Self { target: target.clone(), claim, limits: Limits::default(), terms: Terms::default(), running: None }
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

    /// Waits at most this long, trouble with the store included. The error names the holder of the lock; asking for it takes 10 ms
    /// at most.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.limits.timeout = Some(limit);
        self
    }

    /// Limits how long the call retries while the store does not answer. Then it fails with `Unavailable` or `Indeterminate`, however
    /// long it may wait for others. Without this, trouble may last as long as [`timeout`](Self::timeout), or else as long as the
    /// client's [`outage_timeout`](crate::Builder::outage_timeout).
    ///
    /// The time counts from the start of the outage as far as this client knows it. If the store has not answered other calls for so long
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

impl<G: Guard> Future for Acquiring<G> {
    type Output = Result<G>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { target, claim, limits, terms, running } = self.get_mut();
        running.get_or_insert_with(|| begin(target.clone(), claim.clone(), *limits, *terms)).as_mut().poll(cx)
    }
}

fn begin<G: Guard>(target: Target, claim: Result<Claim>, limits: Limits, terms: Terms) -> BoxFuture<'static, Result<G>> {
    match claim {
        Ok(claim) => Box::pin(async move {
            match acquire(&target, claim, limits.patience(), terms).await? {
                Some(held) => Ok(G::new(held)),
                // Boxed: few calls end so.
                None => Err(Box::pin(target.timeout(limits.timeout.unwrap_or_default())).await),
            }
        }),
        Err(error) => Box::pin(std::future::ready(Err(error))),
    }
}

/// A call that acquires something only if it is free now: `try_lock().lease(…).await`.
///
/// A busy lock is not an error but `None`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// # let client = lockkeeper::Client::connect("memory:").await?;
/// let call = client.mutex("orders").try_lock().max_hold(std::time::Duration::from_secs(60));
/// assert!(call.await?.is_some());
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// As [`Acquiring`], but never `Timeout`.
///
/// # Cancel safety
///
/// Safe at every point: what a dropped call may have acquired is released in the background.
#[must_use = "it does nothing unless awaited"]
pub struct TryAcquiring<G> {
    call: Acquiring<G>,
    running: Running<Result<Option<G>>>,
}

impl<G: Guard> TryAcquiring<G> {
    pub(super) fn new(target: &Target, claim: Result<Claim>) -> Self {
        Self { call: Acquiring::new(target, claim), running: None }
    }

    /// Ends by itself after this long, unless [extended](crate::Held::extend); it is not renewed.
    pub fn lease(self, lease: Duration) -> Self {
        Self { call: self.call.lease(lease), ..self }
    }

    /// Ends after this long even though it is renewed: see [`Acquiring::max_hold`].
    pub fn max_hold(self, limit: Duration) -> Self {
        Self { call: self.call.max_hold(limit), ..self }
    }
}

impl<G: Guard> Future for TryAcquiring<G> {
    type Output = Result<Option<G>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { call: Acquiring { target, claim, terms, .. }, running } = self.get_mut();
        let begin = || -> BoxFuture<'static, Self::Output> {
            let (target, claim, terms) = (target.clone(), claim.clone(), *terms);
            Box::pin(async move { Ok(acquire(&target, claim?, Patience::Try, terms).await?.map(G::new)) })
        };
        running.get_or_insert_with(begin).as_mut().poll(cx)
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
        self.call.fmt(f)
    }
}

/// Acquires a hold; `None` if others kept it for as long as `patience` lasted.
#[allow(clippy::manual_async_fn, reason = "an `async fn` would carry each argument about twice")]
pub(super) fn acquire(
    target: &Target,
    claim: Claim,
    patience: Patience,
    terms: Terms,
) -> impl Future<Output = Result<Option<Held>>> + Send {
    async move {
        let session = &target.session;
        let began = session.core().runtime.now();
        let name = target.name()?;
        let (beside, ticket) = match &target.owner {
            None => (None, None),
            Some(owner) => {
                let shared = claim == Claim::Read;
                let entry = match owner.try_enter(session.id(), name, shared)? {
                    Some(entry) => Some(entry),
                    None => Box::pin(enter(owner, target, shared, patience.deadline(began).since(began))).await?,
                };
                match entry {
                    Some(Entry::Reentered(held)) => return Ok(Some(held)),
                    Some(Entry::Outermost(ticket, beside)) => (beside, Some(ticket)),
                    None => return Ok(None),
                }
            }
        };
        if let Err(error) = session.core().check_outage(patience) {
            let why = GaveUp::Failed(error.kind());
            session.core().notify(&Event::GaveUp { name, claim, waited: Duration::ZERO, why });
            return Err(error);
        }
        // A reader joins the hold of another reader of this process.
        if claim == Claim::Read
            && let Some(writers) = &target.writers
            && (patience != Patience::Try && terms == Terms::default() && target.owner.is_none())
            && let Some(held) = session.core().join_readers(writers)
        {
            return Ok(Some(held));
        }
        let mut driver = Driver::new(target, claim, patience, terms, beside, began)?;
        driver.ticket = ticket;
        // Where nobody is in the way the first answer is the last: no queue entry, no timer, no second box.
        let next = match driver.start() {
            Command::Ask { sent, limit, register } => driver.ask(sent, limit, register).await,
            command => Ok(Next::Go(command)),
        };
        let acquired = match next {
            Ok(Next::Held(held)) => Ok(Some(held)),
            Ok(Next::Go(Command::GiveUp)) => Ok(None),
            Ok(Next::Go(Command::Fail(error))) | Err(error) => Err(error),
            Ok(Next::Go(command)) => Box::pin(driver.go_on(command)).await,
        };
        driver.gave_up = match &acquired {
            Ok(_) if patience == Patience::Try => GaveUp::Busy,
            Ok(_) => GaveUp::TimedOut,
            Err(error) => GaveUp::Failed(error.kind()),
        };
        acquired
    }
}

/// Waits until the owner's other calls for the name are done; `None` if that took too long. Apart, so that the common path is small.
async fn enter(owner: &Owner, target: &Target, shared: bool, limit: Duration) -> Result<Option<Entry>> {
    let entering = Box::pin(owner.enter(target.session.id(), target.name()?, shared));
    runtime::within(limit, entering).await.transpose()
}
