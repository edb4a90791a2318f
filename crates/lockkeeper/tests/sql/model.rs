//! The store is held equal to the model: random histories run on both, and after each step the answers and what lies there agree.
//!
//! Nothing sleeps. Time passes by making all that ends in the rows end sooner, and for the model by being later.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockkeeper::backend::{Acquire, Attempt, Claim, Count, Kind, Release, Renew, Snapshot};
use lockkeeper::model::{Now, Record};
use lockkeeper::name::Name;
use lockkeeper::owner::WireOwner;
use lockkeeper::runtime::Instant;
use lockkeeper::{ErrorKind, Result};
use proptest::strategy::Strategy as _;
use proptest::strategy::{BoxedStrategy, ValueTree};
use proptest::test_runner::{Config, RngSeed, TestRunner};

use super::bench::{self, Bench, Plain};
use super::history::{self, Act, Ask, History, Limit, Move, count_id};

/// So much may leases differ, beside the time that really passed.
const SLACK: Duration = Duration::from_millis(60);

/// If a history took longer than this, things may have ended on one side only: it is tried again.
const SLOW: Duration = Duration::from_millis(350);

type Verdict = std::result::Result<(), String>;

/// A store and the model, with one name.
struct Pair<'a> {
    bench: &'a Bench,
    plain: &'a Plain,
    /// The control: time passes for the model only.
    stuck: bool,
    name: Name,
    record: Record,
    began: Instant,
    /// How much later it is for the model than for the machine.
    passed: Duration,
    turn: u64,
    counts: Vec<Count>,
    tokens: BTreeMap<(WireOwner, Claim), u64>,
    last_token: u64,
}

impl Pair<'_> {
    async fn replay(&mut self, history: &[Move]) -> Verdict {
        for (step, Move { gap, act }) in history.iter().enumerate() {
            self.pass(*gap).await;
            let told = match self.send(act).await {
                Ok(()) => self.look().await,
                told => told,
            };
            told.map_err(|why| format!("{why}, after step {step}: {act:?}"))?;
        }
        Ok(())
    }

    async fn pass(&mut self, seconds: u64) {
        self.passed += Duration::from_secs(seconds);
        if seconds == 0 || self.stuck {
            return;
        }
        let by = i64::try_from(seconds).unwrap() * 1_000_000_000;
        let version = self.bench.runtime.client_id().bits() as i64;
        bench::make_sooner(self.plain, self.name.as_str().as_bytes(), by, version, sooner).await;
    }

    fn at(&self) -> Instant {
        self.bench.runtime.now().plus(self.passed)
    }

    /// The same moment on the machine's clock.
    fn there(&self, at: Instant) -> Instant {
        if at == Instant::NEVER { at } else { earlier(at, self.passed) }
    }

    fn slack(&self) -> Duration {
        self.bench.runtime.now().since(self.began) + SLACK
    }

    fn limit(&self, limit: Limit) -> Instant {
        match limit {
            Limit::Never => Instant::NEVER,
            Limit::In(seconds) => self.at().plus(Duration::from_millis(1_000 * seconds + 500)),
            Limit::Past(seconds) => earlier(self.at(), Duration::from_secs(seconds)),
        }
    }

    fn acquire(&self, ask: &Ask) -> Acquire {
        let since = earlier(self.began.plus(self.passed), Duration::from_secs(ask.age));
        Acquire::new(self.name.clone(), ask.claim, ask.who, ask.lease)
            .with_times(since, self.limit(ask.limit))
            .with_beside(ask.beside)
            .with_place(ask.place)
            .with_any_size(ask.any_size)
    }

    fn acquire_there(&self, asked: &Acquire) -> Acquire {
        asked.clone().with_times(self.there(asked.since), self.there(asked.not_after))
    }

    async fn send(&mut self, act: &Act) -> Verdict {
        self.turn += 1;
        let now = Now { at: self.at(), token: self.turn };
        let (name, store) = (self.name.clone(), &self.bench.store);
        match act {
            Act::Acquire(ask) => {
                let asked = self.acquire(ask);
                let there = store.acquire(self.acquire_there(&asked)).await;
                let model = self.record.acquire(&asked, now).map(|step| step.answer);
                let Some((there, model)) = both(there, model)? else { return Ok(()) };
                self.attempts(ask, there, model, now)
            }
            Act::Release { who, claim, then } => {
                let then = then.as_ref().map(|ask| (ask, self.acquire(ask)));
                let mut request = Release::new(name, *claim, *who);
                request.then = then.as_ref().map(|(_, asked)| Box::new(self.acquire_there(asked)));
                let there = store.release(request.clone()).await;
                request.then = then.as_ref().map(|(_, asked)| Box::new(asked.clone()));
                let model = self.record.release(&request, now).map(|step| step.answer);
                let Some((there, model)) = both(there, model)? else { return Ok(()) };
                same("released", &(there.held, there.next.is_some()), &(model.held, model.next.is_some()))?;
                match (there.next, model.next, then) {
                    (Some(there), Some(model), Some((ask, _))) => self.attempts(ask, there, model, now),
                    _ => Ok(()),
                }
            }
            Act::Renew { who, claim, lease } => {
                let request = Renew::new(name, *claim, *who, *lease);
                let there = store.renew(vec![request.clone()]).await.and_then(|mut answers| answers.remove(0));
                same("renewed", &kinded(there), &Ok(self.record.renew(&request, now)))
            }
            Act::Count { op, remember, limit } => {
                let count = Count::new(name, count_id(self.turn), *op, *remember).with_not_after(self.limit(*limit));
                self.counts.push(count.clone());
                self.count(&count, now).await
            }
            Act::CountAgain(back) => match self.counts.iter().rev().nth(*back).cloned() {
                Some(count) => self.count(&count, now).await,
                None => Ok(()),
            },
            Act::Force => {
                let there = store.force_release(name).await.map_err(|error| error.to_string())?;
                let who = |holders: Vec<lockkeeper::backend::Holder>| {
                    holders.into_iter().map(|holder| (holder.owner, holder.claim)).collect::<Vec<_>>()
                };
                same("freed", &who(there.from), &who(self.record.force_release(now).answer))
            }
        }
    }

    async fn count(&mut self, count: &Count, now: Now) -> Verdict {
        let there = self.bench.store.count(count.clone().with_not_after(self.there(count.not_after))).await;
        same("counted", &kinded(there), &kinded(self.record.count(count, now).map(|step| step.answer)))
    }

    fn attempts(&mut self, ask: &Ask, there: Attempt, model: Attempt, now: Now) -> Verdict {
        match (there, model) {
            (Attempt::Granted(there), Attempt::Granted(model)) => {
                same("granted", &(there.token.is_some(), there.good_for), &(model.token.is_some(), model.good_for))?;
                let Some(token) = there.token else { return Ok(()) };
                // A repeated grant has the same token; a new one is larger than all before.
                let hold = (ask.who, ask.claim);
                let again = model.token != Some(now.token);
                match self.tokens.get(&hold) {
                    Some(before) if again => same("repeated token", &token, before)?,
                    _ if token <= self.last_token => return Err(format!("token {token} after {}", self.last_token)),
                    _ => {}
                }
                self.tokens.insert(hold, token);
                self.last_token = self.last_token.max(token);
                Ok(())
            }
            (Attempt::Busy(there), Attempt::Busy(model)) => {
                same("busy", &(there.ahead, there.placed), &(model.ahead, model.placed))?;
                about("retry in", there.retry_in, model.retry_in, self.slack())
            }
            (there, model) => same("attempt", &there, &model),
        }
    }

    async fn look(&mut self) -> Verdict {
        let there = self.bench.store.inspect(self.name.clone()).await.map_err(|error| error.to_string())?;
        let (there, model) = match (there, self.record.snapshot(&self.name, self.at())) {
            (Some(there), Some(model)) => (there, model),
            (there, model) => return same("state", &there, &model),
        };
        same("state", &view(&there), &view(&model))?;
        let leases = |seen: &Snapshot| seen.holders.iter().map(|holder| holder.lease_left).collect::<Vec<_>>();
        let places = |seen: &Snapshot| seen.queue.iter().map(|place| place.expires_in).collect::<Vec<_>>();
        let lasting = leases(&there).into_iter().chain(places(&there));
        let expected = leases(&model).into_iter().chain(places(&model));
        lasting.zip(expected).try_for_each(|(there, model)| about("lasting", there, model, self.slack()))
    }
}

fn earlier(at: Instant, by: Duration) -> Instant {
    Instant::from_nanos(at.as_nanos() - u64::try_from(by.as_nanos()).unwrap())
}

/// A row of which everything ends sooner.
fn sooner(text: &str, by: i64) -> String {
    fn shift(value: &mut serde_json::Value, by: i64) {
        match value {
            serde_json::Value::Object(fields) => {
                for (key, value) in fields {
                    match value.as_i64() {
                        Some(at) if key == "since" || key == "expires" => *value = (at - by).into(),
                        _ => shift(value, by),
                    }
                }
            }
            serde_json::Value::Array(values) => values.iter_mut().for_each(|value| shift(value, by)),
            _ => {}
        }
    }
    let mut value = serde_json::from_str(text).expect("a row is JSON");
    shift(&mut value, by);
    value.to_string()
}

/// What is compared of a snapshot exactly.
fn view(seen: &Snapshot) -> impl PartialEq + std::fmt::Debug + use<> {
    let holders: Vec<_> = seen.holders.iter().map(|holder| (holder.owner.clone(), holder.claim)).collect();
    let queue: Vec<_> = seen.queue.iter().map(|place| (place.owner.clone(), place.claim)).collect();
    (seen.kind, holders, queue, seen.value, seen.total)
}

fn kinded<T>(answer: Result<T>) -> std::result::Result<T, ErrorKind> {
    answer.map_err(|error| error.kind())
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, there: &T, model: &T) -> Verdict {
    if there == model { Ok(()) } else { Err(format!("{what}: the store {there:?}, the model {model:?}")) }
}

fn about(what: &str, there: Option<Duration>, model: Option<Duration>, slack: Duration) -> Verdict {
    match (there, model) {
        (Some(there), Some(model)) if there.abs_diff(model) <= slack => Ok(()),
        (None, None) => Ok(()),
        _ => Err(format!("{what}: the store {there:?}, the model {model:?} (± {slack:?})")),
    }
}

/// Both answers, or nothing if both failed in the same way.
fn both<T>(there: Result<T>, model: Result<T>) -> std::result::Result<Option<(T, T)>, String> {
    match (there, model) {
        (Ok(there), Ok(model)) => Ok(Some((there, model))),
        (there, model) => same("errors", &kinded(there.map(drop)), &kinded(model.map(drop))).map(|()| None),
    }
}

/// Replays a history on both sides, under a new name.
async fn compare(bench: &Bench, plain: &Plain, history: &[Move], stuck: bool) -> Verdict {
    static NAMES: AtomicU64 = AtomicU64::new(0);
    let mut last = Ok(());
    for _ in 0..10 {
        let name = Name::new(format!("mbt '{}'", NAMES.fetch_add(1, Ordering::Relaxed))).unwrap();
        // Whole microseconds, as the server has them: what is equal here is equal there.
        let began = Instant::from_nanos(bench.runtime.now().as_nanos() / 1_000 * 1_000);
        let (record, passed, counts, tokens) = Default::default();
        let mut pair = Pair { bench, plain, stuck, name, record, began, passed, turn: 0, counts, tokens, last_token: 0 };
        last = pair.replay(history).await;
        if last.is_ok() || bench.runtime.now().since(began) < SLOW {
            return last;
        }
    }
    // A difference that is there shows on a faster run as well, but ten slow runs that all differ must not pass as equal.
    panic!("the store and the model differ in ten runs, each slower than {SLOW:?}; the last one: {last:?}\n{history:#?}");
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

/// Tries 40 random histories, or `LOCKKEEPER_MBT_CASES`; `LOCKKEEPER_SEED` repeats a run.
async fn prove(test: &str, histories: BoxedStrategy<History>) {
    let Some(bench) = Bench::open(test).await else { return };
    let plain = bench.plain().await;
    let cases = number("LOCKKEEPER_MBT_CASES").unwrap_or(40);
    let seed = number("LOCKKEEPER_SEED").unwrap_or_else(|| RandomState::new().hash_one(test));
    let mut runner = TestRunner::new(Config { rng_seed: RngSeed::Fixed(seed), failure_persistence: None, ..Config::default() });
    for _ in 0..cases {
        let history = histories.new_tree(&mut runner).expect("nothing is filtered").current();
        if let Err(why) = compare(&bench, &plain, &history, false).await {
            panic!("LOCKKEEPER_SEED={seed}: {why}\n{history:#?}");
        }
    }
}

#[tokio::test]
async fn a_mutex_is_as_the_model_says() {
    prove("model of a mutex", history::on(Kind::Mutex)).await;
}

#[tokio::test]
async fn a_fair_mutex_is_as_the_model_says() {
    prove("model of a fair mutex", history::fair()).await;
}

#[tokio::test]
async fn a_read_write_lock_is_as_the_model_says() {
    prove("model of a read-write lock", history::on(Kind::RwLock)).await;
}

#[tokio::test]
async fn a_semaphore_is_as_the_model_says() {
    prove("model of a semaphore", history::on(Kind::Semaphore)).await;
}

#[tokio::test]
async fn a_counting_semaphore_is_as_the_model_says() {
    prove("model of a counting semaphore", history::on(Kind::CountingSemaphore)).await;
}

#[tokio::test]
async fn a_latch_is_as_the_model_says() {
    prove("model of a latch", history::on(Kind::Latch)).await;
}

#[tokio::test]
async fn kinds_that_meet_at_a_name_are_as_the_model_says() {
    prove("model of all kinds", history::mixed()).await;
}

/// The control: a store for which no time passes is caught.
#[tokio::test]
async fn a_store_whose_time_stands_still_is_caught() {
    let Some(bench) = Bench::open("control of the model").await else { return };
    let plain = bench.plain().await;
    let mut runner = TestRunner::new(Config { rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..Config::default() });
    for _ in 0..60 {
        let history = history::on(Kind::Mutex).new_tree(&mut runner).expect("nothing is filtered").current();
        if compare(&bench, &plain, &history, true).await.is_err() {
            return;
        }
    }
    panic!("not caught");
}
