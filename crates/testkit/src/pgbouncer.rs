//! PgBouncer in transaction mode before a PostgreSQL server of the tests, on loopback and a free port; stopped by pid.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::postgres::{give, unprivileged};

/// A running pooler.
#[derive(Debug)]
pub struct PgBouncer {
    pub port: u16,
    child: Child,
    directory: PathBuf,
}

impl PgBouncer {
    /// Why there can be none here, if so; begins with `pgbouncer`, as `LOCKKEEPER_REQUIRE` calls it.
    pub fn missing() -> Option<String> {
        program_file().is_none().then(|| "pgbouncer: there is none; `cargo xtask setup` installs it".to_owned())
    }

    /// Stands before the server at `server_port`, with so few connections to it that clients have to share them.
    pub fn start(server_port: u16) -> Self {
        for attempt in 0..5 {
            let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port();
            let directory = std::env::temp_dir().join(format!("lockkeeper-pgbouncer-{}-{port}", std::process::id()));
            std::fs::create_dir_all(&directory).expect("a directory for the pooler");
            let settings = format!(
                "[databases]\n* = host=127.0.0.1 port={server_port} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
                 unix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 3\nmax_client_conn = 200\n\
                 ignore_startup_parameters = extra_float_digits\n"
            );
            std::fs::write(directory.join("ini"), settings).expect("a file");
            give(&directory);
            let log = std::fs::File::create(directory.join("log")).expect("a log file");
            let child = unprivileged(&program_file().expect("not missing"))
                .arg(directory.join("ini"))
                .current_dir(&directory)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log)
                .spawn()
                .expect("the pooler starts");
            let mut pooler = Self { port, child, directory };
            if pooler.answers() {
                return pooler;
            }
            let log = std::fs::read_to_string(pooler.directory.join("log")).unwrap_or_default();
            assert!(attempt < 4, "pgbouncer did not come up on 127.0.0.1:{port}; {log}");
        }
        unreachable!("the last attempt fails above")
    }

    fn answers(&mut self) -> bool {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(30) {
            if self.child.try_wait().expect("a child").is_some() {
                return false;
            }
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn program_file() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.push("/usr/sbin".into());
    folders.into_iter().map(|folder| folder.join("pgbouncer")).find(|file| file.is_file())
}
