//! The two ways of a connection: requests are carried out, and answers arrive, one after the other.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use lockkeeper::conformance::SessionStore;
use lockkeeper::runtime::{BoxFuture, Instant, World as _};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;

use super::connection::Connection;

/// How often a side that is cut off looks whether it still is.
const LOOKING: Duration = Duration::from_millis(5);

/// What the client finds in an answer, run where it arrives.
pub(super) type Deliver = Box<dyn FnOnce() + Send>;

/// A request on its way to the server.
pub(super) struct Message {
    pub(super) sent_in: u64,
    pub(super) arrives: Instant,
    pub(super) back: Duration,
    pub(super) request_lost: bool,
    pub(super) answer_lost: bool,
    pub(super) run: Box<dyn FnOnce(SessionStore) -> BoxFuture<'static, Deliver> + Send>,
    /// Dropped when the client notices that the connection is broken.
    pub(super) cancel: oneshot::Sender<()>,
}

/// An answer or a notification on its way to the client.
pub(super) struct Answer {
    pub(super) arrives: Instant,
    pub(super) lost: bool,
    pub(super) deliver: Deliver,
}

impl Message {
    /// What the client keeps of a message that it sends: dropped, it tells the caller that there will be no answer.
    pub(super) fn split(mut self) -> (Self, oneshot::Sender<()>) {
        let (nobody, _) = oneshot::channel();
        let cancel = std::mem::replace(&mut self.cancel, nobody);
        (self, cancel)
    }
}

/// Carries out requests one after the other, until the connection ends.
pub(super) async fn carry_requests(
    connection: Weak<Connection>,
    number: u64,
    mut requests: UnboundedReceiver<Message>,
    answers: UnboundedSender<Answer>,
) {
    while let Some(message) = requests.recv().await {
        let Some((server, line, (store, accepted))) = connection
            .upgrade()
            .map(|connection| (connection.wire.server.clone(), Arc::clone(&connection.wire.line), connection.server_side()))
        else {
            return;
        };
        server.sleep_until(message.arrives).await;
        while !line.passes_requests() && !line.is_dead() {
            server.sleep(LOOKING).await;
        }
        // The client has another connection, which the server listens to; it closes this one.
        let moved = accepted.load(Ordering::Relaxed) > number;
        if moved || line.is_dead() || message.request_lost {
            if let Some(connection) = connection.upgrade().filter(|_| !line.is_dead()) {
                connection.break_off(number);
            }
            return;
        }
        let deliver = (message.run)(store.sent_in(message.sent_in)).await;
        let arrives = server.now().plus(message.back);
        if answers.send(Answer { arrives, lost: message.answer_lost, deliver }).is_err() {
            return;
        }
    }
}

/// Carries answers back one after the other, until the connection ends.
pub(super) async fn carry_answers(connection: Weak<Connection>, number: u64, mut answers: UnboundedReceiver<Answer>) {
    while let Some(answer) = answers.recv().await {
        let Some((server, line)) =
            connection.upgrade().map(|connection| (connection.wire.server.clone(), Arc::clone(&connection.wire.line)))
        else {
            return;
        };
        server.sleep_until(answer.arrives).await;
        while !line.passes_answers() && !line.is_dead() {
            server.sleep(LOOKING).await;
        }
        let Some(connection) = connection.upgrade().filter(|_| !line.is_dead()) else { return };
        if answer.lost {
            connection.break_off(number);
            return;
        }
        if !connection.hears(number) {
            return;
        }
        (answer.deliver)();
    }
}
