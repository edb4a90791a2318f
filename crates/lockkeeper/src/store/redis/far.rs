//! Renewals and the ends that they are told: after the server's clock was set back, some lie too far ahead.

use std::time::Duration;

use redis::Value;

use super::{RedisStore, error, millis};
use crate::backend::{Renew, Renewed};
use crate::error::Result;
use crate::model::Asked;
use crate::runtime::Instant;

impl RedisStore {
    /// What these renewals ask, which are about to be sent.
    pub(super) fn ask<'a>(&self, renewals: impl Iterator<Item = &'a Renew>) -> Vec<Asked> {
        self.far_ends.ask(renewals, || self.transport.runtime().now())
    }

    /// The replies of a renewing script.
    pub(super) fn renewed<'a>(
        &self,
        answers: Vec<Value>,
        renewals: impl Iterator<Item = (&'a Renew, &'a Asked)>,
    ) -> Vec<Result<Renewed>> {
        let one = |(answer, (renewal, asked)): (Value, (&Renew, &Asked))| {
            let (renewed, told) = renewed(answer, renewal.lease)?;
            self.far_ends.answered(renewal, asked, told, || self.transport.runtime().now());
            Ok(renewed)
        };
        answers.into_iter().zip(renewals).map(one).collect()
    }
}

/// A lease as scripts read it: `lib/lasting.lua`.
pub(super) fn lease(asked: &Asked) -> Vec<u8> {
    let mut lease = asked.lease.map_or_else(|| b"0".to_vec(), millis);
    if let Some(far) = asked.far {
        let reach = asked.reach.filter(|_| far.may_shorten).map_or_else(|| b"-".to_vec(), millis);
        lease = [lease, reach, (far.end.as_nanos() / 1_000_000).to_string().into_bytes()].join(&b' ');
    }
    lease
}

/// The reply for one hold: what became of it, and its end if that is far ahead.
fn renewed(answer: Value, lease: Option<Duration>) -> Result<(Renewed, Option<(Instant, Duration)>)> {
    match answer {
        Value::Int(1) => Ok((Renewed::kept(lease), None)),
        Value::Int(_) => Ok((Renewed::Gone, None)),
        Value::Array(numbers) => match numbers[..] {
            [Value::Int(left), Value::Int(end)] => {
                let millis = |number: i64| Duration::from_millis(u64::try_from(number).unwrap_or(0));
                Ok((Renewed::kept(lease), Some((Instant::default().plus(millis(end)), millis(left)))))
            }
            _ => Err(error::unexpected(&Value::Array(numbers))),
        },
        // Another kind of value lies there now: the hold is gone.
        Value::BulkString(error) if String::from_utf8_lossy(&error).contains("WRONGTYPE") => Ok((Renewed::Gone, None)),
        Value::BulkString(error) => Err(error::of_server(&String::from_utf8_lossy(&error))),
        other => Err(error::unexpected(&other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::FarEnd;

    #[test]
    fn a_lease_names_an_end_only_where_one_lies_too_far_ahead() {
        let seconds = Duration::from_secs;
        let asked = Asked { lease: Some(seconds(30)), reach: Some(seconds(40)), far: None };
        assert_eq!(lease(&asked), b"30000");
        assert_eq!(lease(&Asked { lease: None, ..asked }), b"0");
        let far = |may_shorten| Some(FarEnd { end: Instant::default().plus(seconds(1_800_000_000)), may_shorten });
        assert_eq!(lease(&Asked { far: far(true), ..asked }), b"30000 40000 1800000000000");
        assert_eq!(lease(&Asked { lease: None, far: far(false), ..asked }), b"0 - 1800000000000");
    }
}
