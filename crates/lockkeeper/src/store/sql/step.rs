//! How one step is carried out: on remembered rows, on rows of the last answer, or on a locked row.

use std::sync::Arc;
use std::time::Duration;

use super::clock::Window;
use super::rows::{NameRows, NameWork, Work};
use super::{Bounds, Dial, Failed, Outcome, Put, Statements as _, Steps, text};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::runtime::{self, Instant};
use crate::store::kit::engine::RecordEngine;

/// After so many wrong guesses the row is locked first.
const GUESSES: u32 = 2;

/// After so many attempts that others stood in the way of, the request fails.
const ATTEMPTS: u32 = 40;

/// How long an attempt waits for a row lock, at the server or by asking again.
const ROW_WAIT: Duration = Duration::from_millis(90);

/// How a step is to be carried out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Not after this time, on our clock.
    pub(super) not_after: Instant,
    /// The answer is final only if the row was locked for it, also if nothing changes: a request of the same owner may be about to commit,
    /// and a plain read does not see it.
    pub(super) verify: bool,
    /// After so many attempts that waited in vain for a row lock, give up.
    pub(super) attempts: u32,
    /// See [`Put::lasting`].
    pub(super) lasting: bool,
}

/// What a step computed.
pub(super) struct Computed<T> {
    pub(super) answer: Result<T>,
    /// What to write, and the rows afterwards.
    pub(super) writes: Vec<(Put, NameRows)>,
    pub(super) changed: bool,
}

pub(super) type Run<T> = dyn Fn(&mut RecordEngine<'_, Work>, &Window) -> Result<T> + Send + Sync;

impl<D: Dial> Steps<D> {
    /// A connection whose clock was measured lately. Leases are prolonged by what is not known of the clock, so after a long pause a hold of a
    /// process that crashes would stay for minutes.
    pub(super) async fn live(&self, name: &Name) -> std::result::Result<Arc<D::Live>, Failed> {
        let live = self.link.live().await.map_err(Failed::Error)?;
        let sent = self.runtime.now();
        if live.clock().is_stale(sent) {
            // Any answer tells the time.
            let read = live.read(std::slice::from_ref(name)).await?;
            live.clock().observe(read.clock, sent, self.runtime.now());
        }
        Ok(live)
    }

    /// One step on one name: its answer, and how many clients it notified.
    pub(super) async fn step<T: Send + 'static>(
        &self,
        name: &Name,
        plan: Plan,
        run: impl Fn(&mut RecordEngine<'_, Work>, &Window) -> Result<T> + Send + Sync + 'static,
    ) -> Result<(T, u32)> {
        self.try_step(name, plan, run).await.map_err(Failed::into_error)
    }

    /// As [`Steps::step`]; tells whether the row was locked by others.
    pub(super) async fn try_step<T: Send + 'static>(
        &self,
        name: &Name,
        plan: Plan,
        run: impl Fn(&mut RecordEngine<'_, Work>, &Window) -> Result<T> + Send + Sync + 'static,
    ) -> std::result::Result<(T, u32), Failed> {
        let run: Arc<Run<T>> = Arc::new(run);
        let turn = self.turns.of(name);
        let _turn = turn.lock().await;
        let mut known = self.cache.get(name);
        // Whether `known` came with an answer to this request.
        let mut current = false;
        let mut wrong_guesses = 0;
        let mut blocked = None;
        let (mut times_blocked, mut blocked_since) = (0, None);
        let mut attempts = 0;
        while attempts < ATTEMPTS && times_blocked < plan.attempts {
            attempts += 1;
            let live = self.live(name).await?;
            if wrong_guesses >= GUESSES {
                let began = self.runtime.now();
                match self.locked(live, name, plan, Arc::clone(&run)).await {
                    Ok(done) => return done.map_err(Failed::Error),
                    Err(Failed::Blocked(error)) => {
                        blocked = Some(error);
                        let since = *blocked_since.get_or_insert(began);
                        if self.runtime.now().since(since) >= ROW_WAIT {
                            (times_blocked, blocked_since) = (times_blocked + 1, None);
                        } else {
                            // The server said so at once instead of waiting for the row: all of this is one attempt.
                            attempts -= 1;
                            self.pause().await;
                        }
                        continue;
                    }
                    Err(failed) => return Err(failed),
                }
            }
            let window = live.clock().window(self.runtime.now());
            known = known.filter(|rows| !rows.has_doubtful_place(window.now()));
            current &= known.is_some();
            let rows = known.clone().unwrap_or_default();
            let version = rows.version;
            let mut computed = compute(&*run, Work::of(name, rows), &window, || self.version());
            if !computed.changed && !plan.verify {
                if current {
                    return computed.answer.map(|answer| (answer, 0)).map_err(Failed::Error);
                }
                let sent = self.runtime.now();
                let read = match live.read(std::slice::from_ref(name)).await {
                    Ok(read) => read,
                    Err(Failed::Blocked(error)) => {
                        blocked = Some(error);
                        times_blocked += 1;
                        continue;
                    }
                    Err(failed) => return Err(failed),
                };
                live.clock().observe(read.clock, sent, self.runtime.now());
                let found = read.told.into_iter().next().unwrap_or_default();
                self.cache.keep(name, found.clone());
                if known.is_some() && found.version == version {
                    return computed.answer.map(|answer| (answer, 0)).map_err(Failed::Error);
                }
                (known, current) = (Some(found), true);
                continue;
            }
            let Some((mut put, after)) = computed.writes.pop() else {
                return computed.answer.map(|answer| (answer, 0)).map_err(Failed::Error);
            };
            put.lasting = plan.lasting || put.grants;
            let bounds = plan.bounds(&window);
            let sent = self.runtime.now();
            let answered = if put.version.is_none() {
                live.insert(&put, bounds).await
            } else if plan.not_after == Instant::NEVER && !put.grants {
                self.batch.put(&self.link, put.clone(), bounds).await
            } else {
                live.put_all(std::slice::from_ref(&put), bounds).await.map(|answer| super::Answer {
                    clock: answer.clock,
                    told: answer.told.into_iter().next().unwrap_or_else(|| Outcome::Refused(Box::default())),
                })
            };
            match answered {
                Ok(answer) => {
                    live.clock().observe(answer.clock, sent, self.runtime.now());
                    match answer.told {
                        Outcome::Done { token, woke } => {
                            let woke = woke + self.wrote(&put, after, token);
                            return computed.answer.map(|answer| (answer, woke)).map_err(Failed::Error);
                        }
                        Outcome::Refused(rows) => {
                            // The first guess of a client that knows nothing is no sign of contention.
                            wrong_guesses += u32::from(current || known.is_some());
                            self.cache.keep(name, (*rows).clone());
                            (known, current) = (Some(*rows), true);
                        }
                        // A guess on older part rows would be wrong.
                        Outcome::Outdated => wrong_guesses = GUESSES,
                    }
                }
                Err(failed) => {
                    // Whether it was written is not known, or the row is locked: what is remembered may be outdated.
                    self.cache.forget(name);
                    match failed {
                        Failed::Blocked(error) => {
                            blocked = Some(error);
                            times_blocked += 1;
                            wrong_guesses += 1;
                        }
                        failed @ Failed::Error(_) => return Err(failed),
                    }
                }
            }
        }
        Err(Failed::Blocked(blocked.unwrap_or_else(|| contended(name))))
    }

    /// One step in a transaction that locks the row first.
    async fn locked<T: Send + 'static>(
        &self,
        live: Arc<D::Live>,
        name: &Name,
        plan: Plan,
        run: Arc<Run<T>>,
    ) -> std::result::Result<Result<(T, u32)>, Failed> {
        let runtime = self.runtime.clone();
        let compute_locked = move |rows: NameRows, window: Window, name: Name| {
            if rows.has_doubtful_place(window.now()) {
                return (None, None);
            }
            let mut computed = compute(&*run, Work::of(&name, rows), &window, || runtime.client_id().bits() as i64);
            let changed = computed.changed;
            // A row that does not exist cannot be locked: an insert waits for one of the same name that is about to commit.
            let writes = computed.writes.pop().filter(|(put, _)| changed || (plan.verify && put.version.is_none()));
            let (put, after) = writes.map_or((None, None), |(put, after)| (Some(put), Some(after)));
            (Some((computed.answer, put.clone(), after)), put.map(|put| (put, plan.bounds(&window))))
        };
        let of = name.clone();
        let done = self.link.transaction(live, name.clone(), move |rows, window| compute_locked(rows, window, of)).await;
        let ((answer, put, after), outcome) = match done {
            Ok((Some(computed), outcome)) => (computed, outcome),
            // This client stood still after it had read the rows.
            Ok((None, _)) => return Err(Failed::Blocked(contended(name))),
            Err(failed) => {
                self.cache.forget(name);
                return Err(failed);
            }
        };
        match (put.zip(after), outcome) {
            (Some((put, after)), Some(Outcome::Done { token, woke })) => {
                let woke = woke + self.wrote(&put, after, token);
                Ok(answer.map(|answer| (answer, woke)))
            }
            (None, None) => Ok(answer.map(|answer| (answer, 0))),
            _ => {
                self.cache.forget(name);
                Err(Failed::Blocked(contended(name)))
            }
        }
    }

    /// Waits a moment before the same is tried again beside others.
    pub(super) async fn pause(&self) {
        let (low, high) = (Duration::from_millis(1), Duration::from_millis(10));
        self.runtime.sleep_until(self.runtime.now().plus(runtime::jitter(low, high))).await;
    }
}

impl Plan {
    /// A step that the server carries out not after this time.
    pub(super) fn until(not_after: Instant) -> Self {
        Self { not_after, verify: false, attempts: ATTEMPTS, lasting: true }
    }

    /// When the server may write what was computed in this window.
    pub(super) fn bounds(&self, window: &Window) -> Bounds {
        let not_after = window.translate(self.not_after);
        // What the engine already answered as late is not granted; the rest of the step (a release, rows that ended) is never late.
        let not_after = if window.now() > not_after { Instant::NEVER } else { not_after };
        Bounds { earliest: window.earliest, until: window.until(not_after) }
    }
}

/// Runs the engine on the rows of some names.
pub(super) fn compute<T>(run: &Run<T>, mut work: Work, window: &Window, version: impl Fn() -> i64) -> Computed<T> {
    let before: Vec<(Name, u64)> = work.0.iter().map(|(name, work)| (name.clone(), work.rows.token)).collect();
    let micros = u64::try_from(window.earliest).unwrap_or(0);
    let mut answer = run(&mut RecordEngine::new(&mut work, window.now(), micros, None), window);
    let changed = work.is_changed();
    let mut writes = Vec::with_capacity(work.0.len());
    for (name, work) in work.0 {
        let known = before.iter().find(|(known, _)| *known == name).map_or(0, |(_, token)| *token);
        match put(name, &work, known, version()) {
            Ok(put) => writes.push((put, work.rows)),
            Err(error) => answer = Err(error),
        }
    }
    Computed { answer, writes, changed }
}

fn put(name: Name, work: &NameWork, token_before: u64, next: i64) -> Result<Put> {
    let NameWork { rows, put, deleted, wake, .. } = work;
    if i64::try_from(rows.token).is_err() {
        let message = format!("the token {} exceeds the maximum of {}", rows.token, i64::MAX);
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    let grants = rows.token > token_before;
    Ok(Put {
        version: rows.version,
        next,
        // A row that is created without a grant gets the last token of removed rows from the server, which takes only larger ones from us.
        token: if rows.version.is_none() && !grants { 0 } else { rows.token },
        grants,
        body: rows.head.as_ref().map(text::head_body).transpose()?,
        parts: put.iter().filter_map(|key| rows.parts.get(key)).copied().collect(),
        deleted: deleted.iter().copied().collect(),
        wake: *wake,
        frees: rows.head.is_none() && rows.parts.is_empty(),
        lasting: true,
        name,
    })
}

/// The rows after a step was written.
pub(super) fn written(after: NameRows, put: &Put, token: u64) -> NameRows {
    let head = after.head.map(|head| crate::store::kit::rows::HeadRow { last_token: token, ..head });
    NameRows { version: Some(put.next), token, head, ..after }
}

pub(super) fn contended(name: &Name) -> Error {
    let message = format!("the row of {name:?} changed each time before it could be written; nothing was done, try again");
    Error::new(ErrorKind::Unavailable, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The server creates a row with a token only if that is larger than all of removed rows. What is known of an absent row is just that number.
    #[test]
    fn a_row_that_is_created_without_a_grant_brings_no_token() {
        let name = Name::new("n").unwrap();
        let token_of = |version: Option<i64>, before: u64| {
            let work = Work::of(&name, NameRows { version, token: 7, ..NameRows::default() });
            let (_, work) = work.0.into_iter().next().unwrap();
            put(name.clone(), &work, before, 1).map(|put| (put.token, put.grants)).unwrap()
        };
        assert_eq!(token_of(None, 7), (0, false), "a latch, a counter, a permit");
        assert_eq!(token_of(None, 6), (7, true));
        assert_eq!(token_of(Some(3), 7), (7, false));
    }
}
