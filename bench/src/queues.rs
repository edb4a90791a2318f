//! The servers of the stores whose locks are queues of nodes: ZooKeeper and etcd, with their usual settings.

use lockkeeper_testkit::etcd::Etcd;
use lockkeeper_testkit::zookeeper::ZooKeeper;

use crate::courses::Place;
use crate::machine;
use crate::results::ServerSays;

/// A server that runs.
#[derive(Debug)]
pub(crate) enum Queues {
    ZooKeeper(ZooKeeper),
    Etcd(Etcd),
}

impl Queues {
    /// Why there can be no server for this place, if it needs one of ours.
    pub(crate) fn missing(place: Place) -> Option<String> {
        match place {
            Place::ZooKeeper { .. } => ZooKeeper::missing(),
            Place::Etcd => Etcd::missing(),
            _ => None,
        }
    }

    /// Starts the server of this place, if it needs one of ours.
    pub(crate) fn start(place: Place) -> Option<Self> {
        let server = match place {
            Place::ZooKeeper { fsync } => Self::ZooKeeper(ZooKeeper::measured(fsync)),
            Place::Etcd => Self::Etcd(Etcd::start(1, &[])),
            _ => return None,
        };
        machine::pin(server.pid());
        Some(server)
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::ZooKeeper(server) => format!("zookeeper://{}", server.hosts()),
            Self::Etcd(server) => format!("etcd://{}", server.hosts()),
        }
    }

    /// Name and version.
    pub(crate) fn version(&self) -> String {
        match self {
            Self::ZooKeeper(server) => {
                format!("ZooKeeper {}", server.version().unwrap_or_else(|| "of unknown version".to_owned()))
            }
            Self::Etcd(server) => format!("etcd {}", server.version().unwrap_or_else(|| "of unknown version".to_owned())),
        }
    }

    /// What the kernel counts; these servers do not say what clients asked of them.
    pub(crate) fn says(&self) -> ServerSays {
        ServerSays { cpu: machine::cpu_of(self.pid()), ..ServerSays::default() }
    }

    fn pid(&self) -> u32 {
        match self {
            Self::ZooKeeper(server) => server.pid(0),
            Self::Etcd(server) => server.pid(0),
        }
    }
}
