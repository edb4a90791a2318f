//! RedLock in the simulation: each client has a wire to each server of its quorum, and a recorder above the quorum.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use lockkeeper::Result;
use lockkeeper::backend::{
    Acquire, Attempt, Backend, Decision, KeepVotes, Release, Released, Renew, Renewed, Reply, Standing, Subscription, Vote,
    VoteRequest, Voter, Watch,
};
use lockkeeper::layer::Layer;
use lockkeeper::referee::What;
use lockkeeper::runtime::World as _;
use lockkeeper::store::memory::MemoryStore;

use super::Flaw;
use super::link::nanos;
use super::trace::Trace;
use super::wire::Wire;
use super::world::Node;

/// One client's way to one server of a quorum.
#[derive(Clone, Debug)]
pub(super) struct VoterLink {
    pub(super) wire: Wire,
    pub(super) store: Arc<MemoryStore>,
    /// The same, as the trait needs it.
    pub(super) below: Arc<dyn Backend>,
    pub(super) flaw: Flaw,
    /// How far tokens were ahead of the client's wall clock, in microseconds; of all servers. For the flaw only.
    pub(super) lead: Arc<AtomicI64>,
}

/// How far the old floors were ahead of the last token: two milliseconds, and the time of a round.
const OLD_HEAD_START: i64 = 2_000 + 20_000;

impl VoterLink {
    /// The rule for floors as it was: the client's wall clock and the largest lead that any token had, which the floor itself makes larger.
    fn old_floor(&self) -> u64 {
        let ahead = self.lead.load(Ordering::Relaxed) + OLD_HEAD_START;
        self.wire.node.wall_micros().saturating_add_signed(ahead)
    }
}

impl Layer for VoterLink {
    fn inner(&self) -> &Arc<dyn Backend> {
        &self.below
    }

    fn over(&self, _inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(self.clone())
    }

    fn release(&self, request: Release) -> Reply<'_, Released> {
        let store = Arc::clone(&self.store);
        let arrive = move || -> Reply<'static, Released> {
            let (store, request) = (Arc::clone(&store), request.clone());
            Box::pin(async move { store.release(request).await })
        };
        self.wire.carry(arrive, |_, _| {})
    }

    fn watch(&self, watch: Watch) -> Reply<'_, Subscription> {
        self.wire.watch(&self.below, watch)
    }
}

impl Voter for VoterLink {
    fn vote(&self, request: VoteRequest) -> Reply<'_, Vote> {
        let floor = if self.flaw == Flaw::FloorsFeedOnThemselves { self.old_floor() } else { 0 };
        let floor = floor.max(request.floor);
        let request = VoteRequest::new(self.wire.translated(&request.acquire), floor, request.max_lease);
        let store = Arc::clone(&self.store);
        let arrive = move || -> Reply<'static, Vote> {
            let (store, request) = (Arc::clone(&store), request.clone());
            Box::pin(async move { store.vote(request).await })
        };
        self.wire.carry(arrive, |vote, _| {
            if let Decision::Cast(Attempt::Granted(grant)) = vote.decision {
                let wall = i64::try_from(self.wire.node.wall_micros()).unwrap_or(i64::MAX);
                let token = grant.token.and_then(|token| i64::try_from(token).ok()).unwrap_or(0);
                self.lead.fetch_max(token.saturating_sub(wall), Ordering::Relaxed);
            }
        })
    }

    fn keep_votes(&self, request: KeepVotes) -> Reply<'_, Vec<Result<Renewed>>> {
        let not_after = self.wire.line.translated(request.not_after);
        let request = KeepVotes::new(request.renewals, not_after, request.max_lease);
        let store = Arc::clone(&self.store);
        let arrive = move || -> Reply<'static, Vec<Result<Renewed>>> {
            let (store, request) = (Arc::clone(&store), request.clone());
            Box::pin(async move { store.keep_votes(request).await })
        };
        self.wire.carry(arrive, |_, _| {})
    }

    fn server_id(&self) -> Reply<'_, String> {
        self.store.server_id()
    }

    fn standing(&self, max_lease: Duration) -> Reply<'_, Standing> {
        self.store.standing(max_lease)
    }

    fn admit(&self, max_lease: Duration) -> Reply<'_, ()> {
        self.store.admit(max_lease)
    }

    fn second(self: Arc<Self>) -> Arc<dyn Voter> {
        self
    }
}

/// Records what a quorum grants and keeps.
#[derive(Clone, Debug)]
pub(super) struct Recorder {
    pub(super) quorum: Arc<dyn Backend>,
    pub(super) trace: Trace,
    /// The servers whose clocks are right.
    pub(super) servers: Vec<Node>,
    pub(super) flaw: Flaw,
}

impl Layer for Recorder {
    fn inner(&self) -> &Arc<dyn Backend> {
        &self.quorum
    }

    fn over(&self, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(Self { quorum: inner, ..self.clone() })
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        Box::pin(async move {
            let (name, owner, lease, sent) = (request.name.clone(), request.owner, nanos(request.lease), self.trace.now());
            let attempt = self.quorum.acquire(request).await?;
            if let Attempt::Granted(grant) = attempt {
                self.trace.answered(name.as_str(), owner, grant.token, sent, lease);
                if let (Some(token), Some(clock)) = (grant.token, self.servers.iter().map(|server| server.wall_micros()).max()) {
                    let (client, _) = self.trace.owner(owner);
                    self.trace.add(client, What::Token { name: name.as_str().to_owned(), token, clock });
                }
            }
            Ok(attempt)
        })
    }

    fn renew(&self, requests: Vec<Renew>) -> Reply<'_, Vec<Result<Renewed>>> {
        Box::pin(async move {
            let (asked, sent) = (requests.clone(), self.trace.now());
            let mut answers = self.quorum.renew(requests).await?;
            for (request, answer) in asked.iter().zip(&mut answers) {
                if let (Ok(Renewed::Kept { .. }), Some(lease)) = (&answer, request.lease) {
                    self.trace.answered(request.name.as_str(), request.owner, None, sent, nanos(lease));
                }
                if self.flaw == Flaw::RenewalsAlwaysKept {
                    *answer = Ok(Renewed::kept(request.lease));
                }
            }
            Ok(answers)
        })
    }
}
