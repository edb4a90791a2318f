//! Renewing holds by majority. A renewal that fails changes nothing: it never releases.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::acquire::{SETTLE_MARGIN, vote};
use super::ask::{IN_TIME, NOT_ASKED};
use super::member::{Answer, Connection, VoteKey, locked};
use super::votes::{validity, yes_or_no};
use super::{Quorum, Shared};
use crate::backend::{Acquire, KeepVotes, Renew, Renewed, VoteRequest};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::{self, Instant};

type KeepAnswer = Answer<Vec<Result<Renewed>>>;
type Receiver = mpsc::UnboundedReceiver<KeepAnswer>;

/// How long an answer to a renewal is waited for, at most.
const RENEWING: Duration = Duration::from_millis(2_500);

impl Quorum {
    pub(super) async fn renew_by_majority(&self, renewals: Vec<Renew>) -> Result<Vec<Result<Renewed>>> {
        if renewals.is_empty() {
            return Ok(Vec::new());
        }
        let Shared { runtime, max_lease, .. } = &*self.shared;
        let (max_lease, servers) = (*max_lease, self.servers.len());
        if let Some(long) = renewals.iter().filter_map(|renewal| renewal.lease).find(|lease| *lease > max_lease) {
            return Err(self.lease_too_long(long));
        }
        let began = runtime.now();
        let shortest = renewals.iter().filter_map(|renewal| renewal.lease).min().unwrap_or(max_lease);
        let limit = RENEWING.min(shortest / 5);
        let request = KeepVotes { renewals, not_after: began.plus(limit), max_lease };
        let (answers, mut answered) = mpsc::unbounded_channel();
        let mut why: Vec<Result<()>> = Vec::new();
        let mut asked = 0_u64;
        let worth_asking = self.worth_asking();
        for (server, worth) in self.servers.iter().zip(&worth_asking) {
            why.push(Err(Error::new(ErrorKind::Indeterminate, if *worth { IN_TIME } else { NOT_ASKED })));
            asked |= u64::from(*worth) << server.index;
        }
        let held = self.will_be_asked(&request.renewals, asked);
        for (server, worth) in self.servers.iter().zip(worth_asking) {
            if worth {
                let (server, shared, held) = (server.clone(), Arc::clone(&self.shared), Arc::clone(&held));
                runtime::spawn(keep_votes(server, shared, request.clone(), held, answers.clone()));
            }
        }
        drop(answers);
        let mut kept: Vec<Vec<Option<bool>>> = vec![vec![None; servers]; request.renewals.len()];
        while kept.iter().any(|answers| yes_or_no(answers).is_none()) {
            let left = request.not_after.since(runtime.now());
            let Some(Some((index, answer))) = runtime::within(left, Box::pin(answered.recv())).await else { break };
            match answer {
                Ok(answers) => {
                    why[index] = Ok(());
                    for (kept, answer) in kept.iter_mut().zip(answers) {
                        kept[index] = answer.ok().map(|answer| answer.is_kept());
                    }
                }
                Err(error) => why[index] = Err(error),
            }
        }
        let unknown = self.without_majority("answered a renewal", &why);
        let renewals = request.renewals.iter().zip(&kept);
        let results: Vec<_> = renewals.map(|(renewal, kept)| self.renewed(renewal, kept, began, &unknown)).collect();
        self.regain(request, &results, &kept, answered);
        Ok(results)
    }

    /// Notes which servers may have a vote after this renewal: a server in quarantine gives a forgotten vote again. Returns which of the
    /// renewals concern holds of ours.
    fn will_be_asked(&self, renewals: &[Renew], asked: u64) -> Arc<Vec<bool>> {
        let mut holds = locked(&self.shared.holds);
        let mut note = |renewal: &Renew| match holds.get_mut(&(renewal.name.clone(), renewal.owner)) {
            Some(hold) => {
                hold.asked |= asked;
                renewal.lease.is_some()
            }
            None => false,
        };
        Arc::new(renewals.iter().map(&mut note).collect())
    }

    /// What became of one hold.
    fn renewed(&self, renewal: &Renew, kept: &[Option<bool>], began: Instant, unknown: &Error) -> Result<Renewed> {
        let now = self.shared.runtime.now();
        match yes_or_no(kept) {
            Some(true) => {
                let mut holds = locked(&self.shared.holds);
                if let (Some(lease), Some(hold)) = (renewal.lease, holds.get_mut(&(renewal.name.clone(), renewal.owner))) {
                    // Servers in quarantine give votes again without knowing whether the hold was good until then. So it must still be good now.
                    if now >= hold.deadline {
                        return Err(Error::new(ErrorKind::Indeterminate, "the renewal was answered after the hold had ended"));
                    }
                    if let Some(left) = validity(lease, now.since(began)) {
                        hold.deadline = hold.deadline.max(now.plus(left));
                        hold.lease = hold.lease.max(lease);
                    }
                }
                Ok(Renewed::kept(renewal.lease))
            }
            Some(false) => Ok(Renewed::Gone),
            None => Err(unknown.clone()),
        }
    }

    /// Asks servers that have no vote of a hold for it, while a majority has: they were unreachable when the lock was acquired, or lost the vote.
    /// Otherwise the hold would not survive the next failure of a server. The votes count from the next renewal on.
    fn regain(&self, request: KeepVotes, results: &[Result<Renewed>], kept: &[Vec<Option<bool>>], mut more: Receiver) {
        let renewed: Vec<bool> = results.iter().map(|result| result.as_ref().is_ok_and(|renewed| renewed.is_kept())).collect();
        for server in &self.servers {
            for ((renewal, renewed), kept) in request.renewals.iter().zip(&renewed).zip(kept) {
                if *renewed && kept[server.index] == Some(false) {
                    self.shared.regain(server, renewal);
                }
            }
        }
        let (servers, shared) = (self.servers.clone(), Arc::clone(&self.shared));
        runtime::spawn(async move {
            // Ends when every server has answered or run out of time.
            while let Some((index, answer)) = more.recv().await {
                for ((renewal, renewed), answer) in request.renewals.iter().zip(&renewed).zip(answer.unwrap_or_default()) {
                    if *renewed && matches!(answer, Ok(Renewed::Gone)) {
                        shared.regain(&servers[index], renewal);
                    }
                }
            }
        });
    }
}

impl Shared {
    /// Asks one server for its vote of a hold, unless that was released meanwhile.
    fn regain(self: &Arc<Self>, server: &Connection, renewal: &Renew) {
        let key = (renewal.name.clone(), renewal.owner);
        let Some(lease) = renewal.lease else { return };
        match locked(&self.holds).get_mut(&key) {
            Some(hold) => hold.asked |= 1 << server.index,
            None => return,
        }
        let Some(unsettled) = server.member.unsettle(&key) else { return };
        let now = self.runtime.now();
        let acquire = Acquire::new(renewal.name.clone(), renewal.claim, renewal.owner, lease)
            .with_times(now, now.plus(RENEWING.min(lease / 5)));
        let request = VoteRequest { acquire, floor: 0, max_lease: self.max_lease };
        runtime::spawn(vote(server.clone(), Arc::clone(self), request, unsettled, None));
    }
}

/// Renews at one server. A renewal that arrives after the release can give a forgotten vote again: such a vote is withdrawn.
async fn keep_votes(
    server: Connection,
    shared: Arc<Shared>,
    request: KeepVotes,
    held: Arc<Vec<bool>>,
    answers: mpsc::UnboundedSender<KeepAnswer>,
) {
    let limit = request.not_after.since(shared.runtime.now());
    let (voter, asking) = (Arc::clone(&server.voter), request.clone());
    let answer = server.member.ask(&shared.runtime, limit, async move { voter.keep_votes(asking).await }).await;
    let unknown = answer.as_ref().is_err_and(Error::may_have_taken);
    let kept: Vec<bool> = match &answer {
        Ok(answers) => answers.iter().map(|answer| answer.as_ref().is_ok_and(|renewed| renewed.is_kept())).collect(),
        Err(_) => vec![unknown; request.renewals.len()],
    };
    let _ = answers.send((server.index, answer));
    drop(answers);
    if unknown {
        shared.runtime.sleep_until(request.not_after.plus(SETTLE_MARGIN)).await;
    }
    for ((renewal, kept), held) in request.renewals.into_iter().zip(kept).zip(held.iter()) {
        let key: VoteKey = (renewal.name, renewal.owner);
        if !kept || !held || locked(&shared.holds).contains_key(&key) {
            continue;
        }
        if let (Some(unsettled), Some(lease)) = (server.member.unsettle(&key), renewal.lease) {
            let server = server.clone();
            runtime::spawn(async move {
                let _unsettled = unsettled;
                server.withdraw(key, lease, None).await;
            });
        }
    }
}
