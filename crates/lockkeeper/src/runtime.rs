//! The only access to clock, timers, spawning and randomness (clippy's `disallowed-methods` keeps it the only one), so
//! that a simulation can stand in for the machine.
#![allow(clippy::disallowed_methods, reason = "this is the only access to them")]

#[cfg(feature = "blocking")]
mod blocker;
mod caught;
#[cfg(any(feature = "etcd", feature = "redis-single", feature = "sqlite"))]
mod executor;
mod file;
mod instant;
mod park;
mod paused;
mod process;
pub(crate) mod sync;
mod within;
mod world;

#[cfg(feature = "blocking")]
pub(crate) use blocker::Blocker;
pub(crate) use caught::{caught, log};
#[cfg(lockkeeper_shuttle)]
pub(crate) use executor::Crew;
#[cfg(any(feature = "redis-single", feature = "sqlite"))]
pub(crate) use executor::spawn_if_possible;
#[cfg(any(feature = "etcd", feature = "redis-single", feature = "sqlite"))]
pub(crate) use executor::{Executor, executor};
#[cfg_attr(not(feature = "config"), allow(unused_imports, reason = "not all stores have files of keys"))]
pub(crate) use file::read_file;
pub use instant::Instant;
pub(crate) use park::park_on;
pub(crate) use paused::is_clock_paused;
pub(crate) use process::{host, user};
pub(crate) use within::within;
pub use world::{Entered, World, enter};

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::owner::ClientId;

/// One run of one machine.
#[cfg(all(feature = "sqlite", target_os = "linux"))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Boot {
    /// The machine; empty where it has no id.
    pub(crate) machine: String,
    /// Drawn by the kernel when it starts.
    pub(crate) boot: String,
}

/// A boxed future, as the traits here return it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where time, background work and chance come from.
#[derive(Clone)]
pub struct Runtime(Mode);

#[derive(Clone)]
enum Mode {
    /// The machine's boot clock, and a thread for background work.
    System,
    /// Tokio's clock (which a test can pause), and background work on that same runtime.
    Simulated { handle: tokio::runtime::Handle, origin: tokio::time::Instant },
    /// A machine of an exact simulation.
    World(Arc<dyn World>),
}

impl Runtime {
    /// The machine itself: the boot clock, and one thread for each client's background work.
    #[must_use]
    pub const fn system() -> Self {
        Self(Mode::System)
    }

    /// The tokio runtime this is called in, for everything: its clock (paused in tests) and its executor.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    #[must_use]
    pub fn simulated() -> Self {
        Self(Mode::Simulated { handle: tokio::runtime::Handle::current(), origin: tokio::time::Instant::now() })
    }

    /// A machine of an exact simulation, with clocks of its own. Only tasks of its executor may use what is made with it.
    #[must_use]
    pub fn world(world: Arc<dyn World>) -> Self {
        Self(Mode::World(world))
    }

    /// Whether a time of the other one means the same here.
    pub(crate) fn has_clock_of(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Mode::System, Mode::System) => true,
            (Mode::Simulated { handle, origin }, Mode::Simulated { handle: other, origin: begins }) => {
                handle.id() == other.id() && origin == begins
            }
            (Mode::World(world), Mode::World(other)) => Arc::ptr_eq(world, other),
            _ => false,
        }
    }

    /// The time now, for leases and deadlines.
    #[must_use]
    pub fn now(&self) -> Instant {
        match &self.0 {
            Mode::System => boot_clock(),
            // The offset keeps "an hour ago" representable.
            Mode::Simulated { origin, .. } => Instant::from_nanos(3_600_000_000_000).plus(origin.elapsed()),
            Mode::World(world) => world.now(),
        }
    }

    /// Microseconds since 1970, for tokens only: it lifts a forgotten counter above all that was handed out before.
    #[must_use]
    pub fn wall_micros(&self) -> u64 {
        match &self.0 {
            Mode::System => std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX)),
            Mode::Simulated { .. } => 1_700_000_000_000_000 + self.now().as_nanos() / 1_000,
            Mode::World(world) => world.wall_micros(),
        }
    }

    /// Ends at `when`.
    pub async fn sleep_until(&self, when: Instant) {
        if when == Instant::NEVER {
            return std::future::pending().await;
        }
        if let Mode::World(world) = &self.0 {
            return world.sleep_until(when).await;
        }
        loop {
            let left = when.since(self.now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(self.nap(left)).await;
        }
    }

    /// How long to sleep before looking at the clock again. Tokio's timers stand still while the machine is suspended, the clock of leases does
    /// not: in one piece, a sleep would end late by the time of the suspension.
    fn nap(&self, left: Duration) -> Duration {
        const LONGEST: Duration = Duration::from_secs(1);
        if self.has_own_threads() { left.min(LONGEST) } else { left }
    }

    /// Runs `work` in the background: on a thread with an executor of its own, or on the simulation's.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if the machine gives no thread.
    pub(crate) fn background<F>(&self, name: &str, work: F) -> Result<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        // Boxed as in [`spawn`].
        let work: BoxFuture<'static, ()> = Box::pin(work);
        match &self.0 {
            Mode::Simulated { handle, .. } => {
                handle.spawn(work);
            }
            Mode::World(world) => world.spawn(work),
            Mode::System => {
                let no_thread = |error: std::io::Error| {
                    Error::new(ErrorKind::Unavailable, format!("cannot start the thread that renews locks: {error}"))
                        .with_source(error)
                };
                let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_thread)?;
                let run = move || {
                    BACKGROUND.set(true);
                    executor.block_on(work);
                };
                std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(no_thread)?;
            }
        }
        Ok(())
    }

    /// Whether background work has threads of its own, so that it goes on while the caller blocks.
    pub(crate) fn has_own_threads(&self) -> bool {
        matches!(self.0, Mode::System)
    }

    /// Checks that timers work where this is called.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] outside a tokio runtime, and in one without timers.
    pub(crate) fn check_timers() -> Result<()> {
        let refused = |what: &str| Error::new(ErrorKind::Config, format!("{what}; build the tokio runtime with enable_all()"));
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(Error::new(ErrorKind::Config, "not called inside a tokio runtime; in threads use lockkeeper::blocking"));
        }
        // Tokio has no question for it, only a panic.
        let timer = std::panic::catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO)));
        timer.map_err(|_| refused("the tokio runtime has no timers"))
    }

    /// Runs `work` on a thread of its own: for calls that block.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if the machine gives no thread.
    #[cfg(feature = "sqlite")]
    pub(crate) fn thread(&self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
        std::thread::Builder::new().name(name.to_owned()).spawn(work).map(drop).map_err(|error| {
            Error::new(ErrorKind::Unavailable, format!("cannot start the thread of the store: {error}")).with_source(error)
        })
    }

    /// Which life of which machine the clock of [`Runtime::now`] counts from: only points of the same boot can be compared.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] where the machine does not tell, or shows this process another clock than its neighbours.
    #[cfg(all(feature = "sqlite", target_os = "linux"))]
    pub(crate) fn boot(&self) -> Result<Boot> {
        let read = |path: &str| std::fs::read_to_string(path).map(|text| text.trim().to_owned());
        let unsupported = |what: &str| Error::new(ErrorKind::Unsupported, format!("leases cannot be compared here: {what}"));
        if !self.has_own_threads() {
            return Ok(Boot { machine: "simulated".to_owned(), boot: self.client_id().to_string() });
        }
        let shifted = read("/proc/self/timens_offsets").unwrap_or_default();
        let own_clock = |line: &str| line.starts_with("boottime") && line.split_whitespace().skip(1).any(|offset| offset != "0");
        if shifted.lines().any(own_clock) {
            return Err(unsupported("this process lives in a time namespace with a boot clock of its own"));
        }
        let boot = read("/proc/sys/kernel/random/boot_id").map_err(|error| {
            unsupported("/proc/sys/kernel/random/boot_id cannot be read; is /proc mounted?").with_source(error)
        })?;
        Ok(Boot { machine: read("/etc/machine-id").unwrap_or_default(), boot })
    }

    /// A new random client id. In a simulation it comes from the thread's generator, so that a seed decides it.
    #[must_use]
    pub fn client_id(&self) -> ClientId {
        ClientId::from_bits(match &self.0 {
            Mode::System => uuid::Uuid::new_v4().as_u128(),
            Mode::Simulated { .. } => fastrand::u128(..),
            Mode::World(world) => u128::from(world.random()) << 64 | u128::from(world.random()),
        })
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Mode::System => "Runtime::system",
            Mode::Simulated { .. } => "Runtime::simulated",
            Mode::World(_) => "Runtime::world",
        })
    }
}

thread_local! {
    /// Whether this thread is one of our own.
    static BACKGROUND: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Whether this is a thread that runs background work: it must not wait for that work.
pub(crate) fn on_background_thread() -> bool {
    BACKGROUND.get()
}

/// The id of this process; another one after a fork. A system call, so once per call of the library and no more.
pub(crate) fn process_id() -> u32 {
    std::process::id()
}

/// Runs `task` beside the caller, on the executor the caller runs on.
pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    // Boxed, so that tokio's code for tasks is compiled once and not for each task.
    spawn_boxed(Box::pin(task));
}

/// As [`spawn`], for a task that is boxed already.
pub(crate) fn spawn_boxed(task: BoxFuture<'static, ()>) {
    match world::current() {
        Some(world) => world.spawn(task),
        None => drop(tokio::spawn(task)),
    }
}

/// Starts `task` beside the caller, to run to its end also if the caller goes away; `None` if its executor goes away.
pub(crate) fn beside<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> impl Future<Output = Option<T>> + Send {
    let (ends, ended) = tokio::sync::oneshot::channel();
    // Whoever started it may not want to know.
    spawn(async move { drop(ends.send(task.await)) });
    async { ended.await.ok() }
}

/// Lets others on this executor go on, every now and then.
#[cfg(feature = "sqlite")]
pub(crate) async fn breathe() {
    tokio::task::coop::consume_budget().await;
}

/// Lets another process that was woken on this core go first. The kernel wakes on the waker's own core although others are idle, and the waker's
/// next requests would run before the one that was waited for.
#[cfg(feature = "sqlite")]
pub(crate) fn give_way() {
    std::thread::yield_now();
}

/// Blocks this thread for so long. Only for threads of our own.
#[cfg(feature = "sqlite")]
pub(crate) fn nap(time: Duration) {
    std::thread::sleep(time);
}

/// A duration between `low` and `high`, by chance, so that many waiters do not come back in step.
pub(crate) fn jitter(low: Duration, high: Duration) -> Duration {
    let (low, high) = (low.as_nanos() as u64, high.as_nanos() as u64);
    if low >= high {
        return Duration::from_nanos(low);
    }
    Duration::from_nanos(world::current().map_or_else(|| fastrand::u64(low..high), |world| low + world.random() % (high - low)))
}

/// The clock of leases. It must count the time for which the machine sleeps: a hold whose lease ended meanwhile must not look valid.
///
/// | system | clock | counts sleep |
/// |---|---|---|
/// | Linux, Android | `CLOCK_BOOTTIME` | yes |
/// | macOS, iOS | `CLOCK_MONOTONIC` (not the clock of [`std::time::Instant`], which stands still) | yes |
/// | Windows | the performance counter, by [`std::time::Instant`] | yes |
/// | others | [`std::time::Instant`] | depends on the system |
#[cfg(any(target_os = "linux", target_os = "android"))]
fn boot_clock() -> Instant {
    nanos(rustix::time::clock_gettime(rustix::time::ClockId::Boottime))
}

/// See above.
#[cfg(target_vendor = "apple")]
fn boot_clock() -> Instant {
    nanos(rustix::time::clock_gettime(rustix::time::ClockId::Monotonic))
}

#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn nanos(time: rustix::time::Timespec) -> Instant {
    Instant::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// See above.
#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
fn boot_clock() -> Instant {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    // An offset, so that "an hour ago" stays representable.
    Instant::from_nanos(3_600_000_000_000).plus(START.get_or_init(std::time::Instant::now).elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A timer that stands still during a suspension ends at most this much late.
    #[test]
    fn no_sleep_is_longer_than_a_second_without_a_look_at_the_clock() {
        let runtime = Runtime::system();
        assert_eq!(runtime.nap(Duration::from_secs(10)), Duration::from_secs(1));
        assert_eq!(runtime.nap(Duration::from_millis(10)), Duration::from_millis(10));
    }
}
