//! A simulated machine in place of the real one: its clocks, timers, tasks and chance.
//!
//! The executor of a simulation [enters](enter) the world of a task while it polls the task. What has no [`Runtime`](super::Runtime) at hand (a
//! time limit, a task that is spawned, a pause drawn by chance) finds the world there, as it finds tokio's executor otherwise.

use std::cell::RefCell;
use std::sync::Arc;

use super::{BoxFuture, Instant};

/// A simulated machine. Its clock may differ from that of others, run faster or slower, and be set.
pub trait World: Send + Sync + 'static {
    /// The clock of leases.
    fn now(&self) -> Instant;

    /// The wall clock, in microseconds since 1970.
    fn wall_micros(&self) -> u64;

    /// Ends when the clock of leases shows `when`.
    fn sleep_until(&self, when: Instant) -> BoxFuture<'static, ()>;

    /// Runs a task on this machine.
    fn spawn(&self, task: BoxFuture<'static, ()>);

    /// A number by chance.
    fn random(&self) -> u64;
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<dyn World>>> = const { RefCell::new(None) };
}

/// The world whose task is polled on this thread; `None` on a real machine.
pub(super) fn current() -> Option<Arc<dyn World>> {
    CURRENT.with_borrow(Clone::clone)
}

/// Makes `world` the current one of this thread until the answer is dropped.
pub fn enter(world: Arc<dyn World>) -> Entered {
    Entered(CURRENT.replace(Some(world)))
}

/// See [`enter`].
#[must_use]
pub struct Entered(Option<Arc<dyn World>>);

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

impl std::fmt::Debug for Entered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Entered")
    }
}
