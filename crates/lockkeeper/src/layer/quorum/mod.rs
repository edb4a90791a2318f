//! One mutex on a majority of independent servers (RedLock): a backend over several backends, so that the wait loop, the keeper and the
//! guards are the same as everywhere.
//!
//! All servers are asked at once. A majority of votes is a grant, as soon as it is there; a slow server never delays it. Without a majority
//! every vote is withdrawn before the caller may ask again, and those that are still open are followed up in the background. What decides
//! is in `tally.rs`, pure. A server that may have forgotten votes gives none: see [`Voter`]. `docs/redlock.md` says what is promised.

mod back;
mod member;
mod people;
mod subscriptions;
mod take;
mod tally;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::backend::{
    Acquire, Attempt, AttemptAll, Backend, Capabilities, ClientCard, Count, CountOutcome, Event, Forced, Kind, Listing, Liveness,
    Page, Release, Released, Renew, Renewed, Reply, Snapshot, Standing, Subscription, Voter, Watch,
};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::runtime::{Instant, Runtime};
use member::{Ballot, Member, Seat, locked};
use tally::majority;

/// How long the servers may take to say whether they vote, when a quorum is put together.
const GREETING: Duration = Duration::from_secs(5);

/// One mutex on a majority of servers.
#[derive(Debug)]
pub struct Quorum {
    seats: Vec<Seat>,
    shared: Arc<Shared>,
}

/// What the lanes share.
#[derive(Debug)]
struct Shared {
    runtime: Runtime,
    max_lease: Duration,
    capabilities: Capabilities,
    holds: Mutex<HashMap<Ballot, Hold>>,
    /// The largest token that was met less our wall clock, in µs: servers' clocks are ahead of ours by about this.
    lead: AtomicI64,
    /// How long the last grant took, in µs.
    round: AtomicU64,
}

/// What is held, as far as is known here.
#[derive(Clone, Copy, Debug)]
struct Hold {
    /// Until then nobody else can have had a majority.
    deadline: Instant,
    lease: Duration,
    /// Who may have a vote of ours: one bit per server.
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
        let seats = servers.into_iter().enumerate().map(|(index, (label, voter))| Seat {
            index,
            member: Member::new(label),
            voter,
            runtime: runtime.clone(),
        });
        Ok(Self {
            seats: seats.collect(),
            shared: Arc::new(Shared {
                runtime,
                max_lease,
                capabilities,
                holds: Mutex::default(),
                lead: AtomicI64::new(0),
                round: AtomicU64::new(0),
            }),
        })
    }

    /// Lets the servers of a first deployment vote at once. Does nothing if one of them has ever voted: then those that know of nothing
    /// may have forgotten votes, and wait.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if no majority answers.
    pub async fn admit_new(&self) -> Result<()> {
        let max_lease = self.shared.max_lease;
        let standings = self.all_answers(GREETING, |voter| Box::pin(async move { voter.standing(max_lease).await })).await;
        let known = standings.iter().flatten().filter(|standing| **standing != Standing::Unknown).count();
        let answered = standings.iter().filter(|standing| standing.is_ok()).count();
        if answered < majority(self.seats.len()) {
            return Err(self.without_majority("told whether they may vote", &standings));
        }
        if known == 0 {
            let admitted = self.all_answers(GREETING, |voter| Box::pin(async move { voter.admit(max_lease).await })).await;
            if admitted.iter().filter(|admitted| admitted.is_ok()).count() < majority(self.seats.len()) {
                return Err(self.without_majority("were admitted", &admitted));
            }
        }
        Ok(())
    }

    fn forget(&self, ballot: &Ballot) -> Option<Hold> {
        locked(&self.shared.holds).remove(ballot)
    }

    /// The error that names each server and its reason.
    fn without_majority<T>(&self, what: &str, answers: &[Result<T>]) -> Error {
        let well = answers.iter().filter(|answer| answer.is_ok()).count();
        let reasons =
            answers.iter().zip(&self.seats).filter_map(|(answer, seat)| Some((seat, answer.as_ref().err()?.to_string())));
        let kind = tally::failure(answers.iter().filter_map(|answer| answer.as_ref().err().map(Error::kind)));
        Error::new(kind, self.explained(what, well, reasons))
    }

    fn explained<'a>(&self, what: &str, well: usize, reasons: impl Iterator<Item = (&'a Seat, String)>) -> String {
        let mut message = format!("no majority: {well} of {} servers {what}", self.seats.len());
        for (seat, reason) in reasons {
            message.push_str(&format!("; {}: {reason}", seat.member.label));
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
        let second = |seat: &Seat| Seat { voter: Arc::clone(&seat.voter).second(), ..seat.clone() };
        Arc::new(Self { seats: self.seats.iter().map(second).collect(), shared: Arc::clone(&self.shared) })
    }

    fn identity(&self) -> Reply<'_, String> {
        Box::pin(self.first_identity())
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        Box::pin(self.take(request))
    }

    /// None of them, as [`Capabilities::acquire_all`] says: each by itself.
    fn atomic_groups(&self, names: &[&Name]) -> Vec<Vec<usize>> {
        (0..names.len()).map(|place| vec![place]).collect()
    }

    fn acquire_all(&self, _requests: Vec<Acquire>) -> Reply<'_, AttemptAll> {
        Box::pin(async { Err(self.shared.capabilities.unsupported("request for several names at once")) })
    }

    fn release(&self, request: Release) -> Reply<'_, Released> {
        Box::pin(self.give_back(request))
    }

    fn renew(&self, requests: Vec<Renew>) -> Reply<'_, Vec<Result<Renewed>>> {
        Box::pin(self.keep(requests))
    }

    fn count(&self, request: Count) -> Reply<'_, CountOutcome> {
        Box::pin(async move { Err(self.shared.capabilities.unsupported(&request.op.kind().to_string())) })
    }

    fn watch(&self, watch: Watch) -> Reply<'_, Subscription> {
        Box::pin(self.listen(watch))
    }

    fn inspect(&self, name: Name) -> Reply<'_, Option<Snapshot>> {
        Box::pin(self.look(name))
    }

    fn list(&self, listing: Listing) -> Reply<'_, Page> {
        Box::pin(self.page(listing))
    }

    fn force_release(&self, name: Name) -> Reply<'_, Forced> {
        Box::pin(self.force(name))
    }

    fn announce(&self, card: ClientCard, ttl: Duration) -> Reply<'_, ()> {
        Box::pin(self.introduce(card, ttl))
    }

    /// No one server's knowledge of a death frees a lock.
    fn liveness(&self) -> Result<Option<OwnedFd>> {
        Ok(None)
    }

    /// What happens to a hold happens once, not once per server.
    fn note(&self, _event: &Event<'_>) {}
}
