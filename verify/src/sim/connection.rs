//! A client's connection to a store whose holds live in sessions. It keeps the order of sending, as TCP does: what is cut off for a while arrives
//! late, but behind what was sent before. When it breaks, what was under way is lost, or was carried out and the answer is lost. The client then
//! connects again inside its session, and the server refuses what still comes on the connection before.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use lockkeeper::backend::{Backend as _, EventSender, Notifier, Reply, StoreEvent, StoreEvents, Subscription, Watch};
use lockkeeper::conformance::SessionStore;
use lockkeeper::referee::What;
use lockkeeper::runtime::{Instant, World as _};
use lockkeeper::{Error, ErrorKind};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, oneshot, watch};

use super::ways::{Answer, Deliver, Message, carry_answers, carry_requests};
use super::wire::{DISTURBANCE, Wire};

/// How long an attempt to connect may take.
const CONNECTING: Duration = Duration::from_millis(500);

/// One client's connections to the server, one after the other.
pub(super) struct Connection {
    pub(super) wire: Wire,
    pub(super) store: SessionStore,
    state: Mutex<State>,
    /// The number of the connection that the server listens to.
    accepted: Arc<AtomicU64>,
    broken: Arc<Notify>,
    /// Its receivers end with the client.
    closed: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    /// Which connection it is.
    number: u64,
    /// Both ways, if it is connected.
    ways: Option<(UnboundedSender<Message>, UnboundedSender<Answer>)>,
    unsent: Vec<Message>,
    /// Of requests that got no answer on this connection.
    sent: Vec<oneshot::Sender<()>>,
    session: u64,
    heard: Instant,
    subscriptions: Vec<(Weak<()>, Notifier)>,
    listeners: Vec<EventSender>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connection")
    }
}

impl Connection {
    /// A connection of `wire`'s client, which gives up on one that is silent for so long.
    pub(super) fn open(wire: Wire, store: SessionStore, silent: Duration) -> Arc<Self> {
        let (closed, mut ends) = watch::channel(());
        let state = Mutex::new(State { heard: wire.node.now(), ..State::default() });
        let (accepted, broken) = (Arc::default(), Arc::<Notify>::default());
        let connection = Arc::new(Self { wire, store, state, accepted, broken: Arc::clone(&broken), closed });
        connection.connected(0);
        let (weak, node) = (Arc::downgrade(&connection), connection.wire.node.clone());
        connection.wire.node.start(async move {
            loop {
                tokio::select! {
                    biased;
                    _ = ends.changed() => return,
                    () = broken.notified() => {}
                    () = node.sleep(silent / 4) => {}
                }
                let Some(connection) = weak.upgrade() else { return };
                connection.look(silent).await;
            }
        });
        connection
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects again, if the connection is broken or nothing was heard for too long.
    async fn look(self: &Arc<Self>, silent: Duration) {
        let number = self.state().number;
        if self.wire.node.now().since(self.state().heard) >= silent {
            self.break_off(number);
        }
        while self.state().ways.is_none() {
            let pause = self.wire.drawn(|chance| chance.u64(1_000..50_000));
            self.wire.node.sleep(Duration::from_micros(pause)).await;
            if self.wire.line.is_dead() {
                return;
            }
            self.connect().await;
        }
    }

    /// Tries to connect, and tells the client what it may have missed.
    async fn connect(self: &Arc<Self>) {
        let (number, session) = {
            let mut state = self.state();
            state.number += 1;
            (state.number, state.session)
        };
        let (there, back) = self.wire.drawn(|chance| {
            let most = self.wire.longest();
            (Duration::from_micros(chance.u64(0..=most)), Duration::from_micros(chance.u64(0..=most)))
        });
        let (sender, receiver) = oneshot::channel();
        let (server, line, store, accepted) =
            (self.wire.server.clone(), Arc::clone(&self.wire.line), self.store.sent_in(session), Arc::clone(&self.accepted));
        self.wire.server.start(async move {
            server.sleep(there).await;
            // A connection is made by messages in both directions.
            if line.passes_requests() && line.passes_answers() {
                accepted.fetch_max(number, Ordering::Relaxed);
                let lives = session == 0 || store.keep_alive().await.is_ok();
                server.sleep(back).await;
                if line.passes_answers() {
                    let _ = sender.send(lives);
                }
            }
        });
        let lives = tokio::select! {
            biased;
            lives = receiver => lives,
            () = self.wire.node.sleep(CONNECTING) => return,
        };
        let Ok(lives) = lives else { return };
        let (listeners, subscriptions) = {
            let mut state = self.state();
            if !lives && state.session == session {
                state.session = 0;
            }
            (state.listeners.clone(), state.subscriptions.clone())
        };
        self.connected(number);
        for listener in listeners {
            if !lives {
                listener.send(StoreEvent::SessionEnded(session));
            }
            listener.send(StoreEvent::EventsMissed);
        }
        // They were armed again, and may have missed something.
        subscriptions.iter().for_each(|(_, notifier)| notifier.notify());
    }

    /// Opens both ways, and sends what waited for that.
    fn connected(self: &Arc<Self>, number: u64) {
        let ((up, requests), (down, answers)) = (unbounded_channel(), unbounded_channel());
        self.wire.server.start(carry_requests(Arc::downgrade(self), number, requests, down.clone()));
        self.wire.server.start(carry_answers(Arc::downgrade(self), number, answers));
        let unsent = {
            let mut state = self.state();
            state.heard = self.wire.node.now();
            state.ways = Some((up, down));
            std::mem::take(&mut state.unsent)
        };
        unsent.into_iter().for_each(|message| self.send(message));
    }

    /// What carries requests needs of it.
    pub(super) fn server_side(&self) -> (SessionStore, Arc<AtomicU64>) {
        (self.store.clone(), Arc::clone(&self.accepted))
    }

    /// The client hears from the server on this connection; whether it still has it.
    pub(super) fn hears(&self, number: u64) -> bool {
        let mut state = self.state();
        let has = state.number == number && state.ways.is_some();
        if has {
            state.heard = self.wire.node.now();
        }
        has
    }

    /// The client notices that this connection is broken.
    pub(super) fn break_off(&self, number: u64) {
        let mut state = self.state();
        if state.number != number || state.ways.take().is_none() {
            return;
        }
        state.sent.clear();
        drop(state);
        for client in 0..self.wire.air.clients {
            self.wire.air.trace.add(client, What::Disturbed { lasts: DISTURBANCE });
        }
        self.broken.notify_one();
    }

    /// Breaks the connection that there is.
    pub(super) fn reset(&self) {
        let number = self.state().number;
        // Nothing that is under way arrives.
        self.accepted.fetch_max(number + 1, Ordering::Relaxed);
        self.break_off(number);
    }

    fn send(&self, message: Message) {
        let mut state = self.state();
        match &state.ways {
            None => state.unsent.push(message),
            Some((up, _)) => {
                let (up, (open, cancel)) = (up.clone(), message.split());
                state.sent.retain(|cancel| !cancel.is_closed());
                state.sent.push(cancel);
                // Its other end goes when the connection breaks, and the caller is told then.
                drop(up.send(open));
            }
        }
    }

    /// Carries a request to the store and its answer back; `answered` notes what the client is told.
    pub(super) fn carry<'a, T: Send + 'static>(
        self: &Arc<Self>,
        run: impl FnOnce(SessionStore) -> Reply<'static, T> + Send + 'static,
        answered: impl Fn(&mut T, u64) + Send + 'a,
    ) -> Reply<'a, T> {
        let (sender, receiver) = oneshot::channel();
        let (cancel, cancelled) = oneshot::channel();
        let (sent, fate) = (self.wire.air.trace.now(), self.wire.fate_in_order());
        let sent_in = self.state().session;
        let weak = Arc::downgrade(self);
        self.send(Message {
            sent_in,
            arrives: self.wire.server.now().plus(fate.there),
            back: fate.back,
            request_lost: fate.request_lost,
            answer_lost: fate.answer_lost,
            run: Box::new(move |store| {
                Box::pin(async move {
                    let answer = run(store.clone()).await;
                    let session = store.session();
                    let deliver = move || {
                        if let Some(connection) = weak.upgrade() {
                            connection.state().session = session;
                        }
                        // The caller may have gone.
                        drop(sender.send(answer));
                    };
                    Box::new(deliver) as Deliver
                })
            }),
            cancel,
        });
        Box::pin(async move {
            let lost = || Error::new(ErrorKind::Indeterminate, "the connection broke before the answer came");
            let mut answer = tokio::select! {
                biased;
                answer = receiver => answer.map_err(|_| lost())??,
                _ = cancelled => return Err(lost()),
            };
            answered(&mut answer, sent);
            Ok(answer)
        })
    }

    /// Sends the client something that it did not ask for.
    fn tell(&self, deliver: impl FnOnce() + Send + 'static) {
        let delay = Duration::from_micros(self.wire.drawn(|chance| chance.u64(0..=self.wire.longest())));
        let arrives = self.wire.server.now().plus(delay);
        if let Some((_, down)) = &self.state().ways {
            drop(down.send(Answer { arrives, lost: false, deliver: Box::new(deliver) }));
        }
    }

    /// Subscribes at the store. The subscription lives on when the client connects again.
    pub(super) fn watch(self: &Arc<Self>, watch: Watch) -> Reply<'_, Subscription> {
        let (weak, mut closed) = (Arc::downgrade(self), self.closed.subscribe());
        let subscribing = self.carry(move |store| Box::pin(async move { store.watch(watch).await }), |_, _| {});
        Box::pin(async move {
            let below = subscribing.await?;
            let (notifier, alive) = (Notifier::default(), Arc::new(()));
            let (ends, mut ended) = oneshot::channel::<()>();
            {
                let mut state = self.state();
                state.subscriptions.retain(|(alive, _)| alive.strong_count() > 0);
                state.subscriptions.push((Arc::downgrade(&alive), notifier.clone()));
            }
            let forward = notifier.clone();
            self.wire.server.start(async move {
                loop {
                    tokio::select! {
                        biased;
                        _ = &mut ended => return,
                        _ = closed.changed() => return,
                        () = below.notified() => {}
                    }
                    let Some(connection) = weak.upgrade() else { return };
                    let forward = forward.clone();
                    if !connection.wire.loses_notification() {
                        connection.tell(move || forward.notify());
                    }
                }
            });
            Ok(Subscription::new(&notifier, (ends, alive)).only_for_owner())
        })
    }

    /// What the store tells this client by itself.
    pub(super) fn events(self: &Arc<Self>) -> StoreEvents {
        let (sender, events) = StoreEvents::channel();
        self.state().listeners.push(sender.clone());
        let (weak, mut closed, mut below) = (Arc::downgrade(self), self.closed.subscribe(), self.store.events());
        self.wire.server.start(async move {
            loop {
                let event = tokio::select! {
                    biased;
                    _ = closed.changed() => return,
                    event = below.next() => event,
                };
                let (Some(connection), sender) = (weak.upgrade(), sender.clone()) else { return };
                connection.tell(move || {
                    let _ = sender.send(event);
                });
            }
        });
        events
    }
}
