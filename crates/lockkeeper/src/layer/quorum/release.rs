//! Releasing by majority. Servers that do not answer in time are followed up in the background.

use std::time::Duration;

use tokio::sync::mpsc;

use super::ask::IN_TIME;
use super::member::VoteKey;
use super::votes::{kept_until_released, majority};
use super::{Quorum, Shared};
use crate::backend::{Release, Released};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime;

/// How long a release is waited for; it goes on in the background.
const RELEASING: Duration = Duration::from_secs(2);

/// Whether it was held until the release, as far as the answers tell.
fn was_held(answers: &[Option<Result<bool>>]) -> Option<bool> {
    let said: Vec<Option<bool>> = answers.iter().map(|answer| answer.as_ref()?.as_ref().ok().copied()).collect();
    kept_until_released(&said)
}

impl Quorum {
    pub(super) async fn release_by_majority(&self, request: Release) -> Result<Released> {
        let Shared { runtime, max_lease, .. } = &*self.shared;
        if request.then.is_some() {
            return Err(self.shared.capabilities.unsupported("hand-over"));
        }
        let key: VoteKey = (request.name, request.owner);
        let hold = self.forget(&key);
        let (asked, lasts) = hold.map_or((u64::MAX, *max_lease), |hold| (hold.asked, hold.lease));
        let (told, mut answered) = mpsc::unbounded_channel();
        let servers = self.servers.len();
        // A server that was never asked has no vote of ours.
        let mut answers: Vec<Option<Result<bool>>> = vec![None; servers];
        for server in &self.servers {
            if asked >> server.index & 1 == 0 {
                answers[server.index] = Some(Ok(false));
                continue;
            }
            let (server, key, told) = (server.clone(), key.clone(), told.clone());
            runtime::spawn(async move { server.withdraw(key, lasts, Some(told)).await });
        }
        drop(told);
        let began = runtime.now();
        let mut until = began.plus(RELEASING);
        let mut enough = false;
        // A waiter listens to all servers, so one server's count stands for all.
        let mut woke = None;
        loop {
            let settled = answers.iter().flatten().filter(|answer| answer.is_ok()).count();
            if settled >= majority(servers) && !enough {
                enough = true;
                // The other servers get as long again, if their answers can still change the result.
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
            return Err(self.without_majority("released it", &answers));
        }
        // Unknown is not lost.
        Ok(Released { held: held.unwrap_or(true), next: None, woke })
    }
}
