//! Asking for votes: all servers at once, decided as soon as a majority has answered. Without a majority every vote is withdrawn.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;

use super::ask::{IN_TIME, NOT_ASKED};
use super::member::{Connection, Unsettled, VoteKey, locked};
use super::votes::{Answered, Outcome, decide, majority, validity};
use super::{Hold, Quorum, Shared};
use crate::backend::{Acquire, Attempt, Busy, Claim, Decision, Grant, Vote, VoteRequest};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::{self, Instant};

/// What is allowed for a server's clock to be behind when it judges `not_after`.
pub(super) const SETTLE_MARGIN: Duration = Duration::from_millis(50);

/// A server's answer to a request for its vote; with the mark that the vote is unsettled, unless the outcome is unknown.
type VoteAnswer = (usize, Result<Vote>, Option<Unsettled>);

/// The answers to one request for votes.
struct Answers {
    votes: Vec<Answered>,
    /// Why a server gave no vote.
    why: Vec<Option<String>>,
    /// The marks of votes that were given. They are kept until it is decided what becomes of the votes, so that nobody withdraws them meanwhile.
    marks: Vec<Option<Unsettled>>,
}

impl Quorum {
    pub(super) async fn acquire_by_majority(&self, request: Acquire) -> Result<Attempt> {
        let Shared { runtime, max_lease, capabilities, clocks, .. } = &*self.shared;
        if request.claim != Claim::Mutex {
            return Err(capabilities.unsupported(&format!("{:?} lock", request.claim)));
        }
        if request.lease > *max_lease {
            return Err(self.lease_too_long(request.lease));
        }
        let began = runtime.now();
        if began >= request.not_after {
            return Ok(Attempt::Late);
        }
        let round = Duration::from_micros(self.shared.round.load(Ordering::Relaxed));
        let floor = clocks.next_floor(round, began);
        let request = VoteRequest { acquire: request, floor, max_lease: *max_lease };
        let acquire = &request.acquire;
        let key = (acquire.name.clone(), acquire.owner);
        let (answers, mut answered) = mpsc::unbounded_channel();
        let (mut heard, asked) = self.ask_for_votes(&request, &answers);
        drop(answers);
        // Earlier than the caller's own limit: the caller would not know which server did not answer.
        let decide_by = began.plus(acquire.not_after.since(began) / 10 * 9);
        let mut outcome = self.hear(&mut heard, &mut answered, decide_by).await;
        if let Outcome::Won { token, agreed } = outcome {
            let agreed = agreed || self.write_token(&request, &mut heard, token, decide_by).await;
            let now = runtime.now();
            match validity(acquire.lease, now.since(began)) {
                Some(left) if agreed => {
                    let hold = Hold { deadline: now.plus(left), lease: acquire.lease, asked };
                    locked(&self.shared.holds).insert(key, hold);
                    self.shared.round.store(now.since(began).as_micros() as u64, Ordering::Relaxed);
                    return Ok(Attempt::Granted(Grant::new(Some(token), acquire.lease)));
                }
                _ => outcome = Outcome::Failed(ErrorKind::Indeterminate),
            }
        }
        // From here on a task that gets a late answer withdraws its vote by itself.
        self.forget(&key);
        answered.close();
        while let Some(answer) = answered.recv().await {
            heard.record(answer);
        }
        let took = runtime.now().since(began);
        self.withdraw_all(acquire, &mut heard, took).await;
        match outcome {
            Outcome::Lost { retry_in, split: false } => {
                Ok(Attempt::Busy(Busy { retry_in, ahead: None, placed: false, unseen: false }))
            }
            // Nobody has it. A random pause keeps the rivals from asking at the same moment again.
            Outcome::Lost { split: true, .. } => {
                let retry_in = runtime::jitter(took, took * 16 + Duration::from_millis(5));
                Ok(Attempt::Busy(Busy { retry_in: Some(retry_in), ahead: None, placed: false, unseen: false }))
            }
            Outcome::Late => Ok(Attempt::Late),
            Outcome::Failed(kind) => Err(self.no_majority(kind, &heard)),
            Outcome::Undecided | Outcome::Won { .. } => Err(self.no_majority(ErrorKind::Indeterminate, &heard)),
        }
    }

    fn ask_for_votes(&self, request: &VoteRequest, answers: &mpsc::UnboundedSender<VoteAnswer>) -> (Answers, u64) {
        let servers = self.servers.len();
        let marks = std::iter::repeat_with(|| None).take(servers).collect();
        let mut heard = Answers { votes: vec![Answered::Pending; servers], why: vec![None; servers], marks };
        let key = (request.acquire.name.clone(), request.acquire.owner);
        let mut asked = 0;
        for (server, worth) in self.servers.iter().zip(self.worth_asking()) {
            if !worth {
                heard.fail(server.index, ErrorKind::Unavailable, NOT_ASKED.to_owned());
                continue;
            }
            match server.member.unsettle(&key) {
                Some(unsettled) => {
                    asked |= 1 << server.index;
                    let (shared, request, answers) = (Arc::clone(&self.shared), request.clone(), Some(answers.clone()));
                    runtime::spawn(vote(server.clone(), shared, request, unsettled, answers));
                }
                None => heard.fail(server.index, ErrorKind::Indeterminate, "an earlier request is not settled yet".to_owned()),
            }
        }
        (heard, asked)
    }

    /// Collects answers until they decide, or time is over.
    async fn hear(&self, heard: &mut Answers, answered: &mut mpsc::UnboundedReceiver<VoteAnswer>, decide_by: Instant) -> Outcome {
        loop {
            let too_far = self.too_far(heard);
            let mut votes = heard.votes.clone();
            too_far.iter().for_each(|(index, _)| votes[*index] = Answered::Failed(ErrorKind::Unavailable));
            let outcome = decide(&votes);
            if outcome != Outcome::Undecided {
                too_far.into_iter().for_each(|(index, why)| heard.fail(index, ErrorKind::Unavailable, why));
                return outcome;
            }
            let left = decide_by.since(self.shared.runtime.now());
            match runtime::within(left, Box::pin(answered.recv())).await {
                Some(Some(answer)) => heard.record(answer),
                Some(None) | None => {
                    for index in 0..heard.votes.len() {
                        if heard.votes[index] == Answered::Pending {
                            heard.fail(index, ErrorKind::Indeterminate, IN_TIME.to_owned());
                        }
                    }
                }
            }
        }
    }

    /// Votes that do not count, and why: the other servers could not be made to agree on their tokens. The more clocks are known, the more
    /// certain this is, so it is asked again with every answer.
    fn too_far(&self, heard: &Answers) -> Vec<(usize, String)> {
        let now = self.shared.runtime.now();
        let granted = (0..heard.votes.len()).filter(|index| matches!(heard.votes[*index], Answered::Granted(_)));
        let reason = |index| {
            let apart = self.shared.clocks.too_far(index, now)?;
            let by = Duration::from_millis(apart.unsigned_abs() / 1_000);
            let direction = if apart > 0 { "ahead of" } else { "behind" };
            let why = format!("its clock or its token counter is {by:?} {direction} the other servers'; set its clock right");
            Some((index, why))
        };
        granted.filter_map(reason).collect()
    }

    /// Writes the token to the servers that answered a smaller one, until a majority has it.
    async fn write_token(&self, request: &VoteRequest, heard: &mut Answers, token: u64, decide_by: Instant) -> bool {
        let runtime = &self.shared.runtime;
        let (answers, mut answered) = mpsc::unbounded_channel();
        let mut have = heard.votes.iter().filter(|vote| **vote == Answered::Granted(token)).count();
        for server in &self.servers {
            let index = server.index;
            if !matches!(heard.votes[index], Answered::Granted(smaller) if smaller < token) {
                continue;
            }
            // The lock may be released before this request arrives. Then it takes the vote anew, and its task withdraws that.
            if let Some(unsettled) = heard.marks[index].take() {
                let again = VoteRequest { floor: token, ..request.clone() };
                runtime::spawn(vote(server.clone(), Arc::clone(&self.shared), again, unsettled, Some(answers.clone())));
            }
        }
        drop(answers);
        while have < majority(self.servers.len()) {
            let left = decide_by.since(runtime.now());
            let Some(Some(answer)) = runtime::within(left, Box::pin(answered.recv())).await else { return false };
            let index = answer.0;
            heard.record(answer);
            match heard.votes[index] {
                Answered::Granted(written) if written >= token => have += 1,
                Answered::Granted(_) => heard.why[index] = Some(format!("did not take over the token {token}")),
                _ => {}
            }
        }
        true
    }

    /// Withdraws the votes that were given, and waits a moment for that: the caller's next request must not meet its own withdrawal.
    async fn withdraw_all(&self, request: &Acquire, heard: &mut Answers, took: Duration) {
        let key: VoteKey = (request.name.clone(), request.owner);
        let (told, mut done) = mpsc::unbounded_channel();
        for server in &self.servers {
            if let Some(unsettled) = heard.marks[server.index].take() {
                let (server, key, lease, told) = (server.clone(), key.clone(), request.lease, told.clone());
                runtime::spawn(async move {
                    let _unsettled = unsettled;
                    server.withdraw(key, lease, None).await;
                    drop(told);
                });
            }
        }
        drop::<mpsc::UnboundedSender<()>>(told);
        let moment = (took * 2).clamp(Duration::from_millis(20), Duration::from_millis(200));
        runtime::within(moment, Box::pin(done.recv())).await;
    }

    fn no_majority(&self, kind: ErrorKind, heard: &Answers) -> Error {
        let votes = heard.votes.iter().filter(|vote| matches!(vote, Answered::Granted(_))).count();
        let reasons = self.servers.iter().filter_map(|server| {
            let held = matches!(heard.votes[server.index], Answered::Refused(_)).then(|| "voted for another owner".to_owned());
            Some((server, heard.why[server.index].clone().or(held)?))
        });
        Error::new(kind, self.explained("voted for us", votes, reasons))
    }
}

impl Answers {
    fn record(&mut self, (index, answer, unsettled): VoteAnswer) {
        self.votes[index] = match answer.map(|vote| vote.decision) {
            Ok(Decision::Cast(Attempt::Granted(grant))) => {
                self.marks[index] = unsettled;
                Answered::Granted(grant.token.unwrap_or_default())
            }
            Ok(Decision::Cast(Attempt::Busy(busy))) => Answered::Refused(busy.retry_in),
            Ok(Decision::Cast(Attempt::Late)) => {
                self.why[index] = Some("got the request too late; the network or its clock is slow".to_owned());
                Answered::Late
            }
            Ok(Decision::Quarantined(left)) => {
                let left = Duration::from_millis(left.as_millis() as u64);
                let reason = format!(
                    "in quarantine for {left:?} more: it is new, restarted or was flushed, and may have forgotten locks; servers of a first \
                     deployment are admitted at once with the option admit=new"
                );
                return self.fail(index, ErrorKind::Unavailable, reason);
            }
            Err(error) => return self.fail(index, error.kind(), error.to_string()),
        };
    }

    fn fail(&mut self, index: usize, kind: ErrorKind, why: String) {
        self.votes[index] = Answered::Failed(kind);
        self.why[index] = Some(why);
    }
}

/// Asks one server for its vote, or to raise the token of the vote that it gave. If nobody waits for the answer any more and we do not hold the name, the vote is withdrawn.
pub(super) async fn vote(
    server: Connection,
    shared: Arc<Shared>,
    request: VoteRequest,
    unsettled: Unsettled,
    answers: Option<mpsc::UnboundedSender<VoteAnswer>>,
) {
    let answer = shared.ask_for_vote(&server, &request).await;
    let unknown = answer.as_ref().is_err_and(Error::may_have_taken);
    // The vote stays unsettled until it is withdrawn, if it has to be.
    let _unsettled: Option<Unsettled> = if unknown {
        if let Some(answers) = answers {
            let _ = answers.send((server.index, answer, None));
        }
        shared.runtime.sleep_until(request.acquire.not_after.plus(SETTLE_MARGIN)).await;
        Some(unsettled)
    } else {
        let message = (server.index, answer, Some(unsettled));
        let unheard = match answers {
            Some(answers) => answers.send(message).err().map(|unheard| unheard.0),
            None => Some(message),
        };
        let Some((_, answer, unsettled)) = unheard else { return };
        if !answer.is_ok_and(|vote| matches!(vote.decision, Decision::Cast(Attempt::Granted(_)))) {
            return;
        }
        unsettled
    };
    shared.withdraw_unless_held(&server, request.acquire).await;
}

impl Shared {
    /// Asks one server for its vote until the request is too late, and learns its clock.
    async fn ask_for_vote(&self, server: &Connection, request: &VoteRequest) -> Result<Vote> {
        let limit = request.acquire.not_after.since(self.runtime.now());
        let (voter, asking) = (Arc::clone(&server.voter), request.clone());
        let answer = server.member.ask(&self.runtime, limit, async move { voter.vote(asking).await }).await;
        if let Ok(vote) = &answer {
            let token = if let Decision::Cast(Attempt::Granted(grant)) = vote.decision { grant.token } else { None };
            self.clocks.learn(server.index, vote.clock, token, self.runtime.now());
        }
        answer
    }

    async fn withdraw_unless_held(&self, server: &Connection, request: Acquire) {
        let key = (request.name, request.owner);
        let held = locked(&self.holds).contains_key(&key);
        if !held {
            server.withdraw(key, request.lease, None).await;
        }
    }
}
