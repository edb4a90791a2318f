//! What people see, and what they remove by force.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Inner;
use super::error::Failed;
use super::keys;
use super::proto::RangeRequest;
use super::request::{MOST, created_at, delete, found, get, is_present, put, touch, txn};
use super::view::View;
use crate::backend::{ClientCard, Forced, Listing, Page, Snapshot};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::owner::ClientId;
use crate::store::kit::cards::add_all_cards;
use crate::store::kit::listing;

/// How many keys a listing reads at a time.
const CHUNK: i64 = 1000;

/// How often holders are read again because they changed before they could be removed.
const TRIES: usize = 16;

/// A card, and until when it counts, in microseconds since 1970. Clocks that differ only show a card for longer or shorter.
#[derive(Serialize, Deserialize)]
struct Announced {
    card: ClientCard,
    until: u64,
}

impl Inner {
    pub(super) async fn inspect(&self, name: &Name) -> Result<Option<Snapshot>> {
        let view = self.read(name).await?;
        let Some(mut seen) = view.snapshot(name) else { return Ok(None) };
        self.name_clients(&view, &mut seen).await?;
        Ok(Some(seen))
    }

    /// Adds who the holders and waiters are: each session has a card.
    async fn name_clients(&self, view: &View, seen: &mut Snapshot) -> Result<()> {
        let mut leases: Vec<i64> = view.nodes().iter().filter(|node| node.owner.is_some()).map(|node| node.lease).collect();
        leases.sort_unstable();
        leases.dedup();
        let (mut cards, now) = (HashMap::<ClientId, ClientCard>::new(), self.transport.runtime.wall_micros());
        for some in leases.chunks(MOST) {
            let ops = some.iter().map(|lease| get(keys::card_key(*lease))).collect();
            let answer = self.transport.txn(txn(Vec::new(), ops, Vec::new())).await.map_err(Failed::into_error)?;
            let read = |value: &[u8]| serde_json::from_slice::<Announced>(value).ok().filter(|told| told.until > now);
            cards
                .extend(found(answer.responses).flatten().filter_map(|kv| read(&kv.value)).map(|told| (told.card.id, told.card)));
        }
        add_all_cards(seen, |client| Ok(cards.get(&client).cloned()))
    }

    pub(super) async fn list(&self, asked: Listing) -> Result<Page> {
        let slashes = self.transport.config.slashes;
        let begin = asked.pattern.split(['*', '?', '\\']).next().unwrap_or_default().as_bytes().to_vec();
        // The keys of one name lie together, except for what begins with it: names are collected, and looked at one by one.
        let mut names: BTreeMap<Name, ()> = BTreeMap::new();
        let mut key = if begin.is_empty() { vec![0] } else { begin.clone() };
        loop {
            let range_end = if begin.is_empty() { vec![0] } else { keys::end_of(&begin) };
            let request = RangeRequest { key: key.clone(), range_end, limit: CHUNK, keys_only: true, ..RangeRequest::default() };
            let answer = self.transport.range(request).await.map_err(Failed::into_error)?;
            let found = answer.kvs.iter().filter_map(|kv| keys::name_of(kv, slashes));
            names.extend(found.filter(|name| asked.matches(name)).map(|name| (name, ())));
            match answer.kvs.last() {
                Some(last) if answer.more => {
                    key = last.key.clone();
                    key.push(0);
                }
                _ => break,
            }
        }
        let after = asked.after.clone().unwrap_or_default();
        let mut seen = HashMap::new();
        for name in names.keys().filter(|name| name.as_str() > after.as_str()).take(asked.limit.saturating_add(1)) {
            seen.insert(name.clone(), self.inspect(name).await?);
        }
        let known = |_: &mut HashMap<Name, Option<Snapshot>>, after: &str, _: &str| {
            Ok(names.keys().filter(|name| name.as_str() > after).cloned().collect())
        };
        listing::page(&mut seen, &asked, known, |seen, name| Ok(seen.remove(name).flatten()))
    }

    pub(super) async fn force_release(&self, name: &Name) -> Result<Forced> {
        keys::check(name, self.transport.config.slashes)?;
        let mut from = Vec::new();
        for _ in 0..TRIES {
            let view = self.read(name).await?;
            let Some(mut seen) = view.snapshot(name) else { break };
            let holders: Vec<_> = view.holders(name).into_iter().take(MOST).cloned().collect();
            if holders.is_empty() {
                break;
            }
            if let Some(node) = holders.iter().find(|node| node.lease == 0) {
                return Err(foreign(name, &node.key));
            }
            let compare = holders.iter().map(|node| created_at(node.key.clone(), node.revision)).collect();
            let ops = holders.iter().map(|node| delete(node.key.clone())).collect();
            let answer = self.transport.txn(txn(compare, ops, Vec::new())).await.map_err(Failed::into_error)?;
            if !answer.succeeded {
                continue;
            }
            self.name_clients(&view, &mut seen).await?;
            let is_gone = |owner: &str| holders.iter().any(|node| node.owner.is_none_or(|gone| gone.to_string() == owner));
            from.extend(seen.holders.into_iter().filter(|holder| is_gone(&holder.owner)));
            self.tell_sessions(holders.iter().filter(|node| node.owner.is_some()).map(|node| node.lease).collect()).await?;
            if holders.len() < MOST {
                break;
            }
        }
        Ok(Forced::new(from))
    }

    /// Writes to the keys of sessions whose holds were deleted: they look what is left.
    async fn tell_sessions(&self, mut leases: Vec<i64>) -> Result<()> {
        leases.sort_unstable();
        leases.dedup();
        for lease in leases {
            let key = keys::session_key(lease);
            let told = self.transport.txn(txn(vec![is_present(key.clone())], vec![touch(key)], Vec::new())).await;
            told.map_err(Failed::into_error)?;
        }
        Ok(())
    }

    pub(super) async fn announce(&self, card: ClientCard, ttl: Duration) -> Result<()> {
        let until = self.transport.runtime.wall_micros().saturating_add(u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX));
        let value = serde_json::to_vec(&Announced { card, until })
            .map_err(|cause| Error::new(ErrorKind::Protocol, "a card cannot be written as JSON").with_source(cause))?;
        let lease = self.session.fresh(&self.transport).await.map_err(Failed::into_error)?;
        let told = self.transport.txn(txn(Vec::new(), vec![put(keys::card_key(lease.id), value, lease.id)], Vec::new())).await;
        told.map_err(|failed| self.session.failed(lease.id, failed)).map(drop)
    }
}

/// A key in the way that no lock library made: all of them attach theirs to a lease.
fn foreign(name: &Name, key: &[u8]) -> Error {
    let key = String::from_utf8_lossy(key);
    let message = format!(
        "{name:?} cannot be released by force: the key {key:?} has no lease, so it is data of another program; nothing was \
         deleted; choose another name, or delete it with `etcdctl del` if nobody needs it"
    );
    Error::new(ErrorKind::ForeignKey, message)
}
