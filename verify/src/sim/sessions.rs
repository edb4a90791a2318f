//! The server of sessions in a history, and what happens to it: sessions end, connections break, it stands still or starts again with its data.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use lockkeeper::Name;
use lockkeeper::backend::Backend;
use lockkeeper::conformance::{SessionFlaw, SessionStore};
use lockkeeper::referee::What;
use lockkeeper::runtime::enter;

use super::Flaw;
use super::connection::Connection;
use super::plan::Plan;
use super::session::{Book, LASTS, SessionLink};
use super::trace::Trace;
use super::wire::{DISTURBANCE, Wire};
use super::work::NAMES;
use super::world::Node;

/// The server, and the machine that it runs on.
pub(super) struct Sessions {
    pub(super) node: Node,
    pub(super) store: SessionStore,
    events: bool,
}

impl Sessions {
    pub(super) fn start(node: Node, flaw: Flaw, events: bool, trace: Trace) -> Self {
        let flaw = if flaw == Flaw::PlacesAreLeft { SessionFlaw::ForgetsPlaces } else { SessionFlaw::None };
        let store = {
            // Its tasks run on its machine.
            let _there = enter(Arc::new(node.clone()));
            SessionStore::start(node.runtime(), LASTS, flaw)
        };
        let book = Book::new(trace);
        store.observe(move |changed| book.changed(changed));
        Self { node, store, events }
    }

    /// Connects a client.
    pub(super) fn connect(&self, wire: Wire, flaw: Flaw) -> (Arc<dyn Backend>, Weak<Connection>) {
        let store = self.store.connect();
        // Two thirds, as the client of ZooKeeper does.
        let connection = Connection::open(wire, store.clone(), LASTS * 2 / 3);
        let weak = Arc::downgrade(&connection);
        let (below, holds) = (Arc::new(store), Arc::<Mutex<_>>::default());
        (Arc::new(SessionLink { below, connection, flaw, events: self.events, holds }), weak)
    }
}

impl Plan {
    /// A fault of the server of sessions, of a connection to it, or of a client.
    pub(super) async fn disturb_sessions(&self, director: &Node, chance: &mut fastrand::Rng) {
        let Some(sessions) = &self.sessions else { return };
        let time = Duration::from_micros(chance.u64(1_000..4_000_000));
        let connection = self.machines[chance.usize(0..self.machines.len())].connection.upgrade();
        match chance.u8(0..10) {
            0 => {
                if let Some(connection) = connection {
                    self.note("an operator ends the session of a client".to_owned());
                    connection.store.end_session();
                }
            }
            1 => {
                let name = NAMES[chance.usize(0..NAMES.len())];
                let Ok(name) = Name::try_from(name.to_owned()) else { return };
                // The server's steps tell whose hold it was.
                drop(sessions.store.force_release(name).await);
            }
            2 | 3 => {
                if let Some(connection) = connection {
                    self.note("the connection of a client breaks".to_owned());
                    connection.reset();
                }
            }
            4 => {
                self.note(format!("the server stands still for {time:?}"));
                self.server_stops();
                sessions.node.stall(time);
                director.sleep(time).await;
                self.server_resumes();
            }
            5 => {
                self.note(format!("the server is down for {time:?}, and starts again with its data"));
                self.server_stops();
                self.machines.iter().filter_map(|machine| machine.connection.upgrade()).for_each(|open| open.reset());
                sessions.node.stall(time);
                // While it still stands still, so that no session ends before.
                director.sleep(time - time / 100).await;
                sessions.store.restart();
                director.sleep(time / 100).await;
                self.server_resumes();
            }
            _ => self.disturb_client(director, chance).await,
        }
    }

    fn server_stops(&self) {
        self.air.trace.add(0, What::StoreStopped);
        self.tell_all(&What::Cut);
    }

    fn server_resumes(&self) {
        self.air.trace.add(0, What::StoreResumed);
        self.tell_all(&What::Healed);
        self.tell_all(&What::Disturbed { lasts: DISTURBANCE });
    }
}
