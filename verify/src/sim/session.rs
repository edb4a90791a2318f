//! A store whose holds live in sessions, in the simulation: what each client sends over its [`Connection`], and what the referee is told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockkeeper::backend::{
    Acquire, Attempt, Backend, Capabilities, ClientCard, Count, CountOutcome, Forced, Grant, KeptAlive, Listing, Page, Release,
    Released, Renew, Renewed, Reply, Snapshot, StoreEvents, Subscription, Watch,
};
use lockkeeper::conformance::Changed;
use lockkeeper::layer::Layer;
use lockkeeper::referee::{Side, What};
use lockkeeper::{Name, Result, WireOwner};

use super::Flaw;
use super::connection::Connection;
use super::link::{nanos, side};
use super::plan::LEASE;
use super::trace::Trace;

/// How long a session lasts at the server without a word from its client.
pub(super) const LASTS: Duration = LEASE;

/// Longer than a history lasts.
const WHOLE_HISTORY: Duration = Duration::from_secs(3_600);

/// What the server holds, as the referee was told.
#[derive(Debug)]
pub(super) struct Book {
    pub(super) trace: Trace,
    names: Mutex<BTreeMap<Name, Known>>,
}

#[derive(Debug, Default)]
struct Known {
    holders: BTreeMap<WireOwner, Side>,
    value: i64,
}

impl Book {
    pub(super) fn new(trace: Trace) -> Self {
        Self { trace, names: Mutex::default() }
    }

    /// The server made a step. Who holds a name may change without a request of the next holder: by the end of those before it.
    pub(super) fn changed(&self, changed: &Changed) {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let known = names.entry(changed.name.clone()).or_default();
        let name = changed.name.as_str();
        let holders = changed.holders.iter().filter_map(|holder| Some((holder.owner.parse::<WireOwner>().ok()?, holder)));
        let holders: BTreeMap<_, _> = holders.collect();
        known.holders.retain(|owner, _| {
            let stays = holders.contains_key(owner);
            if !stays {
                let (client, owner) = self.trace.owner(*owner);
                self.trace.add(client, What::Freed { name: name.to_owned(), owner, forced: changed.forced });
            }
            stays
        });
        for (owner, holder) in holders {
            let side = side(holder.claim);
            if known.holders.insert(owner, side).is_none() {
                let (client, owner) = self.trace.owner(owner);
                let (name, token, lease) = (name.to_owned(), holder.token, nanos(LASTS));
                self.trace.add(client, What::Held { name, owner, side, token, lease, clock: None });
            }
        }
        let value = changed.value.unwrap_or(0);
        if matches!(name, "latch" | "jobs") && value != known.value {
            known.value = value;
            self.trace.add(0, What::Number { name: name.to_owned(), value });
        }
    }
}

/// One client's way to the server.
#[derive(Clone, Debug)]
pub(super) struct SessionLink {
    pub(super) below: Arc<dyn Backend>,
    pub(super) connection: Arc<Connection>,
    pub(super) flaw: Flaw,
    /// Whether the store tells of deleted holds and ended sessions by itself.
    pub(super) events: bool,
    /// What the client holds: what the next keep-alive keeps.
    pub(super) holds: Arc<Mutex<BTreeMap<(u64, WireOwner), Hold>>>,
}

#[derive(Clone, Debug)]
pub(super) struct Hold {
    name: Name,
    /// Of one with a lease of its own: when that was asked for, and how long it lasts.
    ends: Option<(u64, u64)>,
}

impl SessionLink {
    fn holds(&self) -> MutexGuard<'_, BTreeMap<(u64, WireOwner), Hold>> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trace(&self) -> &Trace {
        &self.connection.wire.air.trace
    }

    /// Notes that the client was told that it holds this for `good_for`, as of `sent`.
    fn good(&self, owner: WireOwner, hold: &Hold, token: Option<u64>, sent: u64, good_for: Duration) {
        let by_session = (sent, nanos(good_for));
        let (sent, lease) = hold.ends.filter(|ends| ends.0 + ends.1 < by_session.0 + by_session.1).unwrap_or(by_session);
        self.trace().answered(hold.name.as_str(), owner, token, sent, lease);
    }

    fn granted(&self, request: &(Name, WireOwner, Duration), grant: &Grant, sent: u64) {
        let (name, owner, lease) = request;
        let ends = (*lease != LEASE).then_some((sent, nanos(*lease)));
        let hold = Hold { name: name.clone(), ends };
        self.good(*owner, &hold, grant.token, sent, grant.good_for);
        self.holds().insert((grant.session, *owner), hold);
    }

    /// What a client that is wrong believes of its session.
    fn believed(&self, good_for: Duration) -> Duration {
        if self.flaw == Flaw::SessionsAreTakenForLonger { good_for * 7 / 5 } else { good_for }
    }
}

impl Layer for SessionLink {
    fn inner(&self) -> &Arc<dyn Backend> {
        &self.below
    }

    fn over(&self, _inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(self.clone())
    }

    fn capabilities(&self) -> Capabilities {
        let mut can = self.below.capabilities();
        can.events = self.events;
        can
    }

    fn identity(&self) -> Reply<'_, String> {
        self.connection.carry(|store| Box::pin(async move { store.identity().await }), |_, _| {})
    }

    fn events(&self) -> StoreEvents {
        if self.events { self.connection.events() } else { StoreEvents::none() }
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        let asked = (request.name.clone(), request.owner, request.lease);
        let trace = self.trace().clone();
        self.connection.carry(
            move |store| {
                trace.beside(&request);
                Box::pin(async move { store.acquire(request).await })
            },
            move |attempt, sent| {
                if let Attempt::Granted(grant) = attempt {
                    self.granted(&asked, grant, sent);
                    grant.good_for = self.believed(grant.good_for);
                }
            },
        )
    }

    fn release(&self, request: Release) -> Reply<'_, Released> {
        self.holds().retain(|(_, owner), _| *owner != request.owner);
        self.connection.carry(move |store| Box::pin(async move { store.release(request).await }), |_, _| {})
    }

    fn renew(&self, requests: Vec<Renew>) -> Reply<'_, Vec<Result<Renewed>>> {
        let asked = requests.clone();
        self.connection.carry(
            move |store| Box::pin(async move { store.renew(requests).await }),
            move |answers, sent| {
                for (request, answer) in asked.iter().zip(answers) {
                    let Ok(Renewed::Kept { good_for }) = answer else { continue };
                    let extended = {
                        let mut holds = self.holds();
                        let hold = holds.iter_mut().find(|((_, owner), _)| *owner == request.owner).map(|(_, hold)| hold);
                        if let Some((Some(ends), lease)) = hold.map(|hold| (hold.ends.as_mut(), request.lease))
                            && let Some(lease) = lease
                        {
                            *ends = (sent, nanos(lease));
                        }
                        holds.iter().find(|((_, owner), _)| *owner == request.owner).map(|(_, hold)| hold.clone())
                    };
                    if let Some(hold) = extended.filter(|_| !good_for.is_zero()) {
                        self.good(request.owner, &hold, None, sent, *good_for);
                    }
                    *good_for = self.believed(*good_for);
                }
            },
        )
    }

    fn keep_alive(&self) -> Reply<'_, KeptAlive> {
        self.connection.carry(
            |store| Box::pin(async move { store.keep_alive().await }),
            |kept, sent| {
                let holds = self.holds().clone();
                for ((_, owner), hold) in holds.iter().filter(|((session, _), _)| *session == kept.session) {
                    self.good(*owner, hold, None, sent, kept.good_for);
                }
                kept.good_for = self.believed(kept.good_for);
            },
        )
    }

    fn count(&self, mut request: Count) -> Reply<'_, CountOutcome> {
        // Nothing is refused for being late here. ZooKeeper and etcd compare versions, so what comes late cannot count again.
        request.remember = WHOLE_HISTORY;
        self.connection.carry(move |store| Box::pin(async move { store.count(request).await }), |_, _| {})
    }

    fn watch(&self, watch: Watch) -> Reply<'_, Subscription> {
        self.connection.watch(watch)
    }

    fn inspect(&self, name: Name) -> Reply<'_, Option<Snapshot>> {
        self.connection.carry(move |store| Box::pin(async move { store.inspect(name).await }), |_, _| {})
    }

    fn list(&self, listing: Listing) -> Reply<'_, Page> {
        self.connection.carry(move |store| Box::pin(async move { store.list(listing).await }), |_, _| {})
    }

    fn force_release(&self, name: Name) -> Reply<'_, Forced> {
        self.connection.carry(move |store| Box::pin(async move { store.force_release(name).await }), |_, _| {})
    }

    fn announce(&self, card: ClientCard, ttl: Duration) -> Reply<'_, ()> {
        self.connection.carry(move |store| Box::pin(async move { store.announce(card, ttl).await }), |_, _| {})
    }
}
