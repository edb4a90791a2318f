//! Who carries a request out: the caller itself, because a transaction takes no more time than waking a thread and being woken by it; or else a
//! thread, because SQLite's calls block.
//!
//! The caller does not wait for another writer, nor writes the log back, which syncs: who finds the file or its connection in use leaves the request
//! to the thread, and so is the log written back. Requests are carried out in their order.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, mpsc};

use tokio::sync::oneshot;

use super::book::{Book, Ties};
use super::error;
use crate::backend::Reply;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime;

type Job = Box<dyn FnOnce(&mut Book) + Send>;

/// A connection, and the way to a thread for it, which begins with the first request that needs it and ends with the last clone.
#[derive(Clone, Debug)]
pub(super) struct Engine(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    ties: Arc<Ties>,
    desk: Arc<Desk>,
    jobs: OnceLock<mpsc::Sender<Job>>,
}

/// What the thread shares with those who ask.
#[derive(Debug)]
struct Desk {
    book: Mutex<Book>,
    /// Requests that the thread has been given and has not carried out; who comes later waits behind them.
    left: AtomicUsize,
}

/// What came of a request.
struct Done<T> {
    answer: Result<T>,
    /// To somebody in another process, who is awake now.
    has_written: bool,
    log_is_long: bool,
}

impl Desk {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread.
    fn attend(&self, inbox: &mpsc::Receiver<Job>) {
        for job in inbox {
            job(&mut self.book());
            self.left.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// What comes of `work` if it can be done now.
    fn at_once<T>(&self, work: impl FnOnce(&mut Book) -> Result<T>) -> Option<Done<T>> {
        if self.left.load(Ordering::SeqCst) > 0 {
            return None;
        }
        let mut book = match self.book.try_lock() {
            Ok(book) => book,
            Err(TryLockError::Poisoned(book)) => book.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let answer = book.in_a_hurry(work);
        // Nothing was done: another process writes.
        let busy = answer.as_ref().is_err_and(error::is_busy);
        (!busy).then(|| Done { answer, has_written: book.has_written(), log_is_long: book.log_is_long() })
    }
}

impl Engine {
    pub(super) fn new(ties: Arc<Ties>) -> Self {
        let desk = Arc::new(Desk { book: Mutex::new(Book::new(Arc::clone(&ties))), left: AtomicUsize::new(0) });
        Self(Arc::new(Inner { ties, desk, jobs: OnceLock::new() }))
    }

    pub(super) fn ties(&self) -> &Ties {
        &self.0.ties
    }

    /// Another connection to the same file.
    pub(super) fn another(&self) -> Self {
        Self::new(Arc::clone(&self.0.ties))
    }

    /// Has `work` done by the thread, without waiting for it.
    pub(super) fn send(&self, work: impl FnOnce(&mut Book) + Send + 'static) -> Result<()> {
        let Inner { ties, desk, jobs } = &*self.0;
        let jobs = match jobs.get() {
            Some(jobs) => jobs,
            None => {
                let (sender, inbox) = mpsc::channel::<Job>();
                let desk = Arc::clone(desk);
                // Where two start at once, one of the threads finds nobody who sends to it, and ends.
                ties.runtime.thread("lockkeeper-sqlite", move || desk.attend(&inbox))?;
                jobs.get_or_init(|| sender)
            }
        };
        desk.left.fetch_add(1, Ordering::SeqCst);
        jobs.send(Box::new(work)).map_err(|_| {
            desk.left.fetch_sub(1, Ordering::SeqCst);
            Error::new(ErrorKind::Unavailable, "the thread of the store has ended")
        })
    }

    /// Has `work` done, and waits for its answer.
    pub(super) fn ask<T: Send + 'static>(&self, work: impl Fn(&mut Book) -> Result<T> + Send + 'static) -> Reply<'_, T> {
        Box::pin(async move {
            // Who asks in a loop and is always answered at once would keep the executor from everybody else.
            runtime::breathe().await;
            if let Some(done) = self.0.desk.at_once(&work) {
                if done.log_is_long
                    && let Err(error) = self.send(Book::write_log_back)
                {
                    tracing::debug!(%error, "the log stays as long as it is");
                }
                if done.has_written {
                    runtime::give_way();
                }
                return done.answer;
            }
            self.leave(work).await
        })
    }

    /// Has `work` done by the thread, and waits for its answer.
    pub(super) fn leave<T: Send + 'static>(&self, work: impl FnOnce(&mut Book) -> Result<T> + Send + 'static) -> Reply<'_, T> {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            self.send(move |book| {
                // Nobody waits any more: then nobody hears.
                let _ = answer.send(work(book));
                if book.log_is_long() {
                    book.write_log_back();
                }
            })?;
            answered
                .await
                .unwrap_or_else(|_| Err(Error::new(ErrorKind::Indeterminate, "the thread of the store ended before it answered")))
        })
    }
}
