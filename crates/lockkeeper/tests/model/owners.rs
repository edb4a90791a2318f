//! Each owner's own: nobody's release or renewal touches another, and a hand-over is a release and an acquire in one.

use lockkeeper::ErrorKind;
use lockkeeper::backend::{Attempt, Claim, Holder, Released, Renewed, Snapshot, Waiter};
use lockkeeper::model::{Outcome, Record, Request, Wake};
use lockkeeper::owner::WireOwner;

use super::common::{Subject, Verdict, comparable, ensure, name, prove};
use super::laws::at_each_step;
use super::script::{Act, Move, any_script};

pub(crate) const OTHERS: &str = "what others have is never touched";
const NOTHING_OF_IT: &str = "a release leaves nothing of its owner";
const NOT_SHORTER: &str = "a lease is never shortened";
const IN_ONE: &str = "a hand-over is a release followed by an acquire";

/// All that these owners have at the name.
fn belongings(seen: Option<&Snapshot>, whose: impl Fn(&str) -> bool) -> (Vec<Holder>, Vec<Waiter>) {
    seen.map_or_else(Default::default, |seen| {
        (
            seen.holders.iter().filter(|holder| whose(&holder.owner)).cloned().collect(),
            seen.queue.iter().filter(|waiting| whose(&waiting.owner)).cloned().collect(),
        )
    })
}

fn seen_by<S: Subject>(subject: &S, at: lockkeeper::runtime::Instant) -> Option<Snapshot> {
    subject.record().snapshot(&name(), at)
}

/// Which of an owner's holds a claim speaks of: a writer's read hold is another one.
fn same_hold(one: Claim, other: Claim) -> bool {
    one.kind() == other.kind() && (one == Claim::Read) == (other == Claim::Read)
}

pub(crate) fn touches_only_its_own<S: Subject>(script: &[Move]) -> Verdict {
    at_each_step::<S>(script, |bench, request| {
        let (who, claim): (WireOwner, Claim) = match request {
            Request::Release(asked) if asked.then.is_none() => (asked.owner, asked.claim),
            Request::Renew(asked) => (asked.owner, asked.claim),
            _ => return Ok(()),
        };
        let now = bench.now();
        let mut subject = bench.subject.clone();
        let before = seen_by(&bench.subject, now.at);
        let answer = subject.step(request, now).map_err(|error| error.to_string())?.answer;
        let after = seen_by(&subject, now.at);
        let its_own = who.to_string();
        let others = |owner: &str| owner != its_own;
        ensure(belongings(before.as_ref(), others) == belongings(after.as_ref(), others), OTHERS, || {
            format!("{request:?} made of {before:?} {after:?}")
        })?;
        let (held_before, waited_before) = belongings(before.as_ref(), |owner| owner == its_own);
        let (held_after, waited_after) = belongings(after.as_ref(), |owner| owner == its_own);
        if let (Request::Renew(asked), Outcome::Renew(renewed)) = (request, answer) {
            let mut expected = held_before;
            let mine = expected.iter_mut().find(|hold| same_hold(hold.claim, claim));
            ensure(mine.is_some() == renewed.is_kept(), NOT_SHORTER, || format!("{request:?}: {renewed:?}"))?;
            if let Some(hold) = mine {
                hold.lease_left = hold.lease_left.max(asked.lease);
            }
            return ensure(held_after == expected && waited_after == waited_before, NOT_SHORTER, || format!("{held_after:?}"));
        }
        let rest: Vec<_> = held_before.into_iter().filter(|hold| !same_hold(hold.claim, claim)).collect();
        let waits = waited_after.iter().any(|waiting| same_hold(waiting.claim, claim));
        ensure(held_after == rest && !waits, NOTHING_OF_IT, || format!("{request:?} left {held_after:?} {waited_after:?}"))
    })
}

#[test]
fn a_release_or_renewal_touches_only_what_its_owner_has() {
    prove(any_script(), |script| touches_only_its_own::<Record>(script));
}

#[test]
fn a_stranger_releases_and_renews_nothing() {
    prove(any_script(), |script| {
        at_each_step::<Record>(script, |bench, _| {
            for claim in [Claim::Mutex, Claim::Fair, Claim::Read, Claim::Write, Claim::Permits { take: 1, of: 3 }] {
                let release = Act::Release { who: 77, claim, then: None };
                let gone = Outcome::Release(Released::new(false));
                let renew = Act::Renew { who: 77, claim, lease: Some(50) };
                for (act, expected) in [(release, gone), (renew, Outcome::Renew(Renewed::Gone))] {
                    let mut record = bench.subject.clone();
                    let step = record.step(&act.request(bench.at(), 0), bench.now()).map_err(|error| error.to_string())?;
                    let nothing = step.answer == expected && step.wake == Wake::default() && record == bench.untouched();
                    ensure(nothing, OTHERS, || format!("{act:?} gave {step:?}"))?;
                }
            }
            Ok(())
        })
    });
}

#[test]
fn handing_over_is_releasing_and_then_acquiring() {
    prove(any_script(), |script| {
        at_each_step::<Record>(script, |bench, request| {
            let Request::Release(asked) = request else { return Ok(()) };
            let Some(then) = &asked.then else { return Ok(()) };
            let (mut in_one, mut in_two) = (bench.subject.clone(), bench.subject.clone());
            let answer = in_one.step(request, bench.now());
            // Only a mutex can be handed over.
            let mutexes = [asked.claim, then.claim].iter().all(|claim| matches!(claim, Claim::Mutex | Claim::Fair));
            if !mutexes {
                let refused = comparable(&answer) == Err(ErrorKind::InvalidArgument) && in_one == bench.untouched();
                return ensure(refused, IN_ONE, || format!("{request:?}: {answer:?}"));
            }
            let mut alone = asked.clone();
            alone.then = None;
            let released = in_two.step(&Request::Release(alone), bench.now()).map_err(|error| error.to_string())?;
            let acquired = in_two.step(&Request::Acquire((**then).clone()), bench.now());
            ensure(in_one == in_two, IN_ONE, || format!("{in_one:?} instead of {in_two:?}"))?;
            match (&answer, acquired) {
                (Ok(step), Ok(next)) => {
                    let (Outcome::Release(first), Outcome::Acquire(next)) = (released.answer, next.answer) else {
                        return Err(format!("an answer fits its request: {step:?}"));
                    };
                    let expected = Outcome::Release(Released::new(first.held).with_next(Some(next)));
                    let granted = matches!(next, Attempt::Granted(_));
                    let wake = if granted { Wake::default() } else { released.wake };
                    ensure(step.answer == expected && step.wake == wake, IN_ONE, || {
                        format!("{step:?}, not {expected:?} {wake:?}")
                    })
                }
                (Err(one), Err(two)) => ensure(one.kind() == two.kind(), IN_ONE, || format!("{one} instead of {two}")),
                (one, two) => Err(format!("{IN_ONE}: {one:?} instead of {two:?}")),
            }
        })
    });
}
