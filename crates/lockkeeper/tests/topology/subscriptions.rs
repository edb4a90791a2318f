//! The subscriptions of a cluster's servers: they come back by themselves.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::backend::{Backend, Kind, Watch};
use lockkeeper::name::Name;
use lockkeeper::runtime::Runtime;
use lockkeeper::store::redis::{Config, RedisStore};
use lockkeeper::{Client, ErrorKind};

use crate::harness::{eyes, skipped, tell, until};
use crate::server::Flavour;
use lockkeeper_testkit::cluster::Cluster;

/// Of a name in slot 15495, which the third server serves.
const CHANNEL: &str = "redisson_lock__channel:{a}";

async fn started() -> Cluster {
    tokio::task::spawn_blocking(|| Cluster::start(Flavour::Redis)).await.unwrap()
}

fn subscribers(port: u16) -> u64 {
    tell::<(String, u64)>(&mut eyes(port), &format!("PUBSUB SHARDNUMSUB {CHANNEL}")).unwrap().1
}

/// On a connection that only subscribes no request would notice that the server is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_server_that_was_away_for_two_seconds_is_listened_to_again() {
    if skipped("a restarted server of a cluster", Flavour::Redis) {
        return;
    }
    let mut cluster = started().await;
    // It comes back itself; nobody takes its place.
    for replica in &cluster.servers[3..] {
        tell::<()>(&mut eyes(replica.port), "CONFIG SET cluster-replica-no-failover yes").unwrap();
    }
    let store: Arc<RedisStore> = RedisStore::connect(Config::parse(&cluster.url()).unwrap(), &Runtime::system()).await.unwrap();
    let owner = "00000000-0000-0000-0000-000000000001:1".parse().unwrap();
    let watch = Watch::number(Name::new("a").unwrap(), Kind::Mutex, owner);
    let _subscription = store.watch(watch).await.unwrap();
    let port = cluster.servers[2].port;
    assert_eq!(subscribers(port), 1);
    cluster.servers[2].kill();
    tokio::time::sleep(Duration::from_secs(2)).await;
    cluster.servers[2].start_again();
    until("it is listened to again", || subscribers(port) == 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_a_cluster_is_refused_as_a_single_server() {
    if skipped("a cluster's server by itself", Flavour::Redis) {
        return;
    }
    let cluster = started().await;
    let error = Client::connect(format!("redis://127.0.0.1:{}", cluster.servers[0].port)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error:?}");
    assert!(error.to_string().contains("redis+cluster://127.0.0.1:"), "{error}");
}
