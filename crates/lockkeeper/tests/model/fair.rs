//! First come, first served: fair grants follow the order of arrival among those who still wait.

use lockkeeper::backend::{Acquire, Attempt, Claim};
use lockkeeper::model::{Outcome, Record, Request};
use lockkeeper::owner::WireOwner;
use proptest::prelude::Just;
use proptest::strategy::{BoxedStrategy, Strategy};

use super::common::{Bench, Subject, Verdict, ensure, prove};
use super::ledger::{Ledger, nanos_of};
use super::script::{Move, Script, script_of_claims};

pub(crate) const IN_ORDER: &str = "grants follow the order of arrival";
const NO_IDLING: &str = "a free lock is granted to the first that asks in its turn";

/// Those who were told to wait, in the order in which they first were.
#[derive(Default)]
struct Line {
    waiting: Vec<(WireOwner, u64)>,
}

impl Line {
    fn judge(&mut self, asked: &Acquire, attempt: &Attempt, ledger: &Ledger, at: u64) -> Verdict {
        if ledger.holds(asked.owner, asked.claim) {
            // Asked again for what it holds; nobody's turn is touched.
            return Ok(());
        }
        let ahead = self.waiting.iter().take_while(|(owner, _)| *owner != asked.owner).count();
        match attempt {
            Attempt::Granted(_) => {
                ensure(ahead == 0, IN_ORDER, || format!("{} is granted, {:?} wait", asked.owner, self.waiting))?;
                self.waiting.retain(|(owner, _)| *owner != asked.owner);
            }
            Attempt::Busy(busy) => {
                ensure(!ledger.is_free() || ahead > 0, NO_IDLING, || format!("{} is refused", asked.owner))?;
                if let Some(place) = asked.place {
                    let until = at + nanos_of(place);
                    match self.waiting.iter_mut().find(|(owner, _)| *owner == asked.owner) {
                        Some((_, end)) => *end = until.max(*end),
                        None => self.waiting.push((asked.owner, until)),
                    }
                }
                let stands = self.waiting.iter().any(|(owner, _)| *owner == asked.owner);
                let told = busy.ahead.map(|ahead| ahead as usize);
                ensure(told == stands.then_some(ahead), IN_ORDER, || format!("{ahead} are ahead, {told:?} was told"))?;
            }
            Attempt::Late => {}
            other => unreachable!("{other:?}"),
        }
        Ok(())
    }
}

pub(crate) fn serves_in_order<S: Subject>(script: &[Move]) -> Verdict {
    let (mut bench, mut ledger, mut line) = (Bench::<S>::default(), Ledger::default(), Line::default());
    for (turn, Move { gap, wall, act }) in script.iter().enumerate() {
        bench.pass(*gap, *wall);
        let at = bench.at();
        ledger.expire(at);
        line.waiting.retain(|(_, until)| *until > at);
        let request = act.request(at, turn);
        let answer = bench.send(&request).map_err(|error| error.to_string())?.answer;
        match (&request, &answer) {
            (Request::Acquire(asked), Outcome::Acquire(attempt)) => line.judge(asked, attempt, &ledger, at)?,
            (Request::Release(asked), Outcome::Release(released)) => {
                line.waiting.retain(|(owner, _)| *owner != asked.owner);
                if let (Some(then), Some(next)) = (&asked.then, &released.next) {
                    let mut between = ledger.clone();
                    between.give_up(asked.owner, asked.claim);
                    line.judge(then, next, &between, at)?;
                }
            }
            _ => {}
        }
        ledger.enter(&request, &answer, at)?;
    }
    Ok(())
}

/// Only fair claims: a plain one may overtake, and says so.
pub(crate) fn fair_script() -> BoxedStrategy<Script> {
    script_of_claims(Just(Claim::Fair).boxed())
}

#[test]
fn fair_grants_follow_the_order_of_arrival() {
    prove(fair_script(), |script| serves_in_order::<Record>(script));
}
