//! What the tasks of the simulated clients do: lock, try, give up, cancel, hold, write to the fenced resource, release or drop.

use std::future::{Future, IntoFuture, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use lockkeeper::fence::Watermark;
use lockkeeper::{Client, MutexGuard, Result};
use tokio::task::yield_now;
use tokio::time::sleep;

use super::trace::Trace;
use crate::history::{Side, What};

/// The names, and whether each is served in order.
pub(super) const NAMES: [(&str, bool); 2] = [("mutex", false), ("fair", true)];

/// A value behind a gate, one for each name.
#[derive(Clone, Debug, Default)]
pub(super) struct Resources(Arc<Mutex<[(Watermark, u64); NAMES.len()]>>);

/// One task of a client.
pub(super) struct Worker {
    pub(super) client: u32,
    pub(super) handle: Client,
    pub(super) trace: Trace,
    pub(super) resources: Resources,
    pub(super) chance: fastrand::Rng,
    pub(super) turns: usize,
    pub(super) first_call: u64,
}

impl Worker {
    pub(super) async fn run(mut self) {
        for turn in 0..self.turns {
            let call = self.first_call + turn as u64;
            let which = self.chance.usize(0..NAMES.len());
            self.trace.add(self.client, What::Call { call, name: NAMES[which].0.to_owned() });
            match self.lock(which).await {
                Some(guard) => self.hold(which, call, guard).await,
                None => self.trace.add(self.client, What::Ended { call }),
            }
            if self.chance.bool() {
                sleep(Duration::from_millis(self.chance.u64(0..20))).await;
            }
        }
    }

    async fn lock(&mut self, which: usize) -> Option<MutexGuard> {
        let (name, fair) = NAMES[which];
        let limit = Duration::from_millis(self.chance.u64(0..200));
        let polls = self.chance.usize(0..40);
        let kind = self.chance.u8(0..8);
        if fair {
            let mutex = self.handle.fair_mutex(name);
            return match kind {
                0 => mutex.try_lock().await.ok().flatten(),
                1 => mutex.lock().timeout(limit).await.ok(),
                2 => polled(mutex.lock().into_future(), polls).await?.ok(),
                _ => mutex.lock().await.ok(),
            };
        }
        let mutex = self.handle.mutex(name);
        match kind {
            0 => mutex.try_lock().await.ok().flatten(),
            1 => mutex.lock().timeout(limit).await.ok(),
            2 => polled(mutex.lock().into_future(), polls).await?.ok(),
            3 => mutex.lock().lease(Duration::from_millis(500)).await.ok(),
            _ => mutex.lock().await.ok(),
        }
    }

    async fn hold(&mut self, which: usize, call: u64, guard: MutexGuard) {
        let name = NAMES[which].0.to_owned();
        let (sent, lease) = self.trace.grant_of(guard.owner());
        let (client, owner) = self.trace.owner(guard.owner());
        let token = guard.token().map(u64::from);
        let (side, name_of) = (Side::Exclusive, name.clone());
        self.trace.add(client, What::Granted { call, name: name_of, owner: owner.clone(), side, token, sent, lease });
        let read = self.enter(which, &guard);
        let time = match self.chance.u8(0..20) {
            0 => self.chance.u64(0..4_000),
            _ => self.chance.u64(0..30),
        };
        let mut lost = false;
        tokio::select! {
            biased;
            _ = guard.lost() => lost = true,
            () = sleep(Duration::from_millis(time)) => {}
        }
        if let Some(read) = read {
            // A process that was paused writes although it lost the lock: the gate decides.
            self.write(which, &guard, read);
        }
        if lost {
            self.trace.add(client, What::Lost { name, owner });
            return;
        }
        self.trace.add(client, What::Probed { name: name.clone(), owner: owner.clone(), valid: guard.is_valid() });
        self.trace.add(client, What::Release { name, owner });
        match self.chance.u8(0..4) {
            0 => drop(guard),
            1 => drop(polled(Box::pin(guard.release()), self.chance.usize(0..8)).await),
            // It may fail; that the name is free in the end is judged.
            _ => drop(guard.release().await),
        }
    }

    fn enter(&self, which: usize, guard: &MutexGuard) -> Option<u64> {
        let mut resources = self.resources.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (gate, value) = &mut resources[which];
        gate.enter(guard.token()?).ok()?;
        Some(*value)
    }

    fn write(&self, which: usize, guard: &MutexGuard, read: u64) -> Option<()> {
        let mut resources = self.resources.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (gate, value) = &mut resources[which];
        let token = guard.token()?;
        gate.check(token).ok()?;
        *value = read + 1;
        let resource = NAMES[which].0.to_owned();
        self.trace.add(self.client, What::Wrote { resource, token: token.number(), read, wrote: *value });
        Some(())
    }
}

/// The answer, if it is there after so many polls; otherwise the future is dropped where it stands.
async fn polled<F: Future<Output = Result<T>> + ?Sized, T>(mut future: Pin<Box<F>>, times: usize) -> Option<Result<T>> {
    for _ in 0..times {
        if let Poll::Ready(answer) = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await {
            return Some(answer);
        }
        yield_now().await;
    }
    None
}
