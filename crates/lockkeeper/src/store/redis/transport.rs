//! The seam under the store: requests, and where they go. One server, the master that sentinels name, or the servers of a cluster.

use std::fmt;
use std::sync::Arc;

use redis::{Cmd, Value};

use super::cluster::Cluster;
use super::config::{Config, Servers};
use super::node::Node;
use super::notify::Listening;
use super::request::{Arguments, Failed, Request};
use super::script::Lua;
use super::slots;
use crate::backend::Notifier;
use crate::error::Result;
use crate::runtime::{Instant, Runtime};

pub(super) struct Transport {
    config: Config,
    runtime: Runtime,
    topology: Topology,
}

enum Topology {
    Server(Arc<Node>),
    Cluster(Arc<Cluster>),
}

impl Transport {
    pub(super) fn new(config: Config, runtime: Runtime) -> Arc<Self> {
        let topology = match &config.servers {
            Servers::One(_) | Servers::Sentinels { .. } => Topology::Server(Node::new(config.clone(), runtime.clone())),
            Servers::Cluster(seeds) => Topology::Cluster(Cluster::new(config.clone(), seeds.clone(), runtime.clone())),
        };
        Arc::new(Self { config, runtime, topology })
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    pub(super) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Connections of their own to the same place.
    pub(super) fn another(&self) -> Arc<Self> {
        Self::new(self.config.clone(), self.runtime.clone())
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.topology, Topology::Cluster(_))
    }

    /// Connects if there is no connection.
    pub(super) async fn ready(&self) -> Result<()> {
        match &self.topology {
            Topology::Server(node) => node.ready().await,
            Topology::Cluster(cluster) => cluster.ready().await,
        }
    }

    /// The servers there are, each with a key's tag that it serves.
    pub(super) fn servers(&self) -> Vec<(String, Arc<Node>)> {
        match &self.topology {
            Topology::Server(node) => vec![("lockkeeper".to_owned(), Arc::clone(node))],
            Topology::Cluster(cluster) => {
                cluster.masters().into_iter().map(|(slot, node)| (slots::tag_of(slot).to_string(), node)).collect()
            }
        }
    }

    /// Sends a request to the server of a key.
    pub(super) async fn send(&self, key: &str, sent: &Request<'_>) -> std::result::Result<Value, Failed> {
        match &self.topology {
            Topology::Server(node) => node.send(sent).await,
            // Following a slot about takes more than a server that stays.
            Topology::Cluster(cluster) => Box::pin(cluster.send(slots::slot(key), sent)).await,
        }
    }

    /// Runs a script on keys of one slot.
    pub(super) async fn run(&self, script: &Lua, keys: &[&str], arguments: Arguments<'_>) -> Result<Value> {
        let key = keys.first().copied().unwrap_or_default();
        self.send(key, &Request::script(script, keys, arguments)).await.map_err(Failed::into_error)
    }

    /// Sends a command for a key.
    pub(super) async fn command(&self, key: &str, command: &Cmd) -> Result<Value> {
        self.send(key, &Request::command(command)).await.map_err(Failed::into_error)
    }

    /// Which of these may travel in one call: places in `keys`.
    pub(super) fn atomic_groups(&self, keys: &[&str]) -> Vec<Vec<usize>> {
        if !self.is_cluster() {
            return vec![(0..keys.len()).collect()];
        }
        let mut places: Vec<usize> = (0..keys.len()).collect();
        places.sort_by_cached_key(|&place| slots::slot(keys[place]));
        places.chunk_by(|&a, &b| slots::slot(keys[a]) == slots::slot(keys[b])).map(<[usize]>::to_vec).collect()
    }

    /// Listens to a channel; answers when the server confirmed it.
    pub(super) async fn listen(&self, channel: String, notifier: Notifier) -> Result<Listening> {
        match &self.topology {
            Topology::Server(node) => node.listen(channel, notifier).await,
            Topology::Cluster(cluster) => cluster.listen(channel, notifier).await,
        }
    }

    /// A request for this key was late for the server. If it is not for us, what is known of its clock is wrong.
    pub(super) fn late(&self, key: &str, not_after: Instant) {
        if self.runtime.now() > not_after {
            return;
        }
        match &self.topology {
            Topology::Server(node) => node.forget(),
            Topology::Cluster(cluster) => cluster.forget(slots::slot(key)),
        }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Transport").field(&self.config).finish()
    }
}
