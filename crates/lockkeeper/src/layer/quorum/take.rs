//! Asking for votes: all at once, decided as soon as a majority has answered, and nothing left behind otherwise.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;

use super::back::{IN_TIME, NOT_ASKED};
use super::member::{Ballot, Seat, Unsettled, locked};
use super::tally::{Said, Verdict, judge, majority, validity};
use super::{Hold, Quorum, Shared};
use crate::backend::{Acquire, Attempt, Busy, Claim, Grant, Vote};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::{self, Instant};

/// What is allowed for a server's clock to be behind when it judges `not_after`.
const SETTLE_MARGIN: Duration = Duration::from_millis(50);

/// Tokens run ahead of the servers' clocks by this and the time of a round, so that a single round makes them agree.
const AHEAD_MICROS: i64 = 2_000;

/// What a server answered to a request for its vote, with the mark that it is not settled, if it was answered for certain.
type Answered = (usize, Result<Vote>, Option<Unsettled>);

/// What an attempt has heard.
struct Heard {
    said: Vec<Said>,
    /// Why a server gave no vote.
    why: Vec<Option<String>>,
    /// The marks of votes that were given: kept until it is decided what becomes of them, so that nobody withdraws them meanwhile.
    marks: Vec<Option<Unsettled>>,
}

impl Quorum {
    pub(super) async fn take(&self, request: Acquire) -> Result<Attempt> {
        let Shared { runtime, max_lease, capabilities, .. } = &*self.shared;
        if request.claim != Claim::Mutex {
            return Err(capabilities.unsupported(&format!("{:?} lock", request.claim)));
        }
        if request.lease > *max_lease {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("a lease of {:?} is longer than the servers keep quarantine: at most {max_lease:?}", request.lease),
            ));
        }
        let began = runtime.now();
        if began >= request.not_after {
            return Ok(Attempt::Late);
        }
        let request = Acquire { floor: request.floor.max(self.next_floor()), ..request };
        let ballot = (request.name.clone(), request.owner);
        let (answers, mut answered) = mpsc::unbounded_channel();
        let (mut heard, asked) = self.ask_for_votes(&request, &answers);
        drop(answers);
        // Before the caller gives up by itself: it would not know who did not answer.
        let decide_by = began.plus(request.not_after.since(began) / 10 * 9);
        let mut verdict = self.hear(&mut heard, &mut answered, decide_by).await;
        if let Verdict::Won { token, agreed } = verdict {
            let agreed = agreed || self.write_token(&request, &mut heard, token, decide_by).await;
            let now = runtime.now();
            match validity(request.lease, now.since(began)) {
                Some(left) if agreed => {
                    let hold = Hold { deadline: now.plus(left), lease: request.lease, asked };
                    locked(&self.shared.holds).insert(ballot, hold);
                    self.shared.round.store(now.since(began).as_micros() as u64, Ordering::Relaxed);
                    return Ok(Attempt::Granted(Grant { token: Some(token), good_for: request.lease }));
                }
                _ => verdict = Verdict::Failed(ErrorKind::Indeterminate),
            }
        }
        // From here on whoever answers late withdraws its vote by itself.
        self.forget(&ballot);
        answered.close();
        while let Some(answer) = answered.recv().await {
            heard.hear(answer);
        }
        let took = runtime.now().since(began);
        self.withdraw_all(&request, &mut heard, took).await;
        match verdict {
            Verdict::Lost { retry_in, split: false } => Ok(Attempt::Busy(Busy { retry_in, ahead: None, placed: false })),
            // Nobody has it. Whoever asks first alone gets it: not all again at the same moment.
            Verdict::Lost { split: true, .. } => {
                let retry_in = runtime::jitter(took, took * 16 + Duration::from_millis(5));
                Ok(Attempt::Busy(Busy { retry_in: Some(retry_in), ahead: None, placed: false }))
            }
            Verdict::Late => Ok(Attempt::Late),
            Verdict::Failed(kind) => Err(self.no_majority(kind, &heard)),
            Verdict::Open | Verdict::Won { .. } => Err(self.no_majority(ErrorKind::Indeterminate, &heard)),
        }
    }

    /// A number that no server has given out yet, as far as can be guessed.
    fn next_floor(&self) -> u64 {
        let round = self.shared.round.load(Ordering::Relaxed).min(100_000) as i64;
        let ahead = self.shared.lead.load(Ordering::Relaxed) + AHEAD_MICROS + round;
        self.shared.runtime.wall_micros().saturating_add_signed(ahead)
    }

    fn ask_for_votes(&self, request: &Acquire, answers: &mpsc::UnboundedSender<Answered>) -> (Heard, u64) {
        let servers = self.seats.len();
        let marks = std::iter::repeat_with(|| None).take(servers).collect();
        let mut heard = Heard { said: vec![Said::Open; servers], why: vec![None; servers], marks };
        let ballot = (request.name.clone(), request.owner);
        let mut asked = 0;
        for (seat, worth) in self.seats.iter().zip(self.worth_asking()) {
            if !worth {
                heard.fail(seat.index, ErrorKind::Unavailable, NOT_ASKED.to_owned());
                continue;
            }
            match seat.member.unsettle(&ballot) {
                Some(unsettled) => {
                    asked |= 1 << seat.index;
                    runtime::spawn(vote(seat.clone(), Arc::clone(&self.shared), request.clone(), unsettled, answers.clone()));
                }
                None => heard.fail(seat.index, ErrorKind::Indeterminate, "an earlier request is not settled yet".to_owned()),
            }
        }
        (heard, asked)
    }

    /// Hears until it is decided, or time is over.
    async fn hear(&self, heard: &mut Heard, answered: &mut mpsc::UnboundedReceiver<Answered>, decide_by: Instant) -> Verdict {
        loop {
            let verdict = judge(&heard.said);
            if verdict != Verdict::Open {
                return verdict;
            }
            let left = decide_by.since(self.shared.runtime.now());
            match runtime::within(left, Box::pin(answered.recv())).await {
                Some(Some(answer)) => heard.hear(answer),
                Some(None) | None => {
                    for index in 0..heard.said.len() {
                        if heard.said[index] == Said::Open {
                            heard.fail(index, ErrorKind::Indeterminate, IN_TIME.to_owned());
                        }
                    }
                }
            }
        }
    }

    /// Writes the token to those who answered a smaller one, until a majority has it.
    async fn write_token(&self, request: &Acquire, heard: &mut Heard, token: u64, decide_by: Instant) -> bool {
        let Shared { runtime, lead, max_lease, .. } = &*self.shared;
        let wall = i64::try_from(runtime.wall_micros()).unwrap_or(i64::MAX);
        lead.fetch_max(i64::try_from(token).unwrap_or(i64::MAX).saturating_sub(wall), Ordering::Relaxed);
        let max_lease = *max_lease;
        let (answers, mut answered) = mpsc::unbounded_channel();
        let mut have = heard.said.iter().filter(|said| **said == Said::Yes(token)).count();
        for seat in &self.seats {
            if matches!(heard.said[seat.index], Said::Yes(smaller) if smaller < token) {
                let again = Acquire { floor: token, ..request.clone() };
                let limit = decide_by.since(runtime.now());
                seat.ask(limit, &answers, |voter| Box::pin(async move { voter.vote(again, max_lease).await }));
            }
        }
        drop(answers);
        while have < majority(self.seats.len()) {
            let left = decide_by.since(runtime.now());
            match runtime::within(left, Box::pin(answered.recv())).await {
                Some(Some((_, Ok(Vote::Cast(Attempt::Granted(grant)))))) if grant.token >= Some(token) => have += 1,
                Some(Some((index, Err(error)))) => heard.why[index] = Some(error.to_string()),
                Some(Some(_)) => {}
                Some(None) | None => return false,
            }
        }
        true
    }

    /// Takes back the votes that were given, and waits a moment for that: whoever asks again must not meet its own withdrawal.
    async fn withdraw_all(&self, request: &Acquire, heard: &mut Heard, took: Duration) {
        let ballot: Ballot = (request.name.clone(), request.owner);
        let (told, mut done) = mpsc::unbounded_channel();
        for seat in &self.seats {
            if let Some(unsettled) = heard.marks[seat.index].take() {
                let (seat, ballot, lease, told) = (seat.clone(), ballot.clone(), request.lease, told.clone());
                runtime::spawn(async move {
                    let _unsettled = unsettled;
                    seat.withdraw(ballot, lease, None).await;
                    drop(told);
                });
            }
        }
        drop::<mpsc::UnboundedSender<()>>(told);
        let moment = (took * 2).clamp(Duration::from_millis(20), Duration::from_millis(200));
        runtime::within(moment, Box::pin(done.recv())).await;
    }

    fn no_majority(&self, kind: ErrorKind, heard: &Heard) -> Error {
        let votes = heard.said.iter().filter(|said| matches!(said, Said::Yes(_))).count();
        let reasons = self.seats.iter().filter_map(|seat| {
            let held = matches!(heard.said[seat.index], Said::No(_)).then(|| "voted for another".to_owned());
            Some((seat, heard.why[seat.index].clone().or(held)?))
        });
        Error::new(kind, self.explained("voted for us", votes, reasons))
    }
}

impl Heard {
    fn hear(&mut self, (index, answer, unsettled): Answered) {
        self.said[index] = match answer {
            Ok(Vote::Cast(Attempt::Granted(grant))) => {
                self.marks[index] = unsettled;
                Said::Yes(grant.token.unwrap_or_default())
            }
            Ok(Vote::Cast(Attempt::Busy(busy))) => Said::No(busy.retry_in),
            Ok(Vote::Cast(Attempt::Late)) => {
                self.why[index] = Some("was asked too late; the network or its clock is slow".to_owned());
                Said::Late
            }
            Ok(Vote::Quarantined(left)) => {
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
        self.said[index] = Said::Failed(kind);
        self.why[index] = Some(why);
    }
}

/// Asks one server for its vote. If nobody waits for the answer any more and the name is not held by us, the vote is taken back.
async fn vote(seat: Seat, shared: Arc<Shared>, request: Acquire, unsettled: Unsettled, answers: mpsc::UnboundedSender<Answered>) {
    let limit = request.not_after.since(shared.runtime.now());
    let (voter, asking) = (Arc::clone(&seat.voter), request.clone());
    let max_lease = shared.max_lease;
    let answer = seat.member.ask(&shared.runtime, limit, async move { voter.vote(asking, max_lease).await }).await;
    // Unsettled until the vote is taken back, if it has to be.
    let _unsettled: Option<Unsettled> = if answer.as_ref().is_err_and(Error::may_have_taken) {
        let _ = answers.send((seat.index, answer, None));
        shared.runtime.sleep_until(request.not_after.plus(SETTLE_MARGIN)).await;
        Some(unsettled)
    } else {
        let Err(mpsc::error::SendError((_, answer, unsettled))) = answers.send((seat.index, answer, Some(unsettled))) else {
            return;
        };
        if !matches!(answer, Ok(Vote::Cast(Attempt::Granted(_)))) {
            return;
        }
        unsettled
    };
    let ballot = (request.name.clone(), request.owner);
    let held = locked(&shared.holds).contains_key(&ballot);
    if !held {
        seat.withdraw(ballot, request.lease, None).await;
    }
}
