//! A Redis server as one of a quorum. A vote has the layout of a mutex. Beside it the server keeps the id of its run (`lockkeeper:run`), which
//! tells whether it may have forgotten votes.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::locks::{attempt, refusal, text};
use super::request::{Failed, Request, Site};
use super::{RedisStore, far, millis, parsed, script};
use crate::backend::{Decision, KeepVotes, Kind, Renewed, Reply, Standing, Vote, VoteRequest, Voter};
use crate::error::Result;
use crate::model::Quarantine;

/// The reply to a renewal that came too late to give a forgotten vote again.
const LATE: Value = Value::Int(-1);

impl RedisStore {
    async fn voted(&self, request: &VoteRequest) -> Result<Vote> {
        let VoteRequest { acquire, floor, max_lease } = request;
        let keys = [acquire.name.as_str()];
        let arguments = |site: &Site<'_>| {
            vec![
                text(acquire.owner),
                millis(acquire.lease),
                site.micros(acquire.not_after),
                text(floor),
                site.tokens(&acquire.name, self.transport.config().tokens_per_name),
                text(site.run),
                millis(*max_lease),
            ]
        };
        let sent = Request::script(&script::VOTE, &keys, &arguments).durable(self.transport.config().durability);
        let answer = self
            .grants
            .transport
            .send(keys[0], &sent.knowing_run().not_after(acquire.not_after))
            .await
            .map_err(Failed::into_error)?;
        let numbers: Vec<i64> = parsed(answer)?;
        let Some((clock, numbers)) = numbers.split_first() else {
            return Err(refusal(&numbers, &acquire.name, Kind::Mutex));
        };
        let decision = if let [-6, left] = numbers[..] {
            Decision::Quarantined(Duration::from_millis(u64::try_from(left).unwrap_or_default()))
        } else {
            Decision::Cast(attempt(numbers, acquire)?)
        };
        Ok(Vote { decision, clock: u64::try_from(*clock).unwrap_or_default() })
    }

    async fn kept_votes(&self, request: &KeepVotes) -> Result<Vec<Result<Renewed>>> {
        let KeepVotes { renewals, not_after, max_lease } = request;
        let keys: Vec<&str> = renewals.iter().map(|renewal| renewal.name.as_str()).collect();
        let asked = self.ask(renewals.iter());
        let arguments = |site: &Site<'_>| {
            let mut arguments = vec![text(site.run), millis(*max_lease), site.micros(*not_after)];
            for (renewal, asked) in renewals.iter().zip(&asked) {
                arguments.extend([text(renewal.owner), far::lease(asked)]);
            }
            arguments
        };
        let sent = Request::script(&script::KEEP_VOTES, &keys, &arguments).durable(self.transport.config().durability);
        let key = keys.first().copied().unwrap_or_default();
        let answer =
            self.grants.transport.send(key, &sent.knowing_run().not_after(*not_after)).await.map_err(Failed::into_error)?;
        let answers: Vec<Value> = parsed(answer)?;
        let late: Vec<bool> = answers.iter().map(|answer| *answer == LATE).collect();
        let renewed = self.renewed(answers, renewals.iter().zip(&asked)).into_iter().zip(late);
        Ok(renewed.map(|(renewed, late)| if late { Err(Quarantine::late_renewal()) } else { renewed }).collect())
    }

    async fn stands(&self, max_lease: Duration, what: &str) -> Result<Standing> {
        let arguments = |site: &Site<'_>| vec![text(site.run), millis(max_lease), text(what)];
        let sent = Request::script(&script::STANDING, &[], &arguments).knowing_run();
        let left: i64 = parsed(self.transport.send("", &sent).await.map_err(Failed::into_error)?)?;
        Ok(match u64::try_from(left) {
            Err(_) => Standing::Unknown,
            Ok(0) => Standing::Admitted,
            Ok(left) => Standing::Quarantined(Duration::from_millis(left)),
        })
    }
}

impl Voter for RedisStore {
    fn vote(&self, request: VoteRequest) -> Reply<'_, Vote> {
        Box::pin(async move { self.voted(&request).await })
    }

    fn keep_votes(&self, request: KeepVotes) -> Reply<'_, Vec<Result<Renewed>>> {
        Box::pin(async move { self.kept_votes(&request).await })
    }

    fn server_id(&self) -> Reply<'_, String> {
        Box::pin(async move {
            let arguments = |site: &Site<'_>| vec![text(site.run), text(0), text("run")];
            let sent = Request::script(&script::STANDING, &[], &arguments).knowing_run();
            parsed(self.transport.send("", &sent).await.map_err(Failed::into_error)?)
        })
    }

    fn standing(&self, max_lease: Duration) -> Reply<'_, Standing> {
        Box::pin(async move { self.stands(max_lease, "look").await })
    }

    fn admit(&self, max_lease: Duration) -> Reply<'_, ()> {
        Box::pin(async move { self.stands(max_lease, "admit").await.map(drop) })
    }

    fn second(self: Arc<Self>) -> Arc<dyn Voter> {
        Arc::new(self.over_another())
    }
}
