//! Fencing tokens: a later grant always carries a larger one.

use lockkeeper::backend::{Attempt, Claim};
use lockkeeper::model::{Outcome, Record, Request};
use lockkeeper::owner::WireOwner;
use proptest::prelude::Just;
use proptest::prop_oneof;
use proptest::strategy::{BoxedStrategy, Strategy};

use super::common::{Bench, Subject, Verdict, ensure, prove};
use super::ledger::Ledger;
use super::script::{Move, Script, claims_on, script_of_claims};

pub(crate) const GROWING: &str = "a new grant carries a larger token than all before it";
const NOT_SMALLER: &str = "a repeated grant carries no smaller token";

pub(crate) fn tokens_grow<S: Subject>(script: &[Move]) -> Verdict {
    let (mut bench, mut ledger) = (Bench::<S>::default(), Ledger::default());
    let mut largest = 0;
    let mut last_of: Vec<(WireOwner, Claim, u64)> = Vec::new();
    for (turn, Move { gap, wall, act }) in script.iter().enumerate() {
        bench.pass(*gap, *wall);
        ledger.expire(bench.at());
        let request = act.request(bench.at(), turn);
        let mut before = ledger.clone();
        let Ok(step) = bench.send(&request) else { continue };
        let asked = match (&request, &step.answer) {
            (Request::Acquire(asked), Outcome::Acquire(Attempt::Granted(grant))) => Some((asked, grant.token)),
            (Request::Release(asked), Outcome::Release(released)) => {
                before.give_up(asked.owner, asked.claim);
                match (&asked.then, released.next) {
                    (Some(then), Some(Attempt::Granted(grant))) => Some((&**then, grant.token)),
                    _ => None,
                }
            }
            _ => None,
        };
        ledger.enter(&request, &step.answer, bench.at())?;
        let Some((asked, token)) = asked else { continue };
        let token = token.ok_or("a lock has a token")?;
        // Plain and fair grants are one hold.
        let claim = if asked.claim == Claim::Fair { Claim::Mutex } else { asked.claim };
        let same = |(owner, of, _): &&(WireOwner, Claim, u64)| *owner == asked.owner && *of == claim;
        if before.holds(asked.owner, asked.claim) {
            let first = last_of.iter().rev().find(same).map(|(_, _, token)| *token);
            ensure(Some(token) >= first, NOT_SMALLER, || format!("{} had {first:?}, now {token}", asked.owner))?;
        } else {
            ensure(token > largest, GROWING, || format!("{} gets {token} after {largest}", asked.owner))?;
        }
        largest = largest.max(token);
        last_of.push((asked.owner, claim, token));
    }
    Ok(())
}

pub(crate) fn fenced_script() -> BoxedStrategy<Script> {
    prop_oneof![Just(lockkeeper::backend::Kind::Mutex), Just(lockkeeper::backend::Kind::RwLock)]
        .prop_flat_map(|kind| script_of_claims(claims_on(kind)))
        .boxed()
}

#[test]
fn tokens_of_later_grants_are_larger() {
    prove(fenced_script(), |script| tokens_grow::<Record>(script));
}
