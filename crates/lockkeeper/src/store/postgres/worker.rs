//! The thread that drives the connections of a store. Callers may use any executor, and may end theirs: connections outlive it.

use std::future::Future;

use tokio::sync::{mpsc, oneshot};

use crate::error::{Error, ErrorKind, Result};
use crate::runtime::{self, BoxFuture, Runtime};

/// A thread with an executor; it ends with the last clone of this.
#[derive(Clone, Debug)]
pub(super) struct Worker(mpsc::UnboundedSender<BoxFuture<'static, ()>>);

impl Worker {
    pub(super) fn start(runtime: &Runtime) -> Result<Self> {
        let (sender, mut tasks) = mpsc::unbounded_channel::<BoxFuture<'static, ()>>();
        runtime.background("lockkeeper-postgres", async move {
            while let Some(task) = tasks.recv().await {
                runtime::spawn(task);
            }
        })?;
        Ok(Self(sender))
    }

    /// Starts a task that nobody waits for.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        // Without a thread there is no connection that the task could use.
        let _ = self.0.send(Box::pin(task));
    }

    /// Runs a task to its end, also if the caller goes away.
    pub(super) async fn run<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        self.spawn(async move {
            // The caller may have stopped waiting.
            let _ = answer.send(task.await);
        });
        answered.await.map_err(|_| ended())
    }

    /// Runs a task for as long as the caller waits. It goes on also while the caller's future is not polled: it may hold what others wait
    /// for.
    pub(super) async fn run_while_wanted<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> Result<T> {
        let (mut answer, answered) = oneshot::channel();
        self.spawn(async move {
            let done = tokio::select! {
                done = task => done,
                () = answer.closed() => return,
            };
            // The caller may have stopped waiting.
            let _ = answer.send(done);
        });
        answered.await.map_err(|_| ended())
    }
}

fn ended() -> Error {
    Error::new(ErrorKind::Indeterminate, "the thread of the postgres connections has ended")
}
