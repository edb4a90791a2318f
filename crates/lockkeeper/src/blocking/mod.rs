//! The same for threads: the same nouns, no `async`, and the thread is the owner, so a thread may take a lock again that it holds.
//!
//! A thin face: every call runs the asynchronous one to its end on the caller's thread, with timers and I/O on one thread of the
//! client's own.
//!
//! ```
//! use std::time::Duration;
//! use lockkeeper::blocking::Client;
//!
//! let client = Client::connect("memory:")?;
//! let mutex = client.mutex("orders:42");
//! let guard = mutex.lock_with(|lock| lock.wait(Duration::from_secs(3)))?;
//! let again = mutex.lock()?; // the same thread: no round trip
//! println!("token {}", again.token());
//! # drop((guard, again));
//! client.close()?;
//! # Ok::<(), lockkeeper::Error>(())
//! ```

mod counts;
mod locks;

pub use counts::{CountDownLatch, CountingSemaphore};
pub use locks::{FairMutex, Guard, MultiLock, Mutex, RwLock, Semaphore};

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use crate::backend::{Forced, Snapshot};
use crate::client;
use crate::error::Result;
use crate::owner::ClientId;
use crate::runtime::Blocker;
use crate::session::Owner;

/// A client of one store, for threads. Cheap to clone.
///
/// Its calls block the thread: in a task use [`lockkeeper::Client`](crate::Client).
#[derive(Clone)]
pub struct Client {
    inner: client::Client,
    blocker: Arc<Blocker>,
}

impl Client {
    /// Connects to the store at `url`; see [`lockkeeper::Client::connect`](crate::Client::connect).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn connect(url: impl AsRef<str>) -> Result<Self> {
        Self::build(client::Client::builder(), url)
    }

    /// Connects with other settings than the default ones.
    ///
    /// # Errors
    ///
    /// As [`Client::connect`], and `InvalidArgument` for settings that the store cannot keep.
    pub fn build(builder: client::Builder, url: impl AsRef<str>) -> Result<Self> {
        let blocker = Arc::new(Blocker::new()?);
        let inner = blocker.block_on(builder.connect(url.as_ref()))?;
        Ok(Self { inner, blocker })
    }

    /// The same client, with `prefix` put before every name that is given to it.
    #[must_use]
    pub fn with_prefix(&self, prefix: impl AsRef<str>) -> Self {
        Self { inner: self.inner.with_prefix(prefix), blocker: Arc::clone(&self.blocker) }
    }

    /// A lock for one holder at a time.
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        Mutex::new(self, self.inner.mutex(name))
    }

    /// A lock for one holder at a time, first come first served across processes.
    pub fn fair_mutex(&self, name: impl AsRef<str>) -> FairMutex {
        FairMutex::new(self, self.inner.fair_mutex(name))
    }

    /// A lock for many readers or one writer.
    pub fn rwlock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock::new(self, self.inner.rwlock(name))
    }

    /// A semaphore of `permits` leased permits.
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Semaphore {
        Semaphore::new(self, self.inner.semaphore(name, permits))
    }

    /// All of several mutexes, or none.
    pub fn multi_lock<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> MultiLock {
        MultiLock::new(self, self.inner.multi_lock(names))
    }

    /// A bare shared number of permits.
    pub fn counting_semaphore(&self, name: impl AsRef<str>) -> CountingSemaphore {
        CountingSemaphore::new(self, self.inner.counting_semaphore(name))
    }

    /// A gate that opens when a number of events have happened.
    pub fn latch(&self, name: impl AsRef<str>) -> CountDownLatch {
        CountDownLatch::new(self, self.inner.latch(name))
    }

    /// What is known about one name; see [`lockkeeper::Client::inspect`](crate::Client::inspect).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn inspect(&self, name: impl AsRef<str>) -> Result<Option<Snapshot>> {
        self.block_on(self.inner.inspect(name.as_ref()))
    }

    /// Everything whose name matches `pattern`; see [`lockkeeper::Client::list`](crate::Client::list).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn list(&self, pattern: impl AsRef<str>) -> Result<Vec<Snapshot>> {
        self.block_on(self.inner.list(pattern.as_ref()))
    }

    /// Takes a name from whoever holds it; see [`lockkeeper::Client::force_release`](crate::Client::force_release).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn force_release(&self, name: impl AsRef<str>) -> Result<Forced> {
        self.block_on(self.inner.force_release(name.as_ref()))
    }

    /// Gives back everything that this client holds, and ends it and all its clones.
    ///
    /// # Errors
    ///
    /// `Unavailable` if something could not be given back in time; its lease ends it.
    pub fn close(&self) -> Result<()> {
        self.block_on(self.inner.close())
    }

    fn block_on<T: Send>(&self, future: impl Future<Output = Result<T>> + Send) -> Result<T> {
        self.blocker.block_on(future)
    }

    /// The owner that this thread is at this client.
    fn thread(&self) -> Owner {
        thread_local! {
            static OWNERS: RefCell<HashMap<ClientId, Owner>> = RefCell::default();
        }
        OWNERS.with_borrow_mut(|owners| owners.entry(self.inner.id()).or_insert_with(|| self.inner.owner()).clone())
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::Client").field(&self.inner).finish()
    }
}
