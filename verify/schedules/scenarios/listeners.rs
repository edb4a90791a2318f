//! The table of listeners: registrations that come and go lose no notification and leave no entry.

use std::collections::HashMap;
use std::sync::Arc;

use shuttle::rand::{Rng as _, thread_rng};
use shuttle::sync::atomic::{AtomicU32, Ordering};

use super::Flaw;
use super::explore::flaw;
use super::machine::Machine;
use crate::backend::{Claim, Notifier, Subscription, Watch};
use crate::model::Wake;
use crate::name::Name;
use crate::owner::{ClientId, WireOwner};
use crate::session::lock;
use crate::store::kit::listeners::Listeners;

fn owner(number: u64) -> WireOwner {
    WireOwner { client: ClientId::from_bits(1), number }
}

/// The table, or one that is broken.
enum Table {
    Real(Arc<Listeners>),
    Broken(Arc<TwoStep>),
}

impl Table {
    fn subscribe(&self, name: &Name, claim: Claim, number: u64) -> Subscription {
        match self {
            Self::Real(listeners) => listeners.subscribe(Watch::new(name.clone(), claim, owner(number))),
            Self::Broken(table) => table.subscribe(name, number),
        }
    }

    fn notify(&self, name: &Name, head: u64) {
        match self {
            Self::Real(listeners) => drop(listeners.notify(name, Wake { all: true, head: Some(owner(head)) })),
            Self::Broken(table) => lock(&table.0).get(name).into_iter().flatten().for_each(|(_, notifier)| notifier.notify()),
        }
    }

    fn is_empty(&self, name: &Name) -> bool {
        match self {
            Self::Real(listeners) => !listeners.has_any(name) && listeners.keys().is_empty(),
            Self::Broken(table) => lock(&table.0).is_empty(),
        }
    }
}

/// A table whose registrations end in two steps.
#[derive(Default)]
struct TwoStep(shuttle::sync::Mutex<HashMap<Name, Vec<(u64, Notifier)>>>);

struct Ends(Arc<TwoStep>, Name, u64);

impl TwoStep {
    fn subscribe(self: &Arc<Self>, name: &Name, number: u64) -> Subscription {
        let notifier = Notifier::default();
        lock(&self.0).entry(name.clone()).or_default().push((number, notifier.clone()));
        Subscription::new(&notifier, Ends(Arc::clone(self), name.clone(), number))
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        let mut table = lock(&self.0.0);
        let Some(listening) = table.get_mut(&self.1) else { return };
        listening.retain(|(number, _)| *number != self.2);
        let is_empty = listening.is_empty();
        drop(table);
        if is_empty {
            lock(&self.0.0).remove(&self.1);
        }
    }
}

/// Waiters subscribe, look, and wait; another one subscribes and leaves, twice; meanwhile the name is notified once.
pub(super) fn come_and_go() {
    let table = if flaw() == Flaw::TwoStepRemoval { Table::Broken(Arc::default()) } else { Table::Real(Arc::default()) };
    let (table, name) = (Arc::new(table), Name::new("a").expect("a good name"));
    let fair = thread_rng().gen_bool(0.5);
    Machine::run(0, |machine| async move {
        let free = Arc::new(AtomicU32::new(0));
        let mut tasks = Vec::new();
        for (number, claim) in [(1, Claim::Mutex), (2, if fair { Claim::Fair } else { Claim::Mutex })] {
            let (table, name, free) = (Arc::clone(&table), name.clone(), Arc::clone(&free));
            tasks.push(machine.start(async move {
                let subscription = table.subscribe(&name, claim, number);
                while free.load(Ordering::SeqCst) == 0 {
                    subscription.notified().await;
                }
            }));
        }
        let (theirs, there) = (Arc::clone(&table), name.clone());
        tasks.push(machine.start(async move {
            for number in [3, 4] {
                drop(theirs.subscribe(&there, Claim::Mutex, number));
            }
        }));
        let (theirs, there) = (Arc::clone(&table), name.clone());
        tasks.push(machine.start(async move {
            free.store(1, Ordering::SeqCst);
            theirs.notify(&there, 2);
        }));
        for task in tasks {
            task.await;
        }
        assert!(table.is_empty(&name), "a registration that ended left an entry");
    });
}
