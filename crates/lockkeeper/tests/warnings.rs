//! What is logged, with the level that was promised.
#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper::Client;
use lockkeeper::layer::{Chaos, Fault, Faulty};
use lockkeeper::runtime::Runtime;
use lockkeeper::store::memory::MemoryStore;
use lockkeeper_testkit::poll::until_within;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Remembers what was logged at `INFO` or above, and then perhaps panics.
#[derive(Clone, Default)]
struct Log {
    seen: Arc<Mutex<Vec<(Level, String)>>>,
    panics: bool,
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn event(&self, event: &Event<'_>) {
        struct Text(String);
        impl Visit for Text {
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                let _ = write!(self.0, "{field}={value:?} ");
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        self.seen.lock().unwrap().push((*event.metadata().level(), text.0));
        assert!(!self.panics, "a broken subscriber");
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// What was logged while `work` ran on a new executor.
fn logged<F: Future<Output = ()>>(paused: bool, work: F) -> Vec<(Level, String)> {
    logged_by(Log::default(), paused, work)
}

/// The same by this subscriber.
fn logged_by<F: Future<Output = ()>>(log: Log, paused: bool, work: F) -> Vec<(Level, String)> {
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(paused).build().unwrap();
    tracing::subscriber::with_default(log.clone(), || executor.block_on(work));
    log.seen.lock().unwrap().clone()
}

#[test]
fn a_paused_clock_without_the_simulated_runtime_is_said() {
    let warned = |paused, runtime: fn() -> Runtime| {
        let seen = logged(paused, async move {
            drop(Client::builder().runtime(runtime()).connect("memory:").await.unwrap());
        });
        let warnings: Vec<_> = seen.iter().filter(|(level, _)| *level == Level::WARN).collect();
        assert!(
            warnings.iter().all(|(_, text)| text.contains("clock is paused") && text.contains("testing::client()")),
            "{seen:?}"
        );
        warnings.len()
    };
    assert_eq!(warned(true, Runtime::system), 1);
    assert_eq!(warned(true, Runtime::simulated), 0);
    assert_eq!(warned(false, Runtime::system), 0);
}

/// Whatever the store: one line when it is away, with requests that are refused or that get no answer, and one when it is back.
#[test]
fn an_outage_is_told_once_and_its_end_once() {
    for fault in [Fault::Refuse, Fault::LoseRequest] {
        let seen = logged(true, async move {
            let runtime = Runtime::simulated();
            let chaos = Chaos::new(Arc::new(MemoryStore::new(runtime.clone())));
            let client = Client::builder().runtime(runtime).with_backend(Arc::new(chaos.clone())).unwrap();
            let all = [Faulty::Acquire, Faulty::Release];
            // One request that fails is no outage.
            chaos.next(Faulty::Acquire, Fault::Refuse);
            client.mutex("m").lock().await.unwrap().release().await.unwrap();
            for _ in 0..2 {
                all.iter().for_each(|which| chaos.always(*which, fault));
                for _ in 0..5 {
                    client.mutex("m").lock().timeout(Duration::from_secs(5)).await.unwrap_err();
                }
                chaos.calm();
                // What the keeper's connection suffered is believed for ten seconds.
                for _ in 0..2 {
                    client.mutex("m").lock().await.unwrap().release().await.unwrap();
                    tokio::time::sleep(Duration::from_secs(11)).await;
                }
            }
        });
        let told: Vec<_> = seen.iter().map(|(level, text)| (*level, text.contains("answers again"))).collect();
        assert_eq!(told, [(Level::WARN, false), (Level::INFO, true)].repeat(2), "{fault:?}: {seen:#?}");
    }
}

/// The keeper logs too. A subscriber of the user's that panics there costs log lines, not locks: renewals and releases go on, and `close` ends.
#[test]
fn a_subscriber_that_panics_does_not_end_the_keeper() {
    let log = Log { panics: true, ..Log::default() };
    let seen = logged_by(log, true, async {
        let runtime = Runtime::simulated();
        let chaos = Chaos::new(Arc::new(MemoryStore::new(runtime.clone())));
        let builder = Client::builder().runtime(runtime).lease(Duration::from_secs(30));
        let client = builder.with_backend(Arc::new(chaos.clone())).unwrap();
        let (kept, left) = (client.mutex("kept").lock().await.unwrap(), client.mutex("left").lock().await.unwrap());
        for which in [Faulty::Renew, Faulty::Release] {
            chaos.always(which, Fault::Refuse);
        }
        // Its release fails for longer than its lease, on the keeper, while renewals fail for most of theirs.
        drop(left);
        tokio::time::sleep(Duration::from_secs(25)).await;
        chaos.calm();
        chaos.always(Faulty::Release, Fault::Refuse);
        tokio::time::sleep(Duration::from_secs(60)).await;
        chaos.calm();
        assert!(kept.is_valid(), "its renewals have ended");
        kept.release().await.unwrap();
        tokio::time::timeout(Duration::from_secs(60), client.close()).await.expect("it waits for what has panicked").unwrap();
    });
    assert!(seen.iter().any(|(_, text)| text.contains("does not answer")), "{seen:#?}");
    assert!(seen.iter().any(|(_, text)| text.contains("not released")), "{seen:#?}");
}

/// Once per client, and only there: a thread may block.
#[test]
fn a_blocking_call_in_a_task_is_said() {
    let lock = || {
        let client = lockkeeper::blocking::Client::connect("memory:").unwrap();
        for _ in 0..3 {
            client.mutex("m").lock().unwrap().release().unwrap();
        }
    };
    let on_a_thread = Log::default();
    tracing::subscriber::with_default(on_a_thread.clone(), lock);
    assert_eq!(on_a_thread.seen.lock().unwrap().len(), 0, "{:?}", on_a_thread.seen);
    let seen = logged(false, async move { tokio::spawn(async move { lock() }).await.unwrap() });
    let warnings: Vec<_> = seen.iter().filter(|(level, _)| *level == Level::WARN).collect();
    assert!(warnings.len() == 1 && warnings[0].1.contains("blocking"), "{seen:?}");
}

/// Which code of the user's does not return while this says so, on a thread that renews holds.
static STUCK: AtomicU8 = AtomicU8::new(FREE);
const FREE: u8 = 0;
const IN_RECORDER: u8 = 1;
const IN_SUBSCRIBER: u8 = 2;

/// Whether a keeper is in there.
static IS_STUCK: AtomicBool = AtomicBool::new(false);

fn stay(place: u8) {
    if std::thread::current().name() == Some("lockkeeper-keeper") {
        while STUCK.load(Ordering::SeqCst) == place {
            IS_STUCK.store(true, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A recorder and a subscriber that do not return from being told of a loss.
struct Stuck;

impl metrics::Recorder for Stuck {
    fn describe_counter(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {}
    fn describe_gauge(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {}
    fn describe_histogram(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {}

    fn register_counter(&self, key: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Counter {
        if key.name() == "lockkeeper_losses_total" {
            stay(IN_RECORDER);
        }
        metrics::Counter::noop()
    }

    fn register_gauge(&self, _: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Gauge {
        metrics::Gauge::noop()
    }

    fn register_histogram(&self, _: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Histogram {
        metrics::Histogram::noop()
    }
}

impl Subscriber for Stuck {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn event(&self, _: &Event<'_>) {
        stay(IN_SUBSCRIBER);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Code that does not return cannot be told by the keeper, which is in it. The caller tells it that finds its lock lost for want of a renewal.
#[test]
fn a_keeper_that_is_stuck_in_code_of_the_users_is_told_by_a_caller() {
    metrics::set_global_recorder(Stuck).expect("the only one");
    tracing::subscriber::set_global_default(Stuck).expect("the only one");
    for place in [IN_RECORDER, IN_SUBSCRIBER] {
        let log = Log::default();
        let warnings = || log.seen.lock().unwrap().iter().filter(|(_, text)| text.contains("blocks the thread")).count();
        logged_by(log.clone(), false, async {
            let (limit, short) = (Duration::from_secs(10), Duration::from_millis(50));
            let client = Client::builder().lease(Duration::from_secs(1)).connect("memory:").await.unwrap();
            let renewed = client.mutex("renewed").lock().await.unwrap();
            IS_STUCK.store(false, Ordering::SeqCst);
            STUCK.store(place, Ordering::SeqCst);
            let _expires = client.mutex("expires").lock().lease(short).await.unwrap();
            until_within(limit, "the keeper is told of the loss", || IS_STUCK.load(Ordering::SeqCst));
            assert_eq!(warnings(), 0, "nobody has looked");
            until_within(limit, "a lock that is not renewed is lost", || !renewed.is_valid());
            assert_eq!(warnings(), 1, "{:?}", log.seen);
            let again = client.mutex("again").lock().lease(short).await.unwrap();
            until_within(limit, "a second lock is lost", || !again.is_valid());
            STUCK.store(FREE, Ordering::SeqCst);
            client.close().await.unwrap();
            assert_eq!(warnings(), 1, "{:?}", log.seen);
        });
    }
}
