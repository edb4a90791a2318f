//! SQLite's calls block, so they have a thread of their own; requests go there as jobs, in their order.

use std::sync::{Arc, OnceLock, mpsc};

use tokio::sync::oneshot;

use super::book::{Book, Ties};
use crate::backend::Reply;
use crate::error::{Error, ErrorKind, Result};

type Job = Box<dyn FnOnce(&mut Book) + Send>;

/// The way to a thread with a connection; both begin with the first request and end with the last clone.
#[derive(Clone, Debug)]
pub(super) struct Engine {
    ties: Arc<Ties>,
    jobs: Arc<OnceLock<mpsc::Sender<Job>>>,
}

impl Engine {
    pub(super) fn new(ties: Arc<Ties>) -> Self {
        Self { ties, jobs: Arc::default() }
    }

    pub(super) fn ties(&self) -> &Ties {
        &self.ties
    }

    /// Another thread and connection to the same file.
    pub(super) fn another(&self) -> Self {
        Self::new(Arc::clone(&self.ties))
    }

    /// Has `work` done, without waiting for it.
    pub(super) fn send(&self, work: impl FnOnce(&mut Book) + Send + 'static) -> Result<()> {
        let jobs = match self.jobs.get() {
            Some(jobs) => jobs,
            None => {
                let (jobs, inbox) = mpsc::channel::<Job>();
                let mut book = Book::new(Arc::clone(&self.ties));
                // Where two start at once, one of the threads finds nobody who sends to it, and ends.
                self.ties.runtime.thread("lockkeeper-sqlite", move || inbox.iter().for_each(|job| job(&mut book)))?;
                self.jobs.get_or_init(|| jobs)
            }
        };
        jobs.send(Box::new(work)).map_err(|_| Error::new(ErrorKind::Unavailable, "the thread of the store has ended"))
    }

    /// Has `work` done, and waits for its answer.
    pub(super) fn ask<T: Send + 'static>(&self, work: impl FnOnce(&mut Book) -> Result<T> + Send + 'static) -> Reply<'_, T> {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            self.send(move |book| {
                // Nobody waits any more: then nobody hears.
                let _ = answer.send(work(book));
            })?;
            answered
                .await
                .unwrap_or_else(|_| Err(Error::new(ErrorKind::Indeterminate, "the thread of the store ended before it answered")))
        })
    }
}
