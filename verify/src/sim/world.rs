//! The simulated world: one thread, one true time, and nodes whose clocks, tasks and chance all follow from the seed.
//!
//! Of all tasks that can run, the seed picks the next. Time stands still while tasks run, except for what each poll costs, and jumps to the
//! next timer when none can. A node that is stalled is not polled, while its clock goes on. A node that crashed is never polled again; its futures
//! are kept until the history ends, because a real crash runs no destructor.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use lockkeeper::runtime::{BoxFuture, Instant, Runtime, World, enter};

/// Where clocks of leases begin, so that "an hour ago" can be told.
const START: u64 = 3_600_000_000_000;

/// The wall clock when the history begins, in microseconds.
const WALL: u64 = 1_700_000_000_000_000;

/// A whole simulated world; clones are the same one.
#[derive(Clone)]
pub(super) struct Universe(Arc<Mutex<State>>);

impl std::fmt::Debug for Universe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Universe")
    }
}

struct State {
    /// True time in nanoseconds.
    now: u64,
    chance: fastrand::Rng,
    /// What a poll takes at most, in nanoseconds of true time.
    cost: u64,
    tasks: Vec<Slot>,
    free: Vec<usize>,
    /// Tasks that were woken, in no order: the seed picks.
    ready: Vec<usize>,
    timers: BTreeMap<(u64, u64), Waker>,
    next_timer: u64,
    nodes: Vec<Clockwork>,
    polls: u64,
}

/// One task. A number is used again, so a wake-up may meet the next task of that number: one poll for nothing.
#[derive(Default)]
struct Slot {
    task: Option<BoxFuture<'static, ()>>,
    node: usize,
    ready: bool,
}

/// The clocks and the state of a node.
#[derive(Clone, Debug)]
struct Clockwork {
    /// The clock of leases showed `local` at the true time `at`, and gains `ppm` millionths.
    at: u64,
    local: u64,
    ppm: i64,
    /// How far the wall clock is ahead, in microseconds.
    wall: i64,
    stalled_until: u64,
    crashed: bool,
}

impl Clockwork {
    fn local(&self, now: u64) -> u64 {
        let passed = i128::from(now - self.at);
        self.local + u64::try_from(passed + passed * i128::from(self.ppm) / 1_000_000).unwrap_or(u64::MAX)
    }

    /// The first true time at which the clock shows at least `local`.
    fn true_time(&self, local: u64) -> u64 {
        let left = i128::from(local.saturating_sub(self.local));
        let rate = i128::from(1_000_000 + self.ppm);
        let passed = (left * 1_000_000 + rate - 1) / rate;
        self.at.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }
}

/// One machine of the world.
#[derive(Clone, Debug)]
pub(super) struct Node {
    universe: Universe,
    index: usize,
}

struct Alarm {
    universe: Universe,
    /// In true time.
    when: u64,
    set: Option<(u64, u64)>,
}

struct Wakeup {
    universe: Universe,
    task: usize,
}

impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        let mut state = self.universe.state();
        if let Some(slot) = state.tasks.get_mut(self.task).filter(|slot| !slot.ready) {
            slot.ready = true;
            state.ready.push(self.task);
        }
    }
}

impl Universe {
    pub(super) fn new(seed: u64, cost: Duration) -> Self {
        Self(Arc::new(Mutex::new(State {
            now: 0,
            chance: fastrand::Rng::with_seed(seed),
            cost: u64::try_from(cost.as_nanos()).unwrap_or(0),
            tasks: Vec::new(),
            free: Vec::new(),
            ready: Vec::new(),
            timers: BTreeMap::new(),
            next_timer: 0,
            nodes: Vec::new(),
            polls: 0,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new machine. Its clock of leases is ahead by `ahead` and gains `ppm` millionths; its wall clock is ahead by `wall` microseconds.
    pub(super) fn node(&self, ahead: Duration, ppm: i64, wall: i64) -> Node {
        let mut state = self.state();
        let local = START + u64::try_from(ahead.as_nanos()).unwrap_or(0);
        let at = state.now;
        state.nodes.push(Clockwork { at, local, ppm, wall, stalled_until: 0, crashed: false });
        Node { universe: self.clone(), index: state.nodes.len() - 1 }
    }

    /// True time in nanoseconds.
    pub(super) fn now(&self) -> u64 {
        self.state().now
    }

    /// How often tasks were polled.
    pub(super) fn polls(&self) -> u64 {
        self.state().polls
    }

    /// How many tasks have not ended, beside those of `director` and of machines that crashed. Servers do not know that a machine crashed.
    pub(super) fn tasks_left(&self, director: &Node, servers: &[Node]) -> usize {
        let state = self.state();
        let crashes = state.nodes.iter().any(|node| node.crashed);
        let serves = |node: usize| servers.iter().any(|server| server.index == node);
        let outside = |node: usize| node == director.index || (crashes && serves(node)) || state.nodes[node].crashed;
        let counts = |slot: &&Slot| slot.task.is_some() && !outside(slot.node);
        state.tasks.iter().filter(counts).count()
    }

    /// Runs until `done`, or nothing can happen any more; whether it is done. `most` bounds the polls.
    pub(super) fn run_until(&self, done: impl Fn() -> bool, most: u64) -> bool {
        while !done() {
            if self.state().polls >= most || !(self.poll_one() || self.jump()) {
                return done();
            }
        }
        true
    }

    /// Polls one of the tasks that can run; `false` if none can.
    fn poll_one(&self) -> bool {
        let mut state = self.state();
        let now = state.now;
        let can_run = |state: &State, task: usize| {
            let node = &state.nodes[state.tasks[task].node];
            !node.crashed && node.stalled_until <= now
        };
        // Tasks of nodes that stand still stay where they are.
        let runnable: Vec<usize> = (0..state.ready.len()).filter(|at| can_run(&state, state.ready[*at])).collect();
        if runnable.is_empty() {
            return false;
        }
        let at = runnable[state.chance.usize(0..runnable.len())];
        let index = state.ready.swap_remove(at);
        state.polls += 1;
        let most = state.cost;
        let cost = state.chance.u64(0..=most);
        state.now += cost;
        let slot = &mut state.tasks[index];
        slot.ready = false;
        let Some(mut task) = slot.task.take() else { return true };
        let node: Arc<dyn World> = Arc::new(Node { universe: self.clone(), index: slot.node });
        drop(state);
        let ended = {
            let _world = enter(node);
            let waker = Waker::from(Arc::new(Wakeup { universe: self.clone(), task: index }));
            task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
        };
        let mut state = self.state();
        if ended {
            state.free.push(index);
            drop(state);
            // Dropped without the lock: a destructor may wake, spawn or ask for the time.
            drop(task);
        } else {
            state.tasks[index].task = Some(task);
        }
        true
    }

    /// Lets time pass until a timer ends or a node runs again; `false` if neither will.
    fn jump(&self) -> bool {
        let mut state = self.state();
        let now = state.now;
        let timer = state.timers.keys().next().map(|(when, _)| (*when).max(now));
        let waits = |node: &usize| !state.nodes[*node].crashed && state.nodes[*node].stalled_until > now;
        let stalled = state.ready.iter().map(|task| state.tasks[*task].node).filter(waits);
        let runs_again = stalled.map(|node| state.nodes[node].stalled_until).min();
        let Some(next) = [timer, runs_again].into_iter().flatten().min() else { return false };
        state.now = next;
        let mut due = Vec::new();
        while let Some(entry) = state.timers.first_entry().filter(|entry| entry.key().0 <= next) {
            due.push(entry.remove());
        }
        drop(state);
        due.into_iter().for_each(Waker::wake);
        true
    }

    /// Ends the history: drops all that is left, also of nodes that crashed.
    pub(super) fn end(&self) {
        loop {
            let (slots, timers) = {
                let mut state = self.state();
                state.ready.clear();
                state.free.clear();
                (std::mem::take(&mut state.tasks), std::mem::take(&mut state.timers))
            };
            if slots.is_empty() && timers.is_empty() {
                return;
            }
            for Slot { task, node, .. } in slots {
                let _world = enter(Arc::new(Node { universe: self.clone(), index: node }));
                drop(task);
            }
        }
    }
}

impl Node {
    /// What the library takes for this machine.
    pub(super) fn runtime(&self) -> Runtime {
        Runtime::world(Arc::new(self.clone()))
    }

    /// Runs a task on this machine.
    pub(super) fn start(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn(Box::pin(task));
    }

    pub(super) async fn sleep(&self, time: Duration) {
        self.sleep_until(self.now().plus(time)).await;
    }

    /// Nothing of this machine runs for so long; its clocks do.
    pub(super) fn stall(&self, time: Duration) {
        let mut state = self.universe.state();
        let until = state.now + u64::try_from(time.as_nanos()).unwrap_or(0);
        let node = &mut state.nodes[self.index];
        node.stalled_until = node.stalled_until.max(until);
    }

    /// Nothing of this machine ever runs again.
    pub(super) fn crash(&self) {
        self.universe.state().nodes[self.index].crashed = true;
    }

    /// Sets the wall clock forward, or back.
    pub(super) fn step_wall(&self, micros: i64) {
        self.universe.state().nodes[self.index].wall += micros;
    }

    /// Whether it has not crashed.
    pub(super) fn exists(&self) -> bool {
        !self.universe.state().nodes[self.index].crashed
    }
}

impl World for Node {
    fn now(&self) -> Instant {
        let state = self.universe.state();
        Instant::from_nanos(state.nodes[self.index].local(state.now))
    }

    fn wall_micros(&self) -> u64 {
        let state = self.universe.state();
        let node = &state.nodes[self.index];
        let wall = (WALL + (node.local(state.now) - START) / 1_000).checked_add_signed(node.wall);
        wall.unwrap_or(0)
    }

    fn sleep_until(&self, when: Instant) -> BoxFuture<'static, ()> {
        let when =
            if when == Instant::NEVER { u64::MAX } else { self.universe.state().nodes[self.index].true_time(when.as_nanos()) };
        Box::pin(Alarm { universe: self.universe.clone(), when, set: None })
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        let mut state = self.universe.state();
        let slot = Slot { task: Some(task), node: self.index, ready: true };
        let index = match state.free.pop() {
            Some(index) => {
                let woken = std::mem::replace(&mut state.tasks[index], slot).ready;
                if woken {
                    // A late wake-up of the task before has put the number among the ready ones.
                    return;
                }
                index
            }
            None => {
                state.tasks.push(slot);
                state.tasks.len() - 1
            }
        };
        state.ready.push(index);
    }

    fn random(&self) -> u64 {
        self.universe.state().chance.u64(..)
    }
}

impl Future for Alarm {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let universe = self.universe.clone();
        let mut state = universe.state();
        if let Some(key) = self.set.take() {
            state.timers.remove(&key);
        }
        if state.now >= self.when {
            return Poll::Ready(());
        }
        if self.when < u64::MAX {
            let key = (self.when, state.next_timer);
            state.next_timer += 1;
            state.timers.insert(key, cx.waker().clone());
            self.set = Some(key);
        }
        Poll::Pending
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let Some(key) = self.set.take() {
            let waker = self.universe.state().timers.remove(&key);
            drop(waker);
        }
    }
}
