//! Semaphores as Curator's `InterProcessSemaphoreV2`: one node per permit in `leases/`, made by whoever is first in the queue in `locks/`.
//!
//! Curator adds its permit and then waits, still first in the queue, until there are no more permits than allowed. We wait until ours fit, and then add
//! them and leave the queue in one transaction. Both count the same nodes, so they do not give out more together than each alone would.

use std::sync::Arc;

use zookeeper_client::{CreateMode, Error as Cause, MultiWriteError, MultiWriteResult};

use super::names::{self, Child, LEASES, LOCKS};
use super::nodes::{Key, Own};
use super::session::Live;
use super::watches::Target;
use super::{Inner, error};
use crate::backend::{Acquire, Attempt, Busy, Claim, Grant, Kind, Release, Released};
use crate::error::{Error, ErrorKind, Result};
use crate::store::queue::{Blocker, Node, Queue, Standing, Want};

/// So often nodes are made again that were removed meanwhile.
const ATTEMPTS: usize = 8;

/// So many permits are acquired at once at most: each is a node, and a transaction must fit into a packet of 1 MB.
const MOST: u32 = 1_000;

/// What a request needs to see of a semaphore.
struct Seen {
    locks: Vec<String>,
    leases: Vec<String>,
    /// The size that is stored.
    total: Option<u32>,
}

impl Inner {
    pub(super) async fn acquire_permits(
        self: &Arc<Self>,
        live: &Arc<Live>,
        request: &Acquire,
        mut known: Option<Own>,
    ) -> Result<Attempt> {
        let Claim::Permits { take, of } = request.claim else {
            return Err(Error::new(ErrorKind::InvalidArgument, "not a claim on permits"));
        };
        let (key, folder, had_place) = (Key::of(request), self.path(&request.name), known.is_some());
        let id = Child::of(request.owner);
        if take > MOST {
            let message = format!("{take} permits at once are too many for the zookeeper store; at most {MOST} are allowed");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        for _ in 0..ATTEMPTS {
            let own = match known.take() {
                Some(own) => own,
                None => match self.queue_up(live, request, &folder).await? {
                    Some(own) => own,
                    None => continue,
                },
            };
            let mut seen = self.look_at(live, request, &folder).await?;
            let total = seen.total.unwrap_or(of);
            let held = self.own_permits(live, &mut seen, &folder, &id).await?;
            let mut queue = queue_of(&seen, &id, take, total);
            // Whoever has its permits does not wait for them.
            let place = Some(&own).filter(|_| held.is_empty());
            self.remove_others(live, &mut queue, request, &format!("{folder}/{LOCKS}"), place).await?;
            if (total != of && !request.any_size) || take == 0 || (take > total && held.is_empty()) {
                let message = format!("cannot take {take} of {of} permits of {:?}, which has {total}", request.name);
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
            if seen.total.is_none() {
                self.set_size(request, of).await?;
            }
            if !held.is_empty() {
                return self.granted_permits(live, key, held).await;
            }
            match queue.standing(&id, Want::Permits { take, granted: false }) {
                Standing::Holds(_) => match self.take_permits(live, request, &folder, &own, take).await? {
                    Some(paths) => return self.granted_permits(live, key, paths).await,
                    None => known = Some(own),
                },
                Standing::Waits { blocker, ahead, .. } => {
                    let busy = Busy::new(None).with_ahead(ahead);
                    if request.place.is_none() && !had_place {
                        self.withdraw(live, &key).await?;
                        return Ok(Attempt::Busy(busy));
                    }
                    let target = match blocker {
                        Blocker::Node(node) => Target::Node(format!("{folder}/{LOCKS}/{}", node.id.name)),
                        Blocker::Permits => Target::Permits(folder.clone()),
                    };
                    self.watches.point(&request.name, request.owner, target);
                    return Ok(Attempt::Busy(busy.with_placed(true)));
                }
                Standing::Absent | Standing::WrongKind(_) => drop(self.nodes.remove(&key)),
            }
        }
        let message = format!("the nodes of {:?} were removed {ATTEMPTS} times while they were created", request.name);
        Err(Error::new(ErrorKind::Indeterminate, message))
    }

    /// Stands in the queue; `None` if its folder had to be made first.
    async fn queue_up(&self, live: &Arc<Live>, request: &Acquire, folder: &str) -> Result<Option<Own>> {
        let sent = live.sends();
        let prefix = format!("{folder}/{LOCKS}/{}", names::prefix(request.owner, Claim::Mutex));
        let options = CreateMode::EphemeralSequential.with_acls(self.acls());
        match live.client.create(&prefix, &self.data(request), &options).await {
            Ok((_, number)) => {
                live.confirms(sent);
                let own = Own::waiting(live.number, format!("{prefix}{number}"), None);
                self.nodes.insert(Key::of(request), own.clone());
                Ok(Some(own))
            }
            Err(Cause::NoNode) => {
                self.make_semaphore(live, folder).await?;
                Ok(None)
            }
            Err(cause) => Err(error::of_write(cause)),
        }
    }

    async fn make_semaphore(&self, live: &Arc<Live>, folder: &str) -> Result<()> {
        self.make_folder(live, folder).await?;
        for part in [LOCKS, LEASES] {
            self.make_folder(live, &format!("{folder}/{part}")).await?;
        }
        Ok(())
    }

    async fn look_at(&self, live: &Arc<Live>, request: &Acquire, folder: &str) -> Result<Seen> {
        live.sends();
        let (locks, leases) = (format!("{folder}/{LOCKS}"), format!("{folder}/{LEASES}"));
        let (in_locks, in_leases, in_folder) =
            (self.children(live, &locks), self.children(live, &leases), self.children(live, folder));
        let (locks, leases, children) = tokio::join!(in_locks, in_leases, in_folder);
        let (locks, leases, children) = (locks?, leases?, children?);
        if let Some(kind) = self.other_kind(live, &request.name, Kind::Semaphore, &children).await? {
            return Err(kind.instead_of(Kind::Semaphore, &request.name));
        }
        let total = self.size(live, &request.name).await?;
        Ok(Seen { locks, leases, total })
    }

    /// The permits that this session has added for the owner: the answer was lost. They are taken out of what was seen, and so are those of an ended
    /// session, which the server would end soon: they are deleted.
    async fn own_permits(&self, live: &Arc<Live>, seen: &mut Seen, folder: &str, id: &Child) -> Result<Vec<String>> {
        let is_ours = |lease: &mut String| names::node(lease).is_some_and(|node| node.id == *id);
        let ours: Vec<_> = seen.leases.extract_if(.., is_ours).map(|lease| format!("{folder}/{LEASES}/{lease}")).collect();
        let looking: Vec<_> = ours.iter().map(|path| live.client.check_stat(path)).collect();
        let mut held = Vec::with_capacity(ours.len());
        for (path, looked) in ours.into_iter().zip(looking) {
            match looked.await.map_err(error::of_read)? {
                Some(stat) if stat.ephemeral_owner == live.client.session_id().0 => held.push(path),
                Some(_) => {
                    self.delete(live, &path).await?;
                }
                None => {}
            }
        }
        Ok(held)
    }

    /// Adds the permits and leaves the queue; `None` if something was removed meanwhile, and nothing was done.
    async fn take_permits(
        &self,
        live: &Arc<Live>,
        request: &Acquire,
        folder: &str,
        own: &Own,
        take: u32,
    ) -> Result<Option<Vec<String>>> {
        let sent = live.sends();
        let (prefix, data) = (format!("{folder}/{LEASES}/{}", names::lease_prefix(request.owner)), self.data(request));
        let options = CreateMode::EphemeralSequential.with_acls(self.acls());
        let mut step = live.client.new_multi_writer();
        for _ in 0..take {
            step.add_create(&prefix, &data, &options).map_err(error::of_write)?;
        }
        for path in &own.paths {
            step.add_delete(path, None).map_err(error::of_write)?;
        }
        match step.commit().await {
            Ok(results) => {
                live.confirms(sent);
                let path = |result| if let MultiWriteResult::Create { path, .. } = result { Some(path) } else { None };
                Ok(Some(results.into_iter().filter_map(path).collect()))
            }
            Err(MultiWriteError::OperationFailed { source: Cause::NoNode, .. }) => {
                self.make_semaphore(live, folder).await?;
                Ok(None)
            }
            Err(cause) => Err(error::of_write(cause.into())),
        }
    }

    async fn granted_permits(self: &Arc<Self>, live: &Arc<Live>, key: Key, paths: Vec<String>) -> Result<Attempt> {
        // Known before the next request, so that they are removed if it fails.
        if self.nodes.get(&key, live.number).is_none_or(|own| own.granted.is_none()) {
            self.nodes.insert(key.clone(), Own { paths: paths.clone(), ..Own::waiting(live.number, String::new(), None) });
        }
        let mut sent = live.sends();
        if live.good_for(sent) < live.lasts / 2 {
            live.sync().await?;
            sent = live.sends();
        }
        self.watches.forget(key.name(), key.owner());
        self.nodes.granted(&key, paths, &self.link);
        Ok(Attempt::Granted(Grant::new(None, live.good_for(sent)).in_session(live.number)))
    }

    /// Removes what an owner has of a semaphore, found by listing.
    pub(super) async fn release_permits(&self, live: &Live, request: &Release) -> Result<Released> {
        let (folder, id) = (self.path(&request.name), Child::of(request.owner));
        let mut held = false;
        for part in [LOCKS, LEASES] {
            let folder = format!("{folder}/{part}");
            for child in self.children(live, &folder).await? {
                if names::node(&child).is_some_and(|node| node.id == id) {
                    held |= self.delete(live, &format!("{folder}/{child}")).await? && part == LEASES;
                }
            }
        }
        Ok(Released::new(held))
    }
}

/// The permits that are given out, and behind them those who wait. What others wait for is not known here, and need not be: nobody overtakes them.
fn queue_of(seen: &Seen, id: &Child, take: u32, total: u32) -> Queue<Child> {
    let given = seen.leases.iter().filter_map(|lease| names::node(lease)).map(|node| Node { order: 0, ..node });
    let waiting = seen.locks.iter().filter_map(|lock| names::node(lock)).map(|node| {
        let take = if node.id == *id { take } else { u32::MAX };
        Node { order: node.order + 1, want: Want::Permits { take, granted: false }, ..node }
    });
    Queue::new(given.chain(waiting), total)
}
