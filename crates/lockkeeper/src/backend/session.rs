//! Sessions of a client at a store: how they are kept alive, and what a store tells without being asked.

use std::fmt;
use std::future::pending;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::name::Name;
use crate::owner::WireOwner;

/// The answer to a keep-alive: the session goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeptAlive {
    /// Which session of this client it is. A client has one at a time; the next one that it opens has a larger number, and everything that lived in
    /// an earlier one is gone.
    pub session: u64,
    /// How long the session is safe without a further answer, counted from when the request was sent.
    pub good_for: Duration,
}

impl KeptAlive {
    /// The session of this number is safe for so long.
    #[must_use]
    pub const fn new(session: u64, good_for: Duration) -> Self {
        Self { session, good_for }
    }
}

/// Something that happened to what a client holds, told by the store without being asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreEvent {
    /// The session of this number has ended, and with it every hold and every place in a queue that lived in it or in an earlier one.
    SessionEnded(u64),
    /// This hold was deleted: by force, or by an operator.
    HoldDeleted {
        /// Where.
        name: Name,
        /// Whose.
        owner: WireOwner,
    },
    /// Events may have been missed, for example while the connection was down: ask about every hold.
    EventsMissed,
}

/// The keeper's end of a store's events.
pub struct StoreEvents(Option<UnboundedReceiver<StoreEvent>>);

/// The store's end.
#[derive(Clone)]
pub struct EventSender(UnboundedSender<StoreEvent>);

impl StoreEvents {
    /// Two ends of a new stream.
    #[must_use]
    pub fn channel() -> (EventSender, Self) {
        let (sender, receiver) = unbounded_channel();
        (EventSender(sender), Self(Some(receiver)))
    }

    /// Events of a store that tells nothing by itself.
    #[must_use]
    pub const fn none() -> Self {
        Self(None)
    }

    /// The next event. Never resolves if the store tells none, or no more.
    ///
    /// # Cancel safety
    ///
    /// Safe: no event is lost when it is dropped.
    pub async fn next(&mut self) -> StoreEvent {
        if let Some(events) = &mut self.0
            && let Some(event) = events.recv().await
        {
            return event;
        }
        pending().await
    }
}

impl EventSender {
    /// Sends an event. Never blocks. Returns whether somebody still listens.
    pub fn send(&self, event: StoreEvent) -> bool {
        self.0.send(event).is_ok()
    }
}

impl fmt::Debug for StoreEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreEvents")
    }
}

impl fmt::Debug for EventSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventSender")
    }
}
