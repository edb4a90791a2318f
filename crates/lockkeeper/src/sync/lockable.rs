//! What can be a part of a multi-lock.

use super::call::{Acquiring, Target};
use super::guard::{Guard, sealed::Sealed};
use super::{FairMutex, Mutex};
use crate::backend::Claim;
use crate::error::Result;

/// What can be a part of a [`MultiLock`](crate::MultiLock): a [`Mutex`] or a [`FairMutex`], also of `lockkeeper::blocking`, or the call that acquires something alone,
/// such as `rwlock.read()` or `semaphore.acquire_many(2)`, without limits of its own.
///
/// It cannot be implemented outside this crate.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// # let client = lockkeeper::Client::connect("memory:").await?;
/// let (stock, workers) = (client.rwlock("stock"), client.semaphore("workers", 3));
/// let all = lockkeeper::MultiLock::new().and(client.mutex("order")).and(stock.read()).and(workers.acquire_many(2));
/// all.lock().await?.release().await?;
/// # Ok(()) }
/// ```
pub trait Lockable: Sealed {
    #[doc(hidden)]
    fn part(&self) -> Part;
}

/// One lock of several: what to acquire, or why that cannot be asked.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct Part(pub(super) Result<(Target, Claim)>);

impl Sealed for Mutex {}

impl Lockable for Mutex {
    fn part(&self) -> Part {
        Part(self.lock().part())
    }
}

impl Sealed for FairMutex {}

impl Lockable for FairMutex {
    fn part(&self) -> Part {
        Part(self.lock().part())
    }
}

impl<G> Sealed for Acquiring<G> {}

impl<G: Guard> Lockable for Acquiring<G> {
    fn part(&self) -> Part {
        Part(self.part())
    }
}

impl<L: Lockable + ?Sized> Sealed for &L {}

impl<L: Lockable + ?Sized> Lockable for &L {
    fn part(&self) -> Part {
        (**self).part()
    }
}
