//! A MariaDB server of our own, on loopback and a free port, with a data directory that goes with it; stopped by pid.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// A running server.
#[derive(Debug)]
pub struct MariaDb {
    pub port: u16,
    child: Child,
    directory: PathBuf,
    options: Vec<String>,
    last_database: AtomicU32,
}

impl MariaDb {
    /// Why there can be no server here, if so; begins with `mariadb`, as `LOCKKEEPER_REQUIRE` calls it.
    pub fn missing() -> Option<String> {
        for program in ["mariadbd", "mariadb-install-db", "mariadb"] {
            let Some(found) = program_file(program) else {
                return Some(format!("mariadb: there is no {program}; `cargo xtask setup` installs it"));
            };
            let runs = Command::new(&found).arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status();
            // The script that makes a data directory ends its help with an error.
            if runs.is_err() {
                return Some(format!("mariadb: {} does not run", found.display()));
            }
        }
        None
    }

    /// The server that the tests of this binary share; it ends with the last of them.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<MariaDb>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = shared.upgrade() {
            return server;
        }
        let server = Arc::new(Self::start(&[]));
        *shared = Arc::downgrade(&server);
        server
    }

    /// Starts a server with more options than the usual ones, such as `--read-only=ON`.
    pub fn start(options: &[&str]) -> Self {
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        // The port may be taken between our closing it and the server's opening it: try again.
        for attempt in 0..5 {
            let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port();
            let directory = std::env::temp_dir().join(format!("lockkeeper-mariadb-{}-{port}", std::process::id()));
            std::fs::create_dir_all(&directory).expect("a directory for the server");
            init(&directory);
            let child = spawn(&directory, port, &options);
            let mut server = Self { port, child, directory, options: options.clone(), last_database: AtomicU32::new(0) };
            if server.answers() {
                return server;
            }
            assert!(attempt < 4, "mariadb did not come up on 127.0.0.1:{port}; {}", server.log());
        }
        unreachable!("the last attempt fails above")
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where the server's Unix socket is.
    pub fn socket(&self) -> PathBuf {
        self.directory.join("socket")
    }

    /// What the server wrote, the end of it.
    pub fn log(&self) -> String {
        let text = std::fs::read_to_string(self.directory.join("log")).unwrap_or_default();
        let skipped = text.len().saturating_sub(2_000);
        text.get(skipped..).unwrap_or(&text).to_owned()
    }

    /// The URL of a database, as the superuser.
    pub fn url(&self, database: &str) -> String {
        format!("mysql://root@127.0.0.1:{}/{database}?ssl-mode=disabled", self.port)
    }

    /// The name of a new database that no other test uses.
    pub fn fresh_database(&self) -> String {
        let database = format!("t{}", self.last_database.fetch_add(1, Ordering::Relaxed));
        self.run(&format!("CREATE DATABASE {database}"));
        database
    }

    /// Runs statements as the superuser, in a process of its own.
    pub fn run(&self, sql: &str) {
        let done = Command::new(program_file("mariadb").expect("not missing"))
            .args(["--no-defaults", "-uroot", "--batch", "--socket"])
            .arg(self.socket())
            .arg("-e")
            .arg(sql)
            .stdin(Stdio::null())
            .output()
            .expect("the client runs");
        assert!(done.status.success(), "{sql}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// Ends the server at once, as a crash does.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts a server that was killed on the same port, with its data.
    pub fn start_again(&mut self) {
        self.child = spawn(&self.directory, self.port, &self.options);
        assert!(self.answers(), "mariadb did not come up again on 127.0.0.1:{}; {}", self.port, self.log());
    }

    fn answers(&mut self) -> bool {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(90) {
            if self.child.try_wait().expect("a child").is_some() {
                return false;
            }
            if greets(self.port) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Whether the server begins its greeting: the length of a packet, and version 10 of the protocol.
fn greets(port: u16) -> bool {
    let ask = || -> std::io::Result<u8> {
        let mut server = TcpStream::connect(("127.0.0.1", port))?;
        server.set_read_timeout(Some(Duration::from_secs(2)))?;
        let mut greeting = [0; 5];
        server.read_exact(&mut greeting)?;
        Ok(greeting[4])
    };
    ask().is_ok_and(|version| version == 10)
}

/// The server refuses to run as root unless it is told to.
fn as_root() -> Option<&'static str> {
    let root = Command::new("id").arg("-u").output().is_ok_and(|said| said.stdout.trim_ascii() == b"0");
    root.then_some("--user=root")
}

fn init(directory: &Path) {
    let made = Command::new(program_file("mariadb-install-db").expect("not missing"))
        .arg("--no-defaults")
        .args(as_root())
        .arg(format!("--datadir={}", directory.join("data").display()))
        .args(["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"])
        // A server removes the temporary tables of all others that use the same directory for them.
        .env("TMPDIR", directory)
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .expect("mariadb-install-db starts");
    assert!(made.status.success(), "mariadb-install-db failed: {}", String::from_utf8_lossy(&made.stderr));
}

fn spawn(directory: &Path, port: u16, options: &[String]) -> Child {
    let log = std::fs::File::options().create(true).append(true).open(directory.join("log")).expect("a log file");
    Command::new(program_file("mariadbd").expect("not missing"))
        .arg("--no-defaults")
        .args(as_root())
        .arg(format!("--datadir={}", directory.join("data").display()))
        .arg(format!("--socket={}", directory.join("socket").display()))
        .arg(format!("--pid-file={}", directory.join("pid").display()))
        .args([
            "--bind-address=127.0.0.1",
            &format!("--port={port}"),
            "--skip-log-bin",
            "--skip-name-resolve",
            "--innodb-buffer-pool-size=16M",
            "--innodb-log-file-size=8M",
            "--innodb-flush-log-at-trx-commit=2",
            "--performance-schema=OFF",
            "--max-connections=400",
        ])
        .args(options)
        .env("TMPDIR", directory)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("the server starts")
}

/// Where a program is: on the PATH, or where Debian keeps servers.
fn program_file(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.push("/usr/sbin".into());
    folders.into_iter().map(|folder| folder.join(name)).find(|file| file.is_file())
}
