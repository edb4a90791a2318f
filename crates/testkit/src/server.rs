//! Redis and Valkey servers of our own, on loopback and a free port, in a directory that goes with them; stopped by pid.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::signal;

/// Which server.
#[derive(Clone, Copy, Debug)]
pub enum Flavour {
    /// The one on the PATH, 7.0 or later.
    Redis,
    /// Redis 6.2, the oldest that we know of.
    Redis62,
    Valkey,
    /// The newest.
    Redis8,
}

impl Flavour {
    pub const ALL: [Self; 4] = [Self::Redis, Self::Redis62, Self::Valkey, Self::Redis8];

    /// As `LOCKKEEPER_REQUIRE` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Redis62 => "redis-6.2",
            Self::Valkey => "valkey",
            Self::Redis8 => "redis-8",
        }
    }

    /// The environment variable that says where it is; without one it is on the PATH.
    fn variable(self) -> Option<&'static str> {
        match self {
            Self::Redis => None,
            Self::Redis62 => Some("LOCKKEEPER_REDIS_62"),
            Self::Valkey => Some("LOCKKEEPER_VALKEY"),
            Self::Redis8 => Some("LOCKKEEPER_REDIS_8"),
        }
    }

    pub fn program(self) -> Option<OsString> {
        match self.variable() {
            None => Some("redis-server".into()),
            Some(variable) => std::env::var_os(variable).filter(|program| !program.is_empty()),
        }
    }

    /// What it takes to have DEBUG; Redis 6.2 has it anyway, and ends at an option that it does not know.
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Redis | Self::Valkey | Self::Redis8 => &["--enable-debug-command", "yes"],
            Self::Redis62 => &[],
        }
    }
}

/// A port that is free now, and may be taken before it is used.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port()
}

/// What a server answers to `redis-cli`; empty if it does not. One that stands still counts as one that does not answer.
pub fn ask(port: u16, words: &[&str]) -> String {
    let answer =
        Command::new("timeout").args(["5", "redis-cli", "-p", &port.to_string()]).args(words).stderr(Stdio::null()).output();
    answer.map(|answer| String::from_utf8_lossy(&answer.stdout).into_owned()).unwrap_or_default()
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    flavour: Flavour,
    pub port: u16,
    child: Child,
    directory: PathBuf,
    /// Given beside the usual ones.
    options: Vec<String>,
    environment: Vec<(&'static str, OsString)>,
    last_database: AtomicU32,
}

const DATABASES: u32 = 2_000;

impl Server {
    /// Why there can be no such server here, if so; begins with its [`Flavour::name`].
    pub fn missing(flavour: Flavour) -> Option<String> {
        let name = flavour.name();
        let Some(program) = flavour.program() else {
            let variable = flavour.variable().unwrap_or_default();
            return Some(format!("{name}: {variable} is not set; `cargo xtask setup` and `cargo xtask test` see to it"));
        };
        let found = Command::new(&program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        let runs = found.is_ok_and(|status| status.success());
        (!runs).then(|| format!("{name}: \"{}\" does not run; `cargo xtask setup` installs it", program.display()))
    }

    /// Starts a server. Tests whose names and keys do not meet share one: see [`Server::shared`].
    pub fn start(flavour: Flavour) -> Self {
        Self::start_with(flavour, &[])
    }

    /// Starts a server with more options than the usual ones.
    pub fn start_with(flavour: Flavour, options: &[&str]) -> Self {
        Self::start_in(Vec::new(), flavour, options)
    }

    /// Starts a server with something in its environment.
    pub fn start_in(environment: Vec<(&'static str, OsString)>, flavour: Flavour, options: &[&str]) -> Self {
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        // The port may be taken between our closing it and the server's opening it: try again.
        for attempt in 0..10 {
            let port = free_port();
            let directory = std::env::temp_dir().join(format!("lockkeeper-{}-{}-{port}", flavour.name(), std::process::id()));
            std::fs::create_dir_all(&directory).expect("a directory for the server");
            let child = Self::spawn(flavour, port, &directory, &options, &environment);
            let (options, environment, last_database) = (options.clone(), environment.clone(), AtomicU32::new(0));
            let mut server = Self { flavour, port, child, directory, options, environment, last_database };
            if server.answers() {
                return server;
            }
            assert!(attempt < 9, "{flavour:?} did not come up on 127.0.0.1:{port}");
        }
        unreachable!("the last attempt fails above")
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn directory(&self) -> &std::path::Path {
        &self.directory
    }

    /// Kills the server (SIGKILL) and starts it again on the same port, with what it finds on its disk: nothing, unless it was told to
    /// keep something there. `meanwhile` runs when it is dead.
    pub fn restart(&mut self, meanwhile: impl FnOnce(&std::path::Path)) {
        self.kill();
        meanwhile(&self.directory);
        self.start_again();
    }

    /// Kills the server (SIGKILL).
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts a server that was killed on the same port, with what it finds on its disk.
    pub fn start_again(&mut self) {
        self.child = Self::spawn(self.flavour, self.port, &self.directory, &self.options, &self.environment);
        assert!(self.answers(), "the server did not come up again on 127.0.0.1:{}", self.port);
    }

    /// The same, with other options than before, beside the usual ones.
    pub fn start_again_with(&mut self, options: &[&str]) {
        self.options = options.iter().map(|option| (*option).to_owned()).collect();
        self.start_again();
    }

    /// Stops answering without closing anything, until [thawed](Self::thaw).
    pub fn freeze(&self) {
        signal::stop(self.child.id());
    }

    pub fn thaw(&self) {
        signal::resume(self.child.id());
    }

    fn spawn(
        flavour: Flavour,
        port: u16,
        directory: &std::path::Path,
        options: &[String],
        environment: &[(&'static str, OsString)],
    ) -> Child {
        Command::new(flavour.program().expect("not missing"))
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "no"])
            .args(["--databases", &DATABASES.to_string(), "--dir"])
            .arg(directory)
            .args(flavour.options())
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server starts")
    }

    fn answers(&mut self) -> bool {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(10) {
            if self.child.try_wait().expect("a child").is_some() {
                return false;
            }
            if self.pinged().is_ok_and(|answer| !answer.starts_with("-LOADING")) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    /// What it answers to a PING.
    fn pinged(&self) -> std::io::Result<String> {
        let mut server = TcpStream::connect(("127.0.0.1", self.port))?;
        server.set_read_timeout(Some(Duration::from_secs(1)))?;
        server.write_all(b"PING\r\n")?;
        let mut answer = String::new();
        BufReader::new(server).read_line(&mut answer)?;
        Ok(answer)
    }

    /// The server of this flavour that the tests of this binary share; it ends with the last of them.
    pub fn shared(flavour: Flavour) -> Arc<Self> {
        static SHARED: [Mutex<Weak<Server>>; Flavour::ALL.len()] = [const { Mutex::new(Weak::new()) }; Flavour::ALL.len()];
        let mut shared = SHARED[flavour as usize].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = shared.upgrade() {
            return server;
        }
        let server = Arc::new(Self::start(flavour));
        *shared = Arc::downgrade(&server);
        server
    }

    /// The URL of a database that no other test uses.
    pub fn fresh_url(&self) -> String {
        let database = self.last_database.fetch_add(1, Ordering::Relaxed) % DATABASES;
        self.url(database)
    }

    pub fn url(&self, database: u32) -> String {
        format!("redis://127.0.0.1:{}/{database}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
