//! One watched name: the mirror of what lies there, and who waits for what. Pure: events in, notifications out.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::sync::oneshot;

use super::keys;
use super::proto::Event;
use super::view::{Stands, View};
use crate::backend::Notifier;
use crate::error::{Error, Result};
use crate::name::Name;
use crate::owner::WireOwner;
use crate::runtime::Instant;

/// What is known of a name.
#[derive(Debug)]
pub(super) enum Mirror {
    /// The watcher does not watch yet.
    Opening,
    /// It watches, and the list is being read; events since then.
    Listing(Vec<Event>),
    Ready {
        view: Box<View>,
        /// The revisions of those who hold the name.
        holding: HashSet<i64>,
        /// When it was last known to be what the server has.
        compared: Instant,
    },
}

#[derive(Debug)]
pub(super) struct Watched {
    pub(super) number: i64,
    pub(super) mirror: Mirror,
    /// Those who wait until the mirror is ready.
    opening: Vec<oneshot::Sender<Result<()>>>,
    /// Notified of every change.
    all: HashMap<u64, Notifier>,
    /// Notified of every change until the mirror has a key of this owner.
    keyless: HashMap<WireOwner, Vec<(u64, Notifier)>>,
    /// Notified when the key of this owner holds the name, or is gone.
    owners: HashMap<WireOwner, Vec<(u64, Notifier)>>,
    last_id: u64,
    /// Nobody has waited since then.
    pub(super) idle_since: Option<Instant>,
    /// It has had a key since then that the server has no more.
    behind_since: Option<Instant>,
    /// The server ended the watcher: another one has to begin.
    pub(super) cancelled: bool,
}

impl Watched {
    pub(super) fn new(number: i64) -> Self {
        let (mirror, opening) = (Mirror::Opening, Vec::new());
        Self {
            number,
            mirror,
            opening,
            all: HashMap::new(),
            keyless: HashMap::new(),
            owners: HashMap::new(),
            last_id: 0,
            idle_since: None,
            behind_since: None,
            cancelled: false,
        }
    }

    /// Adds a subscription: of the owner of a key, or to every change. An owner without a key is notified of every change too.
    pub(super) fn add(&mut self, owner: Option<WireOwner>, notifier: Notifier) -> u64 {
        self.last_id += 1;
        self.idle_since = None;
        let has_key = |owner: WireOwner| match &self.mirror {
            Mirror::Ready { view, .. } => view.nodes().iter().any(|node| node.owner == Some(owner)),
            Mirror::Opening | Mirror::Listing(_) => true,
        };
        match owner {
            Some(owner) if has_key(owner) => self.owners.entry(owner).or_default().push((self.last_id, notifier)),
            Some(owner) => self.keyless.entry(owner).or_default().push((self.last_id, notifier)),
            None => drop(self.all.insert(self.last_id, notifier)),
        }
        self.last_id
    }

    pub(super) fn remove(&mut self, owner: WireOwner, id: u64, now: Instant) {
        self.all.remove(&id);
        for table in [&mut self.owners, &mut self.keyless] {
            if let Some(of_owner) = table.get_mut(&owner) {
                of_owner.retain(|(other, _)| *other != id);
                if of_owner.is_empty() {
                    table.remove(&owner);
                }
            }
        }
        if self.all.is_empty() && self.owners.is_empty() && self.keyless.is_empty() {
            self.idle_since = Some(now);
        }
    }

    pub(super) fn notify_all(&self) {
        self.owners.values().flatten().for_each(|(_, notifier)| notifier.notify());
        self.notify_of_every_change();
    }

    fn notify_of_every_change(&self) {
        let keyless = self.keyless.values().flatten().map(|(_, notifier)| notifier);
        self.all.values().chain(keyless).for_each(Notifier::notify);
    }

    fn notify_owner(&self, owner: Option<WireOwner>) {
        let of_owner = owner.and_then(|owner| self.owners.get(&owner));
        of_owner.into_iter().flatten().for_each(|(_, notifier)| notifier.notify());
    }

    /// `None`: it is ready.
    pub(super) fn wait_until_ready(&mut self) -> Option<oneshot::Receiver<Result<()>>> {
        if matches!(self.mirror, Mirror::Ready { .. }) {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        self.opening.push(sender);
        Some(receiver)
    }

    pub(super) fn fail(&mut self, error: &Error) {
        for waiting in self.opening.drain(..) {
            // The waiter may have gone.
            let _ = waiting.send(Err(error.clone()));
        }
        self.notify_all();
    }

    /// The server ended the watcher. Those who wait ask by themselves until another one watches.
    pub(super) fn cancel(&mut self, error: &Error) {
        (self.mirror, self.cancelled) = (Mirror::Opening, true);
        self.fail(error);
    }

    /// The list was read at this revision; what was told since then is added.
    pub(super) fn begin(&mut self, name: &Name, view: View, revision: i64, now: Instant) {
        let since = match std::mem::replace(&mut self.mirror, Mirror::Opening) {
            Mirror::Listing(events) => events,
            Mirror::Opening | Mirror::Ready { .. } => Vec::new(),
        };
        self.mirror = Mirror::Ready { view: Box::new(view), holding: HashSet::new(), compared: now };
        let is_news = |event: &Event| event.kv.as_ref().is_some_and(|kv| kv.mod_revision > revision);
        self.changed(name, since.into_iter().filter(is_news).collect());
        for waiting in self.opening.drain(..) {
            // The waiter may have gone.
            let _ = waiting.send(Ok(()));
        }
        self.notify_all();
    }

    /// Takes in what happened, and notifies those whom it concerns.
    pub(super) fn changed(&mut self, name: &Name, events: Vec<Event>) {
        let (view, holding) = match &mut self.mirror {
            Mirror::Ready { view, holding, .. } => (view, holding),
            Mirror::Listing(since) => return since.extend(events),
            Mirror::Opening => return,
        };
        let (mut gone, record) = (Vec::new(), view.record_revision);
        for kv in events.into_iter().filter_map(|event| event.kv.map(|kv| (event.r#type == 1, kv))) {
            match kv {
                (true, kv) => gone.extend(view.remove(name, &kv.key).and_then(|node| node.owner)),
                // What cannot be read is shown to those who ask the server.
                (false, kv) => {
                    drop(view.add(name, &kv));
                    if let Some(keys::Found::Node(keys::Node { owner: Some(owner), .. })) = keys::parse(name, &kv)
                        && let Some(waiting) = self.keyless.remove(&owner)
                    {
                        self.owners.entry(owner).or_default().extend(waiting);
                    }
                }
            }
        }
        let now_holding: HashSet<i64> = view.holders(name).into_iter().map(|node| node.revision).collect();
        let new = view.nodes().iter().filter(|node| now_holding.contains(&node.revision) && !holding.contains(&node.revision));
        let concerned: Vec<_> = new.filter_map(|node| node.owner).chain(gone).collect();
        *holding = now_holding;
        if view.record_revision != record {
            // Another size concerns everybody who waits.
            return self.notify_all();
        }
        for owner in concerned {
            self.notify_owner(Some(owner));
        }
        self.notify_of_every_change();
    }

    /// Whether the mirror has had a key for so long that is older than the oldest one at the server.
    pub(super) fn is_behind(&mut self, oldest: i64, now: Instant, limit: Duration) -> bool {
        let Mirror::Ready { view, .. } = &self.mirror else { return false };
        if view.nodes().iter().all(|node| node.revision >= oldest) {
            self.behind_since = None;
            return false;
        }
        now.since(*self.behind_since.get_or_insert(now)) > limit
    }

    /// How the owner of this key stands, and when the mirror was last compared with the server. `None`: the server has to be asked, also by one who
    /// wants more permits than there are.
    pub(super) fn stands(&mut self, name: &Name, key: &[u8]) -> Option<(Stands, &mut Instant)> {
        let Mirror::Ready { view, compared, .. } = &mut self.mirror else { return None };
        match view.stands(name, key) {
            Stands::Waits(_) if view.wants_too_much(name, key) => None,
            Stands::Absent => None,
            stands => Some((stands, compared)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::proto::KeyValue;
    use super::*;
    use crate::backend::Subscription;
    use crate::owner::ClientId;

    fn put(key: &str, owner: WireOwner, revision: i64) -> Event {
        let value = format!(r#"{{"owner":"{owner}"}}"#).into_bytes();
        let (key, version, lease) = (key.as_bytes().to_vec(), 1, 0x1b);
        let kv = KeyValue { key, value, create_revision: revision, mod_revision: revision, version, lease };
        Event { r#type: 0, kv: Some(kv) }
    }

    #[test]
    fn a_waiter_that_the_mirror_learns_of_later_hears_only_what_concerns_it() {
        let name = Name::new("a").unwrap();
        let owner = |number| WireOwner { client: ClientId::from_bits(1), number };
        let mut watched = Watched::new(2);
        watched.begin(&name, View::default(), 1, Instant::from_nanos(1));
        let notifier = Notifier::default();
        let subscription = Subscription::new(&notifier, ());
        let mut last = 0;
        let mut is_notified = || subscription.count() > std::mem::replace(&mut last, subscription.count());
        // It subscribed before its key was told.
        let id = watched.add(Some(owner(2)), notifier);
        watched.changed(&name, vec![put("a/1b.1", owner(1), 2)]);
        assert!(is_notified(), "without a key every change concerns it");
        watched.changed(&name, vec![put("a/1b.2", owner(2), 3)]);
        is_notified();
        watched.changed(&name, vec![put("a/1b.3", owner(3), 4)]);
        assert!(!is_notified(), "somebody behind it does not concern it");
        let Event { kv, .. } = put("a/1b.1", owner(1), 5);
        watched.changed(&name, vec![Event { r#type: 1, kv }]);
        assert!(is_notified(), "it holds the name");
        watched.remove(owner(2), id, Instant::from_nanos(2));
        assert!(watched.idle_since.is_some());
    }
}
