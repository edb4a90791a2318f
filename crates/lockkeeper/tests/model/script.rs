//! Random histories: requests by a few owners, written relative to the moment at which they are sent.

use lockkeeper::backend::{Acquire, Claim, CountOp, CounterOp, Kind, LatchOp, Release, Renew, SemaphoreOp};
use lockkeeper::model::Request;
use lockkeeper::runtime::Instant;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::Just;
use proptest::prop_oneof;
use proptest::strategy::{BoxedStrategy, Strategy};

use super::common::{OWNERS, count, count_id, name, nanos, owner};

/// Steps of a history: enough for several tenures with waiters, few enough to read when one fails.
const STEPS: usize = 30;

pub(crate) type Script = Vec<Move>;

/// One request, some time after the one before.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    pub(crate) gap: u64,
    pub(crate) wall: u64,
    pub(crate) act: Act,
}

#[derive(Clone, Debug)]
pub(crate) enum Act {
    Acquire(Ask),
    Release { who: u64, claim: Claim, then: Option<Ask> },
    Renew { who: u64, claim: Claim, lease: Option<u64> },
    Count { op: CountOp, remember: u64 },
    Force,
}

#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) who: u64,
    pub(crate) claim: Claim,
    pub(crate) lease: u64,
    pub(crate) place: Option<u64>,
    /// How long it has been waiting.
    pub(crate) age: u64,
}

impl Ask {
    pub(crate) fn at(&self, at: u64) -> Acquire {
        Acquire::new(name(), self.claim, owner(self.who), nanos(self.lease))
            .with_times(Instant::from_nanos(at - self.age), Instant::NEVER)
            .with_place(self.place.map(nanos))
    }
}

impl Act {
    /// The request as sent at `at`; `turn` tells counting requests apart.
    pub(crate) fn request(&self, at: u64, turn: usize) -> Request {
        match self {
            Self::Acquire(ask) => Request::Acquire(ask.at(at)),
            Self::Release { who, claim, then } => {
                Request::Release(Release::new(name(), *claim, owner(*who)).with_then(then.as_ref().map(|ask| ask.at(at))))
            }
            Self::Renew { who, claim, lease } => Request::Renew(Renew::new(name(), *claim, owner(*who), lease.map(nanos))),
            Self::Count { op, remember } => count(count_id(turn), *op, *remember),
            Self::Force => Request::Force,
        }
    }
}

pub(crate) fn claims_on(kind: Kind) -> BoxedStrategy<Claim> {
    match kind {
        Kind::Mutex => prop_oneof![Just(Claim::Mutex), Just(Claim::Fair)].boxed(),
        Kind::RwLock => prop_oneof![2 => Just(Claim::Read), 1 => Just(Claim::Write)].boxed(),
        // Mostly possible; 0 of 3 and 4 of 3 are not, and must be refused without a trace.
        _ => (0..=4_u32, prop_oneof![8 => Just(3_u32), 1 => Just(5)]).prop_map(|(take, of)| Claim::Permits { take, of }).boxed(),
    }
}

fn ops_on(kind: Kind) -> BoxedStrategy<CountOp> {
    match kind {
        Kind::CountingSemaphore => prop_oneof![
            (0..=3_u32).prop_map(CounterOp::Init),
            (0..=3_u32).prop_map(CounterOp::Take),
            (0..=3_u32).prop_map(CounterOp::Give),
            (-3..=3_i32).prop_map(CounterOp::Add),
            Just(CounterOp::Drain),
            Just(CounterOp::Read),
            Just(CounterOp::Remove),
        ]
        .prop_map(CountOp::Counter)
        .boxed(),
        Kind::Latch => prop_oneof![
            2 => (0..=3_u32).prop_map(LatchOp::Init),
            4 => Just(LatchOp::Down),
            1 => Just(LatchOp::Read),
            1 => Just(LatchOp::Remove),
        ]
        .prop_map(CountOp::Latch)
        .boxed(),
        _ => prop_oneof![
            (0..=4_u32).prop_map(SemaphoreOp::Init),
            (2..=4_u32).prop_map(SemaphoreOp::Resize),
            Just(SemaphoreOp::Read),
            Just(SemaphoreOp::Remove)
        ]
        .prop_map(CountOp::Semaphore)
        .boxed(),
    }
}

pub(crate) fn asks(claims: BoxedStrategy<Claim>) -> impl Strategy<Value = Ask> {
    (0..OWNERS, claims, 1..=24_u64, option::weighted(0.7, 1..=16_u64), 0..=10_u64)
        .prop_map(|(who, claim, lease, place, age)| Ask { who, claim, lease, place, age })
}

/// An owner is new for each acquisition, so nobody succeeds itself: such a successor becomes a newcomer.
fn release(who: u64, claim: Claim, then: Option<Ask>) -> Act {
    let then = then.map(|ask| if ask.who == who { Ask { who: OWNERS, ..ask } } else { ask });
    Act::Release { who, claim, then }
}

fn holding(claims: &BoxedStrategy<Claim>) -> BoxedStrategy<Act> {
    let then = option::weighted(0.2, asks(claims.clone()));
    prop_oneof![
        12 => asks(claims.clone()).prop_map(Act::Acquire),
        6 => (0..OWNERS, claims.clone(), then).prop_map(|(who, claim, then)| release(who, claim, then)),
        3 => (0..OWNERS, claims.clone(), option::weighted(0.8, 1..=24_u64)).prop_map(|(who, claim, lease)| Act::Renew { who, claim, lease }),
        1 => Just(Act::Force),
    ]
    .boxed()
}

fn counting(kind: Kind) -> BoxedStrategy<Act> {
    (ops_on(kind), 1..=24_u64).prop_map(|(op, remember)| Act::Count { op, remember }).boxed()
}

fn acts_on(kind: Kind) -> BoxedStrategy<Act> {
    match kind {
        Kind::Mutex | Kind::RwLock => holding(&claims_on(kind)),
        Kind::Semaphore => prop_oneof![5 => holding(&claims_on(kind)), 1 => counting(kind)].boxed(),
        _ => counting(kind),
    }
}

fn history(acts: impl Strategy<Value = Act> + 'static) -> BoxedStrategy<Script> {
    // Half of the requests follow at once: what happens in the same instant is where mistakes hide.
    let gap = prop_oneof![2 => Just(0_u64), 2 => 1..=6_u64, 1 => 7..=30_u64];
    vec((gap, 0..120_u64, acts).prop_map(|(gap, wall, act)| Move { gap, wall, act }), 1..=STEPS).boxed()
}

/// Histories with these claims only.
pub(crate) fn script_of_claims(claims: BoxedStrategy<Claim>) -> BoxedStrategy<Script> {
    history(holding(&claims))
}

/// Histories of one kind.
pub(crate) fn script_on(kind: Kind) -> BoxedStrategy<Script> {
    history(acts_on(kind))
}

pub(crate) fn kinds() -> BoxedStrategy<Kind> {
    prop_oneof![Just(Kind::Mutex), Just(Kind::RwLock), Just(Kind::Semaphore), Just(Kind::CountingSemaphore), Just(Kind::Latch)]
        .boxed()
}

/// Histories of one kind, and which it is.
pub(crate) fn script_and_kind() -> BoxedStrategy<(Kind, Script)> {
    kinds().prop_flat_map(|kind| script_on(kind).prop_map(move |script| (kind, script))).boxed()
}

/// Histories of one kind, with now and then a request of another.
pub(crate) fn any_script() -> BoxedStrategy<Script> {
    kinds().prop_flat_map(|kind| history(prop_oneof![15 => acts_on(kind), 1 => kinds().prop_flat_map(acts_on)])).boxed()
}
