//! The PostgreSQL store on a real server: the contract, the model, connections that break, and the traps of SQL.
#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]

mod bench;
mod connections;
mod cost;
#[path = "../redis/model/history.rs"]
mod history;
mod model;
mod traps;

mod contract {
    //! The PostgreSQL store keeps the contract.

    use std::sync::Arc;

    use lockkeeper::backend::Backend;
    use lockkeeper::conformance::{Harness, Time};
    use lockkeeper::runtime::Runtime;
    use lockkeeper::store::postgres::{Config, PostgresStore};
    use lockkeeper_testkit::postgres::Postgres;

    /// Holds the server for as long as the case runs; or says why there is none.
    struct OnPostgres(Result<Arc<Postgres>, String>);

    impl OnPostgres {
        fn new() -> Self {
            Self(Postgres::missing().map_or_else(|| Ok(Postgres::shared()), Err))
        }
    }

    impl Harness for OnPostgres {
        /// A step is a statement of another process, so it takes as long as the machine is busy.
        fn time(&self) -> Time {
            Time::Crowded
        }

        fn missing(&self) -> Option<String> {
            self.0.as_ref().err().cloned()
        }

        async fn open(&self, runtime: Runtime) -> Arc<dyn Backend> {
            let server = self.0.as_ref().expect("not missing");
            let config = Config::parse(&server.fresh_url()).expect("a good URL");
            PostgresStore::connect(config, &runtime).await.expect("a running server")
        }
    }

    lockkeeper::conformance!(OnPostgres::new());
}
