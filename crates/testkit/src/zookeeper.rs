//! ZooKeeper servers of our own, on loopback and free ports, single or as an ensemble, with data that goes with them; stopped by pid.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::server::free_port;
use crate::signal;

/// Where Debian keeps the server.
pub const JAR: &str = "/usr/share/java/zookeeper.jar";

/// How often a server looks at its sessions, in milliseconds. Sessions are from 2 to 20 ticks long.
const TICK: u32 = 100;

/// Which ZooKeeper is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// Debian's, 3.8.
    Debian,
    /// The one that Curator 5.9 brings along, 3.9. `LOCKKEEPER_CURATOR` says where.
    Maven,
}

impl Release {
    /// Why it cannot run here, if so; begins with what `LOCKKEEPER_REQUIRE` calls it.
    pub fn missing(self) -> Option<String> {
        let why = match self {
            Self::Debian if !Path::new(JAR).is_file() => {
                Some(format!("zookeeper: there is no {JAR}; `cargo xtask setup` installs it"))
            }
            Self::Maven if drivers().is_none_or(|place| !place.join("5.9.0/driver.jar").is_file()) => {
                Some("curator: LOCKKEEPER_CURATOR names no driver; `cargo xtask setup` builds it".to_owned())
            }
            _ => None,
        };
        let java = || Command::new("java").arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        why.or_else(|| (!java().is_ok_and(|status| status.success())).then(|| "zookeeper: java does not run".to_owned()))
    }

    /// What Java runs it with.
    fn class_path(self) -> String {
        match self {
            // The jar names what it needs, but for some parts of Netty. TLS needs them.
            Self::Debian => ["codec", "resolver", "transport-native-unix-common"]
                .iter()
                .fold(JAR.to_owned(), |path, part| format!("{path}:/usr/share/java/netty-{part}.jar")),
            Self::Maven => drivers().expect("not missing").join("5.9.0/lib/*").display().to_string(),
        }
    }
}

/// Where `cargo xtask setup` put the drivers of Curator.
pub fn drivers() -> Option<PathBuf> {
    std::env::var_os("LOCKKEEPER_CURATOR").filter(|place| !place.is_empty()).map(PathBuf::from)
}

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
    release: Release,
    options: Vec<String>,
}

impl ZooKeeper {
    /// Why there can be no server here, if so; begins with `zookeeper`, as `LOCKKEEPER_REQUIRE` calls it.
    pub fn missing() -> Option<String> {
        Release::Debian.missing()
    }

    /// The server that the tests of this binary share; it ends with the last of them.
    pub fn shared() -> Arc<Self> {
        Self::shared_of(Release::Debian)
    }

    /// The same with a release.
    pub fn shared_of(release: Release) -> Arc<Self> {
        static SHARED: [Mutex<Weak<ZooKeeper>>; 2] = [const { Mutex::new(Weak::new()) }; 2];
        let mut shared = SHARED[release as usize].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = shared.upgrade() {
            return server;
        }
        let server = Arc::new(Self::start_as(release, "", &[]));
        *shared = Arc::downgrade(&server);
        server
    }

    /// Starts a single server.
    pub fn start() -> Self {
        Self::start_with("", &[])
    }

    /// Starts a single server with more lines in its configuration, and more options of its Java.
    pub fn start_with(lines: &str, options: &[&str]) -> Self {
        Self::start_as(Release::Debian, lines, options)
    }

    /// Starts a server to be measured: compiled as well as Java can, with ZooKeeper's usual ticks, and with or without waiting for the disk.
    pub fn measured(fsync: bool) -> Self {
        let lines = format!("tickTime=2000\nforceSync={}\n", if fsync { "yes" } else { "no" });
        Self::start_with(&lines, &["-XX:TieredStopAtLevel=4", "-Xmx512m"])
    }

    /// Starts a single server of a release.
    pub fn start_as(release: Release, lines: &str, options: &[&str]) -> Self {
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        for attempt in 0..5 {
            let port = free_port();
            let directory = directory(port);
            let config = configure(&directory, port, lines);
            let main = "org.apache.zookeeper.server.ZooKeeperServerMain";
            let child = spawn(release, &config, main, &options);
            let server = Server { port, child, config, main, release, options: options.clone() };
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
        Self::ensemble_with(&[])
    }

    /// The same with more options of their Java.
    pub fn ensemble_with(options: &[&str]) -> Self {
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
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
                    let release = Release::Debian;
                    let child = spawn(release, &config, main, &options);
                    Server { port: *port, child, config, main, release, options: options.clone() }
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

    /// ZooKeeper's own shell, to be started: it reads commands, and its session lives for as long as it runs.
    pub fn shell(&self) -> Command {
        let mut command = Command::new("java");
        command.args(["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", &self.servers[0].release.class_path()]);
        command.args(["org.apache.zookeeper.ZooKeeperMain", "-server", &self.hosts()]).stderr(Stdio::null());
        command
    }

    /// Which server leads now.
    pub fn leader(&self) -> Option<usize> {
        (0..self.servers.len()).find(|server| mode(self.servers[*server].port).is_some_and(|mode| mode != "follower"))
    }

    pub fn pid(&self, server: usize) -> u32 {
        self.servers[server].child.id()
    }

    /// Stops a server from running, as `kill -STOP` does; and lets it go on.
    pub fn pause(&self, server: usize) {
        signal::stop(self.pid(server));
    }

    pub fn resume(&self, server: usize) {
        signal::resume(self.pid(server));
    }

    /// Ends a server at once, as a crash does.
    pub fn kill(&mut self, server: usize) {
        let _ = self.servers[server].child.kill();
        let _ = self.servers[server].child.wait();
    }

    /// Starts a server that was killed on the same port, with its data.
    pub fn start_again(&mut self, server: usize) {
        let Server { config, main, release, options, .. } = &self.servers[server];
        self.servers[server].child = spawn(*release, config, main, options);
        assert!(self.answers(server, &["standalone", "leader", "follower"]), "not up again; {}", self.log(server));
    }

    /// The version that the first server tells.
    pub fn version(&self) -> Option<String> {
        let told = told(self.servers[0].port, "Zookeeper version: ")?;
        told.split(['-', ',']).next().map(str::to_owned)
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

fn spawn(release: Release, config: &Path, main: &str, options: &[String]) -> Child {
    let log = std::fs::File::options().create(true).append(true).open(config.with_file_name("log")).expect("a log file");
    Command::new("java")
        .args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"])
        .args(options)
        .args(["-cp", &release.class_path(), main])
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
    told(port, "Mode: ")
}

/// What follows this in a line of a server's state.
fn told(port: u16, what: &str) -> Option<String> {
    let mut server = TcpStream::connect(("127.0.0.1", port)).ok()?;
    server.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    server.write_all(b"srvr").ok()?;
    let mut said = String::new();
    server.read_to_string(&mut said).ok()?;
    said.lines().find_map(|line| line.strip_prefix(what)).map(str::to_owned)
}
