//! The etcd store on real servers: the contract, loss of sessions and connections, members that fail, and locks shared with `etcdctl` and Go.
#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]
#![allow(clippy::duplicate_mod, reason = "some tests run on two releases")]

mod bench;
mod beside;
mod contract;
mod counting;
mod doctor;
mod etcd_new;
mod groups;
mod harness;
mod killed;
mod late;
mod long_queue;
mod loss;
mod partition;
mod skipped;
mod stopped;
mod tls;
mod trouble;

use std::sync::Arc;

use lockkeeper::backend::Backend as _;
use lockkeeper::runtime::Runtime;
use lockkeeper::store::etcd::{Config, EtcdStore};
use lockkeeper_testkit::etcd::Release;

const RELEASE: Release = Release::Path;

async fn open(url: &str) -> Arc<EtcdStore> {
    EtcdStore::connect(Config::parse(url).expect("a good URL"), &Runtime::system()).await.expect("a running server")
}

#[tokio::test]
async fn the_page_lists_what_is_skipped() {
    let Some(server) = bench::shared("the page of etcd") else { return };
    let store = open(&server.url()).await;
    skipped::compare("etcd.md", &store.capabilities());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_waiters_stand_in_the_queue_of_the_server_and_are_served_in_order() {
    let Some(server) = bench::shared("a queue of five hundred") else { return };
    let url = format!("etcd://{}?session=60s", server.hosts());
    let (first, second) = (open(&url).await, open(&url).await);
    let name = bench::fresh("crowd");
    let nodes = async || server.keys(&format!("{name}/")).len();
    let name = lockkeeper::name::Name::new(&*name).expect("a good name");
    long_queue::five_hundred_waiters_are_served_in_order(&*first, &*second, &name, nodes).await;
}
