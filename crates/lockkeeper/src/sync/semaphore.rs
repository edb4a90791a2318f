//! A number of permits, each leased.

use std::future::Future;

use super::call::{Acquiring, Target, TryAcquiring};
use super::counting::count;
use super::permit_id::PermitId;
use super::{hold_guard, inspectable};
use crate::backend::{Claim, CountOp, Counted, Kind, SemaphoreOp};
use crate::error::{Error, ErrorKind, Result};
use crate::session::{Held, Session};

/// A fixed number of permits, each leased and renewed: permits of a crashed holder are free again when their lease ends.
///
/// The first use creates the semaphore with the size given. A handle's first request checks its size: another size than the stored
/// one is `InvalidArgument`. Later requests of the handle and its clones, and calls that wait behind another one of the process, use the size that is there, so a
/// [`resize`](Self::resize) (or Java's `addPermits`) disturbs nobody. [`any_size`](Self::any_size) makes a handle that never checks. The semaphore keeps its size when all permits are back;
/// [`remove`](Self::remove) ends it.
///
/// *Fairness:* within one process first come first served, a large request included; between processes whoever asks first.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// let client = lockkeeper::Client::connect("memory:").await?;
/// let workers = client.semaphore("workers", 3);
/// let two = workers.acquire_many(2).await?;
/// let one = workers.acquire().await?;
/// assert!(workers.try_acquire().await?.is_none());
/// two.release().await?;
/// assert_eq!(workers.available().await?, 2);
/// # drop(one);
/// # Ok(()) }
/// ```
#[doc(alias = "RPermitExpirableSemaphore")]
#[derive(Clone, Debug)]
pub struct Semaphore {
    target: Target,
    permits: u32,
}

/// Holds permits of a [`Semaphore`]. Permits are not fenced.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// # let client = lockkeeper::Client::connect("memory:").await?;
/// let two = client.semaphore("workers", 3).acquire_many(2).await?;
/// assert_eq!(two.count(), 2);
/// two.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "if unused the permits are released at once"]
#[clippy::has_significant_drop]
pub struct Permit(Held);

impl Semaphore {
    /// The semaphore `name` of `permits` permits at the session's store.
    #[doc(hidden)]
    pub fn new(session: &Session, name: impl AsRef<str>, permits: u32) -> Self {
        Self { target: Target::new(session, name).queued(Kind::Semaphore).sized(), permits }
    }

    /// The same semaphore with whatever size it has at the store: the size of this handle counts only if there is no such semaphore yet.
    ///
    /// For a process that may start after somebody has changed the size, by [`resize`](Self::resize) or by Java's `addPermits`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// let client = lockkeeper::Client::connect("memory:").await?;
    /// client.semaphore("workers", 3).resize(5).await?;
    /// assert!(client.semaphore("workers", 3).acquire().await.is_err(), "it has 5");
    /// let five = client.semaphore("workers", 3).any_size().acquire_many(5).await?;
    /// # drop(five);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn any_size(self) -> Self {
        let target = self.target.sized();
        target.size_is_checked();
        Self { target, ..self }
    }

    /// Acquires a permit, waiting until one is free.
    ///
    /// Permits are not re-entrant: a task that holds the last one and acquires another waits for itself. Use a timeout, or acquire all that
    /// are needed at once with [`acquire_many`](Self::acquire_many).
    pub fn acquire(&self) -> Acquiring<Permit> {
        self.acquire_many(1)
    }

    /// Acquires a permit if one is free now; returns `None` otherwise.
    pub fn try_acquire(&self) -> TryAcquiring<Permit> {
        self.try_acquire_many(1)
    }

    /// Acquires `count` permits together, waiting until as many are free.
    pub fn acquire_many(&self, count: u32) -> Acquiring<Permit> {
        Acquiring::new(&self.target, self.claim(count))
    }

    /// Acquires `count` permits together if they are free now; returns `None` otherwise.
    pub fn try_acquire_many(&self, count: u32) -> TryAcquiring<Permit> {
        TryAcquiring::new(&self.target, self.claim(count))
    }

    fn claim(&self, take: u32) -> Result<Claim> {
        let of = self.permits;
        let complaint = match (take, of) {
            (_, 0) => "a semaphore needs at least 1 permit".to_owned(),
            (0, _) => format!("cannot take 0 permits; take 1 to {of}"),
            (take, of) if take > of && !self.target.is_size_checked() => {
                format!("cannot take {take} permits of a semaphore that has {of}")
            }
            _ => return Ok(Claim::Permits { take, of }),
        };
        Err(Error::new(ErrorKind::InvalidArgument, complaint))
    }

    /// How many permits are free; all of them if the semaphore does not exist yet. Negative after a resize below what is held.
    ///
    /// # Errors
    ///
    /// `WrongKind` if another kind lives there; the store's errors.
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    pub fn available(&self) -> impl Future<Output = Result<i64>> + Send + use<> {
        let (counted, permits) = (self.count(SemaphoreOp::Read), self.permits);
        async move {
            let read = counted.await?;
            Ok(if read.done { read.value } else { i64::from(permits) })
        }
    }

    /// Sets how many permits there are in all, and gives the handle for that. Permits above it stay with their holders and
    /// are not given out again.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for zero; `WrongKind` if another kind lives there; the store's errors.
    ///
    /// # Cancel safety
    ///
    /// It may or may not have happened.
    pub fn resize(&self, permits: u32) -> impl Future<Output = Result<Self>> + Send + use<> {
        let (counted, target) = (self.count(SemaphoreOp::Resize(permits)), self.target.clone());
        async move {
            if permits == 0 {
                return Err(Error::new(ErrorKind::InvalidArgument, "a semaphore needs at least 1 permit; remove() ends it"));
            }
            counted.await?;
            Ok(Self { target, permits })
        }
    }

    /// Removes the semaphore if nobody holds a permit; tells whether it did.
    ///
    /// # Errors
    ///
    /// `WrongKind` if another kind lives there; the store's errors.
    ///
    /// # Cancel safety
    ///
    /// It may or may not have happened.
    pub fn remove(&self) -> impl Future<Output = Result<bool>> + Send + use<> {
        let counted = self.count(SemaphoreOp::Remove);
        async move { Ok(counted.await?.done) }
    }

    fn count(&self, op: SemaphoreOp) -> impl Future<Output = Result<Counted>> + Send + use<> {
        count(&self.target, CountOp::Semaphore(op))
    }
}

impl Permit {
    /// How many permits these are.
    #[must_use]
    pub fn count(&self) -> u32 {
        if let Claim::Permits { take, .. } = self.0.claim() { take } else { 0 }
    }

    /// Leaves the permits held without a guard, until their lease ends or they are [adopted](crate::Client::adopt): by this process or
    /// another one. They are no longer renewed.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// let client = lockkeeper::Client::connect("memory:jobs").await?;
    /// let permit = client.semaphore("jobs", 1).acquire().await?;
    /// let id = permit.detach().to_string(); // send it to the worker
    ///
    /// let worker = lockkeeper::Client::connect("memory:jobs").await?;
    /// let permit = worker.adopt(id.parse()?).await?;
    /// permit.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use = "the id is the only way to the permits before their lease ends"]
    #[doc(alias = "getId")]
    pub fn detach(self) -> PermitId {
        let id = PermitId::new(self.0.full_name().clone(), self.0.owner(), self.0.claim());
        self.0.detach();
        id
    }
}

inspectable!(Semaphore, Kind::Semaphore, |this| &this.target);
hold_guard!(Permit);
