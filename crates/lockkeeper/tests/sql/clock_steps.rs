//! A server whose clock is set forward or back by an hour while clients are connected. Their own clocks run on.

use std::time::Duration;

use lockkeeper::backend::Attempt;
use lockkeeper::{Client, ErrorKind};
use lockkeeper_testkit::poll::async_until_within;

use super::bench::{Bench, ask, is_granted};
use super::faults::behind;

const HOUR: i64 = 3_600;
const LONG: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_clock_that_is_set_forward_ends_leases_and_holders_are_told() {
    let Some((bench, clock)) = Bench::under_a_clock("a clock that is set forward").await else { return };
    let lease = Duration::from_secs(60);
    let builder = || Client::builder().lease(lease);
    let (ours, theirs) = (builder().connect(&bench.url).await.unwrap(), builder().connect(&bench.url).await.unwrap());
    let (kept, guard) = (ours.mutex("kept").lock().await.unwrap(), ours.mutex("m").lock().await.unwrap());
    assert!(theirs.mutex("m").try_lock().await.unwrap().is_none());
    clock.set(HOUR);
    // Long before the lease ends by any other clock.
    let next = theirs.mutex("m").lock().timeout(LONG).await.expect("the lease has ended");
    assert!(next.token() > guard.token(), "{:?} after {:?}", next.token(), guard.token());
    let error = guard.extend(lease).await.expect_err("a later holder has it");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error:?}");
    assert!(!guard.is_valid());
    // Grants after the step are as good as before it.
    assert!(ours.mutex("m").try_lock().await.unwrap().is_none());
    next.release().await.unwrap();
    ours.mutex("m").lock().timeout(LONG).await.unwrap().release().await.unwrap();
    drop(kept);
}

/// The second renewal after the step brings the end back, so that a crash blocks others for a lease. The control is not renewed.
#[tokio::test]
async fn a_clock_that_is_set_back_costs_no_lock_and_blocks_nobody_for_long() {
    let Some((bench, clock)) = Bench::under_a_clock("a clock that is set back").await else { return };
    let lease = Duration::from_millis(1_500);
    let (proxy, store) = behind(&bench).await;
    drop(store);
    let url = bench.url.replace(&format!(":{}/", bench.server.port), &format!(":{}/", proxy.port));
    let ours = Client::builder().lease(lease).connect(&url).await.unwrap();
    let theirs = Client::builder().lease(lease).connect(&bench.url).await.unwrap();
    let guard = ours.mutex("m").lock().await.unwrap();
    let mut control = bench.ask("control", 1);
    control.lease = lease;
    assert!(is_granted(bench.store.acquire(control).await.unwrap()));
    clock.set(-HOUR);
    assert!(theirs.mutex("m").try_lock().await.unwrap().is_none(), "held as before");
    tokio::time::sleep(lease * 2).await;
    assert!(guard.is_valid(), "renewed as before");
    assert!(theirs.mutex("m").try_lock().await.unwrap().is_none(), "held as before");
    // As if the process had crashed.
    proxy.fall_silent(true);
    let next = theirs.mutex("m").lock().timeout(lease * 4).await.expect("the lease has ended");
    assert!(next.token() > guard.token(), "{:?} after {:?}", next.token(), guard.token());
    next.release().await.unwrap();
    let attempt = bench.store.acquire(ask(&bench.runtime, "control", 2)).await.unwrap();
    assert!(matches!(attempt, Attempt::Busy(_)), "the clock was not set back, or nobody had to renew: {attempt:?}");
    // Set right again, it ends.
    clock.set(0);
    let free = async || is_granted(bench.store.acquire(ask(&bench.runtime, "control", 2)).await.unwrap());
    async_until_within(LONG, "granted by the right time", free).await;
}
