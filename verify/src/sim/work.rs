//! What the tasks of the simulated clients do: lock, try, give up, cancel, leave a call alone, hold, write to the fenced resource, extend,
//! release or drop.

use std::future::{Future, IntoFuture, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use lockkeeper::fence::Watermark;
use lockkeeper::referee::{Side, What};
use lockkeeper::sync::{Acquiring, Guard, TryAcquiring};
use lockkeeper::{Client, Held, Result};
use tokio::task::yield_now;

use super::Flaw;
use super::trace::Trace;
use super::world::Node;

/// What is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lock {
    Mutex,
    Fair,
    Read,
    Write,
    Permits,
    Several,
    /// The mutex by an owner, which enters it again.
    Again,
    /// A writer that becomes a reader.
    Downgrade,
    Latch,
    /// A counting semaphore.
    Jobs,
    /// The fair mutex, the read side and the write side by an owner, which enters them again.
    AgainFair,
    AgainRead,
    AgainWrite,
    /// All permits of the semaphore at once.
    AllPermits,
}

/// The names of the fenced resources; the permits of the semaphore have no token.
pub(super) const NAMES: [&str; 4] = ["mutex", "fair", "rw", "second"];

/// How many permits the semaphore has.
pub(super) const PERMITS: u32 = 2;

impl Lock {
    pub(super) const ALL: [Self; 6] = [Self::Mutex, Self::Fair, Self::Read, Self::Write, Self::Permits, Self::Several];

    /// What seeds from [`WIDER`](super::WIDER) on draw from.
    pub(super) const WIDER: [Self; 10] = [
        Self::Mutex,
        Self::Fair,
        Self::Read,
        Self::Write,
        Self::Permits,
        Self::Several,
        Self::Again,
        Self::Downgrade,
        Self::Latch,
        Self::Jobs,
    ];

    /// What seeds from [`WIDEST`](super::WIDEST) on draw from.
    pub(super) const WIDEST: [Self; 14] = [
        Self::Mutex,
        Self::Fair,
        Self::Read,
        Self::Write,
        Self::Permits,
        Self::Several,
        Self::Again,
        Self::Downgrade,
        Self::Latch,
        Self::Jobs,
        Self::AgainFair,
        Self::AgainRead,
        Self::AgainWrite,
        Self::AllPermits,
    ];

    /// What several stores can grant by majority.
    pub(super) const BY_MAJORITY: [Self; 2] = [Self::Mutex, Self::Several];
    pub(super) const WIDER_BY_MAJORITY: [Self; 3] = [Self::Mutex, Self::Several, Self::Again];

    const fn names(self) -> &'static [&'static str] {
        match self {
            Self::Mutex | Self::Again => &["mutex"],
            Self::Fair | Self::AgainFair => &["fair"],
            Self::Read | Self::Write | Self::Downgrade | Self::AgainRead | Self::AgainWrite => &["rw"],
            Self::Permits | Self::AllPermits => &["permits"],
            Self::Several => &["mutex", "second"],
            // Their calls are told apart.
            Self::Latch | Self::Jobs => &[],
        }
    }

    const fn side(self) -> Side {
        match self {
            Self::Read | Self::AgainRead => Side::Shared,
            Self::Permits => Side::Permits { take: 1, of: PERMITS },
            Self::AllPermits => Side::Permits { take: PERMITS, of: PERMITS },
            _ => Side::Exclusive,
        }
    }
}

/// A value behind a gate, one for each name.
#[derive(Clone, Debug, Default)]
pub(super) struct Resources(Arc<Mutex<[(Watermark, u64); NAMES.len()]>>);

/// One task of a client.
pub(super) struct Worker {
    pub(super) client: u32,
    pub(super) node: Node,
    pub(super) handle: Client,
    pub(super) trace: Trace,
    pub(super) resources: Resources,
    pub(super) chance: fastrand::Rng,
    /// What this history locks.
    pub(super) locks: Vec<Lock>,
    pub(super) turns: usize,
    pub(super) first_call: u64,
    pub(super) flaw: Flaw,
}

impl Worker {
    pub(super) async fn run(mut self) {
        for turn in 0..self.turns {
            let call = self.first_call + turn as u64;
            let lock = self.locks[self.chance.usize(0..self.locks.len())];
            for name in lock.names() {
                self.trace.add(self.client, What::Call { call, name: (*name).to_owned() });
            }
            if !self.turn(lock, call).await {
                self.trace.add(self.client, What::Ended { call });
            }
            if self.chance.bool() {
                let rest = self.millis(20);
                self.node.sleep(rest).await;
            }
        }
    }

    pub(super) fn millis(&mut self, most: u64) -> Duration {
        Duration::from_micros(self.chance.u64(0..most * 1_000))
    }

    /// One call, and the hold that comes of it; whether there was one.
    async fn turn(&mut self, lock: Lock, call: u64) -> bool {
        let handle = self.handle.clone();
        match lock {
            Lock::Mutex => {
                let mutex = handle.mutex("mutex");
                let guard = self.lock(call, mutex.lock(), mutex.try_lock()).await;
                self.hold_if(lock, call, guard).await
            }
            Lock::Fair => {
                let mutex = handle.fair_mutex("fair");
                let guard = self.lock(call, mutex.lock(), mutex.try_lock()).await;
                self.hold_if(lock, call, guard).await
            }
            Lock::Read => {
                let rw = handle.rwlock("rw");
                let guard = self.lock(call, rw.read(), rw.try_read()).await;
                self.hold_if(lock, call, guard).await
            }
            Lock::Write => {
                let rw = handle.rwlock("rw");
                let guard = self.lock(call, rw.write(), rw.try_write()).await;
                self.hold_if(lock, call, guard).await
            }
            Lock::Permits => {
                let semaphore = handle.semaphore("permits", PERMITS);
                let guard = self.lock(call, semaphore.acquire(), semaphore.try_acquire()).await;
                self.hold_if(lock, call, guard).await
            }
            Lock::Several => {
                let limit = self.millis(400);
                let Ok(guard) = handle.multi_lock(lock.names()).lock().timeout(limit).await else { return false };
                for held in guard.holds() {
                    self.granted(lock, call, held);
                }
                let time = self.hold_time();
                let lost = tokio::select! {
                    biased;
                    _ = guard.lost() => true,
                    () = self.node.sleep(time) => false,
                };
                let holds: Vec<_> =
                    guard.holds().iter().map(|held| (held.name().to_owned(), self.trace.owner(held.owner()).1)).collect();
                for (name, owner) in &holds {
                    let (name, owner) = (name.clone(), owner.clone());
                    // One of them is lost; the others end with the guard.
                    self.trace.add(self.client, if lost { What::Lost { name, owner } } else { What::Release { name, owner } });
                }
                if guard.release().await.is_ok() {
                    for (name, owner) in holds {
                        self.trace.add(self.client, What::Released { name, owner });
                    }
                }
                true
            }
            Lock::AllPermits => {
                let semaphore = handle.semaphore("permits", PERMITS);
                let (waiting, trying) = (semaphore.acquire_many(PERMITS), semaphore.try_acquire_many(PERMITS));
                let guard = self.lock(call, waiting, trying).await;
                self.hold_if(lock, call, guard).await
            }
            Lock::AgainFair | Lock::AgainRead | Lock::AgainWrite => self.enter_twice(lock, call).await,
            Lock::Again => self.enter_again(call).await,
            Lock::Downgrade => self.downgrade(call).await,
            Lock::Latch => self.use_latch(call).await,
            Lock::Jobs => self.use_jobs().await,
        }
    }

    pub(super) async fn lock<G: Guard>(&mut self, call: u64, acquiring: Acquiring<G>, trying: TryAcquiring<G>) -> Option<G> {
        let limit = self.millis(200);
        let polls = self.chance.usize(0..40);
        match self.chance.u8(0..9) {
            0 => trying.await.ok().flatten(),
            1 => acquiring.timeout(limit).await.ok(),
            2 => polled(acquiring.into_future(), polls).await?.ok(),
            3 => acquiring.lease(Duration::from_millis(500)).await.ok(),
            4 => {
                // A caller that polls its call a few times, leaves it alone, and drops it later.
                let left = self.millis(1_000);
                let mut future = Box::pin(acquiring.into_future());
                if let Some(answer) = polled_there(future.as_mut(), polls % 6).await {
                    return answer.ok();
                }
                self.trace.add(self.client, What::Left { call });
                self.node.sleep(left).await;
                None
            }
            _ => acquiring.await.ok(),
        }
    }

    async fn hold_if<G: Guard>(&mut self, lock: Lock, call: u64, guard: Option<G>) -> bool {
        match guard {
            Some(guard) => {
                self.hold(lock, call, guard).await;
                true
            }
            None => false,
        }
    }

    pub(super) fn granted(&self, lock: Lock, call: u64, held: &Held) -> String {
        granted(&self.trace, lock, call, held)
    }

    pub(super) fn hold_time(&mut self) -> Duration {
        if self.chance.u8(0..20) == 0 { self.millis(4_000) } else { self.millis(30) }
    }

    pub(super) async fn hold<G: Guard>(&mut self, lock: Lock, call: u64, guard: G) {
        let owner = self.granted(lock, call, guard.held());
        self.work_with(lock, owner, guard).await;
    }

    /// Works with a guard that was granted, and gives it up.
    pub(super) async fn work_with<G: Guard>(&mut self, lock: Lock, owner: String, guard: G) {
        let name = guard.name().to_owned();
        let read = self.enter(lock, guard.held());
        let extends = self.chance.u8(0..10) == 0;
        let time = self.hold_time();
        let work = async {
            if extends {
                // It may fail; then the hold is as good as before.
                drop(guard.held().extend(Duration::from_secs(4)).await);
            }
            self.node.sleep(time).await;
        };
        let lost = tokio::select! {
            biased;
            _ = guard.held().lost() => true,
            () = work => false,
        };
        if let Some(read) = read {
            // A process that was paused writes although it lost the lock: the gate decides.
            self.write(lock, guard.held(), read);
        }
        if lost {
            self.trace.add(self.client, What::Lost { name, owner });
            return;
        }
        self.trace.add(self.client, What::Probed { name: name.clone(), owner: owner.clone(), valid: guard.is_valid() });
        self.trace.add(self.client, What::Release { name: name.clone(), owner: owner.clone() });
        match self.chance.u8(0..4) {
            0 => drop(guard),
            1 => drop(polled(guard.release(), self.chance.usize(0..8)).await),
            _ => {
                if guard.release().await.is_ok() {
                    self.trace.add(self.client, What::Released { name, owner });
                }
            }
        }
    }

    /// Readers change nothing, so they need no gate; and a permit has no token.
    fn resource(lock: Lock) -> Option<usize> {
        let fenced = matches!(
            lock,
            Lock::Mutex | Lock::Fair | Lock::Write | Lock::Again | Lock::Downgrade | Lock::AgainFair | Lock::AgainWrite
        );
        NAMES.iter().position(|name| fenced && lock.names().contains(name))
    }

    pub(super) fn enter(&self, lock: Lock, held: &Held) -> Option<u64> {
        let mut resources = self.resources.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (gate, value) = &mut resources[Self::resource(lock)?];
        gate.enter(held.token()?).ok()?;
        Some(*value)
    }

    pub(super) fn write(&self, lock: Lock, held: &Held, read: u64) -> Option<()> {
        let which = Self::resource(lock)?;
        let mut resources = self.resources.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (gate, value) = &mut resources[which];
        let token = held.token()?;
        gate.check(token).ok()?;
        *value = read + 1;
        let resource = NAMES[which].to_owned();
        self.trace.add(self.client, What::Wrote { resource, token: token.number(), read, wrote: *value });
        Some(())
    }
}

/// Notes that a call returned a guard; the owner as the trace names it.
pub(super) fn granted(trace: &Trace, lock: Lock, call: u64, held: &Held) -> String {
    let token = held.token().map(u64::from);
    let (sent, lease) = trace.grant_of(held.owner(), token);
    let (client, owner) = trace.owner(held.owner());
    let (side, name) = (lock.side(), held.name().to_owned());
    trace.add(client, What::Granted { call, name, owner: owner.clone(), side, token, sent, lease });
    owner
}

/// The answer, if it is there after so many polls; otherwise the future is dropped where it stands.
pub(super) async fn polled<F: Future<Output = Result<T>>, T>(future: F, times: usize) -> Option<Result<T>> {
    polled_there(std::pin::pin!(future), times).await
}

/// The answer, if it is there after so many polls.
async fn polled_there<F: Future<Output = Result<T>>, T>(mut future: Pin<&mut F>, times: usize) -> Option<Result<T>> {
    for _ in 0..times {
        if let Poll::Ready(answer) = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await {
            return Some(answer);
        }
        yield_now().await;
    }
    None
}
