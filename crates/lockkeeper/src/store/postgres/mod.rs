//! PostgreSQL: locks in the database that a team already runs. The model itself runs on its rows, as `store/sql` says.
//!
//! Tables: `lockkeeper_head` (one row per name), `lockkeeper_part` (one row per waiter, reader, permit or remembered request),
//! `lockkeeper_client` (who a client is) and `lockkeeper_store` (one row: layout, id, last token of removed rows).

mod columns;
mod config;
mod error;
mod fence;
mod link;
mod listen;
mod rights;
mod schema;
mod self_test;
mod silence;
mod statements;
mod tls;
mod waiting;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::backend::Finding;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::{self, Runtime};
use crate::store::kit::worker::Worker;
use crate::store::sql::poll::Poll;
use crate::store::sql::store::{SqlStore, Wakeups, backend_over_sql};
use crate::store::sql::{Link, Steps};
pub use config::Config;
use link::Dialer;
use listen::Notifications;
use schema::Texts;

/// How long looking at the tables, or creating them, may take.
const PREPARING: Duration = Duration::from_secs(10);

/// A PostgreSQL database.
#[derive(Debug)]
pub struct PostgresStore(Arc<SqlStore<Dialer>>);

backend_over_sql!(PostgresStore, "postgres");

impl PostgresStore {
    /// Connects to the database, and creates the tables where there are none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if it cannot be reached, or only reads; [`ErrorKind::Denied`] if it refuses the user, or the user may not
    /// create the tables; [`ErrorKind::Config`] if there is no such database, or its tables are of a newer lockkeeper.
    pub async fn connect(config: Config, runtime: &Runtime) -> Result<Arc<Self>> {
        let instance = runtime.client_id().bits() as i64;
        let (worker, texts) =
            (Worker::start(runtime, "postgres", std::future::ready(()))?, Arc::new(Texts::new(&config, instance)));
        let (channel, servers) = (Arc::new(OnceLock::new()), config.servers());
        let dialer = Dialer { config, servers, runtime: runtime.clone(), worker, texts, channel: Arc::clone(&channel) };
        let link = Link::new(Arc::new(dialer));
        let live = link.live().await?;
        let dialer = Arc::clone(link.dial());
        let prepared = link.dial().worker.run(async move {
            let prepared = runtime::within(PREPARING, Box::pin(self_test::prepare(&live, &dialer.config))).await;
            prepared.unwrap_or_else(|| {
                let message = format!("{} did not tell or create its tables within {PREPARING:?}", dialer.config);
                Err(Error::new(ErrorKind::Unavailable, message))
            })
        });
        let id: Arc<str> = prepared.await??.into();
        // A channel of its own: a database may have several stores.
        channel.get_or_init(|| format!("lockkeeper_{}", id.replace('-', "")));
        let cache = Arc::default();
        let wakeups: Arc<dyn Wakeups> =
            if link.dial().config.push { Notifications::new(link.clone(), Arc::clone(&cache)) } else { Poll::new(link.clone()) };
        Ok(Arc::new(Self(Arc::new(SqlStore { steps: Steps::new(link, runtime.clone(), wakeups, cache), id }))))
    }

    /// The SQL that creates what the store needs, for somebody who may run it.
    #[must_use]
    pub fn setup(config: &Config) -> String {
        rights::setup(config)
    }

    /// All that [`connect`](Self::connect) looks at, and what may surprise.
    pub async fn examine(config: Config, runtime: &Runtime) -> Vec<Finding> {
        match Self::connect(config, runtime).await {
            Ok(store) => self_test::findings(&store.0).await,
            Err(error) => vec![Finding::unfit("server", &error)],
        }
    }
}
