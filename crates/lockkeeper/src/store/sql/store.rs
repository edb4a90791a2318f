//! What a store is besides its steps: the requests on their thread, listing, client cards, idle rows.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::{Dial, Failed, Put, Statements as _, Steps};
use crate::backend::{Capabilities, ClientCard, Forced, Holder, Kind, Listing, Page, Reply, Snapshot, Subscription, Watch};
use crate::error::{Error, ErrorKind, Result};
use crate::name::{Name, matches_pattern};
use crate::owner::{ClientId, WireOwner};
use crate::runtime::{BoxFuture, log};
use crate::store::kit::cards::{add_all_cards, add_cards};
use crate::store::kit::listing;

/// How many names a listing reads at a time.
const CHUNK: usize = 256;

/// Rows that were empty for so long are removed.
const IDLE: Duration = Duration::from_secs(60);

/// How waiters learn of changes.
pub(crate) trait Wakeups: fmt::Debug + Send + Sync {
    fn subscribe(self: Arc<Self>, watch: Watch) -> BoxFuture<'static, Result<Subscription>>;

    /// How long a notification takes at most.
    fn notifies_within(&self) -> Duration {
        Duration::ZERO
    }

    /// A step of this store was written. Tells how many wait here for everything at a name that it freed.
    fn wrote(&self, put: &Put) -> u32;
}

/// What requests work on. They run on the thread of the store.
#[derive(Debug)]
pub(crate) struct SqlStore<D: Dial> {
    pub(crate) steps: Steps<D>,
    pub(crate) id: Arc<str>,
}

impl<D: Dial> SqlStore<D> {
    /// The same store over another connection.
    pub(crate) fn another(&self) -> Self {
        Self { steps: self.steps.another(), id: Arc::clone(&self.id) }
    }

    pub(crate) fn capabilities(name: &'static str) -> Capabilities {
        Capabilities::new(name)
            .with_kinds(&[Kind::Mutex, Kind::RwLock, Kind::Semaphore, Kind::CountingSemaphore, Kind::Latch])
            .with_fair()
            .with_fencing()
            .with_hand_over()
            .with_acquire_all()
            .with_any_name(true)
            .with_push(true)
            .with_refuses_late()
            .with_leases(Duration::from_millis(100), Duration::from_secs(365 * 24 * 3600))
    }

    /// Has the thread of the store do something, for as long as the caller waits.
    pub(crate) fn run<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(Arc<Self>) -> F + Send + 'static,
    ) -> Reply<'_, T> {
        let us = Arc::clone(self);
        Box::pin(async move {
            let worker = us.steps.link.dial().worker().clone();
            worker.run_while_wanted(work(us)).await?
        })
    }

    pub(crate) async fn force_release(&self, name: Name) -> Result<Forced> {
        let mut from: Vec<Holder> = self.steps.force_release(name).await?;
        let cards = self.cards(from.iter().map(|holder| holder.owner.as_str())).await?;
        add_cards(&mut from, |client| Ok(cards.get(&client).cloned()))?;
        Ok(Forced { from })
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
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let cards = self.steps.link.live().await?.cards(&ids).await.map_err(Failed::into_error)?;
        let cards = cards.iter().filter_map(|card| serde_json::from_slice::<ClientCard>(card).ok());
        Ok(cards.map(|card| (card.id, card)).collect())
    }

    pub(crate) async fn inspect(&self, name: Name) -> Result<Option<Snapshot>> {
        let found = self.steps.snapshots(std::slice::from_ref(&name)).await?.into_iter().next().flatten();
        let Some(mut found) = found else { return Ok(None) };
        self.name_clients(&mut found).await?;
        Ok(Some(found))
    }

    pub(crate) async fn list(&self, asked: Listing) -> Result<Page> {
        // First the names, one more than the page needs, then what lies under them.
        let prefix = asked.pattern.split(['*', '?', '\\']).next().unwrap_or_default().to_owned();
        let mut names: Vec<Name> = Vec::new();
        let mut after = asked.after.clone().unwrap_or_default();
        while names.len() <= asked.limit {
            let live = self.steps.link.live().await?;
            let found = live.names(&after, &prefix, CHUNK).await.map_err(Failed::into_error)?;
            let count = found.len();
            let mut some = Vec::with_capacity(count);
            for name in found {
                let text = String::from_utf8(name).map_err(|_| Error::new(ErrorKind::Protocol, "a name is not UTF-8"))?;
                some.push(Name::try_from(text)?);
            }
            let Some(last) = some.last() else { break };
            let more = last.as_str().starts_with(&prefix);
            after = last.as_str().to_owned();
            names.extend(some.into_iter().filter(|name| matches_pattern(&asked.pattern, name.as_str())));
            if !more || count < CHUNK {
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

    pub(crate) async fn announce(&self, card: ClientCard, ttl: Duration) -> Result<()> {
        let text = serde_json::to_vec(&card)
            .map_err(|cause| Error::new(ErrorKind::Protocol, "a card cannot be written as JSON").with_source(cause))?;
        let (id, ttl) = (card.id.to_string(), i64::try_from(ttl.as_micros()).unwrap_or(i64::MAX / 4));
        let live = self.steps.link.live().await?;
        live.announce(&id, ttl, &text).await.map_err(Failed::into_error)?;
        // Now and then, by clients that hold something: rows that nobody uses any more are removed.
        let idle = i64::try_from(IDLE.as_micros()).unwrap_or(i64::MAX);
        if let Err(failed) = live.sweep(idle).await {
            log!(debug, error = %failed.into_error(), "could not remove idle rows; the next client tries again");
        }
        Ok(())
    }
}

/// Makes a store of a `struct NAME(Arc<SqlStore<…>>)`.
macro_rules! backend_over_sql {
    ($store:ident, $name:literal) => {
        impl $crate::backend::Backend for $store {
            fn capabilities(&self) -> $crate::backend::Capabilities {
                let within = self.0.steps.wakeups.notifies_within();
                $crate::store::sql::store::SqlStore::<Dialer>::capabilities($name).with_notifies_within(within)
            }

            fn keeper_connection(self: ::std::sync::Arc<Self>) -> ::std::sync::Arc<dyn $crate::backend::Backend> {
                ::std::sync::Arc::new(Self(::std::sync::Arc::new(self.0.another())))
            }

            fn identity(&self) -> $crate::backend::Reply<'_, String> {
                Box::pin(async move { Ok(self.0.id.to_string()) })
            }

            fn acquire(&self, request: $crate::backend::Acquire) -> $crate::backend::Reply<'_, $crate::backend::Attempt> {
                self.0.run(|store| async move { store.steps.acquire(request).await })
            }

            fn acquire_all(
                &self,
                requests: Vec<$crate::backend::Acquire>,
            ) -> $crate::backend::Reply<'_, $crate::backend::AttemptAll> {
                self.0.run(|store| async move { store.steps.acquire_all(requests).await })
            }

            fn release(&self, request: $crate::backend::Release) -> $crate::backend::Reply<'_, $crate::backend::Released> {
                self.0.run(|store| async move { store.steps.release(request).await })
            }

            fn renew(
                &self,
                requests: Vec<$crate::backend::Renew>,
            ) -> $crate::backend::Reply<'_, Vec<$crate::error::Result<$crate::backend::Renewed>>> {
                self.0.run(|store| async move { store.steps.renew(requests).await })
            }

            fn count(&self, request: $crate::backend::Count) -> $crate::backend::Reply<'_, $crate::backend::CountOutcome> {
                self.0.run(|store| async move { store.steps.count(request).await })
            }

            fn watch(&self, watch: $crate::backend::Watch) -> $crate::backend::Reply<'_, $crate::backend::Subscription> {
                self.0.run(|store| ::std::sync::Arc::clone(&store.steps.wakeups).subscribe(watch))
            }

            fn inspect(&self, name: $crate::name::Name) -> $crate::backend::Reply<'_, Option<$crate::backend::Snapshot>> {
                self.0.run(|store| async move { store.inspect(name).await })
            }

            fn list(&self, listing: $crate::backend::Listing) -> $crate::backend::Reply<'_, $crate::backend::Page> {
                self.0.run(|store| async move { store.list(listing).await })
            }

            fn force_release(&self, name: $crate::name::Name) -> $crate::backend::Reply<'_, $crate::backend::Forced> {
                self.0.run(|store| async move { store.force_release(name).await })
            }

            fn announce(&self, card: $crate::backend::ClientCard, ttl: ::std::time::Duration) -> $crate::backend::Reply<'_, ()> {
                self.0.run(move |store| async move { store.announce(card, ttl).await })
            }
        }
    };
}
pub(crate) use backend_over_sql;
