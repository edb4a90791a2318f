//! A master, two replicas, and three sentinels that watch them.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::harness::{eyes, free_port, known_port, tell, try_eyes, until};
use crate::server::{Flavour, Server};
use crate::tls::Proofs;

/// What the sentinels call the master.
pub(crate) const MASTER: &str = "mymaster";

#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) servers: Vec<Server>,
    pub(crate) sentinels: Vec<SentinelProcess>,
    proofs: Option<Proofs>,
}

#[derive(Debug)]
pub(crate) struct SentinelProcess {
    pub(crate) port: u16,
    tls_port: u16,
    child: Child,
    directory: PathBuf,
}

/// Replication that notices quickly.
const QUICK: [&str; 6] = ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", "--repl-timeout", "5"];

impl Watched {
    pub(crate) fn start(flavour: Flavour) -> Self {
        Self::start_with(flavour, None)
    }

    /// The same; with proofs all speak TLS, also with each other.
    pub(crate) fn start_with(flavour: Flavour, proofs: Option<Proofs>) -> Self {
        let start = |more: &[&str]| {
            let tls = proofs.as_ref().map(|proofs| proofs.of_a_server(&free_port().to_string())).unwrap_or_default();
            let mut options: Vec<&str> = QUICK.to_vec();
            options.extend(tls.iter().map(String::as_str));
            if proofs.is_some() {
                options.extend(["--tls-replication", "yes"]);
            }
            options.extend(more);
            Server::start_with(flavour, &options)
        };
        let mut servers = vec![start(&[])];
        let master = known_port(servers[0].port);
        for _ in 0..2 {
            servers.push(start(&["--replicaof", "127.0.0.1", &master.to_string()]));
        }
        let sentinels = (0..3).map(|_| SentinelProcess::start(flavour, master, proofs.as_ref())).collect();
        let watched = Self { servers, sentinels, proofs };
        watched.settle();
        watched
    }

    /// The way to the master, by the sentinels.
    pub(crate) fn url(&self, database: u64) -> String {
        let port = |sentinel: &SentinelProcess| if self.proofs.is_some() { sentinel.tls_port } else { sentinel.port };
        let sentinels: Vec<String> = self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", port(sentinel))).collect();
        match &self.proofs {
            None => format!("redis+sentinel://{}/{MASTER}/{database}", sentinels.join(",")),
            Some(proofs) => format!("rediss+sentinel://{}/{MASTER}/{database}?{}", sentinels.join(","), proofs.of_a_client()),
        }
    }

    /// Which server says that it is the master.
    pub(crate) fn master(&self) -> Option<usize> {
        self.servers.iter().position(|server| is_master(server.port))
    }

    /// Waits until there is one master that all agree on, with two replicas that have everything.
    pub(crate) fn settle(&self) {
        until("replicas follow one master, and all sentinels know them", || {
            let Some(master) = self.master() else { return false };
            let (master, known) = (self.servers[master].port, known_port(self.servers[master].port));
            let in_order =
                try_eyes(master).and_then(|mut eyes| tell::<String>(&mut eyes, "INFO replication")).unwrap_or_default();
            if in_order.matches("state=online").count() != 2 {
                return false;
            }
            self.sentinels.iter().all(|sentinel| {
                let told: std::collections::HashMap<String, String> =
                    tell(&mut eyes(sentinel.port), &format!("SENTINEL MASTER {MASTER}")).unwrap_or_default();
                let is = |field: &str, value: &str| told.get(field).is_some_and(|found| found == value);
                is("port", &known.to_string()) && is("flags", "master") && is("num-slaves", "2") && is("num-other-sentinels", "2")
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
    fn start(flavour: Flavour, master: u16, proofs: Option<&Proofs>) -> Self {
        let (port, tls_port) = (free_port(), free_port());
        let directory = std::env::temp_dir().join(format!("lockkeeper-sentinel-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let file = directory.join("sentinel.conf");
        let mut settings = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor {MASTER} 127.0.0.1 {master} 2\n\
             sentinel down-after-milliseconds {MASTER} 500\nsentinel failover-timeout {MASTER} 2000\nsentinel parallel-syncs {MASTER} 2\n",
            directory.display()
        );
        if let Some(proofs) = proofs {
            let words = proofs.of_a_server(&tls_port.to_string());
            words.chunks(2).for_each(|pair| settings.push_str(&format!("{} {}\n", pair[0].trim_start_matches('-'), pair[1])));
            settings.push_str("tls-replication yes\n");
        }
        std::fs::write(&file, settings).unwrap();
        let child = Command::new(flavour.program().expect("not missing"))
            .arg(&file)
            .arg("--sentinel")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a sentinel starts");
        let sentinel = Self { port, tls_port, child, directory };
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
