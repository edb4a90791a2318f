//! The ZooKeeper store on real servers: the contract, sessions that end, connections that break, and Curator beside us.
#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]

mod alone;
#[path = "../etcd/counting.rs"]
mod counting;
mod curator;
mod doubled;
mod ensemble;
mod faults;
mod foreign;
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

mod contract {
    //! The ZooKeeper store keeps the contract.

    use std::sync::Arc;
    use std::time::Duration;

    use lockkeeper::backend::Backend;
    use lockkeeper::conformance::{Harness, Time};
    use lockkeeper::runtime::Runtime;
    use lockkeeper::store::zookeeper::{Config, ZookeeperStore};
    use lockkeeper_testkit::zookeeper::ZooKeeper;

    use crate::site;

    /// Holds the server for as long as the case runs; or says why there is none.
    struct OnZooKeeper(Result<Arc<ZooKeeper>, String>);

    impl OnZooKeeper {
        fn new() -> Self {
            Self(ZooKeeper::missing().map_or_else(|| Ok(ZooKeeper::shared()), Err))
        }
    }

    impl Harness for OnZooKeeper {
        /// As for PostgreSQL: a step is a transaction of another process, beside those of other cases.
        fn time(&self) -> Time {
            Time::Crowded
        }

        /// Half of that: with sessions of 20 units, as the cases expect, they take a minute together.
        fn unit(&self) -> Duration {
            Duration::from_millis(100)
        }

        fn missing(&self) -> Option<String> {
            self.0.as_ref().err().cloned()
        }

        async fn open(&self, runtime: Runtime) -> Arc<dyn Backend> {
            let server = self.0.as_ref().expect("not missing");
            let config = Config::parse(&site::fresh_url(server, "2800ms").await).expect("a good URL");
            ZookeeperStore::connect(config, &runtime).await.expect("a running server")
        }

        fn connect(&self, store: &Arc<dyn Backend>) -> Arc<dyn Backend> {
            let store =
                store.extension().and_then(|store| store.downcast_ref::<ZookeeperStore>()).expect("the store that was opened");
            store.another().expect("a thread")
        }
    }

    lockkeeper::conformance!(OnZooKeeper::new());

    #[tokio::test]
    async fn the_page_lists_what_is_skipped() {
        let Some(server) = site::server("the page of ZooKeeper") else { return };
        let config = Config::parse(&site::fresh_url(&server, "6s").await).expect("a good URL");
        let store = ZookeeperStore::connect(config, &Runtime::system()).await.expect("a running server");
        crate::skipped::compare("zookeeper.md", &store.capabilities());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn five_hundred_waiters_stand_in_the_queue_of_the_server_and_are_served_in_order() {
        let Some(server) = site::server("a queue of five hundred") else { return };
        let (folder, raw) = (site::fresh_folder(&server).await, site::raw(&server).await);
        let url = format!("zookeeper://{}/{folder}?session=30s", server.hosts());
        let open = async || {
            let config = Config::parse(&url).expect("a good URL");
            ZookeeperStore::connect(config, &Runtime::system()).await.expect("a running server")
        };
        let (first, second) = (open().await, open().await);
        let path = format!("/{folder}/crowd");
        let nodes = async || site::nodes(&raw, &path).await.len();
        let name = lockkeeper::name::Name::new("crowd").expect("a good name");
        crate::long_queue::five_hundred_waiters_are_served_in_order(&*first, &*second, &name, nodes).await;
    }
}
