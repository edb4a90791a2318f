//! The local queues of a client, one for each name and kind in use.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, TryLockError, Weak};
use std::time::Duration;

use super::local_queue::{Checked, Orphan};
use super::releaser::Undo;
use super::{Core, Left, LocalQueue, lock};
use crate::backend::{Kind, Release};
use crate::name::Name;
use crate::owner::WireOwner;
use crate::runtime::sync::Mutex;
use crate::runtime::{Instant, caught, log};

/// How many queues are remembered for their back-off, which is short.
const BACKING_OFF: usize = 32;

/// A queue whose check panicked is checked again after so long.
const AFTER_PANIC: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(super) struct Queues {
    by_name: Mutex<HashMap<(Name, Kind), Weak<LocalQueue>>>,
    /// The queues that backed off last: a new handle for the name must know of it.
    backing_off: Mutex<VecDeque<Arc<LocalQueue>>>,
    /// The queues that the keeper checks, and when.
    checks: Mutex<Vec<Check>>,
}

#[derive(Debug)]
struct Check {
    at: Instant,
    name: Name,
    queue: Weak<LocalQueue>,
}

impl Core {
    /// Has the keeper check a queue from now on.
    pub(crate) fn check_queue(&self, name: &Name, queue: &Arc<LocalQueue>) {
        self.queues.check_soon(self, name, queue);
    }
}

impl Queues {
    /// The one queue for a name of this kind. A caller that asks for another kind must not wait here for what it cannot have.
    pub(super) fn get(&self, core: &Core, name: &Name, kind: Kind) -> Arc<LocalQueue> {
        let mut queues = match self.by_name.try_lock() {
            Ok(queues) => queues,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // A thread of the parent process may have held it when this process was forked off: it stays locked for ever.
            Err(TryLockError::WouldBlock) if core.is_forked() => return Arc::default(),
            Err(TryLockError::WouldBlock) => lock(&self.by_name),
        };
        let key = (name.clone(), kind);
        if let Some(queue) = queues.get(&key).and_then(Weak::upgrade) {
            return queue;
        }
        // A name that is no longer used leaves an empty entry; sweep when they may be many.
        if queues.len() >= 64 && queues.len().is_power_of_two() {
            queues.retain(|_, queue| queue.strong_count() > 0);
        }
        let queue = Arc::new(LocalQueue::default());
        queues.insert(key, Arc::downgrade(&queue));
        queue
    }

    /// A back-off began: the queue must be found by the next handle, also if no handle for the name is left now.
    pub(super) fn remember(&self, queue: &Arc<LocalQueue>) {
        let mut kept = lock(&self.backing_off);
        if kept.back().is_some_and(|last| Arc::ptr_eq(last, queue)) {
            return;
        }
        kept.push_back(Arc::clone(queue));
        let oldest = if kept.len() > BACKING_OFF { kept.pop_front() } else { None };
        drop(kept);
        // It may be the last reference, and ends a subscription then.
        drop(oldest);
    }

    /// Has the keeper check a queue from now on.
    pub(super) fn check_soon(&self, core: &Core, name: &Name, queue: &Arc<LocalQueue>) {
        let check = Check { at: core.runtime.now(), name: name.clone(), queue: Arc::downgrade(queue) };
        lock(&self.checks).push(check);
        core.keeper_wake.notify_one();
    }

    /// The call of this owner does not run, and what it may have in the store is to be taken back: nothing is handed over to it any more. False if
    /// something was.
    pub(super) fn revoke(&self, Release { name, claim, owner, .. }: &Release, now: Instant) -> bool {
        let queue = lock(&self.by_name).get(&(name.clone(), claim.kind())).and_then(Weak::upgrade);
        queue.is_none_or(|queue| queue.revoke(*owner, now))
    }

    /// All queues in use, in the order of their names: that of the table differs from run to run, and a simulation has to replay.
    fn live(&self) -> Vec<(Name, Arc<LocalQueue>)> {
        let live = |(key, queue): (&(Name, Kind), &Weak<LocalQueue>)| Some((key.clone(), queue.upgrade()?));
        let all: BTreeMap<_, _> = lock(&self.by_name).iter().filter_map(live).collect();
        all.into_iter().map(|((name, _), queue)| (name, queue)).collect()
    }

    /// The client closes: nothing is handed over from here on, and what was handed over and not picked up is released.
    pub(super) fn close(&self, core: &Core) {
        for (name, queue) in self.live() {
            for (Orphan { owner, claim }, Left { settled_after, unanswered }) in queue.close() {
                let release = Release::new(name.clone(), claim, owner);
                core.undo(Undo { release, lease: core.settings.lease, settled_after, unanswered, queue: None });
            }
        }
    }

    /// What queues still have, in words.
    #[cfg(feature = "conformance")]
    pub(super) fn remains(&self) -> Vec<String> {
        self.live()
            .into_iter()
            .filter_map(|(name, queue)| Some(format!("{} in the queue of {name:?}", queue.remains()?)))
            .collect()
    }

    /// The keeper's part: waiters go on that wait for a caller that does not run, and what nobody will use is released. Tells when to come again, and
    /// which owners the store has to be asked about.
    pub(super) fn check(&self, core: &Core, now: Instant) -> (Instant, Vec<WireOwner>) {
        let mut checks = std::mem::take(&mut *lock(&self.checks));
        let (mut next, mut doubtful) = (Instant::NEVER, Vec::new());
        checks.retain_mut(|check| {
            if now < check.at {
                next = next.min(check.at);
                return true;
            }
            let Some(queue) = check.queue.upgrade() else { return false };
            // It wakes waiters, and wakers are code of the user's.
            let Some(Checked { orphans, passed_over, doubtful: owner, again }) = caught(|| queue.check(now)) else {
                log!(error, name = %check.name, "the waker of a task that waits for this lock panicked");
                check.at = now.plus(AFTER_PANIC);
                next = next.min(check.at);
                return true;
            };
            core.marks.is_over(&passed_over, now);
            doubtful.extend(owner);
            for Orphan { owner, claim } in orphans {
                let settle = !core.capabilities.refuses_late;
                let release = Release::new(check.name.clone(), claim, owner).with_settle(settle);
                let (lease, settled_after) = (core.settings.lease, Instant::default());
                core.undo(Undo { release, lease, settled_after, unanswered: 0, queue: Some(Arc::clone(&queue)) });
            }
            check.at = again.unwrap_or(check.at);
            next = next.min(again.unwrap_or(Instant::NEVER));
            again.is_some()
        });
        lock(&self.checks).append(&mut checks);
        (next, doubtful)
    }
}
