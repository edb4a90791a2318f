//! What happened, as events in true time: one JSON object per line.
//!
//! True time is a clock outside of all clients and stores, in nanoseconds from the start of the history. Clients report what they asked and
//! were told. The store, or a layer right above it, reports what it did. A fault injector reports its faults.

use std::io::BufRead;

use serde::{Deserialize, Serialize};

/// One event. Events are in the order of `at`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// True time in nanoseconds.
    pub at: u64,
    /// Which client it concerns; of an event of the store, the client of the owner. Ignored where it makes no sense.
    #[serde(default)]
    pub client: u32,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

/// How a name is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Alone: a mutex, fair or not, or the write side of a read-write lock.
    Exclusive,
    /// With other readers.
    Shared,
    /// Some permits of a semaphore.
    Permits {
        /// How many.
        take: u32,
        /// How many there are in all.
        of: u32,
    },
}

/// What a client asks of a latch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LatchAsk {
    /// To close it with so many to go, if it is open.
    Close {
        /// How many.
        count: u32,
    },
    /// To count one down.
    Down,
    /// To wait until it is open.
    Wait,
}

/// What an event tells. Times and durations are nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[allow(missing_docs, reason = "the fields are named as in the library, the variants say what happened")]
pub enum What {
    /// A client begins to ask for a name. `call` is new for each call of a client.
    Call { call: u64, name: String },
    /// The call returned a guard. `sent`: when the request that was granted left the client. For a hand-over inside a process it is the
    /// sending of the request that the store granted.
    Granted { call: u64, name: String, owner: String, side: Side, token: Option<u64>, sent: u64, lease: u64 },
    /// The call ended without a guard: busy, timed out, failed, or its future was dropped.
    Ended { call: u64 },
    /// The caller does not poll its call any more. It may stand before others in a fair queue until its place ends.
    Left { call: u64 },
    /// A renewal, or a repeated acquire, was answered: the hold is kept.
    Kept { name: String, owner: String, sent: u64, lease: u64 },
    /// The program asked `is_valid()`.
    Probed { name: String, owner: String, valid: bool },
    /// The program was told of the loss.
    Lost { name: String, owner: String },
    /// The program gave the guard up: it called `release()`, or dropped the guard.
    Release { name: String, owner: String },
    /// `release()` returned `Ok`.
    Released { name: String, owner: String },
    /// `close()` returned `Ok`: the store holds nothing for this client.
    Closed,
    /// The client stopped for good, without a word to the store.
    Crashed,
    /// The client does not run from here on.
    Paused,
    /// It runs again.
    Resumed,
    /// No message passes between the client and the store from here on.
    Cut,
    /// Messages pass again.
    Healed,
    /// A message of the client was lost or delayed. It may not know how things are for so long.
    Disturbed { lasts: u64 },
    /// The store granted a hold or renewed it, and keeps it for `lease` from now. `clock`: the store's wall clock in microseconds.
    Held { name: String, owner: String, side: Side, token: Option<u64>, lease: u64, clock: Option<u64> },
    /// The store removed a hold before its lease ended. `forced`: an operator took it away, so the holder may not know yet.
    Freed {
        name: String,
        owner: String,
        #[serde(default)]
        forced: bool,
    },
    /// The store lets the reader `owner` in beside `writer`, if that one writes: both belong to one holder.
    Beside { name: String, owner: String, writer: String },
    /// The writer `from` became the reader `to`: no other writer may have been let in between. The guard of `from` was given up before.
    Downgraded { name: String, from: String, to: String },
    /// A client asks that the number of a latch or a counting semaphore be changed by this, once; it may be refused.
    Asks { name: String, change: i64 },
    /// The store's number of a latch or a counting semaphore is this from now on.
    Number { name: String, value: i64 },
    /// A call for permits of a counting semaphore said that it has them.
    Took { name: String, permits: u32 },
    /// A call that waited for a latch returned: it was open.
    Opened { call: u64, name: String },
    /// A client begins a call of a latch. Only the order of calls and answers is judged, and not by the referee. `call` is new for each call of a client.
    LatchAsks { call: u64, name: String, ask: LatchAsk },
    /// That call was answered: to close, 1 if it did and 0 if it was closed; to count down, how many are to go; to wait, 0.
    LatchAnswers { call: u64, name: String, value: i64 },
    /// The store does not run from here on. It keeps what it knows.
    StoreStopped,
    /// The store goes on after it stood still or was down, with all that it knew. Sessions of clients count from now on.
    StoreResumed,
    /// The last token of a grant: of the range that the store reserved, or the one on which several stores agreed. `clock`: the store's wall clock,
    /// or the fastest of several, in microseconds.
    Token { name: String, token: u64, clock: u64 },
    /// Something that explains the history to a reader. It is not judged.
    Note { text: String },
    /// The store is not what it was: it restarted empty, failed over, or its clock was set. `forgot`: all holds are gone. `lag`: how far its
    /// wall clock is now behind what it was.
    Unhealthy { forgot: bool, lag: u64 },
    /// A resource acknowledged a write by the holder of `token`, which had read `read` after it entered the gate.
    Wrote { resource: String, token: u64, read: u64, wrote: u64 },
}

/// Reads a history of JSON lines; empty lines are skipped.
///
/// # Errors
///
/// The number of the line that is no event, and why.
pub fn read(lines: impl BufRead) -> impl Iterator<Item = Result<Event, String>> {
    lines.lines().enumerate().filter_map(|(index, line)| {
        let wrong = |error: &dyn std::fmt::Display| format!("line {}: {error}", index + 1);
        match line {
            Err(error) => Some(Err(wrong(&error))),
            Ok(line) if line.trim().is_empty() => None,
            Ok(line) => Some(serde_json::from_str(&line).map_err(|error| wrong(&error))),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_reads_back_what_it_writes() {
        let side = Side::Permits { take: 2, of: 5 };
        let held = What::Held { name: "a".into(), owner: "1:1".into(), side, token: None, lease: 7, clock: Some(u64::MAX) };
        for what in [held, What::Crashed, What::Call { call: 3, name: "b".into() }] {
            let event = Event { at: u64::MAX - 1, client: 2, what };
            let line = serde_json::to_string(&event).unwrap();
            assert_eq!(read(format!("\n{line}\n").as_bytes()).collect::<Vec<_>>(), [Ok(event)], "{line}");
        }
    }

    #[test]
    fn a_line_that_is_no_event_is_named() {
        let found: Vec<_> = read(&b"{\"at\":1,\"event\":\"crashed\"}\nnonsense\n"[..]).collect();
        assert!(found[0].is_ok());
        assert!(found[1].as_ref().unwrap_err().starts_with("line 2: "), "{found:?}");
    }
}
