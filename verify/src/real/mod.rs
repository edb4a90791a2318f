//! Histories of real servers: `lockkeeper torture` uses them with processes that are paused and killed, the servers are disturbed meanwhile, and two
//! judges look at what was recorded: the referee, and [`put_in_order`].

#![allow(clippy::disallowed_methods, reason = "it stands outside the simulation, beside real servers")]

mod clocks;
mod control;
mod latch;
mod linear;
mod proxied;
mod topology;
mod waiters;

pub use linear::{Order, put_in_order};
pub use topology::{TOPOLOGIES, missing};

use std::collections::BTreeMap;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use lockkeeper::referee::{Event, Limits, Promise, Referee, Verdict, What, read};
use serde_json::Value;

use topology::{Fault, Forgot, LEASE, Topology, now};
use waiters::asked_when_called;

/// What came of one run.
#[derive(Debug)]
pub struct Recorded {
    /// The servers.
    pub topology: String,
    /// What was done to them, and how often.
    pub faults: BTreeMap<&'static str, u64>,
    /// How often processes were paused and killed.
    pub pauses: u64,
    /// See there.
    pub kills: u64,
    /// How many guards there were.
    pub granted: u64,
    /// What the referee found.
    pub verdict: Verdict,
    /// What the second judge found.
    pub order: Order,
    /// How much the two judges find if they are not told what was done to the store: the negative control of both. Some locks are released by force
    /// at the end, so there is something to find on every topology.
    pub untold: (usize, usize),
    /// What was wrong beside the history: holds that were left, numbers that are wrong, processes that failed.
    pub wrong: Vec<String>,
}

impl Recorded {
    /// Whether nothing was broken.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.broken() == 0
    }

    /// How often something was done to the servers: failovers too, but not what an operator took away as a negative control.
    #[must_use]
    pub fn server_faults(&self) -> u64 {
        self.faults.iter().filter(|(what, _)| !control::ALL.contains(what)).map(|(_, count)| count).sum()
    }

    /// How often processes were paused and killed.
    #[must_use]
    pub const fn process_faults(&self) -> u64 {
        self.pauses + self.kills
    }

    /// The negative control: how often locks were taken away from their holders.
    #[must_use]
    pub fn forced(&self) -> u64 {
        control::ALL.iter().filter_map(|what| self.faults.get(what)).sum()
    }

    /// How often another server took over.
    #[must_use]
    pub fn failovers(&self) -> u64 {
        self.faults.iter().filter(|(what, _)| what.contains("failover")).map(|(_, count)| count).sum()
    }

    /// How many promises were broken.
    #[must_use]
    pub const fn broken(&self) -> usize {
        self.verdict.violations.len() + self.order.broken.len() + self.wrong.len()
    }

    /// The sum of two histories.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        other.faults.into_iter().for_each(|(what, count)| *self.faults.entry(what).or_default() += count);
        self.pauses += other.pauses;
        self.kills += other.kills;
        self.granted += other.granted;
        self.verdict.merge(other.verdict);
        self.order = self.order.and(other.order);
        self.untold = (self.untold.0 + other.untold.0, self.untold.1 + other.untold.1);
        self.wrong.extend(other.wrong);
        self
    }

    /// One row of the page.
    #[must_use]
    pub fn row(&self) -> String {
        let faults: Vec<_> = self.faults.iter().map(|(what, count)| format!("{what} {count}")).collect();
        let faults = if faults.is_empty() { "–".to_owned() } else { faults.join(", ") };
        let checks: Vec<_> = [Promise::P1, Promise::P2, Promise::P3, Promise::P4, Promise::P7, Promise::TokenClock]
            .map(|promise| self.verdict.checks_of(promise).to_string())
            .into();
        let broken = self.broken();
        format!(
            "| {} | {faults} | {} | {} | {} | {} | {}, calls of a latch {} | {broken} |",
            self.topology,
            self.pauses,
            self.kills,
            self.granted,
            checks.join(", "),
            self.order.holds,
            self.order.latch_calls
        )
    }
}

/// The last faults end so long before the run does. Locks are released by force meanwhile.
const CALM: Duration = Duration::from_secs(3);

/// The last of these are over so long before the run is.
const END: Duration = Duration::from_millis(500);

/// So far apart a judge is told that the store is not itself, as long as that lasts.
const STEP: u64 = 2_000_000;

/// Records a history of so long on a topology, with the program `lockkeeper`, and has it judged.
///
/// # Errors
///
/// A topology that does not exist, and a program that cannot be run or whose report cannot be read.
pub fn record(topology: &str, program: &Path, time: Duration) -> Result<Recorded, String> {
    let mut store = Topology::start(topology, program)?;
    let url = store.url();
    let history = std::env::temp_dir().join(format!("lockkeeper-history-{}-{:08x}.jsonl", std::process::id(), fastrand::u32(..)));
    let file = Temporary(history);
    let minutes = (time.as_secs_f64() / 60.0).to_string();
    let lease = format!("{}s", LEASE.as_secs());
    let child = Command::new(program)
        .args(["torture", "-o", "json", "-l", &lease, "--minutes", &minutes, "--history"])
        .arg(&file.0)
        .env("LOCKKEEPER_STORE", &url)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot run {}: {error}", program.display()))?;
    let mut torture = Torture(Some(child));
    let (began, mut chance, mut faults) = (Instant::now(), fastrand::Rng::new(), Vec::new());
    let before = clocks::ahead();
    let mut epoch = (now(), store.epoch());
    while torture.runs() {
        std::thread::sleep(Duration::from_millis(chance.u64(500..1_500)));
        faults.extend(replaced(&store, &mut epoch));
        if began.elapsed() + store.longest() + CALM > time {
            break;
        }
        let Some(fault) = store.disturb(&mut chance) else { break };
        faults.push(fault);
        epoch = (now(), store.epoch());
    }
    std::thread::sleep(time.saturating_sub(began.elapsed() + CALM));
    faults.extend(store.take_away(program, &url, time.saturating_sub(began.elapsed() + END)));
    let output = torture.end().ok_or("torture has no output")?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let report: Value =
        serde_json::from_slice(&output.stdout).map_err(|error| format!("{topology}: no report ({error}): {said}"))?;
    faults.extend(replaced(&store, &mut epoch));
    let mut events = read_all(&file.0)?;
    if store.queues() {
        events = asked_when_called(events);
    }
    let began_at = begin(&events)?;
    let untold = untold(&events, &faults)?;
    disturbances(&mut events, &faults)?;
    if store.shares_our_clock() {
        // Nobody stepped the clock but the machine itself; then the later tokens come from the later clock.
        events = clocks::beside_tokens(events, began_at, before.max(clocks::ahead()));
    }
    let verdict = judge(&events);
    let mut counts = BTreeMap::new();
    faults.iter().for_each(|fault| *counts.entry(fault.what).or_default() += 1);
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    Ok(Recorded {
        topology: topology.to_owned(),
        faults: counts,
        pauses: number(&report["faults"]["pauses"]),
        kills: number(&report["faults"]["kills"]),
        granted: number(&report["granted"]),
        verdict,
        order: put_in_order(&events).and(latch::put_in_order(&events)),
        untold,
        wrong: wrong(&report, store.forgets()),
    })
}

/// Whether another server took over although nobody disturbed it: on a busy machine one that is only slow may be replaced. It serves those
/// who know no better until it is told, so all is well again only when the servers agree.
fn replaced(store: &Topology, epoch: &mut (u64, u64)) -> Option<Fault> {
    let (from, before) = *epoch;
    *epoch = (now(), store.epoch());
    if before == epoch.1 {
        return None;
    }
    store.settle();
    *epoch = (now(), store.epoch());
    let (to, forgot) = (epoch.0, Some(Forgot { from, to: epoch.0, all: false }));
    Some(Fault { what: "failover of a slow primary", from, to, outage: true, forgot })
}

/// How often the judges find two holders if they are not told that the store gave holds up before their time.
fn untold(events: &[Event], faults: &[Fault]) -> Result<(usize, usize), String> {
    let mut events = events.to_vec();
    let faults: Vec<Fault> = faults.iter().map(|fault| Fault { forgot: None, ..*fault }).collect();
    disturbances(&mut events, &faults)?;
    let twice = judge(&events).violations.iter().filter(|violation| violation.promise == Promise::P1).count();
    Ok((twice, put_in_order(&events).broken.len()))
}

fn judge(events: &[Event]) -> Verdict {
    let mut referee = Referee::new(Limits::on_a_real_machine());
    events.iter().for_each(|event| referee.observe(event));
    referee.finish(events.last().map_or(0, |event| event.at))
}

/// What the report says beside the history. Numbers are not promised where the store forgets; the rest of it is judged anew.
fn wrong(report: &Value, forgets: bool) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let counts = |violation: &Value| match violation["promise"].as_str() {
        Some("P5") => true,
        Some("count") => !forgets,
        _ => false,
    };
    let broken = list(&report["violations"]).into_iter().filter(counts).map(|violation| text(&violation["text"]));
    broken.chain(list(&report["troubles"]).iter().map(text)).collect()
}

fn read_all(file: &Path) -> Result<Vec<Event>, String> {
    let history = std::fs::File::open(file).map_err(|error| format!("cannot read the history: {error}"))?;
    read(BufReader::new(history)).collect()
}

/// When a history began, on the clock that all processes of the machine share.
fn begin(events: &[Event]) -> Result<u64, String> {
    let begin = events.iter().find_map(|event| match &event.what {
        What::Note { text } => text.rsplit(' ').next()?.parse::<u64>().ok(),
        _ => None,
    });
    begin.ok_or_else(|| "the history does not say when it began".to_owned())
}

/// Adds what was done to the servers. While they do not answer, no client is to blame.
fn disturbances(events: &mut Vec<Event>, faults: &[Fault]) -> Result<(), String> {
    let begin = begin(events)?;
    let clients = events.iter().map(|event| event.client).filter(|client| *client < u32::MAX).max().unwrap_or(0);
    let mut times: Vec<u64> = events.iter().map(|event| event.at).collect();
    times.sort_unstable();
    let mut more = Vec::new();
    for fault in faults {
        let (from, to) = (fault.from.saturating_sub(begin), fault.to.saturating_sub(begin));
        let mut at = |at: u64, client: u32, what: What| more.push(Event { at, client, what });
        at(from, 0, What::Note { text: fault.what.to_owned() });
        if let Some(Forgot { from, to, all }) = fault.forgot {
            // What was asked for before may be lost, at any moment of this time: also right before the next thing that happens.
            let (from, to) = (from.saturating_sub(begin), to.saturating_sub(begin));
            let (first, last) = (times.partition_point(|time| *time < from), times.partition_point(|time| *time < to));
            for when in (from..to).step_by(STEP as usize).chain(times[first..last].iter().copied()).chain([to]) {
                at(when, 0, What::Unhealthy { forgot: all, lag: 0 });
            }
        }
        if fault.outage {
            for client in 1..=clients {
                at(from, client, What::Cut);
                at(to, client, What::Healed);
            }
        }
    }
    // What was done comes before what the clients saw at the same time.
    more.append(events);
    *events = more;
    events.sort_by_key(|event| event.at);
    Ok(())
}

struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

struct Torture(Option<Child>);

impl Torture {
    fn runs(&mut self) -> bool {
        self.0.as_mut().is_some_and(|child| child.try_wait().is_ok_and(|ended| ended.is_none()))
    }

    fn end(&mut self) -> Option<Output> {
        self.0.take()?.wait_with_output().ok()
    }
}

impl Drop for Torture {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use lockkeeper::referee::Side;

    use super::*;

    /// A millisecond, and when the test's fault began and ended.
    const MS: u64 = 1_000_000;
    const FAULT: (u64, u64) = (100 * MS, 131 * MS);

    fn granted(sent: u64, at: u64, owner: &str, token: u64) -> Event {
        let (name, owner, lease) = ("fair".to_owned(), owner.to_owned(), 2_000 * MS);
        Event {
            at,
            client: 1,
            what: What::Granted { call: token, name, owner, side: Side::Exclusive, token: Some(token), sent, lease },
        }
    }

    /// What the judges find when one hold is followed by another that was asked for and granted at these times, before the first one ended.
    fn found(first: (u64, u64), second: (u64, u64)) -> (usize, usize) {
        let begin = Event { at: 0, client: 0, what: What::Note { text: "begins at 0".to_owned() } };
        let mut events = vec![begin, granted(first.0, first.1, "1", 5), granted(second.0, second.1, "2", 6)];
        let (from, to) = FAULT;
        let forgot = Some(Forgot { from, to, all: false });
        disturbances(&mut events, &[Fault { what: "release by force", from, to, outage: false, forgot }]).expect("disturbances");
        (judge(&events).violations.len(), put_in_order(&events).broken.len())
    }

    #[test]
    fn a_lock_that_is_taken_away_as_soon_as_it_is_granted_may_be_granted_again_at_once() {
        let sent = 120 * MS + 100_000;
        assert_eq!(found((sent, sent + 200_000), (sent + 300_000, sent + 900_000)), (0, 0));
    }

    #[test]
    fn before_and_after_a_fault_nothing_is_excused() {
        let ((before, _), after) = (FAULT, FAULT.1 + MS);
        assert_eq!(found((before - 9 * MS, before - 8 * MS), (before - 7 * MS, before - 6 * MS)), (1, 1));
        assert_eq!(found((after, after + 1), (after + 2, after + 3)), (1, 1));
    }
}
