//! A PostgreSQL server of our own, on loopback and a free port, with a data directory that goes with it; stopped by pid.
//!
//! The server refuses to run as root, so it runs as the user `postgres` or `nobody` where the tests are root.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::signal;

/// A running server.
#[derive(Debug)]
pub struct Postgres {
    pub port: u16,
    child: Child,
    directory: PathBuf,
    options: Vec<String>,
    environment: Vec<(&'static str, OsString)>,
    last_schema: AtomicU32,
}

impl Postgres {
    /// Why there can be no server here, if so; begins with `postgres`, as `LOCKKEEPER_REQUIRE` calls it.
    pub fn missing() -> Option<String> {
        for program in ["initdb", "postgres"] {
            let Some(found) = program_file(program) else {
                return Some(format!("postgres: there is no {program}; `cargo xtask setup` installs it"));
            };
            let runs = Command::new(&found).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
            if !runs.is_ok_and(|status| status.success()) {
                return Some(format!("postgres: {} does not run", found.display()));
            }
        }
        None
    }

    /// The server that the tests of this binary share; it ends with the last of them.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = shared.upgrade() {
            return server;
        }
        let server = Arc::new(Self::start(&[]));
        *shared = Arc::downgrade(&server);
        server
    }

    /// Starts a server with more settings than the usual ones, such as `log_statement=all`.
    pub fn start(settings: &[&str]) -> Self {
        Self::start_in(Vec::new(), settings)
    }

    /// The same with environment variables for the server.
    pub fn start_in(environment: Vec<(&'static str, OsString)>, settings: &[&str]) -> Self {
        let options: Vec<String> = settings.iter().flat_map(|setting| ["-c".to_owned(), (*setting).to_owned()]).collect();
        // The port may be taken between our closing it and the server's opening it: try again.
        for attempt in 0..5 {
            let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port();
            let directory = std::env::temp_dir().join(format!("lockkeeper-postgres-{}-{port}", std::process::id()));
            std::fs::create_dir_all(&directory).expect("a directory for the server");
            give(&directory);
            init(&directory);
            let child = spawn(&directory, port, &options, &environment);
            let (options, environment, last_schema) = (options.clone(), environment.clone(), AtomicU32::new(0));
            let mut server = Self { port, child, directory, options, environment, last_schema };
            if server.answers() {
                return server;
            }
            assert!(attempt < 4, "postgres did not come up on 127.0.0.1:{port}; {}", server.log());
        }
        unreachable!("the last attempt fails above")
    }

    /// A standby of a server, with a copy of its data, which follows it. It only reads until it is promoted.
    pub fn standby_of(primary: &Self) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port();
        let directory = std::env::temp_dir().join(format!("lockkeeper-postgres-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory for the server");
        give(&directory);
        let copied = unprivileged(&program_file("pg_basebackup").expect("beside the server"))
            .args([
                "-h",
                "127.0.0.1",
                "-p",
                &primary.port.to_string(),
                "-U",
                "postgres",
                "--checkpoint=fast",
                "-X",
                "stream",
                "-R",
                "-D",
            ])
            .arg(directory.join("data"))
            .current_dir(&directory)
            .stdin(Stdio::null())
            .output()
            .expect("pg_basebackup starts");
        assert!(copied.status.success(), "pg_basebackup failed: {}", String::from_utf8_lossy(&copied.stderr));
        let child = spawn(&directory, port, &[], &[]);
        let (options, environment, last_schema) = (Vec::new(), Vec::new(), AtomicU32::new(0));
        let mut server = Self { port, child, directory, options, environment, last_schema };
        assert!(server.answers(), "the standby did not come up; {}", server.log());
        server
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What the server wrote, the end of it.
    pub fn log(&self) -> String {
        let text = std::fs::read_to_string(self.directory.join("log")).unwrap_or_default();
        let skipped = text.len().saturating_sub(2_000);
        text.get(skipped..).unwrap_or(&text).to_owned()
    }

    /// The URL of the database `postgres`, as its superuser.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres?sslmode=disable", self.port)
    }

    /// The URL of a schema that no other test uses.
    pub fn fresh_url(&self) -> String {
        format!("{}&schema=t{}", self.url(), self.last_schema.fetch_add(1, Ordering::Relaxed))
    }

    /// Ends the server at once, as a crash does (SIGQUIT: its children end too).
    pub fn kill(&mut self) {
        signal::send(self.child.id(), "-QUIT");
        let _ = self.child.wait();
    }

    /// Starts a server that was killed on the same port, with its data.
    pub fn start_again(&mut self) {
        self.child = spawn(&self.directory, self.port, &self.options, &self.environment);
        assert!(self.answers(), "postgres did not come up again on 127.0.0.1:{}; {}", self.port, self.log());
    }

    /// Stops the server from running, as `kill -STOP` does; and lets it go on. Each connection has a process of its own, which stands still, too.
    pub fn pause(&self) {
        signal::stop(self.child.id());
        children(self.child.id()).into_iter().for_each(signal::stop);
    }

    pub fn resume(&self) {
        children(self.child.id()).into_iter().for_each(signal::resume);
        signal::resume(self.child.id());
    }

    fn answers(&mut self) -> bool {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(60) {
            if self.child.try_wait().expect("a child").is_some() {
                return false;
            }
            if accepts(self.port) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// The processes that a process started and that still run.
fn children(parent: u32) -> Vec<u32> {
    let said = Command::new("ps").args(["-o", "pid=", "--ppid", &parent.to_string()]).output();
    let said = said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned()).unwrap_or_default();
    said.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Whether the server lets a client in: it answers a startup message with a request for authentication.
fn accepts(port: u16) -> bool {
    let ask = || -> std::io::Result<u8> {
        let mut server = TcpStream::connect(("127.0.0.1", port))?;
        server.set_read_timeout(Some(Duration::from_secs(2)))?;
        let parameters = b"user\0postgres\0database\0postgres\0\0";
        let mut message = u32::try_from(parameters.len() + 8).expect("short").to_be_bytes().to_vec();
        message.extend(196_608_u32.to_be_bytes());
        message.extend(parameters);
        server.write_all(&message)?;
        let mut kind = [0];
        server.read_exact(&mut kind)?;
        Ok(kind[0])
    };
    ask().is_ok_and(|kind| kind == b'R')
}

/// Gives a file or directory to the user that servers run as.
pub fn give(path: &Path) {
    if let Some(user) = other_user() {
        let owned = Command::new("chown").arg("-R").arg(user).arg(path).status();
        assert!(owned.is_ok_and(|status| status.success()), "chown {user} {}", path.display());
    }
}

/// Whom the server runs as, where we are root.
fn other_user() -> Option<&'static str> {
    let root = Command::new("id").arg("-u").output().is_ok_and(|said| said.stdout.trim_ascii() == b"0");
    if !root {
        return None;
    }
    let known = |user: &&str| {
        Command::new("id").arg(user).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
    };
    ["postgres", "nobody"].into_iter().find(known)
}

/// A command that runs as a user who is not root.
pub(crate) fn unprivileged(program: &Path) -> Command {
    match other_user() {
        Some(user) => {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", user, "--regid"]).arg(group_of(user)).args(["--clear-groups", "--"]).arg(program);
            command
        }
        None => Command::new(program),
    }
}

fn group_of(user: &str) -> String {
    let said = Command::new("id").args(["-g", user]).output().expect("id runs");
    String::from_utf8_lossy(&said.stdout).trim().to_owned()
}

fn init(directory: &Path) {
    let made = unprivileged(&program_file("initdb").expect("not missing"))
        .arg("-D")
        .arg(directory.join("data"))
        .args(["-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8", "--locale=C"])
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .expect("initdb starts");
    assert!(made.status.success(), "initdb failed: {}", String::from_utf8_lossy(&made.stderr));
}

fn spawn(directory: &Path, port: u16, options: &[String], environment: &[(&str, OsString)]) -> Child {
    let log = std::fs::File::options().create(true).append(true).open(directory.join("log")).expect("a log file");
    unprivileged(&program_file("postgres").expect("not missing"))
        .arg("-D")
        .arg(directory.join("data"))
        .args(["-h", "127.0.0.1", "-p", &port.to_string(), "-k", "", "-F"])
        .args([
            "-c",
            "shared_buffers=16MB",
            "-c",
            "max_connections=300",
            "-c",
            "max_wal_size=256MB",
            "-c",
            "autovacuum_naptime=5s",
        ])
        .args(options)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("the server starts")
}

/// Where a program of PostgreSQL is: on the PATH, or where Debian keeps it, the newest version first.
fn program_file(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    on_path.or_else(|| {
        let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
        let mut found: Vec<PathBuf> =
            versions.flatten().map(|version| version.path().join("bin").join(name)).filter(|file| file.is_file()).collect();
        found.sort();
        found.pop()
    })
}
