//! The listener table: which subscriptions wait for which name. No operation depends on the number of other names.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::backend::{Notifier, Subscription};
use crate::model::Wake;
use crate::name::Name;
use crate::owner::WireOwner;

/// The subscriptions of one store inside this process.
#[derive(Debug, Default)]
pub(crate) struct Listeners(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    names: HashMap<Name, Listening>,
    last_id: u64,
}

/// The subscriptions to one name.
#[derive(Debug, Default)]
struct Listening {
    /// To everything at the name.
    all: HashMap<u64, Notifier>,
    /// Only to what concerns the owner's place in the queue.
    owners: HashMap<WireOwner, Vec<(u64, Notifier)>>,
}

impl Listening {
    fn notifiers(&self) -> impl Iterator<Item = &Notifier> {
        self.all.values().chain(self.owners.values().flatten().map(|(_, notifier)| notifier))
    }
}

/// Ends a registration when dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    listeners: Arc<Listeners>,
    name: Name,
    owner: Option<WireOwner>,
    id: u64,
}

impl Listeners {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a notifier for everything at the name, or only for what concerns the owner's place in the queue.
    pub(crate) fn register(self: &Arc<Self>, name: &Name, owner: Option<WireOwner>) -> (Notifier, Registration) {
        let notifier = Notifier::default();
        let mut table = self.table();
        table.last_id += 1;
        let id = table.last_id;
        let listening = table.names.entry(name.clone()).or_default();
        match owner {
            Some(owner) => listening.owners.entry(owner).or_default().push((id, notifier.clone())),
            None => drop(listening.all.insert(id, notifier.clone())),
        }
        (notifier, Registration { listeners: Arc::clone(self), name: name.clone(), owner, id })
    }

    /// As [`register`](Self::register), for as long as the subscription lives.
    pub(crate) fn subscribe(self: &Arc<Self>, name: &Name, owner: Option<WireOwner>) -> Subscription {
        let (notifier, registration) = self.register(name, owner);
        let subscription = Subscription::new(&notifier, registration);
        if owner.is_some() { subscription.only_for_owner() } else { subscription }
    }

    /// Notifies those whom a step of the model may have made grantable; returns how many.
    pub(crate) fn notify(&self, name: &Name, wake: Wake) -> u32 {
        let table = self.table();
        let Some(listening) = table.names.get(name) else { return 0 };
        let all = wake.all.then_some(&listening.all);
        let head = wake.head.and_then(|head| listening.owners.get(&head));
        let notified = all.into_iter().flat_map(HashMap::values).chain(head.into_iter().flatten().map(|(_, notifier)| notifier));
        notified.map(Notifier::notify).count().try_into().unwrap_or(u32::MAX)
    }

    /// Notifies every subscription to the name.
    pub(crate) fn notify_name(&self, name: &Name) {
        self.table().names.get(name).into_iter().flat_map(Listening::notifiers).for_each(Notifier::notify);
    }

    /// Notifies every subscription: wake-ups may have been lost.
    pub(crate) fn notify_all(&self) {
        self.table().names.values().flat_map(Listening::notifiers).for_each(Notifier::notify);
    }

    /// Whether anything at the name is subscribed to.
    pub(crate) fn has_any(&self, name: &Name) -> bool {
        self.table().names.contains_key(name)
    }

    /// Whether somebody subscribed to everything at the name.
    pub(crate) fn has_unfiltered(&self, name: &Name) -> bool {
        self.table().names.get(name).is_some_and(|listening| !listening.all.is_empty())
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut table = self.listeners.table();
        let Some(listening) = table.names.get_mut(&self.name) else { return };
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
            table.names.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::ClientId;

    #[test]
    fn a_wake_reaches_those_it_concerns_and_nobody_after_they_left() {
        let listeners = Arc::new(Listeners::default());
        let (name, other) = (Name::new("a").unwrap(), Name::new("b").unwrap());
        let owner = |number| WireOwner { client: ClientId::from_bits(1), number };
        let all = listeners.subscribe(&name, None);
        let first = listeners.subscribe(&name, Some(owner(1)));
        let _elsewhere = listeners.subscribe(&other, None);
        assert_eq!(listeners.notify(&name, Wake { all: true, head: None }), 1);
        assert_eq!(listeners.notify(&name, Wake { all: true, head: Some(owner(1)) }), 2);
        assert_eq!(listeners.notify(&name, Wake { all: false, head: Some(owner(2)) }), 0);
        drop(all);
        assert!(listeners.has_any(&name) && !listeners.has_unfiltered(&name));
        drop(first);
        assert!(!listeners.has_any(&name));
        assert_eq!(listeners.notify(&name, Wake { all: true, head: Some(owner(1)) }), 0);
    }
}
