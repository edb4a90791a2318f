//! Permits: never more out than there are, and none ever lost.

use lockkeeper::ErrorKind;
use lockkeeper::backend::{Attempt, Claim, CountOp, CountOutcome, Counted, Renewed, SemaphoreOp};
use lockkeeper::model::{Outcome, Record, Request};
use proptest::collection::vec;
use proptest::prelude::Just;
use proptest::prop_oneof;
use proptest::strategy::{BoxedStrategy, Strategy};

use super::common::{Bench, OWNERS, Subject, Verdict, count, count_id, ensure, name, prove};
use super::script::{Act, Ask};

pub(crate) const NOT_TOO_MANY: &str = "never more permits are out than there are";
pub(crate) const NONE_LOST: &str = "a permit that nobody holds is free";
const SIZE: &str = "the size is what it was set to";

#[derive(Clone, Debug)]
pub(crate) enum Deed {
    /// `wrong_size`: believes in one permit more than there are.
    Take {
        who: u64,
        take: u32,
        lease: u64,
        wrong_size: bool,
    },
    Release {
        who: u64,
    },
    Renew {
        who: u64,
        lease: Option<u64>,
    },
    Resize(SemaphoreOp),
    Force,
}

pub(crate) fn deeds() -> BoxedStrategy<Vec<(u64, Deed)>> {
    let wrong_size = prop_oneof![9 => Just(false), 1 => Just(true)];
    let lease = prop_oneof![1 => Just(None), 4 => (1..=24_u64).prop_map(Some)];
    let deed = prop_oneof![
        10 => (0..OWNERS, 0..=4_u32, 1..=24_u64, wrong_size)
            .prop_map(|(who, take, lease, wrong_size)| Deed::Take { who, take, lease, wrong_size }),
        4 => (0..OWNERS).prop_map(|who| Deed::Release { who }),
        3 => (0..OWNERS, lease).prop_map(|(who, lease)| Deed::Renew { who, lease }),
        1 => (0..=6_u32).prop_map(|size| Deed::Resize(SemaphoreOp::Init(size))),
        2 => (0..=6_u32).prop_map(|size| Deed::Resize(SemaphoreOp::Resize(size))),
        1 => Just(Deed::Resize(SemaphoreOp::Read)),
        1 => Just(Deed::Resize(SemaphoreOp::Remove)),
        1 => Just(Deed::Force),
    ];
    vec((0..=6_u64, deed), 1..=30).boxed()
}

struct Out {
    who: u64,
    permits: u32,
    until: u64,
}

/// Who has how many, kept from the answers alone.
#[derive(Default)]
struct Account {
    size: Option<u32>,
    out: Vec<Out>,
}

impl Account {
    fn of(&mut self, who: u64) -> Option<&mut Out> {
        self.out.iter_mut().find(|out| out.who == who)
    }

    fn free(&self) -> i64 {
        let out: i64 = self.out.iter().map(|out| i64::from(out.permits)).sum();
        i64::from(self.size.unwrap_or(0)) - out
    }

    fn take<S: Subject>(&mut self, bench: &mut Bench<S>, deed: &Deed) -> Verdict {
        let &Deed::Take { who, take, lease, wrong_size } = deed else { unreachable!("called for takes") };
        let of = self.size.unwrap_or(3) + u32::from(wrong_size);
        let refused = take == 0 || take > of || self.size.is_some_and(|size| size != of);
        let ask = Ask { who, claim: Claim::Permits { take, of }, lease, place: None, age: 0 };
        let until = bench.at() + lease;
        let answer = match bench.send(&Act::Acquire(ask).request(bench.at(), 0)) {
            Ok(step) => step.answer,
            Err(error) => return ensure(refused && error.kind() == ErrorKind::InvalidArgument, SIZE, || error.to_string()),
        };
        ensure(!refused, SIZE, || format!("{take} of {of} were asked for, there are {:?}", self.size))?;
        self.size = Some(of);
        match answer {
            Outcome::Acquire(Attempt::Granted(_)) => match self.of(who) {
                Some(out) => out.until = out.until.max(until),
                None => {
                    ensure(self.free() >= i64::from(take), NOT_TOO_MANY, || format!("{take} of {} free", self.free()))?;
                    self.out.push(Out { who, permits: take, until });
                }
            },
            other => ensure(self.of(who).is_none() && self.free() < i64::from(take), NONE_LOST, || {
                format!("{take} of {} free permits: {other:?}", self.free())
            })?,
        }
        Ok(())
    }

    fn resize<S: Subject>(&mut self, bench: &mut Bench<S>, op: SemaphoreOp, turn: usize) -> Verdict {
        let expected = match op {
            SemaphoreOp::Init(size) if self.size.is_none() => Some(Some(size)),
            SemaphoreOp::Resize(size) => Some(Some(size)),
            SemaphoreOp::Remove if self.out.is_empty() && self.size.is_some() => Some(None),
            SemaphoreOp::Init(_) | SemaphoreOp::Read | SemaphoreOp::Remove => None,
            other => unreachable!("{other:?}"),
        };
        let (mut done, read) = (expected.is_some(), op == SemaphoreOp::Read);
        self.size = expected.unwrap_or(self.size);
        let answer = bench.send(&count(count_id(turn), CountOp::Semaphore(op), 1)).map_err(|error| error.to_string())?.answer;
        let mut value = i64::from(self.size.unwrap_or(0));
        if read {
            (done, value) = (self.size.is_some(), self.free());
        }
        ensure(answer == Outcome::Count(CountOutcome::Counted(Counted::new(done, value))), SIZE, || {
            format!("{op:?} gave {answer:?}")
        })
    }
}

pub(crate) fn keeps_its_permits<S: Subject>(deeds: &[(u64, Deed)]) -> Verdict {
    let (mut bench, mut account) = (Bench::<S>::default(), Account::default());
    let claim = Claim::Permits { take: 1, of: 3 };
    for (turn, (gap, deed)) in deeds.iter().enumerate() {
        bench.pass(*gap, 0);
        let at = bench.at();
        account.out.retain(|out| out.until > at);
        match deed {
            Deed::Take { .. } => account.take(&mut bench, deed)?,
            Deed::Resize(op) => account.resize(&mut bench, *op, turn)?,
            Deed::Release { who } => {
                let act = Act::Release { who: *who, claim, then: None };
                let answer = bench.send(&act.request(at, 0)).map_err(|error| error.to_string())?.answer;
                let held = account.of(*who).is_some();
                ensure(matches!(answer, Outcome::Release(released) if released.held == held), NONE_LOST, || {
                    format!("{answer:?}")
                })?;
                account.out.retain(|out| out.who != *who);
            }
            Deed::Renew { who, lease } => {
                let act = Act::Renew { who: *who, claim, lease: *lease };
                let answer = bench.send(&act.request(at, 0)).map_err(|error| error.to_string())?.answer;
                let expected =
                    if account.of(*who).is_some() { Renewed::kept(lease.map(super::common::nanos)) } else { Renewed::Gone };
                ensure(answer == Outcome::Renew(expected), NONE_LOST, || format!("{answer:?}"))?;
                if let (Some(out), Some(lease)) = (account.of(*who), lease) {
                    out.until = out.until.max(at + lease);
                }
            }
            Deed::Force => {
                bench.send(&Request::Force).map_err(|error| error.to_string())?;
                account.out.clear();
            }
        }
        let seen = bench.subject.record().snapshot(&name(), bench.now().at);
        let (value, total) = seen.as_ref().map_or((None, None), |seen| (seen.value, seen.total));
        ensure(total == account.size, SIZE, || format!("{total:?}, but {:?} was set", account.size))?;
        ensure(value == account.size.map(|_| account.free()), NONE_LOST, || {
            format!("{value:?} are free, {} should be", account.free())
        })?;
    }
    Ok(())
}

#[test]
fn permits_are_never_exceeded_and_never_lost() {
    prove(deeds(), |deeds| keeps_its_permits::<Record>(deeds));
}
