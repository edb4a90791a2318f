//! One kind per name: what asks for another is told so and changes nothing.

use lockkeeper::ErrorKind;
use lockkeeper::backend::{Claim, CountOp, CounterOp, Kind, LatchOp, Released, Renewed, SemaphoreOp};
use lockkeeper::model::{Outcome, Record, Request};

use super::common::{Subject, Verdict, comparable, count, count_id, ensure, name, prove};
use super::laws::at_each_step;
use super::script::{Act, Ask, Move, script_and_kind};

const ONE_KIND: &str = "a request of another kind is refused and changes nothing";
const NO_MATTER: &str = "who gives up or renews what is not there changes nothing";

const CLAIMS: [Claim; 5] = [Claim::Mutex, Claim::Fair, Claim::Read, Claim::Write, Claim::Permits { take: 1, of: 3 }];

const OPS: [CountOp; 9] = [
    CountOp::Counter(CounterOp::Init(1)),
    CountOp::Counter(CounterOp::Give(1)),
    CountOp::Counter(CounterOp::Read),
    CountOp::Latch(LatchOp::Init(1)),
    CountOp::Latch(LatchOp::Down),
    CountOp::Latch(LatchOp::Read),
    CountOp::Semaphore(SemaphoreOp::Resize(1)),
    CountOp::Semaphore(SemaphoreOp::Read),
    CountOp::Semaphore(SemaphoreOp::Remove),
];

/// The kind that a history was made of is known from its making, not from the model.
fn keeps_its_kind<S: Subject>(kind: Kind, script: &[Move]) -> Verdict {
    at_each_step::<S>(script, |bench, _| {
        let there = bench.subject.record().snapshot(&name(), bench.now().at);
        ensure(there.as_ref().is_none_or(|seen| seen.kind == kind), ONE_KIND, || format!("{there:?}"))?;
        let untouched = bench.untouched();
        let refused = |request: &Request| {
            let mut subject = bench.subject.clone();
            let answer = comparable(&subject.step(request, bench.now()));
            match there {
                Some(_) => ensure(answer == Err(ErrorKind::WrongKind) && *subject.record() == untouched, ONE_KIND, || {
                    format!("{request:?}: {answer:?}")
                }),
                // A name that is free takes any kind.
                None => ensure(answer.is_ok(), ONE_KIND, || format!("{request:?} on nothing: {answer:?}")),
            }
        };
        let ignored = |request: &Request, expected: Outcome| {
            let mut subject = bench.subject.clone();
            let answer = comparable(&subject.step(request, bench.now()));
            let nothing = answer == Ok(expected) && *subject.record() == untouched;
            ensure(nothing, NO_MATTER, || format!("{request:?}: {answer:?}"))
        };
        // Also an owner that holds something here: its other claims are no less foreign.
        for who in [0, 77] {
            for claim in CLAIMS.into_iter().filter(|claim| claim.kind() != kind) {
                let ask = Ask { who, claim, lease: 5, place: Some(5), age: 0 };
                refused(&Act::Acquire(ask).request(bench.at(), 0))?;
                let release = Act::Release { who, claim, then: None };
                ignored(&release.request(bench.at(), 0), Outcome::Release(Released::new(false)))?;
                let renew = Act::Renew { who, claim, lease: Some(50) };
                ignored(&renew.request(bench.at(), 0), Outcome::Renew(Renewed::Gone))?;
            }
        }
        for op in OPS.into_iter().filter(|op| op.kind() != kind) {
            refused(&count(count_id(1_000), op, 5))?;
        }
        Ok(())
    })
}

#[test]
fn a_request_of_another_kind_is_refused_and_changes_nothing() {
    prove(script_and_kind(), |(kind, script)| keeps_its_kind::<Record>(*kind, script));
}
