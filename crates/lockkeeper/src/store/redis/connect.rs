//! The connection to a server: made when needed and made again when it breaks, with its clock, the scripts and the subscriptions.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo, PushKind, Value};
#[cfg(feature = "redis-sentinel")]
use tokio::sync::watch;

use super::config::{Address, Servers};
use super::live::Live;
use super::node::Node;
use super::notify::Heard;
#[cfg(feature = "redis-sentinel")]
use super::sentinel;
use super::subscriptions::{self, Subscriptions};
use super::{dial, error, script};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::{self, Instant};
use crate::store::kit::clock::ClockOffset;

/// How long connecting may take.
const CONNECTING: Duration = Duration::from_secs(3);

/// A network may fall silent while a connection is made. If no greeting was answered after this long another attempt begins beside the first one,
/// then one after twice as long, and so on; the first that succeeds counts.
const BESIDE: Duration = Duration::from_millis(250);

/// The pauses between attempts to connect that fail: the first, and what they grow to. A request in between gets the last error.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// A connection that broke is made again after at most this long, without being asked for; many clients do not come at once.
const SPREAD: Duration = Duration::from_millis(50);

/// Why there is no connection, and until when nobody tries again.
pub(super) struct Refused {
    error: Error,
    pause: Duration,
    until: Instant,
}

impl Node {
    /// Connects if there is no connection.
    pub(super) async fn ready(self: &Arc<Self>) -> Result<()> {
        self.connection().await.map(drop)
    }

    pub(super) async fn connection(self: &Arc<Self>) -> Result<Arc<Live>> {
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
        let began = self.runtime.now();
        if let Some(refused) = self.refused().as_ref().filter(|refused| began < refused.until) {
            return Err(refused.error.clone());
        }
        #[cfg(feature = "redis-sentinel")]
        self.listen_to_sentinels();
        let slow = || {
            let to = self.config.to_string();
            // A server without TLS waits for the rest of what it takes for a command.
            let hint = if to.starts_with("rediss") {
                "; does it use TLS on this port? if not, write redis without the second s"
            } else {
                ""
            };
            Err(Error::new(ErrorKind::Unavailable, format!("{to} did not answer within {CONNECTING:?}{hint}")))
        };
        let made = loop {
            tokio::select! {
                biased;
                made = runtime::within(CONNECTING, Box::pin(self.connect_by_some_attempt())) => break made.unwrap_or_else(slow),
                // The server that is being asked is not the master any more.
                () = self.switched.notified() => {}
            }
        };
        let (now, server) = (self.runtime.now(), self.config.place());
        let mut refused = self.refused();
        let live = match made {
            Ok(live) => Arc::new(live),
            Err(error) => {
                let pause = refused.as_ref().map_or(PAUSES.0, |before| (before.pause * 2).min(PAUSES.1));
                let until = now.plus(runtime::jitter(pause / 2, pause));
                *refused = Some(Refused { error: error.clone(), pause, until });
                self.outages.failed(&server, &error, began, now);
                return Err(error);
            }
        };
        *refused = None;
        drop(refused);
        self.outages.connected(server, now);
        *self.live() = Some(Arc::clone(&live));
        live.subscriptions.touch_all(self.wanted());
        // Waiters may have missed a message.
        self.channels.notify_all();
        Ok(live)
    }

    /// Hears of a new master at once, not only when the old one says that it is none. The listeners end with us, or with their executor.
    #[cfg(feature = "redis-sentinel")]
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
    #[cfg(feature = "redis-sentinel")]
    fn switch_to(self: Arc<Self>, new: &Address) {
        let present = match self.live().as_ref() {
            Some(live) if live.at == *new => return,
            Some(live) => Some(live.number),
            None => None,
        };
        if let Some(number) = present {
            self.discard(number);
        }
        *self.refused() = None;
        self.switched.notify_one();
        runtime::spawn_if_possible(async move {
            // If it fails, the next request tries again, and tells.
            let _ = self.ready().await;
        });
    }

    /// The connection is of no use any more; the next request makes a new one. Whether it was the present one.
    pub(super) fn discard(&self, number: u64) -> bool {
        let mut live = self.live();
        let Some(gone) = live.take_if(|live| live.number == number) else { return false };
        drop(live);
        gone.subscriptions.end();
        true
    }

    /// The connection broke. Made again at once, it is there when a renewal needs it, and misses few messages. As long as somebody listens this
    /// is tried again: on a connection that only listens no request would do it.
    pub(super) fn broken(self: &Arc<Self>, number: u64) {
        if !self.discard(number) || self.reconnecting.swap(true, Ordering::Relaxed) {
            return;
        }
        let (over, runtime) = (Reconnecting(Arc::downgrade(self)), self.runtime.clone());
        runtime::spawn_if_possible(async move {
            let mut pause = runtime::jitter(Duration::ZERO, SPREAD);
            loop {
                runtime.sleep_until(runtime.now().plus(pause)).await;
                let Some(us) = over.0.upgrade() else { return };
                // If it fails and nobody listens, the next request tries again, and tells.
                if us.ready().await.is_ok() || us.wanted().is_empty() {
                    return;
                }
                pause = runtime::jitter(PAUSES.1 / 4, PAUSES.1 / 2);
            }
        });
    }

    /// Connects, with further attempts beside one that takes long.
    async fn connect_by_some_attempt(self: &Arc<Self>) -> Result<Live> {
        // Once one was greeted, others would only take time from it: subscribing to many channels takes a while.
        let greeted = AtomicBool::new(false);
        let mut attempts = vec![Box::pin(self.connect(&greeted))];
        let mut pause = BESIDE;
        loop {
            tokio::select! {
                biased;
                made = first_made(&mut attempts) => return made,
                () = self.runtime.sleep_until(self.runtime.now().plus(pause)) => {}
            }
            if !greeted.load(Ordering::Relaxed) {
                attempts.push(Box::pin(self.connect(&greeted)));
            }
            pause *= 2;
        }
    }

    /// Connects to the server, or to the first that answers of those that may be it.
    async fn connect(self: &Arc<Self>, greeted: &AtomicBool) -> Result<Live> {
        let mut last = None;
        for address in dial::places(&self.config).await? {
            match self.connect_to(&address, greeted).await {
                Ok(live) => return Ok(live),
                Err(error) => {
                    // Others may be tried again beside this one.
                    greeted.store(false, Ordering::Relaxed);
                    last = Some(error);
                }
            }
        }
        Err(last.unwrap_or_else(|| Error::new(ErrorKind::Unavailable, format!("{} names no server", self.config))))
    }

    async fn connect_to(self: &Arc<Self>, address: &Address, greeted: &AtomicBool) -> Result<Live> {
        let failed = |error| error::of_connecting(error, &self.config);
        let client = dial::to(&self.config, address)?;
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let subscriptions = Arc::<Subscriptions>::default();
        // Our own limits hold for every request; the driver's would only hide what happened.
        let mut options = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        if self.config.push {
            let (us, ours) = (Arc::downgrade(self), Arc::clone(&subscriptions));
            options = options.set_push_sender(move |push: PushInfo| -> std::result::Result<(), Error> {
                if let Some(us) = us.upgrade() {
                    us.pushed(number, &ours, &push);
                }
                Ok(())
            });
        }
        let mut connection = client.get_multiplexed_async_connection_with_config(&options).await.map_err(failed)?;
        if let Servers::Sentinels { .. } = self.config.servers {
            self.is_master(&mut connection, address).await?;
        }
        let time = self.greet(&mut connection).await.map_err(failed)?;
        greeted.store(true, Ordering::Relaxed);
        let now = self.runtime.now();
        let answers = subscriptions::subscribe(&mut connection, self.wanted(), self.sharded()).await.map_err(failed)?;
        // One that is refused, because its slot moved, is tried once more when the connection is in use.
        subscriptions.confirm(answers.into_iter().filter(|(_, answer)| answer.is_ok()).map(|(channel, _)| channel));
        if self.config.push {
            let (us, connection, ours) = (Arc::downgrade(self), connection.clone(), Arc::clone(&subscriptions));
            // On the executor of the connection: neither works without the other.
            runtime::spawn_if_possible(subscriptions::maintain(us, number, connection, ours, self.sharded()));
        }
        let offset = ClockOffset::new(time.0 * 1_000_000 + time.1, now);
        Ok(Live::new(connection, address.clone(), number, offset, subscriptions, now))
    }

    /// Something came that is no answer.
    fn pushed(self: &Arc<Self>, number: u64, subscriptions: &Subscriptions, push: &PushInfo) {
        match (&push.kind, &push.data[..]) {
            (PushKind::Message | PushKind::SMessage, [Value::BulkString(channel), message @ ..]) => {
                let message = if let [Value::BulkString(message), ..] = message { message } else { &[][..] };
                self.message(&String::from_utf8_lossy(channel), message);
            }
            (PushKind::Disconnection, _) => self.broken(number),
            // Unasked: the slot moved away. The driver takes it for an answer, so this connection is of no use any more.
            (PushKind::SUnsubscribe, [Value::BulkString(channel), ..])
                if subscriptions.is_confirmed(&String::from_utf8_lossy(channel)) =>
            {
                self.broken(number);
            }
            _ => {}
        }
    }

    fn message(&self, channel: &str, message: &[u8]) {
        if let Heard::Postponed(at, number) = self.channels.message(channel, message, self.runtime.now()) {
            let (channels, runtime, channel) = (Arc::clone(&self.channels), self.runtime.clone(), channel.to_owned());
            runtime::spawn_if_possible(async move {
                runtime.sleep_until(at).await;
                channels.due(&channel, number);
            });
        }
    }

    /// A sentinel may be behind: only the server itself knows what it is.
    async fn is_master(&self, connection: &mut MultiplexedConnection, address: &Address) -> Result<()> {
        let role: Vec<Value> =
            redis::cmd("ROLE").query_async(connection).await.map_err(|error| error::of_connecting(error, &self.config))?;
        match role.first() {
            Some(Value::BulkString(role)) if role == b"master" => Ok(()),
            _ => Err(Error::new(ErrorKind::Unavailable, format!("the sentinels name {address}, which is not a master now"))),
        }
    }

    /// The server's time, in s and µs. The same write loads the scripts, so that the first use of each takes one round trip, not two. The one for many
    /// steps is as long as ten others, and a client that does one thing at a time never needs it.
    async fn greet(&self, connection: &mut MultiplexedConnection) -> redis::RedisResult<(i64, i64)> {
        let mut greeting = redis::pipe();
        for script in script::STEPS.iter().chain(script::OTHERS) {
            // A user without the right to load scripts can still send them in full.
            greeting.add_command(script.load(self.sharded())).ignore();
        }
        // Last, so that the time is as fresh as can be when it comes.
        greeting.cmd("TIME").ignore_errors();
        let answers: Vec<redis::RedisResult<(i64, i64)>> = greeting.query_async(connection).await?;
        let nothing = || Err((redis::ErrorKind::UnexpectedReturnType, "no answer to TIME").into());
        answers.into_iter().next().unwrap_or_else(nothing)
    }
}

/// The first of these that succeeds, or that fails for a reason other than an outage; the last error if none does.
async fn first_made<F: Future<Output = Result<Live>> + Unpin>(attempts: &mut Vec<F>) -> Result<Live> {
    poll_fn(|cx| {
        let mut at = 0;
        while at < attempts.len() {
            match Pin::new(&mut attempts[at]).poll(cx) {
                Poll::Ready(Err(error)) if attempts.len() > 1 && error.kind() == ErrorKind::Unavailable => {
                    drop(attempts.swap_remove(at));
                }
                Poll::Ready(made) => return Poll::Ready(made),
                Poll::Pending => at += 1,
            }
        }
        Poll::Pending
    })
    .await
}

/// The task that makes a connection again.
struct Reconnecting(Weak<Node>);

impl Drop for Reconnecting {
    fn drop(&mut self) {
        if let Some(node) = self.0.upgrade() {
            node.reconnecting.store(false, Ordering::Relaxed);
        }
    }
}
