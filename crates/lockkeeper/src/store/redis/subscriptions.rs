//! The subscriptions of one connection. A task of the connection makes them what is listened to: a caller that goes away while its
//! subscription is on its way leaves nothing behind, and new listeners do not wait for each channel that others leave.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisError, RedisResult, Value};
use tokio::sync::{Notify, watch};

use super::node::Node;
use super::{error, names, script};
use crate::backend::Kind;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime;

/// How long the server may take to confirm subscriptions, or their end.
pub(super) const CONFIRMING: Duration = Duration::from_secs(3);

#[derive(Default)]
pub(super) struct Subscriptions {
    state: Mutex<State>,
    /// There is a channel to look at, or the connection is gone.
    changed: Notify,
    /// Counts how often the state of a channel became known.
    progress: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    /// What the server is subscribed to.
    confirmed: HashSet<String>,
    /// Why a channel that is listened to is not confirmed.
    refused: HashMap<String, Error>,
    /// Channels whose listeners came or went.
    touched: HashSet<String>,
    ended: bool,
}

impl Subscriptions {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_confirmed(&self, channel: &str) -> bool {
        self.state().confirmed.contains(channel)
    }

    /// The server confirmed these when the connection was made.
    pub(super) fn confirm(&self, channels: impl Iterator<Item = String>) {
        self.state().confirmed.extend(channels);
    }

    /// Listeners of these channels came or went.
    pub(super) fn touch<'a>(&self, channels: impl IntoIterator<Item = &'a str>) {
        let channels: Vec<&str> = channels.into_iter().collect();
        let mut state = self.state();
        for channel in channels {
            state.refused.remove(channel);
            state.touched.insert(channel.to_owned());
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Compares everything: while the connection was being made listeners came or went.
    pub(super) fn touch_all(&self, wanted: Vec<String>) {
        let mut state = self.state();
        let state = &mut *state;
        state.touched.extend(wanted);
        state.touched.extend(state.confirmed.iter().cloned());
        self.changed.notify_one();
    }

    /// The connection is gone.
    pub(super) fn end(&self) {
        self.state().ended = true;
        self.changed.notify_one();
        self.progress.send_modify(|count| *count += 1);
    }

    /// Waits until the server confirmed a channel that is listened to.
    pub(super) async fn confirmed(&self, channel: &str) -> Result<()> {
        let mut progress = self.progress.subscribe();
        loop {
            let gone = {
                let state = self.state();
                if state.confirmed.contains(channel) {
                    return Ok(());
                }
                if let Some(error) = state.refused.get(channel) {
                    return Err(error.clone());
                }
                state.ended
            };
            if gone || progress.changed().await.is_err() {
                return Err(Error::new(ErrorKind::Unavailable, "the connection to redis broke while subscribing"));
            }
        }
    }

    /// The channels to subscribe to and those to leave; `None` when the connection is gone.
    ///
    /// A channel to leave is not confirmed from here on: who comes now subscribes again, and what the server says of it was asked for.
    fn difference(&self, wanted: impl Fn(&str) -> bool) -> Option<(Vec<String>, Vec<String>)> {
        let mut state = self.state();
        if state.ended {
            return None;
        }
        let (mut join, mut leave) = (Vec::new(), Vec::new());
        for channel in std::mem::take(&mut state.touched) {
            // Under the lock: a listener comes first and looks whether the channel is confirmed then.
            if !wanted(&channel) {
                if state.confirmed.remove(&channel) {
                    leave.push(channel);
                }
            } else if !state.confirmed.contains(&channel) {
                join.push(channel);
            }
        }
        Some((join, leave))
    }

    /// What the server said to subscriptions.
    fn settle(&self, answers: Vec<(String, RedisResult<()>)>) {
        let mut state = self.state();
        for (channel, answer) in answers {
            match answer {
                Ok(()) => {
                    state.confirmed.insert(channel);
                }
                Err(error) => {
                    state.refused.insert(channel, error::of_request(error));
                }
            }
        }
        drop(state);
        self.progress.send_modify(|count| *count += 1);
    }
}

/// Whoever waits for a confirmation is told when the task ends, also together with its executor.
struct Ended(Arc<Subscriptions>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The task of a connection: subscribes and unsubscribes, one round at a time, so that what the server was told last is what was wanted
/// last. Ends with the connection.
pub(super) async fn maintain(
    node: Weak<Node>,
    number: u64,
    connection: MultiplexedConnection,
    subscriptions: Arc<Subscriptions>,
    sharded: bool,
) {
    let ended = Ended(subscriptions);
    let subscriptions = &ended.0;
    loop {
        let Some(there) = node.upgrade() else { return };
        let Some((join, leave)) = subscriptions.difference(|channel| there.is_wanted(channel)) else { return };
        drop(there);
        if join.is_empty() && leave.is_empty() {
            subscriptions.changed.notified().await;
            continue;
        }
        let (mut joining, mut leaving) = (connection.clone(), connection.clone());
        // New listeners first; nobody waits for the answers to what is left.
        let left = async {
            unsubscribe(&mut leaving, &leave, sharded).await?;
            pass_on(&mut leaving, &leave, sharded).await
        };
        let round = async { tokio::join!(subscribe(&mut joining, join, sharded), left) };
        let broken = match runtime::within(CONFIRMING, Box::pin(round)).await {
            Some((Ok(answers), left)) => {
                subscriptions.settle(answers);
                left.is_err()
            }
            _ => true,
        };
        if broken {
            if let Some(node) = node.upgrade() {
                node.broken(number);
            }
            return;
        }
    }
}

/// A client waits no more for mutexes whose turn it may just have been told: the next one goes on. Behind the end of the subscription: what was
/// published before came here, and what is published later finds nobody. An error is one of the connection: where a script is refused, others poll.
async fn pass_on(connection: &mut MultiplexedConnection, left: &[String], sharded: bool) -> RedisResult<()> {
    let mut turns: Vec<_> = left.iter().filter_map(|channel| names::turn_of(channel)).collect();
    for in_full in [false, true] {
        if turns.is_empty() {
            return Ok(());
        }
        let mut pipeline = redis::pipe();
        for (name, anyone) in &turns {
            let (keys, arguments) = ([name.as_str()], [names::channel(name, Kind::Mutex, None), anyone.to_string()]);
            let arguments = arguments.map(String::into_bytes);
            let leave = &script::MUTEX_LEAVE;
            pipeline.add_command(if in_full {
                leave.in_full(sharded, &keys, &arguments)
            } else {
                leave.by_hash(sharded, &keys, &arguments)
            });
        }
        let answers = connection.send_packed_commands(&pipeline, 0, turns.len()).await?;
        let mut refused = answers.into_iter().map(|answer| answer.extract_error().is_err());
        turns.retain(|_| refused.next().unwrap_or(false));
    }
    Ok(())
}

/// Subscribes to channels; an error is one of the connection.
pub(super) async fn subscribe(
    connection: &mut MultiplexedConnection,
    channels: Vec<String>,
    sharded: bool,
) -> RedisResult<Vec<(String, RedisResult<()>)>> {
    if channels.is_empty() {
        return Ok(Vec::new());
    }
    if sharded {
        let answers = each(connection, "SSUBSCRIBE", &channels).await?;
        return Ok(channels.into_iter().zip(answers).collect());
    }
    // In one request: one by one, many would take longer than anybody waits.
    match connection.subscribe(&channels).await {
        Ok(()) => Ok(channels.into_iter().map(|channel| (channel, Ok(()))).collect()),
        Err(error) if error.code().is_none() => Err(error),
        Err(error) if channels.len() == 1 => Ok(channels.into_iter().map(|channel| (channel, Err(error.clone()))).collect()),
        // The server refuses all for one.
        Err(_) => {
            let mut answers = Vec::with_capacity(channels.len());
            for channel in channels {
                let answer = connection.subscribe(&channel).await;
                if let Err(error) = &answer
                    && error.code().is_none()
                {
                    return Err(error.clone());
                }
                answers.push((channel, answer));
            }
            Ok(answers)
        }
    }
}

async fn unsubscribe(connection: &mut MultiplexedConnection, channels: &[String], sharded: bool) -> RedisResult<()> {
    if channels.is_empty() {
        return Ok(());
    }
    if sharded {
        return each(connection, "SUNSUBSCRIBE", channels).await?.into_iter().collect();
    }
    connection.unsubscribe(channels).await
}

/// One command per channel, in one write: channels of several slots do not go into one command.
async fn each(connection: &mut MultiplexedConnection, command: &str, channels: &[String]) -> RedisResult<Vec<RedisResult<()>>> {
    let mut pipeline = redis::pipe();
    for channel in channels {
        pipeline.cmd(command).arg(channel);
    }
    let answers = connection.send_packed_commands(&pipeline, 0, channels.len()).await?;
    let nothing =
        || -> RedisError { (redis::ErrorKind::UnexpectedReturnType, "redis confirmed fewer channels than were sent").into() };
    if answers.len() != channels.len() {
        return Err(nothing());
    }
    Ok(answers.into_iter().map(|answer| answer.extract_error().map(|_: Value| ())).collect())
}
