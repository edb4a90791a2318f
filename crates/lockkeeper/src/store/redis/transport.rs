//! One connection to one server: made when needed, made again when it breaks, with all subscriptions. It never sends anything twice.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, PushInfo, PushKind,
    RedisConnectionInfo, Value,
};

use super::config::{Address, Config};
use super::error;
use super::notify::{Channels, Listening};
use super::script::{self, Lua};
use crate::backend::Ringer;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::{self, Instant, Runtime};

/// A request without an answer for this long, on a connection that answered nothing else meanwhile: the connection is dead.
const SILENCE: Duration = Duration::from_millis(500);

/// How long connecting may take.
const CONNECTING: Duration = Duration::from_secs(3);

/// How long the server may take to confirm a subscription, or its end.
const CONFIRMING: Duration = Duration::from_secs(3);

/// The pauses between attempts to connect that fail: the first, and what they grow to. Whoever asks in between gets the last error.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// A connection that broke is made again after at most this long, without being asked for; many clients do not come at once.
const SPREAD: Duration = Duration::from_millis(50);

/// What is known of the server's clock is looked up again, beside a request, when it is older than this: clocks are set.
const TRUSTED: Duration = Duration::from_secs(5);

pub(super) struct Transport {
    config: Config,
    runtime: Runtime,
    live: Mutex<Option<Live>>,
    /// Why there is no connection, and for how long nobody tries again.
    refused: Mutex<Option<Refused>>,
    /// One at a time connects.
    connecting: tokio::sync::Mutex<()>,
    /// One at a time subscribes or unsubscribes, so that what the server was told last is what was wanted last.
    subscribing: tokio::sync::Mutex<()>,
    channels: Arc<Channels>,
}

#[derive(Clone)]
struct Live {
    connection: MultiplexedConnection,
    number: u64,
    offset: Arc<Offset>,
    /// When anything was answered last.
    heard: Arc<AtomicU64>,
    /// How long requests waited in vain since then, in ns.
    silent: Arc<AtomicU64>,
    /// The id of the run of the server at the other end, once asked for.
    run_id: Arc<tokio::sync::OnceCell<String>>,
}

struct Refused {
    error: Error,
    pause: Duration,
    until: Instant,
}

/// How far the server's clock is ahead of ours.
struct Offset {
    /// In µs, at least: a deadline translated by it is never too late.
    micros: AtomicI64,
    /// When it was measured, in ns of our clock.
    measured: AtomicU64,
}

impl Offset {
    /// The server said `time` (µs) between `sent` and `heard`.
    fn new(time: i64, heard: Instant) -> Self {
        Self { micros: AtomicI64::new(time - micros(heard)), measured: AtomicU64::new(heard.as_nanos()) }
    }

    /// The same again. What was believed stays if it can be: a slow answer tells less, not that the clock was set.
    fn measured_again(&self, time: i64, sent: Instant, heard: Instant) {
        let (least, most) = (time - micros(heard), time - micros(sent));
        if !(least..=most).contains(&self.micros.load(Ordering::Relaxed)) {
            self.micros.store(least, Ordering::Relaxed);
        }
    }

    /// Whether the caller is to measure it again; one at a time is.
    fn is_due(&self, now: Instant) -> bool {
        let measured = self.measured.load(Ordering::Relaxed);
        now.since(Instant::from_nanos(measured)) > TRUSTED
            && self.measured.compare_exchange(measured, now.as_nanos(), Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

impl Transport {
    pub(super) fn new(config: Config, runtime: Runtime) -> Arc<Self> {
        Arc::new(Self {
            config,
            runtime,
            live: Mutex::default(),
            refused: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            subscribing: tokio::sync::Mutex::default(),
            channels: Arc::default(),
        })
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    pub(super) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Another connection to the same server.
    pub(super) fn another(&self) -> Arc<Self> {
        Self::new(self.config.clone(), self.runtime.clone())
    }

    fn live(&self) -> MutexGuard<'_, Option<Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects if there is no connection.
    pub(super) async fn ready(self: &Arc<Self>) -> Result<()> {
        self.connection().await.map(drop)
    }

    async fn connection(self: &Arc<Self>) -> Result<Live> {
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

    async fn connected(self: &Arc<Self>) -> Result<Live> {
        let _one = self.connecting.lock().await;
        if let Some(live) = self.live().clone() {
            return Ok(live);
        }
        if let Some(refused) = self.refused().as_ref().filter(|refused| self.runtime.now() < refused.until) {
            return Err(refused.error.clone());
        }
        let slow = || Err(Error::new(ErrorKind::Unavailable, format!("{} did not answer within {CONNECTING:?}", self.config)));
        let made = runtime::within(CONNECTING, Box::pin(self.connect())).await.unwrap_or_else(slow);
        let mut refused = self.refused();
        let live = match made {
            Ok(live) => live,
            Err(error) => {
                let pause = refused.as_ref().map_or(PAUSES.0, |before| (before.pause * 2).min(PAUSES.1));
                let until = self.runtime.now().plus(runtime::jitter(pause / 2, pause));
                *refused = Some(Refused { error: error.clone(), pause, until });
                return Err(error);
            }
        };
        *refused = None;
        drop(refused);
        *self.live() = Some(live.clone());
        // Whoever waits may have missed a message.
        self.channels.ring_all();
        Ok(live)
    }

    async fn connect(self: &Arc<Self>) -> Result<Live> {
        let failed = |error| error::of_connecting(error, &self.config);
        let Config { address, database, user, password, .. } = &self.config;
        let mut settings = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3).set_db(i64::from(*database));
        if let Some(user) = user {
            settings = settings.set_username(user);
        }
        if let Some(password) = password {
            settings = settings.set_password(password);
        }
        let address = match address {
            Address::Tcp { host, port } => ConnectionAddr::Tcp(host.clone(), *port),
            Address::Unix { path } => ConnectionAddr::Unix(path.into()),
        };
        let info = address.into_connection_info().map_err(failed)?;
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let client = Client::open(info.set_tcp_settings(tcp).set_redis_settings(settings)).map_err(failed)?;
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let us = Arc::downgrade(self);
        let pushed = move |push: PushInfo| -> std::result::Result<(), Error> {
            let Some(us) = us.upgrade() else { return Ok(()) };
            match (push.kind, push.data.first()) {
                (PushKind::Message, Some(Value::BulkString(channel))) => us.channels.ring(&String::from_utf8_lossy(channel)),
                (PushKind::Disconnection, _) => us.broken(number),
                _ => {}
            }
            Ok(())
        };
        // Our own limits hold for every request; the driver's would only hide what happened.
        let options =
            AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None).set_push_sender(pushed);
        let mut connection = client.get_multiplexed_async_connection_with_config(&options).await.map_err(failed)?;
        let time = Self::greet(&mut connection).await.map_err(failed)?;
        let now = self.runtime.now();
        let channels = self.channels.start_over();
        // In one request: one by one, many would take longer than anybody waits.
        if !channels.is_empty() {
            connection.subscribe(&channels).await.map_err(failed)?;
            channels.iter().for_each(|channel| self.channels.set_subscribed(channel));
        }
        Ok(Live {
            connection,
            number,
            offset: Arc::new(Offset::new(time.0 * 1_000_000 + time.1, now)),
            heard: Arc::new(AtomicU64::new(now.as_nanos())),
            silent: Arc::default(),
            run_id: Arc::default(),
        })
    }

    /// The server's time, in s and µs. On the way it is given the scripts, so that the first use of each takes one round trip, not two.
    async fn greet(connection: &mut MultiplexedConnection) -> redis::RedisResult<(i64, i64)> {
        let mut greeting = redis::pipe();
        for script in script::ALL {
            // A user who may not leave scripts here can still send them in full.
            greeting.add_command(script.load()).ignore();
        }
        // Last, so that it is as fresh as can be when it comes.
        greeting.cmd("TIME").ignore_errors();
        let answers: Vec<redis::RedisResult<(i64, i64)>> = greeting.query_async(connection).await?;
        let nothing = || Err((redis::ErrorKind::UnexpectedReturnType, "no answer to TIME").into());
        answers.into_iter().next().unwrap_or_else(nothing)
    }

    /// Runs a script. `arguments` is made for the connection that carries it: it may translate a time to the server's clock.
    pub(super) async fn run(
        self: &Arc<Self>,
        script: &Lua,
        keys: &[&str],
        arguments: impl FnOnce(&Clock) -> Vec<Vec<u8>>,
    ) -> Result<Value> {
        let live = self.connection().await?;
        if live.offset.is_due(self.runtime.now()) {
            let (us, live) = (Arc::clone(self), live.clone());
            runtime::spawn(async move { us.look_at_the_clock(live).await });
        }
        let arguments = arguments(&Clock(live.offset.micros.load(Ordering::Relaxed)));
        self.run_on(live, script, keys, &arguments).await
    }

    async fn run_on(&self, mut live: Live, script: &Lua, keys: &[&str], arguments: &[Vec<u8>]) -> Result<Value> {
        let arguments: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
        match self.send(&mut live, &script.by_hash(keys, &arguments)).await {
            Err(error) if error.code() == Some("NOSCRIPT") => self.send(&mut live, &script.in_full(keys, &arguments)).await,
            answer => answer,
        }
        .map_err(error::of_request)
    }

    /// As [`Transport::run`], with the id of the server's run, which a restart changes. It is asked for once on each connection, and goes out on the
    /// connection it was read on: a connection never outlives a run.
    pub(super) async fn run_knowing_run(
        self: &Arc<Self>,
        script: &Lua,
        keys: &[&str],
        arguments: impl FnOnce(&Clock, &str) -> Vec<Vec<u8>>,
    ) -> Result<Value> {
        let live = self.connection().await?;
        let run_id = live.run_id.get_or_try_init(|| self.ask_run_id(live.clone())).await?;
        let arguments = arguments(&Clock(live.offset.micros.load(Ordering::Relaxed)), run_id);
        self.run_on(live.clone(), script, keys, &arguments).await
    }

    async fn ask_run_id(&self, mut live: Live) -> Result<String> {
        let answer = self.send(&mut live, redis::cmd("INFO").arg("server")).await.map_err(error::of_request)?;
        let info = match answer {
            Value::VerbatimString { text, .. } => text,
            Value::BulkString(text) => String::from_utf8_lossy(&text).into_owned(),
            other => return Err(error::unexpected(&other)),
        };
        let found = info.lines().find_map(|line| line.strip_prefix("run_id:")).map(|id| id.trim().to_owned());
        found.ok_or_else(|| Error::new(ErrorKind::Protocol, "redis does not tell the id of its run"))
    }

    /// Sends a command.
    pub(super) async fn command(self: &Arc<Self>, command: &Cmd) -> Result<Value> {
        let mut live = self.connection().await?;
        self.send(&mut live, command).await.map_err(error::of_request)
    }

    async fn send(&self, live: &mut Live, command: &Cmd) -> std::result::Result<Value, redis::RedisError> {
        let mut waiting = Waiting {
            transport: self,
            number: live.number,
            heard: Arc::clone(&live.heard),
            silent: Arc::clone(&live.silent),
            sent: self.runtime.now(),
            answered: false,
        };
        let answer = live.connection.send_packed_command(command).await.and_then(Value::extract_error);
        waiting.answered = true;
        match &answer {
            Err(error) if error.code().is_none() => {
                self.discard(live.number);
            }
            _ => {
                live.heard.store(self.runtime.now().as_nanos(), Ordering::Relaxed);
                live.silent.store(0, Ordering::Relaxed);
            }
        }
        answer
    }

    /// Measures the server's clock again.
    async fn look_at_the_clock(&self, mut live: Live) {
        let (sent, time) = (self.runtime.now(), redis::cmd("TIME"));
        let asked = Box::pin(self.send(&mut live, &time));
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

    /// A request was late for the server and is not for us: what is known of its clock is wrong; a new connection asks again.
    pub(super) fn late(&self, not_after: Instant) {
        if self.runtime.now() <= not_after {
            *self.live() = None;
        }
    }

    /// Listens to a channel; answers when the server confirmed it.
    pub(super) async fn listen(self: &Arc<Self>, channel: String, ringer: Ringer) -> Result<Listening> {
        let _one = self.subscribing.lock().await;
        // Asked for now, not before the lock: it may be another one.
        let mut live = self.connection().await?;
        let us = Arc::downgrade(self);
        let sweep = Box::new(move || {
            if let Some(us) = us.upgrade() {
                runtime::spawn_if_possible(async move { us.sweep().await });
            }
        });
        let listening = self.channels.listen(channel.clone(), ringer, sweep);
        if !self.channels.is_subscribed(&channel) {
            let confirmed = runtime::within(CONFIRMING, Box::pin(live.connection.subscribe(&channel))).await;
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
            self.channels.set_subscribed(&channel);
        }
        Ok(listening)
    }

    /// Leaves the channels that nobody listens to.
    async fn sweep(&self) {
        let _one = self.subscribing.lock().await;
        let Some(mut live) = self.live().clone() else { return };
        for channel in self.channels.take_idle() {
            // Bounded: the lock must not stay with a connection that is dead.
            if !matches!(runtime::within(CONFIRMING, Box::pin(live.connection.unsubscribe(&channel))).await, Some(Ok(()))) {
                self.discard(live.number);
                return;
            }
        }
    }
}

/// Translates times to the server's clock.
pub(super) struct Clock(i64);

impl Clock {
    /// Microseconds on the server's clock, never later than `at`.
    pub(super) fn micros(&self, at: Instant) -> Vec<u8> {
        // 2^53 is where Lua's numbers stop being exact, some 285 years from 1970.
        micros(at).saturating_add(self.0).clamp(0, 1 << 53).to_string().into_bytes()
    }
}

fn micros(at: Instant) -> i64 {
    i64::try_from(at.as_nanos() / 1_000).unwrap_or(i64::MAX)
}

/// A request without an answer yet. Given up after a silence it takes the connection with it.
struct Waiting<'a> {
    transport: &'a Transport,
    number: u64,
    heard: Arc<AtomicU64>,
    silent: Arc<AtomicU64>,
    sent: Instant,
    answered: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let waited = self.transport.runtime.now().since(self.sent);
        let heard = Instant::from_nanos(self.heard.load(Ordering::Relaxed));
        if heard <= self.sent {
            let waited = waited.as_nanos() as u64;
            // Also of several that were given up sooner.
            let silent = self.silent.fetch_add(waited, Ordering::Relaxed) + waited;
            if u128::from(silent) >= SILENCE.as_nanos() {
                self.transport.discard(self.number);
            }
        }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Transport").field(&self.config).finish()
    }
}
