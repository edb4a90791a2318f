//! Each request as a step, with its times translated to the server's clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::clock::Window;
use super::rows::{NameRows, Work};
use super::step::{self, Plan};
use super::{Dial, Failed, Outcome, Put, Statements as _, Steps};
use crate::backend::{
    Acquire, Attempt, AttemptAll, Busy, Count, CountOutcome, Grant, Holder, Release, Released, Renew, Renewed, Snapshot,
};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::runtime::{self, Instant};
use crate::store::kit::engine::RecordEngine;

/// How often a request for several names is computed again because others changed one of them.
const ROUNDS: u32 = 60;

/// How often a request for several names waits in vain for a row lock before it answers that they are busy.
const BLOCKED_ROUNDS: u32 = 2;

/// How often an acquire waits for the row lock of a step, for how long each time, before it answers that the lock is busy. A step takes that long
/// where its process gets no CPU.
const STEP_WAITS: u32 = 10;
const STEP_WAIT: Duration = Duration::from_millis(100);

/// When an acquire that waited in vain for the row lock of a step is to be repeated.
const STEP_RETRY: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(30));

/// The same where a transaction of a user has the row locked. Each attempt holds up other requests of the client for up to 100 ms.
const BLOCKED_RETRY: Duration = Duration::from_millis(300);

/// How often renewals are sent again because others changed or locked their rows.
const RENEWAL_ROUNDS: u32 = 8;

impl<D: Dial> Steps<D> {
    pub(crate) async fn acquire(&self, request: Acquire) -> Result<Attempt> {
        match self.still_busy(&request).await {
            Ok(Some(attempt)) => return Ok(attempt),
            Ok(None) | Err(Failed::Blocked(_)) => {}
            Err(Failed::Error(error)) => return Err(error),
        }
        let (name, lease) = (request.name.clone(), request.lease);
        let plan = Plan { attempts: 1, ..Plan::until(request.not_after) };
        let mut attempts = 0;
        loop {
            attempts += 1;
            let asked = request.clone();
            let step = self.try_step(&name, plan, move |engine, window| {
                engine.acquire(&on_server(&asked, window)).map(|answer| here(answer, window))
            });
            match step.await {
                Ok((attempt, _)) => return Ok(as_asked(attempt, lease)),
                Err(Failed::Blocked(_)) => {
                    // A fence says that somebody is at work under the lock. A step says nothing: the lock may be free.
                    let fenced = self.is_fenced(&name).await;
                    // The answer must come while somebody waits for it.
                    let last = attempts == STEP_WAITS || self.runtime.now().plus(STEP_WAIT * 2) >= request.not_after;
                    if fenced || last {
                        return Ok(Attempt::Busy(blocked(fenced, request.place.is_some())));
                    }
                }
                Err(Failed::Error(error)) => return Err(error),
            }
        }
    }

    /// Whether the row lock that an acquire waited for in vain is that of a fence, which lasts. Steps are over soon.
    async fn is_fenced(&self, name: &Name) -> bool {
        match self.link.live().await {
            Ok(live) => live.is_fenced(name).await.unwrap_or(true),
            Err(_) => true,
        }
    }

    pub(crate) async fn release(&self, request: Release) -> Result<Released> {
        let name = request.name.clone();
        // Its place may have ended, and then there is no row whose removal would tell.
        self.long_queues.forget(&name, request.owner);
        let then = request.then.as_ref().map(|then| (then.lease, then.not_after));
        // A successor that came too late is answered as such; the release itself is never late.
        let plan = Plan { verify: true, lasting: false, ..Plan::until(Instant::NEVER) };
        let plan = then.map_or(plan, |(_, not_after)| Plan { not_after, attempts: 1, ..plan });
        let alone = request.then.as_ref().map(|then| (Release { then: None, ..request.clone() }, then.place.is_some()));
        let released = self.try_step(&name, plan, move |engine, window| {
            let then = request.then.as_ref().map(|then| Box::new(on_server(then, window)));
            let released = engine.release(&Release { then, ..request.clone() })?;
            Ok(Released { next: released.next.map(|next| here(next, window)), ..released })
        });
        let (released, woke) = match (released.await, alone) {
            (Ok(released), _) => released,
            // A fenced transaction holds up the successor, which asks again. It does not hold up the release.
            (Err(Failed::Blocked(_)), Some((request, placed))) => {
                let plan = Plan { verify: true, lasting: false, ..Plan::until(Instant::NEVER) };
                let (released, woke) = self.step(&name, plan, move |engine, _| engine.release(&request)).await?;
                let next = Attempt::Busy(blocked(self.is_fenced(&name).await, placed));
                (Released { next: Some(next), ..released }, woke)
            }
            (Err(failed), _) => return Err(failed.into_error()),
        };
        let next = released.next.map(|next| then.map_or(next, |(lease, _)| as_asked(next, lease)));
        Ok(Released { next, woke: Some(woke), ..released })
    }

    pub(crate) async fn count(&self, request: Count) -> Result<CountOutcome> {
        let name = request.name.clone();
        let not_after = if request.op.is_read() { Instant::NEVER } else { request.not_after };
        let plan = Plan::until(not_after);
        let counted = self.step(&name, plan, move |engine, window| {
            let not_after = window.translate(request.not_after);
            let remember = request.remember.saturating_add(window.uncertainty());
            engine.count(&Count { not_after, remember, ..request.clone() })
        });
        Ok(counted.await?.0)
    }

    pub(crate) async fn force_release(&self, name: Name) -> Result<Vec<Holder>> {
        let plan = Plan::until(Instant::NEVER);
        let of = name.clone();
        Ok(self.step(&name, plan, move |engine, _| engine.force_release(&of)).await?.0)
    }

    /// What can be seen of some names.
    pub(crate) async fn snapshots(&self, names: &[Name]) -> Result<Vec<Option<Snapshot>>> {
        let live = self.link.live().await?;
        let rows = self.read(&live, names).await?;
        let window = live.clock().window(self.runtime.now());
        let mut found = Vec::with_capacity(names.len());
        for (name, rows) in names.iter().zip(rows) {
            let mut work = Work::of(name, rows);
            let mut seen = RecordEngine::new(&mut work, window.now(), 0, None).snapshot(name)?;
            // A lease is shown as what is left of it for certain: never longer than it was granted for.
            let holders = seen.iter_mut().flat_map(|seen| &mut seen.holders).map(|holder| &mut holder.lease_left);
            holders.for_each(|left| *left = left.map(|left| window.at_least(left)));
            found.push(seen);
        }
        Ok(found)
    }

    async fn read(&self, live: &D::Live, names: &[Name]) -> Result<Vec<NameRows>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let sent = self.runtime.now();
        let read = live.read(names).await.map_err(Failed::into_error)?;
        live.clock().observe(read.clock, sent, self.runtime.now());
        Ok(read.told)
    }

    /// All or none, in one statement; the rows are locked in the order of their names.
    pub(crate) async fn acquire_all(&self, requests: Vec<Acquire>) -> Result<AttemptAll> {
        let leases: Vec<Duration> = requests.iter().map(|request| request.lease).collect();
        let not_after = requests.iter().map(|request| request.not_after).min().unwrap_or(Instant::NEVER);
        let plan = Plan::until(not_after);
        let names: Vec<Name> = requests.iter().map(|request| request.name.clone()).collect::<BTreeSet<_>>().into_iter().collect();
        let mut known: BTreeMap<Name, NameRows> = BTreeMap::new();
        let run = move |engine: &mut RecordEngine<'_, Work>, window: &Window| {
            let requests: Vec<Acquire> = requests.iter().map(|request| on_server(request, window)).collect();
            Ok(match engine.acquire_all(&requests)? {
                AttemptAll::Busy { index, busy } => AttemptAll::Busy { index, busy: waits_here(busy, window) },
                other => other,
            })
        };
        let mut blocked = 0;
        for round in 0..ROUNDS {
            if round > 1 {
                self.pause().await;
            }
            let live = self.link.live().await?;
            if known.is_empty() && !names.is_empty() {
                known = names.iter().cloned().zip(self.read(&live, &names).await?).collect();
            }
            let window = live.clock().window(self.runtime.now());
            if known.values().any(|rows| rows.has_doubtful_place(window.now())) {
                known.clear();
                continue;
            }
            let mut work = Work::default();
            known.iter().for_each(|(name, rows)| work.add(name, rows.clone()));
            let computed = step::compute(&run, work, &window, || self.version());
            if !computed.changed {
                return computed.answer.map(|attempt| all_as_asked(attempt, &leases));
            }
            let absent: Vec<Name> =
                known.iter().filter(|(_, rows)| rows.version.is_none()).map(|(name, _)| name.clone()).collect();
            if !absent.is_empty() {
                let versions: Vec<i64> = absent.iter().map(|_| self.version()).collect();
                unless_blocked(live.create(&absent, &versions).await)?;
                known.clear();
                continue;
            }
            let (puts, after): (Vec<Put>, Vec<NameRows>) = computed.writes.into_iter().unzip();
            let sent = self.runtime.now();
            let Some(answer) = unless_blocked(live.put_all(&puts, plan.bounds(&window)).await)? else {
                blocked += 1;
                if blocked == BLOCKED_ROUNDS {
                    return Ok(AttemptAll::Busy { index: 0, busy: busy(false) });
                }
                known.clear();
                continue;
            };
            live.clock().observe(answer.clock, sent, self.runtime.now());
            if answer.told.iter().all(|told| matches!(told, Outcome::Done { .. })) {
                for ((put, after), told) in puts.iter().zip(after).zip(answer.told) {
                    if let Outcome::Done { token, .. } = told {
                        self.wrote(put, after, token);
                    }
                }
                return computed.answer.map(|attempt| all_as_asked(attempt, &leases));
            }
            known.clear();
        }
        match names.first() {
            Some(name) => Err(step::contended(name)),
            None => Err(Error::new(ErrorKind::InvalidArgument, "acquire_all needs at least one name")),
        }
    }

    /// Renews many holds with one statement, in the order of their names. A row that others have locked is tried again, and holds
    /// nobody else up.
    pub(crate) async fn renew(&self, requests: Vec<Renew>) -> Result<Vec<Result<Renewed>>> {
        let mut answers: Vec<Option<Result<Renewed>>> = requests.iter().map(|_| None).collect();
        // Rows that came with an answer to this request.
        let mut current: BTreeMap<Name, NameRows> = BTreeMap::new();
        for round in 0..RENEWAL_ROUNDS {
            let open: Vec<usize> = (0..requests.len()).filter(|index| answers[*index].is_none()).collect();
            if open.is_empty() {
                break;
            }
            if round > 1 {
                self.pause().await;
            }
            let live = self.live(&requests[open[0]].name).await.map_err(Failed::into_error)?;
            let names: BTreeSet<&Name> = open.iter().map(|index| &requests[*index].name).collect();
            let mut work = Work::default();
            let mut unknown = Vec::new();
            let now = live.clock().window(self.runtime.now()).now();
            for name in names {
                let remembered = || self.cache.get(name).filter(|rows| round == 0 && !rows.has_doubtful_place(now));
                match current.get(name).cloned().or_else(remembered) {
                    Some(rows) => work.add(name, rows),
                    None => unknown.push(name.clone()),
                }
            }
            if !unknown.is_empty() {
                for (name, rows) in unknown.iter().zip(self.read(&live, &unknown).await?) {
                    work.add(name, rows.clone());
                    current.insert(name.clone(), rows);
                }
            }
            let window = live.clock().window(self.runtime.now());
            let asked = self.far_ends.ask(open.iter().map(|index| &requests[*index]), || self.runtime.now());
            let run = |engine: &mut RecordEngine<'_, Work>, window: &Window| -> Result<Vec<(usize, Result<Option<Instant>>)>> {
                let renewed = open
                    .iter()
                    .zip(&asked)
                    .map(|(index, asked)| (*index, engine.renew_as(&requests[*index], &asked.prolonged(window.uncertainty()))));
                Ok(renewed.collect())
            };
            let changed: BTreeSet<Name>;
            let (computed, puts, after) = {
                let micros = u64::try_from(window.earliest).unwrap_or(0);
                let renewed = run(&mut RecordEngine::new(&mut work, window.now(), micros, None), &window)?;
                changed = work.0.iter().filter(|(_, work)| work.changed).map(|(name, _)| name.clone()).collect();
                let nothing = |_: &mut RecordEngine<'_, Work>, _: &Window| Ok(());
                let writes = step::compute(&nothing, work, &window, || self.version()).writes;
                let (puts, after): (Vec<Put>, Vec<NameRows>) =
                    writes.into_iter().filter(|(put, _)| changed.contains(&put.name)).unzip();
                (renewed, puts, after)
            };
            let mut settled: BTreeSet<Name> = BTreeSet::new();
            if !puts.is_empty() {
                let plan = Plan::until(Instant::NEVER);
                let sent = self.runtime.now();
                if let Some(answer) = unless_blocked(live.put_each(&puts, plan.bounds(&window)).await)? {
                    live.clock().observe(answer.clock, sent, self.runtime.now());
                    for ((put, after), told) in puts.iter().zip(after).zip(answer.told) {
                        match told {
                            Outcome::Done { token, .. } => {
                                self.wrote(put, after, token);
                                settled.insert(put.name.clone());
                            }
                            Outcome::Refused(rows) => drop(current.insert(put.name.clone(), *rows)),
                            Outcome::Outdated => drop(current.remove(&put.name)),
                        }
                    }
                }
            }
            for ((index, ends), asked) in computed.into_iter().zip(&asked) {
                let name = &requests[index].name;
                // Nothing to write: right if the rows are those of the server.
                let confirmed = !changed.contains(name) && current.contains_key(name);
                if settled.contains(name) || confirmed {
                    let now = window.now();
                    let told = |end: Option<Instant>| Some((end?, end?.since(now))).filter(|(end, _)| asked.is_far(*end, now));
                    answers[index] = Some(ends.map(|end| {
                        self.far_ends.answered(&requests[index], asked, told(end), || self.runtime.now());
                        end.map_or(Renewed::Gone, |_| Renewed::kept(requests[index].lease))
                    }));
                }
            }
        }
        let open = |request: &Renew| {
            let message = format!("the row of {:?} is locked by another transaction; the renewal is tried again", request.name);
            Err(Error::new(ErrorKind::Unavailable, message))
        };
        Ok(answers.into_iter().zip(&requests).map(|(answer, request)| answer.unwrap_or_else(|| open(request))).collect())
    }
}

/// The answer to an acquire that waited in vain for a row lock.
fn blocked(fenced: bool, placed: bool) -> Busy {
    let retry = if fenced { BLOCKED_RETRY } else { runtime::jitter(STEP_RETRY.0, STEP_RETRY.1) };
    Busy { retry_in: Some(retry), ..busy(placed) }
}

/// Somebody's transaction has the row locked: a fence that protects the work of the last holder, usually.
fn busy(placed: bool) -> Busy {
    Busy { retry_in: Some(BLOCKED_RETRY), ahead: None, placed, unseen: true }
}

fn unless_blocked<T>(answered: std::result::Result<T, Failed>) -> Result<Option<T>> {
    match answered {
        Ok(answer) => Ok(Some(answer)),
        Err(Failed::Blocked(_)) => Ok(None),
        Err(Failed::Error(error)) => Err(error),
    }
}

/// A request with its times on the server's clock. Its lease counts from the latest time that the server may have.
pub(super) fn on_server(request: &Acquire, window: &Window) -> Acquire {
    let longer = |time: Duration| time.saturating_add(window.uncertainty());
    Acquire {
        not_after: window.translate(request.not_after),
        since: window.in_order(request.since),
        lease: longer(request.lease),
        place: request.place.map(longer),
        ..request.clone()
    }
}

/// An answer with the time to ask again on our clock: never later than a lease ends.
pub(super) fn here(attempt: Attempt, window: &Window) -> Attempt {
    match attempt {
        Attempt::Busy(busy) => Attempt::Busy(waits_here(busy, window)),
        other => other,
    }
}

fn waits_here(busy: Busy, window: &Window) -> Busy {
    Busy { retry_in: busy.retry_in.map(|left| window.at_least(left)), ..busy }
}

/// A grant is good for the lease that was asked for.
fn as_asked(attempt: Attempt, lease: Duration) -> Attempt {
    match attempt {
        Attempt::Granted(grant) => Attempt::Granted(Grant { good_for: lease, ..grant }),
        other => other,
    }
}

fn all_as_asked(attempt: AttemptAll, leases: &[Duration]) -> AttemptAll {
    match attempt {
        AttemptAll::Granted(grants) => AttemptAll::Granted(
            grants.into_iter().zip(leases).map(|(grant, lease)| Grant { good_for: *lease, ..grant }).collect(),
        ),
        other => other,
    }
}
