//! What is logged, with the level that was promised.
#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper::Client;
use lockkeeper::layer::{Chaos, Fault, Faulty};
use lockkeeper::runtime::Runtime;
use lockkeeper::store::memory::MemoryStore;
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
