//! Asking all servers the same question.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::Quorum;
use super::votes::majority;
use crate::backend::Voter;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::{self, BoxFuture};

/// How long the rest is waited for once a majority has answered, where all answers are wanted.
const STRAGGLING: Duration = Duration::from_millis(50);

pub(super) const IN_TIME: &str = "did not answer in time";
pub(super) const NOT_ASKED: &str = "not asked: it has not been answering";

impl Quorum {
    /// Asks all servers that answer and waits for all of them; once a majority has answered, not much longer.
    pub(super) async fn all_answers<T: Send + 'static>(
        &self,
        limit: Duration,
        question: impl Fn(Arc<dyn Voter>) -> BoxFuture<'static, Result<T>>,
    ) -> Vec<Result<T>> {
        self.collect(limit, STRAGGLING, question).await
    }

    /// As [`Self::all_answers`], but waits for every server until `limit`: for what must not depend on which servers are fast.
    pub(super) async fn every_answer<T: Send + 'static>(
        &self,
        limit: Duration,
        question: impl Fn(Arc<dyn Voter>) -> BoxFuture<'static, Result<T>>,
    ) -> Vec<Result<T>> {
        self.collect(limit, limit, question).await
    }

    async fn collect<T: Send + 'static>(
        &self,
        limit: Duration,
        straggling: Duration,
        question: impl Fn(Arc<dyn Voter>) -> BoxFuture<'static, Result<T>>,
    ) -> Vec<Result<T>> {
        let runtime = &self.shared.runtime;
        let (answers, mut answered) = mpsc::unbounded_channel();
        let mut all: Vec<Result<T>> = Vec::new();
        for (server, worth) in self.servers.iter().zip(self.worth_asking()) {
            all.push(Err(Error::new(ErrorKind::Unavailable, if worth { IN_TIME } else { NOT_ASKED })));
            if worth {
                server.ask(limit, &answers, &question);
            }
        }
        drop(answers);
        let mut until = runtime.now().plus(limit);
        while let Some(Some((index, answer))) = runtime::within(until.since(runtime.now()), Box::pin(answered.recv())).await {
            all[index] = answer;
            if all.iter().filter(|answer| answer.is_ok()).count() == majority(all.len()) {
                until = until.min(runtime.now().plus(straggling));
            }
        }
        all
    }

    /// Which servers to ask: those that answer, if they are a majority; otherwise all.
    pub(super) fn worth_asking(&self) -> Vec<bool> {
        let now = self.shared.runtime.now();
        let worth: Vec<bool> = self.servers.iter().map(|server| server.member.is_worth_asking(now)).collect();
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
        if answers.iter().filter(|answer| answer.is_ok()).count() < majority(self.servers.len()) {
            return Err(self.without_majority(what, &answers));
        }
        Ok(answers.into_iter().flatten().collect())
    }
}
