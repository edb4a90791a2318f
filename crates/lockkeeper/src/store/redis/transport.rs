//! The seam under the store: requests, and where they go. One server, the master that sentinels name, or the servers of a cluster.

use std::fmt;
use std::sync::Arc;

use redis::{Cmd, Value};

#[cfg(feature = "redis-cluster")]
use super::cluster::Cluster;
use super::config::Config;
#[cfg(feature = "redis-cluster")]
use super::config::Servers;
use super::node::Node;
use super::notify::{Listening, Wanted};
use super::outages::Outages;
use super::request::{Arguments, Failed, Request};
use super::script::Lua;
use super::slots;
use crate::backend::Notifier;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::Runtime;

pub(super) struct Transport {
    config: Config,
    runtime: Runtime,
    /// Shared by all connections of a client.
    outages: Arc<Outages>,
    topology: Topology,
}

enum Topology {
    Server(Arc<Node>),
    #[cfg(feature = "redis-cluster")]
    Cluster(Arc<Cluster>),
}

impl Transport {
    pub(super) fn new(config: Config, runtime: Runtime) -> Arc<Self> {
        let several = config.is_cluster() || config.one_of_several;
        Self::telling(config, runtime, Arc::new(Outages::new(several)))
    }

    fn telling(config: Config, runtime: Runtime, outages: Arc<Outages>) -> Arc<Self> {
        let shared = Arc::clone(&outages);
        let topology = match &config.servers {
            #[cfg(feature = "redis-cluster")]
            Servers::Cluster(seeds) => Topology::Cluster(Cluster::new(config.clone(), seeds.clone(), runtime.clone(), shared)),
            _ => Topology::Server(Node::new(config.clone(), runtime.clone(), shared)),
        };
        Arc::new(Self { config, runtime, outages, topology })
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    pub(super) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Connections of their own to the same place.
    pub(super) fn another(&self) -> Arc<Self> {
        Self::telling(self.config.clone(), self.runtime.clone(), Arc::clone(&self.outages))
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.config.is_cluster()
    }

    /// Connects if there is no connection.
    pub(super) async fn ready(&self) -> Result<()> {
        match &self.topology {
            Topology::Server(node) => node.ready().await,
            #[cfg(feature = "redis-cluster")]
            Topology::Cluster(cluster) => cluster.ready().await,
        }
    }

    /// The servers there are, each with a key's tag that it serves.
    pub(super) fn servers(&self) -> Vec<(String, Arc<Node>)> {
        match &self.topology {
            Topology::Server(node) => vec![("lockkeeper".to_owned(), Arc::clone(node))],
            #[cfg(feature = "redis-cluster")]
            Topology::Cluster(cluster) => {
                cluster.masters().into_iter().map(|(slot, node)| (slots::tag_of(slot).to_string(), node)).collect()
            }
        }
    }

    /// Sends a request to the server of a key.
    pub(super) async fn send(&self, key: &str, sent: &Request<'_>) -> std::result::Result<Value, Failed> {
        match &self.topology {
            Topology::Server(node) => {
                // All keys are at one server.
                let _ = key;
                node.send(sent).await
            }
            #[cfg(feature = "redis-cluster")]
            // Following a slot takes more state than a server that stays.
            Topology::Cluster(cluster) => Box::pin(cluster.send(slots::slot(key), sent)).await,
        }
    }

    /// Has a script run behind all that went out on the same connection before. It needs no answer, and is not sent if there is no connection.
    pub(super) fn send_behind(&self, script: &Lua, keys: &[&str], arguments: &[Vec<u8>]) {
        let node = match &self.topology {
            Topology::Server(node) => Some(Arc::clone(node)),
            #[cfg(feature = "redis-cluster")]
            Topology::Cluster(cluster) => cluster.known(slots::slot(keys.first().copied().unwrap_or_default())),
        };
        if let Some(node) = node {
            node.send_behind(script, keys, arguments);
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

    /// Listens to channels; answers when the server confirmed them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] with `?push=off`: waiters poll.
    pub(super) async fn listen(&self, wanted: Wanted, notifier: &Notifier) -> Result<Listening> {
        if !self.config.push {
            return Err(Error::new(ErrorKind::Unsupported, "notifications are turned off with ?push=off"));
        }
        match &self.topology {
            Topology::Server(node) => node.listen(wanted, notifier).await,
            #[cfg(feature = "redis-cluster")]
            Topology::Cluster(cluster) => cluster.listen(wanted, notifier).await,
        }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Transport").field(&self.config).finish()
    }
}
