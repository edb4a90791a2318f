//! One connection to one server: made when needed, made again when it breaks, with all subscriptions. It never sends anything twice.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, PushInfo, PushKind, Value};
use tokio::sync::{Notify, watch};

use super::clock::Offset;
use super::config::{Address, Config, Servers};
use super::live::{InFlight, Live};
use super::notify::{Channels, Listening};
use super::request::{Failed, Payload, Request, Site};
use super::{dial, error, script, sentinel};
use crate::backend::Notifier;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::{self, Instant, Runtime};

/// How long connecting may take.
const CONNECTING: Duration = Duration::from_secs(3);

/// How long the server may take to confirm a subscription, or its end.
const CONFIRMING: Duration = Duration::from_secs(3);

/// The pauses between attempts to connect that fail: the first, and what they grow to. Whoever asks in between gets the last error.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// A connection that broke is made again after at most this long, without being asked for; many clients do not come at once.
const SPREAD: Duration = Duration::from_millis(50);

pub(super) struct Node {
    config: Config,
    runtime: Runtime,
    live: Mutex<Option<Arc<Live>>>,
    /// Why there is no connection, and for how long nobody tries again.
    refused: Mutex<Option<Refused>>,
    /// One at a time connects.
    connecting: tokio::sync::Mutex<()>,
    /// One at a time subscribes or unsubscribes, so that what the server was told last is what was wanted last.
    subscribing: tokio::sync::Mutex<()>,
    channels: Arc<Channels>,
    /// What the server was told, on the present connection.
    subscribed: Mutex<HashSet<String>>,
    part: Part,
    /// The sentinels are listened to for as long as this lives.
    sentinels: Mutex<Option<watch::Sender<()>>>,
    /// Another server is the master.
    switched: Notify,
}

/// Whether it is the only server, or which part it has among many.
enum Part {
    All,
    /// Of a cluster, which publishes in the slot or not, as soon as that is known; the channels whose messages come from this server.
    Slots {
        sharded: Arc<OnceLock<bool>>,
        ours: Box<dyn Fn(&str) -> bool + Send + Sync>,
    },
}

struct Refused {
    error: Error,
    pause: Duration,
    until: Instant,
}

impl Node {
    /// The only server.
    pub(super) fn new(config: Config, runtime: Runtime) -> Arc<Self> {
        Self::with(config, runtime, Arc::default(), Part::All)
    }

    /// A server of a cluster.
    pub(super) fn one_of_many(
        config: Config,
        runtime: Runtime,
        channels: Arc<Channels>,
        sharded: Arc<OnceLock<bool>>,
        ours: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Arc<Self> {
        Self::with(config, runtime, channels, Part::Slots { sharded, ours: Box::new(ours) })
    }

    fn with(config: Config, runtime: Runtime, channels: Arc<Channels>, part: Part) -> Arc<Self> {
        Arc::new(Self {
            config,
            runtime,
            live: Mutex::default(),
            refused: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            subscribing: tokio::sync::Mutex::default(),
            channels,
            subscribed: Mutex::default(),
            part,
            sentinels: Mutex::default(),
            switched: Notify::new(),
        })
    }

    /// Where it is, if that is fixed.
    pub(super) fn address(&self) -> Option<&Address> {
        match &self.config.servers {
            Servers::One(address) => Some(address),
            _ => None,
        }
    }

    fn sharded(&self) -> bool {
        matches!(&self.part, Part::Slots { sharded, .. } if sharded.get() == Some(&true))
    }

    fn live(&self) -> MutexGuard<'_, Option<Arc<Live>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn subscribed(&self) -> MutexGuard<'_, HashSet<String>> {
        self.subscribed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects if there is no connection.
    pub(super) async fn ready(self: &Arc<Self>) -> Result<()> {
        self.connection().await.map(drop)
    }

    async fn connection(self: &Arc<Self>) -> Result<Arc<Live>> {
        if let Some(live) = self.live().clone() {
            return Ok(live);
        }
        // A task of its own: the request that needs the connection may be given up before there is one, and the next would begin again.
        let us = Arc::clone(self);
        runtime::beside(async move { us.connected().await })
            .await
            .unwrap_or_else(|| Err(Error::new(ErrorKind::Unavailable, "the executor that was connecting to redis is gone")))
    }

    fn refused(&self) -> MutexGuard<'_, Option<Refused>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connected(self: &Arc<Self>) -> Result<Arc<Live>> {
        let _one = self.connecting.lock().await;
        if let Some(live) = self.live().clone() {
            return Ok(live);
        }
        if let Some(refused) = self.refused().as_ref().filter(|refused| self.runtime.now() < refused.until) {
            return Err(refused.error.clone());
        }
        self.listen_to_sentinels();
        let slow = || Err(Error::new(ErrorKind::Unavailable, format!("{} did not answer within {CONNECTING:?}", self.config)));
        let made = loop {
            tokio::select! {
                made = runtime::within(CONNECTING, Box::pin(self.connect())) => break made.unwrap_or_else(slow),
                // Whoever is being asked is not the one any more.
                () = self.switched.notified() => {}
            }
        };
        let mut refused = self.refused();
        let live = match made {
            Ok(live) => Arc::new(live),
            Err(error) => {
                let pause = refused.as_ref().map_or(PAUSES.0, |before| (before.pause * 2).min(PAUSES.1));
                let until = self.runtime.now().plus(runtime::jitter(pause / 2, pause));
                *refused = Some(Refused { error: error.clone(), pause, until });
                return Err(error);
            }
        };
        *refused = None;
        drop(refused);
        *self.live() = Some(Arc::clone(&live));
        // Whoever waits may have missed a message.
        self.channels.ring_all();
        Ok(live)
    }

    /// Hears of a new master at once, not only when the old one says that it is none. The listeners end with us, or with their executor.
    fn listen_to_sentinels(self: &Arc<Self>) {
        let Servers::Sentinels { master, .. } = &self.config.servers else { return };
        let mut listening = self.sentinels.lock().unwrap_or_else(PoisonError::into_inner);
        if listening.as_ref().is_some_and(|listening| listening.receiver_count() > 0) {
            return;
        }
        let (ending, ended) = watch::channel(());
        for (_, client) in dial::sentinels(&self.config).unwrap_or_default() {
            let us = Arc::downgrade(self);
            let tell = move |new: &Address| {
                if let Some(us) = us.upgrade() {
                    us.switch_to(new);
                }
            };
            runtime::spawn_if_possible(sentinel::listen(client, master.clone(), self.runtime.clone(), ended.clone(), tell));
        }
        *listening = Some(ending);
    }

    /// The sentinels made another server the master.
    fn switch_to(self: Arc<Self>, new: &Address) {
        if self.live().as_ref().is_some_and(|live| live.at == *new) {
            return;
        }
        self.forget();
        *self.refused() = None;
        self.switched.notify_one();
        runtime::spawn_if_possible(async move {
            // If it cannot be, the next request tries again, and tells.
            let _ = self.ready().await;
        });
    }

    async fn connect(self: &Arc<Self>) -> Result<Live> {
        let mut last = None;
        for address in dial::places(&self.config).await? {
            match self.connect_to(&address).await {
                Ok(live) => return Ok(live),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| Error::new(ErrorKind::Unavailable, format!("{} names no server", self.config))))
    }

    async fn connect_to(self: &Arc<Self>, address: &Address) -> Result<Live> {
        let failed = |error| error::of_connecting(error, &self.config);
        let client = dial::to(&self.config, address)?;
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let us = Arc::downgrade(self);
        let pushed = move |push: PushInfo| -> std::result::Result<(), Error> {
            let Some(us) = us.upgrade() else { return Ok(()) };
            match (push.kind, push.data.first()) {
                (PushKind::Message | PushKind::SMessage, Some(Value::BulkString(channel))) => {
                    us.channels.notify(&String::from_utf8_lossy(channel));
                }
                (PushKind::Disconnection, _) => us.broken(number),
                // Nobody asked for it: the slot moved away. The driver takes it for an answer, so this connection is of no use any more.
                (PushKind::SUnsubscribe, Some(Value::BulkString(channel)))
                    if us.subscribed().contains(&*String::from_utf8_lossy(channel)) =>
                {
                    us.broken(number);
                }
                _ => {}
            }
            Ok(())
        };
        // Our own limits hold for every request; the driver's would only hide what happened.
        let options =
            AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None).set_push_sender(pushed);
        let mut connection = client.get_multiplexed_async_connection_with_config(&options).await.map_err(failed)?;
        if let Servers::Sentinels { .. } = self.config.servers {
            self.is_master(&mut connection, address).await?;
        }
        let time = self.greet(&mut connection).await.map_err(failed)?;
        let now = self.runtime.now();
        self.subscribed().clear();
        let channels = self.missing();
        self.subscribe(&mut connection, &channels).await.map_err(failed)?;
        self.subscribed().extend(channels);
        Ok(Live::new(connection, address.clone(), number, Offset::new(time.0 * 1_000_000 + time.1, now), now))
    }

    /// A sentinel may be behind: only the server itself knows what it is.
    async fn is_master(&self, connection: &mut MultiplexedConnection, address: &Address) -> Result<()> {
        let role: Vec<Value> =
            redis::cmd("ROLE").query_async(connection).await.map_err(|error| error::of_connecting(error, &self.config))?;
        match role.first() {
            Some(Value::BulkString(role)) if role == b"master" => Ok(()),
            _ => Err(Error::new(ErrorKind::Unavailable, format!("the sentinels name {address}, which is no master now"))),
        }
    }

    /// The server's time, in s and µs. On the way it is given the scripts, so that the first use of each takes one round trip, not two.
    async fn greet(&self, connection: &mut MultiplexedConnection) -> redis::RedisResult<(i64, i64)> {
        let mut greeting = redis::pipe();
        for script in script::ALL {
            // A user who may not leave scripts here can still send them in full.
            greeting.add_command(script.load(self.sharded())).ignore();
        }
        // Last, so that it is as fresh as can be when it comes.
        greeting.cmd("TIME").ignore_errors();
        let answers: Vec<redis::RedisResult<(i64, i64)>> = greeting.query_async(connection).await?;
        let nothing = || Err((redis::ErrorKind::UnexpectedReturnType, "no answer to TIME").into());
        answers.into_iter().next().unwrap_or_else(nothing)
    }

    /// Sends a request; its arguments are made for the connection that carries it.
    ///
    /// Every request that is under way has one of these: what is rarely needed is boxed, and not carried about by all.
    pub(super) async fn send(self: &Arc<Self>, sent: &Request<'_>) -> std::result::Result<Value, Failed> {
        let live = self.connection().await.map_err(Failed::Unsent)?;
        if live.offset.is_due(self.runtime.now()) {
            let (us, live) = (Arc::clone(self), Arc::clone(&live));
            runtime::spawn(async move { us.look_at_the_clock(&live).await });
        }
        let run = if sent.knows_run { live.run_id.get_or_try_init(|| Box::pin(self.ask_run_id(&live))).await? } else { "" };
        let cluster = matches!(self.part, Part::Slots { .. });
        let site = Site { offset: &live.offset, cluster, asking: sent.asking, run };
        let command = match &sent.what {
            Payload::Command(command) => Cow::Borrowed(*command),
            Payload::Script { script, keys, arguments } => Cow::Owned(script.by_hash(self.sharded(), keys, &arguments(&site))),
        };
        match (self.exchange(&live, sent, &command).await, &sent.what) {
            (Err(Failed::Refused(error)), Payload::Script { script, keys, arguments }) if error.code() == Some("NOSCRIPT") => {
                let in_full = script.in_full(self.sharded(), keys, &arguments(&site));
                Box::pin(self.exchange(&live, sent, &in_full)).await
            }
            (answer, _) => answer,
        }
    }

    /// One round trip. What has to stand before or after the command goes out in the same write.
    async fn exchange(&self, live: &Live, sent: &Request<'_>, command: &Cmd) -> std::result::Result<Value, Failed> {
        let mut waiting = InFlight::new(live, &self.runtime, |number| {
            self.discard(number);
        });
        let mut connection = live.connection.clone();
        let answer = if sent.is_single() {
            connection.send_packed_command(command).await.map(|answer| vec![answer])
        } else {
            let (pipeline, before, answers) = sent.around(command);
            Box::pin(connection.send_packed_commands(&pipeline, before, answers)).await
        };
        waiting.answered(&answer);
        let answer = sent.judge(answer);
        if let Err(Failed::Refused(error)) = &answer
            && error.code() == Some("READONLY")
        {
            // It was the master, and is no more: whoever is now is found by a new connection.
            self.discard(live.number);
        }
        answer
    }

    async fn ask_run_id(&self, live: &Live) -> std::result::Result<String, Failed> {
        let info = redis::cmd("INFO").arg("server").to_owned();
        let info = match self.exchange(live, &Request::command(&info), &info).await? {
            Value::VerbatimString { text, .. } => text,
            Value::BulkString(text) => String::from_utf8_lossy(&text).into_owned(),
            other => return Err(Failed::Unsent(error::unexpected(&other))),
        };
        let found = info.lines().find_map(|line| line.strip_prefix("run_id:")).map(|id| id.trim().to_owned());
        found.ok_or_else(|| Failed::Unsent(Error::new(ErrorKind::Protocol, "redis does not tell the id of its run")))
    }

    /// Measures the server's clock again.
    async fn look_at_the_clock(&self, live: &Live) {
        let (sent, time) = (self.runtime.now(), redis::cmd("TIME"));
        let plain = Request::command(&time);
        let asked = Box::pin(self.exchange(live, &plain, &time));
        if let Some(Ok(answer)) = runtime::within(CONFIRMING, asked).await
            && let Ok((seconds, micros)) = super::parsed::<(i64, i64)>(answer)
        {
            live.offset.measured_again(seconds * 1_000_000 + micros, sent, self.runtime.now());
        }
    }

    /// The connection is of no use any more; the next request makes a new one. Whether it was the present one.
    fn discard(&self, number: u64) -> bool {
        let mut live = self.live();
        let present = live.as_ref().is_some_and(|live| live.number == number);
        if present {
            *live = None;
        }
        present
    }

    /// The connection broke. Made again at once, it is there when a renewal needs it, and misses few messages.
    fn broken(self: Arc<Self>, number: u64) {
        if self.discard(number) {
            runtime::spawn_if_possible(async move {
                self.runtime.sleep_until(self.runtime.now().plus(runtime::jitter(Duration::ZERO, SPREAD))).await;
                // If it cannot be, the next request tries again, and tells.
                let _ = self.ready().await;
            });
        }
    }

    /// A request was late for the server and is not for us, or another server is the master: a new connection learns it anew.
    pub(super) fn forget(&self) {
        *self.live() = None;
    }

    /// The channels that somebody listens to, whose messages come from here, and that the server was not told of.
    fn missing(&self) -> Vec<String> {
        let mut wanted = self.channels.wanted();
        if let Part::Slots { ours, .. } = &self.part {
            wanted.retain(|channel| ours(channel));
        }
        let subscribed = self.subscribed();
        wanted.retain(|channel| !subscribed.contains(channel));
        wanted
    }

    async fn subscribe(&self, connection: &mut MultiplexedConnection, channels: &[String]) -> redis::RedisResult<()> {
        if channels.is_empty() {
            return Ok(());
        }
        if !self.sharded() {
            // In one request: one by one, many would take longer than anybody waits.
            return connection.subscribe(channels).await;
        }
        // Channels of several slots do not go into one request, but into one write.
        let mut pipeline = redis::pipe();
        for channel in channels {
            pipeline.cmd("SSUBSCRIBE").arg(channel);
        }
        let answers = connection.send_packed_commands(&pipeline, 0, channels.len()).await?;
        answers.into_iter().try_for_each(|answer| answer.extract_error().map(drop))
    }

    /// Listens to a channel; answers when the server confirmed it.
    pub(super) async fn listen(self: &Arc<Self>, channel: String, notifier: Notifier) -> Result<Listening> {
        let _one = self.subscribing.lock().await;
        // Asked for now, not before the lock: it may be another one.
        let live = self.connection().await?;
        let us = Arc::downgrade(self);
        let sweep = Box::new(move || {
            if let Some(us) = us.upgrade() {
                runtime::spawn_if_possible(async move { us.sweep().await });
            }
        });
        let listening = self.channels.listen(channel.clone(), notifier, sweep);
        if !self.subscribed().contains(&channel) {
            let channels = [channel.clone()];
            let confirmed = runtime::within(CONFIRMING, Box::pin(self.subscribe(&mut live.connection.clone(), &channels))).await;
            match confirmed {
                Some(Ok(())) => {}
                Some(Err(error)) if error.code().is_some() => return Err(error::of_request(error)),
                _ => {
                    self.discard(live.number);
                    return Err(Error::new(ErrorKind::Unavailable, "redis did not confirm a subscription"));
                }
            }
            // One that replaced it meanwhile may not know the channel.
            if self.live().as_ref().is_none_or(|now| now.number != live.number) {
                return Err(Error::new(ErrorKind::Unavailable, "the connection was replaced while subscribing"));
            }
            self.subscribed().insert(channel);
        }
        Ok(listening)
    }

    /// Slots have moved: listens to what is this server's now.
    pub(super) async fn listen_again(self: &Arc<Self>) {
        let _one = self.subscribing.lock().await;
        let channels = self.missing();
        if channels.is_empty() {
            return;
        }
        let Ok(live) = self.connection().await else { return };
        // Connecting may have done it already; what fails is done by the next connection, and until then waiters ask by themselves.
        let channels: Vec<String> = channels.into_iter().filter(|channel| !self.subscribed().contains(channel)).collect();
        match runtime::within(CONFIRMING, Box::pin(self.subscribe(&mut live.connection.clone(), &channels))).await {
            Some(Ok(())) => self.subscribed().extend(channels),
            _ => drop(self.discard(live.number)),
        }
    }

    /// Leaves the channels that nobody listens to.
    async fn sweep(&self) {
        let _one = self.subscribing.lock().await;
        let Some(live) = self.live().clone() else { return };
        let idle: Vec<String> = self.subscribed().iter().filter(|channel| !self.channels.is_wanted(channel)).cloned().collect();
        for channel in idle {
            // Forgotten first: what the server says of it then was asked for.
            self.subscribed().remove(&channel);
            let leaving = async {
                if self.sharded() {
                    let leave = redis::cmd("SUNSUBSCRIBE").arg(&channel).to_owned();
                    live.connection.clone().send_packed_command(&leave).await.and_then(Value::extract_error).map(drop)
                } else {
                    live.connection.clone().unsubscribe(&channel).await
                }
            };
            // Bounded: the lock must not stay with a connection that is dead.
            if !matches!(runtime::within(CONFIRMING, Box::pin(leaving)).await, Some(Ok(()))) {
                self.discard(live.number);
                return;
            }
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Node").field(&self.config).finish()
    }
}
