//! What the contract promises of every request, whatever the kind: twice is once, never late, nothing left, nothing half done.

use lockkeeper::backend::{Attempt, CountOp, CountOutcome, CounterOp, Kind, LatchOp, SemaphoreOp};
use lockkeeper::model::{Outcome, Record, Request};
use lockkeeper::runtime::Instant;

use super::common::{Bench, Subject, Verdict, comparable, count, count_id, ensure, name, prove};
use super::script::{Move, any_script, script_and_kind};

pub(crate) const TWICE_IS_ONCE: &str = "a request sent twice leaves the same state and gives the same answer";
pub(crate) const NEVER_LATE: &str = "a late request changes nothing and answers so";
const IN_TIME: &str = "a request at its last moment is in time";
const NOTHING_LEFT: &str = "nothing is left when all has expired";
const WHOLE: &str = "an error changes nothing";
const ROUND_TRIP: &str = "a record reads back as it was written";

/// Replays a history and shows each request to `look`, which may try things out on a copy.
pub(crate) fn at_each_step<S: Subject>(script: &[Move], mut look: impl FnMut(&Bench<S>, &Request) -> Verdict) -> Verdict {
    let mut bench = Bench::<S>::default();
    for (turn, Move { gap, wall, act }) in script.iter().enumerate() {
        bench.pass(*gap, *wall);
        let request = act.request(bench.at(), turn);
        look(&bench, &request)?;
        // Refused or not: what follows must hold all the same.
        let _ = bench.send(&request);
    }
    Ok(())
}

/// A repeated release finds nothing any more; everything else is answered as before.
fn as_repeated(first: Outcome, second: &Outcome) -> Outcome {
    match (first, second) {
        (Outcome::Release(mut released), Outcome::Release(again)) => {
            released.held &= again.held;
            Outcome::Release(released)
        }
        (Outcome::Force(held), Outcome::Force(again)) => Outcome::Force(held & again),
        (first, _) => first,
    }
}

pub(crate) fn twice_is_once<S: Subject>(script: &[Move]) -> Verdict {
    at_each_step::<S>(script, |bench, request| {
        let mut subject = bench.subject.clone();
        let first = comparable(&subject.step(request, bench.now()));
        let once = subject.record().clone();
        let second = comparable(&subject.step(request, bench.now()));
        ensure(*subject.record() == once, TWICE_IS_ONCE, || format!("{request:?} made of {once:?} {:?}", subject.record()))?;
        let expected = match (first, &second) {
            (Ok(first), Ok(second)) => Ok(as_repeated(first, second)),
            (first, _) => first,
        };
        ensure(second == expected, TWICE_IS_ONCE, || format!("{request:?}: {expected:?}, then {second:?}"))
    })
}

#[test]
fn every_request_sent_twice_is_as_sent_once() {
    prove(any_script(), |script| twice_is_once::<Record>(script));
}

/// The same request with another last moment, if it has one.
fn until(request: &Request, not_after: u64) -> Option<Request> {
    let not_after = Instant::from_nanos(not_after);
    let mut request = request.clone();
    match &mut request {
        Request::Acquire(asked) => asked.not_after = not_after,
        Request::Count(asked) if !asked.op.is_read() => asked.not_after = not_after,
        _ => return None,
    }
    Some(request)
}

pub(crate) fn late_changes_nothing<S: Subject>(script: &[Move]) -> Verdict {
    at_each_step::<S>(script, |bench, request| {
        let (Some(late), Some(just)) = (until(request, bench.at() - 1), until(request, bench.at())) else { return Ok(()) };
        let mut subject = bench.subject.clone();
        let answer = comparable(&subject.step(&late, bench.now()));
        let told = matches!(answer, Ok(Outcome::Acquire(Attempt::Late) | Outcome::Count(CountOutcome::Late)));
        ensure(told, NEVER_LATE, || format!("{late:?}: {answer:?}"))?;
        let untouched = bench.untouched();
        ensure(*subject.record() == untouched, NEVER_LATE, || format!("{late:?} made {:?}", subject.record()))?;

        let (mut hurried, mut relaxed) = (bench.subject.clone(), bench.subject.clone());
        let in_time = comparable(&hurried.step(&just, bench.now()));
        let whenever = comparable(&relaxed.step(request, bench.now()));
        let same = in_time == whenever && hurried.record() == relaxed.record();
        ensure(same, IN_TIME, || format!("{in_time:?} instead of {whenever:?}"))
    })
}

#[test]
fn a_late_acquire_or_count_changes_nothing_and_says_so() {
    prove(any_script(), |script| late_changes_nothing::<Record>(script));
}

#[test]
fn a_late_successor_is_not_granted_but_the_release_is_done() {
    prove(any_script(), |script| {
        at_each_step::<Record>(script, |bench, request| {
            let Request::Release(asked) = request else { return Ok(()) };
            let (mut late, mut alone) = (asked.clone(), asked.clone());
            alone.then = None;
            let Some(then) = &mut late.then else { return Ok(()) };
            then.not_after = Instant::from_nanos(bench.at() - 1);
            let (mut with, mut without) = (bench.subject.clone(), bench.subject.clone());
            let Ok(step) = with.step(&Request::Release(late), bench.now()) else { return Ok(()) };
            let plain = without.step(&Request::Release(alone), bench.now()).map_err(|error| error.to_string())?;
            let told = matches!(step.answer, Outcome::Release(released) if released.next == Some(Attempt::Late));
            ensure(told && with == without && step.wake == plain.wake, NEVER_LATE, || format!("{step:?}"))
        })
    });
}

/// The moment after which nothing that the request made can be left.
fn end_of(request: &Request, at: Instant) -> Instant {
    let longest = match request {
        Request::Acquire(asked) => asked.lease.max(asked.place.unwrap_or_default()),
        Request::Release(asked) => {
            asked.then.as_ref().map_or_else(Default::default, |then| then.lease.max(then.place.unwrap_or_default()))
        }
        Request::Renew(asked) => asked.lease.unwrap_or_default(),
        Request::Count(asked) => asked.remember,
        Request::Force => Default::default(),
    };
    at.plus(longest)
}

#[test]
fn nothing_is_left_when_all_has_expired() {
    prove(script_and_kind(), |(kind, script)| {
        let mut bench = Bench::<Record>::default();
        let mut end = bench.now().at;
        let close = match kind {
            Kind::CountingSemaphore => Some(CountOp::Counter(CounterOp::Remove)),
            Kind::Latch => Some(CountOp::Latch(LatchOp::Remove)),
            _ => None,
        };
        for (turn, Move { gap, wall, act }) in script.iter().enumerate() {
            bench.pass(*gap, *wall);
            let request = act.request(bench.at(), turn);
            let _ = bench.send(&request);
            end = end.max(end_of(&request, bench.now().at));
        }
        // These two have no leases; they end when somebody ends them.
        if let Some(op) = close {
            let request = count(count_id(1_000), op, 1);
            bench.send(&request).map_err(|error| error.to_string())?;
            end = end.max(end_of(&request, bench.now().at));
        }
        let mut record = bench.subject;
        record.expire(end);
        if *kind == Kind::Semaphore {
            let seen = record.snapshot(&name(), end);
            let back = seen.as_ref().is_none_or(|seen| seen.holders.is_empty() && seen.value == seen.total.map(i64::from));
            ensure(back, NOTHING_LEFT, || format!("{seen:?}"))?;
            let remove = count(count_id(1_000), CountOp::Semaphore(SemaphoreOp::Remove), 1);
            let now = lockkeeper::model::Now { at: end, token: 0 };
            record.step(&remove, now).map_err(|error| error.to_string())?;
            record.expire(end_of(&remove, end));
        }
        ensure(record.is_empty(), NOTHING_LEFT, || format!("{record:?}"))
    });
}

#[test]
fn a_request_that_fails_changes_nothing() {
    prove(any_script(), |script| {
        at_each_step::<Record>(script, |bench, request| {
            let mut record = bench.subject.clone();
            match record.step(request, bench.now()) {
                Ok(_) => Ok(()),
                Err(error) => ensure(record == bench.untouched(), WHOLE, || format!("{error}: {record:?}")),
            }
        })
    });
}

#[test]
fn a_record_reads_back_as_it_was_written() {
    prove(any_script(), |script| {
        at_each_step::<Record>(script, |bench, _| {
            let written = serde_json::to_string(&bench.subject).map_err(|error| format!("{ROUND_TRIP}: {error}"))?;
            let read: Record = serde_json::from_str(&written).map_err(|error| format!("{ROUND_TRIP}: {error}"))?;
            ensure(read == bench.subject, ROUND_TRIP, || written)
        })
    });
}
