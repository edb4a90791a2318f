//! Whether the store answers, and since when it does not: for readiness probes and metrics, and so that calls fail at once in an outage that has
//! lasted longer than they bear.

use std::time::Duration;

use super::{Core, Patience, Trouble, lock};
use crate::backend::{Backend, Event};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::runtime::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
};
use crate::runtime::{Instant, log};

/// In an outage one call in this time asks the store although the outage has lasted longer than the call bears; the others fail at once.
const PROBE: Duration = Duration::from_millis(250);

/// An outage is believed for this long after the last failed request. A client that was idle does not know whether the store is back.
const BELIEVED: Duration = Duration::from_secs(10);

/// A failure this long after the first one makes it an outage. What is cut together with a connection that is made again at once is none.
const CONFIRMED: Duration = Duration::from_millis(20);

/// One request that got no answer for so long makes it an outage, too. Calls with short leases wait for less.
const SILENT: Duration = Duration::from_millis(300);

const CONNECTED: u8 = 0;
const DISCONNECTED: u8 = 1;
/// The last client of the session is gone.
const ENDED: u8 = 2;

/// The connections of a client. One may work while the other does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Connection {
    Callers,
    Keeper,
}

/// What is known of the ways to the store.
#[derive(Debug)]
pub(super) struct Link {
    /// Changed only while `outages` is locked.
    state: AtomicU8,
    /// What each connection is known to suffer. Calls are refused by the callers' one alone.
    outages: Mutex<[Option<Outage>; 2]>,
    /// Names may be served by different servers, of which some may be down: an outage of one says nothing of the others.
    is_spread: bool,
    /// An outage was logged, and not yet its end. Changed only while `outages` is locked.
    told: AtomicBool,
    /// When the last outage ended, in nanoseconds. What was sent before it, and fails after it, tells of no other one.
    up_since: AtomicU64,
}

#[derive(Debug)]
struct Outage {
    /// When the first request that failed was sent, or failed at once.
    began: Instant,
    /// When the first request failed.
    first: Instant,
    /// When the last request failed, and why.
    last: Instant,
    error: Error,
    /// When the next call may ask although the outage has lasted too long for it.
    probe_at: Instant,
}

impl Outage {
    fn is_believed(&self, now: Instant) -> bool {
        now.since(self.last) < BELIEVED
    }
}

impl Link {
    pub(super) fn new(backend: &dyn Backend) -> Self {
        // Two names of different slots, where a store has slots.
        let names = ["a", "b"].map(Name::new);
        let is_spread = matches!(&names, [Ok(a), Ok(b)] if backend.atomic_groups(&[a, b]).len() > 1);
        Self {
            state: AtomicU8::new(CONNECTED),
            outages: Mutex::default(),
            is_spread,
            told: AtomicBool::new(false),
            up_since: AtomicU64::new(0),
        }
    }

    fn change(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

impl Core {
    /// Whether the store answered the last request.
    pub(crate) fn is_connected(&self) -> bool {
        self.link.state.load(Ordering::Relaxed) == CONNECTED
    }

    /// Remembers whether the store answers, and logs an outage once, and its end once. Where names are served by different servers, the store logs that
    /// itself, for each of them.
    ///
    /// A request without an answer was sent `silent_for` ago.
    pub(super) fn note_answer(&self, way: Connection, error: Option<&Error>, silent_for: Duration) {
        if let Some(error) = error {
            self.notify(&Event::RequestFailed { error });
        }
        match error.filter(|error| error.is_trouble()) {
            None if self.link.state.load(Ordering::Relaxed) != DISCONNECTED => {}
            None => {
                let mut outages = lock(&self.link.outages);
                outages[way as usize] = None;
                let now = self.runtime.now();
                // The other connection may still fail. If it has not been used for long, nobody knows, and it is not waited for.
                if outages.iter().flatten().any(|outage| outage.is_believed(now)) {
                    return;
                }
                *outages = [None, None];
                let changed = self.link.change(DISCONNECTED, CONNECTED);
                let told = self.link.told.swap(false, Ordering::Relaxed);
                self.link.up_since.store(now.as_nanos(), Ordering::Relaxed);
                drop(outages);
                if told {
                    log!(info, store = self.place(), "the store answers again");
                }
                if changed {
                    self.notify(&Event::Reconnected);
                }
            }
            Some(error) => {
                let (first, tell) = self.link_failed(way, error, silent_for);
                if tell {
                    log!(warn, store = self.place(), %error, "the store does not answer; retrying");
                }
                if first {
                    self.notify(&Event::Disconnected);
                }
            }
        }
    }

    /// Where the store is, without a password.
    fn place(&self) -> &str {
        self.place.get().map_or(self.capabilities.store, String::as_str)
    }

    /// Remembers a failed request; whether it is the first one, and whether to tell.
    fn link_failed(&self, way: Connection, error: &Error, silent_for: Duration) -> (bool, bool) {
        let now = self.runtime.now();
        let began = Instant::from_nanos(now.as_nanos().saturating_sub(silent_for.as_nanos() as u64));
        let mut outages = lock(&self.link.outages);
        let outage = &mut outages[way as usize];
        match outage.as_mut().filter(|outage| outage.is_believed(now)) {
            Some(outage) => (outage.last, outage.error) = (now, error.clone()),
            None => *outage = Some(Outage { began, first: now, last: now, error: error.clone(), probe_at: now }),
        }
        let lasts = outage.as_ref().is_some_and(|outage| now.since(outage.first) >= CONFIRMED);
        let is_new = began.as_nanos() >= self.link.up_since.load(Ordering::Relaxed);
        let confirmed = is_new && (lasts || silent_for >= SILENT);
        let tell = confirmed && !self.link.is_spread && !self.link.told.swap(true, Ordering::Relaxed);
        (self.link.change(CONNECTED, DISCONNECTED), tell)
    }

    /// The last client is gone. Tells whether it was connected; it is not counted from here on.
    pub(super) fn link_ends(&self) -> bool {
        let _outages = lock(&self.link.outages);
        self.link.state.swap(ENDED, Ordering::Relaxed) == CONNECTED
    }

    /// Refuses a call at once if the store has not answered for longer than the call bears trouble.
    ///
    /// Now and then it lets one pass, which finds out whether the store is back. The others need not wait for what that one is waiting for.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] with the last failure as its source.
    pub(crate) fn check_outage(&self, patience: Patience) -> Result<()> {
        if self.is_connected() || self.link.is_spread {
            return Ok(());
        }
        let now = self.runtime.now();
        let mut outages = lock(&self.link.outages);
        let callers = outages[Connection::Callers as usize].as_mut();
        let Some(outage) = callers.filter(|outage| outage.is_believed(now)) else { return Ok(()) };
        let lasted = now.since(outage.began);
        if lasted < patience.bearable(&self.settings) {
            return Ok(());
        }
        if now >= outage.probe_at {
            outage.probe_at = now.plus(PROBE);
            return Ok(());
        }
        let (store, error) = (self.capabilities.store, outage.error.clone());
        let message = format!("the {store} store has not answered for {lasted:.1?}, so it was not asked again: {error}");
        Err(Error::new(ErrorKind::Unavailable, message).with_source(error))
    }

    /// The trouble that a call may bear. It counts from the begin of an outage that is known already.
    pub(crate) fn trouble(&self, patience: Patience) -> Trouble {
        let mut trouble = Trouble::new(patience.bearable(&self.settings));
        if !self.is_connected() && !self.link.is_spread {
            let now = self.runtime.now();
            let outages = lock(&self.link.outages);
            if let Some(outage) = outages[Connection::Callers as usize].as_ref().filter(|outage| outage.is_believed(now)) {
                trouble.began(outage.began);
            }
        }
        trouble
    }
}
