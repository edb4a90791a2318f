//! The etcd store on real servers: the contract, loss of sessions and connections, members that fail, and locks shared with `etcdctl` and Go.
#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]

mod bench;
mod beside;
mod counting;
mod doctor;
mod killed;
mod late;
mod long_queue;
mod loss;
mod partition;
mod skipped;
mod stopped;
mod tls;
mod trouble;

mod contract {
    //! The etcd store keeps the contract.

    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use lockkeeper::backend::Backend;
    use lockkeeper::conformance::{Harness, Time};
    use lockkeeper::runtime::Runtime;
    use lockkeeper::store::etcd::{Config, EtcdStore};
    use lockkeeper_testkit::etcd::Etcd;

    /// Holds the server for as long as the case runs; or says why there is none.
    struct OnEtcd(Result<Arc<Etcd>, String>, String);

    impl OnEtcd {
        fn new() -> Self {
            static LAST: AtomicU32 = AtomicU32::new(0);
            let server = Etcd::missing().map_or_else(|| Ok(Etcd::shared()), Err);
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

    lockkeeper::conformance!(OnEtcd::new());

    #[tokio::test]
    async fn the_page_lists_what_is_skipped() {
        let Some(server) = crate::bench::shared("the page of etcd") else { return };
        let config = Config::parse(&server.url()).expect("a good URL");
        let store = EtcdStore::connect(config, &Runtime::system()).await.expect("a running server");
        crate::skipped::compare("etcd.md", &store.capabilities());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn five_hundred_waiters_stand_in_the_queue_of_the_server_and_are_served_in_order() {
        let Some(server) = crate::bench::shared("a queue of five hundred") else { return };
        let url = format!("etcd://{}?session=60s", server.hosts());
        let open = async || {
            let config = Config::parse(&url).expect("a good URL");
            EtcdStore::connect(config, &Runtime::system()).await.expect("a running server")
        };
        let (first, second) = (open().await, open().await);
        let name = crate::bench::fresh("crowd");
        let nodes = async || server.keys(&format!("{name}/")).len();
        let name = lockkeeper::name::Name::new(&*name).expect("a good name");
        crate::long_queue::five_hundred_waiters_are_served_in_order(&*first, &*second, &name, nodes).await;
    }
}
