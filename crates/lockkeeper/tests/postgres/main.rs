//! The PostgreSQL store on a real server: the contract, the model, connections that break, and the traps of SQL.
#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]

mod bench;
#[path = "../sql/certificates.rs"]
mod certificates;
#[path = "../redis/clock.rs"]
mod clock;
#[path = "../sql/clock_steps.rs"]
mod clock_steps;
mod conflicts;
mod connections;
#[path = "../sql/contention.rs"]
mod contention;
mod cost;
mod doctor;
#[path = "../sql/doubled.rs"]
mod doubled;
#[path = "../sql/faults.rs"]
mod faults;
mod fence;
#[path = "../sql/full_disk.rs"]
mod full_disk;
#[path = "../redis/model/history.rs"]
mod history;
#[path = "../sql/long_queue.rs"]
mod long_queue;
#[path = "../sql/model.rs"]
mod model;
mod notifications;
#[path = "../sql/requests.rs"]
mod requests;
mod rights;
mod silence;
#[path = "../sql/small_disk.rs"]
mod small_disk;
mod standby;
mod surroundings;
mod traps;
#[path = "../sql/trouble.rs"]
mod trouble;
#[path = "../sql/turns.rs"]
mod turns;

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
        /// A step is a transaction of another process, beside those of other cases, so the lengths of time that a case chooses for itself
        /// (leases, pauses, and how late it looks) are four times as long, all in the same proportion. What the contract promises in real
        /// time is not longer: `soon()`, within which a push must wake a waiter, is half a second as on [`Time::Real`], and so are the
        /// second between polls and the times to reply.
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
