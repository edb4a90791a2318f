//! What is compared: answers and snapshots without what may differ.

use std::fmt::Debug;
use std::time::Duration;

use lockkeeper::backend::{Attempt, Busy, Claim, Holder, Kind, Snapshot, Waiter};
use lockkeeper::owner::WireOwner;

/// A difference, in words. They begin with what differs.
pub(crate) type Verdict = Result<(), String>;

pub(crate) const ANSWER: &str = "the answers differ";
pub(crate) const STATE: &str = "the states differ";
pub(crate) const LASTING: &str = "they last differently long";
pub(crate) const TOKEN: &str = "the tokens are out of order";

pub(crate) fn same<T: PartialEq + Debug>(what: &str, redis: &T, model: &T) -> Verdict {
    if redis == model { Ok(()) } else { Err(format!("{what}: redis {redis:?}, the model {model:?}")) }
}

/// What lies under a name. Not in it: tokens (Redis does not keep them with the hold) and clients' cards.
#[derive(Debug, PartialEq)]
struct View {
    kind: Kind,
    /// In no order.
    holders: Vec<(String, Claim)>,
    /// In order.
    queue: Vec<String>,
    /// In no order: two that came at the same moment have none.
    writers: Vec<String>,
    value: Option<i64>,
    total: Option<u32>,
}

impl View {
    fn new(seen: &Snapshot) -> Self {
        let waiting = |claim| seen.queue.iter().filter(move |place| place.claim == claim).map(|place| place.owner.clone());
        let mut writers: Vec<_> = waiting(Claim::Write).collect();
        writers.sort();
        let mut holders: Vec<_> = seen.holders.iter().map(|holder| (holder.owner.clone(), holder.claim)).collect();
        holders.sort();
        Self { kind: seen.kind, holders, queue: waiting(Claim::Fair).collect(), writers, value: seen.value, total: seen.total }
    }
}

/// Redis knows permits by their ids only; the first of an owner's permits stands for it.
pub(crate) fn as_redis_shows(holders: &mut [Holder]) {
    for holder in holders.iter_mut().filter(|holder| matches!(holder.claim, Claim::Permits { .. })) {
        let owner: WireOwner = holder.owner.parse().expect("the model writes owners");
        let bits = owner.client.bits();
        holder.owner = format!("{:016x}{:010x}000000", (bits >> 64) as u64 ^ bits as u64, owner.number);
    }
}

pub(crate) fn same_state(redis: Option<Snapshot>, model: Option<Snapshot>, slack: Duration) -> Verdict {
    let (redis, mut model) = match (redis, model) {
        (Some(redis), Some(model)) => (redis, model),
        (redis, model) => return same(STATE, &redis, &model),
    };
    as_redis_shows(&mut model.holders);
    same(STATE, &View::new(&redis), &View::new(&model))?;
    same_leases(redis.holders, model.holders, slack)?;
    let places = |mut queue: Vec<Waiter>| {
        queue.sort_by(|a, b| a.owner.cmp(&b.owner));
        queue.into_iter().map(|place| place.expires_in).collect::<Vec<_>>()
    };
    let (redis, model) = (places(redis.queue), places(model.queue));
    redis.into_iter().zip(model).try_for_each(|(redis, model)| about(LASTING, redis, model, slack))
}

/// The same holders, for as long.
pub(crate) fn same_holders(redis: Vec<Holder>, mut model: Vec<Holder>, slack: Duration) -> Verdict {
    as_redis_shows(&mut model);
    let who = |holders: &[Holder]| {
        let mut who: Vec<_> = holders.iter().map(|holder| (holder.owner.clone(), holder.claim)).collect();
        who.sort();
        who
    };
    same(ANSWER, &who(&redis), &who(&model))?;
    same_leases(redis, model, slack)
}

fn same_leases(mut redis: Vec<Holder>, mut model: Vec<Holder>, slack: Duration) -> Verdict {
    for holders in [&mut redis, &mut model] {
        holders.sort_by(|a, b| (&a.owner, a.claim).cmp(&(&b.owner, b.claim)));
    }
    redis.iter().zip(&model).try_for_each(|(redis, model)| {
        about(LASTING, redis.lease_left, model.lease_left, slack).map_err(|why| format!("{why} of {}", redis.owner))
    })
}

/// The same answer but for the token, which is checked apart, and for `ahead`, if it was found to be right.
pub(crate) fn same_attempt(redis: Attempt, model: Attempt, slack: Duration) -> Verdict {
    match (redis, model) {
        (Attempt::Granted(redis), Attempt::Granted(model)) => same(ANSWER, &redis.token.is_some(), &model.token.is_some()),
        (Attempt::Busy(redis), Attempt::Busy(model)) => {
            let Busy { retry_in, ahead, placed, .. } = redis;
            same(ANSWER, &(ahead, placed), &(model.ahead, model.placed))?;
            about(ANSWER, retry_in, model.retry_in, slack)
        }
        (redis, model) => same(ANSWER, &redis, &model),
    }
}

fn about(what: &str, redis: Option<Duration>, model: Option<Duration>, slack: Duration) -> Verdict {
    match (redis, model) {
        (Some(redis), Some(model)) if redis.abs_diff(model) <= slack => Ok(()),
        (None, None) => Ok(()),
        _ => Err(format!("{what}: redis {redis:?}, the model {model:?} (± {slack:?})")),
    }
}
