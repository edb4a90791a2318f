//! The MySQL store on a real MariaDB server: the contract, the model, connections that break, and the traps of SQL.
#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]

#[path = "../sql/bank.rs"]
mod bank;
mod bench;
#[path = "../sql/certificates.rs"]
mod certificates;
mod connections;
mod faults;
mod fence;
#[path = "../redis/model/history.rs"]
mod history;
#[path = "../sql/model.rs"]
mod model;
mod names;
#[path = "../sql/requests.rs"]
mod requests;
mod rights;
mod traps;
#[path = "../sql/turns.rs"]
mod turns;

mod contract {
    //! The MySQL store keeps the contract.

    use std::sync::Arc;

    use lockkeeper::backend::Backend;
    use lockkeeper::conformance::{Harness, Time};
    use lockkeeper::runtime::Runtime;
    use lockkeeper::store::mysql::{Config, MysqlStore};
    use lockkeeper_testkit::mariadb::MariaDb;

    /// Holds the server for as long as the case runs; or says why there is none.
    struct OnMariaDb(Result<Arc<MariaDb>, String>);

    impl OnMariaDb {
        fn new() -> Self {
            Self(MariaDb::missing().map_or_else(|| Ok(MariaDb::shared()), Err))
        }
    }

    impl Harness for OnMariaDb {
        /// As for PostgreSQL: steps are transactions of another process, beside those of other cases.
        fn time(&self) -> Time {
            Time::Crowded
        }

        fn missing(&self) -> Option<String> {
            self.0.as_ref().err().cloned()
        }

        async fn open(&self, runtime: Runtime) -> Arc<dyn Backend> {
            let server = self.0.as_ref().expect("not missing");
            let config = Config::parse(&server.url(&server.fresh_database())).expect("a good URL");
            MysqlStore::connect(config, &runtime).await.expect("a running server")
        }
    }

    lockkeeper::conformance!(OnMariaDb::new());
}
