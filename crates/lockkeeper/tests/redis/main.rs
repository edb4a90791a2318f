//! The Redis store against a real server: the contract, the model, the wire, and faults on the wire.
#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]

mod faults;
mod model;
mod proxy;
mod server;
mod wire;

mod contract {
    //! The Redis store keeps the contract.

    use std::sync::Arc;

    use lockkeeper::backend::Backend;
    use lockkeeper::conformance::{Harness, Time};
    use lockkeeper::runtime::Runtime;
    use lockkeeper::store::redis::{Config, RedisStore};

    use crate::server::Server;

    /// Holds the server for as long as the case runs.
    struct Redis(Option<Arc<Server>>);

    impl Redis {
        fn new() -> Self {
            Self(Server::missing().is_none().then(Server::shared))
        }
    }

    impl Harness for Redis {
        fn time(&self) -> Time {
            Time::Real
        }

        fn missing(&self) -> Option<String> {
            Server::missing()
        }

        async fn open(&self, runtime: Runtime) -> Arc<dyn Backend> {
            let server = self.0.as_ref().expect("not missing");
            let config = Config::parse(&server.fresh_url()).expect("a good URL");
            RedisStore::connect(config, &runtime).await.expect("a running server")
        }
    }

    lockkeeper::conformance!(Redis::new());
}
