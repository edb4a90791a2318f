//! Where a request runs: on the caller's thread, because a transaction takes no longer than waking a thread and being woken by it; or else
//! on a thread of the store, because SQLite's calls block.
//!
//! The caller's thread neither waits for another writer nor checkpoints, which syncs: where the file or the connection is in use, the
//! thread of the store takes over. Requests are carried out in their order.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, mpsc};

use tokio::sync::oneshot;

use super::connection::{Database, Shared};
use super::error;
use crate::backend::Reply;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::{self, log};

type Job = Box<dyn FnOnce(&mut Database) + Send>;

/// A connection, and a thread for it, which starts with the first request that needs it and ends with the last clone.
#[derive(Clone, Debug)]
pub(super) struct Worker(Arc<WorkerState>);

#[derive(Debug)]
struct WorkerState {
    shared: Arc<Shared>,
    queue: Arc<Queue>,
    jobs: OnceLock<mpsc::Sender<Job>>,
}

/// What the thread shares with the callers.
#[derive(Debug)]
struct Queue {
    database: Mutex<Database>,
    /// Requests that the thread has not yet carried out; later ones queue behind them.
    left: AtomicUsize,
}

/// What came of a request.
struct Done<T> {
    answer: Result<T>,
    /// A waiter in another process was woken.
    woke_others: bool,
    wal_is_long: bool,
}

impl Queue {
    fn database(&self) -> MutexGuard<'_, Database> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread.
    fn work_off(&self, inbox: &mpsc::Receiver<Job>) {
        for job in inbox {
            job(&mut self.database());
            self.left.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Does `work` if that is possible without waiting.
    fn try_now<T>(&self, work: impl FnOnce(&mut Database) -> Result<T>) -> Option<Done<T>> {
        if self.left.load(Ordering::SeqCst) > 0 {
            return None;
        }
        let mut database = match self.database.try_lock() {
            Ok(database) => database,
            Err(TryLockError::Poisoned(database)) => database.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let answer = database.without_waiting(work);
        // Another process writes, and nothing was done.
        let busy = answer.as_ref().is_err_and(error::is_busy);
        (!busy).then(|| Done { answer, woke_others: database.take_woke_others(), wal_is_long: database.wal_is_long() })
    }
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let database = Mutex::new(Database::new(Arc::clone(&shared)));
        let queue = Arc::new(Queue { database, left: AtomicUsize::new(0) });
        Self(Arc::new(WorkerState { shared, queue, jobs: OnceLock::new() }))
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.0.shared
    }

    /// Another connection to the same file.
    pub(super) fn second_connection(&self) -> Self {
        Self::new(Arc::clone(&self.0.shared))
    }

    /// Has the thread do `work`, without waiting for it.
    pub(super) fn spawn(&self, work: impl FnOnce(&mut Database) + Send + 'static) -> Result<()> {
        let WorkerState { shared, queue, jobs } = &*self.0;
        let jobs = match jobs.get() {
            Some(jobs) => jobs,
            None => {
                let (sender, inbox) = mpsc::channel::<Job>();
                let queue = Arc::clone(queue);
                // If two start at once, one of them has no sender, and ends.
                shared.runtime.thread("lockkeeper-sqlite", move || queue.work_off(&inbox))?;
                jobs.get_or_init(|| sender)
            }
        };
        queue.left.fetch_add(1, Ordering::SeqCst);
        jobs.send(Box::new(work)).map_err(|_| {
            queue.left.fetch_sub(1, Ordering::SeqCst);
            Error::new(ErrorKind::Unavailable, "the sqlite worker thread has ended")
        })
    }

    /// Does `work`, and waits for its answer.
    pub(super) fn run<T: Send + 'static>(&self, work: impl Fn(&mut Database) -> Result<T> + Send + 'static) -> Reply<'_, T> {
        Box::pin(async move {
            // A loop of requests that are all answered at once would otherwise never let other tasks run.
            runtime::breathe().await;
            if let Some(done) = self.0.queue.try_now(&work) {
                if done.wal_is_long
                    && let Err(error) = self.spawn(Database::checkpoint)
                {
                    log!(debug, %error, "no checkpoint; the log grows");
                }
                if done.woke_others {
                    runtime::give_way();
                }
                return done.answer;
            }
            self.run_on_thread(work).await
        })
    }

    /// Has the thread do `work`, and waits for its answer.
    pub(super) fn run_on_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Database) -> Result<T> + Send + 'static,
    ) -> Reply<'_, T> {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            self.spawn(move |database| {
                // The caller may have stopped waiting.
                let _ = answer.send(work(database));
                if database.wal_is_long() {
                    database.checkpoint();
                }
            })?;
            answered.await.unwrap_or_else(|_| {
                Err(Error::new(ErrorKind::Indeterminate, "the sqlite worker thread ended before it answered"))
            })
        })
    }
}
