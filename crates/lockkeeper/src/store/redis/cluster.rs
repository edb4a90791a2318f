//! Many servers that share the slots: each request goes to the one that serves its key, and follows it when the slot moves. What a server
//! refuses in a redirection it has not done, so sending it elsewhere is never a second time.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use redis::Value;

use super::config::{Address, Config};
use super::error;
use super::node::Node;
use super::notify::{Channels, Listening};
use super::request::{Failed, Request};
use super::slots::{self, SLOTS};
use crate::backend::Notifier;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::{self, Instant, Runtime};

/// So often a request follows a redirection; its own time limit ends it earlier.
const REDIRECTIONS: u32 = 32;

/// So often it waits for a slot that is half moved. Not for long: given up by its sender while it waits here, it would seem to be under way.
const PATIENT: u32 = 8;

/// What one server may take to say who serves what.
const PATIENCE: Duration = Duration::from_millis(700);

/// The map is not asked for more often than this.
const PAUSE: Duration = Duration::from_millis(50);

pub(super) struct Cluster {
    config: Config,
    runtime: Runtime,
    seeds: Vec<Address>,
    state: Mutex<State>,
    /// One at a time asks for the map.
    refreshing: tokio::sync::Mutex<()>,
    channels: Arc<Channels>,
    /// Whether messages stay in their slot; known before the map is.
    sharded: Arc<OnceLock<bool>>,
    us: Weak<Self>,
}

#[derive(Default)]
struct State {
    /// Who serves each slot: a place in `masters`.
    slots: Vec<Option<u16>>,
    masters: Vec<Address>,
    nodes: HashMap<Address, Arc<Node>>,
    /// Connections that only listen. When a slot moves, its server says so unasked, and the driver takes that for an answer: on a connection
    /// with requests everybody would get the answer of the one before.
    ears: HashMap<Address, Arc<Node>>,
    asked: Option<Instant>,
}

/// What `CLUSTER SLOTS` tells: first slot, last slot, master.
type Range = (u16, u16, Address);

impl Cluster {
    pub(super) fn new(config: Config, seeds: Vec<Address>, runtime: Runtime) -> Arc<Self> {
        let sharded = Arc::new(config.sharded.map_or_else(OnceLock::new, OnceLock::from));
        Arc::new_cyclic(|us| Self {
            sharded,
            config,
            runtime,
            seeds,
            state: Mutex::default(),
            refreshing: tokio::sync::Mutex::default(),
            channels: Arc::default(),
            us: Weak::clone(us),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Learns the map, and how the servers publish.
    pub(super) async fn ready(&self) -> Result<()> {
        self.refresh().await
    }

    /// The servers that serve slots, each with a slot of its own.
    pub(super) fn masters(&self) -> Vec<(u16, Arc<Node>)> {
        let first_slots: Vec<(u16, Address)> = {
            let state = self.state();
            let first = |at: usize| state.slots.iter().position(|place| place.is_some_and(|place| usize::from(place) == at));
            let each = state.masters.iter().enumerate();
            each.filter_map(|(at, address)| Some((u16::try_from(first(at)?).ok()?, address.clone()))).collect()
        };
        first_slots.into_iter().map(|(slot, address)| (slot, self.node(&address))).collect()
    }

    fn nobody(&self, slot: u16) -> Error {
        Error::new(ErrorKind::Unavailable, format!("no server of {} serves slot {slot} now", self.config))
    }

    fn node(&self, address: &Address) -> Arc<Node> {
        let mut state = self.state();
        let node = state.nodes.entry(address.clone()).or_insert_with(|| self.server(address, |_| false));
        Arc::clone(node)
    }

    fn ear(&self, address: &Address) -> Arc<Node> {
        let mut state = self.state();
        let ear = state.ears.entry(address.clone()).or_insert_with(|| {
            let (us, at) = (Weak::clone(&self.us), address.clone());
            self.server(address, move |channel| us.upgrade().is_some_and(|us| us.serves(&at, slots::slot(channel))))
        });
        Arc::clone(ear)
    }

    fn server(&self, address: &Address, ours: impl Fn(&str) -> bool + Send + Sync + 'static) -> Arc<Node> {
        let (config, channels) = (self.config.at(address.clone()), Arc::clone(&self.channels));
        Node::one_of_many(config, self.runtime.clone(), channels, Arc::clone(&self.sharded), ours)
    }

    fn serves(&self, address: &Address, slot: u16) -> bool {
        let state = self.state();
        state.slots.get(usize::from(slot)).copied().flatten().and_then(|at| state.masters.get(usize::from(at))) == Some(address)
    }

    /// The server of a slot; asks for the map if nobody is known.
    async fn serving(&self, slot: u16) -> Result<Arc<Node>> {
        Ok(self.node(&self.address(slot).await?))
    }

    async fn address(&self, slot: u16) -> Result<Address> {
        let known = || {
            let state = self.state();
            let at = state.slots.get(usize::from(slot)).copied().flatten()?;
            state.masters.get(usize::from(at)).cloned()
        };
        if let Some(address) = known() {
            return Ok(address);
        }
        self.refresh().await?;
        known().ok_or_else(|| self.nobody(slot))
    }

    /// Sends to whoever serves the slot.
    pub(super) async fn send(&self, slot: u16, sent: &Request<'_>) -> std::result::Result<Value, Failed> {
        let mut node = self.serving(slot).await.map_err(Failed::Unsent)?;
        let (mut asking, mut waited) = (false, 0);
        for _ in 0..REDIRECTIONS {
            let mut unanswered = Unanswered(Some(self));
            let answer = if asking { node.send(&sent.asking()).await } else { node.send(sent).await };
            unanswered.0 = None;
            let error = match answer {
                Err(Failed::Refused(error)) => error,
                Err(failed) => {
                    // It may be gone for good.
                    self.refresh_later();
                    return Err(failed);
                }
                answer => return answer,
            };
            asking = false;
            match error.code() {
                Some("MOVED") => {
                    let Some(address) = redirected(&error, node.address()) else { return Err(Failed::Refused(error)) };
                    self.learn(slot, &address);
                    self.refresh_later();
                    node = self.node(&address);
                }
                Some("ASK") if sent.follows => {
                    let Some(address) = redirected(&error, node.address()) else { return Err(Failed::Refused(error)) };
                    node = self.node(&address);
                    asking = true;
                }
                // Each of them can be asked for by itself.
                Some("TRYAGAIN") if sent.follows && sent.is_of_many() => return Err(Failed::Refused(error)),
                // Some of what it touches has moved, some has not: soon all will have.
                code if matches!(code, Some("ASK" | "TRYAGAIN")) || error::is_half_moved(&error) => {
                    waited += 1;
                    if waited > PATIENT {
                        let in_the_middle = error::is_half_moved(&error) && !sent.looks_first;
                        return Err(if in_the_middle { Failed::Unknown(error) } else { Failed::Refused(error) });
                    }
                    let pause = runtime::jitter(Duration::from_millis(2), Duration::from_millis(20));
                    self.runtime.sleep_until(self.runtime.now().plus(pause)).await;
                    node = self.serving(slot).await.map_err(Failed::Unsent)?;
                }
                Some("READONLY" | "CLUSTERDOWN" | "MASTERDOWN" | "LOADING") => {
                    self.refresh_later();
                    return Err(Failed::Refused(error));
                }
                _ => return Err(Failed::Refused(error)),
            }
        }
        let message = format!("slot {slot} moves about; followed it {REDIRECTIONS} times");
        Err(Failed::Unsent(Error::new(ErrorKind::Unavailable, message)))
    }

    /// A slot has another server.
    fn learn(&self, slot: u16, address: &Address) {
        let mut state = self.state();
        let at = state.masters.iter().position(|known| known == address).unwrap_or_else(|| {
            state.masters.push(address.clone());
            state.masters.len() - 1
        });
        if let (Some(place), Ok(at)) = (state.slots.get_mut(usize::from(slot)), u16::try_from(at)) {
            *place = Some(at);
        }
    }

    fn refresh_later(&self) {
        if let Some(us) = self.us.upgrade() {
            runtime::spawn_if_possible(async move {
                if let Err(error) = us.refresh().await {
                    tracing::debug!(%error, "the map of the cluster is not to be had");
                }
            });
        }
    }

    /// Asks for the map: first those that served, then the seeds.
    async fn refresh(&self) -> Result<()> {
        let wanted = self.runtime.now();
        let _one = self.refreshing.lock().await;
        // Another asked while we waited; or so lately that it would say the same.
        if self.state().asked.is_some_and(|asked| asked.plus(PAUSE) > wanted) {
            return Ok(());
        }
        let mut addresses: Vec<Address> = self.state().masters.clone();
        addresses.extend(self.seeds.iter().filter(|seed| !addresses.contains(seed)).cloned().collect::<Vec<_>>());
        let mut last = None;
        for address in addresses {
            let node = self.node(&address);
            match runtime::within(PATIENCE, Box::pin(self.ask(&node))).await {
                Some(Ok(answer)) => match ranges(&answer, &address) {
                    Some(ranges) if !ranges.is_empty() => {
                        self.adopt(ranges);
                        return Ok(());
                    }
                    _ => last = Some(Error::new(ErrorKind::Unavailable, format!("{address} knows of no server with slots"))),
                },
                Some(Err(failed)) => last = Some(failed.into_error()),
                None => last = Some(Error::new(ErrorKind::Unavailable, format!("{address} did not tell who serves what"))),
            }
        }
        Err(last.unwrap_or_else(|| self.nobody(0)))
    }

    /// Asks one server for the map and, if it is not known yet, for how it publishes.
    async fn ask(&self, node: &Arc<Node>) -> std::result::Result<Value, Failed> {
        let mut slots = redis::cmd("CLUSTER");
        slots.arg("SLOTS");
        let answer = node.send(&Request::command(&slots)).await?;
        if self.sharded.get().is_none() {
            // Redis knows it since 7.0; Redisson asks the same question.
            let mut probe = redis::cmd("PUBSUB");
            probe.arg("SHARDCHANNELS").arg("lockkeeper:none");
            let sharded = match node.send(&Request::command(&probe)).await {
                Err(Failed::Refused(_)) => false,
                answer => answer.map(|_| true)?,
            };
            // If another was faster it asked the same cluster.
            let _ = self.sharded.set(sharded);
        }
        Ok(answer)
    }

    fn adopt(&self, ranges: Vec<Range>) {
        let mut state = self.state();
        let mut masters: Vec<Address> = Vec::new();
        let mut slots = vec![None; usize::from(SLOTS)];
        for (first, last, address) in ranges {
            let at = masters.iter().position(|known| *known == address).unwrap_or_else(|| {
                masters.push(address);
                masters.len() - 1
            });
            let last = last.min(SLOTS - 1);
            slots[usize::from(first.min(last))..=usize::from(last)].fill(u16::try_from(at).ok());
        }
        let moved = state.slots != slots || state.masters != masters;
        // Requests under way keep theirs until they are answered.
        state.nodes.retain(|address, _| masters.contains(address));
        state.ears.retain(|address, _| masters.contains(address));
        state.asked = Some(self.runtime.now());
        (state.slots, state.masters) = (slots, masters);
        drop(state);
        if moved {
            self.listen_again();
        }
    }

    /// Listens where the slots of the channels are now; whoever waits may have missed a message.
    fn listen_again(&self) {
        let addresses: HashSet<Address> = {
            let (state, wanted) = (self.state(), self.channels.wanted());
            let server = |channel: &String| {
                let at = state.slots.get(usize::from(slots::slot(channel))).copied().flatten()?;
                state.masters.get(usize::from(at)).cloned()
            };
            wanted.iter().filter_map(server).collect()
        };
        for ear in addresses.iter().map(|address| self.ear(address)) {
            runtime::spawn_if_possible(async move { ear.listen_again().await });
        }
        self.channels.ring_all();
    }

    /// Listens to a channel where its slot is served.
    pub(super) async fn listen(&self, channel: String, notifier: Notifier) -> Result<Listening> {
        let address = self.address(slots::slot(&channel)).await?;
        let listening = self.ear(&address).listen(channel, notifier).await;
        if listening.is_err() {
            self.refresh_later();
        }
        listening
    }

    /// What is known of the clock of a slot's server is wrong.
    pub(super) fn forget(&self, slot: u16) {
        let state = self.state();
        let at = state.slots.get(usize::from(slot)).copied().flatten();
        if let Some(node) = at.and_then(|at| state.nodes.get(state.masters.get(usize::from(at))?)) {
            node.forget();
        }
    }
}

/// A request under way. Given up by its sender it may have gone to a server that says nothing any more, and has a successor.
struct Unanswered<'a>(Option<&'a Cluster>);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(cluster) = self.0 {
            cluster.refresh_later();
        }
    }
}

/// Where a redirection points. Without a host it is that of the server that answered.
fn redirected(error: &redis::RedisError, from: Option<&Address>) -> Option<Address> {
    let (address, _) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    let host = match (host, from) {
        ("" | "?", Some(Address::Tcp { host, .. })) => host.clone(),
        (host, _) => host.trim_start_matches('[').trim_end_matches(']').to_owned(),
    };
    Some(Address::Tcp { host, port: port.parse().ok()? })
}

/// Reads an answer to `CLUSTER SLOTS`; `None` if it is none. What names no server is left out.
fn ranges(answer: &Value, from: &Address) -> Option<Vec<Range>> {
    let list = |value: &Value| match value {
        Value::Array(items) => Some(items.clone()),
        _ => None,
    };
    let number = |value: &Value| match value {
        Value::Int(number) => u16::try_from(*number).ok(),
        _ => None,
    };
    let mut ranges = Vec::new();
    for range in list(answer)? {
        let [first, last, master, ..] = &list(&range)?[..] else { return None };
        let [host, port, ..] = &list(master)?[..] else { return None };
        let host = match (host, from) {
            (Value::BulkString(host), _) if !host.is_empty() && host != b"?" => String::from_utf8(host.clone()).ok()?,
            // A server that does not know its own name: the one that answered.
            (_, Address::Tcp { host, .. }) => host.clone(),
            _ => continue,
        };
        ranges.push((number(first)?, number(last)?, Address::Tcp { host, port: number(port)? }));
    }
    Some(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str, port: u16) -> Address {
        Address::Tcp { host: host.to_owned(), port }
    }

    #[test]
    fn the_map_is_read_also_where_a_server_does_not_know_its_name() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let server = |host: Value, port| Value::Array(vec![host, Value::Int(port), text("id")]);
        let range = |first, last, server| Value::Array(vec![Value::Int(first), Value::Int(last), server]);
        let answer = Value::Array(vec![range(0, 99, server(text("h1"), 7000)), range(100, 16383, server(Value::Nil, 7001))]);
        assert_eq!(ranges(&answer, &at("asked", 7000)), Some(vec![(0, 99, at("h1", 7000)), (100, 16383, at("asked", 7001))]));
        assert_eq!(ranges(&text("no"), &at("asked", 1)), None);
    }
}
