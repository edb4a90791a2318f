//! All of several locks, or none.
//!
//! It never waits for one while it holds another, so whatever orders others use there is no deadlock. If one is busy all are released; then
//! it waits for that one in the ordinary way, in its queue, and tries the others again from there.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::call::{Limits, Running, Target, acquire};
use super::driver::Terms;
use super::lockable::Lockable;
use super::multi_guard::MultiLockGuard;
use super::together::acquire_together;
use crate::backend::Claim;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::{self, BoxFuture, Instant};
use crate::session::{Held, LocalQueue, Patience, Wanted};

/// All of several locks, or none: of any kind, of several clients and stores.
///
/// There is one guard, which is lost when one of the holds is; each lock has a token of its own. However others order the same locks, nobody
/// waits for one while holding another, so there is no deadlock. Mutexes and the rest that live on one store are asked for in one request where the
/// store can do that.
///
/// A part is the call that would take it alone. Parts of an [`Owner`](crate::Owner) are refused: a hold of its own is not shared with it.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// use std::time::Duration;
/// use lockkeeper::{Client, MultiLock};
///
/// let here = Client::connect("memory:").await?;
/// let there = Client::connect("memory:").await?;
/// let (order, stock, workers) = (here.mutex("order:42"), there.rwlock("stock"), here.semaphore("workers", 3));
///
/// let all = MultiLock::new().and(&order).and(stock.write()).and(workers.acquire());
/// let guard = all.lock().timeout(Duration::from_secs(3)).await?;
/// for (name, token) in guard.tokens() {
///     println!("{name}: token {token}");
/// }
/// assert!(order.try_lock().await?.is_none());
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[doc(alias = "RedissonMultiLock")]
#[derive(Clone, Default)]
pub struct MultiLock {
    /// An error of a part is returned when all are acquired, so that putting them together needs no `?`.
    parts: Vec<Result<(Target, Claim)>>,
}

impl MultiLock {
    /// Creates a multi-lock without any locks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a lock: `&mutex`, `rwlock.read()`, `semaphore.acquire_many(2)`, without limits of its own.
    #[must_use]
    pub fn and(mut self, lock: impl Lockable) -> Self {
        self.parts.push(lock.part().0);
        self
    }

    /// Acquires all locks, waiting until they are free together.
    pub fn lock(&self) -> AcquiringAll {
        AcquiringAll { locks: self.clone(), limits: Limits::default(), terms: Terms::default(), running: None }
    }

    /// Acquires all locks if they are free now; returns `None` otherwise.
    pub fn try_lock(&self) -> TryAcquiringAll {
        TryAcquiringAll { call: self.lock(), running: None }
    }

    async fn acquire_all(&self, patience: Patience, terms: Terms) -> Result<Option<MultiLockGuard>> {
        let parts = self.sorted().await?;
        let Some(first) = parts.first() else {
            return Err(Error::new(ErrorKind::InvalidArgument, "asked for no lock at all; name at least one"));
        };
        let runtime = first.target.session.core().runtime.clone();
        let deadline = patience.deadline(runtime.now());
        let left = |now: Instant| match patience {
            Patience::Try => Patience::Try,
            Patience::For(_) => Patience::For(deadline.since(now)),
            Patience::Limited { outage, .. } => Patience::Limited { wait: deadline.since(now), outage },
            Patience::Forever => Patience::Forever,
        };
        let mut busy: Option<usize> = None;
        // While it waits for one name it does not wait in the queues of the others.
        let mut waits: Vec<Wanted> = Vec::new();
        let (mut round, mut losses) = (0, 0);
        loop {
            let mut held: Vec<Option<Held>> = parts.iter().map(|_| None).collect();
            if let Some(first) = busy {
                let Part { target, claim, .. } = &parts[first];
                match acquire(target, *claim, left(runtime.now()), terms).await? {
                    Some(hold) => held[first] = Some(hold),
                    None => return Ok(None),
                }
            }
            busy = try_rest(&parts, &mut held, left(runtime.now()), terms).await?;
            let ended = |held: &&Held| busy.is_none() && !held.is_valid();
            let lost = held.iter().flatten().find(ended).map(|held| held.name().to_owned());
            if busy.is_none() && lost.is_none() {
                let mut in_order: Vec<_> = parts.iter().zip(held).filter_map(|(part, held)| Some((part.given, held?))).collect();
                in_order.sort_by_key(|(given, _)| *given);
                return Ok(Some(MultiLockGuard::new(in_order.into_iter().map(|(_, held)| held).collect())));
            }
            MultiLockGuard::new(held.into_iter().flatten().collect()).give_up().await;
            // The process stood still, or a store forgot it.
            losses += u32::from(lost.is_some());
            if let Some(name) = lost.filter(|_| losses > MOST_LOSSES) {
                let message =
                    format!("{name:?} was lost while other locks were acquired, {losses} times in all; use a longer lease");
                return Err(Error::new(ErrorKind::Lost, message));
            }
            if waits.is_empty() {
                let queues = parts.iter().filter_map(|part| part.target.queue.as_ref());
                waits.extend(queues.map(LocalQueue::wanted));
            }
            let now = runtime.now();
            if now >= deadline {
                return Ok(None);
            }
            // Two that meet again and again come apart by chance. Nothing is held meanwhile.
            if round > 0 {
                let longest = Duration::from_micros(500) * (1 << round.min(7));
                runtime.sleep_until(now.plus(runtime::jitter(Duration::ZERO, longest)).min(deadline)).await;
            }
            round += 1;
        }
    }

    /// The parts by store and name, the same order for everybody.
    async fn sorted(&self) -> Result<Vec<Part>> {
        let mut parts = Vec::with_capacity(self.parts.len());
        for (given, part) in self.parts.iter().enumerate() {
            let (target, claim) = part.clone()?;
            if target.owner.is_some() {
                let message = "a part cannot belong to an owner; take it without owned_by";
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
            parts.push(Part { store: String::new(), target, claim, given });
        }
        let one_client = parts.windows(2).all(|pair| Arc::ptr_eq(pair[0].target.session.core(), pair[1].target.session.core()));
        if !one_client {
            for part in &mut parts {
                part.store = part.target.session.core().identity().await?.to_owned();
            }
        }
        parts.sort_by(|a, b| a.place().cmp(&b.place()));
        if let Some(twice) = parts.windows(2).find(|pair| pair[0].place() == pair[1].place()) {
            let name = twice[0].target.name()?;
            return Err(Error::new(ErrorKind::InvalidArgument, format!("{name:?} is named twice; each lock can be taken once")));
        }
        Ok(parts)
    }
}

/// So often all are acquired anew because one was lost meanwhile.
const MOST_LOSSES: u32 = 3;

/// One of the locks.
struct Part {
    /// The id of its store; nothing if all are of one client.
    store: String,
    target: Target,
    claim: Claim,
    /// Its place as it was given.
    given: usize,
}

impl Part {
    fn place(&self) -> (&str, &str) {
        (&self.store, self.target.name().map_or("", |name| name.as_str()))
    }
}

/// Tries all that are not held yet, in the same order in every client, and those together that their store can take in one step; tells which one is busy.
async fn try_rest(parts: &[Part], held: &mut [Option<Held>], patience: Patience, terms: Terms) -> Result<Option<usize>> {
    // A lock that waiters of other processes should get first is waited for, but not while another one is held: that one would be released.
    let gives_way = patience != Patience::Try && held.iter().all(Option::is_none);
    let mut first = 0;
    for of_one in parts.chunk_by(|a, b| Arc::ptr_eq(a.target.session.core(), b.target.session.core())) {
        let core = of_one[0].target.session.core();
        let names = of_one.iter().map(|part| part.target.name()).collect::<Result<Vec<_>>>()?;
        for group in core.backend.atomic_groups(&names) {
            let wanted: Vec<usize> = group.into_iter().map(|at| first + at).filter(|index| held[*index].is_none()).collect();
            if core.capabilities.acquire_all {
                let group: Vec<_> = wanted.iter().map(|index| (&parts[*index].target, parts[*index].claim)).collect();
                match acquire_together(&group, patience, terms, gives_way).await? {
                    Ok(holds) => wanted.iter().zip(holds).for_each(|(index, hold)| held[*index] = Some(hold)),
                    Err(busy) => return Ok(Some(wanted[busy])),
                }
            } else {
                for index in wanted {
                    held[index] = acquire(&parts[index].target, parts[index].claim, Patience::Try, terms).await?;
                    if held[index].is_none() {
                        return Ok(Some(index));
                    }
                }
            }
        }
        first += of_one.len();
    }
    Ok(None)
}

/// A call that acquires all of several locks: `lock().timeout(…).lease(…).await`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// # let client = lockkeeper::Client::connect("memory:").await?;
/// use std::time::Duration;
/// let call = client.multi_lock(["account:7", "account:9"]).lock();
/// let both = call.outage_timeout(Duration::from_secs(1)).max_hold(Duration::from_secs(60)).await?;
/// both.release().await?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// As [`Acquiring`](super::Acquiring); `InvalidArgument` if one is named twice, or none at all; `Lost` if again and again one ended while the
/// others were acquired.
///
/// # Cancel safety
///
/// Safe at every point: what a dropped call may have acquired is released in the background.
#[must_use = "it does nothing unless awaited"]
pub struct AcquiringAll {
    locks: MultiLock,
    limits: Limits,
    terms: Terms,
    running: Running<Result<MultiLockGuard>>,
}

impl AcquiringAll {
    /// Waits at most this long for all of them together, trouble with the stores included.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.limits.timeout = Some(limit);
        self
    }

    /// Limits how long the call retries while a store does not answer: see [`Acquiring::outage_timeout`](super::Acquiring::outage_timeout).
    pub fn outage_timeout(mut self, limit: Duration) -> Self {
        self.limits.outage_timeout = Some(limit);
        self
    }

    /// Each hold ends by itself after this long, unless [extended](MultiLockGuard::extend).
    pub fn lease(mut self, lease: Duration) -> Self {
        self.terms.lease = Some(lease);
        self
    }

    /// Each hold ends after this long even though it is renewed, and with the first of them the guard is lost: see
    /// [`Acquiring::max_hold`](super::Acquiring::max_hold).
    pub fn max_hold(mut self, limit: Duration) -> Self {
        self.terms.max_hold = Some(limit);
        self
    }
}

impl Future for AcquiringAll {
    type Output = Result<MultiLockGuard>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { locks, limits, terms, running } = self.get_mut();
        let begin = || -> BoxFuture<'static, Self::Output> {
            let (locks, limits, terms) = (locks.clone(), *limits, *terms);
            Box::pin(async move {
                locks.acquire_all(limits.patience(), terms).await?.ok_or_else(|| {
                    let (count, waited) = (locks.parts.len(), limits.timeout.unwrap_or_default());
                    let message = format!("one or more of {count} locks were not free within {waited:?}");
                    Error::new(ErrorKind::Timeout, message)
                })
            })
        };
        running.get_or_insert_with(begin).as_mut().poll(cx)
    }
}

/// A call that acquires all of several locks only if they are free now: `try_lock().lease(…).await`. A busy lock is not an error but
/// `None`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// # let client = lockkeeper::Client::connect("memory:").await?;
/// let held = client.mutex("account:9").lock().await?;
/// let call = client.multi_lock(["account:7", "account:9"]).try_lock().max_hold(std::time::Duration::from_secs(60));
/// assert!(call.await?.is_none(), "one is held, so none is acquired");
/// # drop(held);
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// As [`AcquiringAll`], but never `Timeout`.
///
/// # Cancel safety
///
/// As [`AcquiringAll`].
#[must_use = "it does nothing unless awaited"]
pub struct TryAcquiringAll {
    call: AcquiringAll,
    running: Running<Result<Option<MultiLockGuard>>>,
}

impl TryAcquiringAll {
    /// Each hold ends by itself after this long, unless [extended](MultiLockGuard::extend).
    pub fn lease(self, lease: Duration) -> Self {
        Self { call: self.call.lease(lease), ..self }
    }

    /// Each hold ends after this long even though it is renewed: see [`AcquiringAll::max_hold`].
    pub fn max_hold(self, limit: Duration) -> Self {
        Self { call: self.call.max_hold(limit), ..self }
    }
}

impl Future for TryAcquiringAll {
    type Output = Result<Option<MultiLockGuard>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { call: AcquiringAll { locks, terms, .. }, running } = self.get_mut();
        let begin = || -> BoxFuture<'static, Self::Output> {
            let (locks, terms) = (locks.clone(), *terms);
            Box::pin(async move { locks.acquire_all(Patience::Try, terms).await })
        };
        running.get_or_insert_with(begin).as_mut().poll(cx)
    }
}

impl fmt::Debug for MultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.parts).finish()
    }
}

impl fmt::Debug for AcquiringAll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { locks, limits, terms, .. } = self;
        f.debug_struct("AcquiringAll").field("locks", locks).field("limits", limits).field("terms", terms).finish()
    }
}

impl fmt::Debug for TryAcquiringAll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.call.fmt(f)
    }
}
