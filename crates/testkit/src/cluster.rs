//! A Redis cluster of our own: three primaries that share the slots, and a replica of each. It is spoken to with `redis-cli`.

use std::time::{Duration, Instant};

use crate::poll::until_within;
use crate::server::{Flavour, Server, ask, free_port};

#[derive(Debug)]
pub struct Cluster {
    /// First the three primaries, then the replica of each, as they were at the start.
    pub servers: Vec<Server>,
}

/// The slots of each primary at the start.
const SLOTS: [(u16, u16); 3] = [(0, 5_460), (5_461, 10_922), (10_923, 16_383)];

/// What a cluster may take to agree on something.
const AGREED: Duration = Duration::from_secs(40);

impl Cluster {
    pub fn start(flavour: Flavour) -> Self {
        Self::start_with(flavour, Vec::new)
    }

    /// The same, with more options; they are asked for once per server.
    pub fn start_with(flavour: Flavour, more: impl Fn() -> Vec<String>) -> Self {
        let cluster = Self { servers: (0..6).map(|_| start_one(flavour, &more())).collect() };
        let ids: Vec<String> = cluster.servers.iter().map(|server| tell(server.port, "CLUSTER MYID")).collect();
        for (index, server) in cluster.servers.iter().enumerate() {
            tell(server.port, &format!("CLUSTER SET-CONFIG-EPOCH {}", index + 1));
            if let Some((first, last)) = SLOTS.get(index) {
                // One by one, as 6.2 knows it.
                let slots: Vec<String> = (*first..=*last).map(|slot| slot.to_string()).collect();
                tell(server.port, &format!("CLUSTER ADDSLOTS {}", slots.join(" ")));
            }
        }
        let known: Vec<(u16, u16)> = cluster.servers.iter().map(|server| (known_port(server.port), bus_of(server))).collect();
        for (index, server) in cluster.servers.iter().enumerate() {
            for (port, bus) in known.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, known)| known) {
                tell(server.port, &format!("CLUSTER MEET 127.0.0.1 {port} {bus}"));
            }
        }
        until_within(AGREED, "all know each other", || {
            cluster.servers.iter().all(|server| knows(server.port, "cluster_known_nodes:6"))
        });
        for (replica, id) in cluster.servers[3..].iter().zip(&ids) {
            until_within(AGREED, "a replica is told", || ask(replica.port, &["CLUSTER", "REPLICATE", id]).trim() == "OK");
        }
        cluster.settle();
        cluster
    }

    /// `host:port` of all servers, separated by commas; the ports by which they know each other.
    pub fn hosts(&self) -> String {
        let hosts: Vec<String> = self.servers.iter().map(|server| format!("127.0.0.1:{}", known_port(server.port))).collect();
        hosts.join(",")
    }

    pub fn url(&self) -> String {
        format!("redis+cluster://{}", self.hosts())
    }

    /// Waits until all slots are served, and each primary has a replica that has everything.
    pub fn settle(&self) {
        until_within(AGREED, "the cluster is whole", || {
            let whole = |server: &Server| {
                let replication = ask(server.port, &["INFO", "replication"]);
                let in_order = if replication.contains("role:master") {
                    replication.contains("state=online")
                } else {
                    replication.contains("master_link_status:up")
                };
                in_order && knows(server.port, "cluster_state:ok") && knows(server.port, "cluster_slots_ok:16384")
            };
            self.servers.iter().all(whole) && self.primaries().len() == 3
        });
    }

    /// Grows with every failover, and when a slot has moved.
    pub fn epoch(&self) -> u64 {
        let epoch = |server: &Server| {
            let info = ask(server.port, &["CLUSTER", "INFO"]);
            info.lines().find_map(|line| line.strip_prefix("cluster_current_epoch:")?.trim().parse().ok())
        };
        self.servers.iter().filter_map(epoch).max().unwrap_or(0)
    }

    /// The servers that say that they are primaries.
    pub fn primaries(&self) -> Vec<usize> {
        let is_primary = |server: &usize| ask(self.servers[*server].port, &["ROLE"]).starts_with("master");
        (0..self.servers.len()).filter(is_primary).collect()
    }

    /// Which server serves a slot, by the newest view that any of them has.
    pub fn master_of(&self, slot: u16) -> Option<usize> {
        let port = newest(self.servers.iter(), slot)?;
        self.servers.iter().position(|server| server.port == port)
    }

    /// A slot that a server serves.
    fn slot_of(&self, server: usize) -> Option<u16> {
        let view = ask(self.servers[server].port, &["CLUSTER", "NODES"]);
        let own = view.lines().find(|line| line.contains("myself"))?;
        let ranges = own.split(' ').skip(8).filter(|range| !range.starts_with('['));
        ranges.filter_map(|range| range.split('-').next()?.parse().ok()).next()
    }

    /// Kills a primary, waits until its replica has taken over, and brings it back. `killed` runs right after the kill.
    pub fn fail_over(&mut self, primary: usize, killed: impl FnOnce()) {
        let slot = self.slot_of(primary).expect("it serves something");
        self.servers[primary].kill();
        killed();
        self.until_replaced(primary, slot);
        self.servers[primary].start_again();
        self.settle();
    }

    /// The same with a primary that stands still, and finds out that it was replaced when it goes on.
    pub fn fail_over_frozen(&mut self, primary: usize) {
        let slot = self.slot_of(primary).expect("it serves something");
        self.servers[primary].freeze();
        self.until_replaced(primary, slot);
        self.servers[primary].thaw();
        self.settle();
    }

    fn until_replaced(&self, primary: usize, slot: u16) {
        until_within(AGREED, "the replica takes over", || {
            let others = self.servers.iter().enumerate().filter(|(server, _)| *server != primary).map(|(_, server)| server);
            newest(others, slot).is_some_and(|port| port != self.servers[primary].port)
        });
    }

    /// Moves a slot as an operator's tool does, a few keys at a time.
    pub fn move_slot(&self, slot: u16, from: usize, to: usize) {
        let (source, target) = (self.servers[from].port, self.servers[to].port);
        let ids = [source, target].map(|port| tell(port, "CLUSTER MYID"));
        tell(target, &format!("CLUSTER SETSLOT {slot} IMPORTING {}", ids[0]));
        tell(source, &format!("CLUSTER SETSLOT {slot} MIGRATING {}", ids[1]));
        let (began, port, number) = (Instant::now(), target.to_string(), slot.to_string());
        loop {
            let keys = ask(source, &["CLUSTER", "GETKEYSINSLOT", &number, "20"]);
            let keys: Vec<&str> = keys.lines().filter(|key| !key.is_empty()).collect();
            if keys.is_empty() {
                break;
            }
            let moved = ask(source, &[&["MIGRATE", "127.0.0.1", &port, "", "0", "2000", "KEYS"], &keys[..]].concat());
            assert!(["OK", "NOKEY"].contains(&moved.trim()), "the operator cannot move {keys:?}: {moved}");
            assert!(began.elapsed() < Duration::from_secs(20), "the slot does not get empty");
        }
        for server in [target, source] {
            tell(server, &format!("CLUSTER SETSLOT {slot} NODE {}", ids[1]));
        }
    }

    /// The slots in which there are keys, each with the server that has them.
    pub fn used_slots(&self) -> Vec<(u16, usize)> {
        let mut used = Vec::new();
        for server in self.primaries() {
            let port = self.servers[server].port;
            for key in ask(port, &["KEYS", "*"]).lines().filter(|key| !key.is_empty()) {
                let slot = ask(port, &["CLUSTER", "KEYSLOT", key]).trim().parse().ok();
                used.extend(slot.map(|slot| (slot, server)));
            }
        }
        used.sort_unstable();
        used.dedup();
        used
    }
}

/// The port of the server that serves a slot, by the newest view that any of these has.
fn newest<'a>(servers: impl Iterator<Item = &'a Server>, slot: u16) -> Option<u16> {
    let views: Vec<String> = servers.map(|server| ask(server.port, &["CLUSTER", "NODES"])).collect();
    let newest = views.iter().flat_map(|view| view.lines()).filter_map(|line| serves(line, slot)).max()?;
    Some(newest.1)
}

/// The epoch and the port of a line of `CLUSTER NODES`, if it says that the node serves the slot.
fn serves(line: &str, slot: u16) -> Option<(u64, u16)> {
    let words: Vec<&str> = line.split(' ').collect();
    let [_, address, flags, _, _, _, epoch, _, ranges @ ..] = &words[..] else { return None };
    let within = |range: &&str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        first.parse().is_ok_and(|first: u16| first <= slot) && last.parse().is_ok_and(|last: u16| slot <= last)
    };
    (flags.contains("master") && ranges.iter().any(within))
        .then(|| Some((epoch.parse().ok()?, address.split_once('@')?.0.rsplit(':').next()?.parse().ok()?)))?
}

/// Tells a server something, in words separated by blanks; it must not refuse.
fn tell(port: u16, words: &str) -> String {
    let said = ask(port, &words.split(' ').collect::<Vec<_>>());
    assert!(!said.is_empty() && !said.starts_with("ERR"), "127.0.0.1:{port} answered {words:.100}: {said}");
    said.trim().to_owned()
}

fn setting(port: u16, name: &str) -> Option<u16> {
    ask(port, &["CONFIG", "GET", name]).lines().nth(1)?.parse().ok()
}

/// The port by which others know a server: the one for TLS, if it has one.
pub fn known_port(port: u16) -> u16 {
    setting(port, "tls-port").filter(|port| *port > 0).unwrap_or(port)
}

/// Where a server hears the others.
fn bus_of(server: &Server) -> u16 {
    setting(server.port, "cluster-port").unwrap_or(server.port + 10_000)
}

fn knows(port: u16, what: &str) -> bool {
    ask(port, &["CLUSTER", "INFO"]).contains(what)
}

/// A server that could become one of a cluster. Since 7.0 its second port is a free one, not ten thousand above the first, which there may not be.
fn start_one(flavour: Flavour, more: &[String]) -> Server {
    let bus = free_port().to_string();
    let mut options = vec!["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"];
    options.extend(["--cluster-require-full-coverage", "no", "--cluster-replica-validity-factor", "0"]);
    options.extend(["--repl-diskless-sync-delay", "0"]);
    if !matches!(flavour, Flavour::Redis62) {
        options.extend(["--cluster-port", &bus]);
    }
    options.extend(more.iter().map(String::as_str));
    Server::start_with(flavour, &options)
}
