//! A connection while it lasts, what is known of the server at its other end, and when its silence means that it is dead.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use redis::RedisResult;
use redis::aio::MultiplexedConnection;
use tokio::sync::OnceCell;

use super::config::Address;
use super::subscriptions::Subscriptions;
use crate::runtime::{Instant, Runtime};
use crate::store::kit::clock::ClockOffset;

/// A connection that answers nothing for this long, although it was asked, is dead.
pub(super) const SILENCE: Duration = Duration::from_millis(500);

pub(super) struct Live {
    pub(super) connection: MultiplexedConnection,
    pub(super) at: Address,
    /// Tells connections apart.
    pub(super) number: u64,
    pub(super) offset: ClockOffset,
    pub(super) subscriptions: Arc<Subscriptions>,
    /// The run id of the server, once asked for. A connection never outlives a run.
    pub(super) run_id: OnceCell<String>,
    /// The server does not know `EVALSHA`: scripts are sent in full.
    pub(super) lacks_evalsha: AtomicBool,
    /// When the last answer came.
    heard: AtomicU64,
    /// A probe is under way.
    probing: AtomicBool,
}

impl Live {
    pub(super) fn new(
        connection: MultiplexedConnection,
        at: Address,
        number: u64,
        offset: ClockOffset,
        subscriptions: Arc<Subscriptions>,
        now: Instant,
    ) -> Self {
        Self {
            connection,
            at,
            number,
            offset,
            subscriptions,
            run_id: OnceCell::new(),
            lacks_evalsha: AtomicBool::new(false),
            heard: AtomicU64::new(now.as_nanos()),
            probing: AtomicBool::new(false),
        }
    }

    /// Starts a probe, unless one is under way; it lasts until the answer is dropped.
    pub(super) fn probe(self: &Arc<Self>) -> Option<Probe> {
        (!self.probing.swap(true, Ordering::Relaxed)).then(|| Probe(Arc::clone(self)))
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.subscriptions.end();
    }
}

/// The right to probe a connection.
pub(super) struct Probe(Arc<Live>);

impl Drop for Probe {
    fn drop(&mut self) {
        self.0.probing.store(false, Ordering::Relaxed);
    }
}

/// What a request without an answer says of its connection.
pub(super) enum Silence {
    /// It was given up early: the answer may be on its way, and nobody would see it. Only a probe can tell.
    Doubtful,
    /// The connection broke, or was silent for too long.
    Dead,
}

/// A request without an answer yet.
pub(super) struct InFlight<'a, F: Fn(Silence)> {
    live: &'a Live,
    runtime: &'a Runtime,
    judge: F,
    sent: Instant,
    answered: bool,
}

impl<'a, F: Fn(Silence)> InFlight<'a, F> {
    /// `judge` is told when the connection may be dead, or is.
    pub(super) fn new(live: &'a Live, runtime: &'a Runtime, judge: F) -> Self {
        Self { live, runtime, judge, sent: runtime.now(), answered: false }
    }

    /// Something came, if only an error.
    pub(super) fn answered<T>(&mut self, answer: &RedisResult<T>) {
        self.answered = true;
        match answer {
            Err(error) if error.code().is_none() => (self.judge)(Silence::Dead),
            _ => self.live.heard.store(self.runtime.now().as_nanos(), Ordering::Relaxed),
        }
    }
}

impl<F: Fn(Silence)> Drop for InFlight<'_, F> {
    fn drop(&mut self) {
        let heard = Instant::from_nanos(self.live.heard.load(Ordering::Relaxed));
        if self.answered || heard > self.sent {
            return;
        }
        // Each request is judged by its own time. Added up, the times of many that were given up early would condemn a sound connection.
        let waited = self.runtime.now().since(self.sent);
        (self.judge)(if waited >= SILENCE { Silence::Dead } else { Silence::Doubtful });
    }
}
