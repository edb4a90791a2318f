//! What is measured from outside: the documented metrics, with their documented names.

#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::future::IntoFuture as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper::Client;
use lockkeeper::layer::{Chaos, Fault, Faulty};
use lockkeeper_testkit::poll::until_within;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

/// All metrics by name and labels; histograms by how many values they got.
type Seen = BTreeMap<String, i64>;

/// A snapshot of the recorder sets everything to zero: this adds them up.
struct Watch {
    snapshots: Snapshotter,
    total: Seen,
}

impl Watch {
    fn look(&mut self) -> &Seen {
        for (name, value) in seen(&self.snapshots) {
            *self.total.entry(name).or_default() += value;
        }
        &self.total
    }
}

/// The metrics that were recorded while `work` ran.
fn measured<F: Future<Output = ()>>(work: F) -> Seen {
    measured_by(async |watch: &mut Watch| {
        work.await;
        watch.look();
    })
}

/// As [`measured`], with work that looks at the metrics itself.
fn measured_by(work: impl AsyncFnOnce(&mut Watch)) -> Seen {
    let recorder = DebuggingRecorder::new();
    let mut watch = Watch { snapshots: recorder.snapshotter(), total: Seen::new() };
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    metrics::with_local_recorder(&recorder, || executor.block_on(work(&mut watch)));
    watch.look().clone()
}

fn seen(snapshots: &Snapshotter) -> Seen {
    let found = snapshots.snapshot().into_vec().into_iter().map(|(key, _, _, value)| {
        let (_, key) = key.into_parts();
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let value = match value {
            DebugValue::Counter(count) => count as i64,
            DebugValue::Histogram(values) => values.len() as i64,
            DebugValue::Gauge(level) => level.into_inner() as i64,
        };
        (format!("{}{{{}}}", key.name(), labels.join(",")), value)
    });
    found.collect()
}

/// A client whose background work runs on the test's own executor, where the recorder sees it.
async fn client(lease: u64) -> Client {
    let builder = Client::builder().lease(Duration::from_secs(lease)).runtime(lockkeeper::runtime::Runtime::simulated());
    builder.connect("memory:").await.unwrap()
}

#[test]
fn waits_holds_and_hand_overs_are_counted() {
    let seen = measured(async {
        let client = client(30).await;
        let mutex = client.mutex("m");
        let guard = mutex.lock().await.unwrap();
        assert!(mutex.try_lock().await.unwrap().is_none());
        let waiter = tokio::spawn({
            let mutex = mutex.clone();
            async move { mutex.lock().await.unwrap().release().await.unwrap() }
        });
        tokio::task::yield_now().await;
        guard.release().await.unwrap();
        waiter.await.unwrap();
        client.semaphore("s", 1).acquire().await.unwrap().release().await.unwrap();
    });
    let expected = [
        ("lockkeeper_handovers_total{kind=mutex}", 1),
        ("lockkeeper_hold_seconds{kind=mutex}", 2),
        ("lockkeeper_hold_seconds{kind=semaphore}", 1),
        ("lockkeeper_wait_seconds{kind=mutex,outcome=acquired}", 2),
        ("lockkeeper_wait_seconds{kind=mutex,outcome=busy}", 1),
        ("lockkeeper_wait_seconds{kind=semaphore,outcome=acquired}", 1),
    ];
    let seen: Seen = seen.into_iter().filter(|(_, value)| *value != 0).collect();
    assert_eq!(seen, expected.map(|(name, count)| (name.to_owned(), count)).into());
}

#[test]
fn losses_are_counted_by_how_they_are_known() {
    let seen = measured(async {
        let client = client(3).await;
        let (gone, expired) = (client.mutex("gone"), client.rwlock("expired"));
        let gone_guard = gone.lock().await.unwrap();
        let expired_guard = expired.write().lease(Duration::from_secs(1)).await.unwrap();
        client.force_release("gone").await.unwrap();
        gone_guard.lost().await;
        expired_guard.lost().await;
    });
    assert_eq!(seen.get("lockkeeper_losses_total{kind=mutex,reason=gone}"), Some(&1), "{seen:?}");
    assert_eq!(seen.get("lockkeeper_losses_total{kind=rwlock,reason=expired}"), Some(&1), "{seen:?}");
}

/// A store that a test can break, and its client.
fn breakable(lease: u64) -> (Client, Chaos) {
    let runtime = lockkeeper::runtime::Runtime::simulated();
    let chaos = Chaos::new(std::sync::Arc::new(lockkeeper::store::memory::MemoryStore::new(runtime.clone())));
    let builder = Client::builder().lease(Duration::from_secs(lease)).runtime(runtime);
    (builder.with_backend(std::sync::Arc::new(chaos.clone())).unwrap(), chaos)
}

#[test]
fn an_outage_is_told_from_contention_and_from_a_dropped_call() {
    const UNAVAILABLE: &str = "lockkeeper_wait_seconds{kind=mutex,outcome=unavailable}";
    const TIMEOUT: &str = "lockkeeper_wait_seconds{kind=mutex,outcome=timeout}";
    let seen = measured_by(async |watch: &mut Watch| {
        let (client, chaos) = breakable(30);
        let second = Duration::from_secs(1);
        let guard = client.mutex("m").lock().await.unwrap();
        assert!(client.mutex("m").lock().timeout(second).await.unwrap_err().is_busy());
        assert_eq!((watch.look()[TIMEOUT], watch.look()[UNAVAILABLE]), (1, 0));
        assert_eq!(watch.look()["lockkeeper_clients_connected{}"], 1);
        chaos.always(Faulty::Acquire, Fault::Refuse);
        let call = client.mutex("n").lock().timeout(10 * second).outage_timeout(second);
        assert!(call.await.unwrap_err().is_outage());
        let down = watch.look();
        assert_eq!((down["lockkeeper_clients_connected{}"], down["lockkeeper_clients{}"]), (0, 1));
        assert_eq!((down[TIMEOUT], down[UNAVAILABLE]), (1, 1));
        // One that fails without asking counts too.
        for calls in 2..5 {
            assert!(client.mutex("n").lock().outage_timeout(second).await.unwrap_err().is_outage());
            assert_eq!(watch.look()[UNAVAILABLE], calls);
        }
        chaos.calm();
        guard.release().await.unwrap();
        assert_eq!(watch.look()["lockkeeper_clients_connected{}"], 1);
        client.close().await.unwrap();
    });
    assert!(seen["lockkeeper_errors_total{error=unavailable}"] > 1, "{seen:?}");
    assert_eq!(seen["lockkeeper_errors_total{error=denied}"], 0, "{seen:?}");
    assert_eq!((seen["lockkeeper_clients{}"], seen["lockkeeper_clients_connected{}"]), (0, 0), "{seen:?}");
}

#[test]
fn timeouts_and_dropped_calls_have_outcomes_of_their_own() {
    let seen = measured(async {
        let client = client(30).await;
        let guard = client.mutex("m").lock().await.unwrap();
        let wait = Duration::from_secs(1);
        assert!(client.mutex("m").lock().timeout(wait).await.is_err());
        drop(tokio::time::timeout(wait, client.mutex("m").lock().into_future()).await);
        assert!(client.rwlock("m").read().await.is_err(), "another kind");
        guard.release().await.unwrap();
    });
    for (name, count) in [
        ("lockkeeper_wait_seconds{kind=mutex,outcome=timeout}", 1),
        ("lockkeeper_wait_seconds{kind=mutex,outcome=cancelled}", 1),
        ("lockkeeper_wait_seconds{kind=rwlock,outcome=failed}", 1),
        ("lockkeeper_errors_total{error=wrong_kind}", 1),
    ] {
        assert_eq!(seen[name], count, "{name}: {seen:?}");
    }
}

#[test]
fn gauges_tell_what_is_held_and_who_waits() {
    measured_by(async |watch: &mut Watch| {
        let client = client(30).await;
        let mut levels = || {
            let seen = watch.look();
            ["lockkeeper_held{kind=mutex}", "lockkeeper_waiting{kind=mutex}", "lockkeeper_held{kind=semaphore}"]
                .map(|name| seen[name])
        };
        assert_eq!(levels(), [0, 0, 0]);
        let guard = client.mutex("m").lock().await.unwrap();
        let lost = client.mutex("lost").lock().lease(Duration::from_secs(1)).await.unwrap();
        let permit = client.semaphore("s", 2).acquire().await.unwrap();
        let waiter = tokio::spawn(client.mutex("m").lock().into_future());
        let cancelled = tokio::spawn(client.mutex("m").lock().into_future());
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(levels(), [2, 2, 1]);
        cancelled.abort();
        lost.lost().await;
        assert_eq!(levels(), [1, 1, 1]);
        guard.release().await.unwrap();
        let guard = waiter.await.unwrap().unwrap();
        assert_eq!(levels(), [1, 0, 1]);
        // Given to another process, and taken over again.
        let id = permit.detach();
        assert_eq!(levels(), [1, 0, 0]);
        let permit = client.adopt(id).await.unwrap();
        assert_eq!(levels(), [1, 0, 1]);
        permit.release().await.unwrap();
        guard.release().await.unwrap();
        drop(lost);
        assert_eq!(levels(), [0, 0, 0]);
    });
}

/// The names between backticks that start like this, as a set.
fn named<'a>(text: &'a str, prefix: &str) -> std::collections::BTreeSet<&'a str> {
    text.split('`').filter(|word| word.starts_with(prefix) && !word.contains([' ', '<', '\n'])).collect()
}

#[test]
fn the_documents_name_what_is_registered_and_everything_is_zero_at_first() {
    let seen = measured(async { drop(client(30).await) });
    assert!(seen.values().all(|value| *value == 0), "{seen:?}");
    let registered: std::collections::BTreeSet<_> = seen.keys().map(|name| name.split('{').next().unwrap()).collect();
    let page = include_str!("../../../docs/observability.md");
    let rustdoc = include_str!("../src/observability.rs");
    // What Prometheus makes of a histogram.
    let mut on_page = named(page, "lockkeeper_");
    on_page.remove("lockkeeper_wait_seconds_count");
    assert_eq!(on_page, registered, "docs/observability.md");
    assert_eq!(named(rustdoc, "lockkeeper_"), registered, "src/observability.rs");
    // The values of labels, each in both documents.
    for value in
        seen.keys().filter_map(|name| name.split_once('{')).flat_map(|(_, labels)| labels.trim_end_matches('}').split(','))
    {
        let Some((label, value)) = value.split_once('=') else { continue };
        for (text, document) in [(page, "docs/observability.md"), (rustdoc, "src/observability.rs")] {
            let row = text
                .lines()
                .map(|line| line.trim_start_matches("//! "))
                .find(|line| line.starts_with(&format!("| `{label}` |")))
                .unwrap_or_else(|| panic!("{label} in {document}"));
            assert!(row.contains(&format!("`{value}`")), "{label} = {value} is not in {document}");
        }
    }
    let source = include_str!("../src/layer/observe.rs");
    let spans: std::collections::BTreeSet<_> = source.split('"').filter(|word| word.starts_with("lockkeeper.")).collect();
    assert_eq!(named(page, "lockkeeper."), spans, "docs/observability.md");
    assert_eq!(named(rustdoc, "lockkeeper."), spans, "src/observability.rs");
}

/// A recorder that panics whenever it is asked for a metric.
struct Panics;

impl metrics::Recorder for Panics {
    fn describe_counter(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {}
    fn describe_gauge(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {}
    fn describe_histogram(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {}

    fn register_counter(&self, _: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Counter {
        panic!("a broken recorder")
    }

    fn register_gauge(&self, _: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Gauge {
        panic!("a broken recorder")
    }

    fn register_histogram(&self, _: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Histogram {
        panic!("a broken recorder")
    }
}

/// A recorder of the user's that panics costs metrics, not locks: the keeper goes on renewing and telling losses.
#[test]
fn a_recorder_that_panics_does_not_end_the_keeper() {
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    metrics::with_local_recorder(&Panics, || {
        executor.block_on(async {
            let client = client(3).await;
            let (kept, gone) = (client.mutex("kept").lock().await.unwrap(), client.mutex("gone").lock().await.unwrap());
            // The keeper tells this loss, so the recorder panics on the keeper.
            client.force_release("gone").await.unwrap();
            tokio::time::timeout(Duration::from_secs(3), gone.lost()).await.expect("the loss is told");
            tokio::time::sleep(Duration::from_secs(30)).await;
            assert!(kept.is_valid(), "the keeper has ended");
            kept.release().await.unwrap();
            assert!(client.mutex("kept").try_lock().await.unwrap().is_some());
        });
    });
}

/// Whether this is a thread on which holds are renewed.
fn on_the_keeper() -> bool {
    std::thread::current().name() == Some("lockkeeper-keeper")
}

/// A recorder that blocks the keeper for longer than is good whenever it is asked for a counter.
struct Blocks;

/// How often it did.
static BLOCKED: AtomicUsize = AtomicUsize::new(0);

impl metrics::Recorder for Blocks {
    fn describe_counter(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {}
    fn describe_gauge(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {}
    fn describe_histogram(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {}

    fn register_counter(&self, _: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Counter {
        if on_the_keeper() {
            std::thread::sleep(Duration::from_millis(150));
            BLOCKED.fetch_add(1, Ordering::SeqCst);
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

/// The warnings that keepers logged about what blocks them.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN && on_the_keeper()
    }

    fn event(&self, event: &tracing::Event<'_>) {
        struct Text(String);
        impl tracing::field::Visit for Text {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                let _ = write!(self.0, "{field}={value:?} ");
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        if text.0.contains("blocks the thread") {
            self.0.lock().unwrap().push(text.0);
        }
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// Once per client. The other tests here have recorders and keepers of their own executors.
#[test]
fn a_recorder_that_blocks_the_keeper_is_told_once() {
    let warnings = Warnings::default();
    metrics::set_global_recorder(Blocks).expect("the only one");
    tracing::subscriber::set_global_default(warnings.clone()).expect("the only one");
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    executor.block_on(async {
        for clients in 1..=2 {
            let client = Client::connect("memory:").await.unwrap();
            // When the recorder is told of the third one, whatever there is to say of the first two has been said.
            for name in ["a", "b", "c"] {
                let blocked = BLOCKED.load(Ordering::SeqCst);
                let _guard = client.mutex(name).lock().lease(Duration::from_millis(50)).await.unwrap();
                // The keeper notices the end: nothing else looks.
                until_within(Duration::from_secs(10), "the recorder is told", || BLOCKED.load(Ordering::SeqCst) > blocked);
            }
            let told = warnings.0.lock().unwrap();
            assert!(told.len() == clients && told.iter().all(|text| text.contains("took=1")), "{told:?}");
        }
    });
}
