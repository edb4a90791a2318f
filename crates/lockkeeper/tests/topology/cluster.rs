//! Three masters that share the slots, and a replica of each.

use crate::harness::{eyes, free_port, known_port, tell, try_eyes, until};
use crate::server::{Flavour, Server};
use crate::tls::Proofs;

#[derive(Debug)]
pub(crate) struct Cluster {
    /// First the three masters, then the replica of each, as they were at the start.
    pub(crate) servers: Vec<Server>,
    proofs: Option<Proofs>,
}

/// The slots of each master at the start.
const SLOTS: [(u16, u16); 3] = [(0, 5_460), (5_461, 10_922), (10_923, 16_383)];

impl Cluster {
    pub(crate) fn start(flavour: Flavour) -> Self {
        Self::start_with(flavour, None)
    }

    /// The same; with proofs all speak TLS, also with each other.
    pub(crate) fn start_with(flavour: Flavour, proofs: Option<Proofs>) -> Self {
        let servers: Vec<Server> = (0..6).map(|_| start_one(flavour, proofs.as_ref())).collect();
        let cluster = Self { servers, proofs };
        let ids: Vec<String> = cluster.each(|_, eyes| tell(eyes, "CLUSTER MYID").unwrap());
        cluster.each(|index, eyes| {
            tell::<()>(eyes, &format!("CLUSTER SET-CONFIG-EPOCH {}", index + 1)).unwrap();
            if let Some((first, last)) = SLOTS.get(index) {
                // One by one, as 6.2 knows it.
                let slots: Vec<String> = (*first..=*last).map(|slot| slot.to_string()).collect();
                tell::<()>(eyes, &format!("CLUSTER ADDSLOTS {}", slots.join(" "))).unwrap();
            }
        });
        let buses: Vec<u16> = cluster.servers.iter().map(bus_of).collect();
        cluster.each(|index, eyes| {
            for (other, server) in cluster.servers.iter().enumerate().filter(|(other, _)| *other != index) {
                tell::<()>(eyes, &format!("CLUSTER MEET 127.0.0.1 {} {}", known_port(server.port), buses[other])).unwrap();
            }
        });
        until("all know each other", || {
            cluster.each(|_, eyes| knows(eyes, "cluster_known_nodes:6")).into_iter().all(|knows| knows)
        });
        cluster.each(|index, eyes| {
            if index >= 3 {
                until("a replica is told", || tell::<()>(eyes, &format!("CLUSTER REPLICATE {}", ids[index - 3])).is_ok());
            }
        });
        cluster.settle();
        cluster
    }

    pub(crate) fn url(&self) -> String {
        let seeds: Vec<String> = self.servers.iter().map(|server| format!("127.0.0.1:{}", known_port(server.port))).collect();
        match &self.proofs {
            None => format!("redis+cluster://{}", seeds.join(",")),
            Some(proofs) => format!("rediss+cluster://{}?{}", seeds.join(","), proofs.of_a_client()),
        }
    }

    fn each<T>(&self, mut what: impl FnMut(usize, &mut redis::Connection) -> T) -> Vec<T> {
        self.servers.iter().enumerate().map(|(index, server)| what(index, &mut eyes(server.port))).collect()
    }

    /// Waits until all slots are served, and each master has a replica that has everything.
    pub(crate) fn settle(&self) {
        until("the cluster is whole", || {
            let whole = |server: &Server| {
                let Ok(mut eyes) = try_eyes(server.port) else { return false };
                let replication: String = tell(&mut eyes, "INFO replication").unwrap_or_default();
                let in_order = if replication.contains("role:master") {
                    replication.contains("state=online")
                } else {
                    replication.contains("master_link_status:up")
                };
                in_order && knows(&mut eyes, "cluster_state:ok") && knows(&mut eyes, "cluster_slots_ok:16384")
            };
            self.servers.iter().all(whole)
                && self.servers.iter().filter(|server| crate::sentinels::is_master(server.port)).count() == 3
        });
    }

    /// Which server serves a slot, by what the others say.
    pub(crate) fn master_of(&self, slot: u16) -> Option<usize> {
        let ranges: Vec<Vec<redis::Value>> = self
            .servers
            .iter()
            .find_map(|server| tell(&mut try_eyes(server.port).ok()?, "CLUSTER SLOTS").ok())
            .unwrap_or_default();
        let port = ranges.iter().find_map(|range| match &range[..] {
            [redis::Value::Int(first), redis::Value::Int(last), redis::Value::Array(master), ..]
                if (*first..=*last).contains(&i64::from(slot)) =>
            {
                match master[..] {
                    [_, redis::Value::Int(port), ..] => u16::try_from(port).ok(),
                    _ => None,
                }
            }
            _ => None,
        })?;
        self.servers.iter().position(|server| server.port == port)
    }
}

fn knows(eyes: &mut redis::Connection, what: &str) -> bool {
    tell::<String>(eyes, "CLUSTER INFO").is_ok_and(|info| info.contains(what))
}

/// A server that could become one of a cluster. Since 7.0 its second port is a free one, not ten thousand above the first, which there may not be.
fn start_one(flavour: Flavour, proofs: Option<&Proofs>) -> Server {
    let (bus, tls) = (free_port().to_string(), free_port().to_string());
    let mut options = vec!["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"];
    options.extend(["--cluster-require-full-coverage", "no", "--cluster-replica-validity-factor", "0"]);
    options.extend(["--repl-diskless-sync-delay", "0"]);
    if !matches!(flavour, Flavour::Redis62) {
        options.extend(["--cluster-port", &bus]);
    }
    let of_a_server = proofs.map(|proofs| proofs.of_a_server(&tls)).unwrap_or_default();
    options.extend(of_a_server.iter().map(String::as_str));
    if proofs.is_some() {
        options.extend(["--tls-cluster", "yes", "--tls-replication", "yes"]);
    }
    Server::start_with(flavour, &options)
}

fn bus_of(server: &Server) -> u16 {
    let told: Vec<String> = tell(&mut eyes(server.port), "CONFIG GET cluster-port").unwrap();
    told.get(1).map_or(server.port + 10_000, |bus| bus.parse().unwrap())
}
