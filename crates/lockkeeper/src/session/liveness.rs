//! Where holds live in the client's session: one keep-alive for all of them. And what a store tells by itself: ended sessions, deleted holds.
//!
//! A hold is safe until the last answered keep-alive was *sent* plus what the store answered, on the local clock. An answer about a newer session
//! says that all holds of an earlier one are gone.

use std::cmp::Ordering as Order;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::link::Connection;
use super::supervised::supervised;
use super::{Core, Hold, keeper, lock};
use crate::backend::{Backend, Event, KeptAlive, LossReason, StoreEvent, StoreEvents};
use crate::error::Error;
use crate::owner::WireOwner;
use crate::runtime::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};
use crate::runtime::{self, Instant};

/// So many deleted holds are remembered until they are registered.
const REMEMBERED: usize = 256;

/// What the store said has ended, for grants whose answer is still on its way to the caller.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// The last session that ended.
    session: AtomicU64,
    /// Owners of this client whose holds were deleted before they were registered.
    holds: Mutex<VecDeque<WireOwner>>,
}

impl Ended {
    /// Whether a hold has ended that is just being registered.
    pub(super) fn includes(&self, owner: WireOwner, session: u64) -> bool {
        let with_session = session > 0 && session <= self.session.load(Ordering::SeqCst);
        with_session || lock(&self.holds).contains(&owner)
    }
}

/// Keeps the session alive and reports what the store tells. Never ends.
pub(super) async fn keep(core: &Arc<Core>, connection: &Arc<dyn Backend>) {
    let events = core.capabilities.events.then(|| runtime::caught(|| connection.events())).flatten();
    // Behind a lock, so that a report that is begun anew goes on with the same events. There is one at a time.
    let events = tokio::sync::Mutex::new(events.unwrap_or_else(StoreEvents::none));
    let session = async || match core.capabilities.liveness.session() {
        Some(lasts) => keep_alive(core, connection, lasts).await,
        None => std::future::pending().await,
    };
    let report = async || report(core, connection, &mut *events.lock().await).await;
    tokio::join!(supervised(&core.runtime, session), supervised(&core.runtime, report));
}

async fn keep_alive(core: &Core, connection: &Arc<dyn Backend>, lasts: Duration) {
    loop {
        let sent = core.runtime.now();
        let next = match core.call_by(Connection::Keeper, core.settings.limit(lasts), || connection.keep_alive()).await {
            Ok(kept) => {
                kept_alive(core, sent, kept);
                sent.plus(lasts / 3)
            }
            // Unknown is not lost, and does not extend the deadline: try again soon.
            Err(error) => {
                let holds = core.registry().holds();
                for hold in holds {
                    renewal_failed(core, &hold, &error);
                }
                core.runtime.now().plus(runtime::jitter(lasts / 40, lasts / 20))
            }
        };
        core.runtime.sleep_until(next).await;
    }
}

fn kept_alive(core: &Core, sent: Instant, kept: KeptAlive) {
    // Taken out first, here and below: what is told to observers may lock the registry itself.
    let holds = core.registry().holds();
    for hold in holds {
        match hold.grounds.session.cmp(&kept.session) {
            Order::Less => hold.lose(LossReason::Gone),
            Order::Equal => drop(hold.renewed(sent, kept.good_for)),
            // Granted in a session that was opened after this answer was sent.
            Order::Greater => {}
        }
    }
}

fn renewal_failed(core: &Core, hold: &Hold, error: &Error) {
    let (name, claim, owner) = (&hold.grounds.name, hold.grounds.claim, hold.grounds.owner);
    core.notify(&Event::RenewalFailed { name, claim, owner, error });
}

async fn report(core: &Arc<Core>, connection: &Arc<dyn Backend>, events: &mut StoreEvents) {
    if core.capabilities.events {
        // What happened to them before the events began was not told.
        let holds = core.registry().holds();
        keeper::look(core, connection, holds);
    }
    loop {
        match events.next().await {
            StoreEvent::SessionEnded(session) => {
                core.ended.session.fetch_max(session, Ordering::SeqCst);
                let holds = core.registry().holds();
                for hold in holds.iter().filter(|hold| (1..=session).contains(&hold.grounds.session)) {
                    hold.lose(LossReason::Gone);
                }
            }
            StoreEvent::HoldDeleted { name, owner } if owner.client == core.id => {
                {
                    let mut deleted = lock(&core.ended.holds);
                    deleted.push_back(owner);
                    if deleted.len() > REMEMBERED {
                        deleted.pop_front();
                    }
                }
                let hold = core.registry().of_owner(owner);
                if let Some(hold) = hold.filter(|hold| hold.grounds.name == name) {
                    hold.lose(LossReason::Gone);
                }
            }
            StoreEvent::HoldDeleted { .. } => {}
            StoreEvent::EventsMissed => {
                let holds = core.registry().holds();
                keeper::look(core, connection, holds);
            }
        }
    }
}
