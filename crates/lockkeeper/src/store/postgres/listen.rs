//! Wake-ups: one connection per store that listens on one channel, and marks at the rows that somebody here waits for.
//!
//! Steps notify only where a mark says that somebody waits. A mark ends after a while unless it is renewed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio_postgres::AsyncMessage;
use tokio_postgres::types::Type;

use super::link::{self, PgLink, Shared};
use super::schema::Texts;
use super::statements::get;
use crate::backend::{Subscription, Watch};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::runtime::{self, Instant, Runtime};
use crate::store::kit::listeners::Listeners;
use crate::store::sql::{Failed, Link as _, text};

/// How long a mark counts.
const MARKED: Duration = Duration::from_secs(15);

/// A mark with less time left than this is renewed.
const RENEWED: Duration = Duration::from_secs(8);

/// How often marks are looked at.
const TICK: Duration = Duration::from_secs(3);

/// How long a subscription may take until the store listens.
const READY: Duration = Duration::from_secs(3);

/// The pauses between attempts to listen that fail.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// The wake-ups of a store.
#[derive(Debug)]
pub(super) struct Wakeups {
    link: PgLink,
    listeners: Arc<Listeners>,
    /// Tells marks of this store from others.
    instance: i64,
    marks: Mutex<HashMap<Name, Mark>>,
    state: watch::Sender<State>,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    /// When it ends, on our clock.
    until: Instant,
    /// When it ends, as the row says.
    watched: i64,
}

#[derive(Clone, Debug)]
enum State {
    /// Nobody has subscribed yet.
    Idle,
    Connecting,
    Listening,
    Failed(Error),
}

impl Wakeups {
    pub(super) fn new(link: PgLink) -> Arc<Self> {
        let instance = link.shared().runtime.client_id().bits() as i64;
        let (listeners, marks) = Default::default();
        Arc::new(Self { link, listeners, instance, marks, state: watch::Sender::new(State::Idle) })
    }

    fn shared(&self) -> &Arc<Shared> {
        self.link.shared()
    }

    fn runtime(&self) -> &Runtime {
        &self.shared().runtime
    }

    fn marks(&self) -> MutexGuard<'_, HashMap<Name, Mark>> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes to everything at the name, or only to what concerns the owner's place in its queue.
    pub(super) async fn subscribe(self: &Arc<Self>, watch: Watch) -> Result<Subscription> {
        let (name, own_place) = (watch.name.clone(), watch.own_place());
        let subscription = self.listeners.subscribe(watch);
        self.listening().await?;
        // A waiter in a queue is found by its row.
        if own_place.is_none() {
            let now = self.runtime().now();
            let marked = self.marks().get(&name).is_some_and(|mark| mark.until > now.plus(RENEWED));
            if !marked {
                self.mark(std::slice::from_ref(&name)).await?;
            }
        }
        Ok(subscription)
    }

    /// Waits until the store listens.
    async fn listening(self: &Arc<Self>) -> Result<()> {
        let mut state = self.state.subscribe();
        let start = self.state.send_if_modified(|state| {
            let idle = matches!(state, State::Idle);
            if idle {
                *state = State::Connecting;
            }
            idle
        });
        if start {
            let (us, shared) = (Arc::downgrade(self), self.shared());
            let channel = shared.channel.get().cloned().unwrap_or_default();
            let (config, texts) = (shared.config.clone(), Arc::clone(&shared.texts));
            shared.worker.spawn(async move { listen(us, config, channel, texts).await });
        }
        let ready = Box::pin(async move {
            loop {
                match state.borrow_and_update().clone() {
                    State::Listening => return Ok(()),
                    State::Failed(error) => return Err(error),
                    State::Idle | State::Connecting => {}
                }
                if state.changed().await.is_err() {
                    return Err(Error::new(ErrorKind::Unavailable, "the store was closed"));
                }
            }
        });
        let late = || Err(Error::new(ErrorKind::Unavailable, format!("postgres did not begin to notify within {READY:?}")));
        runtime::within(READY, ready).await.unwrap_or_else(late)
    }

    /// Marks rows as waited for.
    async fn mark(&self, names: &[Name]) -> Result<()> {
        let live = self.link.live().await?;
        let sent = self.runtime().now();
        let bytes: Vec<&[u8]> = names.iter().map(|name| name.as_str().as_bytes()).collect();
        let versions: Vec<i64> = names.iter().map(|_| self.runtime().client_id().bits() as i64).collect();
        let window = i64::try_from(MARKED.as_micros()).unwrap_or(i64::MAX);
        let parameters: [super::statements::Parameter<'_>; 4] =
            [(&bytes, Type::BYTEA_ARRAY), (&versions, Type::INT8_ARRAY), (&window, Type::INT8), (&self.instance, Type::INT8)];
        let rows = live.query(&live.texts.mark, &parameters).await.map_err(Failed::into_error)?;
        let mut marks = self.marks();
        for row in &rows {
            let (name, watched): (&[u8], i64) =
                (get(row, 0).map_err(Failed::into_error)?, get(row, 1).map_err(Failed::into_error)?);
            if let Some(name) = names.iter().find(|known| known.as_str().as_bytes() == name) {
                marks.insert(name.clone(), Mark { until: sent.plus(MARKED), watched });
            }
        }
        Ok(())
    }

    /// Renews the marks of names that somebody waits for, and forgets the others.
    async fn renew_marks(&self) {
        let now = self.runtime().now();
        let due: Vec<Name> = {
            let mut marks = self.marks();
            marks.retain(|name, mark| mark.until > now || self.listeners.has_unfiltered(name));
            let due = marks.iter().filter(|(name, mark)| mark.until <= now.plus(RENEWED) && self.listeners.has_unfiltered(name));
            due.map(|(name, _)| name.clone()).collect()
        };
        if due.is_empty() {
            return;
        }
        if let Err(error) = self.mark(&due).await {
            tracing::debug!(%error, "could not renew the marks of names that are waited for; waiters poll");
        }
    }

    /// A notification came. Tells which mark to remove because nobody here waits any more.
    fn notified(&self, payload: &str) -> Option<(Name, i64)> {
        let (name, wake) = text::parse_payload(payload)?;
        if self.listeners.notify(&name, wake) > 0 || !wake.all || self.listeners.has_any(&name) {
            return None;
        }
        // A subscription that comes now marks the row anew, with a later end than this one.
        let mark = self.marks().remove(&name)?;
        Some((name, mark.watched))
    }
}

/// Listens until the store is gone; connects again when the connection breaks.
async fn listen(store: Weak<Wakeups>, config: super::Config, channel: String, texts: Arc<Texts>) {
    let mut pause = PAUSES.0;
    loop {
        let connected = match runtime::within(config.opening(), Box::pin(connect(&config, &channel))).await {
            Some(connected) => connected,
            None => Err(super::error::of_silence(&config)),
        };
        let error = match connected {
            Ok((client, mut notifications)) => {
                let Some(there) = store.upgrade() else { return };
                pause = PAUSES.0;
                there.state.send_replace(State::Listening);
                // Notifications may have been missed.
                there.listeners.notify_all();
                let (runtime, instance) = (there.runtime().clone(), there.instance);
                drop(there);
                let mut tick = runtime.now().plus(TICK);
                loop {
                    let payload = tokio::select! {
                        payload = notifications.recv() => payload,
                        () = runtime.sleep_until(tick) => {
                            let Some(there) = store.upgrade() else { return };
                            there.renew_marks().await;
                            tick = runtime.now().plus(TICK);
                            continue;
                        }
                    };
                    let Some(payload) = payload else { break };
                    let Some(there) = store.upgrade() else { return };
                    let unmark = there.notified(&payload);
                    drop(there);
                    if let Some((name, watched)) = unmark {
                        let bytes = name.as_str().as_bytes();
                        let parameters: [super::statements::Parameter<'_>; 3] =
                            [(&bytes, Type::BYTEA), (&instance, Type::INT8), (&watched, Type::INT8)];
                        if let Err(error) = client.query_typed(&texts.unmark, &parameters).await {
                            tracing::debug!(%error, "could not remove the mark of a name that nobody waits for; it ends by itself");
                        }
                    }
                }
                Error::new(ErrorKind::Unavailable, "the connection for notifications broke")
            }
            Err(error) => error,
        };
        let Some(there) = store.upgrade() else { return };
        tracing::debug!(%error, "no notifications from postgres; waiters poll");
        there.state.send_replace(State::Failed(error));
        // Whoever relied on notifications looks by itself.
        there.listeners.notify_all();
        let (runtime, until) = (there.runtime().clone(), there.runtime().now().plus(runtime::jitter(pause / 2, pause)));
        drop(there);
        runtime.sleep_until(until).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Opens a connection that listens; gives what it is told.
async fn connect(config: &super::Config, channel: &str) -> Result<(tokio_postgres::Client, mpsc::UnboundedReceiver<String>)> {
    let (client, mut connection) = link::dial(config).await?;
    let (told, notifications) = mpsc::unbounded_channel();
    runtime::spawn(async move {
        loop {
            match std::future::poll_fn(|cx| connection.poll_message(cx)).await {
                Some(Ok(AsyncMessage::Notification(notification))) => {
                    if told.send(notification.payload().to_owned()).is_err() {
                        return;
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return,
            }
        }
    });
    let listen = format!("LISTEN {}", super::config::quoted(channel));
    client.batch_execute(&listen).await.map_err(|cause| super::error::of_request(cause).into_error())?;
    Ok((client, notifications))
}
