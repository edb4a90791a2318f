//! The small executor of the blocking façade.
//!
//! Timers and I/O run on a background thread of the client. The future itself is polled on the caller's thread, which is the
//! fastest way, except where that thread belongs to an async runtime: there a future that yields would wait for the very
//! scheduler that the call blocks, so a short-lived thread polls it instead.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use super::caught::log;
use super::park::Unpark;
use crate::error::{Error, ErrorKind, Result};

/// Runs futures to their end for callers that block.
pub(crate) struct Blocker {
    handle: tokio::runtime::Handle,
    /// Set when the warning about a call inside a task was given.
    warned: AtomicBool,
    /// Dropping it ends the background thread.
    _stop: tokio::sync::oneshot::Sender<()>,
}

impl Blocker {
    /// Starts the background thread.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if the operating system gives no thread.
    pub(crate) fn new() -> Result<Self> {
        let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_thread)?;
        let handle = executor.handle().clone();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        std::thread::Builder::new()
            .name("lockkeeper-blocking".to_owned())
            .spawn(move || {
                let _ = executor.block_on(stopped);
            })
            .map_err(no_thread)?;
        Ok(Self { handle, warned: AtomicBool::new(false), _stop: stop })
    }

    /// Blocks this thread until `future` ends. Works everywhere: on plain threads, in `spawn_blocking`, in `block_in_place` and
    /// inside tasks, where it also logs a warning, because every other task of that thread has to wait.
    ///
    /// # Errors
    ///
    /// Those of `future`; [`ErrorKind::Unavailable`] if it needs a thread and the operating system gives none.
    pub(crate) fn block_on<T: Send>(&self, future: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let mut future = pin!(future);
        let mut answer = None;
        // Without a type parameter from here on: what polls and what starts a thread is compiled once and not for each call of the façade.
        self.run(&mut std::future::poll_fn(|context| future.as_mut().poll(context).map(|ready| answer = Some(ready))))?;
        answer.expect("it has ended")
    }

    fn run(&self, future: &mut (dyn Future<Output = ()> + Send + Unpin)) -> Result<()> {
        if !on_scheduler_thread() {
            self.poll_here(future);
            return Ok(());
        }
        if !self.warned.swap(true, Ordering::Relaxed) {
            log!(
                warn,
                "blocking call on a thread of an async runtime: tasks of that thread may have to wait; \
                 use lockkeeper::Client in async code, or spawn_blocking"
            );
        }
        std::thread::scope(|scope| {
            let polling = std::thread::Builder::new().name("lockkeeper-blocking-call".to_owned());
            let ended = polling.spawn_scoped(scope, || self.poll_here(future)).map_err(no_thread)?.join();
            ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Ok(())
        })
    }

    fn poll_here(&self, future: &mut (dyn Future<Output = ()> + Send + Unpin)) {
        let _context = self.handle.enter();
        // The caller may be a task whose budget of operations is spent. A future that obeyed it would wait for the next one.
        let mut future = pin!(tokio::task::coop::unconstrained(future));
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        while future.as_mut().poll(&mut context).is_pending() {
            std::thread::park();
        }
    }
}

fn no_thread(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("cannot start a thread for blocking calls: {error}")).with_source(error)
}

/// Whether a scheduler of tokio runs on this thread. It puts off the wake-up of a future that yields until the current task has
/// returned; everywhere else the wake-up comes at once.
fn on_scheduler_thread() -> bool {
    if tokio::runtime::Handle::try_current().is_err() {
        return false;
    }
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&woken));
    let yielding = pin!(tokio::task::yield_now());
    let _ = yielding.poll(&mut Context::from_waker(&waker));
    !woken.0.load(Ordering::Relaxed)
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}
