//! A Redis server as one of a quorum. It votes in the layout of a mutex; beside it lies the id of its run (`lockkeeper:run`), by which it is
//! known whether it may have forgotten votes.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::locks::{attempt, renewed, text};
use super::request::{Failed, Request, Site};
use super::{RedisStore, millis, parsed, script};
use crate::backend::{Acquire, Attempt, Renew, Renewed, Reply, Standing, Vote, Voter};
use crate::error::Result;

impl RedisStore {
    async fn voted(&self, request: &Acquire, max_lease: Duration) -> Result<Vote> {
        let keys = [request.name.as_str()];
        let arguments = |site: &Site<'_>| {
            let mut arguments = self.asking(request, site);
            arguments.extend([text(site.run), millis(max_lease)]);
            arguments
        };
        let sent = Request::script(&script::VOTE, &keys, &arguments).durable(self.transport.config().durability);
        let answer = self.grants.transport.send(keys[0], &sent.knowing_run()).await.map_err(Failed::into_error)?;
        let numbers: Vec<i64> = parsed(answer)?;
        if let [-6, left] = numbers[..] {
            return Ok(Vote::Quarantined(Duration::from_millis(u64::try_from(left).unwrap_or_default())));
        }
        let attempt = attempt(&numbers, request)?;
        if attempt == Attempt::Late {
            self.transport.late(keys[0], request.not_after);
        }
        Ok(Vote::Cast(attempt))
    }

    async fn kept_votes(&self, requests: &[Renew], max_lease: Duration) -> Result<Vec<Result<Renewed>>> {
        let keys: Vec<&str> = requests.iter().map(|request| request.name.as_str()).collect();
        let arguments = |site: &Site<'_>| {
            let mut arguments = vec![text(site.run), millis(max_lease)];
            for Renew { owner, lease, .. } in requests {
                arguments.extend([text(owner), lease.map_or_else(|| b"0".to_vec(), millis)]);
            }
            arguments
        };
        let sent = Request::script(&script::KEEP_VOTES, &keys, &arguments).durable(self.transport.config().durability);
        let key = keys.first().copied().unwrap_or_default();
        let answer = self.grants.transport.send(key, &sent.knowing_run()).await.map_err(Failed::into_error)?;
        let answers: Vec<Value> = parsed(answer)?;
        Ok(answers.into_iter().zip(requests).map(|(answer, request)| renewed(answer, request.lease)).collect())
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
    fn vote(&self, request: Acquire, max_lease: Duration) -> Reply<'_, Vote> {
        Box::pin(async move { self.voted(&request, max_lease).await })
    }

    fn keep_votes(&self, requests: Vec<Renew>, max_lease: Duration) -> Reply<'_, Vec<Result<Renewed>>> {
        Box::pin(async move { self.kept_votes(&requests, max_lease).await })
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
