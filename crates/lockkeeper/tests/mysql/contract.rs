//! The MySQL store keeps the contract.

use std::sync::Arc;

use lockkeeper::backend::Backend;
use lockkeeper::conformance::{Harness, Time};
use lockkeeper::runtime::Runtime;
use lockkeeper::store::mysql::{Config, MysqlStore};
use lockkeeper_testkit::mysql::Mysql;

use super::FLAVOUR;

/// Holds the server for as long as the case runs; or says why there is none.
struct OnServer(Result<Arc<Mysql>, String>);

impl OnServer {
    fn new() -> Self {
        Self(Mysql::missing(FLAVOUR).map_or_else(|| Ok(Mysql::shared(FLAVOUR)), Err))
    }
}

impl Harness for OnServer {
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

lockkeeper::conformance!(OnServer::new());
