//! `lockkeeper torture`: processes of its own lock, are paused and killed, and the referee of the library judges what they recorded.
//!
//! The parent keeps the resources, injects the faults and judges; it is [`worker`] that uses the store.

mod desk;
mod events;
mod message;
mod report;
mod resource;
mod store;
mod turn;
mod waits;
pub(crate) mod worker;
mod workers;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write, stderr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lockkeeper::referee::{Event, Limits, What};
use rustix::process::Signal;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{sleep, timeout};

use desk::now;
use events::Events;
use message::{Orders, Said, Told};
use report::{Faults, Found, Report, Setting};
use resource::{Numbers, Resources};
use workers::{Line, Workers};

use crate::exit::{Code, Failure, say};
use crate::signals::Signals;
use crate::store::StoreOption;
use crate::{terminal, waiting};

/// What the command line asks for.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) time: Duration,
    pub(crate) processes: usize,
    pub(crate) tasks: usize,
    pub(crate) lease: Duration,
    pub(crate) history: Option<PathBuf>,
    /// Although the store holds other locks.
    pub(crate) yes: bool,
}

/// How often the parent looks after the processes.
const TICK: Duration = Duration::from_millis(20);

/// A parent that is later than this stood still itself, and so did all processes.
const STALL: Duration = Duration::from_millis(250);

/// What the processes may take to begin, and to end, beyond a lease.
const PATIENCE: Duration = Duration::from_secs(20);

struct Run {
    workers: Workers,
    lines: UnboundedReceiver<Line>,
    events: Events,
    resources: Resources,
    numbers: Numbers,
    faults: Faults,
    errors: BTreeMap<String, u64>,
    troubles: Vec<String>,
    chance: fastrand::Rng,
    lease: Duration,
    next_fault: Instant,
    next_start: Instant,
    last_tick: Instant,
    /// What the last process said that could not begin.
    refused: Option<String>,
}

/// Runs it, and tells what was found and which signal ended it early.
pub(crate) async fn run(option: &StoreOption, plan: Plan) -> Result<(Report, Option<Signal>), Failure> {
    let mut signals = Signals::take().map_err(|error| failed("cannot receive signals", &error))?;
    let (client, can) = store::connect(option, plan.lease).await?;
    let others = store::others(&client).await?;
    if let Some(first) = others.first().filter(|_| !plan.yes) {
        let message = format!(
            "{} holds {} locks, such as {first:?}; torture uses names of its own, but it loads the server; confirm with --yes",
            client.url(),
            others.len()
        );
        return Err(Failure::new(Code::Usage, message));
    }
    let history = plan.history.as_ref().map(File::create).transpose();
    let history = history.map_err(|error| failed("cannot write the history", &error))?;
    // Names that begin with `lockkeeper:` are reserved.
    let prefix = format!("lockkeeper-torture:{:08x}:", fastrand::u32(..));
    let own = client.with_prefix(&prefix);
    let locks = store::supported(&can);
    // Where holds live in a session, it decides how long they last.
    let lease = can.liveness.session().unwrap_or(plan.lease).clamp(can.min_lease, can.max_lease);
    let setting = Setting {
        store: client.url().to_owned(),
        prefix: prefix.clone(),
        processes: plan.processes,
        tasks: plan.tasks,
        lease,
        locks: locks.clone(),
    };
    store::prepare(&own, &locks).await?;
    let history = history.map(|file| Box::new(BufWriter::new(file)) as Box<dyn Write>);
    let orders =
        Orders { client: 0, prefix: prefix.clone(), lease, tasks: plan.tasks, locks: locks.clone(), seed: fastrand::u64(..) };
    let (workers, lines) = Workers::new(orders, &option.find()?.url);
    let mut run = Run {
        workers,
        lines,
        events: Events::new(now(), &prefix, Limits::on_a_real_machine(), history),
        resources: Resources::default(),
        numbers: Numbers::default(),
        faults: Faults::default(),
        errors: BTreeMap::new(),
        troubles: Vec::new(),
        chance: fastrand::Rng::new(),
        lease,
        next_fault: Instant::now() + Duration::from_secs(1),
        next_start: Instant::now(),
        last_tick: Instant::now(),
        refused: None,
    };
    let began = Instant::now();
    let ended_by = run.go(&mut signals, plan.time, plan.processes).await;
    let time = began.elapsed();
    // However it ends, no process is left.
    run.stop(&mut signals).await;
    let end = store::clear(&client, &own, &prefix, &locks, &run.numbers, lease + PATIENCE).await;
    let verdict = run.events.finish(now()).map_err(|error| failed("cannot write the history", &error))?;
    client.close().await?;
    let ended_by = ended_by?;
    let Run { events, resources, faults, errors, troubles, .. } = run;
    let found = Found { time, events: &events, verdict: &verdict, writes: resources.writes, faults, errors, end, troubles };
    Ok((Report::new(setting, found), ended_by))
}

fn failed(what: &str, error: &std::io::Error) -> Failure {
    Failure::new(Code::Internal, format!("{what}: {error}"))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Run {
    /// Until the time is over or a signal comes.
    async fn go(&mut self, signals: &mut Signals, time: Duration, processes: usize) -> Result<Option<Signal>, Failure> {
        let began = Instant::now();
        let (mut told, mut judged) = (Instant::now(), Instant::now());
        let drawable = terminal::is_drawable(&stderr());
        let mut line = waiting::Line::default();
        let mut begun = false;
        while began.elapsed() < time {
            tokio::select! {
                biased;
                signal = signals.end(|| {}) => return Ok(Some(signal)),
                Some((client, said)) = self.lines.recv() => self.hear(client, said),
                () = sleep(TICK.saturating_sub(self.last_tick.elapsed())) => {}
            }
            if self.last_tick.elapsed() < TICK {
                continue;
            }
            begun |= !self.workers.at_work().is_empty();
            if !begun && began.elapsed() > PATIENCE {
                let why = self.refused.take().unwrap_or_else(|| "they do not say why".to_owned());
                return Err(Failure::new(Code::Unavailable, format!("the processes cannot use the store: {why}")));
            }
            self.tick(processes).map_err(|error| failed("cannot start a process", &error))?;
            if judged.elapsed() > Duration::from_secs(1) {
                judged = Instant::now();
                // A process that was paused may still have to write what it did before.
                let earlier = nanos(self.lease * 2 + PATIENCE);
                self.events.judge(now().saturating_sub(earlier)).map_err(|error| failed("cannot write the history", &error))?;
            }
            if told.elapsed() > Duration::from_millis(if drawable { 500 } else { 60_000 }) {
                told = Instant::now();
                let progress = self.progress(time.saturating_sub(began.elapsed()));
                if drawable { line.draw(&progress) } else { say(&progress) }
            }
        }
        Ok(None)
    }

    fn progress(&self, left: Duration) -> String {
        let Faults { pauses, kills, .. } = self.faults;
        let (granted, broken) = (self.events.granted, self.events.broken.len());
        format!("{} s left: {granted} grants, {pauses} pauses, {kills} kills, {broken} broken promises", left.as_secs())
    }

    fn hear(&mut self, client: u32, said: Option<Said>) {
        match said {
            Some(Said::Ready) => self.workers.is_ready(client),
            Some(Said::Event(event)) => self.events.add(event),
            Some(Said::Ask { id, ask }) => {
                let (value, event) = self.resources.answer(client, now(), ask);
                event.into_iter().for_each(|event| self.events.add(event));
                self.workers.tell(client, &Told::Answer { id, value });
            }
            Some(Said::Counting { lock, id, by }) => self.numbers.counting(client, id, lock, by),
            Some(Said::Counted { id, by }) => self.numbers.counted(client, id, by),
            Some(Said::Trouble(kind)) => *self.errors.entry(kind).or_default() += 1,
            Some(Said::Failed(why)) => self.refused = Some(why),
            None => self.over(client),
        }
    }

    /// A process has ended. If it was not killed, it ended by itself.
    fn over(&mut self, client: u32) {
        let Some(ended) = self.workers.ended(client) else { return };
        self.add(client, What::Crashed);
        self.next_start = Instant::now() + if ended.ready { Duration::ZERO } else { Duration::from_millis(300) };
        if ended.ready && !ended.success {
            let why = self.refused.take().unwrap_or_else(|| "without a word".to_owned());
            self.troubles.push(format!("process {client} ended by itself: {why}"));
        }
    }

    fn add(&mut self, client: u32, what: What) {
        self.events.add(Event { at: now(), client, what });
    }

    /// Starts what is missing, continues whose pause is over, and injects the next fault.
    fn tick(&mut self, processes: usize) -> std::io::Result<()> {
        let late = self.last_tick.elapsed() > TICK + STALL;
        self.last_tick = Instant::now();
        if late {
            self.faults.stalls += 1;
            let paused = self.workers.paused(true);
            for client in self.workers.clients().filter(|client| !paused.contains(client)).collect::<Vec<_>>() {
                self.add(client, What::Resumed);
            }
        }
        for client in self.workers.paused(false) {
            self.resume(client);
        }
        // One at a time, and not at once again after one that the store refused.
        if self.workers.len() < processes && Instant::now() >= self.next_start {
            self.workers.start()?;
        }
        if Instant::now() >= self.next_fault {
            self.next_fault = Instant::now() + Duration::from_millis(self.chance.u64(100..700));
            self.fault();
        }
        Ok(())
    }

    fn resume(&mut self, client: u32) {
        self.add(client, What::Resumed);
        self.workers.resume(client);
    }

    fn fault(&mut self) {
        let at_work = self.workers.at_work();
        // Somebody has to be there to take the locks over.
        if at_work.len() * 2 <= self.workers.len() {
            return;
        }
        let Some(&client) = self.chance.choice(&at_work) else { return };
        match self.chance.u8(0..10) {
            0 | 1 => {
                // It stands still first: some stores free its locks at once, and that must come after its end in the history.
                self.workers.pause(client, Duration::ZERO);
                self.add(client, What::Crashed);
                self.workers.kill(client);
                self.faults.kills += 1;
            }
            2..6 => {
                let time = self.lease.mul_f64(1.05 + self.chance.f64() / 2.0);
                self.pause(client, time);
                self.faults.longer_than_the_lease += 1;
            }
            _ => {
                let time = Duration::from_millis(self.chance.u64(5..300));
                self.pause(client, time);
            }
        }
    }

    fn pause(&mut self, client: u32, time: Duration) {
        self.workers.pause(client, time);
        self.add(client, What::Paused);
        self.faults.pauses += 1;
    }

    /// Has all processes release what they hold and end. Those that do not are killed; so are all at a second signal.
    async fn stop(&mut self, signals: &mut Signals) {
        for client in self.workers.paused(true) {
            self.resume(client);
        }
        for client in self.workers.clients().collect::<Vec<_>>() {
            self.workers.tell(client, &Told::Stop);
        }
        let limit = Instant::now() + self.lease + PATIENCE;
        while self.workers.len() > 0 && Instant::now() < limit {
            tokio::select! {
                biased;
                _ = signals.end(|| {}) => break,
                heard = timeout(TICK, self.lines.recv()) => {
                    if let Ok(Some((client, said))) = heard {
                        self.hear(client, said);
                    }
                }
            }
        }
        for client in self.workers.clients().collect::<Vec<_>>() {
            self.workers.pause(client, Duration::ZERO);
            self.add(client, What::Crashed);
            self.workers.kill(client);
            self.troubles.push(format!("process {client} did not end within {:?}; it was killed", self.lease + PATIENCE));
        }
        // What those said who are gone.
        while let Ok(Some((client, said))) = timeout(TICK, self.lines.recv()).await {
            self.hear(client, said);
        }
    }
}
