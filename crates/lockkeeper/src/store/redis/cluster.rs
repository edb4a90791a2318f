//! The servers of a cluster: who serves which slot, and where messages of a slot come from.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use redis::Value;

use super::config::{Address, Config};
use super::node::Node;
use super::notify::{Channels, Listening, Wanted};
use super::outages::Outages;
use super::request::{Failed, Request};
use super::slot_map::{Range, ranges};
use super::slots::{self, SLOTS};
use crate::backend::Notifier;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::{self, Instant, Runtime, log};

/// What one server may take to say who serves what.
const PATIENCE: Duration = Duration::from_millis(700);

/// The map is not asked for more often than this.
const PAUSE: Duration = Duration::from_millis(50);

pub(super) struct Cluster {
    config: Config,
    pub(super) runtime: Runtime,
    seeds: Vec<Address>,
    state: Mutex<State>,
    /// One at a time asks for the map.
    refreshing: tokio::sync::Mutex<()>,
    /// A task is going to ask for the map.
    refresh_is_due: AtomicBool,
    channels: Arc<Channels>,
    /// Whether messages stay in their slot; known before the map is.
    sharded: Arc<OnceLock<bool>>,
    outages: Arc<Outages>,
    us: Weak<Self>,
}

#[derive(Default)]
struct State {
    /// Who serves each slot: a place in `masters`.
    slots: Vec<Option<u16>>,
    masters: Vec<Address>,
    nodes: HashMap<Address, Arc<Node>>,
    /// Connections that only subscribe. When a slot moves, its server says so unasked, and the driver takes that for an answer: on a
    /// connection with requests each would get the answer of the one before.
    subscribers: HashMap<Address, Arc<Node>>,
    /// When the request for this map was sent.
    asked: Option<Instant>,
}

impl State {
    /// Who serves a slot, as far as is known.
    fn master(&self, slot: u16) -> Option<&Address> {
        let at = self.slots.get(usize::from(slot)).copied().flatten()?;
        self.masters.get(usize::from(at))
    }
}

impl Cluster {
    pub(super) fn new(config: Config, seeds: Vec<Address>, runtime: Runtime, outages: Arc<Outages>) -> Arc<Self> {
        let sharded = Arc::new(config.sharded.map_or_else(OnceLock::new, OnceLock::from));
        Arc::new_cyclic(|us| Self {
            sharded,
            config,
            runtime,
            seeds,
            state: Mutex::default(),
            refreshing: tokio::sync::Mutex::default(),
            refresh_is_due: AtomicBool::new(false),
            channels: Arc::default(),
            outages,
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

    pub(super) fn node(&self, address: &Address) -> Arc<Node> {
        let mut state = self.state();
        let node = state.nodes.entry(address.clone()).or_insert_with(|| self.server(address, |_| false));
        Arc::clone(node)
    }

    fn subscriber(&self, address: &Address) -> Arc<Node> {
        let mut state = self.state();
        let subscriber = state.subscribers.entry(address.clone()).or_insert_with(|| {
            let (us, at) = (Weak::clone(&self.us), address.clone());
            self.server(address, move |channel| us.upgrade().is_some_and(|us| us.serves(&at, slots::slot(channel))))
        });
        Arc::clone(subscriber)
    }

    fn server(&self, address: &Address, ours: impl Fn(&str) -> bool + Send + Sync + 'static) -> Arc<Node> {
        let (config, channels) = (self.config.at(address.clone()), Arc::clone(&self.channels));
        Node::one_of_many(config, self.runtime.clone(), Arc::clone(&self.outages), channels, Arc::clone(&self.sharded), ours)
    }

    fn serves(&self, address: &Address, slot: u16) -> bool {
        self.state().master(slot) == Some(address)
    }

    /// The server of a slot, if it is known and was used before.
    pub(super) fn known(&self, slot: u16) -> Option<Arc<Node>> {
        let state = self.state();
        state.master(slot).and_then(|address| state.nodes.get(address)).cloned()
    }

    /// The server of a slot; asks for the map if nobody is known.
    pub(super) async fn serving(&self, slot: u16) -> Result<Arc<Node>> {
        Ok(self.node(&self.address(slot).await?))
    }

    async fn address(&self, slot: u16) -> Result<Address> {
        let known = || self.state().master(slot).cloned();
        if let Some(address) = known() {
            return Ok(address);
        }
        self.refresh().await?;
        known().ok_or_else(|| self.nobody(slot))
    }

    /// A slot has another server.
    pub(super) fn learn(&self, slot: u16, address: &Address) {
        let mut state = self.state();
        let at = state.masters.iter().position(|known| known == address).unwrap_or_else(|| {
            state.masters.push(address.clone());
            state.masters.len() - 1
        });
        if let (Some(place), Ok(at)) = (state.slots.get_mut(usize::from(slot)), u16::try_from(at)) {
            *place = Some(at);
        }
    }

    /// Asks for the map beside the caller. One task at a time does: many requests may fail at once.
    pub(super) fn refresh_later(&self) {
        if let Some(us) = self.us.upgrade()
            && !self.refresh_is_due.swap(true, Ordering::Relaxed)
        {
            let due = Due(us);
            runtime::spawn_if_possible(async move {
                if let Err(error) = due.0.refresh().await {
                    log!(debug, %error, "no server told the map of the cluster");
                }
            });
        }
    }

    /// Asks for the map: first those that served, then the seeds.
    async fn refresh(&self) -> Result<()> {
        let wanted = self.runtime.now();
        let _one = self.refreshing.lock().await;
        let asked = self.state().asked;
        // Another asked after we wanted to, while we waited for our turn.
        if asked.is_some_and(|asked| asked >= wanted) {
            return Ok(());
        }
        // A map that was asked for before may lack the very move that we were told of: it is asked for again, but not at once.
        if let Some(next) = asked.map(|asked| asked.plus(PAUSE)).filter(|&next| next > wanted) {
            self.runtime.sleep_until(next).await;
        }
        let mut addresses: Vec<Address> = self.state().masters.clone();
        addresses.extend(self.seeds.iter().filter(|seed| !addresses.contains(seed)).cloned().collect::<Vec<_>>());
        let mut last = None;
        for address in addresses {
            let (node, sent) = (self.node(&address), self.runtime.now());
            match runtime::within(PATIENCE, Box::pin(self.ask(&node))).await {
                Some(Ok(answer)) => match ranges(&answer, &address) {
                    Some(ranges) if !ranges.is_empty() => {
                        self.adopt(ranges, sent);
                        return Ok(());
                    }
                    _ => last = Some(Error::new(ErrorKind::Unavailable, format!("{address} knows no server that serves slots"))),
                },
                Some(Err(failed)) => last = Some(failed.into_error()),
                None => {
                    last = Some(Error::new(
                        ErrorKind::Unavailable,
                        format!("no reply to CLUSTER SLOTS from {address} within {PATIENCE:?}"),
                    ));
                }
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

    fn adopt(&self, ranges: Vec<Range>, sent: Instant) {
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
        state.subscribers.retain(|address, _| masters.contains(address));
        state.asked = Some(sent);
        (state.slots, state.masters) = (slots, masters);
        drop(state);
        if moved {
            self.listen_again();
        }
    }

    /// Listens where the slots of the channels are now; waiters may have missed a message.
    fn listen_again(&self) {
        let addresses: HashSet<Address> = {
            let (state, wanted) = (self.state(), self.channels.wanted());
            let server = |channel: &String| {
                let at = state.slots.get(usize::from(slots::slot(channel))).copied().flatten()?;
                state.masters.get(usize::from(at)).cloned()
            };
            wanted.iter().filter_map(server).collect()
        };
        for subscriber in addresses.iter().map(|address| self.subscriber(address)) {
            runtime::spawn_if_possible(async move { subscriber.listen_again().await });
        }
        self.channels.notify_all();
    }

    /// Listens to a channel where its slot is served.
    pub(super) async fn listen(&self, wanted: Wanted, notifier: &Notifier) -> Result<Listening> {
        // All that belong to a name are in its slot.
        let address = self.address(slots::slot(wanted.any())).await?;
        let listening = self.subscriber(&address).listen(wanted, notifier).await;
        if listening.is_err() {
            self.refresh_later();
        }
        listening
    }
}

/// The task that asks for the map.
struct Due(Arc<Cluster>);

impl Drop for Due {
    fn drop(&mut self) {
        self.0.refresh_is_due.store(false, Ordering::Relaxed);
    }
}
