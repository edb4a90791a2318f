//! Wake-ups: one connection per store that listens on one channel, and marks at the rows that somebody here waits for.
//!
//! Steps notify only where a mark says that somebody waits. A mark ends after a while unless it is renewed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio_postgres::AsyncMessage;
use tokio_postgres::types::Type;

use super::columns::get;
use super::link::{self, Dialer};
use super::schema::Texts;
use crate::backend::{Subscription, Watch};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::runtime::{self, BoxFuture, Instant, Runtime, log};
use crate::store::kit::listeners::Listeners;
use crate::store::sql::cache::Cache;
use crate::store::sql::link::first_usable;
use crate::store::sql::rows::NameRows;
use crate::store::sql::store::Wakeups;
use crate::store::sql::text::{self, Told};
use crate::store::sql::{Failed, Link, Put};

/// How long a mark counts.
const MARKED: Duration = Duration::from_secs(15);

/// A mark with less time left than this is renewed.
const RENEWED: Duration = Duration::from_secs(8);

/// How often marks are looked at.
const TICK: Duration = Duration::from_secs(3);

/// Marks that were not made are tried again after this time.
const AGAIN: Duration = Duration::from_millis(300);

/// How long a subscription waits for its mark where others have the row locked. Later it is marked by the next look at marks.
const MARKING: Duration = Duration::from_millis(500);

/// The pauses between attempts to mark a row that others have locked.
const MARK_PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(10));

/// A listening connection that does not answer for so long is made anew.
const PING: Duration = Duration::from_secs(3);

/// How long a subscription may take until the store listens.
const READY: Duration = Duration::from_secs(3);

/// A notification that does not arrive within this time does not arrive at all.
pub(super) const ARRIVING: Duration = Duration::from_secs(2);

/// The pauses between attempts to listen that fail.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// The wake-ups of a store.
#[derive(Debug)]
pub(super) struct Notifications {
    link: Link<Dialer>,
    listeners: Arc<Listeners>,
    /// What is known of names: a notification may tell it.
    cache: Arc<Cache>,
    marks: Mutex<HashMap<Name, Mark>>,
    state: watch::Sender<State>,
    /// A mark has to be made soon.
    due: Arc<Notify>,
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

impl Notifications {
    pub(super) fn new(link: Link<Dialer>, cache: Arc<Cache>) -> Arc<Self> {
        let (listeners, marks) = Default::default();
        Arc::new(Self { link, listeners, cache, marks, state: watch::Sender::new(State::Idle), due: Arc::default() })
    }

    fn shared(&self) -> &Arc<Dialer> {
        self.link.dial()
    }

    fn runtime(&self) -> &Runtime {
        &self.shared().runtime
    }

    fn marks(&self) -> MutexGuard<'_, HashMap<Name, Mark>> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
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
            let (servers, texts) = (shared.servers.clone(), Arc::clone(&shared.texts));
            shared.worker.spawn(keep_marks(Weak::clone(&us), self.runtime().clone(), Arc::clone(&self.due)));
            shared.worker.spawn(async move { listen(us, servers, channel, texts).await });
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

    /// Marks a row for the first time. If others have it locked for long, that is left to [`Self::renew_marks`].
    async fn mark_first(&self, name: &Name) -> Result<()> {
        let end = self.runtime().now().plus(MARKING);
        loop {
            let Err(failed) = self.mark(std::slice::from_ref(name)).await else { return Ok(()) };
            let now = self.runtime().now();
            match failed {
                Failed::Error(error) => return Err(error),
                Failed::Blocked(_) if now < end => {
                    self.runtime().sleep_until(now.plus(runtime::jitter(MARK_PAUSES.0, MARK_PAUSES.1))).await;
                }
                Failed::Blocked(error) => {
                    log!(debug, %error, "could not mark a name that is waited for yet");
                    self.marks().entry(name.clone()).or_insert(Mark { until: now, watched: 0 });
                    self.due.notify_one();
                    return Ok(());
                }
            }
        }
    }

    /// The server may have crashed and forgotten the marks: [`Self::renew_marks`] makes them anew soon.
    fn mark_anew(&self) {
        let (now, mut marks) = (self.runtime().now(), self.marks());
        if !marks.is_empty() {
            marks.values_mut().for_each(|mark| mark.until = now);
            self.due.notify_one();
        }
    }

    /// Marks rows as waited for, all or none.
    async fn mark(&self, names: &[Name]) -> std::result::Result<(), Failed> {
        let live = self.link.live().await.map_err(Failed::Error)?;
        let sent = self.runtime().now();
        let bytes: Vec<&[u8]> = names.iter().map(|name| name.as_str().as_bytes()).collect();
        let versions: Vec<i64> = names.iter().map(|_| self.runtime().client_id().bits() as i64).collect();
        let window = i64::try_from(MARKED.as_micros()).unwrap_or(i64::MAX);
        let parameters: [super::statements::Parameter<'_>; 3] =
            [(&bytes, Type::BYTEA_ARRAY), (&versions, Type::INT8_ARRAY), (&window, Type::INT8)];
        let rows = live.query(&live.texts.mark, &parameters).await?;
        let mut marks = self.marks();
        for row in &rows {
            let (name, watched): (&[u8], i64) = (get(row, 0)?, get(row, 1)?);
            if let Some(name) = names.iter().find(|known| known.as_str().as_bytes() == name) {
                marks.insert(name.clone(), Mark { until: sent.plus(MARKED), watched });
            }
        }
        Ok(())
    }

    /// Renews the marks of names that somebody waits for, and forgets the others. Gives when to look again.
    async fn renew_marks(&self) -> Duration {
        let now = self.runtime().now();
        let due: Vec<(Name, bool)> = {
            let mut marks = self.marks();
            marks.retain(|name, mark| mark.until > now || self.listeners.has_unfiltered(name));
            let due = marks.iter().filter(|(name, mark)| mark.until <= now.plus(RENEWED) && self.listeners.has_unfiltered(name));
            due.map(|(name, mark)| (name.clone(), mark.until <= now)).collect()
        };
        if due.is_empty() {
            return TICK;
        }
        let names: Vec<Name> = due.iter().map(|(name, _)| name.clone()).collect();
        let mut marked = self.mark(&names).await;
        if matches!(marked, Err(Failed::Blocked(_))) && names.len() > 1 {
            // One row that somebody has locked is no reason to leave the others.
            marked = Ok(());
            for name in &names {
                match self.mark(std::slice::from_ref(name)).await {
                    Err(failed @ Failed::Error(_)) => {
                        marked = Err(failed);
                        break;
                    }
                    done => marked = marked.and(done),
                }
            }
        }
        // A change made while the row had no mark sent no notification, so the waiters look again.
        let now = self.runtime().now();
        for (name, _) in due.iter().filter(|(_, unmarked)| *unmarked) {
            if self.marks().get(name).is_some_and(|mark| mark.until > now) {
                self.listeners.notify_key(name);
            }
        }
        let Err(failed) = marked else { return TICK };
        log!(debug, error = %failed.into_error(), "could not renew all marks of names that are waited for; waiters poll");
        AGAIN
    }

    /// A notification came. Tells which mark to remove because nobody here waits any more.
    fn notified(&self, payload: &str) -> Option<(Name, i64)> {
        let (name, Told { wake, free }) = text::parse_payload(payload)?;
        if let Some((version, token)) = free
            && self.listeners.has_any(&name)
        {
            // A waiter that is woken now has the right guess. If it is out of date, the server says so.
            self.cache.keep(&name, NameRows { version: Some(version), token, ..NameRows::default() });
        }
        if self.listeners.notify(&name, wake) > 0 || !wake.all || self.listeners.has_any(&name) {
            return None;
        }
        // A subscription that comes now marks the row anew, with a later end than this one.
        let mark = self.marks().remove(&name)?;
        Some((name, mark.watched))
    }
}

impl Wakeups for Notifications {
    /// The server notifies local waiters as it notifies others; here they are only counted.
    fn wrote(&self, put: &Put) -> u32 {
        if put.wake.all { self.listeners.unfiltered(&put.name) } else { 0 }
    }

    /// Subscribes to everything at the name, or only to what concerns the owner's place in its queue.
    fn subscribe(self: Arc<Self>, watch: Watch) -> BoxFuture<'static, Result<Subscription>> {
        Box::pin(async move {
            let (name, own_place) = (watch.name.clone(), watch.own_place());
            let subscription = self.listeners.subscribe(watch);
            self.listening().await?;
            // A waiter in a queue is found by its row.
            if own_place.is_none() {
                let now = self.runtime().now();
                let marked = self.marks().get(&name).is_some_and(|mark| mark.until > now.plus(RENEWED));
                if !marked {
                    self.mark_first(&name).await?;
                }
            }
            Ok(subscription)
        })
    }
}

/// Renews marks until the store is gone. Not beside the notifications, which must not wait for a row that somebody has locked.
async fn keep_marks(store: Weak<Notifications>, runtime: Runtime, due: Arc<Notify>) {
    let mut next = TICK;
    loop {
        let soon = runtime::within(next, Box::pin(due.notified())).await.is_some();
        if soon {
            runtime.sleep_until(runtime.now().plus(AGAIN)).await;
        }
        let Some(there) = store.upgrade() else { return };
        let listening = matches!(*there.state.borrow(), State::Listening);
        next = if listening { runtime::within(TICK, Box::pin(there.renew_marks())).await.unwrap_or(AGAIN) } else { TICK };
    }
}

/// Listens until the store is gone; connects again when the connection breaks.
async fn listen(store: Weak<Notifications>, servers: Vec<super::Config>, channel: String, texts: Arc<Texts>) {
    let mut pause = PAUSES.0;
    loop {
        let limit = servers.first().map_or(super::config::CONNECTING, super::Config::opening);
        let connected =
            first_usable(&servers, limit, |server| Box::pin(connect(server, &channel)), super::error::of_silence).await;
        let error = match connected {
            Ok((client, mut notifications)) => {
                let Some(there) = store.upgrade() else { return };
                pause = PAUSES.0;
                there.state.send_replace(State::Listening);
                there.mark_anew();
                // Notifications may have been missed.
                there.listeners.notify_all();
                let runtime = there.runtime().clone();
                drop(there);
                let mut tick = runtime.now().plus(TICK);
                loop {
                    let payload = tokio::select! {
                        // Notifications last: a flood of them must not put off the look whether the store still exists.
                        biased;
                        () = runtime.sleep_until(tick) => {
                            if store.strong_count() == 0 {
                                return;
                            }
                            // A connection that only listens does not notice by itself that the other end is gone.
                            if !matches!(runtime::within(PING, Box::pin(client.batch_execute("SELECT 1"))).await, Some(Ok(()))) {
                                break;
                            }
                            tick = runtime.now().plus(TICK);
                            continue;
                        }
                        payload = notifications.recv() => payload,
                    };
                    let Some(payload) = payload else { break };
                    let Some(there) = store.upgrade() else { return };
                    let unmark = there.notified(&payload);
                    drop(there);
                    if let Some((name, watched)) = unmark {
                        let bytes = name.as_str().as_bytes();
                        let parameters: [super::statements::Parameter<'_>; 2] = [(&bytes, Type::BYTEA), (&watched, Type::INT8)];
                        let unmarked = runtime::within(PING, Box::pin(client.query_typed(&texts.unmark, &parameters))).await;
                        let Some(unmarked) = unmarked else { break };
                        if let Err(error) = unmarked {
                            log!(debug, %error, "could not remove the mark of a name that nobody waits for; it ends by itself");
                        }
                    }
                }
                Error::new(ErrorKind::Unavailable, "the connection for notifications broke")
            }
            Err(error) => error,
        };
        let Some(there) = store.upgrade() else { return };
        log!(debug, %error, "no notifications from postgres; waiters poll");
        there.state.send_replace(State::Failed(error));
        // Waiters that relied on notifications look by themselves.
        there.listeners.notify_all();
        let (runtime, until) = (there.runtime().clone(), there.runtime().now().plus(runtime::jitter(pause / 2, pause)));
        drop(there);
        runtime.sleep_until(until).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Whether notifications arrive: sends one, and waits for it. Behind a pooler in transaction mode it goes to a connection that nobody listens on.
pub(super) async fn arrive(link: &Link<Dialer>) -> Result<bool> {
    let (dialer, sender) = (Arc::clone(link.dial()), link.clone());
    let attempt = async move {
        // A channel of its own: no client that waits is woken.
        let channel = format!("lockkeeper_doctor_{:x}", dialer.runtime.client_id().bits());
        let limit = dialer.servers.first().map_or(super::config::CONNECTING, super::Config::opening);
        let connected =
            first_usable(&dialer.servers, limit, |server| Box::pin(connect(server, &channel)), super::error::of_silence).await;
        // The connection stays open until the end.
        let (_client, mut notifications) = connected?;
        let live = sender.live().await?;
        live.query("SELECT pg_notify($1, 'doctor')", &[(&channel, Type::TEXT)]).await.map_err(Failed::into_error)?;
        Ok(matches!(runtime::within(ARRIVING, Box::pin(notifications.recv())).await, Some(Some(_))))
    };
    link.dial().worker.run(attempt).await?
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
