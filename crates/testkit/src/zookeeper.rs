//! ZooKeeper servers of our own, on loopback and free ports, single or as an ensemble, with data that goes with them; stopped by pid.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Where Debian keeps the server.
pub const JAR: &str = "/usr/share/java/zookeeper.jar";

/// How often a server looks at its sessions, in milliseconds. Sessions are from 2 to 20 ticks long.
const TICK: u32 = 100;

/// A single server, or an ensemble.
#[derive(Debug)]
pub struct ZooKeeper {
    servers: Vec<Server>,
    directory: PathBuf,
    last_folder: AtomicU32,
}

#[derive(Debug)]
struct Server {
    port: u16,
    child: Child,
    config: PathBuf,
    main: &'static str,
    options: Vec<String>,
}

impl ZooKeeper {
    /// Why there can be no server here, if so; begins with `zookeeper`, as `LOCKKEEPER_REQUIRE` calls it.
    pub fn missing() -> Option<String> {
        if !Path::new(JAR).is_file() {
            return Some(format!("zookeeper: there is no {JAR}; `cargo xtask setup` installs it"));
        }
        let java = Command::new("java").arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        (!java.is_ok_and(|status| status.success())).then(|| "zookeeper: java does not run".to_owned())
    }

    /// The server that the tests of this binary share; it ends with the last of them.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<ZooKeeper>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = shared.upgrade() {
            return server;
        }
        let server = Arc::new(Self::start());
        *shared = Arc::downgrade(&server);
        server
    }

    /// Starts a single server.
    pub fn start() -> Self {
        Self::start_with("", &[])
    }

    /// Starts a single server with more lines in its configuration, and more options of its Java.
    pub fn start_with(lines: &str, options: &[&str]) -> Self {
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        for attempt in 0..5 {
            let port = free_port();
            let directory = directory(port);
            let config = configure(&directory, port, lines);
            let main = "org.apache.zookeeper.server.ZooKeeperServerMain";
            let child = spawn(&config, main, &options);
            let server = Server { port, child, config, main, options: options.clone() };
            let mut started = Self { servers: vec![server], directory, last_folder: AtomicU32::new(0) };
            if started.answers(0, &["standalone"]) {
                return started;
            }
            assert!(attempt < 4, "zookeeper did not come up on 127.0.0.1:{port}; {}", started.log(0));
        }
        unreachable!("the last attempt fails above")
    }

    /// Starts an ensemble of three servers, and waits until all of them serve.
    pub fn ensemble() -> Self {
        for attempt in 0..5 {
            let ports: Vec<[u16; 3]> = (0..3).map(|_| [free_port(), free_port(), free_port()]).collect();
            let root = directory(ports[0][0]);
            let lines: String =
                (1..).zip(&ports).map(|(id, [_, peer, elect])| format!("server.{id}=127.0.0.1:{peer}:{elect}\n")).collect();
            let servers = (1..)
                .zip(&ports)
                .map(|(id, [port, ..])| {
                    let directory = root.join(id.to_string());
                    std::fs::create_dir_all(directory.join("data")).expect("a directory for the server");
                    std::fs::write(directory.join("data/myid"), format!("{id}\n")).expect("written");
                    let config = configure(&directory, *port, &format!("initLimit=50\nsyncLimit=20\n{lines}"));
                    let main = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
                    Server { port: *port, child: spawn(&config, main, &[]), config, main, options: Vec::new() }
                })
                .collect();
            let mut started = Self { servers, directory: root, last_folder: AtomicU32::new(0) };
            if (0..3).all(|server| started.answers(server, &["leader", "follower"])) {
                return started;
            }
            assert!(attempt < 4, "the ensemble did not come up; {}", started.log(0));
        }
        unreachable!("the last attempt fails above")
    }

    /// The ports of the servers.
    pub fn ports(&self) -> Vec<u16> {
        self.servers.iter().map(|server| server.port).collect()
    }

    /// `host:port` of all servers, separated by commas.
    pub fn hosts(&self) -> String {
        self.ports().iter().map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>().join(",")
    }

    /// A folder that no other test uses.
    pub fn fresh_folder(&self) -> String {
        format!("t{}", self.last_folder.fetch_add(1, Ordering::Relaxed))
    }

    /// Which server leads now.
    pub fn leader(&self) -> Option<usize> {
        (0..self.servers.len()).find(|server| mode(self.servers[*server].port).is_some_and(|mode| mode != "follower"))
    }

    pub fn pid(&self, server: usize) -> u32 {
        self.servers[server].child.id()
    }

    /// Ends a server at once, as a crash does.
    pub fn kill(&mut self, server: usize) {
        let _ = self.servers[server].child.kill();
        let _ = self.servers[server].child.wait();
    }

    /// Starts a server that was killed on the same port, with its data.
    pub fn start_again(&mut self, server: usize) {
        let Server { config, main, options, .. } = &self.servers[server];
        self.servers[server].child = spawn(config, main, options);
        assert!(self.answers(server, &["standalone", "leader", "follower"]), "not up again; {}", self.log(server));
    }

    /// What a server wrote, the end of it.
    pub fn log(&self, server: usize) -> String {
        let log = self.servers[server].config.with_file_name("log");
        let text = std::fs::read_to_string(log).unwrap_or_default();
        text.get(text.len().saturating_sub(2_000)..).unwrap_or(&text).to_owned()
    }

    fn answers(&mut self, server: usize, modes: &[&str]) -> bool {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(60) {
            if self.servers[server].child.try_wait().expect("a child").is_some() {
                return false;
            }
            if mode(self.servers[server].port).is_some_and(|mode| modes.contains(&mode.as_str())) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        false
    }
}

impl Drop for ZooKeeper {
    fn drop(&mut self) {
        for server in 0..self.servers.len() {
            self.kill(server);
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port()
}

fn directory(port: u16) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("lockkeeper-zookeeper-{}-{port}", std::process::id()));
    std::fs::create_dir_all(directory.join("data")).expect("a directory for the server");
    directory
}

fn configure(directory: &Path, port: u16, lines: &str) -> PathBuf {
    let data = directory.join("data");
    let text = format!(
        "tickTime={TICK}\ndataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n\
         4lw.commands.whitelist=*\nmaxClientCnxns=0\nforceSync=no\nmaxSessionTimeout=60000\n{lines}",
        data.display()
    );
    let file = directory.join("zoo.cfg");
    std::fs::write(&file, text).expect("written");
    file
}

fn spawn(config: &Path, main: &str, options: &[String]) -> Child {
    let log = std::fs::File::options().create(true).append(true).open(config.with_file_name("log")).expect("a log file");
    Command::new("java")
        .args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"])
        .args(options)
        .args(["-cp", JAR, main])
        .arg(config)
        .current_dir(config.parent().expect("in a folder"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a log file"))
        .stderr(log)
        .spawn()
        .expect("the server starts")
}

/// What a server says it is.
fn mode(port: u16) -> Option<String> {
    let mut server = TcpStream::connect(("127.0.0.1", port)).ok()?;
    server.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    server.write_all(b"srvr").ok()?;
    let mut said = String::new();
    server.read_to_string(&mut said).ok()?;
    said.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_owned)
}
