//! The statements of a step, on one connection.
//!
//! There is no `UPDATE … RETURNING`. So a step is a transaction of several statements that are sent together: lock the row, read the clock,
//! decide in a variable, write if it says so, commit, answer. Values are written in hexadecimal: no quoting depends on a setting.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::conn::{Batch, Door, Sets};
use super::rows::{self, found, number};
use super::schema::Texts;
use crate::error::{Error, ErrorKind};
use crate::name::Name;
use crate::runtime::{self, BoxFuture, Instant, Runtime};
use crate::store::sql::clock::{Clock, Window};
use crate::store::sql::poll::Seen;
use crate::store::sql::rows::{NameRows, PartKey};
use crate::store::sql::waiting::Standing;
use crate::store::sql::{Answer, Bounds, Failed, Outcome, Put, Statements};

/// A row that another transaction has locked is tried again for so long, with pauses of this length.
const ROW_WAIT: Duration = Duration::from_millis(100);
const ROW_PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(6));

/// A connection while it lasts.
pub(super) struct Live {
    pub(super) door: Door,
    pub(super) texts: Arc<Texts>,
    pub(super) runtime: Runtime,
    pub(super) clock: Arc<Clock>,
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Live")
    }
}

/// What became of one attempt.
enum Tried<T> {
    Done(T),
    /// Somebody has the row locked, or its fence.
    Locked,
}

impl Live {
    /// Tries until the row can be locked, for a tenth of a second at most. Rows are never waited for inside the server: other requests share
    /// the connection.
    async fn until_locked<T, F: Future<Output = Result<Tried<T>, Failed>> + Send>(
        &self,
        attempt: impl Fn() -> F + Send + Sync,
    ) -> Result<T, Failed> {
        let end = self.runtime.now().plus(ROW_WAIT);
        loop {
            if let Tried::Done(done) = attempt().await? {
                return Ok(done);
            }
            let now = self.runtime.now();
            if now >= end {
                let message = "another transaction has the row locked; nothing was done";
                return Err(Failed::Blocked(Error::new(ErrorKind::Unavailable, message)));
            }
            self.runtime.sleep_until(now.plus(runtime::jitter(ROW_PAUSES.0, ROW_PAUSES.1))).await;
        }
    }

    /// One put of one row, in one round trip.
    async fn put_one(&self, put: &Put, bounds: Bounds) -> Result<Answer<Outcome>, Failed> {
        self.until_locked(|| async {
            let mut batch = Batch::begin();
            self.texts.put_one(&mut batch, put, bounds);
            let sets = self.door.send(batch).await?;
            put_answer(&put.name, &sets)
        })
        .await
    }

    async fn insert_one(&self, put: &Put, bounds: Bounds) -> Result<Answer<Outcome>, Failed> {
        self.until_locked(|| async {
            let mut batch = Batch::begin();
            self.texts.insert(&mut batch, put, bounds);
            let sets = self.door.send(batch).await?;
            put_answer(&put.name, &sets)
        })
        .await
    }

    /// Puts of several rows: locks them in the order of their names, and writes those whose versions fit.
    async fn put_many(&self, puts: &[Put], bounds: Bounds, each: bool) -> Result<Answer<Vec<Outcome>>, Failed> {
        self.until_locked(|| async {
            let names: Vec<Name> = puts.iter().map(|put| put.name.clone()).collect();
            let grants: Vec<Name> = puts.iter().filter(|put| put.grants).map(|put| put.name.clone()).collect();
            let mut first = Batch::begin();
            self.texts.lock_many(&mut first, &names, &grants);
            let (texts, owned) = (Arc::clone(&self.texts), puts.to_vec());
            let then = move |sets: &Sets| {
                let mut batch = Batch::default();
                let fit = rows::Fit::of(sets, bounds);
                if each || fit.all(&owned) {
                    texts.write_many(&mut batch, owned.iter().filter(|put| fit.fits(put)), fit.clock);
                }
                batch.commit();
                batch
            };
            let sets = self.door.send_two(first, then).await?;
            let fit = rows::Fit::of(&sets, bounds);
            if !each && fit.is_locked(puts) {
                return Ok(Tried::Locked);
            }
            let written = each || fit.all(puts);
            let mut found = found(
                &names,
                sets.get(rows::HEADER).map_or(&[][..], |set| set),
                sets.get(rows::ROWS).map_or(&[][..], |set| set),
            )?;
            let told = puts.iter().map(|put| {
                let rows = found.remove(&put.name).unwrap_or_default();
                if written && fit.fits(put) {
                    Outcome::Done { token: put.token.max(rows.token), woke: fit.woke(put) }
                } else {
                    Outcome::Refused(Box::new(rows))
                }
            });
            Ok(Tried::Done(Answer { clock: fit.clock, told: told.collect() }))
        })
        .await
    }

    async fn read_all(&self, names: &[Name]) -> Result<Answer<Vec<NameRows>>, Failed> {
        let mut batch = Batch::default();
        self.texts.read(&mut batch, names, "TRUE");
        let sets = self.door.send(batch).await?;
        let [header, heads] = &sets[..] else { return Err(rows::unexpected()) };
        let mut found = found(names, header, heads)?;
        let told = names.iter().map(|name| found.remove(name).unwrap_or_default()).collect();
        Ok(Answer { clock: number(header.first(), 0)?, told })
    }
}

/// The answer of [`Texts::put_one`] and [`Texts::insert`]: the last two sets.
fn put_answer(name: &Name, sets: &Sets) -> Result<Tried<Answer<Outcome>>, Failed> {
    let [.., verdict, header, heads] = &sets[..] else { return Err(rows::unexpected()) };
    let clock = number(header.first(), 0)?;
    let verdict = verdict.first();
    if number(verdict, 0)? == 1 {
        let (token, woke) = (number(verdict, 1)?.cast_unsigned(), u32::try_from(number(verdict, 2)?).unwrap_or(0));
        return Ok(Tried::Done(Answer { clock, told: Outcome::Done { token, woke } }));
    }
    if number(verdict, 3)? == 1 {
        return Ok(Tried::Locked);
    }
    let names = std::slice::from_ref(name);
    let rows = found(names, header, heads)?.remove(name).unwrap_or_default();
    Ok(Tried::Done(Answer { clock, told: Outcome::Refused(Box::new(rows)) }))
}

impl Statements for Live {
    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn is_usable(&self) -> bool {
        self.door.is_usable()
    }

    fn discard(&self) {
        self.door.discard();
    }

    fn insert<'a>(&'a self, put: &'a Put, bounds: Bounds) -> BoxFuture<'a, Result<Answer<Outcome>, Failed>> {
        Box::pin(self.insert_one(put, bounds))
    }

    fn put_all<'a>(&'a self, puts: &'a [Put], bounds: Bounds) -> BoxFuture<'a, Result<Answer<Vec<Outcome>>, Failed>> {
        Box::pin(async move {
            if let [put] = puts {
                let Answer { clock, told } = self.put_one(put, bounds).await?;
                return Ok(Answer { clock, told: vec![told] });
            }
            self.put_many(puts, bounds, false).await
        })
    }

    fn put_each<'a>(&'a self, puts: &'a [Put], bounds: Bounds) -> BoxFuture<'a, Result<Answer<Vec<Outcome>>, Failed>> {
        Box::pin(self.put_many(puts, bounds, true))
    }

    fn read<'a>(&'a self, names: &'a [Name]) -> BoxFuture<'a, Result<Answer<Vec<NameRows>>, Failed>> {
        Box::pin(self.read_all(names))
    }

    fn standing<'a>(&'a self, name: &'a Name, place: PartKey, at: Instant) -> BoxFuture<'a, Result<Answer<Standing>, Failed>> {
        Box::pin(self.run_standing(name, place, at))
    }

    fn extend_place<'a>(
        &'a self,
        name: &'a Name,
        place: PartKey,
        left: Duration,
        until: Instant,
    ) -> BoxFuture<'a, Result<bool, Failed>> {
        Box::pin(self.run_extend_place(name, place, left, until))
    }

    fn is_fenced<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<bool, Failed>> {
        Box::pin(async move {
            // The lock of a grant keeps out both rows; a fence keeps out its own only.
            let mut batch = Batch::begin();
            self.texts.lock_many(&mut batch, std::slice::from_ref(name), std::slice::from_ref(name));
            batch.push("ROLLBACK");
            let sets = self.door.send(batch).await?;
            let [_, heads, fences, ..] = &sets[..] else { return Err(rows::unexpected()) };
            Ok(!heads.is_empty() && fences.is_empty())
        })
    }

    fn create<'a>(&'a self, names: &'a [Name], versions: &'a [i64]) -> BoxFuture<'a, Result<(), Failed>> {
        Box::pin(async move {
            let mut batch = Batch::begin();
            self.texts.create(&mut batch, names, versions);
            batch.commit();
            self.door.send(batch).await.map(drop)
        })
    }

    fn transaction<T: Send + 'static>(
        &self,
        name: Name,
        compute: impl FnOnce(NameRows, Window) -> (T, Option<(Put, Bounds)>) + Send + 'static,
    ) -> BoxFuture<'_, Result<(T, Option<Outcome>), Failed>> {
        Box::pin(async move {
            let mut first = Batch::begin();
            self.texts.lock_many(&mut first, std::slice::from_ref(&name), &[]);
            let (texts, runtime, of) = (Arc::clone(&self.texts), self.runtime.clone(), name.clone());
            let (clock, sent) = (Arc::clone(&self.clock), self.runtime.now());
            let (sender, mut answered) = oneshot::channel();
            let then = move |sets: &Sets| {
                let mut batch = Batch::default();
                let locked = rows::locked(&of, sets).map(|(rows, time)| {
                    clock.observe(time, sent, runtime.now());
                    compute(rows, clock.window(runtime.now()))
                });
                match locked {
                    Ok((answer, Some((put, bounds)))) => {
                        if put.version.is_none() {
                            texts.insert(&mut batch, &put, bounds);
                        } else {
                            texts.put_one(&mut batch, &put, bounds);
                        }
                        let _ = sender.send(Ok((answer, true)));
                    }
                    Ok((answer, None)) => {
                        batch.commit();
                        let _ = sender.send(Ok((answer, false)));
                    }
                    Err(failed) => {
                        batch.push("ROLLBACK");
                        let _ = sender.send(Err(failed));
                    }
                }
                batch
            };
            let sets = self.door.send_two(first, then).await?;
            let (answer, wrote) = answered.try_recv().map_err(|_| rows::unexpected())??;
            if !wrote {
                return Ok((answer, None));
            }
            match put_answer(&name, &sets)? {
                Tried::Done(Answer { told, .. }) => Ok((answer, Some(told))),
                Tried::Locked => {
                    let message = "a transaction fences the lock, or has its row locked; nothing was done";
                    Err(Failed::Blocked(Error::new(ErrorKind::Unavailable, message)))
                }
            }
        })
    }

    fn versions<'a>(&'a self, names: &'a [Name]) -> BoxFuture<'a, Result<HashMap<Name, Seen>, Failed>> {
        Box::pin(async move {
            let sets = self.door.send(Batch::of([self.texts.versions(names)])).await?;
            rows::seen(names, sets.first().map_or(&[][..], |set| set))
        })
    }

    fn mark<'a>(&'a self, names: &'a [Name], window: i64) -> BoxFuture<'a, Result<(), Failed>> {
        Box::pin(async move {
            let (texts, mut first) = (Arc::clone(&self.texts), Batch::begin());
            texts.lock_many(&mut first, names, &[]);
            let (sender, mut marked) = oneshot::channel();
            let then = move |sets: &Sets| {
                let mut batch = Batch::default();
                let locked = sets.get(1).map_or(&[][..], |set| set);
                texts.mark(&mut batch, locked, window);
                let _ = sender.send(locked.len());
                batch
            };
            self.door.send_two(first, then).await?;
            if marked.try_recv().is_ok_and(|marked| marked >= names.len()) {
                return Ok(());
            }
            // Taken for marked, a row would not be marked again for seconds.
            let message = "a row to be marked is locked, or not there; the others are marked";
            Err(Failed::Blocked(Error::new(ErrorKind::Unavailable, message)))
        })
    }

    fn hint<'a>(&'a self, name: &'a Name, wait: Duration) -> BoxFuture<'a, Result<bool, Failed>> {
        Box::pin(async move {
            let sets = self.door.send(Batch::of([self.texts.hint(name, wait)])).await?;
            // NULL: the server could not.
            let got: Option<i64> = rows::get(sets.first().and_then(|set| set.first()).ok_or_else(rows::unexpected)?, 0)?;
            got.map(|got| got == 1).ok_or_else(rows::unexpected)
        })
    }

    fn unhint<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<(), Failed>> {
        Box::pin(async move { self.door.send(Batch::of([self.texts.unhint(name)])).await.map(drop) })
    }

    fn announce<'a>(&'a self, id: &'a str, ttl: i64, card: &'a [u8]) -> BoxFuture<'a, Result<(), Failed>> {
        Box::pin(async move { self.door.send(Batch::of([self.texts.announce(id, ttl, card)])).await.map(drop) })
    }

    fn cards<'a>(&'a self, ids: &'a [String]) -> BoxFuture<'a, Result<Vec<Vec<u8>>, Failed>> {
        Box::pin(async move { rows::column(&self.door.send(Batch::of([self.texts.cards(ids)])).await?) })
    }

    fn names<'a>(&'a self, after: &'a str, prefix: &'a str, limit: usize) -> BoxFuture<'a, Result<Vec<Vec<u8>>, Failed>> {
        Box::pin(async move { rows::column(&self.door.send(Batch::of([self.texts.names(after, prefix, limit)])).await?) })
    }

    fn sweep(&self, idle: i64) -> BoxFuture<'_, Result<(), Failed>> {
        Box::pin(async move {
            let found = rows::column(&self.door.send(Batch::of(self.texts.idle(idle))).await?)?;
            if found.is_empty() {
                return Ok(());
            }
            let texts = Arc::clone(&self.texts);
            let mut first = Batch::begin();
            first.push(texts.lock_idle(&found, idle));
            let then = move |sets: &Sets| {
                let mut batch = Batch::default();
                texts.remove(&mut batch, sets.get(1).map_or(&[][..], |set| set));
                batch.commit();
                batch
            };
            self.door.send_two(first, then).await.map(drop)
        })
    }
}
