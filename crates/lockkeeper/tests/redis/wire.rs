//! What others see on the server: Redisson's key, field, lease and channel, and the two keys of our own.

use std::time::Duration;

use lockkeeper::{Client, ErrorKind};
use redis::Commands;

use crate::server::{Flavour, Server};

/// A client on a fresh database, and a plain connection beside it. `None`: skipped, and said so.
async fn fresh(flavour: Flavour, test: &str) -> Option<(std::sync::Arc<Server>, Client, redis::Connection)> {
    if let Some(why) = Server::missing(flavour) {
        lockkeeper::conformance::skip(test, &why);
        return None;
    }
    let server = Server::shared(flavour);
    let url = server.fresh_url();
    let client = Client::connect(&url).await.unwrap();
    Some((server, client, redis::Client::open(url).unwrap().get_connection().unwrap()))
}

async fn a_mutex_is_redissons_hash_with_its_lease(flavour: Flavour) {
    let Some((_server, client, mut eyes)) = fresh(flavour, "wire of a mutex").await else { return };
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

async fn a_release_publishes_on_redissons_channel(flavour: Flavour) {
    let Some((server, client, _eyes)) = fresh(flavour, "wire of a release").await else { return };
    for (name, channel) in [("wire-a", "redisson_lock__channel:{wire-a}"), ("{wire}-b", "redisson_lock__channel:{wire}-b")] {
        let mut listener = redis::Client::open(server.url(0)).unwrap().get_connection().unwrap();
        listener.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut listener = listener.as_pubsub();
        listener.subscribe(channel).unwrap();
        client.mutex(name).lock().await.unwrap().release().await.unwrap();
        assert_eq!(listener.get_message().unwrap().get_payload::<String>().unwrap(), "0");
    }
}

async fn what_is_no_lock_is_a_typed_error(flavour: Flavour) {
    let Some((_server, client, mut eyes)) = fresh(flavour, "foreign keys").await else { return };
    eyes.set::<_, _, ()>("text", "x").unwrap();
    eyes.hset::<_, _, _, ()>("forever", "somebody", 1).unwrap();
    eyes.hset::<_, _, _, ()>("rw", "mode", "read").unwrap();
    eyes.hset::<_, _, _, ()>("rw", "8d5b1c6e-0a3f-4f0e-9d1b-6b1b2f3c4d5e:33", 1).unwrap();
    eyes.pexpire::<_, ()>("rw", 60_000).unwrap();
    for (name, kind) in [("text", ErrorKind::ForeignKey), ("forever", ErrorKind::ForeignKey), ("rw", ErrorKind::WrongKind)] {
        let error = client.mutex(name).lock().timeout(Duration::from_secs(1)).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{name}: {error}");
    }
}

async fn tokens_grow_although_the_server_forgot_everything(flavour: Flavour) {
    let Some((_server, client, mut eyes)) = fresh(flavour, "tokens").await else { return };
    let before = client.mutex("m").lock().await.unwrap();
    redis::cmd("FLUSHDB").exec(&mut eyes).unwrap();
    let after = client.with_prefix("").mutex("other").lock().await.unwrap();
    assert!(after.token().unwrap().number() > before.token().unwrap().number());
    redis::cmd("SCRIPT").arg("FLUSH").exec(&mut eyes).unwrap();
    let again = client.mutex("third").lock().await.expect("scripts are sent again");
    assert!(again.token().unwrap().number() > after.token().unwrap().number());
}

async fn the_server_is_the_one_we_mean(flavour: Flavour) {
    let Some((_server, _client, mut eyes)) = fresh(flavour, "version").await else { return };
    let info: String = redis::cmd("INFO").arg("server").query(&mut eyes).unwrap();
    let valkey = info.lines().find_map(|line| line.strip_prefix("valkey_version:"));
    let version = valkey.or_else(|| info.lines().find_map(|line| line.strip_prefix("redis_version:"))).expect("a version");
    let (is_valkey, old) = (valkey.is_some(), version.starts_with("6.2."));
    assert_eq!((is_valkey, old), (matches!(flavour, Flavour::Valkey), matches!(flavour, Flavour::Redis62)), "{version}");
}

async fn what_the_server_refuses_inside_a_script_is_a_typed_error(flavour: Flavour) {
    if let Some(why) = Server::missing(flavour) {
        lockkeeper::conformance::skip("refusals", &why);
        return;
    }
    // Its settings change, so nobody shares it.
    let server = Server::start(flavour);
    let mut eyes = redis::Client::open(server.url(0)).unwrap().get_connection().unwrap();
    let mut tell = |line: &str| {
        let mut words = line.split(' ');
        redis::cmd(words.next().unwrap()).arg(words.collect::<Vec<_>>()).exec(&mut eyes).unwrap();
    };
    let refusal = async |client: &Client| {
        let error = client.mutex("m").lock().timeout(Duration::from_millis(200)).await.unwrap_err();
        (error.kind(), error.to_string())
    };
    tell("ACL SETUSER limited on >secret ~* &* +@all");
    let limited = Client::connect(format!("redis://limited:secret@127.0.0.1:{}", server.port)).await.unwrap();
    // Taken away after the self-test, which would have named it.
    tell("ACL SETUSER limited -hset -pexpire");
    let (kind, text) = refusal(&limited).await;
    assert_eq!(kind, ErrorKind::Denied, "{text}");
    let client = Client::connect(server.url(0)).await.unwrap();
    let refusals = [
        ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"),
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
    ];
    // Redis 6.2 does not ask for replicas inside a script.
    for (refuse, allow) in refusals.into_iter().skip(usize::from(matches!(flavour, Flavour::Redis62))) {
        tell(refuse);
        let (kind, text) = refusal(&client).await;
        assert_eq!(kind, ErrorKind::Unavailable, "{refuse}: {text}");
        tell(allow);
        client.mutex("m").lock().await.unwrap().release().await.unwrap();
    }
}

/// Makes one test of each of these for each server.
macro_rules! on_each_server {
    ($($test:ident),* $(,)?) => {
        on_each_server!(on_redis Redis: $($test)*);
        on_each_server!(on_redis_6_2 Redis62: $($test)*);
        on_each_server!(on_valkey Valkey: $($test)*);
        on_each_server!(on_redis_8 Redis8: $($test)*);
    };
    ($server:ident $flavour:ident: $($test:ident)*) => {
        mod $server {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test(crate::server::Flavour::$flavour).await;
                }
            )*
        }
    };
}

on_each_server!(
    the_server_is_the_one_we_mean,
    what_the_server_refuses_inside_a_script_is_a_typed_error,
    a_mutex_is_redissons_hash_with_its_lease,
    a_release_publishes_on_redissons_channel,
    what_is_no_lock_is_a_typed_error,
    tokens_grow_although_the_server_forgot_everything,
);
