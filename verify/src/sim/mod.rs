//! The simulation: real clients, stores and a network in one world, in which everything follows from a seed.
//!
//! Each history draws what it locks, which faults there are, and how likely they are. The referee judges it in true time.

mod connection;
mod disturb;
mod later;
mod link;
mod numbers;
mod owned;
mod plan;
mod served;
mod session;
mod sessions;
mod shrink;
mod trace;
mod voter;
mod ways;
mod wire;
mod work;
mod world;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockkeeper::referee::{Event, Limits, Promise, Referee, Verdict};

use plan::Plan;
pub use shrink::{Part, shrink};
use world::Universe;

/// Seeds from here on draw from all that the simulation can do. Those below draw from what it could do at first, so that what they found replays.
pub const WIDER: u64 = 10_000_000_000_000_000;

/// Seeds from here on draw from still more: a store that stands still, restarts with its data or with older data, connections that lose requests only,
/// clients that close while they hold and wait, owners of fair mutexes and read-write locks, several permits at once.
pub const WIDEST: u64 = 100_000_000_000_000_000;

/// What a seed simulates; its last digit tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Setting {
    /// One store, that may forget.
    OneStore,
    /// One store with a replica, which takes over without the last requests.
    Failover,
    /// Three or five stores that decide by majority.
    RedLock,
    /// A store whose holds live in the sessions of clients, as on ZooKeeper and etcd.
    Sessions,
}

impl Setting {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::OneStore, Self::Failover, Self::RedLock, Self::Sessions];

    /// What this seed simulates.
    #[must_use]
    pub const fn of(seed: u64) -> Self {
        match (seed % 10, seed < WIDER) {
            (0..=4, true) | (0..=2, false) => Self::OneStore,
            (5..=6, true) | (3..=4, false) => Self::Failover,
            (_, true) | (5..=6, false) => Self::RedLock,
            (_, false) => Self::Sessions,
        }
    }
}

/// What is wrong on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flaw {
    /// Nothing.
    #[default]
    None,
    /// Every renewal is answered "kept", whatever the store says.
    RenewalsAlwaysKept,
    /// A release frees the name for whoever holds it.
    ReleaseIgnoresOwner,
    /// Each grant has a smaller token than the one before.
    TokensGoBack,
    /// A grant counts twice, and needs two releases.
    GrantsAreCounted,
    /// A server of a quorum that may have forgotten votes gives new ones at once.
    NoQuarantine,
    /// The floors of a quorum's tokens come from the client's wall clock and from earlier tokens.
    FloorsFeedOnThemselves,
    /// A client of a store with sessions believes that they last 1.4 times as long as they do.
    SessionsAreTakenForLonger,
    /// A waiter that gives up stays in the queue of a store with sessions.
    PlacesAreLeft,
    /// A writer that becomes a reader releases first, and then asks to read.
    DowngradeReleasesFirst,
    /// An owner that entered twice frees the name with its first guard.
    InnerGuardFrees,
    /// A request to count that arrives twice counts twice.
    CopiesCount,
    /// A client that closes leaves what it holds in the store.
    CloseLeavesHolds,
    /// A subscription that ends stays in the table of the store.
    ListenersAreLeft,
    /// A guard is kept for ever, so that its hold stays with the keeper.
    HoldsAreKept,
}

/// What came of one seed.
#[derive(Debug)]
pub struct History {
    /// The seed it was drawn from.
    pub seed: u64,
    /// A digest of all events; two runs of a seed must agree.
    pub digest: u64,
    /// What the referee says.
    pub verdict: Verdict,
    /// What went wrong beside the promises: a task that hangs, something left in the store.
    pub trouble: Option<String>,
    /// The events.
    pub events: Vec<Event>,
    /// How often tasks were polled.
    pub polls: u64,
}

impl History {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.verdict.violations.is_empty() && self.trouble.is_none()
    }

    /// The first promise that is broken; `None` for trouble beside the promises.
    #[must_use]
    pub fn broken(&self) -> Option<Promise> {
        self.verdict.violations.first().map(|violation| violation.promise)
    }

    /// What is wrong, in one line.
    #[must_use]
    pub fn summary(&self) -> Option<String> {
        self.trouble.clone().or_else(|| self.verdict.violations.first().map(ToString::to_string))
    }

    /// What happened, one line per event, and what is wrong with it.
    #[must_use]
    pub fn timeline(&self) -> String {
        let mut lines: Vec<String> = self
            .events
            .iter()
            .map(|event| format!("{:>13.6}  client {}  {:?}", event.at as f64 / 1e9, event.client, event.what))
            .collect();
        lines.extend(self.verdict.violations.iter().map(ToString::to_string));
        let left = self.trouble.as_deref().unwrap_or("nothing is left over");
        let setting = Setting::of(self.seed);
        let (seed, events, polls, digest) = (self.seed, self.events.len(), self.polls, self.digest);
        lines.push(format!("SEED={seed} ({setting:?}): {events} events, {polls} polls, digest {digest:016x}; {left}"));
        lines.join("\n")
    }
}

/// A history that needs more polls hangs.
const MOST_POLLS: u64 = 20_000_000;

/// Runs the history of a seed.
#[must_use]
pub fn simulate(seed: u64, flaw: Flaw) -> History {
    simulate_without(seed, flaw, &[])
}

/// Runs the history of a seed without some of its parts. What is left is drawn as before, but happens at other times.
#[must_use]
pub fn simulate_without(seed: u64, flaw: Flaw, without: &[Part]) -> History {
    let mut chance = fastrand::Rng::with_seed(seed);
    let cost = if chance.bool() { Duration::from_micros(chance.u64(1..50)) } else { Duration::ZERO };
    let universe = Universe::new(chance.u64(..), if without.contains(&Part::PollCosts) { Duration::ZERO } else { cost });
    // It stands outside: its clock is the true time.
    let director = universe.node(Duration::ZERO, 0, 0);
    let plan = Plan::draw(&mut chance, &universe, (seed, flaw), without);
    let (trace, servers, doubles) = (plan.air.trace.clone(), plan.servers(), plan.air.faults.double > 0);
    let setting = plan.setting;
    let trouble = Arc::new(Mutex::new(None));
    let done = Arc::new(AtomicBool::new(false));
    {
        let (trouble, done) = (Arc::clone(&trouble), Arc::clone(&done));
        let node = director.clone();
        director.start(async move {
            let found = plan.play(&node, &mut chance).await;
            *trouble.lock().unwrap_or_else(PoisonError::into_inner) = found;
            done.store(true, Ordering::Relaxed);
        });
    }
    let ended = universe.run_until(|| done.load(Ordering::Relaxed), MOST_POLLS);
    let (end, polls, left) = (universe.now(), universe.polls(), universe.tasks_left(&director, &servers));
    let events = trace.take();
    universe.end();
    let mut trouble = trouble.lock().unwrap_or_else(PoisonError::into_inner).take();
    if !ended {
        trouble = Some(format!("the history does not end: {polls} polls, {:.3} s", end as f64 / 1e9));
    } else if left > 0 {
        trouble = trouble.or_else(|| Some(format!("{left} tasks are left after all clients were closed")));
    }
    let mut referee = Referee::new(limits(setting, doubles));
    events.iter().for_each(|event| referee.observe(event));
    History { seed, digest: trace::digest(&events), verdict: referee.finish(end), trouble, events, polls }
}

fn limits(setting: Setting, copies: bool) -> Limits {
    let micros = |count: u64| count * 1_000;
    // The server looks twenty times in a session which have ended, by a clock of its own.
    let session = link::nanos(session::LASTS * 107 / 100);
    Limits {
        round_trip: micros(2 * plan::LONGEST_DELAY + 10_000),
        slack: micros(5_000),
        longest_delay: micros(2 * plan::LONGEST_DELAY),
        // A second without notifications, and the back-off after a release.
        free_while_waited_for: micros(1_100_000),
        asked_from: micros(3_000_000),
        clock_error: 5_000,
        copies: copies && setting != Setting::Sessions,
        session: (setting == Setting::Sessions).then_some(session),
        ..Limits::default()
    }
}
