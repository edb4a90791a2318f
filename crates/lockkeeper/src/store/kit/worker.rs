//! The thread that drives the connections of a store. Callers may use any executor, and may end theirs: connections outlive it.

use std::future::Future;

use tokio::sync::{mpsc, oneshot};

use crate::error::{Error, ErrorKind, Result};
use crate::runtime::{self, BoxFuture, Runtime};

/// A thread with an executor; it ends with the last clone of this.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    tasks: mpsc::UnboundedSender<BoxFuture<'static, ()>>,
    store: &'static str,
}

impl Worker {
    /// Starts the thread of a store of this name. When the last clone is gone the thread awaits `farewell`, then ends with all its tasks.
    pub(crate) fn start(
        runtime: &Runtime,
        store: &'static str,
        farewell: impl Future<Output = ()> + Send + 'static,
    ) -> Result<Self> {
        let (tasks, mut started) = mpsc::unbounded_channel::<BoxFuture<'static, ()>>();
        runtime.background(&format!("lockkeeper-{store}"), async move {
            while let Some(task) = started.recv().await {
                runtime::spawn_boxed(task);
            }
            farewell.await;
        })?;
        Ok(Self { tasks, store })
    }

    /// Starts a task that nobody waits for.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        // Without a thread there is no connection that the task could use.
        let _ = self.tasks.send(Box::pin(task));
    }

    /// Runs a task to its end, also if the caller goes away.
    pub(crate) async fn run<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        self.spawn(async move {
            // The caller may have stopped waiting.
            let _ = answer.send(task.await);
        });
        answered.await.map_err(|_| self.ended())
    }

    /// Runs a task for as long as the caller waits. It goes on also while the caller's future is not polled: it may hold what others wait
    /// for.
    pub(crate) async fn run_while_wanted<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> Result<T> {
        let (mut answer, answered) = oneshot::channel();
        self.spawn(async move {
            let done = tokio::select! {
                biased;
                done = task => done,
                () = answer.closed() => return,
            };
            // The caller may have stopped waiting.
            let _ = answer.send(done);
        });
        answered.await.map_err(|_| self.ended())
    }

    fn ended(&self) -> Error {
        Error::new(ErrorKind::Indeterminate, format!("the thread of the {} connections has ended", self.store))
    }
}
