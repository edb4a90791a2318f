//! A sentinel of one primary, for the program about failovers.

use std::collections::HashMap;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use lockkeeper_testkit::server::Flavour;
use redis::{Connection, RedisResult};

use crate::{Outcome, Server, wait_until};

/// The name by which clients ask for the primary.
const NAME: &str = "shop";

/// A process that watches a primary, and promotes its replica when the primary is gone. It ends with the program.
#[derive(Debug)]
pub struct Sentinel {
    port: u16,
    process: Child,
    directory: PathBuf,
}

impl Sentinel {
    /// Starts a sentinel; returns when it knows the primary's replica.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn start(primary: &Server) -> Outcome<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let directory = std::env::temp_dir().join(format!("lockkeeper-guide-sentinel-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        // A sentinel keeps what it learns in its configuration file.
        let file = directory.join("sentinel.conf");
        let settings = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor {NAME} 127.0.0.1 {} 1\n\
             sentinel down-after-milliseconds {NAME} 500\nsentinel failover-timeout {NAME} 5000\n",
            directory.display(),
            primary.port
        );
        std::fs::write(&file, settings)?;
        let mut command = Command::new(Flavour::Redis.program().ok_or("there is no redis-server")?);
        command.arg(file).arg("--sentinel").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let sentinel = Self { port, process: command.spawn()?, directory };
        wait_until("the sentinel knows the replica", || {
            let told: RedisResult<HashMap<String, String>> =
                sentinel.connect().and_then(|mut redis| redis::cmd("SENTINEL").arg("MASTER").arg(NAME).query(&mut redis));
            told.is_ok_and(|told| told.get("num-slaves").is_some_and(|count| count == "1"))
        });
        Ok(sentinel)
    }

    /// The port of the server that it calls the primary.
    ///
    /// # Errors
    ///
    /// Those of the connection.
    pub fn primary(&self) -> Outcome<u16> {
        let asked = redis::cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(NAME).query(&mut self.connect()?);
        let (_, port): (String, String) = asked?;
        Ok(port.parse()?)
    }

    /// What a client of lockkeeper connects to.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis+sentinel://127.0.0.1:{}/{NAME}", self.port)
    }

    fn connect(&self) -> RedisResult<Connection> {
        redis::Client::open(format!("redis://127.0.0.1:{}", self.port))?.get_connection()
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
