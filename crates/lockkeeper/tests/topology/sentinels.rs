//! A master, two replicas, and three sentinels that watch them.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::harness::{eyes, tell, try_eyes, until};
use crate::server::{Flavour, Server};

/// What the sentinels call the master.
pub(crate) const MASTER: &str = "mymaster";

#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) servers: Vec<Server>,
    pub(crate) sentinels: Vec<SentinelProcess>,
}

#[derive(Debug)]
pub(crate) struct SentinelProcess {
    pub(crate) port: u16,
    child: Child,
    directory: PathBuf,
}

/// Replication that notices quickly.
const QUICK: [&str; 6] = ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", "--repl-timeout", "5"];

impl Watched {
    pub(crate) fn start(flavour: Flavour) -> Self {
        let mut servers = vec![Server::start_with(flavour, &QUICK)];
        let master = servers[0].port.to_string();
        for _ in 0..2 {
            let replica = [&QUICK[..], &["--replicaof", "127.0.0.1", &master]].concat();
            servers.push(Server::start_with(flavour, &replica));
        }
        let sentinels = (0..3).map(|_| SentinelProcess::start(flavour, servers[0].port)).collect();
        let watched = Self { servers, sentinels };
        watched.settle();
        watched
    }

    /// The way to the master, by the sentinels.
    pub(crate) fn url(&self, database: u64) -> String {
        let sentinels: Vec<String> = self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port)).collect();
        format!("redis+sentinel://{}/{MASTER}/{database}", sentinels.join(","))
    }

    /// Which server says that it is the master.
    pub(crate) fn master(&self) -> Option<usize> {
        self.servers.iter().position(|server| is_master(server.port))
    }

    /// Waits until there is one master that all agree on, with two replicas that have everything.
    pub(crate) fn settle(&self) {
        until("replicas follow one master, and all sentinels know them", || {
            let Some(master) = self.master() else { return false };
            let master = self.servers[master].port;
            let in_order =
                try_eyes(master).and_then(|mut eyes| tell::<String>(&mut eyes, "INFO replication")).unwrap_or_default();
            if in_order.matches("state=online").count() != 2 {
                return false;
            }
            self.sentinels.iter().all(|sentinel| {
                let told: std::collections::HashMap<String, String> =
                    tell(&mut eyes(sentinel.port), &format!("SENTINEL MASTER {MASTER}")).unwrap_or_default();
                let is = |field: &str, value: &str| told.get(field).is_some_and(|found| found == value);
                is("port", &master.to_string())
                    && is("flags", "master")
                    && is("num-slaves", "2")
                    && is("num-other-sentinels", "2")
            })
        });
    }

    /// A server that was killed comes back as a replica of whoever is the master now.
    pub(crate) fn bring_back(&mut self, index: usize) {
        let master = self.servers[self.master().expect("a master")].port;
        self.servers[index].start_again();
        tell::<()>(&mut eyes(self.servers[index].port), &format!("REPLICAOF 127.0.0.1 {master}")).unwrap();
        self.settle();
    }
}

pub(crate) fn is_master(port: u16) -> bool {
    let role = try_eyes(port).and_then(|mut eyes| tell::<Vec<redis::Value>>(&mut eyes, "ROLE")).unwrap_or_default();
    matches!(role.first(), Some(redis::Value::BulkString(role)) if role == b"master")
}

impl SentinelProcess {
    fn start(flavour: Flavour, master: u16) -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).unwrap().port();
        let directory = std::env::temp_dir().join(format!("lockkeeper-sentinel-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let file = directory.join("sentinel.conf");
        let settings = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor {MASTER} 127.0.0.1 {master} 2\n\
             sentinel down-after-milliseconds {MASTER} 500\nsentinel failover-timeout {MASTER} 2000\nsentinel parallel-syncs {MASTER} 2\n",
            directory.display()
        );
        std::fs::write(&file, settings).unwrap();
        let child = Command::new(flavour.program().expect("not missing"))
            .arg(&file)
            .arg("--sentinel")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a sentinel starts");
        let sentinel = Self { port, child, directory };
        until("a sentinel answers", || try_eyes(port).is_ok());
        sentinel
    }
}

impl Drop for SentinelProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
