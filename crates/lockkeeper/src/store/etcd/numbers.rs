//! Counting: the record of a name, changed by comparing the revision at which it was last written.
//!
//! What a request answered lies in a key of its own, attached to the session, so that a repetition is recognised without any clock. It is removed
//! by the client that wrote it, long after no copy of the request can be on its way, or with its session.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::Inner;
use super::error::Failed;
use super::keys;
use super::request::{MOST, delete, found, get, is_absent, modified_at, none_since, oldest, put, range, txn};
use super::session::Lease;
use super::view::{NO_TIME, Numbers, View};
use crate::backend::{Count, CountOp, CountOutcome, Counted, SemaphoreOp};
use crate::error::{Error, ErrorKind, Result};
use crate::model::Now;
use crate::owner::WireOwner;
use crate::runtime::{self, Instant, jitter, log};

/// How long the answer to a request is kept for repetitions, at least.
const REMEMBERED: Duration = Duration::from_secs(60);

/// How often a change is tried again that others came before.
const TRIES: u32 = 200;

/// Counting requests of this client: in which session each was first sent, and which answers can be removed when.
#[derive(Debug, Default)]
pub(super) struct Counts(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    sent_in: HashMap<WireOwner, u64>,
    answered: VecDeque<(Instant, WireOwner, Vec<u8>)>,
}

impl Counts {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session in which this request was first sent.
    fn session(&self, id: WireOwner, now: u64) -> u64 {
        *self.state().sent_in.entry(id).or_insert(now)
    }

    fn forget(&self, id: WireOwner) {
        self.state().sent_in.remove(&id);
    }

    fn answered(&self, id: WireOwner, key: Vec<u8>, until: Instant) {
        self.state().answered.push_back((until, id, key));
    }

    /// Answers that nobody can ask for any more.
    fn old(&self, now: Instant) -> Vec<Vec<u8>> {
        let mut state = self.state();
        let mut old = Vec::new();
        while old.len() < MOST && state.answered.front().is_some_and(|(until, ..)| *until <= now) {
            if let Some((_, id, key)) = state.answered.pop_front() {
                state.sent_in.remove(&id);
                old.push(key);
            }
        }
        old
    }
}

/// What is written into a record key.
pub(super) fn written(numbers: &mut Numbers) -> Result<Vec<u8>> {
    // Requests are remembered elsewhere.
    numbers.record.expire(NO_TIME);
    serde_json::to_vec(numbers).map_err(|cause| Error::new(ErrorKind::Protocol, "a record cannot be written").with_source(cause))
}

impl Inner {
    pub(super) async fn count(&self, request: Count) -> Result<CountOutcome> {
        keys::check(&request.name, self.transport.config.slashes)?;
        if request.op.is_read() {
            let view = self.read(&request.name).await?;
            return self.step(&request, &view).map(|(_, answer)| CountOutcome::Counted(answer));
        }
        let lease = self.session.fresh(&self.transport).await.map_err(Failed::into_error)?;
        let first = self.counts.session(request.id, lease.number);
        if first != lease.number {
            let message = "the session ended while a counting request was under way; whether it was carried out is not known";
            return Err(Error::new(ErrorKind::Indeterminate, message));
        }
        let answer = self.count_once(&request, &lease).await;
        if answer.as_ref().is_err_and(|error| !error.may_have_taken()) {
            self.counts.forget(request.id);
        }
        answer
    }

    async fn count_once(&self, request: &Count, lease: &Lease) -> Result<CountOutcome> {
        let (name, done) = (&request.name, keys::done_key(lease.id, request.id));
        for tries in 0..TRIES {
            let reads = vec![get(done.clone()), range(oldest(keys::prefix(name), 0))];
            let answer = self.transport.txn(txn(Vec::new(), reads, Vec::new())).await.map_err(Failed::into_error)?;
            let mut seen = found(answer.responses);
            if let Some(kv) = seen.next().and_then(|done| done.into_iter().next()) {
                let parsed = serde_json::from_slice(&kv.value);
                return parsed.map(CountOutcome::Counted).map_err(|cause| {
                    Error::new(ErrorKind::Protocol, "the answer to a counting request cannot be read").with_source(cause)
                });
            }
            let view = View::of(name, seen.next().unwrap_or_default())?;
            let (numbers, counted) = self.step(request, &view)?;
            if self.write(request, lease, &view, numbers, counted, &done).await? {
                return Ok(CountOutcome::Counted(counted));
            }
            let most = Duration::from_millis(u64::from(1 + tries.min(20)));
            self.transport.runtime.sleep_until(self.transport.runtime.now().plus(jitter(Duration::ZERO, most))).await;
        }
        let message = format!("others changed {name:?} at etcd {TRIES} times before it could be counted; nothing was done");
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    /// Writes what became of the record, unless somebody else did meanwhile.
    async fn write(
        &self,
        request: &Count,
        lease: &Lease,
        view: &View,
        mut numbers: Numbers,
        counted: Counted,
        done: &[u8],
    ) -> Result<bool> {
        let (name, now) = (&request.name, self.transport.runtime.now());
        let record = keys::record_key(name);
        let mut compare = vec![is_absent(done.to_vec())];
        match view.record_revision {
            // A name has one kind: nothing of another kind was seen, and no key came since then.
            0 => compare.extend([is_absent(record.clone()), none_since(keys::prefix(name), view.newest)]),
            revision => compare.push(modified_at(record.clone(), revision)),
        }
        if request.op == CountOp::Semaphore(SemaphoreOp::Remove) && counted.done {
            let permits = keys::prefix_of(name, crate::store::queue::Want::Permits { take: 0, granted: false });
            compare.push(none_since(permits, view.newest));
        }
        let answer = serde_json::to_vec(&counted)
            .map_err(|cause| Error::new(ErrorKind::Protocol, "an answer cannot be written").with_source(cause))?;
        let mut ops = vec![put(done.to_vec(), answer, lease.id)];
        numbers.record.expire(NO_TIME);
        match numbers.record.is_empty() {
            true if view.record_revision > 0 => ops.push(delete(record)),
            true => {}
            false if view.numbers.as_ref() == Some(&numbers) => {}
            false => ops.push(put(record, written(&mut numbers)?, 0)),
        }
        let answer = self.transport.txn(txn(compare, ops, Vec::new())).await;
        let answer = answer.map_err(|failed| self.session.failed(lease.id, failed))?;
        if answer.succeeded {
            self.counts.answered(request.id, done.to_vec(), now.plus(request.remember.max(REMEMBERED)));
        }
        Ok(answer.succeeded)
    }

    /// What the request makes of the record, and answers.
    fn step(&self, request: &Count, view: &View) -> Result<(Numbers, Counted)> {
        let (name, op) = (&request.name, request.op);
        view.check_kind(name, op.kind(), &[])?;
        let mut numbers = view.numbers.clone().unwrap_or_default();
        let total = || view.numbers.as_ref().and_then(|numbers| numbers.snapshot(name)).and_then(|seen| seen.total).unwrap_or(0);
        if op == CountOp::Semaphore(SemaphoreOp::Remove) && !view.nodes().is_empty() {
            return Ok((numbers, Counted::new(false, i64::from(total()))));
        }
        if let CountOp::Semaphore(SemaphoreOp::Resize(size)) = op {
            let holders = view.holders(name);
            // Those who have permits keep them, though they are more than the new size.
            numbers.kept = if size < total() { holders.iter().map(|node| node.revision).collect() } else { numbers.kept };
            numbers.kept.retain(|revision| holders.iter().any(|node| node.revision == *revision));
        }
        let timeless = Count::new(name.clone(), request.id, op, Duration::ZERO);
        let answer = numbers.record.count(&timeless, Now { at: NO_TIME, token: 0 })?.answer;
        let CountOutcome::Counted(Counted { done, value }) = answer else {
            return Err(Error::new(ErrorKind::Protocol, "a request without a time limit was refused as late"));
        };
        let used = if op == CountOp::Semaphore(SemaphoreOp::Read) { view.used(name) } else { 0 };
        Ok((numbers, Counted::new(done, value - i64::from(used))))
    }

    /// Removes answers that nobody can ask for any more, in the background.
    pub(super) fn sweep_counts(&self) {
        let old = self.counts.old(self.transport.runtime.now());
        if old.is_empty() {
            return;
        }
        let transport = std::sync::Arc::clone(&self.transport);
        self.transport.worker.spawn(async move {
            let ops = old.into_iter().map(delete).collect();
            let asked = Box::pin(transport.txn(txn(Vec::new(), ops, Vec::new())));
            if let Some(Err(failed)) = runtime::within(Duration::from_secs(5), asked).await {
                log!(debug, error = %failed.into_error(), "old answers were not removed; they end with the session");
            }
        });
    }
}
