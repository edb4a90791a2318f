//! Executors of several tasks, which can be dropped: a batch depends on the one that its first member ran on.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use shuttle::rand::{Rng as _, thread_rng};

use crate::runtime::BoxFuture;
use crate::schedules::Flaw;
use crate::schedules::explore::flaw;

/// Tells executors apart.
pub(crate) type Executor = usize;

shuttle::thread_local! {
    static CURRENT: RefCell<Option<Crew>> = RefCell::new(None);
}

/// The executor that this runs on.
pub(crate) fn executor() -> Option<Executor> {
    CURRENT.with(|current| current.borrow().as_ref().map(|crew| Arc::as_ptr(&crew.0) as usize))
}

/// Runs `task` on the executor of the caller, if there is one.
pub(crate) fn spawn_if_possible(task: impl Future<Output = ()> + Send + 'static) {
    let crew = CURRENT.with(|current| current.borrow().clone());
    if let Some(crew) = crew {
        crew.add(Box::pin(task));
    }
}

/// The tasks of one executor. Clones are the same one.
#[derive(Clone, Default)]
pub(crate) struct Crew(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    tasks: Vec<(Arc<Ready>, BoxFuture<'static, ()>)>,
    /// The waker of the task that drives it.
    waker: Option<Waker>,
    gone: bool,
}

/// Whether a task can go on.
struct Ready {
    ready: AtomicBool,
    crew: Crew,
}

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        self.ready.store(true, Ordering::SeqCst);
        self.crew.wake();
    }
}

impl Crew {
    pub(crate) fn add(&self, task: BoxFuture<'static, ()>) {
        let ready = Arc::new(Ready { ready: AtomicBool::new(true), crew: self.clone() });
        let mut state = self.state();
        if state.gone {
            // Outside the lock: what its destructor does may come back here.
            drop(state);
            return drop(task);
        }
        state.tasks.push((ready, task));
        drop(state);
        self.wake();
    }

    /// Runs its tasks until all have ended, or it is dropped.
    pub(crate) const fn work(self) -> Working {
        Working(self)
    }

    /// Calls `poll` on this executor.
    pub(crate) fn on<T>(&self, poll: impl FnOnce() -> T) -> T {
        let before = CURRENT.with(|current| current.replace(Some(self.clone())));
        let answer = poll();
        CURRENT.with(|current| *current.borrow_mut() = before);
        answer
    }

    fn wake(&self) {
        let waker = self.state().waker.clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An executor at work; it is gone when this is dropped.
pub(crate) struct Working(Crew);

impl Future for Working {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.state().waker = Some(cx.waker().clone());
        loop {
            let mut state = self.0.state();
            let can_run: Vec<usize> =
                (0..state.tasks.len()).filter(|at| state.tasks[*at].0.ready.load(Ordering::SeqCst)).collect();
            if can_run.is_empty() {
                return if state.tasks.is_empty() { Poll::Ready(()) } else { Poll::Pending };
            }
            let (ready, mut task) = state.tasks.swap_remove(can_run[thread_rng().gen_range(0..can_run.len())]);
            drop(state);
            ready.ready.store(false, Ordering::SeqCst);
            let waker = Waker::from(Arc::clone(&ready));
            if self.0.on(|| task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending()) {
                self.0.state().tasks.push((ready, task));
            }
        }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.gone = true;
        let tasks = std::mem::take(&mut state.tasks);
        drop(state);
        if flaw() == Flaw::TasksLeaked {
            Box::leak(Box::new(tasks));
        }
    }
}
