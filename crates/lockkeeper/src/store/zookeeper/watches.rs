//! Wake-ups: each subscription watches the one thing in the way of its owner, or all of a name if that is not known.
//!
//! A watch fires once. It is set before the answer `Busy` can make anybody wait for it, or finds that the node has gone already.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use zookeeper_client::{Client, Error as Cause, EventType, OneshotWatcher};

use super::names::{LEASES, OWN};
use super::session::{Link, lock};
use super::{Inner, error};
use crate::backend::{Kind, Notifier, Subscription, Watch};
use crate::error::Result;
use crate::name::Name;
use crate::owner::WireOwner;

/// The pause after a watch that could not be set.
const PAUSE: Duration = Duration::from_millis(200);

/// What to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The end of this node.
    Node(String),
    /// Permits that come back, and the size, of the semaphore in this folder.
    Permits(String),
    /// Everything in this folder: nothing better is known yet.
    Name(String),
    /// The numbers in this folder.
    Numbers(String),
}

/// The subscriptions of this client's waiters, by whom they are for.
#[derive(Debug, Default)]
pub(super) struct Watches(Mutex<HashMap<(Name, WireOwner), Waiting>>);

#[derive(Debug)]
enum Waiting {
    /// It has been told what is in its way, and does not listen yet.
    Told(Target),
    Listens(watch::Sender<Target>),
}

impl Watches {
    /// This is in the owner's way now.
    pub(super) fn point(&self, name: &Name, owner: WireOwner, target: Target) {
        let mut waiting = lock(&self.0);
        match waiting.get(&(name.clone(), owner)) {
            Some(Waiting::Listens(targets)) => {
                targets.send_if_modified(|known| std::mem::replace(known, target.clone()) != target);
            }
            _ => drop(waiting.insert((name.clone(), owner), Waiting::Told(target))),
        }
    }

    /// Nothing is in its way any more, or it has gone.
    pub(super) fn forget(&self, name: &Name, owner: WireOwner) {
        let mut waiting = lock(&self.0);
        if matches!(waiting.get(&(name.clone(), owner)), Some(Waiting::Told(_))) {
            waiting.remove(&(name.clone(), owner));
        }
    }
}

/// Ends a subscription when dropped: its task sees that nobody sends targets any more.
struct Registration(Weak<Inner>, Name, WireOwner);

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(store) = self.0.upgrade() {
            lock(&store.watches.0).remove(&(self.1.clone(), self.2));
        }
    }
}

impl Inner {
    pub(super) async fn watch(self: &Arc<Self>, watch: Watch) -> Result<Subscription> {
        let live = self.link.live().await?;
        let path = self.path(&watch.name);
        let everything = match watch.kind {
            Kind::CountingSemaphore | Kind::Latch => Target::Numbers(path),
            Kind::Semaphore => Target::Permits(path),
            _ => Target::Name(path),
        };
        let key = (watch.name.clone(), watch.owner);
        let targets = {
            let mut waiting = lock(&self.watches.0);
            let first = match waiting.remove(&key) {
                Some(Waiting::Told(target)) => target,
                _ => everything,
            };
            let (sender, targets) = watch::channel(first);
            waiting.insert(key, Waiting::Listens(sender));
            targets
        };
        let registration = Registration(Arc::downgrade(self), watch.name.clone(), watch.owner);
        let notifier = Notifier::default();
        let (armed, is_armed) = oneshot::channel();
        live.sends();
        drop(live);
        self.link.worker.spawn(listen(Arc::downgrade(&self.link), targets, notifier.clone(), armed));
        // An error of the first watch is told; later ones notify, and the waiter asks.
        if let Ok(Err(cause)) = is_armed.await {
            return Err(error::of_read(cause));
        }
        let subscription = Subscription::new(&notifier, registration);
        Ok(if watch.claim.is_some() { subscription.only_for_owner() } else { subscription })
    }
}

/// Watches one target after the other, until the subscription is dropped.
async fn listen(
    link: Weak<Link>,
    mut targets: watch::Receiver<Target>,
    notifier: Notifier,
    armed: oneshot::Sender<Result<(), Cause>>,
) {
    let mut armed = Some(armed);
    loop {
        let target = targets.borrow_and_update().clone();
        // Not kept while waiting: a handle keeps the session open.
        let Some(up) = link.upgrade() else { return };
        let set = match up.live().await {
            Ok(live) => set(&live.client, &target).await,
            Err(_) => Err(Cause::ConnectionLoss),
        };
        let runtime = up.runtime.clone();
        drop(up);
        if let Some(armed) = armed.take() {
            // The caller may have stopped waiting.
            let _ = armed.send(set.as_ref().map(|_| ()).map_err(Clone::clone));
        }
        let gone = async {
            match set {
                Ok(watchers) => fired(watchers).await,
                // Not at once again, or a broken server is asked without pause.
                Err(_) => {
                    runtime.sleep_until(runtime.now().plus(PAUSE)).await;
                    false
                }
            }
        };
        tokio::select! {
            // First: a new target must not hide that the old one is gone.
            biased;
            gone = gone => {
                // Also after an error: whatever was missed, the waiter asks.
                notifier.notify();
                // The node is gone: the waiter asks, and learns of the next one. After any other event, such as the end of the session, the same
                // node may still be in its way.
                if gone && matches!(target, Target::Node(_)) && targets.changed().await.is_err() {
                    return;
                }
            }
            changed = targets.changed() => if changed.is_err() { return },
        }
    }
}

/// Sets the watches for a target. One that finds nothing to wait for has fired.
async fn set(client: &Client, target: &Target) -> Result<Vec<Option<OneshotWatcher>>, Cause> {
    let children = async |path: &str| match client.list_and_watch_children(path).await {
        Ok((_, watcher)) => Ok(Some(watcher)),
        // Fires when it is created. In between nobody can hold anything there.
        Err(Cause::NoNode) => client.check_and_watch_stat(path).await.map(|(_, watcher)| Some(watcher)),
        Err(cause) => Err(cause),
    };
    let data = async |path: &str| client.check_and_watch_stat(path).await.map(|(_, watcher)| Some(watcher));
    Ok(match target {
        // Reading, not looking for it: a watch on a node that is not there would stay at the server.
        Target::Node(path) => match client.get_and_watch_data(path).await {
            Ok((_, _, watcher)) => vec![Some(watcher)],
            Err(Cause::NoNode) => vec![None],
            Err(cause) => return Err(cause),
        },
        Target::Permits(path) => vec![children(&format!("{path}/{LEASES}")).await?, data(&format!("{path}/{OWN}")).await?],
        Target::Name(path) => vec![children(path).await?],
        Target::Numbers(path) => vec![data(&format!("{path}/{OWN}")).await?],
    })
}

/// Waits for the first of the watches; whether what it watched is gone.
async fn fired(watchers: Vec<Option<OneshotWatcher>>) -> bool {
    let mut waiting: Vec<_> = Vec::with_capacity(watchers.len());
    for watcher in watchers {
        let Some(watcher) = watcher else { return true };
        waiting.push(Box::pin(async move {
            let event = watcher.changed().await;
            // The end of the session fires too; there is nothing to wait for in it.
            debug_assert!(event.event_type != EventType::Session || event.session_state.is_terminated());
            event.event_type == EventType::NodeDeleted
        }));
    }
    std::future::poll_fn(|context| {
        let mut polled = waiting.iter_mut().map(|waiting| waiting.as_mut().poll(context));
        polled.find(Poll::is_ready).unwrap_or(Poll::Pending)
    })
    .await
}
