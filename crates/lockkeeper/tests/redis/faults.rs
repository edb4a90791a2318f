//! Faults on the wire: an answer that never comes must neither leave a lock behind nor take one twice.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::{Client, ErrorKind};
use redis::Commands;

use crate::proxy::Proxy;
use crate::server::{Flavour, Server};

/// A server, a proxy before it, a client through the proxy, and a plain connection beside it. `None`: skipped, and said so.
async fn behind_a_proxy(test: &str) -> Option<(Arc<Server>, Proxy, Client, redis::Connection)> {
    if let Some(why) = Server::missing(Flavour::Redis) {
        lockkeeper::conformance::skip(test, &why);
        return None;
    }
    let server = Arc::new(Server::start(Flavour::Redis));
    let proxy = Proxy::start(server.port).await;
    let client = Client::builder()
        .command_timeout(Duration::from_secs(1))
        .connect(format!("redis://127.0.0.1:{}", proxy.port))
        .await
        .expect("a connection through the proxy");
    let eyes = redis::Client::open(server.url(0)).unwrap().get_connection().unwrap();
    Some((server, proxy, client, eyes))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_whose_answer_is_lost_is_asked_again_and_held_once() {
    let Some((_server, proxy, client, mut eyes)) = behind_a_proxy("acquire reply lost").await else { return };
    // The server has the script already, so that the next EVALSHA is the acquire itself.
    client.mutex("warm").lock().await.unwrap().release().await.unwrap();
    proxy.lose_reply_to("EVALSHA");
    let guard = client.mutex("m").lock().await.unwrap();
    assert!(proxy.has_lost_it(), "the fault was not met: nothing was tested");
    let held: Vec<(String, i64)> = eyes.hgetall("m").unwrap();
    assert_eq!(held, [(guard.owner().to_string(), 1)], "one owner, once");
    guard.release().await.unwrap();
    assert!(!eyes.exists::<_, bool>("m").unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_whose_answer_is_lost_finds_its_own_grant() {
    let Some((_server, proxy, client, _eyes)) = behind_a_proxy("try reply lost").await else { return };
    client.mutex("warm").lock().await.unwrap().release().await.unwrap();
    proxy.lose_reply_to("EVALSHA");
    let guard = client.mutex("m").try_lock().await.unwrap();
    assert!(proxy.has_lost_it() && guard.is_some(), "the lock was ours all the time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_whose_answer_is_lost_is_a_success() {
    let Some((_server, proxy, client, mut eyes)) = behind_a_proxy("release reply lost").await else { return };
    client.mutex("warm").lock().await.unwrap().release().await.unwrap();
    let guard = client.mutex("m").lock().await.unwrap();
    proxy.lose_reply_to("EVALSHA");
    guard.release().await.unwrap();
    assert!(proxy.has_lost_it());
    assert!(!eyes.exists::<_, bool>("m").unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_server_costs_the_wait_limit_and_leaves_nothing() {
    let Some((_server, proxy, client, mut eyes)) = behind_a_proxy("silent server").await else { return };
    let mutex = client.mutex("m");
    proxy.fall_silent(true);
    let began = std::time::Instant::now();
    let error = mutex.lock().wait(Duration::from_millis(700)).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate), "not held by others: {error:?}");
    assert!(began.elapsed() < Duration::from_secs(3), "took {:?}", began.elapsed());
    proxy.fall_silent(false);
    let guard = mutex.lock().wait(Duration::from_secs(5)).await.expect("the client recovers by itself");
    guard.release().await.unwrap();
    assert!(!eyes.exists::<_, bool>("m").unwrap());
}
