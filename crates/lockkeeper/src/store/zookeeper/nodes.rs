//! The nodes that this client has made: so that a release is one request, and the deletion of a hold by somebody else is told.
//!
//! A watch on each hold would cost a request and a notification per lock. So a watch is set on holds that are still there after [`YOUNG`]: one task looks
//! for them, and only while there are some.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use zookeeper_client::{Error as Cause, EventType};

use super::session::{Link, Live, lock};
use crate::backend::{Acquire, Claim, Release, Renew, StoreEvent};
use crate::name::Name;
use crate::owner::WireOwner;
use crate::runtime::Instant;

/// Holds that are younger than this are not watched.
const YOUNG: Duration = Duration::from_millis(20);

/// The pause after a watch that could not be set.
const PAUSE: Duration = Duration::from_millis(200);

/// Whose nodes: a writer may read beside its own hold, so the two sides are told apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    name: Name,
    owner: WireOwner,
    reads: bool,
}

impl Key {
    pub(super) fn new(name: &Name, owner: WireOwner, claim: Claim) -> Self {
        Self { name: name.clone(), owner, reads: claim == Claim::Read }
    }

    pub(super) fn name(&self) -> &Name {
        &self.name
    }

    pub(super) fn owner(&self) -> WireOwner {
        self.owner
    }

    pub(super) fn of(request: &Acquire) -> Self {
        Self::new(&request.name, request.owner, request.claim)
    }

    pub(super) fn of_release(request: &Release) -> Self {
        Self::new(&request.name, request.owner, request.claim)
    }

    pub(super) fn of_renew(request: &Renew) -> Self {
        Self::new(&request.name, request.owner, request.claim)
    }
}

/// The nodes of one request.
#[derive(Clone, Debug)]
pub(super) struct Own {
    /// The session that they live in.
    pub(super) session: u64,
    /// Where they are: one, or one for each permit.
    pub(super) paths: Vec<String>,
    pub(super) token: Option<u64>,
    /// Since when its owner knows that it holds the name; `None`: it waits.
    pub(super) granted: Option<Instant>,
    pub(super) watched: bool,
}

impl Own {
    pub(super) fn waiting(session: u64, path: String, token: Option<u64>) -> Self {
        Self { session, paths: vec![path], token, granted: None, watched: false }
    }

    /// Whether this child of this folder is one of them.
    pub(super) fn is_at(&self, folder: &str, child: &str) -> bool {
        self.paths.iter().any(|path| path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/')) == Some(child))
    }
}

#[derive(Debug, Default)]
pub(super) struct Nodes(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    known: HashMap<Key, Own>,
    /// Holds that are not watched yet.
    young: Vec<Key>,
    sweeping: bool,
}

impl Nodes {
    /// What is known of a request in this session.
    pub(super) fn get(&self, key: &Key, session: u64) -> Option<Own> {
        lock(&self.0).known.get(key).filter(|own| own.session == session).cloned()
    }

    pub(super) fn insert(&self, key: Key, own: Own) {
        let mut table = lock(&self.0);
        // What lived in an ended session is gone; it is forgotten when the table has doubled, so that this costs nothing per request.
        if table.known.len() == table.known.capacity() {
            let session = own.session;
            table.known.retain(|_, known| known.session == session);
        }
        table.known.insert(key, own);
    }

    pub(super) fn remove(&self, key: &Key) -> Option<Own> {
        lock(&self.0).known.remove(key)
    }

    /// The request holds the name from now on.
    pub(super) fn granted(self: &Arc<Self>, key: &Key, paths: Vec<String>, link: &Arc<Link>) {
        let mut table = lock(&self.0);
        let Some(own) = table.known.get_mut(key) else { return };
        own.paths = paths;
        if own.granted.is_some() {
            return;
        }
        own.granted = Some(link.runtime.now());
        table.young.push(key.clone());
        if !table.sweeping {
            table.sweeping = true;
            link.worker.spawn(sweep(Arc::downgrade(self), Arc::downgrade(link)));
        }
    }

    /// The holds that are old enough to be watched, and whether there are younger ones.
    fn grown(&self, now: Instant, session: u64) -> (Vec<(Key, String)>, bool) {
        let mut table = lock(&self.0);
        let young = std::mem::take(&mut table.young);
        let mut grown = Vec::new();
        for key in young {
            let Some(own) = table.known.get_mut(&key).filter(|own| own.session == session && !own.watched) else { continue };
            let Some(since) = own.granted else { continue };
            if now.since(since) < YOUNG {
                table.young.push(key);
                continue;
            }
            own.watched = true;
            grown.extend(own.paths.first().map(|path| (key, path.clone())));
        }
        let more = !table.young.is_empty();
        table.sweeping = more;
        (grown, more)
    }

    /// Whether this node is still believed to be a hold; it is not any more afterwards.
    fn forget(&self, key: &Key, path: &str) -> bool {
        let mut table = lock(&self.0);
        let found = table.known.get(key).is_some_and(|own| own.granted.is_some() && own.paths.iter().any(|known| known == path));
        if found {
            table.known.remove(key);
        }
        found
    }
}

/// Sets watches on holds that stay, for as long as there are holds without one.
async fn sweep(nodes: Weak<Nodes>, link: Weak<Link>) {
    loop {
        let Some(runtime) = link.upgrade().map(|link| link.runtime.clone()) else { return };
        runtime.sleep_until(runtime.now().plus(YOUNG)).await;
        let (Some(table), Some(up)) = (nodes.upgrade(), link.upgrade()) else { return };
        let live = up.current();
        // Without a session there are no holds.
        let (grown, more) = table.grown(runtime.now(), live.as_ref().map_or(0, |live| live.number));
        for ((key, path), live) in grown.into_iter().zip(live.iter().cycle()) {
            up.worker.spawn(tell_when_deleted(Weak::clone(&nodes), Weak::clone(&link), Arc::downgrade(live), key, path));
        }
        if !more {
            return;
        }
    }
}

/// Tells when a hold is deleted although its owner has not released it.
async fn tell_when_deleted(nodes: Weak<Nodes>, link: Weak<Link>, live: Weak<Live>, key: Key, path: String) {
    loop {
        // The handle of the session is not kept: it would keep the session open.
        let Some(watching) = live.upgrade().map(|live| {
            let client = live.client.clone();
            let path = path.clone();
            async move { client.get_and_watch_data(&path).await.map(|(_, _, watcher)| watcher) }
        }) else {
            return;
        };
        let deleted = match watching.await {
            Ok(watcher) => match watcher.changed().await.event_type {
                EventType::NodeDeleted => true,
                EventType::Session => return,
                _ => false,
            },
            Err(Cause::NoNode) => true,
            // There are no holds in a session that has ended, and what may not be read cannot be watched.
            Err(Cause::SessionExpired | Cause::ClientClosed | Cause::AuthFailed | Cause::NoAuth) => return,
            // The connection broke before the watch was set. A hold without one would not be told of its deletion.
            Err(_) => {
                let Some(runtime) = link.upgrade().map(|link| link.runtime.clone()) else { return };
                runtime.sleep_until(runtime.now().plus(PAUSE)).await;
                false
            }
        };
        let (Some(nodes), Some(link)) = (nodes.upgrade(), link.upgrade()) else { return };
        if deleted {
            if nodes.forget(&key, &path) {
                link.tell(&StoreEvent::HoldDeleted { name: key.name.clone(), owner: key.owner });
            }
            return;
        }
    }
}
