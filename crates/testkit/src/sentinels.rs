//! A primary, a replica and three sentinels, for programs that fail over again and again. They are spoken to with `redis-cli`.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::poll::until_within;
use crate::server::{Flavour, Server, ask, free_port};

const PRIMARY: &str = "primary";

/// Replication that notices quickly.
const QUICK: [&str; 4] = ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"];

fn replica_of(port: &str) -> Vec<&str> {
    QUICK.into_iter().chain(["--replicaof", "127.0.0.1", port]).collect()
}

#[derive(Debug)]
pub struct Sentinels {
    servers: [Server; 2],
    sentinels: Vec<Sentinel>,
}

#[derive(Debug)]
struct Sentinel {
    port: u16,
    child: Child,
    directory: PathBuf,
}

impl Sentinels {
    pub fn start() -> Self {
        let primary = Server::start_with(Flavour::Redis, &QUICK);
        let replica = Server::start_with(Flavour::Redis, &replica_of(&primary.port.to_string()));
        let sentinels = (0..3).map(|_| Sentinel::start(primary.port)).collect();
        let started = Self { servers: [primary, replica], sentinels };
        started.settle();
        started
    }

    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port)).collect();
        format!("redis+sentinel://{}/{PRIMARY}/0", hosts.join(","))
    }

    /// Grows with every failover.
    pub fn epoch(&self) -> u64 {
        let epoch =
            |sentinel: &Sentinel| field(&ask(sentinel.port, &["SENTINEL", "MASTER", PRIMARY]), "config-epoch").parse().ok();
        self.sentinels.iter().filter_map(epoch).max().unwrap_or(0)
    }

    fn primary(&self) -> Option<usize> {
        self.servers.iter().position(|server| ask(server.port, &["ROLE"]).starts_with("master"))
    }

    /// Waits until there is one primary with a replica that has everything, and all sentinels say so.
    pub fn settle(&self) {
        until_within(Duration::from_secs(60), "one primary, its replica, and sentinels that know both", || {
            let Some(primary) = self.primary() else { return false };
            let (primary, replica) = (self.servers[primary].port, self.servers[1 - primary].port);
            let online = ask(primary, &["INFO", "replication"]).contains("state=online");
            let follows = ask(replica, &["INFO", "replication"]).contains("master_link_status:up");
            online
                && follows
                && self.sentinels.iter().all(|sentinel| {
                    let told = ask(sentinel.port, &["SENTINEL", "MASTER", PRIMARY]);
                    field(&told, "port") == primary.to_string()
                        && field(&told, "flags") == "master"
                        && field(&told, "num-slaves") == "1"
                        && field(&told, "num-other-sentinels") == "2"
                })
        });
    }

    /// Kills the primary, waits until the replica has taken over, and brings the other back as its replica. `killed` runs right after the kill.
    pub fn fail_over(&mut self, killed: impl FnOnce()) {
        let primary = self.primary().expect("a primary");
        self.servers[primary].kill();
        killed();
        let replica = self.servers[1 - primary].port;
        until_within(Duration::from_secs(60), "the replica takes over", || ask(replica, &["ROLE"]).starts_with("master"));
        // A replica from its start: as a primary without data it would grant again what the new one has granted.
        self.servers[primary].start_again_with(&replica_of(&replica.to_string()));
        self.settle();
    }
}

/// A field of what a sentinel tells, where each name is followed by its value.
fn field(told: &str, name: &str) -> String {
    told.lines().skip_while(|line| *line != name).nth(1).unwrap_or_default().to_owned()
}

impl Sentinel {
    fn start(primary: u16) -> Self {
        let port = free_port();
        let directory = std::env::temp_dir().join(format!("lockkeeper-sentinels-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory for the sentinel");
        let file = directory.join("sentinel.conf");
        let settings = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor {PRIMARY} 127.0.0.1 {primary} 2\n\
             sentinel down-after-milliseconds {PRIMARY} 500\nsentinel failover-timeout {PRIMARY} 2000\n",
            directory.display()
        );
        std::fs::write(&file, settings).expect("a file for the sentinel");
        let child = Command::new("redis-server")
            .arg(&file)
            .arg("--sentinel")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a sentinel starts");
        until_within(Duration::from_secs(20), "a sentinel answers", || ask(port, &["PING"]).contains("PONG"));
        Self { port, child, directory }
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
