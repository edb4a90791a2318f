//! A counting semaphore conserves: what was put in and not taken out is there, however often a request is sent.

use lockkeeper::backend::{CountOp, CountOutcome, Counted, CounterOp};
use lockkeeper::model::{Outcome, Record, Request};
use proptest::collection::vec;
use proptest::prelude::Just;
use proptest::prop_oneof;
use proptest::strategy::{BoxedStrategy, Strategy};

use super::common::{Bench, Subject, Verdict, count, count_id, ensure, prove};

pub(crate) const CONSERVED: &str = "what was put in and not taken out is there";
pub(crate) const ALL_OR_NONE: &str = "a request does all that it says or nothing";
pub(crate) const ONCE: &str = "a repetition gets the first answer and changes nothing";

#[derive(Clone, Debug)]
pub(crate) enum Deed<Op> {
    New {
        op: Op,
        remember: u64,
    },
    /// The n-th request before this one, sent again.
    Again(usize),
}

/// Histories of counting requests, a third of them repetitions.
pub(crate) fn deeds<Op: Clone + std::fmt::Debug + 'static>(ops: BoxedStrategy<Op>) -> BoxedStrategy<Vec<(u64, Deed<Op>)>> {
    let deed = prop_oneof![
        2 => (ops, 1..=40_u64).prop_map(|(op, remember)| Deed::New { op, remember }),
        1 => (0..5_usize).prop_map(Deed::Again),
    ];
    vec((0..=6_u64, deed), 1..=30).boxed()
}

/// A request that was sent, what it was answered, and until when that is remembered.
struct Sent<Op> {
    op: Op,
    remember: u64,
    request: Request,
    answered: Option<(Outcome, u64)>,
}

/// Replays the history. `judge` is asked once for every request that is new, or new again because it was forgotten.
pub(crate) fn counts_once<S: Subject, Op: Copy>(
    deeds: &[(u64, Deed<Op>)],
    wrap: fn(Op) -> CountOp,
    mut judge: impl FnMut(Op, Counted, &mut Bench<S>) -> Verdict,
) -> Verdict {
    let mut bench = Bench::<S>::default();
    let mut sent: Vec<Sent<Op>> = Vec::new();
    for (turn, (gap, deed)) in deeds.iter().enumerate() {
        bench.pass(*gap, 0);
        let at = bench.at();
        let back = match deed {
            Deed::New { op, remember } => {
                let request = count(count_id(turn), wrap(*op), *remember);
                sent.push(Sent { op: *op, remember: *remember, request, answered: None });
                0
            }
            Deed::Again(back) => *back,
        };
        let Some(this) = sent.iter_mut().rev().nth(back) else { continue };
        let untouched = bench.untouched();
        let answer = bench.send(&this.request).map_err(|error| error.to_string())?.answer;
        match &this.answered {
            Some((first, until)) if *until > at && !wrap(this.op).is_read() => {
                ensure(answer == *first, ONCE, || format!("{first:?}, then {answer:?} to {:?}", this.request))?;
                ensure(*bench.subject.record() == untouched, ONCE, || format!("{:?} changed something", this.request))?;
            }
            _ => {
                let Outcome::Count(CountOutcome::Counted(counted)) = answer else {
                    return Err(format!("not counted: {answer:?}"));
                };
                judge(this.op, counted, &mut bench)?;
                this.answered = Some((answer, at + this.remember));
            }
        }
    }
    Ok(())
}

pub(crate) fn ops() -> BoxedStrategy<CounterOp> {
    prop_oneof![
        2 => (0..=4_u32).prop_map(CounterOp::Init),
        4 => (0..=4_u32).prop_map(CounterOp::Take),
        3 => (0..=4_u32).prop_map(CounterOp::Give),
        2 => (-4..=4_i32).prop_map(CounterOp::Add),
        1 => Just(CounterOp::Drain),
        1 => Just(CounterOp::Read),
        1 => Just(CounterOp::Remove),
    ]
    .boxed()
}

pub(crate) fn conserves<S: Subject>(deeds: &[(u64, Deed<CounterOp>)]) -> Verdict {
    // All that went in and all that went out since it was last removed; and whether it is there.
    let (mut put_in, mut taken_out, mut there) = (0_i64, 0_i64, false);
    let mut looks = 0;
    counts_once::<S, _>(deeds, CountOp::Counter, |op, counted, bench| {
        let before = put_in - taken_out;
        let done = match op {
            CounterOp::Init(permits) => {
                put_in += if there { 0 } else { i64::from(permits) };
                !std::mem::replace(&mut there, true)
            }
            CounterOp::Take(permits) => {
                let enough = before >= i64::from(permits);
                taken_out += if enough { i64::from(permits) } else { 0 };
                enough
            }
            CounterOp::Give(permits) => {
                put_in += i64::from(permits);
                there = true;
                true
            }
            CounterOp::Add(permits) => {
                put_in += i64::from(permits);
                there = true;
                true
            }
            CounterOp::Drain => {
                taken_out += before;
                before != 0
            }
            CounterOp::Read => false,
            CounterOp::Remove => {
                (put_in, taken_out) = (0, 0);
                std::mem::take(&mut there)
            }
            other => unreachable!("{other:?}"),
        };
        ensure(counted.done == done, ALL_OR_NONE, || format!("{op:?} of {before} gave {counted:?}"))?;
        let value = put_in - taken_out;
        let told = if op == CounterOp::Drain { before } else { value };
        ensure(counted.value == told, CONSERVED, || format!("{op:?} of {before} gave {counted:?}"))?;
        // Looking is not part of the history and must not become one.
        looks += 1;
        let look = count(count_id(1_000 + looks), CountOp::Counter(CounterOp::Read), 1);
        let seen = bench.send(&look).map_err(|error| error.to_string())?.answer;
        let expected = Outcome::Count(CountOutcome::Counted(Counted::new(false, value)));
        ensure(seen == expected, CONSERVED, || format!("{value} should be there, seen {seen:?}"))
    })
}

#[test]
fn permits_are_conserved_and_taken_all_or_none() {
    prove(deeds(ops()), |deeds| conserves::<Record>(deeds));
}
