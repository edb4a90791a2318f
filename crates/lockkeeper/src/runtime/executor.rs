//! The executor that a task runs on, for what must not outlive it.

#[cfg(lockkeeper_shuttle)]
#[path = "../../../../verify/schedules/scenarios/crew.rs"]
mod crew;
#[cfg(lockkeeper_shuttle)]
pub(crate) use crew::{Crew, Executor, executor, spawn_if_possible};

/// Runs `task` beside the caller, on the executor the caller runs on; nothing where there is no executor.
#[cfg(all(not(lockkeeper_shuttle), any(feature = "redis-single", feature = "sqlite")))]
pub(crate) fn spawn_if_possible(task: impl Future<Output = ()> + Send + 'static) {
    if let Ok(executor) = tokio::runtime::Handle::try_current() {
        // Boxed as in [`spawn`](super::spawn).
        executor.spawn(Box::pin(task) as super::BoxFuture<'static, ()>);
    }
}

/// An executor, to tell it from others.
#[cfg(not(lockkeeper_shuttle))]
pub(crate) type Executor = tokio::runtime::Id;

/// The executor that this runs on.
#[cfg(not(lockkeeper_shuttle))]
pub(crate) fn executor() -> Option<Executor> {
    tokio::runtime::Handle::try_current().ok().map(|executor| executor.id())
}
