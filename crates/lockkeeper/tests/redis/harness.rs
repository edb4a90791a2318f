//! What the contract asks of us: an empty store on a server of the wanted flavour.

use std::sync::Arc;

use lockkeeper::backend::Backend;
use lockkeeper::conformance::{Harness, Time};
use lockkeeper::runtime::Runtime;
use lockkeeper::store::redis::{Config, RedisStore};

use crate::server::{Flavour, Server};

/// Holds the server for as long as the case runs; or says why there is none.
pub(crate) struct Redis(Result<Arc<Server>, String>);

impl Redis {
    pub(crate) fn new(flavour: Flavour) -> Self {
        Self(Server::missing(flavour).map_or_else(|| Ok(Server::shared(flavour)), Err))
    }
}

impl Harness for Redis {
    fn time(&self) -> Time {
        Time::Real
    }

    fn missing(&self) -> Option<String> {
        self.0.as_ref().err().cloned()
    }

    async fn open(&self, runtime: Runtime) -> Arc<dyn Backend> {
        let server = self.0.as_ref().expect("not missing");
        let config = Config::parse(&server.fresh_url()).expect("a good URL");
        RedisStore::connect(config, &runtime).await.expect("a running server")
    }
}
