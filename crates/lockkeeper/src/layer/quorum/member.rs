//! One server of a quorum: whether it answers, and how it is asked without waiting too long for it.

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
use crate::runtime::{self, BoxFuture, Instant, Runtime, log};

/// A server that was asked and has not answered for this long is asked only this often until it does.
const SILENCE: Duration = Duration::from_millis(500);

/// A server with this many unanswered requests counts as silent sooner: unanswered requests must not pile up.
const MANY: usize = 64;

/// How much sooner.
const SILENCE_OF_MANY: Duration = Duration::from_millis(50);

/// How long one request to withdraw a vote may take.
const TRY: Duration = Duration::from_secs(3);

/// Which vote: for which owner, of which mutex.
pub(super) type VoteKey = (Name, WireOwner);

/// What all connections know of one server.
#[derive(Debug)]
pub(super) struct Member {
    /// Its URL, for errors.
    pub(super) label: String,
    pulse: Mutex<Pulse>,
    /// Votes that are being asked for or withdrawn. A new request for one of them could be undone by the withdrawal.
    unsettled: Mutex<HashSet<VoteKey>>,
}

/// Whether a server answers.
#[derive(Debug, Default)]
struct Pulse {
    waiting: usize,
    /// Since when it has not answered, while a request was unanswered.
    quiet_since: Instant,
    /// The last request that timed out got no answer.
    silent: bool,
    probed: Instant,
}

impl Member {
    pub(super) fn new(label: String) -> Arc<Self> {
        Arc::new(Self { label, pulse: Mutex::default(), unsettled: Mutex::default() })
    }

    /// Whether to ask it: not while it is silent, except for a probe now and then.
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
    pub(super) fn unsettle(self: &Arc<Self>, key: &VoteKey) -> Option<Unsettled> {
        let new = locked(&self.unsettled).insert(key.clone());
        new.then(|| Unsettled { member: Arc::clone(self), key: key.clone() })
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

/// A request under way. Also ends when it is dropped.
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
    key: VoteKey,
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        locked(&self.member.unsettled).remove(&self.key);
    }
}

/// A server and one connection to it.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) index: usize,
    pub(super) member: Arc<Member>,
    pub(super) voter: Arc<dyn Voter>,
    pub(super) runtime: Runtime,
}

/// Which server answered, and what.
pub(super) type Answer<T> = (usize, Result<T>);

impl Connection {
    /// Asks in a task of its own; the answer goes to `answers`.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        limit: Duration,
        answers: &mpsc::UnboundedSender<Answer<T>>,
        question: impl FnOnce(Arc<dyn Voter>) -> BoxFuture<'static, Result<T>>,
    ) {
        let (server, answers, question) = (self.clone(), answers.clone(), question(Arc::clone(&self.voter)));
        runtime::spawn(async move {
            let answer = server.member.ask(&server.runtime, limit, question).await;
            // The caller may have stopped listening.
            let _ = answers.send((server.index, answer));
        });
    }

    /// Withdraws a vote. Retries until it succeeds or the vote has ended by itself. Sends the first answer, or the first error, to `told`.
    pub(super) async fn withdraw(&self, key: VoteKey, lasts: Duration, told: Option<mpsc::UnboundedSender<Answer<Released>>>) {
        let mut told = told;
        let mut trouble = Trouble::new(lasts);
        loop {
            let (name, owner) = key.clone();
            let voter = Arc::clone(&self.voter);
            let request = Release::new(name, Claim::Mutex, owner);
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
                    log!(debug, server = %self.member.label, %error, "a vote was not withdrawn; its lease ends it");
                    return;
                }
            }
        }
    }
}

/// Nothing in this module panics while it holds a lock.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
