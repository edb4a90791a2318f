//! Waiting: whoever may go on is woken, and nobody is told to look again later than the end that it waits for.

use std::time::Duration;

use lockkeeper::backend::{Attempt, Claim, Kind};
use lockkeeper::model::{Now, Outcome, Record, Request};

use super::common::{Bench, OWNERS, Subject, Verdict, ensure, name, owner, prove};
use super::laws::at_each_step;
use super::ledger::nanos_of;
use super::script::{Ask, Move, script_and_kind};

pub(crate) const WOKEN: &str = "whoever a step made grantable is woken";
const IN_TIME: &str = "before the time that a waiter was told nothing changes by itself";

fn attempt<S: Subject>(subject: &S, ask: &Ask, now: Now) -> Option<Attempt> {
    let request = Request::Acquire(ask.at(now.at.as_nanos()));
    match subject.clone().step(&request, now).ok()?.answer {
        Outcome::Acquire(attempt) => Some(attempt),
        _ => None,
    }
}

/// All that one of the owners may be waiting for. Ages tell readers that came before a writer from those that came after.
fn possible_waits(kind: Kind) -> Vec<Ask> {
    let claims = match kind {
        Kind::Mutex => vec![Claim::Mutex, Claim::Fair],
        Kind::RwLock => vec![Claim::Read, Claim::Write],
        _ => vec![Claim::Permits { take: 1, of: 3 }, Claim::Permits { take: 3, of: 3 }],
    };
    let with = |claim| (0..OWNERS).flat_map(move |who| [0, 5].map(|age| Ask { who, claim, lease: 5, place: None, age }));
    claims.into_iter().flat_map(with).collect()
}

pub(crate) fn wakes_whom_it_frees<S: Subject>(kind: Kind, script: &[Move]) -> Verdict {
    let waits = possible_waits(kind);
    at_each_step::<S>(script, |bench, request| {
        let now = bench.now();
        let mut after = bench.subject.clone();
        let Ok(step) = after.step(request, now) else { return Ok(()) };
        if step.wake.all {
            return Ok(());
        }
        // Who asks learns it from the answer.
        let told_already = match request {
            Request::Acquire(asked) => Some(asked.owner),
            Request::Release(asked) => asked.then.as_ref().map(|then| then.owner),
            _ => None,
        };
        let line = bench.subject.record().snapshot(&name(), now.at).map_or_else(Vec::new, |seen| seen.queue);
        for ask in &waits {
            let who = owner(ask.who);
            // Who waits fairly has a place; without one it has given up, or has to come back by itself.
            if ask.claim == Claim::Fair && !line.iter().any(|waiting| waiting.owner == who.to_string()) {
                continue;
            }
            let waited = matches!(attempt(&bench.subject, ask, now), Some(Attempt::Busy(_)));
            let may_go_on = waited && matches!(attempt(&after, ask, now), Some(Attempt::Granted(_)));
            let told = step.wake.head == Some(who) || told_already == Some(who);
            ensure(!may_go_on || told, WOKEN, || format!("{request:?} frees {ask:?}: {:?}", step.wake))?;
        }
        Ok(())
    })
}

#[test]
fn whoever_a_step_made_grantable_is_woken() {
    prove(script_and_kind(), |(kind, script)| wakes_whom_it_frees::<Record>(*kind, script));
}

/// Asks again just before the time it was told, with nothing else happening.
fn waits_no_longer_than_needed<S: Subject>(bench: &Bench<S>, ask: &Ask) -> Verdict {
    let Some(Attempt::Busy(busy)) = attempt(&bench.subject, ask, bench.now()) else { return Ok(()) };
    let Some(left) = busy.retry_in.filter(|left| !left.is_zero()) else {
        return Err(format!("{IN_TIME}: {ask:?} waits for something that ends, and was told {busy:?}"));
    };
    let pause = left - Duration::from_nanos(1);
    // It began to wait when it did, so it is older by then.
    let older = Ask { age: ask.age + nanos_of(pause), ..ask.clone() };
    let later = attempt(&bench.subject, &older, Now { at: bench.now().at.plus(pause), ..bench.now() });
    ensure(matches!(later, Some(Attempt::Busy(_))), IN_TIME, || format!("{ask:?} was told {left:?}, and before that: {later:?}"))
}

#[test]
fn a_waiter_is_never_told_to_look_too_late() {
    prove(script_and_kind(), |(kind, script)| {
        let waits = possible_waits(*kind);
        at_each_step::<Record>(script, |bench, _| waits.iter().try_for_each(|ask| waits_no_longer_than_needed(bench, ask)))
    });
}
