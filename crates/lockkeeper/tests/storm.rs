//! Storms: tasks of two clients that take, try, give up, cancel and give back in an order drawn from a seed, in simulated time. No
//! test written by hand meets so many orders.
//!
//! A failure names its seed. `LOCKKEEPER_SEED=N cargo test -p lockkeeper --test storm NAME` replays it, many times over: the steps
//! of the tasks and the pauses of the library are drawn from the seed, but tokio tosses a coin of its own where two things are ready
//! at once. `LOCKKEEPER_SEEDS=N` runs so many seeds instead of 300.
#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]

use std::future::{Future, IntoFuture, poll_fn};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use lockkeeper::backend::{Backend, Capabilities, Release, Released, Reply};
use lockkeeper::layer::{Chaos, Fault, Faulty, Layer};
use lockkeeper::runtime::Runtime;
use lockkeeper::store::memory::MemoryStore;
use lockkeeper::{Client, Mutex, MutexGuard, Result};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};

const TASKS: u64 = 6;
const TURNS: usize = 30;

/// How often a seed is replayed.
const REPLAYS: u64 = 50;

/// What a storm is made of.
#[derive(Clone, Copy)]
struct Weather {
    /// Requests and answers are lost.
    faults: bool,
    /// What stands between the clients and the store.
    layer: fn(Arc<MemoryStore>) -> Arc<dyn Backend>,
}

const CALM: Weather = Weather { faults: false, layer: |store| store };
const FAULTY: Weather = Weather { faults: true, ..CALM };

/// What the tasks of a storm share.
struct Sea {
    weather: Weather,
    chaos: Arc<Chaos>,
    inside: AtomicU64,
    holds: AtomicU64,
}

/// Runs the storm of one seed; tells how often the lock was held, or what was wrong.
fn storm(seed: u64, weather: Weather) -> std::result::Result<u64, String> {
    // For the pauses that the library draws by chance.
    fastrand::seed(seed);
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    executor.block_on(async {
        let runtime = Runtime::simulated();
        let store = Arc::new(MemoryStore::new(runtime.clone()));
        let chaos = Arc::new(Chaos::new((weather.layer)(Arc::clone(&store))));
        chaos.yielding(fastrand::Rng::with_seed(seed).usize(0..4));
        // A lease so long that nothing is given back by expiring.
        let client = || {
            let builder = Client::builder().lease(Duration::from_secs(30)).runtime(runtime.clone());
            builder.with_backend(Arc::<Chaos>::clone(&chaos)).unwrap()
        };
        let clients = [client(), client()];
        let sea = Arc::new(Sea { weather, chaos, inside: AtomicU64::new(0), holds: AtomicU64::new(0) });
        let tasks: Vec<_> = (0..TASKS)
            .zip(clients.iter().cycle())
            .map(|(task, client)| {
                let chance = fastrand::Rng::with_seed(seed.wrapping_mul(100).wrapping_add(task));
                tokio::spawn(sail(Arc::clone(&sea), client.mutex("x"), chance))
            })
            .collect();
        for task in tasks {
            task.await.map_err(|panic| panic.to_string())??;
        }
        sea.chaos.calm();
        let began = Instant::now();
        let guard = clients[0].mutex("x").lock().timeout(Duration::from_secs(60)).await;
        let (guard, took) = (guard.map_err(|error| format!("not free after the storm: {error}"))?, began.elapsed());
        if took > Duration::from_secs(5) {
            return Err(format!("free only {took:?} after the storm"));
        }
        guard.release().await.map_err(|error| format!("the last release: {error}"))?;
        sleep(Duration::from_secs(10)).await;
        if !store.is_empty() {
            return Err("something is left behind".to_owned());
        }
        Ok(sea.holds.load(Ordering::SeqCst))
    })
}

/// What one task does in a storm.
async fn sail(sea: Arc<Sea>, mutex: Mutex, mut chance: fastrand::Rng) -> std::result::Result<(), String> {
    for _ in 0..TURNS {
        if sea.weather.faults && chance.u8(0..8) == 0 {
            let fault = chance.choice([Fault::Refuse, Fault::LoseRequest, Fault::LoseReply, Fault::BreakReply]).unwrap();
            let which = chance.choice([Faulty::Acquire, Faulty::Release, Faulty::Watch]).unwrap();
            sea.chaos.next(which, fault);
        }
        let Some(guard) = take(&mutex, &mut chance).await? else { continue };
        sea.holds.fetch_add(1, Ordering::SeqCst);
        if sea.inside.fetch_add(1, Ordering::SeqCst) != 0 {
            return Err("two holders".to_owned());
        }
        for _ in 0..chance.usize(0..6) {
            yield_now().await;
        }
        if chance.u8(0..4) == 0 {
            sleep(Duration::from_millis(chance.u64(1..20))).await;
        }
        if !guard.is_valid() {
            return Err("lost long before the end of its lease".to_owned());
        }
        sea.inside.fetch_sub(1, Ordering::SeqCst);
        match chance.u8(0..3) {
            0 => drop(guard),
            1 => drop(polled(Box::pin(guard.release()), chance.usize(0..8)).await),
            // In a storm it may fail; that the name is free in the end is asked for afterwards.
            _ => drop(guard.release().await),
        }
    }
    Ok(())
}

/// Tries, waits a moment, waits and goes away, or waits for as long as it takes.
async fn take(mutex: &Mutex, chance: &mut fastrand::Rng) -> std::result::Result<Option<MutexGuard>, String> {
    Ok(match chance.u8(0..6) {
        0 => mutex.try_lock().await.ok().flatten(),
        1 => polled(Box::pin(mutex.lock()), chance.usize(0..30)).await.and_then(Result::ok),
        2 => mutex.lock().timeout(Duration::from_millis(chance.u64(0..50))).await.ok(),
        _ => {
            let patient = timeout(Duration::from_secs(120), mutex.lock().into_future());
            patient.await.map_err(|_| "it hangs".to_owned())?.ok()
        }
    })
}

/// The answer, if it is there after so many polls; else the future is dropped where it stands.
async fn polled<F: Future + ?Sized>(mut future: Pin<Box<F>>, times: usize) -> Option<F::Output> {
    for _ in 0..times {
        if let Poll::Ready(answer) = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await {
            return Some(answer);
        }
        yield_now().await;
    }
    None
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} must be a number, not {text:?}")))
}

/// The seeds of a test whose own begin at `first`.
fn seeds(first: u64) -> Range<u64> {
    first..first + number("LOCKKEEPER_SEEDS").unwrap_or(300)
}

fn weather_every_seed(first: u64, weather: Weather) {
    let sound = |seed| storm(seed, weather).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    if let Some(seed) = number("LOCKKEEPER_SEED") {
        for _ in 0..REPLAYS {
            sound(seed);
        }
        return;
    }
    let seeds = seeds(first);
    let turns = (seeds.end - seeds.start) * TASKS * TURNS as u64;
    let holds: u64 = seeds.clone().map(sound).sum();
    assert!(holds * 3 > turns, "seeds {seeds:?}: held only {holds} times in {turns} turns; that tests little");
}

#[test]
fn calm_weather_never_lets_two_in_and_leaves_nothing() {
    weather_every_seed(0, CALM);
}

#[test]
fn lost_requests_and_answers_never_let_two_in_and_leave_nothing() {
    weather_every_seed(10_000, FAULTY);
}

/// The negative control: a storm over a store that is broken finds it out.
#[test]
fn a_release_that_frees_whoever_holds_it_is_noticed() {
    let broken = Weather { layer: |store| Arc::new(FreesAnybody(store)), ..CALM };
    let noticed = (0..50).any(|seed| storm(seed, broken).is_err_and(|wrong| wrong == "two holders"));
    assert!(noticed, "no seed of 0..50 lets two in");
}

/// A release frees the name, whoever releases and whoever holds.
#[derive(Debug)]
struct FreesAnybody(Arc<dyn Backend>);

impl Layer for FreesAnybody {
    fn inner(&self) -> &Arc<dyn Backend> {
        &self.0
    }

    fn over(&self, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(Self(inner))
    }

    fn capabilities(&self) -> Capabilities {
        // Without the hand-over, which would be a second fault of the same release.
        let mut capabilities = self.0.capabilities();
        capabilities.hand_over = false;
        capabilities
    }

    fn release(&self, request: Release) -> Reply<'_, Released> {
        Box::pin(async move {
            let forced = self.0.force_release(request.name.clone()).await?;
            self.0.release(request).await?;
            Ok(Released::new(!forced.from.is_empty()).with_woke(0))
        })
    }
}
