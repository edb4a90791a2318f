//! MariaDB and MySQL servers of our own, on loopback and a free port, with a data directory that goes with them; stopped by pid.

use std::ffi::OsString;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::signal;

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// The one on the PATH.
    MariaDb,
    /// Where `LOCKKEEPER_MYSQL_9` says.
    Mysql9,
}

impl Flavour {
    const ALL: [Self; 2] = [Self::MariaDb, Self::Mysql9];

    /// As `LOCKKEEPER_REQUIRE` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::MariaDb => "mariadb",
            Self::Mysql9 => "mysql-9",
        }
    }

    fn program(self) -> Option<PathBuf> {
        match self {
            Self::MariaDb => program_file("mariadbd"),
            Self::Mysql9 => std::env::var_os("LOCKKEEPER_MYSQL_9").filter(|file| !file.is_empty()).map(PathBuf::from),
        }
    }

    /// Options that the other one does not know.
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::MariaDb => &["--innodb-log-file-size=8M"],
            // Without the second port, without a folder for files that only an installed server has, and without TLS unless a test wants it.
            Self::Mysql9 => {
                &["--innodb-redo-log-capacity=8M", "--mysqlx=OFF", "--secure-file-priv=NULL", "--auto-generate-certs=OFF"]
            }
        }
    }
}

/// A running server.
#[derive(Debug)]
pub struct Mysql {
    pub flavour: Flavour,
    pub port: u16,
    child: Child,
    directory: PathBuf,
    options: Vec<String>,
    environment: Vec<(&'static str, OsString)>,
    last_database: AtomicU32,
}

impl Mysql {
    /// Why there can be no such server here, if so; begins with its [`Flavour::name`].
    pub fn missing(flavour: Flavour) -> Option<String> {
        let name = flavour.name();
        // Statements are run by the client of MariaDB on both.
        let programs: &[&str] = match flavour {
            Flavour::MariaDb => &["mariadb-install-db", "mariadb"],
            Flavour::Mysql9 => &["mariadb"],
        };
        let Some(server) = flavour.program() else {
            return Some(match flavour {
                Flavour::MariaDb => format!("{name}: there is no mariadbd; `cargo xtask setup` installs it"),
                Flavour::Mysql9 => format!("{name}: LOCKKEEPER_MYSQL_9 is not set; `cargo xtask test` does, if there is one"),
            });
        };
        let found = programs.iter().map(|program| (*program, program_file(program)));
        for (program, found) in found.chain([("mysqld", Some(server))]) {
            let Some(found) = found else {
                return Some(format!("{name}: there is no {program}; `cargo xtask setup` installs it"));
            };
            // The script that makes a data directory ends its help with an error.
            if Command::new(&found).arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
                return Some(format!("{name}: {} does not run", found.display()));
            }
        }
        None
    }

    /// The server that the tests of this binary share; it ends with the last of them.
    pub fn shared(flavour: Flavour) -> Arc<Self> {
        static SHARED: [Mutex<Weak<Mysql>>; Flavour::ALL.len()] = [const { Mutex::new(Weak::new()) }; Flavour::ALL.len()];
        let mut shared = SHARED[flavour as usize].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = shared.upgrade() {
            return server;
        }
        let server = Arc::new(Self::start(flavour, &[]));
        *shared = Arc::downgrade(&server);
        server
    }

    /// Starts a server with more options than the usual ones, such as `--read-only=ON`.
    pub fn start(flavour: Flavour, options: &[&str]) -> Self {
        Self::start_in(Vec::new(), flavour, options)
    }

    /// The same with environment variables for the server.
    pub fn start_in(environment: Vec<(&'static str, OsString)>, flavour: Flavour, options: &[&str]) -> Self {
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        // The port may be taken between our closing it and the server's opening it: try again.
        for attempt in 0..5 {
            let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port();
            let directory = std::env::temp_dir().join(format!("lockkeeper-{}-{}-{port}", flavour.name(), std::process::id()));
            std::fs::create_dir_all(&directory).expect("a directory for the server");
            init(flavour, &directory);
            let child = spawn(flavour, &directory, port, &options, &environment);
            let (options, environment, last_database) = (options.clone(), environment.clone(), AtomicU32::new(0));
            let mut server = Self { flavour, port, child, directory, options, environment, last_database };
            if server.answers() {
                return server;
            }
            assert!(attempt < 4, "{} did not come up on 127.0.0.1:{port}; {}", flavour.name(), server.log());
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
        self.ask(sql);
    }

    /// The same; gives the rows, with tabs between columns.
    pub fn ask(&self, sql: &str) -> String {
        let done = Command::new(program_file("mariadb").expect("not missing"))
            .args(["--no-defaults", "-uroot", "--batch", "--skip-column-names", "--socket"])
            .arg(self.socket())
            .arg("-e")
            .arg(sql)
            .stdin(Stdio::null())
            .output()
            .expect("the client runs");
        assert!(done.status.success(), "{sql}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    /// Ends the server at once, as a crash does.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts a server that was killed on the same port, with its data.
    pub fn start_again(&mut self) {
        self.child = spawn(self.flavour, &self.directory, self.port, &self.options, &self.environment);
        assert!(self.answers(), "the server did not come up again on 127.0.0.1:{}; {}", self.port, self.log());
    }

    /// Stops the server from running, as `kill -STOP` does; and lets it go on.
    pub fn pause(&self) {
        signal::stop(self.child.id());
    }

    pub fn resume(&self) {
        signal::resume(self.child.id());
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

impl Drop for Mysql {
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

/// Makes a data directory with a superuser who needs no password.
fn init(flavour: Flavour, directory: &Path) {
    let data = format!("--datadir={}", directory.join("data").display());
    let mut making = match flavour {
        Flavour::MariaDb => {
            let mut making = Command::new(program_file("mariadb-install-db").expect("not missing"));
            making.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]);
            making
        }
        Flavour::Mysql9 => {
            // The superuser that it makes may come by the socket only.
            let users = directory.join("users.sql");
            let sql = "CREATE USER root@'%'; GRANT ALL ON *.* TO root@'%' WITH GRANT OPTION;\n";
            std::fs::write(&users, sql).expect("a file in our folder");
            let mut making = Command::new(flavour.program().expect("not missing"));
            making.args([
                "--no-defaults",
                "--initialize-insecure",
                "--auto-generate-certs=OFF",
                "--innodb-flush-log-at-trx-commit=0",
            ]);
            making.arg(format!("--init-file={}", users.display()));
            making
        }
    };
    let made = making
        .args(as_root())
        .arg(data)
        // A server removes the temporary tables of all others that use the same directory for them.
        .env("TMPDIR", directory)
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .expect("the program starts");
    assert!(made.status.success(), "no data directory for {flavour:?}: {}", String::from_utf8_lossy(&made.stderr));
}

fn spawn(flavour: Flavour, directory: &Path, port: u16, options: &[String], environment: &[(&'static str, OsString)]) -> Child {
    let log = std::fs::File::options().create(true).append(true).open(directory.join("log")).expect("a log file");
    Command::new(flavour.program().expect("not missing"))
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
            "--innodb-flush-log-at-trx-commit=2",
            "--performance-schema=OFF",
            "--max-connections=400",
        ])
        .args(flavour.options())
        .args(options)
        .envs(environment.iter().map(|(name, value)| (name, value)))
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
