//! What tasks do with guards beside holding them: an owner enters its lock again, and a writer becomes a reader.

use std::future::{Future, IntoFuture as _};
use std::time::Duration;

use lockkeeper::referee::What;
use lockkeeper::sync::Guard;
use lockkeeper::{Held, Result, RwLockReadGuard, RwLockWriteGuard};

use super::Flaw;
use super::work::{Lock, Worker, polled};

/// A turn has two calls at most; the second one has this much larger a number.
const SECOND_CALL: u64 = 500;

impl Worker {
    /// Enters a mutex, and enters it again. One guard is given up, the hold stays until the other one is.
    pub(super) async fn enter_again(&mut self, call: u64) -> bool {
        let handle = self.handle.clone();
        let mutex = handle.mutex("mutex").owned_by(&handle.owner());
        let Some(outer) = self.lock(call, mutex.lock(), mutex.try_lock()).await else { return false };
        let owner = self.granted(Lock::Again, call, outer.held());
        let next = call + SECOND_CALL;
        self.trace.add(self.client, What::Call { call: next, name: "mutex".to_owned() });
        let inner = if self.chance.bool() { outer.reenter().ok() } else { mutex.lock().await.ok() };
        let Some(inner) = inner else {
            self.trace.add(self.client, What::Ended { call: next });
            self.work_with(Lock::Again, owner, outer).await;
            return true;
        };
        let again = self.granted(Lock::Again, next, inner.held());
        let time = self.millis(20);
        if self.lost_within(outer.held(), time).await {
            for owner in [owner, again] {
                self.trace.add(self.client, What::Lost { name: "mutex".to_owned(), owner });
            }
            return true;
        }
        let (first, last) = if self.chance.bool() { (inner, outer) } else { (outer, inner) };
        self.trace.add(self.client, What::Release { name: "mutex".to_owned(), owner: again });
        if self.chance.bool() {
            drop(first);
        } else {
            // The other guard keeps the hold, so there is nothing to be confirmed.
            drop(first.release().await);
        }
        if self.flaw == Flaw::InnerGuardFrees {
            drop(handle.force_release("mutex").await);
        }
        self.work_with(Lock::Again, owner, last).await;
        true
    }

    /// Enters a fair mutex, or one side of the read-write lock, and enters it again.
    pub(super) async fn enter_twice(&mut self, lock: Lock, call: u64) -> bool {
        let handle = self.handle.clone();
        let owner = handle.owner();
        match lock {
            Lock::AgainFair => {
                let mutex = handle.fair_mutex("fair").owned_by(&owner);
                let outer = self.lock(call, mutex.lock(), mutex.try_lock()).await;
                self.enter_inside(lock, call, outer, mutex.lock().into_future()).await
            }
            Lock::AgainRead => {
                let rw = handle.rwlock("rw").owned_by(&owner);
                let outer = self.lock(call, rw.read(), rw.try_read()).await;
                self.enter_inside(lock, call, outer, rw.read().into_future()).await
            }
            _ => {
                let rw = handle.rwlock("rw").owned_by(&owner);
                let outer = self.lock(call, rw.write(), rw.try_write()).await;
                self.enter_inside(lock, call, outer, rw.write().into_future()).await
            }
        }
    }

    /// Enters again with `inner`, which needs no request, and gives up the two guards in either order.
    async fn enter_inside<G: Guard>(
        &mut self,
        lock: Lock,
        call: u64,
        outer: Option<G>,
        inner: impl Future<Output = Result<G>>,
    ) -> bool {
        let Some(outer) = outer else { return false };
        let (name, owner) = (outer.name().to_owned(), self.granted(lock, call, outer.held()));
        let next = call + SECOND_CALL;
        self.trace.add(self.client, What::Call { call: next, name: name.clone() });
        let Ok(inner) = inner.await else {
            self.trace.add(self.client, What::Ended { call: next });
            self.work_with(lock, owner, outer).await;
            return true;
        };
        let again = self.granted(lock, next, inner.held());
        let time = self.millis(20);
        if self.lost_within(outer.held(), time).await {
            for owner in [owner, again] {
                self.trace.add(self.client, What::Lost { name: name.clone(), owner });
            }
            return true;
        }
        let (first, last) = if self.chance.bool() { (inner, outer) } else { (outer, inner) };
        self.trace.add(self.client, What::Release { name, owner: again });
        if self.chance.bool() {
            drop(first);
        } else {
            // The other guard keeps the hold, so there is nothing to be confirmed.
            drop(first.release().await);
        }
        self.work_with(lock, owner, last).await;
        true
    }

    /// Writes, and goes on reading with no other writer in between.
    pub(super) async fn downgrade(&mut self, call: u64) -> bool {
        let rw = self.handle.rwlock("rw");
        let Some(writer) = self.lock(call, rw.write(), rw.try_write()).await else { return false };
        let (name, from) = ("rw".to_owned(), self.granted(Lock::Write, call, writer.held()));
        let read = self.enter(Lock::Downgrade, writer.held());
        let time = self.millis(20);
        let lost = self.lost_within(writer.held(), time).await;
        if let Some(read) = read {
            self.write(Lock::Downgrade, writer.held(), read);
        }
        if lost {
            self.trace.add(self.client, What::Lost { name, owner: from });
            return true;
        }
        let next = call + SECOND_CALL;
        self.trace.add(self.client, What::Call { call: next, name: name.clone() });
        self.trace.add(self.client, What::Release { name: name.clone(), owner: from.clone() });
        let reader = if self.chance.u8(0..8) == 0 {
            let polls = self.chance.usize(0..20);
            polled(self.to_reader(writer), polls).await
        } else {
            Some(self.to_reader(writer).await)
        };
        let Some(Ok(reader)) = reader else {
            self.trace.add(self.client, What::Ended { call: next });
            return true;
        };
        let (_, to) = self.trace.owner(reader.owner());
        self.trace.add(self.client, What::Downgraded { name, from, to });
        self.hold(Lock::Read, next, reader).await;
        true
    }

    async fn to_reader(&self, writer: RwLockWriteGuard) -> Result<RwLockReadGuard> {
        if self.flaw == Flaw::DowngradeReleasesFirst {
            writer.release().await?;
            return self.handle.rwlock("rw").read().timeout(Duration::from_secs(1)).await;
        }
        writer.downgrade().await
    }

    /// Whether the hold is lost before so much time has passed.
    async fn lost_within(&self, held: &Held, time: Duration) -> bool {
        tokio::select! {
            biased;
            _ = held.lost() => true,
            () = self.node.sleep(time) => false,
        }
    }
}
