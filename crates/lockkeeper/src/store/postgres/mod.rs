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
mod statements;
mod tls;
mod worker;

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio_postgres::types::Type;

use crate::backend::{
    Acquire, Attempt, AttemptAll, Backend, Capabilities, ClientCard, Count, CountOutcome, Finding, Forced, Holder, Kind, Listing,
    Page, Release, Released, Renew, Renewed, Reply, Snapshot, Subscription, Watch,
};
use crate::error::{Error, ErrorKind, Result};
use crate::name::{Name, matches_pattern};
use crate::owner::{ClientId, WireOwner};
use crate::runtime::{self, Runtime};
use crate::store::kit::cards::{add_all_cards, add_cards};
use crate::store::kit::listing;
use crate::store::sql::{Failed, Link as _, Steps};
pub use config::Config;
use link::{PgLink, Shared};
use listen::Wakeups;
use schema::Texts;
use statements::{Live, Parameter, get};
use worker::Worker;

/// How many names a listing reads at a time.
const CHUNK: i64 = 256;

/// Rows that were empty for so long are removed.
const IDLE: Duration = Duration::from_secs(60);

/// How long looking at the tables, or creating them, may take.
const PREPARING: Duration = Duration::from_secs(10);

/// A PostgreSQL database.
#[derive(Debug)]
pub struct PostgresStore(Arc<Inner>);

/// What requests work on. They run on the thread of the store.
#[derive(Debug)]
struct Inner {
    steps: Steps<PgLink>,
    wakeups: Arc<Wakeups>,
    id: Arc<str>,
}

impl PostgresStore {
    /// Connects to the database, and creates the tables where there are none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if it cannot be reached, or only reads; [`ErrorKind::Denied`] if it refuses the user, or the user may not
    /// create the tables; [`ErrorKind::Config`] if there is no such database, or its tables are of a newer lockkeeper.
    pub async fn connect(config: Config, runtime: &Runtime) -> Result<Arc<Self>> {
        let (worker, texts) = (Worker::start(runtime)?, Arc::new(Texts::new(&config)));
        let channel = Arc::new(OnceLock::new());
        let shared = Shared { config, runtime: runtime.clone(), worker, texts, channel: Arc::clone(&channel) };
        let link = PgLink::new(Arc::new(shared));
        let live = link.live().await?;
        let shared = Arc::clone(link.shared());
        let prepared = link.shared().worker.run(async move {
            let prepared = runtime::within(PREPARING, Box::pin(self_test::prepare(&live, &shared.config))).await;
            prepared.unwrap_or_else(|| {
                let message = format!("{} did not tell or create its tables within {PREPARING:?}", shared.config);
                Err(Error::new(ErrorKind::Unavailable, message))
            })
        });
        let id: Arc<str> = prepared.await??.into();
        // A channel of its own: a database may have several stores.
        channel.get_or_init(|| format!("lockkeeper_{}", id.replace('-', "")));
        let wakeups = Wakeups::new(link.clone());
        Ok(Arc::new(Self(Arc::new(Inner { steps: Steps::new(link, runtime.clone()), wakeups, id }))))
    }

    /// The SQL that creates what the store needs, for somebody who may run it.
    #[must_use]
    pub fn setup(config: &Config) -> String {
        rights::setup(config)
    }

    /// All that [`connect`](Self::connect) looks at, and what may surprise.
    pub async fn examine(config: Config, runtime: &Runtime) -> Vec<Finding> {
        match Self::connect(config, runtime).await {
            Ok(store) => store.0.findings().await,
            Err(error) => vec![Finding::unfit("server", &error)],
        }
    }

    /// Has the thread of the store do something, for as long as the caller waits.
    fn run<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        work: impl FnOnce(Arc<Inner>) -> F + Send + 'static,
    ) -> Reply<'_, T> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            let worker = inner.steps.link.shared().worker.clone();
            worker.run_while_wanted(work(inner)).await?
        })
    }
}

impl Inner {
    async fn live(&self) -> Result<Arc<Live>> {
        self.steps.link.live().await
    }

    async fn query(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<tokio_postgres::Row>> {
        self.live().await?.query(sql, parameters).await.map_err(Failed::into_error)
    }

    fn texts(&self) -> &Texts {
        &self.steps.link.shared().texts
    }

    async fn with_cards(&self, mut holders: Vec<Holder>) -> Result<Vec<Holder>> {
        let cards = self.cards(holders.iter().map(|holder| holder.owner.as_str())).await?;
        add_cards(&mut holders, |client| Ok(cards.get(&client).cloned()))?;
        Ok(holders)
    }

    /// Adds who holds a name and who waits for it.
    async fn name_clients(&self, found: &mut Snapshot) -> Result<()> {
        let holders = found.holders.iter().map(|holder| holder.owner.as_str());
        let cards = self.cards(holders.chain(found.queue.iter().map(|waiter| waiter.owner.as_str()))).await?;
        add_all_cards(found, |client| Ok(cards.get(&client).cloned()))
    }

    async fn cards(&self, owners: impl Iterator<Item = &str>) -> Result<HashMap<ClientId, ClientCard>> {
        let ids: Vec<String> =
            owners.filter_map(|owner| owner.parse::<WireOwner>().ok()).map(|owner| owner.client.to_string()).collect();
        let mut cards: HashMap<ClientId, ClientCard> = HashMap::new();
        if ids.is_empty() {
            return Ok(cards);
        }
        for row in self.query(&self.texts().cards, &[(&ids, Type::TEXT_ARRAY)]).await? {
            let card: &[u8] = get(&row, 1).map_err(Failed::into_error)?;
            cards.extend(serde_json::from_slice::<ClientCard>(card).ok().map(|card| (card.id, card)));
        }
        Ok(cards)
    }

    async fn inspect(&self, name: Name) -> Result<Option<Snapshot>> {
        let found = self.steps.snapshots(std::slice::from_ref(&name)).await?.into_iter().next().flatten();
        let Some(mut found) = found else { return Ok(None) };
        self.name_clients(&mut found).await?;
        Ok(Some(found))
    }

    async fn list(&self, asked: Listing) -> Result<Page> {
        // First the names, one more than the page needs, then what lies under them.
        let prefix = asked.pattern.split(['*', '?', '\\']).next().unwrap_or_default().to_owned();
        let mut names: Vec<Name> = Vec::new();
        let mut after = asked.after.clone().unwrap_or_default();
        while names.len() <= asked.limit {
            let (from, begin) = (after.as_bytes(), prefix.as_bytes());
            let parameters: [Parameter<'_>; 3] = [(&from, Type::BYTEA), (&begin, Type::BYTEA), (&CHUNK, Type::INT8)];
            let rows = self.query(&self.texts().names, &parameters).await?;
            let mut some = Vec::with_capacity(rows.len());
            for row in &rows {
                let name: Vec<u8> = get(row, 0).map_err(Failed::into_error)?;
                let text = String::from_utf8(name).map_err(|_| Error::new(ErrorKind::Protocol, "a name is not UTF-8"))?;
                some.push(Name::try_from(text)?);
            }
            let Some(last) = some.last() else { break };
            let more = last.as_str().starts_with(&prefix);
            after = last.as_str().to_owned();
            names.extend(some.into_iter().filter(|name| matches_pattern(&asked.pattern, name.as_str())));
            if !more || i64::try_from(rows.len()).unwrap_or(CHUNK) < CHUNK {
                break;
            }
        }
        names.truncate(asked.limit.saturating_add(1));
        let found = self.steps.snapshots(&names).await?;
        let mut seen: HashMap<Name, Option<Snapshot>> = names.iter().cloned().zip(found).collect();
        let known = |_: &mut HashMap<_, _>, after: &str, _: &str| {
            Ok(names.iter().filter(|name| name.as_str() > after).cloned().collect())
        };
        let mut page = listing::page(&mut seen, &asked, known, |seen, name| Ok(seen.remove(name).flatten()))?;
        for snapshot in &mut page.found {
            self.name_clients(snapshot).await?;
        }
        Ok(page)
    }

    async fn announce(&self, card: ClientCard, ttl: Duration) -> Result<()> {
        let text = serde_json::to_vec(&card)
            .map_err(|cause| Error::new(ErrorKind::Protocol, "a card cannot be written as JSON").with_source(cause))?;
        let (id, ttl) = (card.id.to_string(), i64::try_from(ttl.as_micros()).unwrap_or(i64::MAX / 4));
        let parameters: [Parameter<'_>; 3] = [(&id, Type::TEXT), (&ttl, Type::INT8), (&text, Type::BYTEA)];
        self.query(&self.texts().announce, &parameters).await?;
        // Now and then, by clients that hold something: rows that nobody uses any more are removed.
        let idle = i64::try_from(IDLE.as_micros()).unwrap_or(i64::MAX);
        if let Err(error) = self.query(&self.texts().sweep, &[(&idle, Type::INT8)]).await {
            tracing::debug!(%error, "could not remove idle rows; the next client tries again");
        }
        Ok(())
    }
}

impl Backend for PostgresStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("postgres")
            .with_kinds(&[Kind::Mutex, Kind::RwLock, Kind::Semaphore, Kind::CountingSemaphore, Kind::Latch])
            .with_fair()
            .with_fencing()
            .with_hand_over()
            .with_acquire_all()
            .with_any_name(true)
            .with_push(self.0.steps.link.shared().config.push)
            .with_refuses_late()
            .with_leases(Duration::from_millis(100), Duration::from_secs(365 * 24 * 3600))
    }

    fn keeper_connection(self: Arc<Self>) -> Arc<dyn Backend> {
        let Inner { steps, wakeups, id } = &*self.0;
        let steps = steps.over(steps.link.another());
        Arc::new(Self(Arc::new(Inner { steps, wakeups: Arc::clone(wakeups), id: Arc::clone(id) })))
    }

    fn identity(&self) -> Reply<'_, String> {
        Box::pin(async move { Ok(self.0.id.to_string()) })
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        self.run(|store| async move { store.steps.acquire(request).await })
    }

    fn acquire_all(&self, requests: Vec<Acquire>) -> Reply<'_, AttemptAll> {
        self.run(|store| async move { store.steps.acquire_all(requests).await })
    }

    fn release(&self, request: Release) -> Reply<'_, Released> {
        self.run(|store| async move { store.steps.release(request).await })
    }

    fn renew(&self, requests: Vec<Renew>) -> Reply<'_, Vec<Result<Renewed>>> {
        self.run(|store| async move { store.steps.renew(requests).await })
    }

    fn count(&self, request: Count) -> Reply<'_, CountOutcome> {
        self.run(|store| async move { store.steps.count(request).await })
    }

    fn watch(&self, watch: Watch) -> Reply<'_, Subscription> {
        if !self.0.steps.link.shared().config.push {
            return Box::pin(async { Ok(Subscription::silent()) });
        }
        self.run(|store| async move { store.wakeups.subscribe(watch).await })
    }

    fn inspect(&self, name: Name) -> Reply<'_, Option<Snapshot>> {
        self.run(|store| async move { store.inspect(name).await })
    }

    fn list(&self, listing: Listing) -> Reply<'_, Page> {
        self.run(|store| async move { store.list(listing).await })
    }

    fn force_release(&self, name: Name) -> Reply<'_, Forced> {
        self.run(|store| async move {
            let from = store.steps.force_release(name).await?;
            Ok(Forced { from: store.with_cards(from).await? })
        })
    }

    fn announce(&self, card: ClientCard, ttl: Duration) -> Reply<'_, ()> {
        self.run(move |store| async move { store.announce(card, ttl).await })
    }
}
