//! The ZooKeeper store on real servers: the contract, sessions that end, connections that break, and Curator beside us.
#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]
#![allow(clippy::duplicate_mod, reason = "the contract is tested on two releases")]

mod alone;
mod contract;
#[path = "../etcd/counting.rs"]
mod counting;
mod curator;
mod doubled;
mod ensemble;
mod faults;
mod foreign;
#[path = "../etcd/groups.rs"]
mod groups;
mod handed;
mod harness;
mod input;
mod java;
mod killed;
mod large;
#[path = "../etcd/long_queue.rs"]
mod long_queue;
mod loss;
mod moved;
mod partition;
mod rights;
mod sasl;
mod site;
#[path = "../etcd/skipped.rs"]
mod skipped;
mod stopped;
#[cfg(feature = "zookeeper-tls")]
mod tls;
mod watched;
mod zookeeper_3_9;

use std::sync::Arc;

use lockkeeper::backend::Backend as _;
use lockkeeper::runtime::Runtime;
use lockkeeper::store::zookeeper::{Config, ZookeeperStore};
use lockkeeper_testkit::zookeeper::Release;

const RELEASE: Release = Release::Debian;

async fn open(url: &str) -> Arc<ZookeeperStore> {
    ZookeeperStore::connect(Config::parse(url).expect("a good URL"), &Runtime::system()).await.expect("a running server")
}

#[tokio::test]
async fn the_page_lists_what_is_skipped() {
    let Some(server) = site::server("the page of ZooKeeper") else { return };
    let store = open(&site::fresh_url(&server, "6s").await).await;
    skipped::compare("zookeeper.md", &store.capabilities());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_waiters_stand_in_the_queue_of_the_server_and_are_served_in_order() {
    let Some(server) = site::server("a queue of five hundred") else { return };
    let (folder, raw) = (site::fresh_folder(&server).await, site::raw(&server).await);
    let url = format!("zookeeper://{}/{folder}?session=30s", server.hosts());
    let (first, second) = (open(&url).await, open(&url).await);
    let path = format!("/{folder}/crowd");
    let nodes = async || site::nodes(&raw, &path).await.len();
    let name = lockkeeper::name::Name::new("crowd").expect("a good name");
    long_queue::five_hundred_waiters_are_served_in_order(&*first, &*second, &name, nodes).await;
}
