//! A step on the rows that a request needs is the same step as on the whole record.

use std::collections::BTreeMap;

use lockkeeper::model::{Head, Part, Record, RequestRef, Role, Roles};
use lockkeeper::owner::WireOwner;
use lockkeeper::runtime::Instant;

use super::common::{Subject, Verdict, comparable, ensure, prove};
use super::laws::at_each_step;
use super::script::any_script;

const SAME_ANSWER: &str = "a step on some rows gives the answer and the wake-ups of a step on all of them";
const SAME_ROWS: &str = "a step on some rows leaves what a step on all of them leaves";
const ROUND_TRIP: &str = "a record is the same when made of its rows";

type Rows = BTreeMap<(Role, u64, WireOwner), Part>;

fn rows(record: &Record) -> Rows {
    record.parts().into_iter().map(|part| (part.key(), part)).collect()
}

/// The parts that a request needs, and the roles of which there are more; as a store reads them.
fn needed(head: Option<&Head>, rows: &Rows, request: RequestRef<'_>, at: Instant) -> (Rows, Roles) {
    let (mut loaded, mut unread) = (Rows::new(), Roles::default());
    let wants = Head::wants(head, request);
    for role in Role::ALL {
        let of_role: Vec<&Part> = rows.values().filter(|part| part.role == role).collect();
        let Some(want) = wants.iter().find(|want| want.role == role) else {
            if !of_role.is_empty() {
                unread.insert(role);
            }
            continue;
        };
        let owns = |part: &Part| want.owners.contains(&Some(part.owner));
        let mut first = want.first;
        let mut sought = want.owners.iter().flatten().count();
        let mut scanned = 0;
        for part in &of_role {
            let enough = first == 0 && (role != Role::Waiter || sought == 0);
            if enough {
                break;
            }
            scanned += 1;
            loaded.insert(part.key(), **part);
            if owns(part) {
                sought -= 1;
            } else if part.expires > at {
                first = first.saturating_sub(1);
            }
        }
        for part in of_role.iter().skip(scanned) {
            if owns(part) && role != Role::Waiter {
                loaded.insert(part.key(), **part);
            } else {
                unread.insert(role);
            }
        }
    }
    (loaded, unread)
}

#[test]
fn a_record_is_the_same_when_made_of_its_rows() {
    prove(any_script(), |script| {
        at_each_step::<Record>(script, |bench, _| {
            let parts = bench.subject.parts();
            let again = Record::from_rows(bench.subject.head(), &parts, Roles::default());
            ensure(again == bench.subject, ROUND_TRIP, || format!("{again:?}, not {:?}", bench.subject))?;
            ensure(parts.is_sorted_by_key(Part::key), ROUND_TRIP, || format!("out of order: {parts:?}"))
        })
    });
}

#[test]
fn a_step_on_the_rows_that_it_needs_is_the_whole_step() {
    prove(any_script(), |script| {
        at_each_step::<Record>(script, |bench, request| {
            let mut whole = bench.subject.clone();
            let expected = whole.step(request, bench.now());
            let (head, mut rows) = (bench.subject.head(), rows(&bench.subject));
            let (loaded, unread) = needed(head.as_ref(), &rows, request.as_ref(), bench.now().at);
            let parts: Vec<Part> = loaded.values().copied().collect();
            let mut some = Record::from_rows(head, &parts, unread);
            let answer = some.step(request, bench.now());
            ensure(comparable(&answer) == comparable(&expected), SAME_ANSWER, || {
                format!("{request:?} on {parts:?}: {answer:?} instead of {expected:?}")
            })?;
            let wake = |step: &lockkeeper::Result<lockkeeper::model::Step<_>>| step.as_ref().ok().map(|step| step.wake);
            ensure(wake(&answer) == wake(&expected), SAME_ANSWER, || format!("{request:?}: {answer:?}, {expected:?}"))?;
            // Written back: what was loaded is replaced by what is there now.
            rows.retain(|key, _| !loaded.contains_key(key));
            let after = some.parts();
            rows.extend(after.iter().map(|part| (part.key(), *part)));
            let all: Vec<Part> = rows.into_values().collect();
            let mut left = Record::from_rows(some.head(), &all, Roles::default());
            left.expire(bench.now().at);
            same(&left, &whole)
        })
    });
}

fn same(left: &Record, whole: &Record) -> Verdict {
    ensure(left == whole, SAME_ROWS, || format!("{left:?} instead of {whole:?}"))
}
