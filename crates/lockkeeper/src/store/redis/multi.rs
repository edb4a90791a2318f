//! Acquiring several names in one step: one script, one round trip.

use super::locks::{asking, attempt, text};
use super::request::{Request, Site};
use super::{RedisStore, error, parsed, script};
use crate::backend::{Acquire, Attempt, AttemptAll, Claim, Grant};
use crate::error::{Error, ErrorKind, Result};

impl RedisStore {
    pub(super) async fn run_acquire_all(&self, requests: &[Acquire]) -> Result<AttemptAll> {
        if requests.is_empty() {
            return Err(Error::new(ErrorKind::InvalidArgument, "no lock to acquire; name at least one"));
        }
        for request in requests {
            self.admit(&request.name, request.claim.kind())?;
        }
        let keys: Vec<&str> = requests.iter().map(|request| request.name.as_str()).collect();
        if self.transport.atomic_groups(&keys).len() > 1 {
            let message = "names in different slots of a cluster cannot be acquired in one step; see atomic_groups()";
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let per_name = self.tokens_per_name();
        let arguments = |site: &Site<'_>| {
            let mut arguments = Vec::with_capacity(requests.len() * 8);
            for request in requests {
                // A request for several names leaves no mark in the queue of one.
                let asking = asking(&Acquire { place: None, ..request.clone() }, site, per_name, self.fair_unit);
                let claim = match request.claim {
                    Claim::Mutex => "mutex",
                    Claim::Fair => "fair",
                    Claim::Read => "read",
                    Claim::Write => "write",
                    Claim::Permits { .. } => "permits",
                };
                arguments.extend([text(claim), text(asking.len())]);
                arguments.extend(asking);
            }
            arguments
        };
        let sent = Request::script(&script::MULTI, &keys, &arguments).durable(self.transport.config().durability);
        let earliest = requests.iter().map(|request| request.not_after).min();
        let sent = earliest.map_or(sent, |at| sent.not_after(at));
        let (answer, doubt) = match self.grants.transport.send(keys[0], &sent).await {
            Ok(answer) => (answer, None),
            Err(failed) => failed.doubtful()?,
        };
        let numbers: Vec<i64> = parsed(answer)?;
        match &numbers[..] {
            [0, tokens @ ..] if tokens.len() == requests.len() => {
                if let Some(doubt) = doubt {
                    return Err(doubt);
                }
                let grant = |(token, request): (&i64, &Acquire)| {
                    Grant::new(u64::try_from(*token).ok().filter(|token| *token > 0), request.lease)
                };
                Ok(AttemptAll::Granted(tokens.iter().zip(requests).map(grant).collect()))
            }
            [which, answer @ ..] if *which > 0 => {
                let index = *which as usize - 1;
                let unknown = || error::unexpected(&redis::Value::Int(*which));
                let request = requests.get(index).ok_or_else(unknown)?;
                match attempt(answer, request)? {
                    Attempt::Busy(busy) => Ok(AttemptAll::Busy { index, busy }),
                    Attempt::Late => Ok(AttemptAll::Late),
                    Attempt::Granted(_) => Err(unknown()),
                }
            }
            _ => Err(error::unexpected(&redis::Value::Array(numbers.iter().copied().map(redis::Value::Int).collect()))),
        }
    }
}
