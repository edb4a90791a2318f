//! etcd servers of our own, on loopback and free ports, with data directories that go with them; stopped by pid.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::signal;

/// Which etcd is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The one on the PATH: Debian's, 3.4.
    Path,
    /// 3.5 or later. `LOCKKEEPER_ETCD_NEW` names the folder with `etcd` and `etcdctl`.
    New,
}

impl Release {
    /// Why it cannot run here, if so; begins with what `LOCKKEEPER_REQUIRE` calls it.
    pub fn missing(self) -> Option<String> {
        ["etcd", "etcdctl"].into_iter().find_map(|name| {
            let program = self.program(name);
            let runs =
                |program: PathBuf| Command::new(program).arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status();
            let why = match self {
                Self::Path => format!("etcd: there is no {name}; `cargo xtask setup` installs it"),
                Self::New if program.is_none() => {
                    "etcd-new: LOCKKEEPER_ETCD_NEW is not set; `cargo xtask test` does, if there is one".to_owned()
                }
                Self::New => format!("etcd-new: there is no {name} in the folder LOCKKEEPER_ETCD_NEW that runs"),
            };
            (!program.is_some_and(|program| runs(program).is_ok_and(|status| status.success()))).then_some(why)
        })
    }

    /// What starts one of its programs.
    fn program(self, name: &str) -> Option<PathBuf> {
        match self {
            Self::Path => Some(PathBuf::from(name)),
            Self::New => std::env::var_os("LOCKKEEPER_ETCD_NEW")
                .filter(|place| !place.is_empty())
                .map(|place| Path::new(&place).join(name)),
        }
    }

    fn command(self, name: &str) -> Command {
        let mut command = Command::new(self.program(name).expect("not missing"));
        command.env("ETCDCTL_API", "3");
        command
    }
}

/// A cluster of one or more members.
#[derive(Debug)]
pub struct Etcd {
    release: Release,
    members: Vec<Member>,
    directory: PathBuf,
}

#[derive(Debug)]
struct Member {
    port: u16,
    arguments: Vec<String>,
    log: PathBuf,
    child: Child,
}

/// How long a member may take to come up, or a cluster to have a leader.
const COMING_UP: Duration = Duration::from_secs(60);

impl Etcd {
    /// Why there can be no server here, if so; begins with `etcd`, as `LOCKKEEPER_REQUIRE` calls it.
    pub fn missing() -> Option<String> {
        Release::Path.missing()
    }

    /// The server that the tests of this binary share; it ends with the last of them.
    pub fn shared() -> Arc<Self> {
        Self::shared_of(Release::Path)
    }

    /// The same with a release.
    pub fn shared_of(release: Release) -> Arc<Self> {
        static SHARED: [Mutex<Weak<Etcd>>; 2] = [const { Mutex::new(Weak::new()) }; 2];
        let mut shared = SHARED[release as usize].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = shared.upgrade() {
            return server;
        }
        let server = Arc::new(Self::start_as(release, 1, &[]));
        *shared = Arc::downgrade(&server);
        server
    }

    /// Starts so many members, with more options than the usual ones.
    pub fn start(members: usize, options: &[&str]) -> Self {
        Self::start_as(Release::Path, members, options)
    }

    /// The same with a release.
    pub fn start_as(release: Release, members: usize, options: &[&str]) -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        // A port may be taken between our closing it and the server's opening it: try again.
        for attempt in 0..5 {
            let number = LAST.fetch_add(1, Ordering::Relaxed);
            let directory = std::env::temp_dir().join(format!("lockkeeper-etcd-{}-{number}", std::process::id()));
            std::fs::create_dir_all(&directory).expect("a directory for the server");
            let listeners: Vec<TcpListener> =
                (0..2 * members).map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port")).collect();
            let ports: Vec<u16> = listeners.iter().map(|listener| listener.local_addr().expect("a port").port()).collect();
            drop(listeners);
            let peers: Vec<String> = (0..members).map(|i| format!("m{i}=http://127.0.0.1:{}", ports[members + i])).collect();
            let start = |i: usize| {
                let client = if options.iter().any(|option| option.starts_with("--cert-file")) { "https" } else { "http" };
                let (client, peer) =
                    (format!("{client}://127.0.0.1:{}", ports[i]), format!("http://127.0.0.1:{}", ports[members + i]));
                let folder = directory.join(format!("m{i}")).display().to_string();
                let mut arguments = [
                    "--name",
                    &format!("m{i}"),
                    "--data-dir",
                    &folder,
                    "--listen-client-urls",
                    &client,
                    "--advertise-client-urls",
                    &client,
                    "--listen-peer-urls",
                    &peer,
                    "--initial-advertise-peer-urls",
                    &peer,
                    "--initial-cluster",
                    &peers.join(","),
                    "--initial-cluster-token",
                    &format!("{number}-{}", ports[0]),
                    "--log-level",
                    "error",
                    "--logger",
                    "zap",
                ]
                .map(str::to_owned)
                .to_vec();
                // Only a crash of the machine loses what was not synced, and requests do not wait for a disk that others use. Older ones cannot do that.
                arguments.extend((release == Release::New).then(|| "--unsafe-no-fsync".to_owned()));
                arguments.extend(options.iter().map(|option| (*option).to_owned()));
                let log = directory.join(format!("m{i}.log"));
                let child = spawn(release, &arguments, &log);
                Member { port: ports[i], arguments, log, child }
            };
            let mut cluster = Self { release, members: (0..members).map(start).collect(), directory: directory.clone() };
            if cluster.answers() {
                return cluster;
            }
            assert!(attempt < 4, "etcd did not come up: {}", cluster.log(0));
        }
        unreachable!("the last attempt fails above")
    }

    /// What a member wrote, the end of it.
    pub fn log(&self, member: usize) -> String {
        let text = std::fs::read_to_string(&self.members[member].log).unwrap_or_default();
        let skipped = text.len().saturating_sub(2_000);
        text.get(skipped..).unwrap_or(&text).to_owned()
    }

    pub fn port(&self, member: usize) -> u16 {
        self.members[member].port
    }

    pub fn pid(&self, member: usize) -> u32 {
        self.members[member].child.id()
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The version of its program.
    pub fn version(&self) -> Option<String> {
        let said = self.release.command("etcd").arg("--version").output().ok()?;
        String::from_utf8_lossy(&said.stdout).lines().find_map(|line| line.strip_prefix("etcd Version: ")).map(str::to_owned)
    }

    /// `host:port` of all members, separated by commas.
    pub fn hosts(&self) -> String {
        self.members.iter().map(|member| format!("127.0.0.1:{}", member.port)).collect::<Vec<_>>().join(",")
    }

    /// The URL of all members, with sessions of two seconds.
    pub fn url(&self) -> String {
        format!("etcd://{}?session=2s", self.hosts())
    }

    /// Runs `etcdctl` on the cluster.
    pub fn ctl(&self, arguments: &[&str]) -> Output {
        self.ctl_command(arguments).output().expect("etcdctl runs")
    }

    /// `etcdctl` for the cluster, to be started.
    pub fn ctl_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.release.command("etcdctl");
        command.args(["--endpoints", &self.hosts()]).args(arguments).stdin(Stdio::null());
        command
    }

    /// The keys with this prefix.
    pub fn keys(&self, prefix: &str) -> Vec<String> {
        let said = self.ctl(&["get", prefix, "--prefix", "--keys-only"]);
        String::from_utf8_lossy(&said.stdout).lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    /// The member that leads.
    pub fn leader(&self) -> usize {
        let began = Instant::now();
        while began.elapsed() < COMING_UP {
            for member in 0..self.members.len() {
                let endpoint = format!("127.0.0.1:{}", self.members[member].port);
                let said = self
                    .release
                    .command("etcdctl")
                    .args(["--endpoints", &endpoint, "endpoint", "status", "-w", "fields"])
                    .output()
                    .expect("etcdctl runs");
                let said = String::from_utf8_lossy(&said.stdout).into_owned();
                let field =
                    |name: &str| said.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned());
                let (own, leader) = (field("\"MemberID\" :"), field("\"Leader\" :"));
                if own.is_some() && own == leader {
                    return member;
                }
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("the cluster has no leader")
    }

    /// Ends a member at once, as a crash does.
    pub fn kill(&mut self, member: usize) {
        let child = &mut self.members[member].child;
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Starts a member that was killed, with its data.
    pub fn start_again(&mut self, member: usize) {
        let Member { arguments, log, child, .. } = &mut self.members[member];
        *child = spawn(self.release, arguments, log);
    }

    /// Stops a member from running, as `kill -STOP` does; and lets it go on.
    pub fn pause(&self, member: usize) {
        signal::stop(self.pid(member));
    }

    pub fn resume(&self, member: usize) {
        signal::resume(self.pid(member));
    }

    /// Whether all members that run serve requests.
    pub fn answers(&mut self) -> bool {
        let began = Instant::now();
        while began.elapsed() < COMING_UP {
            if self.members.iter_mut().any(|member| member.child.try_wait().is_ok_and(|ended| ended.is_some())) {
                return false;
            }
            if self.members.iter().all(|member| {
                is_healthy(member.port) || member.arguments.iter().any(|a| a.starts_with("--cert-file")) && accepts(member.port)
            }) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for member in 0..self.members.len() {
            self.kill(member);
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn accepts(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

fn is_healthy(port: u16) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut server = TcpStream::connect(("127.0.0.1", port))?;
        server.set_read_timeout(Some(Duration::from_secs(3)))?;
        server.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
        let mut said = String::new();
        server.read_to_string(&mut said)?;
        Ok(said)
    };
    ask().is_ok_and(|said| said.contains("true"))
}

fn spawn(release: Release, arguments: &[String], log: &Path) -> Child {
    let log = std::fs::File::options().create(true).append(true).open(log).expect("a log file");
    release
        .command("etcd")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("the server starts")
}
