//! What a task does in one turn: it waits, tries, gives up, enters twice, holds, writes to the resources, is told of a loss, releases or drops.

use std::future::IntoFuture as _;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper::referee::{LatchAsk, Side, What};
use lockkeeper::sync::{Acquiring, Guard, TryAcquiring};
use lockkeeper::{Client, ErrorKind, Held, Result};
use tokio::time::{sleep, timeout};

use super::desk::{Desk, now};
use super::message::{Ask, GATE, Lock, Orders, PERMITS, Said};

pub(super) struct Task {
    desk: Arc<Desk>,
    client: Client,
    prefix: String,
    lease: Duration,
    locks: Vec<Lock>,
    chance: fastrand::Rng,
}

/// A guard that was used, and what is known of it.
struct Used {
    name: String,
    owner: String,
    lost: bool,
}

impl Task {
    pub(super) fn new(orders: &Orders, desk: &Arc<Desk>, client: Client, chance: fastrand::Rng) -> Self {
        let Orders { prefix, lease, locks, .. } = orders.clone();
        Self { desk: Arc::clone(desk), client, prefix, lease, locks, chance }
    }

    pub(super) async fn run(mut self) {
        while !self.desk.is_stopped() {
            let lock = self.locks[self.chance.usize(0..self.locks.len())];
            if lock.is_number() {
                let counted = self.count(lock).await;
                self.note(&counted);
            } else {
                let call = self.desk.number();
                for name in lock.names() {
                    self.desk.event(What::Call { call, name: format!("{}{name}", self.prefix) });
                }
                if !self.turn(lock, call).await {
                    self.desk.event(What::Ended { call });
                }
            }
            let rest = self.millis(20);
            sleep(rest).await;
        }
    }

    fn millis(&mut self, most: u64) -> Duration {
        Duration::from_micros(self.chance.u64(0..most * 1_000))
    }

    fn note<T>(&self, answer: &Result<T>) {
        if let Err(error) = answer
            && error.kind() != ErrorKind::Timeout
        {
            self.desk.say(&Said::Trouble(format!("{:?}", error.kind())));
        }
    }

    /// One call, and the hold that comes of it; whether there was one.
    async fn turn(&mut self, lock: Lock, call: u64) -> bool {
        let client = self.client.clone();
        match lock {
            Lock::Mutex => {
                let mutex = client.mutex("mutex");
                let guard = self.acquire(mutex.lock(), mutex.try_lock()).await;
                self.hold(lock, call, guard).await
            }
            Lock::Fair => {
                let mutex = client.fair_mutex("fair");
                let guard = self.acquire(mutex.lock(), mutex.try_lock()).await;
                self.hold(lock, call, guard).await
            }
            Lock::Read => {
                let rw = client.rwlock("rw");
                let guard = self.acquire(rw.read(), rw.try_read()).await;
                self.hold(lock, call, guard).await
            }
            Lock::Write => {
                let rw = client.rwlock("rw");
                let Some(guard) = self.acquire(rw.write(), rw.try_write()).await else { return false };
                let used = self.work(lock, call, &guard).await;
                if used.lost || self.chance.u8(0..3) > 0 {
                    self.finish(guard, used).await;
                    return true;
                }
                self.desk.event(What::Release { name: used.name, owner: used.owner });
                let reading = guard.downgrade().await;
                self.note(&reading);
                self.hold(Lock::Read, call, reading.ok()).await;
                true
            }
            Lock::Permits => {
                let semaphore = client.semaphore("permits", PERMITS);
                let guard = self.acquire(semaphore.acquire(), semaphore.try_acquire()).await;
                self.hold(lock, call, guard).await
            }
            Lock::Several => self.several(call).await,
            Lock::Twice => {
                let mutex = client.mutex("mutex").owned_by(&client.owner());
                let Some(outer) = self.acquire(mutex.lock(), mutex.try_lock()).await else { return false };
                let outside = self.work(lock, call, &outer).await;
                if !outside.lost {
                    let inner = mutex.lock().await.ok();
                    self.hold(lock, call, inner).await;
                }
                self.finish(outer, outside).await;
                true
            }
            Lock::Latch | Lock::Counter => false,
        }
    }

    async fn count(&mut self, lock: Lock) -> Result<()> {
        if lock == Lock::Latch && self.chance.bool() {
            return self.use_gate().await;
        }
        if lock == Lock::Latch {
            let latch = self.client.latch("latch");
            return self.desk.count(lock, -1, async { latch.count_down().await.map(|_| -1) }).await;
        }
        let counter = self.client.counting_semaphore("counter");
        if self.chance.bool() {
            self.desk.count(lock, 1, async { counter.release(1).await.map(|_| 1) }).await
        } else {
            self.desk.count(lock, -1, async { counter.try_acquire(1).await.map(|taken| -i64::from(taken)) }).await
        }
    }

    /// Closes the small latch, counts it down, or waits until it is open. What is asked and answered is written down, for a judge of its order.
    async fn use_gate(&mut self) -> Result<()> {
        let (gate, call) = (self.client.latch(GATE), self.desk.number());
        let name = format!("{}{GATE}", self.prefix);
        let limit = self.millis(500);
        let ask = match self.chance.u8(0..6) {
            0 => LatchAsk::Close { count: self.chance.u32(1..=3) },
            1..4 => LatchAsk::Down,
            _ => LatchAsk::Wait,
        };
        self.desk.event(What::LatchAsks { call, name: name.clone(), ask });
        let value = match ask {
            LatchAsk::Close { count } => gate.try_set(count).await.map(i64::from)?,
            LatchAsk::Down => gate.count_down().await.map(i64::from)?,
            // Perhaps nobody will open it.
            LatchAsk::Wait => gate.wait().timeout(limit).await.map(|()| 0)?,
        };
        self.desk.event(What::LatchAnswers { call, name, value });
        Ok(())
    }

    async fn acquire<G: Guard>(&mut self, acquiring: Acquiring<G>, trying: TryAcquiring<G>) -> Option<G> {
        let desk = Arc::clone(&self.desk);
        let (limit, soon, lease) = (self.millis(1_000), self.millis(30), self.lease);
        let way = self.chance.u8(0..10);
        let call = async move {
            match way {
                0 => trying.await,
                1 => acquiring.timeout(limit).await.map(Some),
                // Given up wherever it stands.
                2 => timeout(soon, acquiring.into_future()).await.map_or(Ok(None), |answer| answer.map(Some)),
                3 => acquiring.lease(lease).await.map(Some),
                _ => acquiring.await.map(Some),
            }
        };
        let answer = tokio::select! {
            biased;
            answer = call => answer,
            () = desk.stopped() => Ok(None),
        };
        self.note(&answer);
        answer.ok().flatten()
    }

    async fn hold<G: Guard>(&mut self, lock: Lock, call: u64, guard: Option<G>) -> bool {
        let Some(guard) = guard else { return false };
        let used = self.work(lock, call, &guard).await;
        self.finish(guard, used).await;
        true
    }

    fn granted(&self, lock: Lock, call: u64, held: &Held) -> Used {
        let at = now();
        let (name, owner, token) = (held.name().to_owned(), held.owner().to_string(), held.token().map(u64::from));
        let [(sent, lease), kept] = self.desk.grant_of(held);
        let side = match lock {
            Lock::Read => Side::Shared,
            Lock::Permits => Side::Permits { take: 1, of: PERMITS },
            _ => Side::Exclusive,
        };
        self.desk.event_at(at, What::Granted { call, name: name.clone(), owner: owner.clone(), side, token, sent, lease });
        if kept != (sent, lease) {
            let (sent, lease) = kept;
            self.desk.event_at(at, What::Kept { name: name.clone(), owner: owner.clone(), sent, lease });
        }
        Used { name, owner, lost: false }
    }

    /// Mostly short, sometimes longer than the lease.
    fn hold_time(&mut self) -> Duration {
        match self.chance.u8(0..100) {
            0 => self.lease + self.lease.mul_f64(self.chance.f64()),
            1..10 => self.millis(200),
            _ => self.millis(20),
        }
    }

    /// Works under the guard: reads, takes its time, writes.
    async fn work<G: Guard>(&mut self, lock: Lock, call: u64, guard: &G) -> Used {
        let mut used = self.granted(lock, call, guard.held());
        let (time, extends) = (self.hold_time(), self.chance.u8(0..20) == 0);
        let desk = Arc::clone(&self.desk);
        // Readers change nothing, and permits let several in.
        let token = guard.token().filter(|_| !matches!(lock, Lock::Read | Lock::Permits));
        let (mut entered, mut seen) = (None, None);
        let (resource, owner) = (used.name.clone(), used.owner.clone());
        let work = async {
            if let Some(token) = token {
                let token = token.number();
                entered = desk.ask(Ask::Enter { resource: resource.clone(), token, owner: owner.clone() }).await;
                seen = desk.ask(Ask::Look { resource: resource.clone() }).await;
            }
            if extends {
                // It may fail; then the hold is as good as before.
                drop(guard.held().extend(self.lease).await);
            }
            tokio::select! {
                () = sleep(time) => {}
                () = desk.stopped() => {}
            }
        };
        used.lost = tokio::select! {
            biased;
            _ = guard.held().lost() => true,
            () = work => false,
        };
        let at = now();
        if used.lost {
            desk.event_at(at, What::Lost { name: used.name.clone(), owner: used.owner.clone() });
        } else {
            let valid = guard.is_valid();
            desk.event_at(at, What::Probed { name: used.name.clone(), owner: used.owner.clone(), valid });
        }
        if let (Some(token), Some(read)) = (token, entered) {
            // Also after a loss, as a process does that has not looked: the gate decides.
            let token = token.number();
            desk.ask(Ask::Write { resource: used.name.clone(), token, owner: used.owner.clone(), read }).await;
        }
        if let Some(read) = seen.filter(|_| !used.lost) {
            desk.ask(Ask::Put { resource: used.name.clone(), read }).await;
        }
        used
    }

    async fn finish<G: Guard>(&mut self, guard: G, used: Used) {
        let Used { name, owner, lost } = used;
        if lost {
            return;
        }
        self.desk.event(What::Release { name: name.clone(), owner: owner.clone() });
        let soon = self.millis(3);
        let released = match self.chance.u8(0..5) {
            0 => return drop(guard),
            1 => match timeout(soon, guard.release()).await {
                Ok(released) => released,
                Err(_) => return,
            },
            _ => guard.release().await,
        };
        // One that was lost meanwhile is told so here.
        if released.as_ref().is_err_and(|error| error.kind() != ErrorKind::Lost) {
            self.note(&released);
        }
        if released.is_ok() {
            self.desk.event(What::Released { name, owner });
        }
    }

    async fn several(&mut self, call: u64) -> bool {
        let (limit, time) = (self.millis(1_000), self.hold_time());
        let desk = Arc::clone(&self.desk);
        let locked = self.client.multi_lock(Lock::Several.names()).lock().timeout(limit).await;
        self.note(&locked);
        let Ok(guard) = locked else { return false };
        let holds: Vec<_> = guard.holds().iter().map(|held| self.granted(Lock::Several, call, held)).collect();
        let lost = tokio::select! {
            biased;
            _ = guard.lost() => true,
            () = sleep(time) => false,
            () = desk.stopped() => false,
        };
        for Used { name, owner, .. } in &holds {
            let (name, owner) = (name.clone(), owner.clone());
            // One of them is lost; the others end with the guard.
            desk.event(if lost { What::Lost { name, owner } } else { What::Release { name, owner } });
        }
        if guard.release().await.is_ok() {
            for Used { name, owner, .. } in holds {
                desk.event(What::Released { name, owner });
            }
        }
        true
    }
}
