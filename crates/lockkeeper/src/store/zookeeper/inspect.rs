//! What people see: holders and waiters, also those of Curator, by the data of their nodes; and who is behind a client.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use zookeeper_client::{CreateMode, Error as Cause};

use super::names::{self, Child, LEASES, LOCKS, OWN};
use super::session::Live;
use super::{Inner, error};
use crate::backend::{Acquire, Claim, ClientCard, Forced, Holder, Kind, Listing, Page, Snapshot, Waiter};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::owner::ClientId;
use crate::runtime;
use crate::store::kit::cards::{add_all_cards, add_cards};
use crate::store::kit::listing;
use crate::store::queue::{Node, Queue};

/// The data of our nodes, for whoever looks into ZooKeeper.
#[derive(Serialize, Deserialize)]
struct Data {
    owner: String,
    claim: Claim,
    host: String,
    pid: u32,
    program: String,
}

/// What a client told of itself, and until when that counts, in microseconds of the wall clock.
#[derive(Serialize, Deserialize)]
struct Told {
    card: ClientCard,
    until: u64,
}

/// One node, with what its data says.
struct Found {
    path: String,
    owner: String,
    claim: Claim,
    token: Option<u64>,
    ephemeral: bool,
}

/// Whether a node ends with a session, by the owner in its stat. Those of containers and of nodes with a time to live are no sessions.
const fn is_ephemeral(owner: i64) -> bool {
    owner != 0 && owner != i64::MIN && owner.cast_unsigned() >> 56 != 0xff
}

fn program() -> String {
    let path = std::env::current_exe().ok();
    let file = path.as_deref().and_then(|path| path.file_name());
    file.map_or_else(|| "-".to_owned(), |name| name.to_string_lossy().into_owned())
}

impl Inner {
    /// The data of a request's node.
    pub(super) fn data(&self, request: &Acquire) -> Vec<u8> {
        let (host, pid, program) = self.us.get_or_init(|| (runtime::host(), runtime::process_id(), program())).clone();
        let data = Data { owner: request.owner.to_string(), claim: request.claim, host, pid, program };
        serde_json::to_vec(&data).unwrap_or_default()
    }

    /// Reads nodes, all at once. Those that have gone meanwhile are left out.
    async fn read(&self, live: &Live, folder: &str, nodes: &[(&Node<Child>, bool)], size: u32) -> Result<Vec<Option<Found>>> {
        live.sends();
        let path = |node: &Node<Child>| format!("{folder}/{}", node.id.name);
        let reading: Vec<_> = nodes.iter().map(|(node, _)| live.client.get_data(&path(node))).collect();
        let mut found = Vec::with_capacity(nodes.len());
        for ((node, _), reading) in nodes.iter().zip(reading) {
            let (data, stat) = match reading.await {
                Ok(read) => read,
                Err(Cause::NoNode) => {
                    found.push(None);
                    continue;
                }
                Err(cause) => return Err(error::of_read(cause)),
            };
            let foreign = || {
                let claim = match node.want {
                    crate::store::queue::Want::Read => Claim::Read,
                    crate::store::queue::Want::Write => Claim::Write,
                    crate::store::queue::Want::Mutex => Claim::Mutex,
                    crate::store::queue::Want::Permits { .. } => Claim::Permits { take: 1, of: size },
                };
                // Curator writes the address of its host, unless it was told otherwise.
                let told: String = String::from_utf8_lossy(&data).chars().filter(|c| !c.is_control()).take(80).collect();
                let who = if node.id.id().is_some() { "Curator" } else { "foreign" };
                let at = if told.is_empty() { String::new() } else { format!(" at {told}") };
                (format!("{who}{at} ({})", node.id.name), claim)
            };
            let ours = serde_json::from_slice::<Data>(&data).ok().map(|data| (data.owner, data.claim));
            let (owner, claim) = ours.unwrap_or_else(foreign);
            let (token, ephemeral) = (u64::try_from(stat.czxid).ok(), is_ephemeral(stat.ephemeral_owner));
            found.push(Some(Found { path: path(node), owner, claim, token, ephemeral }));
        }
        Ok(found)
    }

    /// A name, and the paths of the nodes that hold it, each with whether it is ephemeral.
    async fn look(&self, live: &Live, name: &Name) -> Result<Option<(Snapshot, Vec<(String, bool)>)>> {
        let folder = self.path(name);
        let (record, children) = tokio::join!(self.record(live, name), self.children(live, &folder));
        let (record, children) = (record?, children?);
        let numbers = record.and_then(|(record, _)| record.snapshot(name, self.wall()));
        let queue = Queue::new(children.iter().filter_map(|child| names::node(child)), 0);
        let mut holding = Vec::new();
        if let Some(kind) = queue.kind() {
            let mut seen = Snapshot::new(name.clone(), kind);
            let nodes: Vec<_> = queue.standings().collect();
            // A reader beside its writer has the writer's token.
            let mut writer = None;
            for ((node, holds), found) in nodes.iter().zip(self.read(live, &folder, &nodes, 0).await?) {
                let Some(found) = found else { continue };
                if !holds {
                    seen.queue.push(Waiter::new(found.owner, found.claim));
                    continue;
                }
                let claim = if found.claim == Claim::Fair { Claim::Mutex } else { found.claim };
                let mut holder = Holder::new(found.owner, claim);
                holder.token = writer.filter(|(order, _)| *order == node.order).map_or(found.token, |(_, token)| token);
                if claim == Claim::Write {
                    writer = Some((node.order, found.token));
                }
                seen.holders.push(holder);
                holding.push((found.path, found.ephemeral));
            }
            return Ok(Some((seen, holding)));
        }
        let is_semaphore = children.iter().any(|child| child == LEASES || child == LOCKS);
        if numbers.as_ref().is_some_and(|found| found.kind != Kind::Semaphore) || !is_semaphore {
            return Ok(numbers.map(|numbers| (numbers, holding)));
        }
        let (leases, locks) = (format!("{folder}/{LEASES}"), format!("{folder}/{LOCKS}"));
        let (given, waiting) = tokio::join!(self.children(live, &leases), self.children(live, &locks));
        let (given, waiting) = (given?, waiting?);
        if numbers.is_none() && given.is_empty() && waiting.is_empty() {
            return Ok(None);
        }
        let mut seen = numbers.unwrap_or_else(|| Snapshot::new(name.clone(), Kind::Semaphore));
        let size = seen.total.unwrap_or(0);
        let sorted = |children: &[String]| {
            let mut nodes: Vec<_> = children.iter().filter_map(|child| names::node(child)).collect();
            nodes.sort_by_key(|node| node.order);
            nodes
        };
        let (given, waiting) = (sorted(&given), sorted(&waiting));
        let used = given.len();
        let nodes: Vec<_> = given.iter().map(|node| (node, true)).collect();
        // One acquisition may have several permits: they are one holder.
        let mut holders: BTreeMap<usize, Holder> = BTreeMap::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for (place, found) in self.read(live, &leases, &nodes, size).await?.into_iter().flatten().enumerate() {
            holding.push((found.path, found.ephemeral));
            let place = *places.entry(found.owner.clone()).or_insert(place);
            holders.entry(place).or_insert_with(|| Holder::new(found.owner, found.claim));
        }
        seen.holders = holders.into_values().collect();
        let nodes: Vec<_> = waiting.iter().map(|node| (node, false)).collect();
        let waiters = self.read(live, &locks, &nodes, size).await?;
        seen.queue = waiters.into_iter().flatten().map(|found| Waiter::new(found.owner, found.claim)).collect();
        seen.value = seen.value.map(|value| value - i64::try_from(used).unwrap_or(i64::MAX));
        Ok(Some((seen, holding)))
    }

    pub(super) async fn inspect(self: &Arc<Self>, name: Name) -> Result<Option<Snapshot>> {
        let live = self.link.live().await?;
        let Some((mut seen, _)) = self.look(&live, &name).await? else { return Ok(None) };
        let owners = seen.holders.iter().map(|holder| &holder.owner).chain(seen.queue.iter().map(|waiter| &waiter.owner));
        let cards = self.cards(&live, owners).await?;
        add_all_cards(&mut seen, |client| Ok(cards.get(&client).cloned()))?;
        Ok(Some(seen))
    }

    pub(super) async fn list(self: &Arc<Self>, asked: Listing) -> Result<Page> {
        let live = self.link.live().await?;
        let mut names: Vec<Name> = self.children(&live, "/").await?.iter().filter_map(|child| names::name_of(child)).collect();
        names.sort();
        names.retain(|name| asked.matches(name) && asked.after.as_deref().is_none_or(|after| name.as_str() > after));
        let mut seen: HashMap<Name, Snapshot> = HashMap::new();
        let mut shown = 0;
        // Folders that are no locks, and empty ones, do not count.
        let mut known = Vec::new();
        for name in names {
            if shown > asked.limit {
                break;
            }
            if let Some(found) = self.inspect(name.clone()).await? {
                shown += 1;
                known.push(name.clone());
                seen.insert(name, found);
            }
        }
        let all = |_: &mut HashMap<Name, Snapshot>, after: &str, _: &str| {
            Ok(known.iter().filter(|name| name.as_str() > after).cloned().collect())
        };
        listing::page(&mut seen, &asked, all, |seen, name| Ok(seen.remove(name)))
    }

    pub(super) async fn force_release(self: &Arc<Self>, name: Name) -> Result<Forced> {
        let live = self.link.live().await?;
        live.sync().await?;
        let Some((mut seen, holding)) = self.look(&live, &name).await? else { return Ok(Forced::new(Vec::new())) };
        if let Some((path, _)) = holding.iter().find(|(_, ephemeral)| !ephemeral) {
            let message = format!(
                "{path} blocks {name:?} and is not a lock's node: it does not end with a session; nothing was released. \
                 Delete it with zkCli.sh if nobody needs it"
            );
            return Err(Error::new(ErrorKind::ForeignKey, message));
        }
        for (path, _) in holding {
            self.delete(&live, &path).await?;
        }
        let cards = self.cards(&live, seen.holders.iter().map(|holder| &holder.owner)).await?;
        add_cards(&mut seen.holders, |client| Ok(cards.get(&client).cloned()))?;
        Ok(Forced::new(seen.holders))
    }

    /// The cards of these owners' clients, as far as they told.
    async fn cards(&self, live: &Live, owners: impl Iterator<Item = &String>) -> Result<HashMap<ClientId, ClientCard>> {
        let ids: std::collections::HashSet<_> =
            owners.filter_map(|owner| owner.parse::<crate::owner::WireOwner>().ok()).map(|owner| owner.client).collect();
        let reading: Vec<_> = ids.iter().map(|id| live.client.get_data(&card_path(*id))).collect();
        let mut cards = HashMap::new();
        for reading in reading {
            match reading.await {
                Ok((data, _)) => {
                    let told = serde_json::from_slice::<Told>(&data).ok();
                    let told = told.filter(|told| told.until > self.link.runtime.wall_micros());
                    cards.extend(told.map(|told| (told.card.id, told.card)));
                }
                Err(Cause::NoNode) => {}
                Err(cause) => return Err(error::of_read(cause)),
            }
        }
        Ok(cards)
    }

    /// Tells who this client is, in a node that ends with its session.
    pub(super) async fn announce(self: &Arc<Self>, card: ClientCard, ttl: Duration) -> Result<()> {
        let live = self.link.live().await?;
        let path = card_path(card.id);
        let until = self.link.runtime.wall_micros().saturating_add(u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX));
        let data = serde_json::to_vec(&Told { card, until })
            .map_err(|cause| Error::new(ErrorKind::Protocol, "a card cannot be written as JSON").with_source(cause))?;
        for _ in 0..4 {
            live.sends();
            match live.client.set_data(&path, &data, None).await {
                Ok(_) => return Ok(()),
                Err(Cause::NoNode) => {}
                Err(cause) => return Err(error::of_write(cause)),
            }
            match live.client.create(&path, &data, &CreateMode::Ephemeral.with_acls(self.acls())).await {
                Ok(_) => return Ok(()),
                Err(Cause::NodeExists) => {}
                Err(Cause::NoNode) => self.make_own_folder(&live, "clients").await?,
                Err(cause) => return Err(error::of_write(cause)),
            }
        }
        Err(Error::new(ErrorKind::Unavailable, "the card of this client was removed while it was written"))
    }

    /// The folder of this name in our own, persistent.
    pub(super) async fn make_own_folder(&self, live: &Live, part: &str) -> Result<()> {
        let options = CreateMode::Persistent.with_acls(self.acls());
        for path in [format!("/{OWN}"), format!("/{OWN}/{part}")] {
            match live.client.create(&path, &[], &options).await {
                Ok(_) | Err(Cause::NodeExists) => {}
                Err(cause) => return Err(self.of_folder(cause)),
            }
        }
        Ok(())
    }
}

fn card_path(client: ClientId) -> String {
    format!("/{OWN}/clients/{client}")
}
