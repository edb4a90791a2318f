//! Inspecting, listing and force-releasing names.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::join_all;
use uuid::Uuid;

use super::locks::no_lock;
use super::request::{Failed, Request};
use super::{RedisStore, millis, names, parsed, script};
use crate::backend::{Claim, ClientCard, Forced, Holder, Kind, Listing, Page, Snapshot, Waiter};
use crate::error::{ErrorKind, Result};
use crate::name::{Name, matches_pattern};
use crate::owner::{ClientId, WireOwner};

/// The reply of the script. Its last two tell whose times it left out: fields with counts, and waiters in the fair queue.
pub(super) type Inspected =
    (String, String, i64, Vec<String>, Pairs, Vec<(String, i64, i64)>, Pairs, Vec<(Vec<u8>, i64)>, i64, Vec<String>, Vec<String>);
pub(super) type Pairs = Vec<(String, i64)>;

/// For how many holds and places one script tells the times.
const AT_ONCE: usize = 1_000;

/// Where a listing looks: at the names themselves, and for names whose only trace is a queue.
const PASSES: [(&str, &str); 3] = [("k", ""), ("q", "redisson_lock_queue:"), ("p", "lockkeeper:pending:")];

/// Who clients are, by their folded ids, each read once.
type Cards = HashMap<u64, Option<ClientCard>>;

impl RedisStore {
    pub(super) async fn run_inspect(&self, name: &Name) -> Result<Option<Snapshot>> {
        let mut found = self.inspect_without_cards(name).await?;
        self.add_cards(found.as_mut_slice(), &mut Cards::new()).await?;
        Ok(found)
    }

    async fn inspect_without_cards(&self, name: &Name) -> Result<Option<Snapshot>> {
        self.admit(name, Kind::Mutex)?;
        shown(name, self.run_script(name).await?)
    }

    /// Runs the script, and again for the times that it left out. The first run reads all holders and waiters at one moment.
    async fn run_script(&self, name: &Name) -> Result<Inspected> {
        let mut found: Inspected = parsed(self.transport.run(&script::INSPECT, &[name.as_str()], &|_| Vec::new()).await?)?;
        // One after the other: scripts that arrive together would keep the server from everybody else for as long as one large script.
        while !found.9.is_empty() || !found.10.is_empty() {
            let words: Vec<String> = found.9.drain(..found.9.len().min(2 * AT_ONCE)).collect();
            let waiters = found.10.drain(..found.10.len().min(AT_ONCE));
            let arguments: Vec<Vec<u8>> =
                std::iter::once(words.len().to_string()).chain(words).chain(waiters).map(String::into_bytes).collect();
            let more = self.transport.run(&script::INSPECT, &[name.as_str()], &|_| arguments.clone()).await?;
            let (_, _, _, value, places, _, readers, _, _, left_out, _): Inspected = parsed(more)?;
            found.3.extend(value);
            found.4.extend(places);
            found.6.extend(readers);
            // Readers with many holds each: the script tells of fewer.
            found.9.splice(..0, left_out);
        }
        Ok(found)
    }

    /// Adds who is behind the owners, if they announced themselves. The cards that are not known are read at once: there may be many.
    async fn add_cards(&self, found: &mut [Snapshot], cards: &mut Cards) -> Result<()> {
        let holders = found.iter().flat_map(|found| &found.holders).map(|holder| &holder.owner);
        let waiters = found.iter().flat_map(|found| &found.queue).map(|waiter| &waiter.owner);
        let clients = holders.chain(waiters).filter_map(|owner| Some(folded(owner)?.0));
        let mut unknown: Vec<u64> = clients.filter(|client| !cards.contains_key(client)).collect();
        unknown.sort_unstable();
        unknown.dedup();
        let read = join_all(unknown.iter().map(|client| self.read_card(*client))).await;
        for (client, card) in unknown.into_iter().zip(read) {
            cards.insert(client, card?);
        }
        let tell = |owner: &mut String, client: &mut Option<ClientCard>| {
            let Some((folded, number)) = folded(owner) else { return };
            let Some(card) = cards.get(&folded).and_then(Option::as_ref) else { return };
            match owner.parse::<WireOwner>() {
                Ok(owner) if owner.client != card.id => return,
                Ok(_) => {}
                // A permit: only its card knows its whole owner.
                Err(_) => *owner = WireOwner { client: card.id, number }.to_string(),
            }
            *client = Some(card.clone());
        };
        for found in found {
            found.holders.iter_mut().for_each(|holder| tell(&mut holder.owner, &mut holder.client));
            found.queue.iter_mut().for_each(|waiter| tell(&mut waiter.owner, &mut waiter.client));
        }
        Ok(())
    }

    async fn read_card(&self, folded: u64) -> Result<Option<ClientCard>> {
        let key = names::card(folded);
        let found: Option<String> = parsed(self.transport.command(&key, redis::cmd("GET").arg(&key)).await?)?;
        Ok(found.as_deref().and_then(card_of))
    }

    pub(super) async fn run_list(&self, listing: &Listing) -> Result<Page> {
        // Server after server, pass after pass.
        let mut parts = listing.after.as_deref().unwrap_or("0 k 0").splitn(3, ' ');
        let mut server: usize = parts.next().and_then(|number| number.parse().ok()).unwrap_or(0);
        let (pass, cursor) = (parts.next().unwrap_or("k"), parts.next().unwrap_or("0"));
        let at = PASSES.iter().position(|(known, _)| *known == pass).unwrap_or(0);
        let prefix = PASSES[at].1;
        let pattern = if prefix.is_empty() { listing.pattern.clone() } else { format!("{prefix}*") };
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(listing.limit);
        let servers = self.transport.servers();
        let Some((_, node)) = servers.get(server) else { return Ok(Page { found: Vec::new(), next: None }) };
        let (cursor, keys): (String, Vec<Vec<u8>>) =
            parsed(node.send(&Request::command(&scan)).await.map_err(Failed::into_error)?)?;
        let (mut next_pass, mut cursor) = (Some(pass), cursor);
        if cursor == "0" {
            next_pass = PASSES.get(at + 1).map(|(pass, _)| *pass);
            if next_pass.is_none() && server + 1 < servers.len() {
                (server, next_pass) = (server + 1, Some(PASSES[0].0));
            }
            cursor = "0".to_owned();
        }
        let next = next_pass.map(|pass| format!("{server} {pass} {cursor}"));
        let mut page = Page { found: Vec::new(), next };
        let keys = keys.into_iter().filter_map(|key| String::from_utf8(key).ok());
        let names: Vec<Name> = keys
            .filter_map(|key| {
                if prefix.is_empty() {
                    Name::new(&key).ok().filter(|_| !names::is_reserved(&key))
                } else {
                    names::behind(&key, prefix).filter(|name| matches_pattern(&listing.pattern, name.as_str()))
                }
            })
            .collect();
        // All at once: one after the other a long listing would take a round trip per name.
        for inspected in join_all(names.iter().map(|name| self.inspect_without_cards(name))).await {
            let found = match inspected {
                Err(error) if matches!(error.kind(), ErrorKind::ForeignKey | ErrorKind::InvalidName) => None,
                found => found?,
            };
            // A bare number without a mark is most likely an application's own: it is shown when asked for by name.
            page.found.extend(found.filter(|found| found.kind != Kind::CountingSemaphore));
        }
        self.add_cards(&mut page.found, &mut Cards::new()).await?;
        Ok(page)
    }

    pub(super) async fn run_force_release(&self, name: &Name) -> Result<Forced> {
        let Some(found) = self.run_inspect(name).await?.filter(|found| !found.holders.is_empty()) else {
            return Ok(Forced::default());
        };
        let kind = match found.kind {
            Kind::Mutex => "mutex",
            Kind::RwLock => "rwlock",
            Kind::Semaphore => "semaphore",
            Kind::CountingSemaphore | Kind::Latch => return Ok(Forced::default()),
        };
        let arguments = vec![kind.as_bytes().to_vec(), millis(self.fair_unit)];
        let held: i64 = parsed(self.transport.run(&script::FORCE_RELEASE, &[name.as_str()], &|_| arguments.clone()).await?)?;
        Ok(Forced { from: if held == 1 { found.holders } else { Vec::new() } })
    }
}

/// What the reply of the script says.
pub(super) fn shown(name: &Name, reply: Inspected) -> Result<Option<Snapshot>> {
    let (kind, mark, left, value, places, mut writers, readers, permits, ended, ..) = reply;
    // A mark that ended stays until somebody removes it.
    writers.retain(|(_, _, left)| *left > 0);
    let (kind, certain) = match kind.as_str() {
        "none" if writers.is_empty() => (Kind::Mutex, true),
        "none" | "rwlock" => (Kind::RwLock, true),
        "mutex" => (Kind::Mutex, true),
        "semaphore" => (Kind::Semaphore, true),
        "counter" => (Kind::CountingSemaphore, true),
        "latch" => (Kind::Latch, true),
        // Nobody says what it counts, or somebody else changed it since we did.
        "number" => (marked(&mark), false),
        _ => return Err(no_lock(name, ended)),
    };
    let mut found =
        Snapshot { name: name.clone(), kind, holders: Vec::new(), queue: Vec::new(), value: None, total: None, certain };
    if matches!(kind, Kind::Semaphore | Kind::CountingSemaphore | Kind::Latch) {
        let free: i64 = value.first().and_then(|number| number.parse().ok()).ok_or_else(|| no_lock(name, 1))?;
        found.value = Some(free);
        if kind == Kind::Semaphore {
            // What ended is free, whether or not a request has taken it back yet.
            // An application may have written any number there.
            let free = free.saturating_add(ended);
            found.value = Some(free);
            found.total = u32::try_from(free.saturating_add(i64::try_from(permits.len()).unwrap_or(0))).ok();
            found.holders = permit_holders(&permits, found.total.unwrap_or(0));
        }
        return Ok(Some(found));
    }
    let holders = value.iter().map(|field| match field.strip_suffix(":write") {
        Some(owner) => (owner, Claim::Write, left),
        None => (field.as_str(), Claim::Mutex, left),
    });
    let readers = readers.iter().map(|(owner, left)| (owner.as_str(), Claim::Read, *left));
    // The field of a reader that died stays until somebody removes it.
    for (owner, claim, left) in holders.chain(readers.filter(|(_, _, left)| *left >= 0)) {
        let Ok(left) = u64::try_from(left) else { continue };
        let lease_left = Some(Duration::from_millis(left));
        found.holders.push(Holder { owner: owner.to_owned(), claim, held_for: None, lease_left, token: None, client: None });
    }
    let waiting = |owner: String, claim, left: i64| {
        let left = u64::try_from(left).ok().filter(|left| *left > 0)?;
        Some(Waiter { owner, claim, expires_in: Some(Duration::from_millis(left)), client: None })
    };
    found.queue = places.into_iter().filter_map(|(owner, left)| waiting(owner, Claim::Fair, left)).collect();
    writers.sort_by_key(|(_, since, _)| *since);
    found.queue.extend(writers.into_iter().filter_map(|(owner, _, left)| waiting(owner, Claim::Write, left)));
    Ok(Some(found).filter(|found| !found.holders.is_empty() || !found.queue.is_empty()))
}

/// Who a client is, as it announced itself.
pub(super) fn card_of(text: &str) -> Option<ClientCard> {
    let mut lines = text.split('\n').map(str::to_owned);
    let (pid, host, program) = (lines.next()?.parse().ok()?, lines.next()?, lines.next()?);
    let user = lines.next().filter(|user| !user.is_empty());
    let id = ClientId::from_bits(Uuid::try_parse(&lines.next()?).ok()?.as_u128());
    Some(ClientCard { id, pid, host, program, user })
}

/// The kind that a mark tells of.
fn marked(mark: &str) -> Kind {
    match mark {
        "semaphore" => Kind::Semaphore,
        "latch" => Kind::Latch,
        _ => Kind::CountingSemaphore,
    }
}

/// The folded id of an owner's client, and its number. `owner` is an owner as the store writes it, or the id of a permit.
fn folded(owner: &str) -> Option<(u64, u64)> {
    match owner.parse::<WireOwner>() {
        Ok(owner) => Some((owner.client.folded(), owner.number)),
        Err(_) => names::permit_parts(owner),
    }
}

/// The permits of one owner are one holder.
fn permit_holders(permits: &[(Vec<u8>, i64)], of: u32) -> Vec<Holder> {
    let mut sorted: Vec<_> = permits.iter().collect();
    sorted.sort();
    sorted
        .chunk_by(|(a, _), (b, _)| names::permit_owner(a) == names::permit_owner(b))
        .map(|together| Holder {
            owner: together[0].0.iter().map(|byte| format!("{byte:02x}")).collect(),
            claim: Claim::Permits { take: u32::try_from(together.len()).unwrap_or(u32::MAX), of },
            held_for: None,
            lease_left: together
                .iter()
                .map(|(_, left)| *left)
                .min()
                .and_then(|left| u64::try_from(left).ok())
                .map(Duration::from_millis),
            token: None,
            client: None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_at_the_edge_is_shown_and_not_added_to() {
        let name = Name::new("a").unwrap();
        let value = vec![i64::MAX.to_string()];
        let permits = vec![(vec![0; 16], 1_000)];
        let reply = ("semaphore".to_owned(), String::new(), 0, value, vec![], vec![], vec![], permits, i64::MAX, vec![], vec![]);
        let found = shown(&name, reply).unwrap().unwrap();
        assert_eq!((found.value, found.total), (Some(i64::MAX), None));
    }
}
