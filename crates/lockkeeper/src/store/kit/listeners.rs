//! The listener table: which subscriptions wait for which name. No operation depends on the number of other names.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::{Arc, PoisonError};

use crate::backend::{Acquire, Notifier, Subscription, Watch};
use crate::model::Wake;
use crate::name::Name;
use crate::owner::{ClientId, WireOwner};
use crate::runtime::sync::{Mutex, MutexGuard};

/// The subscriptions of one store inside this process, by name, or by whatever key its notifications carry.
#[derive(Debug)]
pub(crate) struct Listeners<K = Name>(Mutex<Table<K>>);

#[derive(Debug)]
struct Table<K> {
    keys: HashMap<K, KeyListeners>,
    last_id: u64,
}

/// The subscriptions to one key.
#[derive(Debug, Default)]
struct KeyListeners {
    /// To everything there, in the order in which they came: a simulation replays that order.
    all: BTreeMap<u64, (Option<ClientId>, Notifier)>,
    /// Only to what concerns the owner's place in the queue.
    owners: BTreeMap<WireOwner, Vec<(u64, Notifier)>>,
    /// Those that asked for a grant, in the order in which they came. They are in `all` or in `owners` too.
    granting: BTreeMap<u64, (Box<Acquire>, Notifier)>,
}

impl KeyListeners {
    fn notifiers(&self) -> impl Iterator<Item = &Notifier> {
        let owners = self.owners.values().flatten().map(|(_, notifier)| notifier);
        self.all.values().map(|(_, notifier)| notifier).chain(owners)
    }
}

/// Ends a registration when dropped.
#[derive(Debug)]
pub(crate) struct Registration<K: Eq + Hash = Name> {
    listeners: Arc<Listeners<K>>,
    key: K,
    owner: Option<WireOwner>,
    id: u64,
}

impl<K> Default for Listeners<K> {
    fn default() -> Self {
        Self(Mutex::new(Table { keys: HashMap::new(), last_id: 0 }))
    }
}

impl<K: Eq + Hash + Clone> Listeners<K> {
    /// Registers a notifier for everything under the key, or only for what concerns the place in the queue of a fair waiter.
    pub(crate) fn register(self: &Arc<Self>, key: K, watch: Watch) -> (Notifier, Registration<K>) {
        self.register_as(key, watch, Notifier::default())
    }

    /// The same for a notifier that is notified from elsewhere too.
    pub(crate) fn register_as(self: &Arc<Self>, key: K, watch: Watch, notifier: Notifier) -> (Notifier, Registration<K>) {
        let (client, owner) = (watch.owner.client, watch.own_place());
        let registration = self.insert(key, owner, |id, listening| {
            match owner {
                Some(owner) => listening.owners.entry(owner).or_default().push((id, notifier.clone())),
                None => drop(listening.all.insert(id, (Some(client), notifier.clone()))),
            }
            if let Some(grant) = watch.grant {
                listening.granting.insert(id, (grant, notifier.clone()));
            }
        });
        (notifier, registration)
    }

    /// Registers a notifier for everything under the key, of a waiter that is not named.
    #[cfg(any(feature = "redis-single", feature = "conformance"))]
    pub(crate) fn listen(self: &Arc<Self>, key: K, notifier: Notifier) -> Registration<K> {
        self.insert(key, None, |id, listening| drop(listening.all.insert(id, (None, notifier))))
    }

    fn insert(
        self: &Arc<Self>,
        key: K,
        owner: Option<WireOwner>,
        insert: impl FnOnce(u64, &mut KeyListeners),
    ) -> Registration<K> {
        let mut table = self.table();
        table.last_id += 1;
        let id = table.last_id;
        insert(id, table.keys.entry(key.clone()).or_default());
        Registration { listeners: Arc::clone(self), key, owner, id }
    }

    /// The keys under which anything is subscribed to.
    #[cfg(any(feature = "redis-single", feature = "postgres", feature = "mysql"))]
    pub(crate) fn keys(&self) -> Vec<K> {
        self.table().keys.keys().cloned().collect()
    }
}

impl Listeners {
    /// Registers for as long as the subscription lives.
    pub(crate) fn subscribe(self: &Arc<Self>, watch: Watch) -> Subscription {
        let own = watch.own_place().is_some() || watch.grant.is_some();
        let (notifier, registration) = self.register(watch.name.clone(), watch);
        let subscription = Subscription::new(&notifier, registration);
        if own { subscription.only_for_owner() } else { subscription }
    }
}

impl<K: Eq + Hash> Listeners<K> {
    fn table(&self) -> MutexGuard<'_, Table<K>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifies those whom a step of the model may have made grantable; returns how many.
    pub(crate) fn notify<Q: Eq + Hash + ?Sized>(&self, key: &Q, wake: Wake) -> u32
    where
        K: Borrow<Q>,
    {
        let table = self.table();
        let Some(listening) = table.keys.get(key) else { return 0 };
        let all = wake.all.then_some(&listening.all).into_iter().flat_map(BTreeMap::values).map(|(_, notifier)| notifier);
        let head = wake.head.and_then(|head| listening.owners.get(&head));
        let notified = all.chain(head.into_iter().flatten().map(|(_, notifier)| notifier));
        notified.map(Notifier::notify).count().try_into().unwrap_or(u32::MAX)
    }

    /// Notifies every subscription under the key.
    pub(crate) fn notify_key<Q: Eq + Hash + ?Sized>(&self, key: &Q)
    where
        K: Borrow<Q>,
    {
        self.table().keys.get(key).into_iter().flat_map(KeyListeners::notifiers).for_each(Notifier::notify);
    }

    /// The same for a notification that stands for so many.
    #[cfg(feature = "redis-single")]
    pub(crate) fn notify_key_for(&self, key: &str, count: u64)
    where
        K: Borrow<str>,
    {
        self.table().keys.get(key).into_iter().flat_map(KeyListeners::notifiers).for_each(|notifier| notifier.notify_for(count));
    }

    /// Notifies every subscription: wake-ups may have been lost.
    pub(crate) fn notify_all(&self) {
        self.table().keys.values().flat_map(KeyListeners::notifiers).for_each(Notifier::notify);
    }

    /// Whether nothing is subscribed to.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) fn is_empty(&self) -> bool {
        self.table().keys.is_empty()
    }

    /// How many keys are subscribed to.
    #[cfg(feature = "conformance")]
    pub(crate) fn count(&self) -> usize {
        self.table().keys.len()
    }

    /// Whether anything under the key is subscribed to.
    pub(crate) fn has_any<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.table().keys.contains_key(key)
    }

    /// Whether somebody subscribed to everything under the key.
    pub(crate) fn has_unfiltered(&self, key: &K) -> bool {
        self.table().keys.get(key).is_some_and(|listening| !listening.all.is_empty())
    }

    /// How many subscribed to everything under the key.
    #[cfg(feature = "postgres")]
    pub(crate) fn unfiltered(&self, key: &K) -> u32 {
        self.table().keys.get(key).map_or(0, |listening| listening.all.len().try_into().unwrap_or(u32::MAX))
    }

    /// Whether a client other than this one waits under the key.
    pub(crate) fn has_other_client(&self, key: &K, client: ClientId) -> bool {
        self.table().keys.get(key).is_some_and(|listening| {
            let all = listening.all.values().map(|(owner, _)| *owner);
            all.chain(listening.owners.keys().map(|owner| Some(owner.client))).any(|other| other != Some(client))
        })
    }

    /// Notifies what this client subscribed to under the key; returns whether there was anything.
    #[cfg(feature = "redis-single")]
    pub(crate) fn notify_client(&self, key: &K, client: ClientId) -> bool {
        let table = self.table();
        let of_client = table.keys.get(key).into_iter().flat_map(|listening| listening.all.values());
        of_client.filter(|(of, _)| *of == Some(client)).map(|(_, notifier)| notifier.notify()).count() > 0
    }

    /// Offers the name to those who asked for a grant, in the order in which they came. `grant` carries out the request of one of them, and
    /// says whether to go on with the next.
    pub(crate) fn offer(&self, key: &K, mut grant: impl FnMut(&Acquire, &Notifier) -> bool) {
        let first = || {
            let table = self.table();
            let (id, (request, notifier)) = table.keys.get(key)?.granting.first_key_value()?;
            Some((*id, request.clone(), notifier.clone()))
        };
        while let Some((id, request, notifier)) = first() {
            if !grant(&request, &notifier) {
                return;
            }
            // One grant for each subscription.
            self.table().keys.get_mut(key).map(|listening| listening.granting.remove(&id));
        }
    }
}

impl<K: Eq + Hash> Drop for Registration<K> {
    fn drop(&mut self) {
        let mut table = self.listeners.table();
        let Some(listening) = table.keys.get_mut(&self.key) else { return };
        listening.granting.remove(&self.id);
        match self.owner {
            None => drop(listening.all.remove(&self.id)),
            Some(owner) => {
                if let Some(of_owner) = listening.owners.get_mut(&owner) {
                    of_owner.retain(|(id, _)| *id != self.id);
                    if of_owner.is_empty() {
                        listening.owners.remove(&owner);
                    }
                }
            }
        }
        if listening.all.is_empty() && listening.owners.is_empty() {
            table.keys.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Claim;

    fn watch(name: &str, claim: Claim, client: u128, number: u64) -> Watch {
        Watch::new(Name::new(name).unwrap(), claim, WireOwner { client: ClientId::from_bits(client), number })
    }

    #[test]
    fn a_wake_reaches_those_it_concerns_and_nobody_after_they_left() {
        let listeners = Arc::new(Listeners::default());
        let (name, [first, second]) = (Name::new("a").unwrap(), [1, 2].map(|number| watch("a", Claim::Fair, 1, number).owner));
        let all = listeners.subscribe(watch("a", Claim::Mutex, 1, 3));
        let fair = listeners.subscribe(watch("a", Claim::Fair, 1, 1));
        let _elsewhere = listeners.subscribe(watch("b", Claim::Mutex, 1, 4));
        assert_eq!(listeners.notify(&name, Wake { all: true, head: None }), 1);
        assert_eq!(listeners.notify(&name, Wake { all: true, head: Some(first) }), 2);
        assert_eq!(listeners.notify(&name, Wake { all: false, head: Some(second) }), 0);
        drop(all);
        assert!(listeners.has_any(&name) && !listeners.has_unfiltered(&name));
        drop(fair);
        assert!(!listeners.has_any(&name));
        assert_eq!(listeners.notify(&name, Wake { all: true, head: Some(first) }), 0);
    }

    #[test]
    fn waiters_of_other_clients_are_told_apart_from_our_own() {
        let listeners = Arc::new(Listeners::default());
        let name = Name::new("a").unwrap();
        let _ours = (listeners.subscribe(watch("a", Claim::Mutex, 1, 1)), listeners.subscribe(watch("a", Claim::Fair, 1, 2)));
        assert!(!listeners.has_other_client(&name, ClientId::from_bits(1)));
        for claim in [Claim::Mutex, Claim::Fair] {
            let theirs = listeners.subscribe(watch("a", claim, 2, 1));
            assert!(listeners.has_other_client(&name, ClientId::from_bits(1)), "{claim:?}");
            drop(theirs);
        }
        assert!(!listeners.has_other_client(&name, ClientId::from_bits(1)));
    }

    #[test]
    fn a_name_is_offered_in_order_and_to_nobody_who_left() {
        let listeners = Arc::new(Listeners::default());
        let ask = |number| {
            Acquire::new(
                Name::new("a").unwrap(),
                Claim::Mutex,
                watch("a", Claim::Mutex, 1, number).owner,
                std::time::Duration::ZERO,
            )
        };
        let mut waiting: Vec<_> = (1..=3).map(|number| listeners.subscribe(Watch::granting(ask(number)))).collect();
        drop(waiting.remove(0));
        let mut offered = Vec::new();
        listeners.offer(&Name::new("a").unwrap(), |request, _| {
            offered.push(request.owner.number);
            request.owner.number == 2
        });
        listeners.offer(&Name::new("a").unwrap(), |request, _| {
            offered.push(request.owner.number);
            true
        });
        assert_eq!(offered, [2, 3, 3]);
    }
}
