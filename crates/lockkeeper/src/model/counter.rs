//! A bare shared number of permits: no owner, no lease, nothing is returned by itself.

use serde::{Deserialize, Serialize};

use super::Wake;
use crate::backend::{Counted, CounterOp};
use crate::error::{Error, ErrorKind, Result};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    /// `None`: it does not exist, and counts as 0.
    permits: Option<i64>,
}

impl State {
    pub(super) fn is_empty(&self) -> bool {
        self.permits.is_none()
    }

    pub(super) fn value(&self) -> i64 {
        self.permits.unwrap_or(0)
    }

    pub(super) fn apply(&mut self, op: CounterOp) -> Result<(Counted, Wake)> {
        let before = self.value();
        let (done, after) = match op {
            CounterOp::Init(permits) if self.permits.is_none() => (true, Some(i64::from(permits))),
            CounterOp::Init(_) | CounterOp::Read => (false, self.permits),
            // Taking no permits does not create the counter; only giving does.
            CounterOp::Take(permits) if before >= i64::from(permits) => {
                (true, self.permits.map(|there| there - i64::from(permits)))
            }
            CounterOp::Take(_) => (false, self.permits),
            CounterOp::Give(permits) => (true, Some(checked(before, i64::from(permits))?)),
            CounterOp::Add(permits) => (true, Some(checked(before, i64::from(permits))?)),
            CounterOp::Drain => (before != 0, self.permits.map(|_| 0)),
            CounterOp::Remove => (self.permits.is_some(), None),
        };
        self.permits = after;
        let value = if op == CounterOp::Drain { before } else { self.value() };
        let wake = if self.value() > before { Wake::ALL } else { Wake::NOBODY };
        Ok((Counted { done, value }, wake))
    }
}

/// Within this range every store counts exactly, Lua's doubles included.
fn checked(before: i64, by: i64) -> Result<i64> {
    const MOST: i64 = 1 << 52;
    let after = before.saturating_add(by);
    if (-MOST..=MOST).contains(&after) {
        Ok(after)
    } else {
        Err(Error::new(ErrorKind::InvalidArgument, format!("{after} permits exceed the maximum of {MOST}")))
    }
}
