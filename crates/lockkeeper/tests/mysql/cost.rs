//! What an uncontended lock costs: round trips, as a proxy before the server counts them.

use std::time::Duration;

use lockkeeper::Client;
use lockkeeper_testkit::proxy::Proxy;

use super::bench::Bench;

#[tokio::test]
async fn a_lock_and_its_release_are_one_round_trip_each() {
    let Some(bench) = Bench::open("the cost of a lock").await else { return };
    let proxy = Proxy::start(bench.server.port).await;
    let url = bench.url.replace(&format!(":{}/", bench.server.port), &format!(":{}/", proxy.port));
    // A hold is renewed long after the test.
    let client = Client::builder().lease(Duration::from_secs(600)).connect(&url).await.unwrap();
    // Connected; the second one is held until the keeper has told who it is, and asks for nothing any more.
    client.mutex("known").lock().await.unwrap().release().await.unwrap();
    let guard = client.mutex("known").lock().await.unwrap();
    let (mut last, mut quiet) = (proxy.round_trips(), 0);
    while quiet < 10 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = proxy.round_trips();
        (quiet, last) = (if now == last { quiet + 1 } else { 0 }, now);
    }
    guard.release().await.unwrap();
    for name in ["known", "fresh"] {
        let before = proxy.round_trips();
        let guard = client.mutex(name).lock().await.unwrap();
        let locked = proxy.round_trips();
        assert_eq!(locked - before, 1, "{name}: lock");
        guard.release().await.unwrap();
        assert_eq!(proxy.round_trips() - locked, 1, "{name}: release");
    }
    // The control: two names take at least one round trip to lock their rows and one to write them.
    let before = proxy.round_trips();
    let both = client.multi_lock(["known", "fresh"]).lock().await.unwrap();
    assert!(proxy.round_trips() - before >= 2, "two names");
    both.release().await.unwrap();
}
