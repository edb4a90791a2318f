//! The same for threads: the same types, no `async`, and the thread is the owner, so a thread may acquire a lock again that it holds.
//!
//! Every call runs the asynchronous one to its end on the caller's thread, with timers and I/O on one background thread of the
//! client. Inside a task it works too, but it blocks the thread of the runtime and logs a warning: use
//! [`lockkeeper::Client`](crate::Client) there, or `spawn_blocking`.
//!
//! ```
//! use std::time::Duration;
//! use lockkeeper::blocking::Client;
//!
//! let client = Client::connect("memory:")?;
//! let mutex = client.mutex("orders:42");
//! let guard = mutex.lock_with(|call| call.timeout(Duration::from_secs(3)))?;
//! let again = mutex.lock()?; // the same thread: no round trip
//! println!("token {:?}", again.token());
//! # drop((guard, again));
//! client.close()?;
//! # Ok::<(), lockkeeper::Error>(())
//! ```
//!
//! Options are given to the calls whose name ends in `_with`:
//!
//! ```
//! use std::time::Duration;
//! use lockkeeper::blocking::Client;
//!
//! let client = Client::build(lockkeeper::Client::builder().program("shop"), "memory:")?;
//! println!("{} at {}: connected: {}", client.id(), client.url(), client.is_connected());
//! let mutex = client.mutex("orders");
//! let guard = mutex.try_lock_with(|call| call.lease(Duration::from_secs(10)))?.expect("nobody holds it");
//! guard.extend(Duration::from_secs(20))?;
//! assert!(mutex.is_locked()? && mutex.holders()?.len() == 1);
//! assert!(client.inspect("orders")?.is_some());
//! client.force_release("orders")?;
//!
//! let printers = client.semaphore("printers", 3);
//! let two = printers.acquire_many_with(2, |call| call.timeout(Duration::from_secs(3)))?;
//! assert!(printers.try_acquire_many(2)?.is_none());
//! two.release()?;
//! assert!(printers.resize(5)?.remove()?);
//!
//! let stock = client.counting_semaphore("stock");
//! stock.try_set(1)?;
//! stock.acquire_with(1, |call| call.timeout(Duration::from_secs(3)))?;
//! let parts = client.latch("parts");
//! parts.wait_with(|call| call.timeout(Duration::from_secs(3)))?; // nothing to wait for
//! # Ok::<(), lockkeeper::Error>(())
//! ```

mod counts;
mod gate;
mod guard;
mod list;
mod locks;

pub use counts::{CountDownLatch, CountingSemaphore};
pub use gate::Gate;
pub use guard::LockGuard;
pub use list::ListStream;
pub use locks::{FairMutex, MultiLock, Mutex, RwLock, Semaphore};

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Weak};

use crate::backend::{Forced, Snapshot};
use crate::client::{self, Examination};
use crate::error::{ErrorKind, Result};
use crate::owner::ClientId;
use crate::runtime::Blocker;
use crate::session::Owner;

/// A client of one store, for threads. Cheap to clone.
///
/// Its calls block the thread: in a task use [`lockkeeper::Client`](crate::Client).
///
/// ```
/// use lockkeeper::blocking::Client;
///
/// let client = Client::connect("memory:")?; // or Client::from_env()?
/// let shop = client.with_prefix("shop:");
/// let total = shop.with_lock("orders", || 40 + 2)?;
/// let printed = shop.fair_mutex("printer").lock()?;
/// for held in client.list("shop:*")? {
///     println!("{} is held by {}", held.name, held.holders[0].owner);
/// }
/// assert!(client.list_with("shop:*", |list| list.limit(10))?.len() <= 10);
/// assert!(client.sql_fence(&printed).is_err(), "memory: is no SQL database");
/// printed.release()?;
/// println!("{total} at {}, findings: {:?}", client.url(), Client::examine(client.url())?.findings);
/// client.close()?;
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[derive(Clone)]
pub struct Client {
    inner: client::Client,
    blocker: Arc<Blocker>,
}

thread_local! {
    /// The owner that this thread is at each client.
    static OWNERS: RefCell<HashMap<ClientId, (Weak<Blocker>, Owner)>> = RefCell::default();
}

impl Client {
    /// Connects to the store at `url`; see [`lockkeeper::Client::connect`](crate::Client::connect).
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// ```
    /// let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// client.close()?;
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn connect(url: impl AsRef<str>) -> Result<Self> {
        Self::build(client::Client::builder(), url)
    }

    /// Connects with other settings than the default ones.
    ///
    /// # Errors
    ///
    /// As [`Client::connect`], and `InvalidArgument` for settings that the store cannot keep.
    ///
    /// ```
    /// let builder = lockkeeper::Client::builder().program("mailer");
    /// let client = lockkeeper::blocking::Client::build(builder, "memory:")?;
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn build(builder: client::Builder, url: impl AsRef<str>) -> Result<Self> {
        let blocker = Arc::new(Blocker::new()?);
        let inner = blocker.block_on(builder.connect(url.as_ref()))?;
        Ok(Self { inner, blocker })
    }

    /// The same client, with `prefix` put before every name that is given to it.
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// assert_eq!(client.with_prefix("shop:").mutex("orders").lock()?.name(), "shop:orders");
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    #[must_use]
    pub fn with_prefix(&self, prefix: impl AsRef<str>) -> Self {
        Self { inner: self.inner.with_prefix(prefix), blocker: Arc::clone(&self.blocker) }
    }

    /// A lock for one holder at a time.
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// let guard = client.mutex("orders:42").lock()?;
    /// guard.release()?;
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        Mutex::new(self, self.inner.mutex(name))
    }

    /// A lock for one holder at a time, first come first served across processes.
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// let turn = client.fair_mutex("printer").lock()?;
    /// turn.release()?;
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn fair_mutex(&self, name: impl AsRef<str>) -> FairMutex {
        FairMutex::new(self, self.inner.fair_mutex(name))
    }

    /// A lock for many readers or one writer.
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// let reader = client.rwlock("prices").read()?;
    /// reader.release()?;
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn rwlock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock::new(self, self.inner.rwlock(name))
    }

    /// A semaphore of `permits` leased permits.
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// let permit = client.semaphore("workers", 2).acquire()?;
    /// permit.release()?;
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Semaphore {
        Semaphore::new(self, self.inner.semaphore(name, permits))
    }

    /// All of several mutexes, or none.
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// let both = client.multi_lock(["account:7", "account:9"]).lock()?;
    /// both.release()?;
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn multi_lock<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> MultiLock {
        MultiLock::new(self, self.inner.multi_lock(names))
    }

    /// A bare shared number of permits.
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// assert!(client.counting_semaphore("stock").try_set(3)?);
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn counting_semaphore(&self, name: impl AsRef<str>) -> CountingSemaphore {
        CountingSemaphore::new(self, self.inner.counting_semaphore(name))
    }

    /// A gate that opens when a number of events have happened.
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// client.latch("parts").wait()?; // nothing to wait for
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn latch(&self, name: impl AsRef<str>) -> CountDownLatch {
        CountDownLatch::new(self, self.inner.latch(name))
    }

    /// What is known about one name; see [`lockkeeper::Client::inspect`](crate::Client::inspect).
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// assert!(client.inspect("orders:42")?.is_none(), "nobody holds it");
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn inspect(&self, name: impl AsRef<str>) -> Result<Option<Snapshot>> {
        self.block_on(self.inner.inspect(name.as_ref()))
    }

    /// Releases a name by force; see [`lockkeeper::Client::force_release`](crate::Client::force_release).
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// let guard = client.mutex("orders:42").lock()?;
    /// assert_eq!(client.force_release("orders:42")?.from.len(), 1);
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn force_release(&self, name: impl AsRef<str>) -> Result<Forced> {
        self.block_on(self.inner.force_release(name.as_ref()))
    }

    /// Releases everything that this client holds, and ends it and all its clones; see
    /// [`lockkeeper::Client::close`](crate::Client::close).
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// client.close()?;
    /// assert!(client.mutex("orders:42").lock().is_err(), "it has ended");
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn close(&self) -> Result<()> {
        self.block_on(self.inner.close())
    }

    /// Runs `work` while it holds the mutex `name`.
    ///
    /// # Errors
    ///
    /// Those of [`Mutex::lock`]; `Lost` if the hold was found lost when `work` had ended.
    ///
    /// ```
    /// # let client = lockkeeper::blocking::Client::connect("memory:")?;
    /// assert_eq!(client.with_lock("orders:42", || 1 + 1)?, 2);
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn with_lock<T>(&self, name: impl AsRef<str>, work: impl FnOnce() -> T) -> Result<T> {
        let guard = self.mutex(name).lock()?;
        let output = work();
        match guard.release() {
            Err(error) if error.kind() == ErrorKind::Lost => Err(error),
            _ => Ok(output),
        }
    }

    /// Connects to the store that `LOCKKEEPER_STORE` names; see [`lockkeeper::Client::from_env`](crate::Client::from_env).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn from_env() -> Result<Self> {
        Self::connect(client::store_from_env()?)
    }

    /// Checks whether locks are safe at the store; see [`lockkeeper::Client::examine`](crate::Client::examine).
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// ```
    /// println!("{:?}", lockkeeper::blocking::Client::examine("memory:")?.findings);
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn examine(url: impl AsRef<str>) -> Result<Examination> {
        Blocker::new()?.block_on(client::Client::examine(url.as_ref()))
    }

    /// Whether the store answered the last request; see [`lockkeeper::Client::is_connected`](crate::Client::is_connected).
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.inner.is_connected()
    }

    /// This client's id.
    #[must_use]
    pub fn id(&self) -> ClientId {
        self.inner.id()
    }

    /// The store's URL, without its password.
    #[must_use]
    pub fn url(&self) -> &str {
        self.inner.url()
    }

    fn block_on<T: Send>(&self, future: impl Future<Output = Result<T>> + Send) -> Result<T> {
        self.blocker.block_on(future)
    }

    /// The owner that this thread is at this client.
    fn thread(&self) -> Owner {
        OWNERS.with_borrow_mut(|owners| {
            if let Some((_, owner)) = owners.get(&self.inner.id()) {
                return owner.clone();
            }
            // A thread outlives its clients: forget those that are gone.
            owners.retain(|_, (client, _)| client.strong_count() > 0);
            let owner = self.inner.owner();
            owners.insert(self.inner.id(), (Arc::downgrade(&self.blocker), owner.clone()));
            owner
        })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::Client").field(&self.inner).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_forgets_the_clients_that_are_gone() {
        let stays = Client::connect("memory:").unwrap();
        stays.mutex("m").lock().unwrap().release().unwrap();
        for _ in 0..100 {
            let client = Client::connect("memory:").unwrap();
            client.mutex("m").lock().unwrap().release().unwrap();
            let known = OWNERS.with_borrow(HashMap::len);
            assert!(known <= 3, "{known} clients are known, and two are there");
        }
        let owner = stays.thread();
        assert!(OWNERS.with_borrow(|owners| owners.contains_key(&stays.id())), "{owner:?} of a client that is there");
    }
}
