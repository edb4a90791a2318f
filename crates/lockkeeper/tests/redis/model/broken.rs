//! Negative controls: a store broken on purpose must be told from the model.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::Result;
use lockkeeper::backend::{
    Acquire, Attempt, Backend, Claim, Count, CountOutcome, Forced, Grant, Kind, Release, Released, Renew, Renewed, Reply,
};
use lockkeeper::layer::Layer;
use lockkeeper::name::Name;
use lockkeeper::owner::WireOwner;
use lockkeeper::runtime::Instant;

use super::view::{ANSWER, LASTING, STATE, TOKEN};
use super::{history, refute};

/// What is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Every acquire is by somebody new.
    ForgetsOwners,
    NeverLate,
    /// A count that is sent again counts again.
    CountsAgain,
    /// Whoever releases, another owner loses its hold.
    ReleasesForOthers,
    /// Nobody stands in a queue.
    KeepsNoPlace,
    /// A renewal only looks.
    DoesNotRenew,
    /// Leases last a second less.
    ShortLeases,
    /// All tokens are the same.
    OneToken,
    /// Whoever reads is let in beside nobody.
    ForgetsBeside,
    /// The answers are right, and the last hold stays.
    DoesNotForce,
}

/// A store behind a layer that breaks it.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) store: Arc<dyn Backend>,
    pub(crate) how: How,
}

impl Broken {
    fn is(&self, how: How) -> bool {
        self.how == how
    }

    fn broken(&self, mut request: Acquire) -> Acquire {
        match self.how {
            How::ForgetsOwners => request.owner = anew(request.owner),
            How::NeverLate => request.not_after = Instant::NEVER,
            How::KeepsNoPlace => request.place = None,
            How::ShortLeases => request.lease -= Duration::from_secs(1),
            How::ForgetsBeside => request.beside = None,
            _ => {}
        }
        request
    }
}

/// Somebody who was never there.
fn anew(owner: WireOwner) -> WireOwner {
    static LAST: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1 << 20);
    WireOwner::new(owner.client, LAST.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
}

impl Layer for Broken {
    fn inner(&self) -> &Arc<dyn Backend> {
        &self.store
    }

    fn over(&self, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        inner
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        Box::pin(async move {
            let answer = self.store.acquire(self.broken(request.clone())).await?;
            // What the store did is wrong, and its answer says nothing of it: only the state can tell.
            Ok(match answer {
                Attempt::Granted(grant) if self.is(How::ShortLeases) => Attempt::Granted(Grant::new(grant.token, request.lease)),
                Attempt::Busy(busy) if self.is(How::KeepsNoPlace) && request.claim == Claim::Write => {
                    Attempt::Busy(busy.with_placed(request.place.is_some()))
                }
                Attempt::Granted(Grant { token: Some(_), good_for, .. }) if self.is(How::OneToken) => {
                    Attempt::Granted(Grant::new(Some(1), good_for))
                }
                answer => answer,
            })
        })
    }

    fn release(&self, mut request: Release) -> Reply<'_, Released> {
        if self.is(How::ReleasesForOthers) {
            request.owner.number ^= 1;
            request.then = None;
        }
        self.store.release(request)
    }

    fn renew(&self, mut requests: Vec<Renew>) -> Reply<'_, Vec<Result<Renewed>>> {
        if !self.is(How::DoesNotRenew) {
            return self.store.renew(requests);
        }
        let asked: Vec<_> = requests.iter_mut().map(|request| request.lease.take()).collect();
        Box::pin(async move {
            let answers = self.store.renew(requests).await?;
            let right = |(answer, lease): (Result<Renewed>, _)| {
                answer.map(|renewed| if renewed.is_kept() { Renewed::kept(lease) } else { renewed })
            };
            Ok(answers.into_iter().zip(asked).map(right).collect())
        })
    }

    fn count(&self, mut request: Count) -> Reply<'_, CountOutcome> {
        match self.how {
            How::CountsAgain => request.id = anew(request.id),
            How::NeverLate => request.not_after = Instant::NEVER,
            _ => {}
        }
        self.store.count(request)
    }

    fn force_release(&self, name: Name) -> Reply<'_, Forced> {
        Box::pin(async move {
            if self.is(How::DoesNotForce) {
                let from = self.store.inspect(name).await?.map_or_else(Vec::new, |seen| seen.holders);
                return Ok(Forced::new(from));
            }
            self.store.force_release(name).await
        })
    }
}

#[test]
fn an_owner_forgotten_is_found() {
    refute("owners forgotten", &history::on(Kind::Mutex), How::ForgetsOwners, STATE);
    refute("owners forgotten", &history::on(Kind::Semaphore), How::ForgetsOwners, STATE);
}

#[test]
fn a_late_request_carried_out_is_found() {
    refute("never late", &history::on(Kind::RwLock), How::NeverLate, ANSWER);
    refute("never late", &history::on(Kind::Latch), How::NeverLate, ANSWER);
}

#[test]
fn a_count_counted_again_is_found() {
    refute("counts again", &history::on(Kind::CountingSemaphore), How::CountsAgain, ANSWER);
    refute("counts again", &history::on(Kind::Latch), How::CountsAgain, ANSWER);
}

#[test]
fn a_release_of_anothers_hold_is_found() {
    refute("releases for others", &history::on(Kind::Mutex), How::ReleasesForOthers, ANSWER);
    refute("releases for others", &history::on(Kind::RwLock), How::ReleasesForOthers, ANSWER);
}

#[test]
fn a_place_not_kept_is_found() {
    refute("keeps no place", &history::fair(), How::KeepsNoPlace, ANSWER);
    refute("keeps no place", &history::on(Kind::RwLock), How::KeepsNoPlace, STATE);
}

#[test]
fn a_lease_that_is_too_short_is_found() {
    refute("does not renew", &history::on(Kind::Semaphore), How::DoesNotRenew, LASTING);
    refute("short leases", &history::on(Kind::RwLock), How::ShortLeases, LASTING);
}

#[test]
fn tokens_that_do_not_grow_are_found() {
    refute("one token", &history::fair(), How::OneToken, TOKEN);
}

#[test]
fn a_reader_kept_out_is_found() {
    refute("forgets beside", &history::on(Kind::RwLock), How::ForgetsBeside, ANSWER);
}

#[test]
fn a_hold_that_force_leaves_is_found() {
    refute("does not force", &history::mixed(), How::DoesNotForce, STATE);
}
