//! The machine that the threads of a scenario run on: its clock, its timers, and threads that each run one task.
//!
//! Time stands still while anything can run, except for a microsecond per look at the clock. It jumps to the next timer when all tasks wait. So a task that
//! waits for a timer, because its wake-up was lost, shows as time that passed. Nothing in here is a step for the scheduler.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use shuttle::rand::{Rng as _, thread_rng};
use shuttle::thread::{self, Thread};
use tokio::sync::oneshot;

use crate::runtime::{BoxFuture, Entered, Instant, Runtime, World, enter};

/// Where the clock begins, so that "an hour ago" can be told.
const START: u64 = 3_600_000_000_000;

/// So long a thread may stand still: past the times after which the keeper takes back what is not picked up, and past those of requests.
const STALLS: [u64; 5] = [1, 12, 60, 600, 2_000];

/// All stalls of a schedule together, in milliseconds: no lease ends.
const MOST_STALLED: u64 = 5_000;

#[derive(Clone)]
pub(crate) struct Machine(Arc<Shared>);

struct Shared {
    now: AtomicU64,
    /// Tasks that do not wait.
    running: AtomicUsize,
    timers: Mutex<Timers>,
    /// How much time passed because all tasks waited for a timer, in nanoseconds.
    jumped: AtomicU64,
    /// A look at the clock is a stall once in so many; 0: never.
    stalls: u32,
    stalled: AtomicU64,
    /// The ends of all tasks, to be waited for.
    ends: Mutex<Vec<oneshot::Receiver<()>>>,
}

#[derive(Default)]
struct Timers {
    all: BTreeMap<(u64, u64), Waker>,
    last: u64,
}

/// One task, on a thread of its own.
struct Task {
    machine: Machine,
    thread: Thread,
    state: AtomicU8,
}

const RUNS: u8 = 0;
const WAITS: u8 = 1;
const WOKEN: u8 = 2;

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if self.state.swap(WOKEN, Ordering::SeqCst) == WAITS {
            self.machine.0.running.fetch_add(1, Ordering::SeqCst);
            self.thread.unpark();
        }
    }
}

impl Task {
    /// Waits for a wake-up, unless one came since the task began to run.
    fn rest(&self) {
        if self.state.compare_exchange(RUNS, WAITS, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.machine.ends_running();
            while self.state.load(Ordering::SeqCst) == WAITS {
                thread::park();
            }
        }
        self.state.store(RUNS, Ordering::SeqCst);
    }
}

impl Machine {
    /// Runs the scenario `body` on a new machine, and then all tasks that are left to their ends. A look at the clock is a stall once in `stalls`, if
    /// that is not 0.
    pub(crate) fn run<F: Future<Output = ()>>(stalls: u32, body: impl FnOnce(Self) -> F) {
        let shared = Shared {
            now: AtomicU64::new(START),
            running: AtomicUsize::new(1),
            timers: Mutex::default(),
            jumped: AtomicU64::new(0),
            stalls,
            stalled: AtomicU64::new(0),
            ends: Mutex::default(),
        };
        let machine = Self(Arc::new(shared));
        let _entered: Entered = enter(Arc::new(machine.clone()));
        let body = body(machine.clone());
        let ends = machine.clone();
        machine.drive(async move {
            body.await;
            while let Some(end) = ends.next_end() {
                let _ = end.await;
            }
        });
    }

    fn next_end(&self) -> Option<oneshot::Receiver<()>> {
        self.0.ends.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    pub(crate) fn runtime(&self) -> Runtime {
        Runtime::world(Arc::new(self.clone()))
    }

    /// Runs a task on a thread of its own; the answer ends with it.
    pub(crate) fn start(&self, task: impl Future<Output = ()> + Send + 'static) -> BoxFuture<'static, ()> {
        let (end, ended) = oneshot::channel();
        self.thread(task, end);
        Box::pin(async {
            // Dropped, not sent: it is the end of the task that is waited for.
            let _ = ended.await;
        })
    }

    fn thread(&self, task: impl Future<Output = ()> + Send + 'static, end: oneshot::Sender<()>) {
        let machine = self.clone();
        self.0.running.fetch_add(1, Ordering::SeqCst);
        thread::spawn(move || {
            machine.drive(async move {
                let _end = end;
                task.await;
            });
        });
    }

    /// How much time passed because all tasks waited for a timer.
    pub(crate) fn jumped(&self) -> Duration {
        Duration::from_nanos(self.0.jumped.load(Ordering::Relaxed))
    }

    /// Blocks the thread, which counts as running, until the task has ended.
    fn drive(&self, task: impl Future<Output = ()>) {
        {
            let us = Arc::new(Task { machine: self.clone(), thread: thread::current(), state: AtomicU8::new(RUNS) });
            let waker = Waker::from(Arc::clone(&us));
            let mut task = pin!(task);
            while task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                us.rest();
            }
        }
        self.ends_running();
    }

    /// One task less that runs. If it was the last one, time jumps to the next timer.
    fn ends_running(&self) {
        if self.0.running.fetch_sub(1, Ordering::SeqCst) > 1 {
            return;
        }
        while self.0.running.load(Ordering::SeqCst) == 0 {
            let Some((&(when, _), _)) = self.timers().all.first_key_value() else { return };
            let now = self.0.now.fetch_max(when, Ordering::Relaxed);
            self.0.jumped.fetch_add(when.saturating_sub(now), Ordering::Relaxed);
            self.ring();
        }
    }

    /// Wakes those whose time has come.
    fn ring(&self) {
        let now = self.0.now.load(Ordering::Relaxed);
        loop {
            let mut timers = self.timers();
            let Some(first) = timers.all.first_entry().filter(|first| first.key().0 <= now) else { return };
            let waker = first.remove();
            drop(timers);
            waker.wake();
        }
    }

    fn timers(&self) -> MutexGuard<'_, Timers> {
        self.0.timers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl World for Machine {
    fn now(&self) -> Instant {
        let mut passes = 1_000;
        if self.0.stalls > 0 && thread_rng().gen_ratio(1, self.0.stalls) {
            let millis = STALLS[thread_rng().gen_range(0..STALLS.len())];
            if self.0.stalled.fetch_add(millis, Ordering::Relaxed) + millis <= MOST_STALLED {
                passes = millis * 1_000_000;
            }
        }
        let now = self.0.now.fetch_add(passes, Ordering::Relaxed) + passes;
        self.ring();
        Instant::from_nanos(now)
    }

    fn wall_micros(&self) -> u64 {
        1_700_000_000_000_000 + self.0.now.load(Ordering::Relaxed) / 1_000
    }

    fn sleep_until(&self, when: Instant) -> BoxFuture<'static, ()> {
        Box::pin(Alarm { machine: self.clone(), when: when.as_nanos(), set: None })
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        let (end, ended) = oneshot::channel();
        self.0.ends.lock().unwrap_or_else(PoisonError::into_inner).push(ended);
        self.thread(task, end);
    }

    fn random(&self) -> u64 {
        thread_rng().r#gen()
    }
}

struct Alarm {
    machine: Machine,
    when: u64,
    set: Option<(u64, u64)>,
}

impl Future for Alarm {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.machine.0.now.load(Ordering::Relaxed) >= self.when {
            return Poll::Ready(());
        }
        let machine = self.machine.clone();
        let mut timers = machine.timers();
        timers.last += 1;
        let key = (self.when, timers.last);
        if let Some(before) = self.set.replace(key) {
            timers.all.remove(&before);
        }
        timers.all.insert(key, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let Some(key) = self.set {
            self.machine.timers().all.remove(&key);
        }
    }
}
