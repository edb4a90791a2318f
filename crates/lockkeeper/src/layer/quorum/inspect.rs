//! Inspecting, listing and forced release: what a majority of the servers says. Votes of a minority are not a lock.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Quorum;
use super::votes::{by_majority, majority};
use crate::backend::{ClientCard, Forced, Holder, Listing, Page, Snapshot};
use crate::error::Result;
use crate::name::Name;

/// How long servers may take to answer.
const INSPECTING: Duration = Duration::from_millis(2_500);

/// Names asked for in one page of one server.
const PAGE: usize = 1_000;

impl Quorum {
    pub(super) async fn inspect_by_majority(&self, name: Name) -> Result<Option<Snapshot>> {
        let asked = name.clone();
        let found = self
            .enough(INSPECTING, "answered", move |voter| {
                let name = asked.clone();
                Box::pin(async move { voter.inspect(name).await })
            })
            .await?;
        Ok(self.merged(name, found.into_iter().flatten().collect()))
    }

    /// One snapshot out of those of the servers.
    fn merged(&self, name: Name, found: Vec<Snapshot>) -> Option<Snapshot> {
        let kind = found.first()?.kind;
        let holders = self.held_by_majority(found.into_iter().flat_map(|found| found.holders));
        let nothing = holders.is_empty();
        (!nothing).then(|| Snapshot { name, kind, holders, queue: Vec::new(), value: None, total: None })
    }

    fn held_by_majority(&self, holders: impl Iterator<Item = Holder>) -> Vec<Holder> {
        let servers = self.servers.len();
        let mut votes: BTreeMap<String, Vec<Holder>> = BTreeMap::new();
        for holder in holders {
            votes.entry(holder.owner.clone()).or_default().push(holder);
        }
        votes
            .into_values()
            .filter(|votes| votes.len() >= majority(servers))
            .filter_map(|votes| {
                let lease_left = by_majority(servers, votes.iter().map(|vote| vote.lease_left).collect()).flatten();
                let token = votes.iter().filter_map(|vote| vote.token).max();
                let client = votes.iter().find_map(|vote| vote.client.clone());
                votes.into_iter().next().map(|vote| Holder { lease_left, token, client, ..vote })
            })
            .collect()
    }

    pub(super) async fn list_by_majority(&self, listing: Listing) -> Result<Page> {
        let pattern = listing.pattern.clone();
        let found = self
            .enough(INSPECTING, "answered", move |voter| {
                // Each server has its own order of pages; ours is by name.
                let mut listing = Listing { pattern: pattern.clone(), after: None, limit: PAGE };
                Box::pin(async move {
                    let mut found = BTreeMap::new();
                    loop {
                        let page = voter.list(listing.clone()).await?;
                        found.extend(page.found.into_iter().map(|found| (found.name.clone(), found)));
                        listing.after = page.next;
                        if listing.after.is_none() {
                            return Ok(found);
                        }
                    }
                })
            })
            .await?;
        let mut names: BTreeMap<Name, Vec<Snapshot>> = BTreeMap::new();
        for (name, snapshot) in found.into_iter().flatten() {
            names.entry(name).or_default().push(snapshot);
        }
        let mut found: Vec<Snapshot> = names
            .into_iter()
            .filter(|(name, _)| listing.after.as_deref().is_none_or(|after| name.as_str() > after))
            .filter_map(|(name, found)| self.merged(name, found))
            .collect();
        let more = found.len() > listing.limit;
        found.truncate(listing.limit);
        let next = found.last().filter(|_| more).map(|last| last.name.as_str().to_owned());
        Ok(Page { found, next })
    }

    pub(super) async fn force_release_by_majority(&self, name: Name) -> Result<Forced> {
        let forced = self
            .enough(INSPECTING, "released it", move |voter| {
                let name = name.clone();
                Box::pin(async move { voter.force_release(name).await })
            })
            .await?;
        Ok(Forced { from: self.held_by_majority(forced.into_iter().flat_map(|forced| forced.from)) })
    }

    pub(super) async fn announce_to_majority(&self, card: ClientCard, ttl: Duration) -> Result<()> {
        let told = self.enough(INSPECTING, "took our client card", move |voter| {
            let card = card.clone();
            Box::pin(async move { voter.announce(card, ttl).await })
        });
        told.await.map(drop)
    }

    /// The smallest of the servers' ids: the same for all clients, in whatever order they name the servers. All servers are waited for. While one of
    /// them is down, a client that has not asked before may get another id; that costs only the common order of a
    /// [`MultiLock`](crate::MultiLock) over several stores.
    pub(super) async fn smallest_identity(&self) -> Result<String> {
        let ids = self.every_answer(INSPECTING, |voter| Box::pin(async move { voter.identity().await })).await;
        if ids.iter().filter(|id| id.is_ok()).count() < majority(self.servers.len()) {
            return Err(self.without_majority("answered their id", &ids));
        }
        Ok(ids.into_iter().flatten().min().unwrap_or_default())
    }
}
