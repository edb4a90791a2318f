//! What is measured from outside: the documented metrics, with their documented names.

#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]

use std::collections::BTreeMap;
use std::time::Duration;

use lockkeeper::Client;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

/// The metrics that were recorded while `work` ran, by name and labels; histograms by how many values they got.
fn measured<F: Future<Output = ()>>(work: F) -> BTreeMap<String, u64> {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    metrics::with_local_recorder(&recorder, || executor.block_on(work));
    let found = snapshots.snapshot().into_vec().into_iter().map(|(key, _, _, value)| {
        let (_, key) = key.into_parts();
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let value = match value {
            DebugValue::Counter(count) => count,
            DebugValue::Histogram(values) => values.len() as u64,
            DebugValue::Gauge(_) => 0,
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
        ("lockkeeper_wait_seconds{kind=mutex,outcome=gave_up}", 1),
        ("lockkeeper_wait_seconds{kind=semaphore,outcome=acquired}", 1),
    ];
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
