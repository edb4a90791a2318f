//! The session of a client: one lease, with everything that the client has at etcd attached to it. The keeper keeps it alive.
//!
//! A transaction does not lengthen a lease. So a grant is good for what is left of the lease by our own clock, counted from when the last answered
//! keep-alive was sent, and a request that finds little left keeps the lease alive first.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::stream;

use super::error::Failed;
use super::keys;
use super::places::Places;
use super::proto::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseRevokeRequest,
    LeaseRevokeResponse, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
};
use super::request::{put, txn};
use super::rpc::{Answer, LEASE_GRANT, LEASE_KEEP_ALIVE, LEASE_REVOKE, LEASE_TIME_TO_LIVE, Transport, patience};
use super::watch::Hub;
use crate::backend::{EventSender, StoreEvent};
use crate::error::{Error, ErrorKind};
use crate::name::Name;
use crate::owner::ClientId;
use crate::runtime::{Instant, log, within};

/// How long the question may take whether a lease is still there.
const LOOKING: Duration = Duration::from_secs(2);

/// How much of a lease is relied on. The rest is for a holder that learns late that its time is over, because the machine is busy: it must know
/// before the server can give the lock to another one.
fn safe(ttl: Duration) -> Duration {
    ttl - ttl / 10
}

/// A lease, and until when it is certainly there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) id: i64,
    /// Which session of the client it is.
    pub(super) number: u64,
    /// By our own clock.
    pub(super) until: Instant,
    pub(super) ttl: Duration,
}

impl Lease {
    /// How long a grant is good that was asked for at `sent`.
    pub(super) fn good_for(&self, sent: Instant) -> Duration {
        self.until.since(sent).min(safe(self.ttl))
    }
}

/// What is known of the session, and of all that is in it.
#[derive(Debug)]
pub(super) struct Session {
    state: Mutex<State>,
    /// Held while a session is opened.
    opening: tokio::sync::Mutex<()>,
    pub(super) places: Places,
    pub(super) hub: Hub,
    /// The client that the session was opened for: the first that asked.
    client: OnceLock<ClientId>,
}

#[derive(Debug, Default)]
struct State {
    lease: Option<Lease>,
    last_number: u64,
    /// The gates of this lease that are not 0.
    gates: HashMap<u8, i64>,
    listeners: Vec<EventSender>,
}

impl Session {
    pub(super) fn new(hub: Hub) -> Self {
        let (state, opening) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { state, opening, places: Places::default(), hub, client: OnceLock::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn client(&self, asking: ClientId) -> ClientId {
        *self.client.get_or_init(|| asking)
    }

    pub(super) fn lease(&self) -> Option<Lease> {
        self.state().lease
    }

    pub(super) fn listen(&self, events: EventSender) {
        self.state().listeners.push(events);
    }

    pub(super) fn tell(&self, event: &StoreEvent) {
        self.state().listeners.retain(|listener| listener.send(event.clone()));
    }

    /// The version that the gate of this name is known to have.
    pub(super) fn gate(&self, name: &Name) -> i64 {
        self.state().gates.get(&keys::gate_of(name)).copied().unwrap_or(0)
    }

    /// Learns the version of a gate. It only grows while the lease lives.
    pub(super) fn learn_gate(&self, lease: i64, name: &Name, version: i64) {
        let mut state = self.state();
        if version > 0 && state.lease.is_some_and(|current| current.id == lease) {
            let known = state.gates.entry(keys::gate_of(name)).or_default();
            *known = version.max(*known);
        }
    }

    /// A lease of which more than half is left: the one there is, lengthened if need be, or a new one.
    pub(super) async fn fresh(self: &Arc<Self>, transport: &Transport) -> Answer<Lease> {
        let is_fresh = |lease: &Lease| lease.until.since(transport.runtime.now()) > lease.ttl / 2;
        match self.lease() {
            Some(lease) if is_fresh(&lease) => Ok(lease),
            _ => self.keep_alive(transport).await,
        }
    }

    /// Keeps the lease alive, or opens a new one if it has ended. A keep-alive waits for no other: one connection may be slow.
    pub(super) async fn keep_alive(self: &Arc<Self>, transport: &Transport) -> Answer<Lease> {
        if let Some(lease) = self.lease() {
            if let Some(kept) = self.lengthen(transport, lease).await? {
                return Ok(kept);
            }
            self.ended(lease.id);
        }
        let _alone = within(patience(), Box::pin(self.opening.lock())).await;
        match self.lease() {
            Some(opened) => Ok(opened),
            None => self.open(transport).await,
        }
    }

    /// `None`: it has ended.
    async fn lengthen(&self, transport: &Transport, lease: Lease) -> Answer<Option<Lease>> {
        let sent = transport.runtime.now();
        let seconds = keep_alive(transport, lease.id).await?;
        let ttl = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        let mut state = self.state();
        let Some(current) = state.lease.as_mut().filter(|current| current.id == lease.id && !ttl.is_zero()) else {
            return Ok(None);
        };
        (current.until, current.ttl) = (current.until.max(sent.plus(safe(ttl))), ttl);
        Ok(Some(*current))
    }

    async fn open(self: &Arc<Self>, transport: &Transport) -> Answer<Lease> {
        let sent = transport.runtime.now();
        let request = LeaseGrantRequest { ttl: transport.config.ttl(), id: 0 };
        let granted: LeaseGrantResponse = transport.ask(LEASE_GRANT, request).await?;
        if !granted.error.is_empty() || granted.ttl <= 0 {
            let message = format!("etcd grants no lease: {}", granted.error);
            return Err(Error::new(ErrorKind::Unavailable, message).into());
        }
        // Deleted when the lease ends: that is how we are told.
        transport.txn(txn(Vec::new(), vec![put(keys::session_key(granted.id), Vec::new(), granted.id)], Vec::new())).await?;
        let ttl = Duration::from_secs(u64::try_from(granted.ttl).unwrap_or(0));
        let lease = {
            let mut state = self.state();
            // Somebody else was faster. What was made here ends by itself.
            if let Some(current) = state.lease {
                return Ok(current);
            }
            state.last_number += 1;
            let lease = Lease { id: granted.id, number: state.last_number, until: sent.plus(safe(ttl)), ttl };
            state.lease = Some(lease);
            state.gates.clear();
            lease
        };
        self.hub.watch_session(lease.id);
        Ok(lease)
    }

    /// The lease is gone, and with it all that was attached to it.
    pub(super) fn ended(&self, lease: i64) {
        let ended = {
            let mut state = self.state();
            state.gates.clear();
            state.lease.take_if(|current| current.id == lease)
        };
        if let Some(lease) = ended {
            self.places.forget_session(lease.number);
            self.tell(&StoreEvent::SessionEnded(lease.number));
            self.hub.notify_all();
        }
    }

    /// Translates a failure, and learns from it whether the session has ended.
    pub(super) fn failed(&self, lease: i64, failed: Failed) -> Error {
        if matches!(failed, Failed::NoLease) {
            self.ended(lease);
        }
        failed.into_error()
    }

    /// Looks whether the lease is there, and every hold in it. Holds that somebody deleted are told.
    pub(super) async fn look(&self, transport: &Transport, lease: i64) {
        let known = self.places.held();
        let request = LeaseTimeToLiveRequest { id: lease, keys: true };
        let asked = Box::pin(transport.ask::<_, LeaseTimeToLiveResponse>(LEASE_TIME_TO_LIVE, request));
        match within(LOOKING, asked).await {
            Some(Ok(seen)) if seen.ttl <= 0 => self.ended(lease),
            Some(Ok(seen)) => {
                let mut there: std::collections::HashSet<_> = std::collections::HashSet::new();
                for mut key in seen.keys {
                    transport.config.namespace.take_off(&mut key);
                    there.insert(key);
                }
                for (name, owner, key) in known {
                    if !there.contains(&key) && self.places.forget_deleted(&name, owner, &key) {
                        self.tell(&StoreEvent::HoldDeleted { name, owner });
                    }
                }
            }
            Some(Err(Failed::NoLease)) => self.ended(lease),
            // The keeper's own deadline stands.
            Some(Err(_)) | None => {}
        }
    }
}

/// Ends the lease, and with it everything in the session.
pub(super) async fn revoke(transport: &Transport, lease: i64) {
    let asked = Box::pin(transport.ask::<_, LeaseRevokeResponse>(LEASE_REVOKE, LeaseRevokeRequest { id: lease }));
    if let Some(Err(failed)) = within(LOOKING, asked).await {
        log!(debug, error = %failed.into_error(), "the session was not ended; its lease ends it");
    }
}

/// One keep-alive; how many seconds the lease lasts from now, 0 if it is gone.
async fn keep_alive(transport: &Transport, lease: i64) -> Answer<i64> {
    let (answers, number) = {
        let request = stream::iter([LeaseKeepAliveRequest { id: lease }]);
        transport.stream::<_, LeaseKeepAliveResponse>(LEASE_KEEP_ALIVE, request).await?
    };
    let (mut answers, mut outstanding) = (answers, transport.outstanding(number));
    let answer = answers.message().await;
    outstanding.answered = true;
    match answer {
        Ok(Some(answer)) => Ok(answer.ttl),
        Ok(None) => {
            transport.leave(number);
            Err(Error::new(ErrorKind::Indeterminate, "etcd ended a keep-alive without an answer").into())
        }
        Err(status) => {
            let failed = super::error::of_request(&status, &transport.config);
            match failed {
                Failed::NoLease => return Ok(0),
                _ => transport.leave(number),
            }
            Err(failed)
        }
    }
}
