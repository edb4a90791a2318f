//! One server and the connection to it: made when needed, made again when it breaks, with all subscriptions. It never sends a request
//! twice, unless the server said that it did nothing.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::sync::{Notify, watch};

use super::config::{Address, Config, Servers};
use super::connect::Refused;
use super::error;
use super::live::{InFlight, Live, SILENCE, Silence};
use super::notify::{Channels, Listening, Wanted};
use super::outages::Outages;
use super::request::{Failed, Payload, Request, Site};
use super::script::Lua;
use super::subscriptions::CONFIRMING;
use crate::backend::Notifier;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::{self, Runtime};
use crate::store::kit::clock::Steps;

pub(super) struct Node {
    pub(super) config: Config,
    pub(super) runtime: Runtime,
    pub(super) live: Mutex<Option<Arc<Live>>>,
    /// Why there is no connection, and until when nobody tries again.
    pub(super) refused: Mutex<Option<Refused>>,
    /// One at a time connects.
    pub(super) connecting: tokio::sync::Mutex<()>,
    /// A task makes the connection again.
    pub(super) reconnecting: AtomicBool,
    pub(super) channels: Arc<Channels>,
    part: Part,
    /// How far the server's clock was set back lately.
    steps: Steps,
    pub(super) outages: Arc<Outages>,
    /// The sentinels are listened to for as long as this lives.
    pub(super) sentinels: Mutex<Option<watch::Sender<()>>>,
    /// Another server is the master.
    pub(super) switched: Notify,
}

/// Whether it is the only server, or which part it has among many.
enum Part {
    All,
    /// Of a cluster: whether it publishes in the slot, as soon as that is known; the channels whose messages come from this server.
    Slots {
        sharded: Arc<OnceLock<bool>>,
        ours: Box<dyn Fn(&str) -> bool + Send + Sync>,
    },
}

impl Node {
    /// The only server.
    pub(super) fn new(config: Config, runtime: Runtime, outages: Arc<Outages>) -> Arc<Self> {
        Self::with(config, runtime, outages, Arc::default(), Part::All)
    }

    /// A server of a cluster.
    pub(super) fn one_of_many(
        config: Config,
        runtime: Runtime,
        outages: Arc<Outages>,
        channels: Arc<Channels>,
        sharded: Arc<OnceLock<bool>>,
        ours: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Arc<Self> {
        Self::with(config, runtime, outages, channels, Part::Slots { sharded, ours: Box::new(ours) })
    }

    fn with(config: Config, runtime: Runtime, outages: Arc<Outages>, channels: Arc<Channels>, part: Part) -> Arc<Self> {
        Arc::new(Self {
            config,
            runtime,
            live: Mutex::default(),
            refused: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            reconnecting: AtomicBool::new(false),
            channels,
            part,
            steps: Steps::default(),
            outages,
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

    pub(super) fn sharded(&self) -> bool {
        matches!(&self.part, Part::Slots { sharded, .. } if sharded.get() == Some(&true))
    }

    pub(super) fn live(&self) -> MutexGuard<'_, Option<Arc<Live>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request; its arguments are made for the connection that carries it.
    ///
    /// Every request that is under way has one of these: what is rarely needed is boxed, and not carried about by all.
    pub(super) async fn send(self: &Arc<Self>, request: &Request<'_>) -> std::result::Result<Value, Failed> {
        let live = self.connection().await.map_err(Failed::Unsent)?;
        let now = self.runtime.now();
        if request.is_script() && live.offset.is_stale(now) {
            Box::pin(self.measure_clock(&live, CONFIRMING)).await;
        } else if live.offset.is_due(now) {
            let (us, live) = (Arc::clone(self), Arc::clone(&live));
            runtime::spawn(async move { us.measure_clock(&live, CONFIRMING).await });
        }
        let mut answer = self.send_over(&live, request).await;
        if request.is_late(&answer, self.runtime.now()) {
            // It is not too late for us: the server's clock was set, and the server did nothing.
            Box::pin(self.measure_clock(&live, CONFIRMING)).await;
            answer = Box::pin(self.send_over(&live, request)).await;
        }
        answer
    }

    /// Has a script run behind all that this connection was given before. Nobody waits for it: no connection is made for it, and none is judged by it.
    pub(super) fn send_behind(&self, script: &Lua, keys: &[&str], arguments: &[Vec<u8>]) {
        let Some(mut connection) = self.live().as_ref().map(|live| live.connection.clone()) else { return };
        let mut command = script.by_hash(self.sharded(), keys, arguments);
        // Without this the driver drops what nobody waits for.
        command.set_no_response(true);
        // The first poll gives it to the connection's task, unless its queue is full.
        let mut sending = pin!(tokio::task::unconstrained(connection.send_packed_command(&command)));
        let _ = sending.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }

    async fn send_over(self: &Arc<Self>, live: &Arc<Live>, request: &Request<'_>) -> std::result::Result<Value, Failed> {
        let run = if request.knows_run { live.run_id.get_or_try_init(|| Box::pin(self.ask_run_id(live))).await? } else { "" };
        let cluster = matches!(self.part, Part::Slots { .. });
        let (offset, subscriptions) = (&live.offset, &live.subscriptions);
        let (steps, runtime) = (&self.steps, &self.runtime);
        let site = Site { offset, steps, runtime, cluster, moving: request.moving, run, subscriptions };
        let lacks_evalsha = live.lacks_evalsha.load(Ordering::Relaxed);
        let command = match &request.payload {
            Payload::Command(command) => Cow::Borrowed(*command),
            Payload::Script { script, keys, arguments } if lacks_evalsha => {
                Cow::Owned(script.in_full(self.sharded(), keys, &arguments(&site)))
            }
            Payload::Script { script, keys, arguments } => Cow::Owned(script.by_hash(self.sharded(), keys, &arguments(&site))),
        };
        match (self.exchange(live, request, &command).await, &request.payload) {
            (Err(Failed::Refused(error)), Payload::Script { script, keys, arguments })
                if error.code() == Some("NOSCRIPT") || (!lacks_evalsha && error::is_unknown_command(&error, "EVALSHA")) =>
            {
                live.lacks_evalsha.store(error.code() != Some("NOSCRIPT"), Ordering::Relaxed);
                let in_full = script.in_full(self.sharded(), keys, &arguments(&site));
                match Box::pin(self.exchange(live, request, &in_full)).await {
                    Err(Failed::Refused(refused)) if error.code() == Some("NOSCRIPT") && error::lacks_eval(&refused) => {
                        // Scripts that were loaded run there.
                        let load = script.load(self.sharded());
                        Box::pin(self.exchange(live, &Request::command(&load), &load))
                            .await
                            .map_err(|_| Failed::Refused(refused))?;
                        let by_hash = script.by_hash(self.sharded(), keys, &arguments(&site));
                        Box::pin(self.exchange(live, request, &by_hash)).await
                    }
                    answer => answer,
                }
            }
            (answer, _) => answer,
        }
    }

    /// One round trip. What has to stand before or after the command goes out in the same write.
    async fn exchange(
        self: &Arc<Self>,
        live: &Arc<Live>,
        request: &Request<'_>,
        command: &Cmd,
    ) -> std::result::Result<Value, Failed> {
        let mut in_flight = InFlight::new(live, &self.runtime, |silence| match silence {
            Silence::Dead => drop(self.discard(live.number)),
            Silence::Doubtful => self.probe(live),
        });
        let mut connection = live.connection.clone();
        let answer = if request.is_single() {
            connection.send_packed_command(command).await.map(|answer| vec![answer])
        } else {
            let (pipeline, before, answers) = request.around(command);
            Box::pin(connection.send_packed_commands(&pipeline, before, answers)).await
        };
        in_flight.answered(&answer);
        let answer = request.judge(answer);
        if let Err(Failed::Refused(error)) = &answer
            && error.code() == Some("READONLY")
        {
            // It was the master, and is no more: a new connection finds the present one.
            self.discard(live.number);
        }
        answer
    }

    async fn ask_run_id(self: &Arc<Self>, live: &Arc<Live>) -> std::result::Result<String, Failed> {
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
    async fn measure_clock(self: &Arc<Self>, live: &Arc<Live>, limit: Duration) {
        let (sent, time) = (self.runtime.now(), redis::cmd("TIME"));
        let plain = Request::command(&time);
        let asked = Box::pin(self.exchange(live, &plain, &time));
        let Some(Ok(answer)) = runtime::within(limit, asked).await else { return };
        match time_of(&answer) {
            Some(time) => live.offset.measured_again(time, sent, self.runtime.now()),
            // The answer to another request: one was lost, and each request here would get the answer of the one before.
            None => drop(self.discard(live.number)),
        }
    }

    /// Asks the server for something, to see whether the connection is dead; one at a time.
    fn probe(self: &Arc<Self>, live: &Arc<Live>) {
        if let Some(probe) = live.probe() {
            let (us, live) = (Arc::clone(self), Arc::clone(live));
            runtime::spawn_if_possible(async move {
                // No answer after so long counts as dead: a little more than is looked at.
                us.measure_clock(&live, SILENCE + SILENCE / 10).await;
                drop(probe);
            });
        }
    }

    /// Whether somebody listens to a channel whose messages come from here.
    pub(super) fn is_wanted(&self, channel: &str) -> bool {
        self.is_ours(channel) && self.channels.is_wanted(channel)
    }

    fn is_ours(&self, channel: &str) -> bool {
        match &self.part {
            Part::All => true,
            Part::Slots { ours, .. } => ours(channel),
        }
    }

    /// The channels that somebody listens to and whose messages come from here.
    pub(super) fn wanted(&self) -> Vec<String> {
        let mut wanted = self.channels.wanted();
        wanted.retain(|channel| self.is_ours(channel));
        wanted
    }

    /// Listens to channels; answers when the server confirmed them.
    pub(super) async fn listen(self: &Arc<Self>, wanted: Wanted, notifier: &Notifier) -> Result<Listening> {
        let live = self.connection().await?;
        let us = Arc::downgrade(self);
        let idle = Box::new(move |channels: &[String]| {
            if let Some(live) = us.upgrade().and_then(|us| us.live().clone()) {
                live.subscriptions.touch(channels.iter().map(String::as_str));
            }
        });
        let listening = self.channels.listen(wanted, notifier, idle);
        let missing = || listening.channels().filter(|channel| !live.subscriptions.is_confirmed(channel));
        if missing().next().is_none() {
            return Ok(listening);
        }
        live.subscriptions.touch(missing());
        let confirmed = async {
            for channel in listening.channels() {
                live.subscriptions.confirmed(channel).await?;
            }
            Ok(())
        };
        match runtime::within(CONFIRMING, Box::pin(confirmed)).await {
            Some(confirmed) => confirmed?,
            None => {
                self.broken(live.number);
                let message = format!("{} did not confirm a subscription within {CONFIRMING:?}", self.config);
                return Err(Error::new(ErrorKind::Unavailable, message));
            }
        }
        // A connection that replaced it meanwhile may not know the channel.
        if self.live().as_ref().is_none_or(|now| now.number != live.number) {
            return Err(Error::new(ErrorKind::Unavailable, "the connection was replaced while subscribing"));
        }
        Ok(listening)
    }

    /// Slots have moved: listens to what is this server's now.
    pub(super) async fn listen_again(self: &Arc<Self>) {
        if self.wanted().is_empty() {
            return;
        }
        // If it fails, the next connection subscribes; until then waiters poll.
        if let Ok(live) = self.connection().await {
            live.subscriptions.touch_all(self.wanted());
        }
    }
}

/// What `TIME` answers, in µs: two texts, which no script of ours answers.
pub(super) fn time_of(answer: &Value) -> Option<i64> {
    let Value::Array(words) = answer else { return None };
    let [Value::BulkString(seconds), Value::BulkString(micros)] = &words[..] else { return None };
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<i64>().ok();
    number(seconds)?.checked_mul(1_000_000)?.checked_add(number(micros)?)
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Node").field(&self.config).finish()
    }
}
