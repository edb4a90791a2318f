//! The workloads that several run: own locks, one lock that all want, readers and a writer.

use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::{Order, Report};

/// Something that can be taken and given back, again and again.
pub trait Lock: Send + Sync + 'static {
    /// Its owner holds the lock.
    type Guard: Send;

    /// Takes it, however long that takes.
    fn take(&self) -> impl Future<Output = Self::Guard> + Send;

    /// Gives it back; done when the store said so.
    fn give(&self, guard: Self::Guard) -> impl Future<Output = ()> + Send;
}

/// Nanoseconds on the clock that all processes of the machine share.
#[must_use]
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// One task per lock takes it and gives it back for so long; every cycle is timed.
pub async fn cycle<L: Lock>(locks: &[Arc<L>], seconds: f64) -> Report {
    let (start, until) = window(seconds);
    let mut whole = all(locks, |lock, _| async move {
        let mut report = Report { counts: vec![0], ..Report::default() };
        let mut began = now();
        while began < until {
            let guard = lock.take().await;
            lock.give(guard).await;
            let ended = now();
            report.nanos.push(ended - began);
            report.counts[0] += 1;
            began = ended;
        }
        report
    })
    .await;
    whole.seconds = (now() - start) as f64 / 1e9;
    whole
}

/// The tasks want the same lock; each keeps it for `hold=` microseconds or sells once, and wants it again after `rest=` microseconds.
pub async fn contend<L: Lock>(locks: &[Arc<L>], order: &Order, seconds: f64) -> Report {
    let [hold, rest] = ["hold", "rest"].map(|what| Duration::from_micros(order.fraction(what) as u64));
    let till = order.till().await;
    let (_, until) = window(seconds);
    let work = |lock: Arc<L>, task: u64| {
        let till = till.clone();
        async move {
            let mut report = Report { counts: vec![0], ..Report::default() };
            while now() < until {
                let asked = now();
                let guard = lock.take().await;
                let granted = now();
                if !hold.is_zero() {
                    tokio::time::sleep(hold).await;
                }
                if let Some(till) = &till {
                    till.sell().await;
                }
                let released = now();
                lock.give(guard).await;
                if !rest.is_zero() {
                    tokio::time::sleep(rest).await;
                }
                // A task that waits at the end still gets the lock, but it no longer counts.
                if granted < until {
                    report.counts[0] += 1;
                    report.turns.push([task, asked, granted, released]);
                }
            }
            report
        }
    };
    let mut whole = all(locks, work).await;
    whole.seconds = seconds;
    match till {
        Some(till) => whole.with("sold", till.sold() as f64),
        None => whole,
    }
}

/// Readers and a writer on what their locks say, each as fast as it can, but that the writer rests for `rest=` microseconds after each turn; its
/// count is the last.
pub async fn readers<R: Lock, W: Lock>(reading: &[Arc<R>], writing: &Arc<W>, order: &Order, seconds: f64) -> Report {
    let writing = Arc::clone(writing);
    let rest = Duration::from_micros(order.fraction("rest") as u64);
    let written = tokio::spawn(async move {
        let (_, until) = window(seconds);
        let mut report = Report { counts: vec![0], ..Report::default() };
        while now() < until {
            let guard = writing.take().await;
            writing.give(guard).await;
            report.counts[0] += 1;
            if !rest.is_zero() {
                tokio::time::sleep(rest).await;
            }
        }
        report
    });
    let mut report = cycle(reading, seconds).await;
    // A writer that never got in while they read gets in now.
    report.counts.extend(written.await.expect("no task panics").counts);
    report
}

/// Runs a task per lock to its end, and puts their reports together in their order.
async fn all<L, W, F>(locks: &[Arc<L>], work: W) -> Report
where
    L: Lock,
    W: Fn(Arc<L>, u64) -> F,
    F: Future<Output = Report> + Send + 'static,
{
    let running: Vec<_> = (0..).zip(locks).map(|(task, lock)| tokio::spawn(work(Arc::clone(lock), task))).collect();
    let mut whole = Report::default();
    for task in running {
        let part = task.await.expect("no task panics");
        whole.counts.extend(part.counts);
        whole.nanos.extend(part.nanos);
        whole.turns.extend(part.turns);
    }
    whole
}

fn window(seconds: f64) -> (u64, u64) {
    let start = now();
    (start, start + Duration::from_secs_f64(seconds).as_nanos() as u64)
}
