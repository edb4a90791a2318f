//! A latch counts down to zero, never below, and opens exactly there.

use lockkeeper::backend::{CountOp, LatchOp};
use lockkeeper::model::Record;
use proptest::prelude::Just;
use proptest::prop_oneof;
use proptest::strategy::{BoxedStrategy, Strategy};

use super::common::{Subject, Verdict, ensure, name, prove};
use super::counter::{Deed, counts_once, deeds};

const COUNTS_DOWN: &str = "each event counts once, down to zero and not below";
const OPEN_AT_ZERO: &str = "it is open, and gone, exactly at zero";

fn ops() -> BoxedStrategy<LatchOp> {
    prop_oneof![
        3 => (0..=4_u32).prop_map(LatchOp::Init),
        6 => Just(LatchOp::Down),
        1 => Just(LatchOp::Read),
        1 => Just(LatchOp::Remove),
    ]
    .boxed()
}

fn counts_down<S: Subject>(deeds: &[(u64, Deed<LatchOp>)]) -> Verdict {
    // Events that are still to come, one entry each.
    let mut to_come: Vec<()> = Vec::new();
    counts_once::<S, _>(deeds, CountOp::Latch, |op, counted, bench| {
        let done = match op {
            LatchOp::Init(count) if to_come.is_empty() => {
                to_come = vec![(); count as usize];
                count > 0
            }
            LatchOp::Init(_) | LatchOp::Read => false,
            LatchOp::Down => to_come.pop().is_some(),
            LatchOp::Remove => !std::mem::take(&mut to_come).is_empty(),
            other => unreachable!("{other:?}"),
        };
        let left = to_come.len();
        ensure(counted.done == done && usize::try_from(counted.value) == Ok(left), COUNTS_DOWN, || {
            format!("{op:?} gave {counted:?}, {left} are to come")
        })?;
        let seen = bench.subject.record().snapshot(&name(), bench.now().at);
        ensure(seen.is_none() == to_come.is_empty(), OPEN_AT_ZERO, || format!("{left} are to come, seen {seen:?}"))
    })
}

#[test]
fn a_latch_opens_exactly_at_zero_and_closes_only_when_open() {
    prove(deeds(ops()), |deeds| counts_down::<Record>(deeds));
}
