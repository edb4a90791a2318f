//! A server for the cases of the contract.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lockkeeper::backend::Backend;
use lockkeeper::conformance::{Harness, Time};
use lockkeeper::runtime::Runtime;
use lockkeeper::store::etcd::{Config, EtcdStore};
use lockkeeper_testkit::etcd::Etcd;

use super::RELEASE;

/// Holds the server for as long as the case runs; or says why there is none.
pub(crate) struct OnEtcd(Result<Arc<Etcd>, String>, String);

impl OnEtcd {
    pub(crate) fn new() -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let server = RELEASE.missing().map_or_else(|| Ok(Etcd::shared_of(RELEASE)), Err);
        Self(server, format!("case{}/", LAST.fetch_add(1, Ordering::Relaxed)))
    }

    fn config(&self) -> Config {
        // A request may take a fortieth of a session in calls that hardly wait, and the server writes to a disk that others use.
        let url = format!("etcd://{}?session=4s", self.0.as_ref().expect("not missing").hosts());
        Config::parse(&format!("{url}&prefix={}", self.1)).expect("a good URL")
    }
}

impl Harness for OnEtcd {
    fn time(&self) -> Time {
        Time::Real
    }

    /// A request is written to the disk before it is answered, beside those of other cases.
    fn unit(&self) -> Duration {
        Duration::from_millis(100)
    }

    fn missing(&self) -> Option<String> {
        self.0.as_ref().err().cloned()
    }

    async fn open(&self, runtime: Runtime) -> Arc<dyn Backend> {
        EtcdStore::connect(self.config(), &runtime).await.expect("a running server")
    }

    fn connect(&self, _: &Arc<dyn Backend>) -> Arc<dyn Backend> {
        // Connected, and with a session: cases count the time of a request, not that of the first one.
        let config = self.config();
        let opening = std::thread::spawn(move || {
            let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("an executor");
            executor.block_on(async {
                let store = EtcdStore::connect(config, &Runtime::system()).await.expect("a running server");
                store.keep_alive().await.expect("a session");
                store
            })
        });
        opening.join().expect("no panic")
    }
}
