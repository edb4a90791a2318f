//! Keeping a mutex inside this client: it is released if anybody else waits, and else moves to another owner of the client.

use super::locks::{attempt, check_successor, spare, text};
use super::request::{Request, Site};
use super::{RedisStore, millis, names, parsed, script};
use crate::backend::{Acquire, Kind, Release, Released};
use crate::error::{Error, ErrorKind, Result};

impl RedisStore {
    /// Releases, and grants to `then` if nobody else waits. The server counts subscribers, ours included, so it is told how many are ours: one, if the
    /// connection that carries the request is subscribed, and none if that is not certain.
    pub(super) async fn run_keep(&self, request: &Release, then: &Acquire) -> Result<Released> {
        check_successor(request, then)?;
        let Release { name, owner, .. } = request;
        let channel = names::channel(name, Kind::Mutex, None);
        let others_here = self.watching.has_other_client(name, owner.client);
        let (keys, arguments) = ([name.as_str()], |site: &Site<'_>| {
            let ours = u8::from(!others_here && site.subscriptions.is_confirmed(&channel));
            let (until, tokens) = (site.micros(then.not_after), site.tokens(name, false));
            let owner = [text(owner), channel.clone().into_bytes(), text(ours)];
            owner.into_iter().chain([text(then.owner), millis(then.lease), until, tokens, spare(then)]).collect()
        });
        // It grants as well.
        let sent = Request::script(&script::MUTEX_KEEP, &keys, &arguments).durable(self.transport.config().durability);
        let counter = self.moving_counter(name);
        let sent = sent.following(true).counting_tokens(counter.as_deref());
        let (answer, doubt) = match Box::pin(self.grants.transport.send(keys[0], &sent)).await {
            Ok(answer) => (answer, None),
            Err(failed) => failed.doubtful()?,
        };
        let numbers: Vec<i64> = parsed(answer)?;
        match (&numbers[..], doubt) {
            (&[held, woke], _) => Ok(self.released(request, held, woke)),
            // It moved, and the replicas that were asked for may not have it: neither the old owner nor the new one holds it for certain. The caller
            // asked for a release, not for a grant: it asks again, and learns that the old owner does not hold it.
            (_, Some(doubt)) => {
                Err(Error::new(ErrorKind::Indeterminate, "the lock may not have been kept for the next waiter")
                    .with_source(doubt))
            }
            (numbers, None) => {
                let held = numbers.first() == Some(&1);
                Ok(Released { held, next: Some(attempt(numbers.get(1..).unwrap_or_default(), then)?), woke: Some(0) })
            }
        }
    }
}
