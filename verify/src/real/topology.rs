//! What histories are recorded on: servers of our own, and what is done to them while processes use them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use lockkeeper::runtime::Runtime;
use lockkeeper_testkit::clock::WallClock;
use lockkeeper_testkit::cluster::Cluster;
use lockkeeper_testkit::etcd::Etcd;
use lockkeeper_testkit::mysql::{self, Mysql};
use lockkeeper_testkit::postgres::Postgres;
use lockkeeper_testkit::sentinels::Sentinels;
use lockkeeper_testkit::server::{Flavour, Server};
use lockkeeper_testkit::zookeeper::ZooKeeper;

use super::control;
use super::proxied::{Behind, Proxied};

/// Nanoseconds on the clock that all processes of the machine share.
pub(super) fn now() -> u64 {
    Runtime::system().now().as_nanos()
}

/// Something that was done to a store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub(super) what: &'static str,
    pub(super) from: u64,
    pub(super) to: u64,
    /// Whether clients could not reach all of the store from `from` to `to`.
    pub(super) outage: bool,
    pub(super) forgot: Option<Forgot>,
}

/// From when to when the store may have lost holds that it had confirmed, and whether all of them are gone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forgot {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) all: bool,
}

/// A store to record histories on.
#[derive(Debug)]
pub(super) enum Topology {
    /// Only processes are paused and killed.
    Sqlite(PathBuf),
    /// One server without a disk: a restart forgets everything.
    Redis(Server),
    /// One server that writes every change to its disk before it answers.
    RedisAof(Server),
    Sentinels(Sentinels),
    Cluster(Cluster),
    /// Independent servers without a disk. A minority of them is disturbed at a time.
    RedLock(Vec<Server>),
    Postgres(Postgres),
    MariaDb {
        server: Mysql,
        database: String,
    },
    ZooKeeper(ZooKeeper),
    Etcd(Etcd),
    /// One server whose clock is set forward, and back again, by so many seconds.
    Clocked {
        server: Server,
        clock: WallClock,
        ahead: i64,
    },
    /// Only connections to it are disturbed.
    Proxied(Proxied),
}

/// Their names, in the order of the page.
pub const TOPOLOGIES: [&str; 15] = [
    "sqlite",
    "redis",
    "redis-aof",
    "redis-clock",
    "redis-proxy",
    "sentinel",
    "cluster",
    "redlock-3",
    "redlock-5",
    "postgres",
    "postgres-proxy",
    "mariadb",
    "zookeeper",
    "etcd",
    "etcd-proxy",
];

const AOF: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// The lease of all histories. Where holds live in a session, sessions are as long.
pub(super) const LEASE: Duration = Duration::from_secs(2);

/// Servers of a RedLock that forgot give no votes for so long.
const QUARANTINE: &str = "max-lease=4s";

/// A primary of the cluster that stands still for less than this stays primary.
const NODE_TIMEOUT: u64 = 1_500;

/// Why a topology cannot be started here, if so; begins with what `LOCKKEEPER_REQUIRE` calls it.
#[must_use]
pub fn missing(topology: &str) -> Option<String> {
    match topology {
        "sqlite" => None,
        "postgres" | "postgres-proxy" => Postgres::missing(),
        "mariadb" => Mysql::missing(mysql::Flavour::MariaDb),
        "zookeeper" => ZooKeeper::missing(),
        "etcd" | "etcd-proxy" => Etcd::missing(),
        "redis-clock" => Server::missing(Flavour::Redis).or_else(WallClock::missing),
        _ => Server::missing(Flavour::Redis),
    }
}

impl Topology {
    /// Starts the servers; `program` is `lockkeeper`.
    pub(super) fn start(name: &str, program: &Path) -> Result<Self, String> {
        let servers = |count: usize| (0..count).map(|_| Server::start(Flavour::Redis)).collect();
        let started = match name {
            "sqlite" => {
                let name = format!("lockkeeper-real-{}-{:08x}", std::process::id(), fastrand::u32(..));
                let directory = std::env::temp_dir().join(name);
                std::fs::create_dir_all(&directory).map_err(|error| format!("cannot make a directory: {error}"))?;
                Self::Sqlite(directory)
            }
            "redis" => Self::Redis(Server::start(Flavour::Redis)),
            "redis-aof" => Self::RedisAof(Server::start_with(Flavour::Redis, &AOF)),
            "sentinel" => Self::Sentinels(Sentinels::start()),
            "cluster" => Self::Cluster(Cluster::start_with(Flavour::Redis, || {
                vec!["--cluster-node-timeout".to_owned(), NODE_TIMEOUT.to_string()]
            })),
            "redlock-3" => Self::RedLock(servers(3)),
            "redlock-5" => Self::RedLock(servers(5)),
            "postgres" => Self::Postgres(Postgres::start(&[])),
            "mariadb" => {
                let server = Mysql::start(mysql::Flavour::MariaDb, &[]);
                let database = server.fresh_database();
                Self::MariaDb { server, database }
            }
            "zookeeper" => Self::ZooKeeper(ZooKeeper::start()),
            "etcd" => Self::Etcd(Etcd::start(1, &[])),
            "redis-clock" => {
                let clock = WallClock::start()?;
                Self::Clocked { server: Server::start_in(clock.environment(), Flavour::Redis, &[]), clock, ahead: 0 }
            }
            "redis-proxy" => Self::Proxied(Proxied::start(Behind::Redis(Server::start(Flavour::Redis)))?),
            "postgres-proxy" => Self::Proxied(Proxied::start(Behind::Postgres(Postgres::start(&[])))?),
            "etcd-proxy" => Self::Proxied(Proxied::start(Behind::Etcd(Etcd::start(1, &[])))?),
            other => return Err(format!("there is no topology {other}; there are {}", TOPOLOGIES.join(", "))),
        };
        if let Self::RedLock(_) = started {
            // New servers are admitted once, by a client that is over before the history begins.
            let url = format!("{},admit=new", started.url());
            let admitted = Command::new(program)
                .args(["run", "-l", "2s", "first", "--", "true"])
                .env("LOCKKEEPER_STORE", url)
                .stdin(Stdio::null())
                .output()
                .map_err(|error| format!("cannot run {}: {error}", program.display()))?;
            if !admitted.status.success() {
                return Err(format!("{name}: {}", String::from_utf8_lossy(&admitted.stderr)));
            }
        }
        Ok(started)
    }

    pub(super) fn url(&self) -> String {
        match self {
            Self::Sqlite(directory) => format!("sqlite:{}/locks.db", directory.display()),
            Self::Redis(server) | Self::RedisAof(server) | Self::Clocked { server, .. } => server.url(0),
            Self::Sentinels(sentinels) => sentinels.url(),
            Self::Cluster(cluster) => cluster.url(),
            Self::RedLock(servers) => {
                let urls: Vec<String> = servers.iter().map(|server| server.url(0)).collect();
                format!("redlock:{},{QUARANTINE}", urls.join(","))
            }
            Self::Postgres(server) => server.url(),
            Self::MariaDb { server, database } => server.url(database),
            Self::ZooKeeper(server) => format!("zookeeper://{}?session={}s", server.hosts(), LEASE.as_secs()),
            Self::Etcd(server) => format!("etcd://{}?session={}s", server.hosts(), LEASE.as_secs()),
            Self::Proxied(proxied) => proxied.url(),
        }
    }

    /// Whether it can lose holds that it had confirmed: then what a client alone can see of it proves nothing.
    pub(super) const fn forgets(&self) -> bool {
        matches!(self, Self::Redis(_) | Self::Sentinels(_) | Self::Cluster(_))
    }

    /// Whether waiters stand in a queue at the store, and are granted by the end of those before them.
    pub(super) const fn queues(&self) -> bool {
        matches!(self, Self::ZooKeeper(_) | Self::Etcd(_) | Self::Proxied(Proxied { behind: Behind::Etcd(_), .. }))
    }

    /// Whether its tokens have to do with the clock of this machine. ZooKeeper and etcd count.
    pub(super) const fn shares_our_clock(&self) -> bool {
        !self.queues() && !matches!(self, Self::Clocked { .. })
    }

    /// How long a disturbance may take.
    pub(super) const fn longest(&self) -> Duration {
        match self {
            Self::Sentinels(_) | Self::Cluster(_) => Duration::from_secs(7),
            _ => Duration::from_secs(3),
        }
    }

    /// Grows with every failover, also one that nobody asked for: on a busy machine a server may be replaced that is only slow.
    pub(super) fn epoch(&self) -> u64 {
        match self {
            Self::Sentinels(sentinels) => sentinels.epoch(),
            Self::Cluster(cluster) => cluster.epoch(),
            _ => 0,
        }
    }

    /// Waits until all servers agree who serves what.
    pub(super) fn settle(&self) {
        match self {
            Self::Sentinels(sentinels) => sentinels.settle(),
            Self::Cluster(cluster) => cluster.settle(),
            _ => {}
        }
    }

    /// The negative control: locks are taken away from their holders for so long.
    pub(super) fn take_away(&self, program: &Path, url: &str, time: Duration) -> Vec<Fault> {
        match self {
            Self::RedLock(servers) => control::delete_votes(&servers.iter().map(|server| server.port).collect::<Vec<_>>(), time),
            _ => control::force(program, url, time),
        }
    }

    /// Disturbs it once, and returns when it is whole again; `None` if there is nothing to disturb.
    pub(super) fn disturb(&mut self, chance: &mut fastrand::Rng) -> Option<Fault> {
        let pauses = chance.bool();
        let past_the_lease = chance.u8(0..8) == 0;
        let most = if past_the_lease { 2_600 } else { 1_500 };
        let pause = Duration::from_millis(if past_the_lease { chance.u64(2_100..most) } else { chance.u64(50..most) });
        let paused = if past_the_lease { "server paused past the lease" } else { "server paused" };
        Some(match self {
            Self::Sqlite(_) => return None,
            Self::Proxied(proxied) => proxied.disturb(pause, chance),
            Self::Clocked { clock, ahead, .. } => set_clock(clock, ahead, chance),
            Self::Redis(server) | Self::RedisAof(server) if pauses => {
                stopped(paused, pause, || server.freeze(), || server.thaw())
            }
            Self::Redis(server) => {
                let mut dead = 0;
                let fault = fault("restart without data", || server.restart(|_| dead = now()));
                Fault { forgot: Some(Forgot { from: dead, to: dead, all: true }), ..fault }
            }
            Self::RedisAof(server) => fault("restart with its data", || server.restart(|_| {})),
            Self::Sentinels(sentinels) => {
                let (mut dead, before) = (0, sentinels.epoch());
                let fault = fault("failover", || sentinels.fail_over(|| dead = now()));
                failed_over(fault, dead, sentinels.epoch() - before)
            }
            Self::Cluster(cluster) => disturb_cluster(cluster, chance),
            Self::RedLock(servers) => disturb_some(servers, pauses, pause, chance),
            Self::Postgres(server) if pauses => stopped(paused, pause, || server.pause(), || server.resume()),
            Self::Postgres(server) => fault("restart with its data", || {
                server.kill();
                server.start_again();
            }),
            Self::MariaDb { server, .. } if pauses => stopped(paused, pause, || server.pause(), || server.resume()),
            Self::MariaDb { server, .. } => fault("restart with its data", || {
                server.kill();
                server.start_again();
            }),
            Self::ZooKeeper(server) if pauses => stopped(paused, pause, || server.pause(0), || server.resume(0)),
            Self::ZooKeeper(server) => fault("restart with its data", || {
                server.kill(0);
                server.start_again(0);
            }),
            Self::Etcd(server) if pauses => stopped(paused, pause, || server.pause(0), || server.resume(0)),
            Self::Etcd(server) => fault("restart with its data", || {
                server.kill(0);
                server.start_again(0);
                assert!(server.answers(), "etcd did not come up again: {}", server.log(0));
            }),
        })
    }
}

/// Kills a primary or lets it stand still until it is replaced, moves a slot that is in use, or lets a primary stand still for a while.
fn disturb_cluster(cluster: &mut Cluster, chance: &mut fastrand::Rng) -> Fault {
    let primaries = cluster.primaries();
    let primary = primaries[chance.usize(0..primaries.len())];
    match chance.u8(0..8) {
        0 | 1 => {
            let (mut dead, before) = (0, cluster.epoch());
            let fault = fault("failover", || cluster.fail_over(primary, || dead = now()));
            failed_over(fault, dead, cluster.epoch() - before)
        }
        2 => {
            // Until it hears that it was replaced it may grant and renew what its successor does not know.
            let fault = fault("failover of a paused primary", || cluster.fail_over_frozen(primary));
            Fault { forgot: Some(Forgot { from: fault.from, to: fault.to, all: false }), ..fault }
        }
        3..6 => {
            let used = cluster.used_slots();
            let fault = fault("slot moved", || {
                if let Some((slot, from)) = chance.choice(&used).copied() {
                    let others: Vec<usize> = primaries.iter().copied().filter(|primary| *primary != from).collect();
                    cluster.move_slot(slot, from, others[chance.usize(0..others.len())]);
                }
            });
            Fault { outage: false, ..fault }
        }
        _ => {
            let pause = Duration::from_millis(chance.u64(50..NODE_TIMEOUT / 2));
            let server = &cluster.servers[primary];
            stopped("primary paused", pause, || server.freeze(), || server.thaw())
        }
    }
}

/// Sets the server's clock forward, or back to the right time. Forward, leases end early: holds may be lost. Back, they end late. Tokens grow all the same,
/// because the server counts them.
fn set_clock(clock: &WallClock, ahead: &mut i64, chance: &mut fastrand::Rng) -> Fault {
    *ahead = if *ahead == 0 { chance.i64(1..=3) } else { 0 };
    let (forward, what) = if *ahead > 0 { (true, "clock set forward") } else { (false, "clock set back") };
    let set = fault(what, || clock.set(*ahead));
    Fault { outage: false, forgot: forward.then_some(Forgot { from: set.from, to: set.to, all: false }), ..set }
}

/// What the server had confirmed that was dead at `dead` may be lost. If there was more than one failover, this may also go for later ones.
fn failed_over(fault: Fault, dead: u64, failovers: u64) -> Fault {
    let to = if failovers == 1 { dead } else { fault.to };
    Fault { forgot: Some(Forgot { from: dead, to, all: false }), ..fault }
}

/// Disturbs less than half of the servers. What they forget must harm nobody.
fn disturb_some(servers: &mut [Server], pauses: bool, pause: Duration, chance: &mut fastrand::Rng) -> Fault {
    chance.shuffle(servers);
    let count = chance.usize(1..=(servers.len() - 1) / 2);
    let some = &mut servers[..count];
    let fault = if pauses {
        let (freeze, thaw) = (|| some.iter().for_each(Server::freeze), || some.iter().for_each(Server::thaw));
        stopped("minority paused", pause, freeze, thaw)
    } else if chance.bool() {
        fault("minority restarted without data", || some.iter_mut().for_each(|server| server.restart(|_| {})))
    } else {
        fault("minority killed, back later without data", || {
            some.iter_mut().for_each(Server::kill);
            sleep(pause);
            some.iter_mut().for_each(Server::start_again);
        })
    };
    Fault { outage: false, ..fault }
}

fn stopped(what: &'static str, time: Duration, freeze: impl FnOnce(), thaw: impl FnOnce()) -> Fault {
    fault(what, || {
        freeze();
        sleep(time);
        thaw();
    })
}

pub(super) fn fault(what: &'static str, disturb: impl FnOnce()) -> Fault {
    let from = now();
    disturb();
    Fault { what, from, to: now(), outage: true, forgot: None }
}

impl Drop for Topology {
    fn drop(&mut self) {
        if let Self::Sqlite(directory) = self {
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}
