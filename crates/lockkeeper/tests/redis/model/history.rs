//! Random histories of requests on one name, written relative to the moment at which they are sent.
//!
//! Leases, places and memories last some seconds and a half; time passes in whole seconds. So nothing ever ends within half a second of
//! a request, and the few milliseconds that really pass decide nothing.

use std::time::Duration;

use lockkeeper::backend::{Claim, CountOp, CounterOp, Kind, LatchOp, SemaphoreOp};
use lockkeeper::owner::{ClientId, WireOwner};
use proptest::bool::weighted;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::Just;
use proptest::prop_oneof;
use proptest::strategy::{BoxedStrategy, Strategy};

const STEPS: usize = 20;

/// How many owners of each kind meet at the name.
pub(crate) const OWNERS: u64 = 6;

pub(crate) type History = Vec<Move>;

/// One request, so many seconds after the one before.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    pub(crate) gap: u64,
    pub(crate) act: Act,
}

#[derive(Clone, Debug)]
pub(crate) enum Act {
    Acquire(Ask),
    Release {
        who: WireOwner,
        claim: Claim,
        then: Option<Ask>,
    },
    Renew {
        who: WireOwner,
        claim: Claim,
        lease: Option<Duration>,
    },
    Count {
        op: CountOp,
        remember: Duration,
        limit: Limit,
    },
    /// The counting request of so many before this one, sent again.
    CountAgain(usize),
    Force,
}

#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) who: WireOwner,
    pub(crate) claim: Claim,
    pub(crate) lease: Duration,
    pub(crate) limit: Limit,
    /// How many seconds it has been waiting.
    pub(crate) age: u64,
    pub(crate) beside: Option<WireOwner>,
    pub(crate) place: Option<Duration>,
    /// The smallest token asked for, above the last one given.
    /// Of permits: the size was checked before.
    pub(crate) any_size: bool,
}

/// Until when a request is in time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    Never,
    In(u64),
    /// So many seconds ago.
    Past(u64),
}

/// The n-th owner of a kind. An owner is new for each acquisition, so none ever asks for two kinds.
pub(crate) fn owner(kind: Kind, n: u64) -> WireOwner {
    // Both halves of the client's id count.
    WireOwner::new(ClientId::from_bits(u128::from(n % 2) << 100 | 7), 100 * (1 + kind as u64) + n)
}

/// The n-th counting request; apart from all owners.
pub(crate) fn count_id(n: u64) -> WireOwner {
    WireOwner::new(ClientId::from_bits(9), n)
}

fn lasting(most: u64) -> impl Strategy<Value = Duration> {
    (1..=most).prop_map(|seconds| Duration::from_millis(1_000 * seconds + 500))
}

fn limits() -> impl Strategy<Value = Limit> {
    prop_oneof![8 => Just(Limit::Never), 4 => (2..=20_u64).prop_map(Limit::In), 1 => (1..=5_u64).prop_map(Limit::Past)]
}

/// An owner and what it claims, always the same of one owner: repetitions are the same request. Only one that writes may also read.
fn claims_on(kind: Kind) -> BoxedStrategy<(u64, Claim)> {
    match kind {
        Kind::Mutex => (0..OWNERS).prop_map(|n| (n, if n < 2 { Claim::Mutex } else { Claim::Fair })).boxed(),
        Kind::RwLock => (0..4_u64, prop_oneof![3 => Just(Claim::Read), 2 => Just(Claim::Write)]).boxed(),
        // Mostly possible; 0 of 3 and 4 of 3 are not, and must be refused without a trace.
        _ => (prop_oneof![12 => 0..4_u64, 1 => 4..OWNERS], prop_oneof![12 => Just(3_u32), 1 => Just(2), 1 => Just(5)])
            .prop_map(|(n, of)| (n, Claim::Permits { take: [1, 1, 2, 3, 0, 4][n as usize], of }))
            .boxed(),
    }
}

/// Fair claims only, so that the queue is long.
fn fair_claims() -> BoxedStrategy<(u64, Claim)> {
    (2..OWNERS).prop_map(|n| (n, Claim::Fair)).boxed()
}

fn asks(kind: Kind, claims: BoxedStrategy<(u64, Claim)>) -> impl Strategy<Value = Ask> {
    let beside = option::weighted(0.3, 0..4_u64);
    (claims, lasting(20), limits(), 0..=8_u64, beside, option::weighted(0.7, lasting(16)), weighted(0.3)).prop_map(
        move |((n, claim), lease, limit, age, beside, place, any_size)| Ask {
            who: owner(kind, n),
            claim,
            lease,
            limit,
            age,
            beside: beside.filter(|_| claim == Claim::Read).map(|n| owner(kind, n)),
            place,
            any_size,
        },
    )
}

fn releases(kind: Kind, claims: &BoxedStrategy<(u64, Claim)>) -> impl Strategy<Value = Act> + use<> {
    // Now and then one that is not allowed: itself, or something else than this mutex.
    let then = option::weighted(0.4, asks(kind, claims.clone()));
    (claims.clone(), then).prop_map(move |((n, claim), then)| {
        let both = |ask: &Ask| claim == Claim::Mutex && ask.claim == Claim::Mutex || claim.kind() != Kind::Mutex && ask.age == 0;
        Act::Release { who: owner(kind, n), claim, then: then.filter(both) }
    })
}

fn holding(kind: Kind, claims: &BoxedStrategy<(u64, Claim)>) -> BoxedStrategy<Act> {
    let renewals = (claims.clone(), option::weighted(0.8, lasting(20)));
    prop_oneof![
        12 => asks(kind, claims.clone()).prop_map(Act::Acquire),
        6 => releases(kind, claims),
        3 => renewals.prop_map(move |((n, claim), lease)| Act::Renew { who: owner(kind, n), claim, lease }),
        1 => Just(Act::Force),
    ]
    .boxed()
}

fn ops_on(kind: Kind) -> BoxedStrategy<CountOp> {
    match kind {
        Kind::CountingSemaphore => prop_oneof![
            2 => (0..=3_u32).prop_map(CounterOp::Init),
            4 => (0..=3_u32).prop_map(CounterOp::Take),
            3 => prop_oneof![20 => 0..=3_u32, 1 => Just(u32::MAX)].prop_map(CounterOp::Give),
            3 => (-3..=3_i32).prop_map(CounterOp::Add),
            1 => Just(CounterOp::Drain),
            2 => Just(CounterOp::Read),
            1 => Just(CounterOp::Remove),
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
            (0..=4_u32).prop_map(SemaphoreOp::Resize),
            Just(SemaphoreOp::Read),
            Just(SemaphoreOp::Remove)
        ]
        .prop_map(CountOp::Semaphore)
        .boxed(),
    }
}

fn counting(kind: Kind) -> BoxedStrategy<Act> {
    prop_oneof![
        3 => (ops_on(kind), lasting(20), limits()).prop_map(|(op, remember, limit)| Act::Count { op, remember, limit }),
        1 => (0..4_usize).prop_map(Act::CountAgain),
    ]
    .boxed()
}

fn acts_on(kind: Kind) -> BoxedStrategy<Act> {
    match kind {
        Kind::Mutex | Kind::RwLock => holding(kind, &claims_on(kind)),
        Kind::Semaphore => prop_oneof![5 => holding(kind, &claims_on(kind)), 1 => counting(kind)].boxed(),
        _ => prop_oneof![20 => counting(kind), 1 => Just(Act::Force)].boxed(),
    }
}

fn history(acts: impl Strategy<Value = Act> + 'static) -> BoxedStrategy<History> {
    let gap = prop_oneof![5 => Just(0_u64), 3 => 1..=4_u64, 1 => 5..=12_u64];
    vec((gap, acts).prop_map(|(gap, act)| Move { gap, act }), 1..=STEPS).boxed()
}

/// Histories of one kind.
pub(crate) fn on(kind: Kind) -> BoxedStrategy<History> {
    history(acts_on(kind))
}

/// Histories of a mutex that all take in order.
pub(crate) fn fair() -> BoxedStrategy<History> {
    history(holding(Kind::Mutex, &fair_claims()))
}

/// Histories in which all kinds want the name, two of them mostly.
pub(crate) fn mixed() -> BoxedStrategy<History> {
    (kinds(), kinds())
        .prop_flat_map(|(one, other)| {
            history(prop_oneof![4 => acts_on(one), 3 => acts_on(other), 1 => kinds().prop_flat_map(acts_on)])
        })
        .boxed()
}

fn kinds() -> BoxedStrategy<Kind> {
    prop_oneof![Just(Kind::Mutex), Just(Kind::RwLock), Just(Kind::Semaphore), Just(Kind::CountingSemaphore), Just(Kind::Latch)]
        .boxed()
}
