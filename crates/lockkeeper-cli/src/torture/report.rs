//! What `torture` found, as a table and as JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use lockkeeper::referee::{Promise, Verdict};
use serde::Serialize;

use super::events::{Broken, Events};
use super::message::Lock;
use super::resource::Writes;

/// What was done to the processes.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Faults {
    pub(super) pauses: u64,
    pub(super) longer_than_the_lease: u64,
    pub(super) kills: u64,
    /// The machine itself stood still: this process was late by more than a quarter of a second.
    pub(super) stalls: u64,
}

/// What the store held at the end.
#[derive(Clone, Debug, Default)]
pub(super) struct AtTheEnd {
    /// Names that were still held when all processes had ended and a lease was over.
    pub(super) left: Vec<String>,
    /// Numbers that are not what was counted.
    pub(super) miscounted: Vec<String>,
    pub(super) counted: u64,
    /// What could not be checked, and why.
    pub(super) unchecked: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Row {
    promise: &'static str,
    says: &'static str,
    checks: u64,
    broken: u64,
}

#[derive(Debug, Serialize)]
struct Timeline {
    promise: String,
    text: String,
    before: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    store: String,
    prefix: String,
    seconds: u64,
    processes: usize,
    tasks: usize,
    lease: Duration,
    synchronizers: Vec<&'static str>,
    calls: u64,
    granted: u64,
    losses_told: u64,
    faults: Faults,
    /// Errors of calls, by kind.
    errors: BTreeMap<String, u64>,
    promises: Vec<Row>,
    updates: u64,
    refused_by_the_fence: u64,
    updates_without_a_fence: u64,
    lost_without_a_fence: u64,
    waits_measured: u64,
    longest_wait_for_a_free_lock_ms: f64,
    violations: Vec<Timeline>,
    /// Processes that ended or hung by themselves, and the like.
    troubles: Vec<String>,
    not_judged: Vec<String>,
    /// Whether nothing was broken.
    pub(crate) sound: bool,
}

/// What is common to all runs.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) store: String,
    pub(super) prefix: String,
    pub(super) processes: usize,
    pub(super) tasks: usize,
    pub(super) lease: Duration,
    pub(super) locks: Vec<Lock>,
}

pub(super) struct Found<'a> {
    pub(super) time: Duration,
    pub(super) events: &'a Events,
    pub(super) verdict: &'a Verdict,
    pub(super) writes: Writes,
    pub(super) faults: Faults,
    pub(super) errors: BTreeMap<String, u64>,
    pub(super) end: AtTheEnd,
    pub(super) troubles: Vec<String>,
}

const SAYS: [(Promise, &str); 5] = [
    (Promise::P1, "one holder at a time, as many permits as there are"),
    (Promise::P2, "tokens of later grants are larger"),
    (Promise::P3, "is_valid() is false after the deadline"),
    (Promise::P4, "a loss is told by the deadline, after a pause within a second"),
    (Promise::P7, "with the fence no acknowledged update is lost"),
];

impl Report {
    pub(super) fn new(setting: Setting, found: Found<'_>) -> Self {
        let Found { time, events, verdict, writes, faults, errors, end, troubles } = found;
        let broken = |promise: Promise| verdict.violations.iter().filter(|violation| violation.promise == promise).count() as u64;
        let row = |(promise, says): (Promise, &'static str)| Row {
            promise: name(promise),
            says,
            checks: verdict.checks_of(promise),
            broken: broken(promise),
        };
        let mut promises: Vec<Row> = SAYS.into_iter().map(row).collect();
        let checks = u64::from(end.unchecked.is_empty());
        let says = "nothing is held when all have ended and a lease is over";
        promises.insert(4, Row { promise: "P5", says, checks, broken: end.left.len() as u64 });
        let says = "every change of a latch or a counter is counted once";
        promises.push(Row { promise: "count", says, checks: end.counted, broken: end.miscounted.len() as u64 });
        let listed = |words: Vec<String>, promise: &'static str| words.into_iter().map(move |text| (promise.to_owned(), text));
        let seen = events.broken.iter().map(|Broken { violation, before }| Timeline {
            promise: violation.promise.to_string(),
            text: violation.to_string(),
            before: before.clone(),
        });
        let others = listed(end.left, "P5").chain(listed(end.miscounted, "count"));
        let others = others.map(|(promise, text)| Timeline { promise, text, before: Vec::new() });
        let violations: Vec<Timeline> = seen.chain(others).collect();
        let mut not_judged = vec![
            "P5 while it ran: whether each hold ended in time needs the store's own events".to_owned(),
            "P6, that a waiter gets a free lock soon: measured above where it is sure, not judged".to_owned(),
        ];
        not_judged.extend(end.unchecked);
        if setting.locks.iter().all(|lock| *lock == Lock::Mutex || *lock == Lock::Several || *lock == Lock::Twice) {
            not_judged
                .push("fair mutexes, read-write locks, semaphores, latches, counters: the store does not have them".to_owned());
        }
        Self {
            store: setting.store,
            prefix: setting.prefix,
            seconds: time.as_secs(),
            processes: setting.processes,
            tasks: setting.tasks,
            lease: setting.lease,
            synchronizers: setting.locks.iter().map(|lock| lock.shown()).collect(),
            calls: events.calls,
            granted: events.granted,
            losses_told: events.losses,
            faults,
            errors,
            promises,
            updates: writes.fenced,
            refused_by_the_fence: writes.refused,
            updates_without_a_fence: writes.plain,
            lost_without_a_fence: writes.lost,
            waits_measured: events.waits.measured,
            longest_wait_for_a_free_lock_ms: events.waits.longest as f64 / 1e6,
            sound: violations.is_empty() && troubles.is_empty(),
            violations,
            troubles,
            not_judged,
        }
    }

    /// For people.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = vec![
            format!(
                "{}: {} s, {} processes with {} tasks each, leases of {:?}",
                self.store, self.seconds, self.processes, self.tasks, self.lease
            ),
            format!("used: {}", self.synchronizers.join(", ")),
            format!("calls: {}, of which {} got a guard; {} losses were told", self.calls, self.granted, self.losses_told),
            format!(
                "faults: {} pauses (SIGSTOP), {} of them longer than the lease; {} kills (SIGKILL)",
                self.faults.pauses, self.faults.longer_than_the_lease, self.faults.kills
            ),
        ];
        if self.faults.stalls > 0 {
            lines.push(format!(
                "the machine itself stood still {} times; no process is blamed for these times",
                self.faults.stalls
            ));
        }
        if !self.errors.is_empty() {
            let errors: Vec<_> = self.errors.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
            lines.push(format!("calls that ended with an error: {}", errors.join(", ")));
        }
        lines.push(String::new());
        lines.push(format!("{:<7} {:>9} {:>7}  what was checked", "promise", "checks", "broken"));
        for Row { promise, says, checks, broken } in &self.promises {
            lines.push(format!("{promise:<7} {checks:>9} {broken:>7}  {says}"));
        }
        lines.push(String::new());
        lines.push(format!(
            "longest wait for a lock that was free: {:.1} ms ({} waits of which it is sure)",
            self.longest_wait_for_a_free_lock_ms, self.waits_measured
        ));
        lines.push(format!("with the fence: {} updates, {} refused", self.updates, self.refused_by_the_fence));
        lines.push(format!(
            "without a fence: {} updates, {} lost (a paused process acts after its lease; no lock can prevent that)",
            self.updates_without_a_fence, self.lost_without_a_fence
        ));
        lines.extend(self.not_judged.iter().map(|what| format!("not judged: {what}")));
        lines.push(String::new());
        lines.extend(self.troubles.iter().map(|trouble| format!("TROUBLE {trouble}")));
        for Timeline { text, before, .. } in self.violations.iter().take(3) {
            lines.push(format!("BROKEN {text}"));
            lines.extend(before.iter().map(|line| format!("  {line}")));
        }
        if self.violations.len() > 3 {
            lines.push(format!("and {} more; -o json has them all", self.violations.len() - 3));
        }
        lines.push(if self.sound { "no promise was broken, and nothing is left on the store" } else { "NOT SOUND" }.to_owned());
        lines
    }
}

const fn name(promise: Promise) -> &'static str {
    match promise {
        Promise::P1 => "P1",
        Promise::P2 => "P2",
        Promise::P3 => "P3",
        Promise::P4 => "P4",
        Promise::P7 => "P7",
        _ => "other",
    }
}
