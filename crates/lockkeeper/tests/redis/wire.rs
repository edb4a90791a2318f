//! What others see on the server: Redisson's key, field, lease and channel, and the two keys of our own.

use std::time::Duration;

use lockkeeper::{Client, ErrorKind};
use redis::Commands;

use crate::server::Server;

/// A client on a fresh database, and a plain connection beside it. `None`: skipped, and said so.
async fn fresh(test: &str) -> Option<(std::sync::Arc<Server>, Client, redis::Connection)> {
    if let Some(why) = Server::missing() {
        lockkeeper::conformance::skip(test, &why);
        return None;
    }
    let server = Server::shared();
    let url = server.fresh_url();
    let client = Client::connect(&url).await.unwrap();
    Some((server, client, redis::Client::open(url).unwrap().get_connection().unwrap()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mutex_is_redissons_hash_with_its_lease() {
    let Some((_server, client, mut eyes)) = fresh("wire of a mutex").await else { return };
    for name in ["orders", "{orders}:42"] {
        let guard = client.mutex(name).lock().await.unwrap();
        let fields: Vec<(String, String)> = eyes.hgetall(name).unwrap();
        assert_eq!(fields, [(guard.owner().to_string(), "1".to_owned())]);
        let lease: i64 = eyes.pttl(name).unwrap();
        assert!((29_000..=30_000).contains(&lease), "{lease}");
        guard.release().await.unwrap();
        assert!(!eyes.exists::<_, bool>(name).unwrap());
    }
    let mut keys: Vec<String> = eyes.keys("*").unwrap();
    keys.retain(|key| !key.starts_with("lockkeeper:client:"));
    assert_eq!(keys, ["lockkeeper:token"], "nothing else is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_publishes_on_redissons_channel() {
    let Some((server, client, _eyes)) = fresh("wire of a release").await else { return };
    for (name, channel) in [("wire-a", "redisson_lock__channel:{wire-a}"), ("{wire}-b", "redisson_lock__channel:{wire}-b")] {
        let mut listener = redis::Client::open(server.url(0)).unwrap().get_connection().unwrap();
        listener.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut listener = listener.as_pubsub();
        listener.subscribe(channel).unwrap();
        client.mutex(name).lock().await.unwrap().release().await.unwrap();
        assert_eq!(listener.get_message().unwrap().get_payload::<String>().unwrap(), "0");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_lock_is_a_typed_error() {
    let Some((_server, client, mut eyes)) = fresh("foreign keys").await else { return };
    eyes.set::<_, _, ()>("text", "x").unwrap();
    eyes.hset::<_, _, _, ()>("forever", "somebody", 1).unwrap();
    eyes.hset::<_, _, _, ()>("rw", "mode", "read").unwrap();
    eyes.pexpire::<_, ()>("rw", 60_000).unwrap();
    for (name, kind) in [("text", ErrorKind::ForeignKey), ("forever", ErrorKind::ForeignKey), ("rw", ErrorKind::WrongKind)] {
        let error = client.mutex(name).lock().wait(Duration::from_secs(1)).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{name}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_although_the_server_forgot_everything() {
    let Some((_server, client, mut eyes)) = fresh("tokens").await else { return };
    let before = client.mutex("m").lock().await.unwrap();
    redis::cmd("FLUSHDB").exec(&mut eyes).unwrap();
    let after = client.with_prefix("").mutex("other").lock().await.unwrap();
    assert!(after.token().number() > before.token().number());
    redis::cmd("SCRIPT").arg("FLUSH").exec(&mut eyes).unwrap();
    let again = client.mutex("third").lock().await.expect("scripts are sent again");
    assert!(again.token().number() > after.token().number());
}
