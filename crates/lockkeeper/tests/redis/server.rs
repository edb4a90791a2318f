//! Redis servers of our own, on loopback and a free port, in a directory that goes with them; stopped by pid.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) port: u16,
    child: Child,
    directory: PathBuf,
    last_database: AtomicU32,
}

const DATABASES: u32 = 2_000;

impl Server {
    /// Why there can be no server here, if so.
    pub(crate) fn missing() -> Option<String> {
        let found = Command::new("redis-server").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        found.is_err().then(|| "redis-server is not installed; `cargo xtask setup` installs it".to_owned())
    }

    /// Starts a server. Tests whose names and keys do not meet share one: see [`Server::shared`].
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with more options than the usual ones.
    pub(crate) fn start_with(options: &[&str]) -> Self {
        // The port may be taken between our closing it and the server's opening it: try again.
        for attempt in 0..10 {
            let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port();
            let directory = std::env::temp_dir().join(format!("lockkeeper-redis-{}-{port}", std::process::id()));
            std::fs::create_dir_all(&directory).expect("a directory for the server");
            let child = Self::spawn(port, &directory, options);
            let mut server = Self { port, child, directory, last_database: AtomicU32::new(0) };
            if server.answers() {
                return server;
            }
            assert!(attempt < 9, "redis-server did not come up on 127.0.0.1:{port}");
        }
        unreachable!("the last attempt fails above")
    }

    /// Kills the server and starts it again on the same port, with nothing in it.
    pub(crate) fn restart_empty(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.child = Self::spawn(self.port, &self.directory, &[]);
        assert!(self.answers(), "redis-server did not come up again on 127.0.0.1:{}", self.port);
    }

    fn spawn(port: u16, directory: &std::path::Path, options: &[&str]) -> Child {
        Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "no"])
            .args(["--databases", &DATABASES.to_string(), "--enable-debug-command", "yes", "--dir"])
            .arg(directory)
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server starts")
    }

    fn answers(&mut self) -> bool {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(10) {
            if self.child.try_wait().expect("a child").is_some() {
                return false;
            }
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    /// The server that the tests of this binary share; it ends with the last of them.
    pub(crate) fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = shared.upgrade() {
            return server;
        }
        let server = Arc::new(Self::start());
        *shared = Arc::downgrade(&server);
        server
    }

    /// The URL of a database that no other test uses.
    pub(crate) fn fresh_url(&self) -> String {
        let database = self.last_database.fetch_add(1, Ordering::Relaxed) % DATABASES;
        self.url(database)
    }

    pub(crate) fn url(&self, database: u32) -> String {
        format!("redis://127.0.0.1:{}/{database}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
