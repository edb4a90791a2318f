//! Giving back and keeping: both by majority. A renewal that fails changes nothing: it never releases.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::member::{Ballot, locked};
use super::tally::{kept_until_released, majority, validity, yes_or_no};
use super::{Quorum, Shared};
use crate::backend::{Release, Released, Renew, Renewed, Voter};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::{self, BoxFuture};

/// How long a release is waited for; it goes on in the background.
const RELEASING: Duration = Duration::from_secs(2);

/// How long an answer to a renewal is waited for, at most.
const RENEWING: Duration = Duration::from_millis(2_500);

/// How long the rest is waited for when a majority has answered, where it is good to have them all.
const STRAGGLING: Duration = Duration::from_millis(50);

pub(super) const IN_TIME: &str = "did not answer in time";
pub(super) const NOT_ASKED: &str = "not asked: it has not been answering";

/// What the answers to a release say so far of whether it was held until then.
fn was_held(answers: &[Option<Result<bool>>]) -> Option<bool> {
    let said: Vec<Option<bool>> = answers.iter().map(|answer| answer.as_ref()?.as_ref().ok().copied()).collect();
    kept_until_released(&said)
}

impl Quorum {
    pub(super) async fn give_back(&self, request: Release) -> Result<Released> {
        let Shared { runtime, max_lease, .. } = &*self.shared;
        if request.then.is_some() {
            return Err(self.shared.capabilities.unsupported("hand-over"));
        }
        let ballot: Ballot = (request.name, request.owner);
        let hold = self.forget(&ballot);
        let (asked, lasts) = hold.map_or((u64::MAX, *max_lease), |hold| (hold.asked, hold.lease));
        let (told, mut answered) = mpsc::unbounded_channel();
        let servers = self.seats.len();
        // Who was never asked has no vote of ours.
        let mut answers: Vec<Option<Result<bool>>> = vec![None; servers];
        for seat in &self.seats {
            if asked >> seat.index & 1 == 0 {
                answers[seat.index] = Some(Ok(false));
                continue;
            }
            let (seat, ballot, told) = (seat.clone(), ballot.clone(), told.clone());
            runtime::spawn(async move { seat.withdraw(ballot, lasts, Some(told)).await });
        }
        drop(told);
        let began = runtime.now();
        let mut until = began.plus(RELEASING);
        let mut enough = false;
        // Whoever listens listens to all.
        let mut woke = None;
        loop {
            let settled = answers.iter().flatten().filter(|answer| answer.is_ok()).count();
            if settled >= majority(servers) && !enough {
                enough = true;
                // The rest gets as long again, and no longer, if it can change what is told.
                let now = runtime.now();
                until = now.plus(now.since(began).max(Duration::from_millis(1)));
            }
            if enough && was_held(&answers).is_some() {
                break;
            }
            let left = until.since(runtime.now());
            match runtime::within(left, Box::pin(answered.recv())).await {
                Some(Some((index, answer))) => {
                    woke = woke.max(answer.as_ref().ok().and_then(|released| released.woke));
                    answers[index] = Some(answer.map(|released| released.held));
                }
                Some(None) | None => break,
            }
        }
        let held = was_held(&answers);
        let answers: Vec<Result<bool>> = answers
            .into_iter()
            .map(|answer| answer.unwrap_or_else(|| Err(Error::new(ErrorKind::Indeterminate, IN_TIME))))
            .collect();
        if !enough {
            return Err(self.without_majority("took it back", &answers));
        }
        // Unknown is not lost.
        Ok(Released { held: held.unwrap_or(true), next: None, woke })
    }

    pub(super) async fn keep(&self, requests: Vec<Renew>) -> Result<Vec<Result<Renewed>>> {
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        let Shared { runtime, max_lease, .. } = &*self.shared;
        let (max_lease, servers) = (*max_lease, self.seats.len());
        if let Some(long) = requests.iter().filter_map(|request| request.lease).find(|lease| *lease > max_lease) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("a lease of {long:?} is longer than the servers keep quarantine: at most {max_lease:?}"),
            ));
        }
        let began = runtime.now();
        let shortest = requests.iter().filter_map(|request| request.lease).min().unwrap_or(max_lease);
        let limit = RENEWING.min(shortest / 5);
        let (answers, mut answered) = mpsc::unbounded_channel();
        let mut why: Vec<Result<()>> = Vec::new();
        let mut asked = 0_u64;
        for (seat, worth) in self.seats.iter().zip(self.worth_asking()) {
            why.push(Err(Error::new(ErrorKind::Indeterminate, if worth { IN_TIME } else { NOT_ASKED })));
            if !worth {
                continue;
            }
            asked |= 1 << seat.index;
            let requests = requests.clone();
            seat.ask(limit, &answers, |voter| Box::pin(async move { voter.keep_votes(requests, max_lease).await }));
        }
        drop(answers);
        // A server in quarantine may have given a vote again: it is to be asked when the hold is given back.
        {
            let mut holds = locked(&self.shared.holds);
            for request in &requests {
                if let Some(hold) = holds.get_mut(&(request.name.clone(), request.owner)) {
                    hold.asked |= asked;
                }
            }
        }
        let mut said: Vec<Vec<Option<bool>>> = vec![vec![None; servers]; requests.len()];
        while said.iter().any(|answers| yes_or_no(answers).is_none()) {
            let left = began.plus(limit).since(runtime.now());
            let Some(Some((index, answer))) = runtime::within(left, Box::pin(answered.recv())).await else { break };
            match answer {
                Ok(kept) => {
                    why[index] = Ok(());
                    for (said, kept) in said.iter_mut().zip(kept) {
                        said[index] = kept.ok().map(|kept| kept.is_kept());
                    }
                }
                Err(error) => why[index] = Err(error),
            }
        }
        let unknown = self.without_majority("answered a renewal", &why);
        Ok(requests.iter().zip(said).map(|(request, said)| self.kept(request, &said, began, &unknown)).collect())
    }

    /// What became of one hold.
    fn kept(&self, request: &Renew, said: &[Option<bool>], began: runtime::Instant, unknown: &Error) -> Result<Renewed> {
        let now = self.shared.runtime.now();
        match yes_or_no(said) {
            Some(true) => {
                let mut holds = locked(&self.shared.holds);
                if let (Some(lease), Some(hold)) = (request.lease, holds.get_mut(&(request.name.clone(), request.owner))) {
                    // Servers in quarantine give votes again without knowing whether the hold was good until then. It was only if it is.
                    if now >= hold.deadline {
                        return Err(Error::new(ErrorKind::Indeterminate, "the renewal was answered after the hold had ended"));
                    }
                    if let Some(left) = validity(lease, now.since(began)) {
                        hold.deadline = hold.deadline.max(now.plus(left));
                        hold.lease = hold.lease.max(lease);
                    }
                }
                Ok(Renewed::kept(request.lease))
            }
            Some(false) => Ok(Renewed::Gone),
            None => Err(unknown.clone()),
        }
    }

    /// Asks all servers that are worth it, and waits for all of them; once a majority has answered, not much longer.
    pub(super) async fn all_answers<T: Send + 'static>(
        &self,
        limit: Duration,
        question: impl Fn(Arc<dyn Voter>) -> BoxFuture<'static, Result<T>>,
    ) -> Vec<Result<T>> {
        let runtime = &self.shared.runtime;
        let (answers, mut answered) = mpsc::unbounded_channel();
        let mut all: Vec<Result<T>> = Vec::new();
        for (seat, worth) in self.seats.iter().zip(self.worth_asking()) {
            all.push(Err(Error::new(ErrorKind::Unavailable, if worth { IN_TIME } else { NOT_ASKED })));
            if worth {
                seat.ask(limit, &answers, &question);
            }
        }
        drop(answers);
        let mut until = runtime.now().plus(limit);
        while let Some(Some((index, answer))) = runtime::within(until.since(runtime.now()), Box::pin(answered.recv())).await {
            all[index] = answer;
            if all.iter().filter(|answer| answer.is_ok()).count() == majority(all.len()) {
                until = until.min(runtime.now().plus(STRAGGLING));
            }
        }
        all
    }

    /// Which servers to ask: those that answer, if they are enough.
    pub(super) fn worth_asking(&self) -> Vec<bool> {
        let now = self.shared.runtime.now();
        let worth: Vec<bool> = self.seats.iter().map(|seat| seat.member.is_worth_asking(now)).collect();
        let enough = worth.iter().filter(|worth| **worth).count() >= majority(worth.len());
        if enough { worth } else { vec![true; worth.len()] }
    }

    /// As [`Self::all_answers`], if a majority answered.
    pub(super) async fn enough<T: Send + 'static>(
        &self,
        limit: Duration,
        what: &str,
        question: impl Fn(Arc<dyn Voter>) -> BoxFuture<'static, Result<T>>,
    ) -> Result<Vec<T>> {
        let answers = self.all_answers(limit, question).await;
        if answers.iter().filter(|answer| answer.is_ok()).count() < majority(self.seats.len()) {
            return Err(self.without_majority(what, &answers));
        }
        Ok(answers.into_iter().flatten().collect())
    }
}
