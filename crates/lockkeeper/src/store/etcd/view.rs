//! What lies under one name, and what follows from it: the shared rules of queues, applied to etcd's keys. Pure.

use serde::{Deserialize, Serialize};

use super::keys::{self, Found, Node};
use super::proto::KeyValue;
use crate::backend::{Busy, Claim, Holder, Kind, Snapshot, Waiter};
use crate::error::{Error, ErrorKind, Result};
use crate::model::Record;
use crate::name::Name;
use crate::owner::WireOwner;
use crate::runtime::Instant;
use crate::store::queue::{Node as Queued, Queue, Standing, Want};

/// The clock of records: they have none. What is remembered of requests lies in keys of its own.
pub(super) const NO_TIME: Instant = Instant::from_nanos(1);

/// What the record key holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Numbers {
    pub(super) record: Record,
    /// The revisions of places that held permits when the semaphore was made smaller: they keep them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) kept: Vec<i64>,
}

impl Numbers {
    pub(super) fn parse(value: &[u8]) -> Result<Self> {
        serde_json::from_slice(value).map_err(|cause| {
            Error::new(ErrorKind::ForeignKey, "the record of a lock holds something that lockkeeper did not write")
                .with_source(cause)
        })
    }

    pub(super) fn snapshot(&self, name: &Name) -> Option<Snapshot> {
        self.record.snapshot(name, NO_TIME)
    }
}

/// All that lies under a name.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    nodes: Vec<Node>,
    pub(super) numbers: Option<Numbers>,
    /// The revision at which the record was last written; 0: there is none.
    pub(super) record_revision: i64,
    /// The revision at which the newest key below the name was made, those of longer names included.
    pub(super) newest: i64,
}

/// How an owner stands.
#[derive(Debug)]
pub(super) enum Stands {
    /// It has no key.
    Absent,
    Holds(Node),
    Waits(Busy),
}

impl View {
    pub(super) fn of(name: &Name, kvs: Vec<KeyValue>) -> Result<Self> {
        let mut view = Self::default();
        for kv in kvs {
            view.add(name, &kv)?;
        }
        Ok(view)
    }

    /// Adds a key, or changes it; gives the node.
    pub(super) fn add(&mut self, name: &Name, kv: &KeyValue) -> Result<()> {
        self.newest = self.newest.max(kv.create_revision);
        match keys::parse(name, kv) {
            Some(Found::Record) => {
                self.numbers = Some(Numbers::parse(&kv.value)?);
                self.record_revision = kv.mod_revision;
            }
            Some(Found::Node(node)) => {
                self.nodes.retain(|known| known.key != node.key);
                self.nodes.push(node);
            }
            None => {}
        }
        Ok(())
    }

    /// Removes a key; gives the node that it was.
    pub(super) fn remove(&mut self, name: &Name, key: &[u8]) -> Option<Node> {
        if key == keys::record_key(name).as_slice() {
            (self.numbers, self.record_revision) = (None, 0);
        }
        let index = self.nodes.iter().position(|node| node.key == key)?;
        Some(self.nodes.remove(index))
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    fn queue(&self, name: &Name) -> Queue<i64> {
        let numbers = self.numbers.as_ref();
        let size = numbers.and_then(|numbers| numbers.snapshot(name)).and_then(|seen| seen.total).unwrap_or(0);
        let kept = |revision| numbers.is_some_and(|numbers| numbers.kept.contains(&revision));
        let nodes = self.nodes.iter().map(|node| {
            let want = match node.want {
                Want::Permits { take, .. } => Want::Permits { take, granted: kept(node.revision) },
                other => other,
            };
            Queued::new(node.revision, u64::try_from(node.order).unwrap_or(0), want)
        });
        Queue::new(nodes, size)
    }

    /// The kind of what lies there. Where numbers lie, their kind counts.
    pub(super) fn kind(&self, name: &Name) -> Option<Kind> {
        let of_numbers = self.numbers.as_ref().and_then(|numbers| numbers.snapshot(name)).map(|seen| seen.kind);
        of_numbers.or_else(|| self.queue(name).kind())
    }

    /// Refuses a request for another kind. `own` is the key of the one who asks, which may lie there already.
    pub(super) fn check_kind(&self, name: &Name, wanted: Kind, own: &[u8]) -> Result<()> {
        let mut others = self.clone();
        others.nodes.retain(|node| node.key != own);
        match others.kind(name) {
            Some(kind) if kind != wanted => Err(kind.instead_of(wanted, name)),
            _ => Ok(()),
        }
    }

    /// How the owner of this key stands.
    pub(super) fn stands(&self, name: &Name, key: &[u8]) -> Stands {
        let Some(node) = self.nodes.iter().find(|node| node.key == key) else { return Stands::Absent };
        match self.queue(name).standing(&node.revision, node.want) {
            Standing::Holds(_) => Stands::Holds(node.clone()),
            Standing::Waits { ahead, .. } => Stands::Waits(Busy::new(None).with_ahead(ahead).with_placed(true)),
            Standing::Absent | Standing::WrongKind(_) => Stands::Waits(Busy::new(None).with_placed(true)),
        }
    }

    /// Whether this key asks for more permits than the semaphore has.
    pub(super) fn wants_too_much(&self, name: &Name, key: &[u8]) -> bool {
        let total = || self.numbers.as_ref().and_then(|numbers| numbers.snapshot(name)).and_then(|seen| seen.total).unwrap_or(0);
        let node = self.nodes.iter().find(|node| node.key == key);
        node.is_some_and(|node| matches!(node.want, Want::Permits { take, .. } if take > total()))
    }

    /// The key of an owner, and whether it holds the name.
    pub(super) fn find(&self, name: &Name, owner: WireOwner, claim: Claim) -> Option<(&Node, bool)> {
        let same = |node: &&Node| node.want.kind() == claim.kind() && (node.want == Want::Read) == (claim == Claim::Read);
        let node = self.nodes.iter().filter(same).find(|node| node.owner == Some(owner))?;
        Some((node, matches!(self.stands(name, &node.key), Stands::Holds(_))))
    }

    /// Who holds the name, oldest first.
    pub(super) fn holders(&self, name: &Name) -> Vec<&Node> {
        let queue = self.queue(name);
        let holding: std::collections::HashSet<i64> =
            queue.standings().filter(|(_, holds)| *holds).map(|(node, _)| node.id).collect();
        let mut holders: Vec<&Node> = self.nodes.iter().filter(|node| holding.contains(&node.revision)).collect();
        holders.sort_by_key(|node| (node.order, node.revision));
        holders
    }

    /// The permits that are given out.
    pub(super) fn used(&self, name: &Name) -> u32 {
        self.queue(name).used()
    }

    /// What people see.
    pub(super) fn snapshot(&self, name: &Name) -> Option<Snapshot> {
        let of_numbers = self.numbers.as_ref().and_then(|numbers| numbers.snapshot(name));
        let mut seen = of_numbers.or_else(|| self.kind(name).map(|kind| Snapshot::new(name.clone(), kind)))?;
        seen.value = seen.value.map(|value| value.saturating_sub(i64::from(self.used(name))));
        let total = seen.total.unwrap_or(0);
        let queue = self.queue(name);
        for (queued, holds) in queue.standings() {
            let Some(node) = self.nodes.iter().find(|node| node.revision == queued.id) else { continue };
            let (owner, claim) = (shown(node), claim(node.want, total));
            if holds {
                let mut holder = Holder::new(owner, claim);
                holder.token = token(node);
                seen.holders.push(holder);
            } else {
                // Every mutex here is fair.
                let claim = if claim == Claim::Mutex { Claim::Fair } else { claim };
                seen.queue.push(Waiter::new(owner, claim));
            }
        }
        Some(seen)
    }
}

/// The fencing token of a hold: its number in the queue. Permits have none.
pub(super) fn token(node: &Node) -> Option<u64> {
    (node.want.kind() != Kind::Semaphore).then(|| u64::try_from(node.order).unwrap_or(0))
}

/// An owner as people see it: ours by its id, another program by its lease.
fn shown(node: &Node) -> String {
    match node.owner {
        Some(owner) => owner.to_string(),
        None => format!("etcd lease {:x} (key {})", node.lease, String::from_utf8_lossy(&node.key)),
    }
}

fn claim(want: Want, total: u32) -> Claim {
    match want {
        Want::Mutex => Claim::Mutex,
        Want::Read => Claim::Read,
        Want::Write => Claim::Write,
        Want::Permits { take, .. } => Claim::Permits { take, of: total },
    }
}
