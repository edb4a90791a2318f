//! What every property needs: who asks, a clock and tokens as a store has them, and how a property is proved or refuted.

use std::fmt::Debug;
use std::sync::LazyLock;
use std::time::Duration;

use lockkeeper::backend::{Attempt, Count, CountOp};
use lockkeeper::model::{self, Now, Outcome, Record, Request, Step};
use lockkeeper::name::Name;
use lockkeeper::owner::{ClientId, WireOwner};
use lockkeeper::runtime::Instant;
use lockkeeper::{ErrorKind, Result};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, FileFailurePersistence, RngAlgorithm, TestCaseError, TestRng, TestRunner};

/// What a checker says: the law that was broken, in words.
pub(crate) type Verdict = std::result::Result<(), String>;

/// How many owners meet at the name. Four are enough for holder, head, second and newcomer.
pub(crate) const OWNERS: u64 = 4;

/// What is put to the test: the model, or in the negative controls a broken variant of it.
pub(crate) trait Subject: Default + Clone {
    fn step(&mut self, request: &Request, now: Now) -> Result<Step<Outcome>>;
    fn record(&self) -> &Record;
}

impl Subject for Record {
    fn step(&mut self, request: &Request, now: Now) -> Result<Step<Outcome>> {
        model::step(self, request, now)
    }

    fn record(&self) -> &Record {
        self
    }
}

pub(crate) fn name() -> Name {
    static NAME: LazyLock<Name> = LazyLock::new(|| Name::new("orders:42").expect("a valid name"));
    NAME.clone()
}

/// Two clients, so that owners differ sometimes in the client, sometimes in the number.
pub(crate) fn owner(number: u64) -> WireOwner {
    WireOwner::new(ClientId::from_bits(u128::from(number % 2)), number)
}

/// The n-th counting request; apart from all owners.
pub(crate) fn count_id(n: usize) -> WireOwner {
    WireOwner::new(ClientId::from_bits(9), n as u64)
}

pub(crate) fn nanos(count: u64) -> Duration {
    Duration::from_nanos(count)
}

pub(crate) fn count(id: WireOwner, op: CountOp, remember: u64) -> Request {
    Request::Count(Count::new(name(), id, op, nanos(remember)))
}

/// A store of one name: it keeps the time and the last token, as the contract asks of stores.
#[derive(Clone, Default)]
pub(crate) struct Bench<S> {
    pub(crate) subject: S,
    passed: u64,
    wall: u64,
    last_token: u64,
}

impl<S: Subject> Bench<S> {
    /// Lets time pass. The wall clock, from which tokens come, may also go back.
    pub(crate) fn pass(&mut self, gap: u64, wall: u64) {
        self.passed += gap;
        self.wall = wall;
    }

    /// Nanoseconds on the store's clock; not from zero, so that "some time ago" exists.
    pub(crate) fn at(&self) -> u64 {
        1_000 + self.passed
    }

    pub(crate) fn now(&self) -> Now {
        Now { at: Instant::from_nanos(self.at()), token: self.wall.max(self.last_token + 1) }
    }

    pub(crate) fn send(&mut self, request: &Request) -> Result<Step<Outcome>> {
        let answer = self.subject.step(request, self.now());
        if let Ok(step) = &answer
            && let Some(token) = granted_token(&step.answer)
        {
            self.last_token = self.last_token.max(token);
        }
        answer
    }

    /// What lies there if nothing happens but that time has passed.
    pub(crate) fn untouched(&self) -> Record {
        let mut record = self.subject.record().clone();
        record.expire(self.now().at);
        record
    }
}

pub(crate) fn attempt_in(outcome: &Outcome) -> Option<Attempt> {
    match outcome {
        Outcome::Acquire(attempt) => Some(*attempt),
        Outcome::Release(released) => released.next,
        _ => None,
    }
}

pub(crate) fn granted_token(outcome: &Outcome) -> Option<u64> {
    match attempt_in(outcome) {
        Some(Attempt::Granted(grant)) => grant.token,
        _ => None,
    }
}

/// An answer in a form that can be compared: of an error, only its kind.
pub(crate) fn comparable(answer: &Result<Step<Outcome>>) -> std::result::Result<Outcome, ErrorKind> {
    answer.as_ref().map(|step| step.answer.clone()).map_err(lockkeeper::Error::kind)
}

/// Fails with `law` and what was seen, unless `holds`.
pub(crate) fn ensure(holds: bool, law: &str, seen: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(format!("{law}: {}", seen())) }
}

/// Tries a property on 10,000 random values, or on `PROPTEST_CASES`. A failure prints its seed and the smallest value that
/// fails, and keeps the seed beside the tests, to be tried first from then on.
#[track_caller]
pub(crate) fn prove<G: Strategy>(values: G, check: impl Fn(&G::Value) -> Verdict)
where
    G::Value: Debug,
{
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(10_000);
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/model/proptest-regressions/seeds.txt");
    let mut runner = TestRunner::new(Config {
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(seeds))),
        ..Config::with_cases(cases)
    });
    if let Err(failure) = runner.run(&values, |value| check(&value).map_err(TestCaseError::fail)) {
        panic!("{failure}");
    }
}

/// Asserts that a checker catches a broken subject, and for the right reason: some of 2,000 values, the same in each run, fail by `law`.
#[track_caller]
pub(crate) fn refute<G: Strategy>(values: G, law: &str, check: impl Fn(&G::Value) -> Verdict) {
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let caught = (0..2_000)
        .filter(|_| {
            let value = values.new_tree(&mut runner).expect("nothing is filtered").current();
            check(&value).is_err_and(|broken| broken.starts_with(law))
        })
        .count();
    assert!(caught > 0, "the checker of \"{law}\" let the broken subject pass");
}
