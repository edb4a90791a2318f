//! A connection while it is there, what is known of the server at its other end, and when its silence means that it is dead.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::RedisResult;
use redis::aio::MultiplexedConnection;
use tokio::sync::OnceCell;

use super::clock::Offset;
use super::config::Address;
use crate::runtime::{Instant, Runtime};

/// A request without an answer for this long, on a connection that answered nothing else meanwhile: the connection is dead.
const SILENCE: Duration = Duration::from_millis(500);

pub(super) struct Live {
    pub(super) connection: MultiplexedConnection,
    pub(super) at: Address,
    pub(super) number: u64,
    pub(super) offset: Offset,
    /// When anything was answered last.
    heard: AtomicU64,
    /// How long requests waited in vain since then, in ns.
    silent: AtomicU64,
    /// The id of the run of the server at the other end, once asked for. A connection never outlives a run.
    pub(super) run_id: OnceCell<String>,
}

impl Live {
    pub(super) fn new(connection: MultiplexedConnection, at: Address, number: u64, offset: Offset, now: Instant) -> Self {
        let (heard, silent, run_id) = (AtomicU64::new(now.as_nanos()), AtomicU64::default(), OnceCell::new());
        Self { connection, at, number, offset, heard, silent, run_id }
    }
}

/// A request without an answer yet. Given up after a silence it takes the connection with it.
pub(super) struct InFlight<'a, F: Fn(u64)> {
    live: &'a Live,
    runtime: &'a Runtime,
    discard: F,
    sent: Instant,
    answered: bool,
}

impl<'a, F: Fn(u64)> InFlight<'a, F> {
    pub(super) fn new(live: &'a Live, runtime: &'a Runtime, discard: F) -> Self {
        Self { live, runtime, discard, sent: runtime.now(), answered: false }
    }

    /// Something came, if only an error.
    pub(super) fn answered<T>(&mut self, answer: &RedisResult<T>) {
        self.answered = true;
        match answer {
            Err(error) if error.code().is_none() => (self.discard)(self.live.number),
            _ => {
                self.live.heard.store(self.runtime.now().as_nanos(), Ordering::Relaxed);
                self.live.silent.store(0, Ordering::Relaxed);
            }
        }
    }
}

impl<F: Fn(u64)> Drop for InFlight<'_, F> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let waited = self.runtime.now().since(self.sent);
        let heard = Instant::from_nanos(self.live.heard.load(Ordering::Relaxed));
        if heard <= self.sent {
            let waited = waited.as_nanos() as u64;
            // Also of several that were given up sooner.
            let silent = self.live.silent.fetch_add(waited, Ordering::Relaxed) + waited;
            if u128::from(silent) >= SILENCE.as_nanos() {
                (self.discard)(self.live.number);
            }
        }
    }
}
