//! Connections: a sound one is not dropped, a dead one is noticed, and nothing depends on one caller's executor.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use lockkeeper::backend::{Acquire, Attempt, Backend, Claim};
use lockkeeper::name::Name;
use lockkeeper::owner::WireOwner;
use lockkeeper::runtime::Runtime;
use lockkeeper::store::redis::{Config, RedisStore};
use lockkeeper::{Client, ErrorKind};
use tokio::time::timeout;

use crate::proxy::{Door, Fault};
use crate::site::{Site, ms, until};

async fn store(site: &Site) -> Arc<RedisStore> {
    RedisStore::connect(Config::parse(&site.url()).unwrap(), &Runtime::system()).await.expect("a connection through the proxy")
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn acquire(text: &str) -> Acquire {
    let (runtime, lease) = (Runtime::system(), Duration::from_secs(60));
    let (now, client) = (runtime.now(), runtime.client_id());
    Acquire::new(name(text), Claim::Mutex, WireOwner::new(client, 1), lease).with_times(now, now.plus(lease))
}

/// Requests that are given up early, all at once and one after the other: their answers come, only nobody waits for them any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_of_cancelled_requests_does_not_cost_a_sound_connection() {
    let Some(site) = Site::sound("cancelled requests").await else { return };
    let store = store(&site).await;
    store.inspect(name("m")).await.unwrap();
    // Far above the limit of the requests, for a busy machine, and far below the silence that makes a connection suspicious (500 ms).
    site.proxy.delay_answers(ms(200));
    let before = site.proxy.connections();
    for _ in 0..3 {
        let burst: Vec<_> = (0..300)
            .map(|_| {
                let store = Arc::clone(&store);
                tokio::spawn(async move { timeout(ms(5), store.inspect(name("m"))).await.is_err() })
            })
            .collect();
        for cancelled in burst {
            assert!(cancelled.await.unwrap(), "the server was too fast: nothing was tested");
        }
    }
    for _ in 0..120 {
        assert!(timeout(ms(5), store.inspect(name("m"))).await.is_err());
    }
    // Longer than a probe takes.
    tokio::time::sleep(ms(700)).await;
    store.inspect(name("m")).await.unwrap();
    assert_eq!(site.proxy.connections(), before, "a sound connection was dropped");
}

/// The other side of it: requests that are all given up early find out that the connection is dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_all_cancelled_early_notice_a_dead_connection() {
    let Some(site) = Site::sound("cancelled requests, dead connection").await else { return };
    let store = store(&site).await;
    site.proxy.kill_present_connections_silently();
    let began = Instant::now();
    while timeout(ms(50), store.inspect(name("m"))).await.is_err() {
        assert!(began.elapsed() < ms(3_000), "no new connection was made");
    }
}

/// Whoever is batched with others of a dead connection gives up; the batch must end with them, or its place is never free again.
#[test]
fn batches_on_silent_connections_end_with_their_members() {
    let ours = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let network = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let Some(site) = network.block_on(Site::sound("silent batches")) else { return };
    let client = ours.block_on(site.client(Client::builder().command_timeout(ms(300))));
    let storm = |wait: Duration| {
        let tasks: Vec<_> = (0..200)
            .map(|number| {
                let mutex = client.mutex(format!("m{number}"));
                ours.spawn(async move {
                    if let Ok(guard) = mutex.lock().timeout(wait).await {
                        let _ = guard.release().await;
                    }
                })
            })
            .collect();
        for task in tasks {
            ours.block_on(task).unwrap();
        }
    };
    storm(ms(5_000));
    let alive = || ours.metrics().num_alive_tasks();
    let before = alive();
    for _ in 0..3 {
        site.proxy.kill_present_connections_silently();
        storm(ms(250));
    }
    storm(ms(5_000));
    let began = Instant::now();
    while alive() > before + 3 {
        assert!(began.elapsed() < ms(10_000), "{} tasks instead of {before}", alive());
        std::thread::sleep(ms(20));
    }
}

/// A caller whose executor stands still, or is gone, was first in a batch; others of another executor do not wait for it.
async fn others_go_on_without(stopped: tokio::runtime::Runtime, end: impl FnOnce(tokio::runtime::Runtime)) {
    let Some(site) = Site::sound("a stopped executor").await else { return };
    let store = store(&site).await;
    site.proxy.delay_answers(ms(400));
    // One request is under way: from now on others are batched.
    let first = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.acquire(acquire("first")).await }
    });
    tokio::time::sleep(ms(50)).await;
    let mut left = Box::pin(store.acquire(acquire("left")));
    {
        let _inside = stopped.enter();
        assert!(pin!(&mut left).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    end(stopped);
    let began = Instant::now();
    let others: Vec<_> = (0..3)
        .map(|number| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.acquire(acquire(&format!("other{number}"))).await })
        })
        .collect();
    for other in others {
        let answer = timeout(ms(5_000), other).await.expect("it waits for an executor that does not run").unwrap();
        assert!(matches!(answer, Ok(Attempt::Granted(_))), "{answer:?}");
    }
    assert!(began.elapsed() < ms(3_000), "after {:?}", began.elapsed());
    first.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_does_not_depend_on_an_executor_that_stands_still() {
    let stopped = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    others_go_on_without(stopped, |stopped| {
        // It lives on, and nobody runs it. A runtime may not be dropped inside another.
        let _ = std::mem::ManuallyDrop::new(stopped);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_does_not_depend_on_an_executor_that_is_gone() {
    let stopped = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    others_go_on_without(stopped, tokio::runtime::Runtime::shutdown_background).await;
}

/// A connection that waits for messages sends nothing: only keepalive tells that the machine at its other end is gone.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_connection_has_tcp_keepalive() {
    let Some(site) = Site::sound("keepalive").await else { return };
    let client = Client::connect(site.url()).await.unwrap();
    let guard = client.mutex("m").lock().await.unwrap();
    let port = format!(":{:04X}", site.proxy.port);
    // The sixth column is the timer: 02 is keepalive, 01 that something is under way just now.
    let timers = || -> Vec<String> {
        let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        let rows = table.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<_>>());
        // Connections that are open (01) from us to the proxy.
        rows.filter(|row| row[2].ends_with(&port) && row[3] == "01").map(|row| row[5][..2].to_owned()).collect()
    };
    until("both connections are there and have a timer", || {
        let timers = timers();
        timers.len() >= 2 && timers.iter().all(|timer| timer == "02")
    })
    .await;
    guard.release().await.unwrap();
}

/// What the library says about one server, at WARN and INFO.
#[derive(Clone, Default)]
struct Said {
    port: Arc<std::sync::OnceLock<String>>,
    warnings: Arc<AtomicUsize>,
    infos: Arc<AtomicUsize>,
}

impl tracing::Subscriber for Said {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::INFO && metadata.is_event()
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Text(String);
        impl tracing::field::Visit for Text {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0.push_str(&format!("{field}={value:?} "));
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        assert!(!text.0.contains("hunter2"), "{}", text.0);
        // Other tests of this binary speak of other servers.
        if self.port.get().is_some_and(|port| text.0.contains(port) && text.0.contains("message=the store")) {
            let count = if *event.metadata().level() == tracing::Level::WARN { &self.warnings } else { &self.infos };
            count.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_is_told_once_and_its_end_once() {
    let said = Said::default();
    tracing::subscriber::set_global_default(said.clone()).expect("no other test of this binary listens");
    let Some(site) = Site::on("an outage is told", &["--requirepass", "hunter2"], None).await else { return };
    said.port.set(format!(":{}", site.proxy.port)).unwrap();
    let url = format!("redis://:hunter2@127.0.0.1:{}", site.proxy.port);
    let client = Client::builder().lease(Duration::from_secs(20)).connect(&url).await.unwrap();
    let guard = client.mutex("held").lock().await.unwrap();
    let counts = || (said.warnings.load(Ordering::SeqCst), said.infos.load(Ordering::SeqCst));
    // A connection that breaks and is made again at once is no outage.
    site.proxy.reset_present_connections();
    let next = client.mutex("m").lock().timeout(ms(5_000)).await.unwrap();
    next.release().await.unwrap();
    assert_eq!(counts(), (0, 0));
    for outage in 1..=2 {
        site.proxy.set_door(Door::Resets);
        site.proxy.reset_present_connections();
        for number in 0..20 {
            let error = client.mutex(format!("m{number}")).lock().timeout(ms(50)).await.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate), "{error}");
        }
        assert_eq!(counts(), (outage, outage - 1), "outage {outage}");
        site.proxy.set_door(Door::Open);
        client.mutex("m").lock().timeout(ms(10_000)).await.unwrap().release().await.unwrap();
        until("its end is told", || counts() == (outage, outage)).await;
    }
    guard.release().await.unwrap();
}

/// A connection that is accepted and then falls silent: another one is made beside it, before the silent one counts as failed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_falls_silent_while_it_is_made_delays_nobody_for_long() {
    let Some(site) = Site::sound("silent greeting").await else { return };
    let store = store(&site).await;
    let mut fastest = Duration::MAX;
    for _ in 0..5 {
        store.inspect(name("m")).await.unwrap();
        site.proxy.next("HELLO", Fault::Hold);
        site.proxy.reset_present_connections();
        until("the next connection has fallen silent", || site.proxy.met()).await;
        let began = Instant::now();
        while store.inspect(name("m")).await.is_err() {
            assert!(began.elapsed() < Duration::from_secs(60), "no connection is made");
        }
        fastest = fastest.min(began.elapsed());
    }
    // The fastest: on a busy machine one of them may take longer for other reasons.
    assert!(fastest < ms(1_500), "{fastest:?}");
}
