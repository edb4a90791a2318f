//! What is counted: each call runs the asynchronous one to its end.

use std::future::IntoFuture;

use super::Client;
use crate::error::Result;
use crate::sync::{self, WaitCall};

/// A bare shared number of permits; see [`lockkeeper::CountingSemaphore`](crate::CountingSemaphore).
///
/// ```
/// # let client = lockkeeper::blocking::Client::connect("memory:")?;
/// let stock = client.counting_semaphore("stock");
/// stock.try_set(10)?;
/// stock.acquire(2)?;
/// assert!(!stock.try_acquire(9)?, "there are 8");
/// assert_eq!((stock.release(1)?, stock.add(1)?, stock.available()?), (9, 10, 10));
/// assert_eq!(stock.drain()?, 10);
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CountingSemaphore {
    inner: sync::CountingSemaphore,
    client: Client,
}

/// A gate that opens when a number of events have happened; see [`lockkeeper::CountDownLatch`](crate::CountDownLatch).
///
/// ```
/// # let client = lockkeeper::blocking::Client::connect("memory:")?;
/// let parts = client.latch("parts");
/// parts.try_set(2)?;
/// assert_eq!((parts.count_down()?, parts.count()?), (1, 1));
/// parts.count_down()?;
/// parts.wait()?; // until the last part is there
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CountDownLatch {
    inner: sync::CountDownLatch,
    client: Client,
}

/// One method per line: its name, its arguments, what it gives. Documented and failing as the asynchronous one of that name.
macro_rules! same {
    ($handle:ident: $($(#[$doc:meta])* $method:ident($($argument:ident: $type:ty),*) -> $output:ty;)*) => {
        impl $handle {
            pub(super) fn new(client: &Client, inner: sync::$handle) -> Self {
                Self { inner, client: client.clone() }
            }

            $(
                $(#[$doc])*
                ///
                /// # Errors
                ///
                /// As the asynchronous method of this name.
                pub fn $method(&self, $($argument: $type),*) -> Result<$output> {
                    self.client.block_on(self.inner.$method($($argument),*))
                }
            )*
        }
    };
}

same! { CountingSemaphore:
    /// Takes `permits` if there are as many now; tells whether it did.
    try_acquire(permits: u32) -> bool;
    /// Adds `permits` and wakes those who wait; gives the number afterwards.
    release(permits: u32) -> i64;
    /// Sets the number, only if it was never set; tells whether it did.
    try_set(permits: u32) -> bool;
    /// Adds to the number, or takes away also below zero; gives the number afterwards.
    add(permits: i32) -> i64;
    /// Takes all there are; gives how many that were.
    drain() -> i64;
    /// How many there are.
    available() -> i64;
    /// Removes it; tells whether it was there.
    remove() -> bool;
}

same! { CountDownLatch:
    /// Closes the latch with `count` events to go, only if it is open; tells whether it did.
    try_set(count: u32) -> bool;
    /// One event happened; gives how many are still to go.
    count_down() -> u32;
    /// How many events are still to go; 0 is open.
    count() -> u32;
    /// Opens the latch; tells whether it was closed.
    remove() -> bool;
}

impl CountingSemaphore {
    /// Acquires `permits`, waiting until there are as many.
    ///
    /// # Errors
    ///
    /// As [`WaitCall`](crate::sync::WaitCall).
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// let stock = client.counting_semaphore("stock");
    /// stock.try_set(3)?;
    /// stock.acquire(2)?;
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn acquire(&self, permits: u32) -> Result<()> {
        self.acquire_with(permits, |call| call)
    }

    /// Acquires `permits` with options: `|call| call.timeout(limit)`.
    ///
    /// # Errors
    ///
    /// As [`WaitCall`](crate::sync::WaitCall).
    pub fn acquire_with(&self, permits: u32, options: impl FnOnce(WaitCall) -> WaitCall) -> Result<()> {
        self.client.block_on(options(self.inner.acquire(permits)).into_future())
    }
}

impl CountDownLatch {
    /// Waits until the latch is open.
    ///
    /// # Errors
    ///
    /// As [`WaitCall`](crate::sync::WaitCall).
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// let loaded = client.latch("shards-loaded");
    /// loaded.try_set(1)?;
    /// loaded.count_down()?;
    /// loaded.wait()?;
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn wait(&self) -> Result<()> {
        self.wait_with(|call| call)
    }

    /// Waits until the latch is open, with options: `|call| call.timeout(limit)`.
    ///
    /// # Errors
    ///
    /// As [`WaitCall`](crate::sync::WaitCall).
    pub fn wait_with(&self, options: impl FnOnce(WaitCall) -> WaitCall) -> Result<()> {
        self.client.block_on(options(self.inner.wait()).into_future())
    }
}
