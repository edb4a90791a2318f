//! The short answer to a waiter that asks again: still busy. It needs a few rows however long the queue is, and at most one row is written for it.
//!
//! A waiter asks again about once a second. A whole step reads all places before its own. With a few hundred waiters nothing else would be
//! done, and the holder would lose its lock for want of renewals.

use std::time::Duration;

use super::rows::{HeadRow, PartRow};
use crate::backend::{Acquire, Attempt, Busy};
use crate::model::{Now, Record};
use crate::runtime::Instant;

/// What the whole step would answer, if that is `Busy` and changes nothing but the end of the waiter's own place; with the record, as far as it is
/// known. `None`: only the whole step can tell.
///
/// `places` are the waiter's own, the first and the one before it, in the order of the queue. Without a queue there are none.
pub(crate) fn still_busy<P>(row: &HeadRow<P>, places: &[PartRow<P>], request: &Acquire, at: Instant) -> Option<(Busy, Record)> {
    // What has ended is for the whole step to remove.
    if places.iter().any(|row| row.part.expires <= at) {
        return None;
    }
    let parts: Vec<_> = places.iter().map(|row| row.part).collect();
    let mut record = Record::from_rows(row.head, &parts, row.roles);
    let step = record.acquire(request, Now { at, token: 0 }).ok()?;
    let Attempt::Busy(busy) = step.answer else { return None };
    Some((busy, record))
}

/// Whether a place has to be extended: a fifth of its time is over. On a busy machine the waiter may run late the next time.
pub(crate) fn ends_soon<P>(row: &PartRow<P>, place: Duration, at: Instant) -> bool {
    row.part.expires < at.plus(place / 5 * 4)
}
