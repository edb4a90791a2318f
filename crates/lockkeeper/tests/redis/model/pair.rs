//! The store and the model side by side: each request goes to both, and what they say and hold is compared.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockkeeper::backend::{Acquire, Attempt, Backend, Claim, Count, Kind, Release, Renew};
use lockkeeper::model::{Now, Record};
use lockkeeper::name::Name;
use lockkeeper::owner::WireOwner;
use lockkeeper::runtime::{Instant, Runtime};
use lockkeeper::{ErrorKind, Result};
use redis::Commands;

use super::history::{Act, Ask, Limit, Move, OWNERS, count_id, owner};
use super::view::{ANSWER, TOKEN, Verdict, same, same_attempt, same_holders, same_state};

/// So much may leases differ: Redis counts milliseconds, and a request is under way for some time.
const SLACK: Duration = Duration::from_millis(50);

/// If a history took longer than this, things may have ended on one side only: it is tried again.
const SLOW: Duration = Duration::from_millis(300);

/// A store, and a plain connection beside it.
pub(crate) struct Bench {
    pub(crate) runtime: Runtime,
    pub(crate) store: Arc<dyn Backend>,
    pub(crate) eyes: redis::Connection,
    pub(crate) shift: redis::Script,
}

impl Bench {
    /// Replays a history on both sides, under a new name.
    pub(crate) async fn compare(&mut self, history: &[Move]) -> Verdict {
        for _ in 0..10 {
            let mut pair = Pair::new(self);
            let began = pair.bench.runtime.now();
            let verdict = pair.replay(history).await;
            if verdict.is_ok() || self.runtime.now().since(began) < SLOW {
                return verdict;
            }
        }
        panic!("this machine is too slow: no history ended within {SLOW:?}");
    }
}

struct Pair<'a> {
    bench: &'a mut Bench,
    name: Name,
    record: Record,
    began: Instant,
    /// How much later it is for the model than for the machine.
    passed: Duration,
    turn: u64,
    /// As sent, on the model's clock.
    counts: Vec<Count>,
    /// The last token of each hold, and of all.
    tokens: BTreeMap<(WireOwner, Claim), u64>,
    last_token: u64,
}

impl<'a> Pair<'a> {
    fn new(bench: &'a mut Bench) -> Self {
        static NAMES: AtomicU64 = AtomicU64::new(0);
        // With and without braces of its own, by which Redis' other names are made.
        let name = match NAMES.fetch_add(1, Ordering::Relaxed) {
            number if number % 2 == 0 => format!("mbt:{number}"),
            number => format!("{{mbt}}:{number}"),
        };
        let name = Name::new(name).expect("a valid name");
        // Whole microseconds, as Redis has them: what is equal here is equal there.
        let began = Instant::from_nanos(bench.runtime.now().as_nanos() / 1_000 * 1_000);
        let (record, passed, turn) = (Record::default(), Duration::ZERO, 0);
        Self { bench, name, record, began, passed, turn, counts: Vec::new(), tokens: BTreeMap::new(), last_token: 0 }
    }

    async fn replay(&mut self, history: &[Move]) -> Verdict {
        for (step, Move { gap, act }) in history.iter().enumerate() {
            self.pass(*gap);
            if self.is_known_to_differ(act) {
                continue;
            }
            let told = match self.send(act).await {
                Ok(()) => self.look().await,
                told => told,
            };
            told.map_err(|why| format!("{why}, after step {step}: {act:?}"))?;
        }
        Ok(())
    }

    /// Lets time pass on both sides: there whatever ends is made to end sooner, here it becomes later.
    fn pass(&mut self, seconds: u64) {
        if seconds == 0 {
            return;
        }
        self.passed += Duration::from_secs(seconds);
        let (name, tagged) = (self.name.as_str(), self.tagged());
        let mut keys = vec![name.to_owned(), format!("lockkeeper:pending:{tagged}"), format!("lockkeeper:kind:{tagged}")];
        keys.extend((0..OWNERS).map(|n| format!("{tagged}:{}:rwlock_timeout:1", owner(Kind::RwLock, n))));
        keys.extend(self.counts.iter().map(|count| format!("lockkeeper:request:{tagged}:{}", count.id)));
        let mut call = self.bench.shift.key(tagged);
        call.arg(1_000 * seconds);
        for key in &keys {
            call.arg(key);
        }
        let () = call.invoke(&mut self.bench.eyes).expect("time passes");
    }

    /// The name as it stands inside others.
    fn tagged(&self) -> String {
        let name = self.name.as_str();
        if name.contains('{') { name.to_owned() } else { format!("{{{name}}}") }
    }

    fn now(&mut self) -> Now {
        self.turn += 1;
        Now { at: self.bench.runtime.now().plus(self.passed), token: self.turn }
    }

    /// The same moment on the machine's clock.
    fn there(&self, at: Instant) -> Instant {
        if at == Instant::NEVER { at } else { Instant::from_nanos(at.as_nanos() - self.passed.as_nanos() as u64) }
    }

    fn slack(&self) -> Duration {
        self.bench.runtime.now().since(self.began) + SLACK
    }

    fn limit(&self, limit: Limit) -> Instant {
        let at = self.bench.runtime.now().plus(self.passed);
        match limit {
            Limit::Never => Instant::NEVER,
            Limit::In(seconds) => at.plus(Duration::from_millis(1_000 * seconds + 500)),
            Limit::Past(seconds) => Instant::from_nanos(at.as_nanos() - Duration::from_secs(seconds).as_nanos() as u64),
        }
    }

    /// A request for the model.
    fn acquire(&self, ask: &Ask) -> Acquire {
        let since = self.began.plus(self.passed).as_nanos() - Duration::from_secs(ask.age).as_nanos() as u64;
        Acquire::new(self.name.clone(), ask.claim, ask.who, ask.lease)
            .with_times(Instant::from_nanos(since), self.limit(ask.limit))
            .with_beside(ask.beside)
            .with_place(ask.place)
            .with_any_size(ask.any_size)
    }

    /// The same for the store, whose tokens are others.
    fn acquire_there(&self, asked: &Acquire) -> Acquire {
        asked.clone().with_times(self.there(asked.since), self.there(asked.not_after))
    }

    /// Whether the step would lead to where Redis differs on purpose; it is left out. See the list in the parent module.
    fn is_known_to_differ(&mut self, act: &Act) -> bool {
        let now = Now { at: self.bench.runtime.now().plus(self.passed), token: 0 };
        let wanted = match act {
            Act::Acquire(ask) => Some(ask.claim.kind()),
            Act::Release { then: Some(ask), .. } => Some(ask.claim.kind()),
            Act::Count { op, .. } => Some(op.kind()),
            Act::CountAgain(back) => self.count_before(*back).map(|count| count.op.kind()),
            _ => None,
        };
        if let (Some(seen), Some(wanted)) = (self.record.snapshot(&self.name, now.at), wanted)
            && seen.kind != wanted
            && seen.holders.is_empty()
            && !seen.queue.is_empty()
        {
            return true;
        }
        let mut after = self.record.clone();
        match act {
            Act::Acquire(ask) => drop(after.acquire(&self.acquire(ask), now)),
            Act::Renew { who, claim, lease } => {
                after.renew(&Renew::new(self.name.clone(), *claim, *who, *lease), now);
            }
            _ => {}
        }
        let Some(seen) = after.snapshot(&self.name, now.at) else { return false };
        let longest = |claim| seen.holders.iter().filter(|holder| holder.claim == claim).map(|holder| holder.lease_left).max();
        matches!((longest(Claim::Write), longest(Claim::Read)), (Some(write), Some(read)) if read > write)
    }

    fn count_before(&self, back: usize) -> Option<&Count> {
        self.counts.iter().rev().nth(back)
    }

    async fn send(&mut self, act: &Act) -> Verdict {
        let now = self.now();
        let name = self.name.clone();
        match act {
            Act::Acquire(ask) => {
                let asked = self.acquire(ask);
                let there = self.acquire_there(&asked);
                let redis = self.bench.store.acquire(there).await;
                let model = self.record.acquire(&asked, now).map(|step| step.answer);
                let Some((redis, model)) = both(redis, model)? else { return Ok(()) };
                self.attempts(ask, redis, model, now)
            }
            Act::Release { who, claim, then } => {
                let then = then.as_ref().map(|ask| (ask, self.acquire(ask)));
                let mut request = Release::new(name, *claim, *who);
                request.then = then.as_ref().map(|(_, asked)| Box::new(self.acquire_there(asked)));
                let redis = self.bench.store.release(request.clone()).await;
                request.then = then.as_ref().map(|(_, asked)| Box::new(asked.clone()));
                let model = self.record.release(&request, now).map(|step| step.answer);
                let Some((redis, model)) = both(redis, model)? else { return Ok(()) };
                same(ANSWER, &(redis.held, redis.next.is_some()), &(model.held, model.next.is_some()))?;
                match (redis.next, model.next, then) {
                    (Some(redis), Some(model), Some((ask, _))) => self.attempts(ask, redis, model, now),
                    _ => Ok(()),
                }
            }
            Act::Renew { who, claim, lease } => {
                let request = Renew::new(name, *claim, *who, *lease);
                let redis = self.bench.store.renew(vec![request.clone()]).await.map(|mut answers| answers.remove(0));
                let model = self.record.renew(&request, now);
                same(ANSWER, &kinded(redis.and_then(|answer| answer)), &Ok(model))
            }
            Act::Count { op, remember, limit } => {
                let id = count_id(self.turn);
                // Redis remembers a request at least until its latest time, whatever it says.
                let remember = match limit {
                    Limit::In(seconds) => Duration::from_millis(1_000 * seconds + 500).max(*remember),
                    Limit::Never | Limit::Past(_) => *remember,
                };
                let count = Count::new(name, id, *op, remember).with_not_after(self.limit(*limit));
                self.counts.push(count.clone());
                self.count(&count, now).await
            }
            Act::CountAgain(back) => match self.count_before(*back).cloned() {
                Some(count) => self.count(&count, now).await,
                None => Ok(()),
            },
            Act::Force => {
                let redis = self.bench.store.force_release(name).await.map_err(|error| format!("{ANSWER}: {error}"))?;
                let model = self.record.force_release(now).answer;
                same_holders(redis.from, model, self.slack())
            }
        }
    }

    async fn count(&mut self, count: &Count, now: Now) -> Verdict {
        let redis = self.bench.store.count(count.clone().with_not_after(self.there(count.not_after))).await;
        let model = self.record.count(count, now).map(|step| step.answer);
        same(ANSWER, &kinded(redis), &kinded(model))
    }

    fn attempts(&mut self, ask: &Ask, mut redis: Attempt, model: Attempt, now: Now) -> Verdict {
        if let (Attempt::Busy(redis), Attempt::Busy(model)) = (&mut redis, &model)
            && redis.ahead != model.ahead
            && redis.ahead.is_some_and(|ahead| self.living_before(ask.who, ahead, now) == model.ahead)
        {
            redis.ahead = model.ahead;
        }
        same_attempt(redis, model, self.slack())?;
        let (Attempt::Granted(redis), Attempt::Granted(model)) = (redis, model) else { return Ok(()) };
        let Some(token) = redis.token else { return Ok(()) };
        let hold = (ask.who, ask.claim);
        let above = match self.tokens.get(&hold) {
            Some(before) if model.token != Some(now.token) => *before,
            _ => self.last_token + 1,
        };
        if token < above {
            return Err(format!("{TOKEN}: {token} is below {above}"));
        }
        self.tokens.insert(hold, token);
        self.last_token = self.last_token.max(token);
        Ok(())
    }

    /// How many of those who stand before this owner in Redis' queue are alive, if it stands where it was told.
    fn living_before(&mut self, who: WireOwner, told: u32, now: Now) -> Option<u32> {
        let list = format!("redisson_lock_queue:{}", self.tagged());
        let queue: Vec<String> = self.bench.eyes.lrange(list, 0, -1).expect("a list");
        let place = queue.iter().position(|owner| *owner == who.to_string())?;
        let living = self.record.snapshot(&self.name, now.at)?.queue;
        let before = queue[..place].iter().filter(|owner| living.iter().any(|place| place.owner == **owner)).count();
        u32::try_from(before).ok().filter(|_| u32::try_from(place) == Ok(told))
    }

    async fn look(&mut self) -> Verdict {
        let redis = self.bench.store.inspect(self.name.clone()).await.map_err(|error| format!("{ANSWER}: {error}"))?;
        let at = self.bench.runtime.now().plus(self.passed);
        same_state(redis, self.record.snapshot(&self.name, at), self.slack())
    }
}

fn kinded<T>(answer: Result<T>) -> std::result::Result<T, ErrorKind> {
    answer.map_err(|error| error.kind())
}

/// Both answers, or nothing if both failed in the same way.
fn both<T>(redis: Result<T>, model: Result<T>) -> std::result::Result<Option<(T, T)>, String> {
    match (redis, model) {
        (Ok(redis), Ok(model)) => Ok(Some((redis, model))),
        (redis, model) => {
            same(ANSWER, &redis.map(drop).map_err(|error| error.kind()), &model.map(drop).map_err(|error| error.kind()))?;
            Ok(None)
        }
    }
}
