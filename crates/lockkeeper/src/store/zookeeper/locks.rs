//! Mutexes and read-write locks: one node per request in the folder of the name, as Curator makes them.
//!
//! The creation and the listing are sent together, and the server answers them in this order. What the listing shows is enough: every node with a smaller number
//! was created before ours, and is there unless it was deleted. A folder in which nobody else makes nodes is not listed: see `alone`.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use zookeeper_client::{CreateMode, Error as Cause, Stat};

use super::alone::{self, Expected};
use super::names::{self, Child};
use super::nodes::{Key, Own};
use super::session::Live;
use super::watches::Target;
use super::{Inner, error};
use crate::backend::{Acquire, Attempt, Busy, Claim, Grant, Kind, Release, Released, Renew, Renewed};
use crate::error::{Error, ErrorKind, Result};
use crate::store::queue::{Blocker, Queue, Standing, Want};

/// So often a node is made again whose folder, or which itself, was removed meanwhile.
const ATTEMPTS: usize = 8;

impl Inner {
    pub(super) async fn acquire(self: &Arc<Self>, request: Acquire) -> Result<Attempt> {
        let live = self.link.live().await?;
        let key = Key::of(&request);
        let known = self.nodes.get(&key, live.number);
        let had_place = known.is_some();
        let answer = match request.claim.kind() {
            Kind::Semaphore => self.acquire_permits(&live, &request, known).await,
            _ => self.acquire_lock(&live, &request, known).await,
        };
        let Err(error) = answer else { return answer };
        // A waiter keeps its place while the servers are in trouble, and whoever asked knows that it has one. Nobody knows of a node that was made just
        // now if the answer says that nothing was done.
        if error.may_have_taken() || (had_place && error.is_trouble()) {
            return Err(error);
        }
        match self.withdraw(&live, &key).await {
            Ok(()) => Err(error),
            Err(left) => {
                let message = format!("{error}; its node may be left in the queue, because it could not be deleted: {left}");
                Err(Error::new(ErrorKind::Indeterminate, message).with_source(error))
            }
        }
    }

    async fn acquire_lock(self: &Arc<Self>, live: &Arc<Live>, request: &Acquire, mut known: Option<Own>) -> Result<Attempt> {
        let (key, folder, had_place) = (Key::of(request), self.path(&request.name), known.is_some());
        for _ in 0..ATTEMPTS {
            let sent = live.sends();
            let (own, children) = match known.take() {
                Some(own) => (own, self.children(live, &folder).await?),
                None => match self.create(live, request, &folder).await? {
                    Some((own, children)) => {
                        live.confirms(sent);
                        (own, children)
                    }
                    None => continue,
                },
            };
            let mut queue = Queue::new(children.iter().filter_map(|child| names::node(child)), 0);
            self.remove_others(live, &mut queue, request, &folder, Some(&own)).await?;
            if let Some(kind) = self.other_kind(live, &request.name, request.claim.kind(), &children).await? {
                return Err(kind.instead_of(request.claim.kind(), &request.name));
            }
            match queue.standing(&Child::of(request.owner), Want::of(request.claim)) {
                Standing::Holds(_) => return self.grant(live, key, own).await,
                Standing::Waits { blocker, ahead, .. } => {
                    let busy = Busy::new(None).with_ahead(ahead);
                    if request.place.is_none() && !had_place {
                        self.withdraw(live, &key).await?;
                        return Ok(Attempt::Busy(busy));
                    }
                    let target = match blocker {
                        Blocker::Node(node) => Target::Node(format!("{folder}/{}", node.id.name)),
                        Blocker::Permits => Target::Name(folder),
                    };
                    self.watches.point(&request.name, request.owner, target);
                    return Ok(Attempt::Busy(busy.with_placed(true)));
                }
                Standing::WrongKind(kind) => return Err(kind.instead_of(request.claim.kind(), &request.name)),
                // Somebody deleted it: stand at the end.
                Standing::Absent => drop(self.nodes.remove(&key)),
            }
        }
        let message = format!("the node of {:?} was removed {ATTEMPTS} times while it was created", request.name);
        Err(Error::new(ErrorKind::Indeterminate, message))
    }

    /// Makes the node of a request, and lists the folder; `None` if the folder had to be made first.
    async fn create(&self, live: &Arc<Live>, request: &Acquire, folder: &str) -> Result<Option<(Own, Vec<String>)>> {
        let (key, data) = (Key::of(request), self.data(request));
        if let Some(writer) = request.beside.filter(|_| request.claim == Claim::Read) {
            let writer = self.nodes.get(&Key::new(&request.name, writer, Claim::Write), live.number);
            if let Some(writer) = writer.filter(|writer| writer.granted.is_some()) {
                return self.create_beside(live, request, folder, &writer).await.map(Some);
            }
        }
        let prefix = format!("{folder}/{}", names::prefix(request.owner, request.claim));
        let expected = live.folders.expected(&request.name);
        let creating = live.client.create(&prefix, &data, &CreateMode::EphemeralSequential.with_acls(self.acls()));
        let listing = (expected != Expected::Empty).then(|| live.client.list_children(folder));
        let (stat, number) = match creating.await {
            Ok(created) => created,
            Err(Cause::NoNode) => {
                self.make_folder(live, folder).await?;
                return Ok(None);
            }
            Err(cause) => return Err(error::of_write(cause)),
        };
        let path = format!("{prefix}{number}");
        let own = Own::waiting(live.number, path.clone(), u64::try_from(stat.czxid).ok());
        self.nodes.insert(key, own.clone());
        let (number, node) = (alone::number(&path).unwrap_or(-1), path[folder.len() + 1..].to_owned());
        let listing = match listing {
            Some(listing) => listing,
            None if live.folders.is_alone(&request.name, number) => return Ok(Some((own, vec![node]))),
            None => live.client.list_children(folder),
        };
        let children = listing.await.map_err(error::of_write)?;
        if live.folders.listed(&request.name, number, children == [node], expected) {
            alone::watch(&self.link, live, &request.name, folder);
        }
        Ok(Some((own, children)))
    }

    /// A reader beside its own writer has the writer's number, so that it stays first when the writer goes.
    async fn create_beside(&self, live: &Arc<Live>, request: &Acquire, folder: &str, writer: &Own) -> Result<(Own, Vec<String>)> {
        let digits = writer.paths.first().and_then(|path| names::digits(path)).unwrap_or_default();
        let path = format!("{folder}/{}{digits}", names::prefix(request.owner, Claim::Read));
        let creating = live.client.create(&path, &self.data(request), &CreateMode::Ephemeral.with_acls(self.acls()));
        let listing = live.client.list_children(folder);
        match creating.await {
            // The name is the owner's: it was made by an earlier copy of this request.
            Ok(_) | Err(Cause::NodeExists) => {}
            Err(cause) => return Err(error::of_write(cause)),
        }
        let own = Own::waiting(live.number, path, writer.token);
        self.nodes.insert(Key::of(request), own.clone());
        let children = listing.await.map_err(error::of_write)?;
        // Where the writer was deleted by somebody else, its number is before those who were granted since.
        let stands = |path: &String| path.rsplit('/').next().is_some_and(|node| children.iter().any(|child| child == node));
        if !writer.paths.iter().any(stands) {
            self.withdraw(live, &Key::of(request)).await?;
            return Err(Error::new(ErrorKind::Lost, format!("the write hold on {:?} was lost", request.name)));
        }
        Ok((own, children))
    }

    async fn grant(self: &Arc<Self>, live: &Arc<Live>, key: Key, own: Own) -> Result<Attempt> {
        // Told by a follower: whether the leader still knows the session is seen by its own answers.
        let mut sent = live.sends();
        if live.good_for(sent) < live.lasts / 2 {
            live.sync().await?;
            sent = live.sends();
        }
        let (paths, token) = (own.paths.clone(), own.token);
        self.watches.forget(key.name(), key.owner());
        if own.granted.is_none() {
            self.nodes.insert(key.clone(), own);
        }
        self.nodes.granted(&key, paths, &self.link);
        Ok(Attempt::Granted(Grant::new(token, live.good_for(sent)).in_session(live.number)))
    }

    /// Deletes what a request has made that does not hold the name. `Ok` if it is gone.
    pub(super) async fn withdraw(&self, live: &Live, key: &Key) -> Result<()> {
        let Some(own) = self.nodes.get(key, live.number).filter(|own| own.granted.is_none()) else { return Ok(()) };
        for path in &own.paths {
            self.delete(live, path).await?;
        }
        self.nodes.remove(key);
        Ok(())
    }

    /// Deletes the owner's nodes but the one that this session made and knows of, and takes them out of the queue. An earlier copy of the request
    /// made them: its answer was lost, or its session has ended and the server has not noticed yet. Such a node may vanish while it seems to hold.
    pub(super) async fn remove_others(
        &self,
        live: &Live,
        queue: &mut Queue<Child>,
        request: &Acquire,
        folder: &str,
        own: Option<&Own>,
    ) -> Result<()> {
        let is_own = |child: &Child| own.is_some_and(|own| own.is_at(folder, &child.name));
        for node in queue.take_out_others(&Child::of(request.owner), Want::of(request.claim), is_own) {
            self.delete(live, &format!("{folder}/{}", node.id.name)).await?;
        }
        Ok(())
    }

    pub(super) async fn release(self: &Arc<Self>, request: Release) -> Result<Released> {
        let live = self.link.live().await?;
        let key = Key::of_release(&request);
        // Taken out first: a deletion that this request causes is no loss.
        let own = self.nodes.remove(&key).filter(|own| own.session == live.number);
        self.watches.forget(&request.name, request.owner);
        if let Some(own) = own.filter(|_| !request.settle) {
            let sent = live.sends();
            let deleting: Vec<_> = own.paths.iter().map(|path| live.client.delete(path, None)).collect();
            let mut held = own.granted.is_some();
            for deleted in deleting {
                match deleted.await {
                    Ok(()) => {}
                    Err(Cause::NoNode) => held = false,
                    Err(cause) => return Err(error::of_write(cause)),
                }
            }
            if let Some(path) = own.paths.first().filter(|_| held) {
                live.folders.deleted(&request.name, path);
            }
            live.confirms(sent);
            return Ok(Released::new(held));
        }
        // A request of this owner may still be under way: the driver sends in order, and what was done before is seen after this.
        live.sync().await?;
        if request.claim.kind() == Kind::Semaphore {
            return self.release_permits(&live, &request).await;
        }
        let folder = self.path(&request.name);
        let children = self.children(&live, &folder).await?;
        let queue = Queue::new(children.iter().filter_map(|child| names::node(child)), 0);
        let (id, want) = (Child::of(request.owner), Want::of(request.claim));
        let mut held = matches!(queue.standing(&id, want), Standing::Holds(_));
        for node in children.iter().filter_map(|child| names::node(child)).filter(|node| node.id == id && node.want == want) {
            held &= self.delete(&live, &format!("{folder}/{}", node.id.name)).await?;
        }
        Ok(Released::new(held))
    }

    pub(super) async fn renew(self: &Arc<Self>, requests: Vec<Renew>) -> Result<Vec<Result<Renewed>>> {
        let live = self.link.live().await?;
        let sent = live.sends();
        let asking = live.ask_majority();
        // Sent when they are made, so all of them are under way together.
        let looking: Vec<_> = requests
            .iter()
            .map(|request| {
                let own = self.nodes.get(&Key::of_renew(request), live.number).filter(|own| own.granted.is_some());
                own.map(|own| own.paths.iter().map(|path| live.client.check_stat(path)).collect::<Vec<_>>())
            })
            .collect();
        asking.await?;
        live.confirms(sent);
        let mut answers = Vec::with_capacity(requests.len());
        for (request, looking) in requests.iter().zip(looking) {
            let held = match looking {
                Some(looking) => all_there(looking).await,
                // It may live in a session that is not ours: then it is seen, and not lengthened.
                None if request.lease.is_none() => self.is_held(&live, request).await,
                None => Ok(false),
            };
            answers.push(held.map(|held| match held {
                true => Renewed::Kept { good_for: request.lease.map_or(Duration::ZERO, |_| live.lasts) },
                false => Renewed::Gone,
            }));
        }
        Ok(answers)
    }

    /// Whether a hold is there that was not acquired in this session.
    async fn is_held(&self, live: &Live, request: &Renew) -> Result<bool> {
        let (folder, id) = (self.path(&request.name), Child::of(request.owner));
        if request.claim.kind() == Kind::Semaphore {
            let leases = self.children(live, &format!("{folder}/{}", names::LEASES)).await?;
            return Ok(leases.iter().filter_map(|child| names::node(child)).any(|node| node.id == id));
        }
        let children = self.children(live, &folder).await?;
        let queue = Queue::new(children.iter().filter_map(|child| names::node(child)), 0);
        Ok(matches!(queue.standing(&id, Want::of(request.claim)), Standing::Holds(_)))
    }
}

async fn all_there(looking: Vec<impl Future<Output = std::result::Result<Option<Stat>, Cause>>>) -> Result<bool> {
    let mut there = true;
    for looked in looking {
        there &= looked.await.map_err(error::of_read)?.is_some();
    }
    Ok(there)
}
