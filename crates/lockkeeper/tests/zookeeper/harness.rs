//! A server for the cases of the contract.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::backend::Backend;
use lockkeeper::conformance::{Harness, Time};
use lockkeeper::runtime::Runtime;
use lockkeeper::store::zookeeper::{Config, ZookeeperStore};
use lockkeeper_testkit::zookeeper::ZooKeeper;

use super::RELEASE;
use crate::site;

/// Holds the server for as long as the case runs; or says why there is none.
pub(crate) struct OnZooKeeper(Result<Arc<ZooKeeper>, String>);

impl OnZooKeeper {
    pub(crate) fn new() -> Self {
        Self(RELEASE.missing().map_or_else(|| Ok(ZooKeeper::shared_of(RELEASE)), Err))
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
