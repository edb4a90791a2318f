//! P3, P4: a client that cannot reach the server knows that its hold is over before the server can give it to another. In 50 of 50 runs, each cut off at
//! another moment; and the driver's own notice, which comes after 1.4 sessions, is too late.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_testkit::proxy::Proxy;
use lockkeeper_testkit::zookeeper::ZooKeeper;
use tokio::time::{Instant, sleep, timeout};
use zookeeper_client::{Acls, Client, CreateMode, SessionState};

use crate::site;

const RUNS: u64 = 50;
const TOGETHER: u64 = 10;

/// When it was told, and when another got it.
#[derive(Debug)]
struct Times {
    told: Instant,
    granted: Instant,
}

/// The seed of the random moments: another one each time, or `LOCKKEEPER_SEED`. Printed, so that a failure can be repeated.
fn seed(test: &str) -> u64 {
    let told = std::env::var("LOCKKEEPER_SEED").ok().map(|seed| seed.parse().expect("LOCKKEEPER_SEED is a number"));
    let seed = told.unwrap_or_else(|| RandomState::new().hash_one(test));
    println!("{test}: LOCKKEEPER_SEED={seed}");
    seed
}

/// Waits for a random time between two keep-alives, another one in each run.
async fn some_moment(seed: u64, run: u64) {
    let millis = fastrand::Rng::with_seed(seed.wrapping_add(run)).u64(200..900);
    sleep(Duration::from_millis(millis)).await;
}

async fn our_loss(server: Arc<ZooKeeper>, seed: u64, run: u64) -> Times {
    let (proxy, folder) = (Proxy::start(server.ports()[0]).await, site::fresh_folder(&server).await);
    let ours = site::client(&format!("zookeeper://127.0.0.1:{}/{folder}?session=2s", proxy.port)).await;
    let rival = site::client(&format!("zookeeper://{}/{folder}?session=4s", server.hosts())).await;
    let guard = ours.mutex("m").lock().await.unwrap();
    let waiting = tokio::spawn(async move {
        let guard = rival.mutex("m").lock().await.unwrap();
        (Instant::now(), guard)
    });
    some_moment(seed, run).await;
    proxy.fall_silent(true);
    timeout(Duration::from_secs(20), guard.lost()).await.expect("the loss is told");
    let told = Instant::now();
    assert!(!guard.is_valid());
    let (granted, next) = timeout(Duration::from_secs(20), waiting).await.expect("granted").unwrap();
    next.release().await.unwrap();
    Times { told, granted }
}

/// The same with what the driver itself says of its session.
async fn loss_by_the_driver(server: Arc<ZooKeeper>, seed: u64, run: u64) -> Times {
    let (proxy, folder) = (Proxy::start(server.ports()[0]).await, site::fresh_folder(&server).await);
    let connect = |port: u16, session| {
        let cluster = format!("127.0.0.1:{port}/{folder}");
        async move { Client::connector().with_session_timeout(session).connect(&cluster).await.unwrap() }
    };
    let ours = connect(proxy.port, Duration::from_secs(2)).await;
    let rival = connect(server.ports()[0], Duration::from_secs(4)).await;
    ours.create("/held", &[], &CreateMode::Ephemeral.with_acls(Acls::anyone_all())).await.unwrap();
    let (_, _, deleted) = rival.get_and_watch_data("/held").await.unwrap();
    let waiting = tokio::spawn(async move {
        deleted.changed().await;
        Instant::now()
    });
    some_moment(seed, run).await;
    proxy.fall_silent(true);
    let mut states = ours.state_watcher();
    while states.changed().await != SessionState::Expired {}
    let told = Instant::now();
    Times { told, granted: waiting.await.unwrap() }
}

async fn runs<F: Future<Output = Times> + Send + 'static>(number: u64, run: impl Fn(u64) -> F) -> Vec<Times> {
    let mut times = Vec::new();
    for batch in 0..number.div_ceil(TOGETHER) {
        let together: Vec<_> = (0..TOGETHER).map(|each| tokio::spawn(run(batch * TOGETHER + each))).collect();
        for one in together {
            times.push(one.await.expect("no panic"));
        }
    }
    times
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_server_gives_a_hold_to_nobody_before_its_loss_is_told() {
    let Some(server) = site::server("loss") else { return };
    let seed = seed("an unreachable server");
    let times = runs(RUNS, |run| our_loss(Arc::clone(&server), seed, run)).await;
    let late: Vec<_> = times.iter().filter(|times| times.told >= times.granted).collect();
    let margin = times.iter().map(|times| times.granted.saturating_duration_since(times.told)).min();
    println!("{} runs, {} told late, smallest margin {margin:?}", times.len(), late.len());
    assert!(late.is_empty() && times.len() == 50, "{late:?}");
}

/// The negative control: the same measurement notices a client that trusts the driver.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_notice_of_the_driver_comes_too_late() {
    let Some(server) = site::server("loss") else { return };
    let seed = seed("the driver's notice");
    let times = runs(10, |run| loss_by_the_driver(Arc::clone(&server), seed, run)).await;
    let late = times.iter().filter(|times| times.told >= times.granted).count();
    println!("{} runs, {late} told late", times.len());
    assert!(late > 0, "{times:?}");
}
