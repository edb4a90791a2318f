//! One mutex on a majority of independent servers (RedLock): a backend over several backends, so that the wait loop, the keeper and the
//! guards are the same as everywhere.
//!
//! All servers are asked at once. The lock is granted as soon as a majority has voted for it; a slow server does not delay it. Without a
//! majority every vote is withdrawn before the caller may ask again, and unanswered requests are followed up in the background. `votes.rs`
//! decides, with pure functions. A server that may have forgotten votes gives none: see [`Voter`]. `docs/redlock.md` says what is promised.

mod acquire;
mod ask;
mod clocks;
mod inspect;
mod member;
mod release;
mod renew;
mod subscriptions;
mod votes;

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::backend::{
    Acquire, Attempt, AttemptAll, Backend, Capabilities, ClientCard, Count, CountOutcome, Forced, KeptAlive, Kind, Listing,
    Liveness, Page, Release, Released, Renew, Renewed, Reply, Snapshot, Standing, StoreEvents, Subscription, Voter, Watch,
};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::runtime::{Instant, Runtime};
use clocks::Clocks;
use member::{Connection, Member, VoteKey, locked};
use votes::majority;

/// How long the servers may take to say whether they vote, when a client connects.
const CONNECTING: Duration = Duration::from_secs(5);

/// One mutex on a majority of servers.
#[derive(Debug)]
pub struct Quorum {
    servers: Vec<Connection>,
    shared: Arc<Shared>,
}

/// What the connections share.
#[derive(Debug)]
struct Shared {
    runtime: Runtime,
    max_lease: Duration,
    capabilities: Capabilities,
    holds: Mutex<HashMap<VoteKey, Hold>>,
    clocks: Clocks,
    /// How long the last grant took, in microseconds.
    round: AtomicU64,
}

/// A hold, as far as is known here.
#[derive(Clone, Copy, Debug)]
struct Hold {
    /// Until then no other owner can have a majority.
    deadline: Instant,
    lease: Duration,
    /// Which servers may have a vote of ours: one bit per server.
    asked: u64,
}

impl Quorum {
    /// The longest lease unless another is chosen: how long a server that may have forgotten votes gives none.
    pub const MAX_LEASE: Duration = Duration::from_secs(60);

    /// The most servers.
    pub const MOST: usize = 31;

    /// A quorum of these servers, each with the name that errors call it by. `max_lease` must be the same for all clients.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] for none, too many, two of one name, or stores without leases; [`ErrorKind::InvalidArgument`] for a `max_lease` that one
    /// of them cannot keep.
    pub fn new(servers: Vec<(String, Arc<dyn Voter>)>, max_lease: Duration, runtime: Runtime) -> Result<Self> {
        let config = |message: String| Err(Error::new(ErrorKind::Config, message));
        if servers.is_empty() || servers.len() > Self::MOST {
            return config(format!("a quorum has 1 to {} servers, best 3 or 5; not {}", Self::MOST, servers.len()));
        }
        let (mut min_lease, mut push, mut longest_name) = (Duration::ZERO, true, Name::MAX_LEN);
        for (at, (label, voter)) in servers.iter().enumerate() {
            if servers[..at].iter().any(|(other, _)| other == label) {
                return config(format!("{label} is named twice; its vote would count twice"));
            }
            let can = voter.capabilities();
            if can.liveness != Liveness::Lease {
                return config(format!("{label} keeps no leases, and cannot vote"));
            }
            can.check_lease(max_lease)?;
            (min_lease, push) = (min_lease.max(can.min_lease), push && can.push);
            longest_name = longest_name.min(can.longest_name);
        }
        let capabilities = Capabilities::new("redlock")
            .with_kinds(&[Kind::Mutex])
            .with_fencing()
            .with_any_name(true)
            .with_push(push)
            .with_refuses_late()
            .with_leases(min_lease, max_lease)
            .with_longest_name(longest_name);
        let clocks = Clocks::new(servers.len(), max_lease);
        let servers = servers.into_iter().enumerate().map(|(index, (label, voter))| Connection {
            index,
            member: Member::new(label),
            voter,
            runtime: runtime.clone(),
        });
        Ok(Self {
            servers: servers.collect(),
            shared: Arc::new(Shared {
                runtime,
                max_lease,
                capabilities,
                holds: Mutex::default(),
                clocks,
                round: AtomicU64::new(0),
            }),
        })
    }

    /// Checks that the servers are different ones. A server that does not answer is not checked.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] if two names lead to the same server: its vote would count twice.
    pub async fn check_distinct(&self) -> Result<()> {
        let ids = self.every_answer(CONNECTING, |voter| Box::pin(async move { voter.server_id().await })).await;
        for (at, id) in ids.iter().enumerate() {
            let Ok(id) = id else { continue };
            if let Some(other) = ids[..at].iter().position(|other| other.as_ref().is_ok_and(|other| other == id)) {
                let label = |index: usize| &self.servers[index].member.label;
                let message = format!("{} and {} are the same server; its vote would count twice", label(other), label(at));
                return Err(Error::new(ErrorKind::Config, message));
            }
        }
        Ok(())
    }

    /// Lets the servers of a first deployment vote at once. Does nothing if one of them has ever voted: then those that know of nothing
    /// may have forgotten votes, and wait.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if no majority answers.
    pub async fn admit_new(&self) -> Result<()> {
        let max_lease = self.shared.max_lease;
        let standings = self.all_answers(CONNECTING, |voter| Box::pin(async move { voter.standing(max_lease).await })).await;
        let known = standings.iter().flatten().filter(|standing| **standing != Standing::Unknown).count();
        let answered = standings.iter().filter(|standing| standing.is_ok()).count();
        if answered < majority(self.servers.len()) {
            return Err(self.without_majority("said whether they may vote", &standings));
        }
        if known == 0 {
            let admitted = self.all_answers(CONNECTING, |voter| Box::pin(async move { voter.admit(max_lease).await })).await;
            if admitted.iter().filter(|admitted| admitted.is_ok()).count() < majority(self.servers.len()) {
                return Err(self.without_majority("were admitted", &admitted));
            }
        }
        Ok(())
    }

    fn forget(&self, key: &VoteKey) -> Option<Hold> {
        locked(&self.shared.holds).remove(key)
    }

    fn lease_too_long(&self, lease: Duration) -> Error {
        let longest = self.shared.max_lease;
        Error::new(
            ErrorKind::InvalidArgument,
            format!("a lease of {lease:?} is longer than the servers' quarantine of {longest:?}; ask for less, or set max-lease"),
        )
    }

    /// The error that names each server and its reason.
    fn without_majority<T>(&self, what: &str, answers: &[Result<T>]) -> Error {
        let well = answers.iter().filter(|answer| answer.is_ok()).count();
        let reasons =
            answers.iter().zip(&self.servers).filter_map(|(answer, server)| Some((server, answer.as_ref().err()?.to_string())));
        let kind = votes::failure(answers.iter().filter_map(|answer| answer.as_ref().err().map(Error::kind)));
        Error::new(kind, self.explained(what, well, reasons))
    }

    fn explained<'a>(&self, what: &str, well: usize, reasons: impl Iterator<Item = (&'a Connection, String)>) -> String {
        let mut message = format!("no majority: {well} of {} servers {what}", self.servers.len());
        for (server, reason) in reasons {
            message.push_str(&format!("; {}: {reason}", server.member.label));
        }
        message
    }
}

#[deny(clippy::missing_trait_methods)]
impl Backend for Quorum {
    fn capabilities(&self) -> Capabilities {
        self.shared.capabilities
    }

    fn keeper_connection(self: Arc<Self>) -> Arc<dyn Backend> {
        let second = |server: &Connection| Connection { voter: Arc::clone(&server.voter).second(), ..server.clone() };
        Arc::new(Self { servers: self.servers.iter().map(second).collect(), shared: Arc::clone(&self.shared) })
    }

    fn identity(&self) -> Reply<'_, String> {
        Box::pin(self.smallest_identity())
    }

    /// Votes have leases.
    fn keep_alive(&self) -> Reply<'_, KeptAlive> {
        Box::pin(std::future::ready(Err(self.shared.capabilities.unsupported("session"))))
    }

    fn events(&self) -> StoreEvents {
        StoreEvents::none()
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        Box::pin(self.acquire_by_majority(request))
    }

    /// Each name by itself, as [`Capabilities::acquire_all`] says.
    fn atomic_groups(&self, names: &[&Name]) -> Vec<Vec<usize>> {
        (0..names.len()).map(|place| vec![place]).collect()
    }

    fn acquire_all(&self, _requests: Vec<Acquire>) -> Reply<'_, AttemptAll> {
        Box::pin(async { Err(self.shared.capabilities.unsupported("request for several names at once")) })
    }

    fn release(&self, request: Release) -> Reply<'_, Released> {
        Box::pin(self.release_by_majority(request))
    }

    /// A vote that comes after its attempt was given up is withdrawn when it comes.
    fn release_behind(&self, _request: &Release) {}

    fn renew(&self, requests: Vec<Renew>) -> Reply<'_, Vec<Result<Renewed>>> {
        Box::pin(self.renew_by_majority(requests))
    }

    fn count(&self, request: Count) -> Reply<'_, CountOutcome> {
        Box::pin(async move { Err(self.shared.capabilities.unsupported(&request.op.kind().to_string())) })
    }

    fn watch(&self, watch: Watch) -> Reply<'_, Subscription> {
        Box::pin(self.watch_majority(watch))
    }

    fn inspect(&self, name: Name) -> Reply<'_, Option<Snapshot>> {
        Box::pin(self.inspect_by_majority(name))
    }

    fn list(&self, listing: Listing) -> Reply<'_, Page> {
        Box::pin(self.list_by_majority(listing))
    }

    fn force_release(&self, name: Name) -> Reply<'_, Forced> {
        Box::pin(self.force_release_by_majority(name))
    }

    fn announce(&self, card: ClientCard, ttl: Duration) -> Reply<'_, ()> {
        Box::pin(self.announce_to_majority(card, ttl))
    }

    /// What one server offers beyond the contract holds for its vote only.
    fn extension(&self) -> Option<&(dyn Any + Send + Sync)> {
        None
    }
}
