//! The synchronizers of a client, by name.

use super::Client;
use crate::session::Owner;
use crate::sync::{CountDownLatch, CountingSemaphore, FairMutex, MultiLock, Mutex, RwLock, Semaphore};

impl Client {
    /// A lock for one holder at a time.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// # let client = lockkeeper::Client::connect("memory:").await?;
    /// let guard = client.mutex("orders:42").lock().await?;
    /// assert!(client.mutex("orders:42").try_lock().await?.is_none(), "held");
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    #[doc(alias = "getLock")]
    #[doc(alias = "getFencedLock")]
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        Mutex::new(&self.session, self.full_name(name.as_ref()))
    }

    /// A lock for one holder at a time, first come first served across processes.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// # let client = lockkeeper::Client::connect("memory:").await?;
    /// let guard = client.fair_mutex("printer").lock().await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    #[doc(alias = "getFairLock")]
    pub fn fair_mutex(&self, name: impl AsRef<str>) -> FairMutex {
        FairMutex::new(&self.session, self.full_name(name.as_ref()))
    }

    /// A lock for many readers or one writer.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// # let client = lockkeeper::Client::connect("memory:").await?;
    /// let prices = client.rwlock("prices");
    /// let (one, two) = (prices.read().await?, prices.read().await?);
    /// assert!(prices.try_write().await?.is_none(), "two readers");
    /// # Ok(()) }
    /// ```
    #[doc(alias = "getReadWriteLock")]
    pub fn rwlock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock::new(&self.session, self.full_name(name.as_ref()))
    }

    /// A semaphore of `permits` leased permits.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// # let client = lockkeeper::Client::connect("memory:").await?;
    /// let workers = client.semaphore("workers", 2);
    /// let (one, two) = (workers.acquire().await?, workers.acquire().await?);
    /// assert!(workers.try_acquire().await?.is_none(), "two at a time");
    /// # Ok(()) }
    /// ```
    #[doc(alias = "getPermitExpirableSemaphore")]
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Semaphore {
        Semaphore::new(&self.session, self.full_name(name.as_ref()), permits)
    }

    /// A bare shared number of permits.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// # let client = lockkeeper::Client::connect("memory:").await?;
    /// let stock = client.counting_semaphore("stock");
    /// stock.try_set(3).await?;
    /// assert!(stock.try_acquire(2).await?);
    /// assert_eq!(stock.available().await?, 1);
    /// # Ok(()) }
    /// ```
    #[doc(alias = "getSemaphore")]
    pub fn counting_semaphore(&self, name: impl AsRef<str>) -> CountingSemaphore {
        CountingSemaphore::new(&self.session, self.full_name(name.as_ref()))
    }

    /// A gate that opens when a number of events have happened.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// # let client = lockkeeper::Client::connect("memory:").await?;
    /// let loaded = client.latch("shards-loaded");
    /// loaded.try_set(2).await?;
    /// assert_eq!(loaded.count_down().await?, 1, "one to go");
    /// loaded.count_down().await?;
    /// loaded.wait().await?;
    /// # Ok(()) }
    /// ```
    #[doc(alias = "getCountDownLatch")]
    pub fn latch(&self, name: impl AsRef<str>) -> CountDownLatch {
        CountDownLatch::new(&self.session, self.full_name(name.as_ref()))
    }

    /// All of several mutexes of this client, or none: see [`MultiLock`], which takes locks of any kind, clients and stores.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// let client = lockkeeper::Client::connect("memory:").await?;
    /// let both = client.multi_lock(["account:7", "account:9"]).lock().await?;
    /// assert!(client.mutex("account:9").try_lock().await?.is_none(), "held");
    /// both.release().await?;
    /// # Ok(()) }
    /// ```
    #[doc(alias = "getMultiLock")]
    pub fn multi_lock<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> MultiLock {
        names.into_iter().fold(MultiLock::new(), |all, name| all.and(self.mutex(name)))
    }

    /// Creates an owner that can acquire a lock again while it holds it: see [`Owner`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
    /// let client = lockkeeper::Client::connect("memory:").await?;
    /// let me = client.owner();
    /// let mutex = client.mutex("orders").owned_by(&me);
    /// let outer = mutex.lock().await?;
    /// let inner = mutex.lock().await?; // no round trip
    /// assert_eq!(outer.token(), inner.token());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn owner(&self) -> Owner {
        Owner::new(self.session.id())
    }
}
