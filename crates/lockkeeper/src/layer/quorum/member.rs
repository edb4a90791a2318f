//! One server of a quorum: what is known of it here, and how it is asked without waiting for it longer than it is worth.

use std::collections::HashSet;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;

use crate::backend::{Claim, Release, Released, Voter};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::owner::WireOwner;
use crate::retry::Trouble;
use crate::runtime::{self, BoxFuture, Instant, Runtime};

/// A server that has not answered for this long, though asked, is asked only this often until it does.
const SILENCE: Duration = Duration::from_millis(500);

/// A server to which so many requests are under way is silent sooner: what nobody answers must not pile up.
const MANY: usize = 64;

/// So soon.
const SILENCE_OF_MANY: Duration = Duration::from_millis(50);

/// How long one request in the background may take.
const TRY: Duration = Duration::from_secs(3);

/// One vote: whose, and on what.
pub(super) type Ballot = (Name, WireOwner);

/// What all lanes know of one server.
#[derive(Debug)]
pub(super) struct Member {
    /// As people know it.
    pub(super) label: String,
    pulse: Mutex<Pulse>,
    /// Votes whose requests are under way, or being withdrawn. A new request for one of them could be undone by the withdrawal.
    unsettled: Mutex<HashSet<Ballot>>,
}

/// Whether a server answers.
#[derive(Debug, Default)]
struct Pulse {
    waiting: usize,
    /// Since when nothing was heard, while something was awaited.
    quiet_since: Instant,
    /// The last request that was given up got no answer.
    silent: bool,
    probed: Instant,
}

impl Member {
    pub(super) fn new(label: String) -> Arc<Self> {
        Arc::new(Self { label, pulse: Mutex::default(), unsettled: Mutex::default() })
    }

    /// Whether to ask it: not while it is silent, except now and then.
    pub(super) fn is_worth_asking(&self, now: Instant) -> bool {
        let mut pulse = locked(&self.pulse);
        let patience = if pulse.waiting >= MANY { SILENCE_OF_MANY } else { SILENCE };
        let silent = pulse.silent || pulse.waiting > 0 && now.since(pulse.quiet_since) >= patience;
        if silent && now.since(pulse.probed) >= SILENCE {
            pulse.probed = now;
            return true;
        }
        !silent
    }

    /// Marks a vote as unsettled; `None` if it is already.
    pub(super) fn unsettle(self: &Arc<Self>, ballot: &Ballot) -> Option<Unsettled> {
        let new = locked(&self.unsettled).insert(ballot.clone());
        new.then(|| Unsettled { member: Arc::clone(self), ballot: ballot.clone() })
    }

    /// Asks, and waits for the answer for as long as `limit`.
    pub(super) async fn ask<T>(
        &self,
        runtime: &Runtime,
        limit: Duration,
        question: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        {
            let (mut pulse, now) = (locked(&self.pulse), runtime.now());
            if pulse.waiting == 0 {
                pulse.quiet_since = now;
            }
            pulse.waiting += 1;
        }
        let asked = Asked { member: self, runtime, heard: None };
        let answer = runtime::within(limit, Box::pin(question)).await;
        asked.end(answer.is_some());
        answer.unwrap_or_else(|| Err(Error::new(ErrorKind::Indeterminate, format!("did not answer within {limit:?}"))))
    }
}

/// A question under way; ends also when it is dropped.
struct Asked<'a> {
    member: &'a Member,
    runtime: &'a Runtime,
    heard: Option<bool>,
}

impl Asked<'_> {
    fn end(mut self, heard: bool) {
        self.heard = Some(heard);
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let mut pulse = locked(&self.member.pulse);
        pulse.waiting -= 1;
        match self.heard {
            Some(true) => {
                pulse.silent = false;
                pulse.quiet_since = self.runtime.now();
            }
            Some(false) => pulse.silent |= self.runtime.now().since(pulse.quiet_since) >= SILENCE,
            None => {}
        }
    }
}

/// A vote that is being asked for or withdrawn, until dropped.
pub(super) struct Unsettled {
    member: Arc<Member>,
    ballot: Ballot,
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        locked(&self.member.unsettled).remove(&self.ballot);
    }
}

/// A server and one way to it.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    pub(super) index: usize,
    pub(super) member: Arc<Member>,
    pub(super) voter: Arc<dyn Voter>,
    pub(super) runtime: Runtime,
}

/// What a server answered: which one, and what.
pub(super) type Answer<T> = (usize, Result<T>);

impl Seat {
    /// Asks beside the caller; the answer goes to `answers`.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        limit: Duration,
        answers: &mpsc::UnboundedSender<Answer<T>>,
        question: impl FnOnce(Arc<dyn Voter>) -> BoxFuture<'static, Result<T>>,
    ) {
        let (seat, answers, question) = (self.clone(), answers.clone(), question(Arc::clone(&self.voter)));
        runtime::spawn(async move {
            let answer = seat.member.ask(&seat.runtime, limit, question).await;
            // Whoever asked may have heard enough.
            let _ = answers.send((seat.index, answer));
        });
    }

    /// Takes a vote back, for as long as it takes or the vote lasts. Tells what came of it first, or the first trouble, to `told`.
    pub(super) async fn withdraw(&self, ballot: Ballot, lasts: Duration, told: Option<mpsc::UnboundedSender<Answer<Released>>>) {
        let mut told = told;
        let mut trouble = Trouble::new(lasts);
        loop {
            let (name, owner) = ballot.clone();
            let voter = Arc::clone(&self.voter);
            let request = Release { name, claim: Claim::Mutex, owner, then: None, settle: false };
            let question = async move { voter.release(request).await };
            let answer = self.member.ask(&self.runtime, TRY, question).await;
            if let Some(told) = told.take() {
                let _ = told.send((self.index, answer.clone()));
            }
            let Err(error) = answer else { return };
            let now = self.runtime.now();
            match trouble.again(error, now) {
                Ok(pause) => self.runtime.sleep_until(now.plus(pause)).await,
                Err(error) => {
                    tracing::debug!(server = %self.member.label, %error, "a vote was not withdrawn; its lease ends it");
                    return;
                }
            }
        }
    }
}

/// Nothing here panics while it holds a lock.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
