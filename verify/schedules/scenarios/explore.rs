//! Runs a scenario under many schedules.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, Runner};

use super::Flaw;

/// Something that threads do, and what must hold whatever their order.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name in the report.
    pub name: &'static str,
    /// What happens in it.
    pub what: &'static str,
    /// Runs it once; panics if something does not hold.
    pub(super) run: fn(),
    /// The flaw that its schedules must find.
    pub flaw: Flaw,
}

/// What was explored.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How many schedules ran to their end.
    pub schedules: u64,
    /// What did not hold, if anything.
    pub found: Option<Found>,
}

/// What did not hold, in which schedule.
#[derive(Clone, Debug)]
pub struct Found {
    /// The message.
    pub what: String,
    /// The seed of the series, and how many schedules of it ran before this one.
    pub seed: u64,
    /// See `seed`.
    pub before: u64,
}

/// So large are the stacks of threads: the futures of an acquisition are deep in a build without optimization.
const STACK: usize = 1 << 18;

/// A scenario has some hundreds of steps. One with so many goes in circles.
const MOST_STEPS: usize = 200_000;

thread_local! {
    static FLAW: Cell<Flaw> = const { Cell::new(Flaw::None) };
}

/// The flaw that this run has.
pub(crate) fn flaw() -> Flaw {
    FLAW.get()
}

/// Explores so many schedules of a scenario, drawn from `seed`; ends early when something does not hold. An even seed draws the next thread by chance at each step. An odd
/// one draws priorities and three changes of them (PCT), which finds what needs a thread to stand still for long.
///
/// Must be called on a thread of its own if something may be found: what the scheduler leaves behind then is of no use.
#[must_use]
pub fn explore(scenario: &Scenario, flaw: Flaw, seed: u64, schedules: u64) -> Report {
    FLAW.set(flaw);
    let (ran, run) = (Arc::new(AtomicU64::new(0)), scenario.run);
    let most = usize::try_from(schedules).unwrap_or(usize::MAX);
    let counted = Arc::clone(&ran);
    let body = move || {
        run();
        counted.fetch_add(1, Ordering::Relaxed);
    };
    let done = catch_unwind(AssertUnwindSafe(|| {
        if seed.is_multiple_of(2) {
            run_all(RandomScheduler::new_from_seed(seed, most), body);
        } else {
            run_all(PctScheduler::new_from_seed(seed, 3, most), body);
        }
    }));
    let schedules = ran.load(Ordering::Relaxed);
    let found = done.err().map(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let what = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Found { what: what.unwrap_or_default(), seed, before: schedules }
    });
    Report { schedules, found }
}

fn run_all(scheduler: impl Scheduler + 'static, body: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = STACK;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = shuttle::MaxSteps::FailAfter(MOST_STEPS);
    // The seed and the number are what is printed.
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(body);
}
