//! What a cell has: a server, our clients and Java's on one database of it, and eyes that see past both.

use lockkeeper_testkit::poll::async_until_within;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockkeeper::Client;
use redis::{Commands, Connection};
use serde_json::Value;

use crate::driver::{Driver, Told, Version};
use crate::server::{Flavour, Server};

/// What a whole cell may take.
const LIMIT: Duration = Duration::from_secs(150);

/// Redisson's watchdog, and our lease, where a cell does not want it shorter.
pub(crate) const USUAL: Duration = Duration::from_secs(30);

pub(crate) struct World {
    server: Arc<Server>,
    database: u32,
    pub(crate) version: Version,
    /// A client of Java's with the usual watchdog.
    pub(crate) java: Java,
    /// A client of ours with the usual lease.
    pub(crate) client: Client,
}

/// Runs one cell with one version; skips it, and says so, where there is no server or no Redisson.
pub(crate) fn run<F: Future<Output = ()>>(version: Version, test: &str, cell: impl FnOnce(World) -> F) {
    if let Some(why) = Server::missing(Flavour::Redis).or_else(|| version.missing()) {
        lockkeeper::conformance::skip(test, &why);
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let world = World::new(version).await;
        tokio::time::timeout(LIMIT, Box::pin(cell(world))).await.expect("the cell ends in time");
    });
}

/// Runs a test with all versions at once; skips it, and says so, where one is missing.
pub(crate) fn run_all<F: Future<Output = ()>>(test: &str, body: impl FnOnce(Vec<Arc<World>>) -> F) {
    let versions = [Version::V4_7_0, Version::V3_52_0, Version::V3_16_4];
    if let Some(why) = Server::missing(Flavour::Redis).or_else(|| versions.iter().find_map(|version| version.missing())) {
        lockkeeper::conformance::skip(test, &why);
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(8).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut worlds = Vec::new();
        for version in versions {
            worlds.push(Arc::new(World::new(version).await));
        }
        tokio::time::timeout(LIMIT, Box::pin(body(worlds))).await.expect("the test ends in time");
    });
}

impl World {
    async fn new(version: Version) -> Self {
        let server = Server::shared(Flavour::Redis);
        let url = server.fresh_url();
        let database = url.rsplit('/').next().expect("a database").parse().expect("a number");
        let java = Java::open(Driver::shared(version), &server, database, USUAL).await;
        let client = Client::connect(&url).await.expect("a server");
        Self { server, database, version, java, client }
    }

    pub(crate) fn url(&self) -> String {
        self.server.url(self.database)
    }

    /// A client of ours whose kept holds have this lease.
    pub(crate) async fn client_with(&self, lease: Duration) -> Client {
        Client::builder().lease(lease).connect(self.url()).await.expect("a server")
    }

    /// A client of Java's with this watchdog.
    pub(crate) async fn java_with(&self, watchdog: Duration) -> Java {
        Java::open(Driver::shared(self.version), &self.server, self.database, watchdog).await
    }

    /// A Java process that may be killed, and its client.
    pub(crate) async fn doomed(&self, watchdog: Duration) -> (Arc<Driver>, Java) {
        let driver = Driver::start(self.version);
        let java = Java::open(Arc::clone(&driver), &self.server, self.database, watchdog).await;
        (driver, java)
    }

    /// A plain connection to the database.
    pub(crate) fn eyes(&self) -> Connection {
        redis::Client::open(self.url()).and_then(|client| client.get_connection()).expect("a server")
    }

    /// Waits until `count` listen to channels like this.
    pub(crate) async fn listeners(&self, pattern: &str, count: usize) {
        let mut eyes = self.eyes();
        until("somebody listens", || {
            let channels: Vec<String> = redis::cmd("PUBSUB").arg("CHANNELS").arg(pattern).query(&mut eyes).unwrap();
            let mut asked = redis::cmd("PUBSUB");
            asked.arg("NUMSUB").arg(&channels);
            let found: Vec<(String, usize)> = asked.query(&mut eyes).unwrap();
            found.iter().map(|(_, listeners)| listeners).sum::<usize>() >= count
        })
        .await;
    }

    /// Waits until `count` stand in the fair queue of this name.
    pub(crate) async fn queued(&self, name: &str, count: usize) {
        let mut eyes = self.eyes();
        until("the queue is that long", || {
            eyes.llen::<_, usize>(format!("redisson_lock_queue:{}", tagged(name))).unwrap() >= count
        })
        .await;
    }
}

/// A name that no other cell uses: channels are not separated by databases.
pub(crate) fn unique(name: &str) -> String {
    static LAST: AtomicU64 = AtomicU64::new(0);
    format!("{name}-{}", LAST.fetch_add(1, Ordering::Relaxed))
}

/// The name as it stands in Redisson's other names.
pub(crate) fn tagged(name: &str) -> String {
    if name.contains('{') { name.to_owned() } else { format!("{{{name}}}") }
}

/// Polls until the condition holds.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    async_until_within(Duration::from_secs(20), what, || std::future::ready(condition())).await;
}

/// One Redisson client: one owner per thread.
#[derive(Clone, Debug)]
pub(crate) struct Java {
    driver: Arc<Driver>,
    client: Arc<Open>,
}

#[derive(Debug)]
struct Open {
    name: String,
    driver: Arc<Driver>,
}

impl Drop for Open {
    fn drop(&mut self) {
        // Nobody waits for it: the threads of the shared process go in their own time.
        drop(self.driver.tell(&self.name, "end", "client close"));
    }
}

impl Java {
    async fn open(driver: Arc<Driver>, server: &Server, database: u32, watchdog: Duration) -> Self {
        let (name, watchdog, idle) = (unique("client"), watchdog.as_millis(), driver.version.idle_timeout());
        let command = format!("client open redis://127.0.0.1:{} {database} {watchdog} {idle}", server.port);
        driver.tell(&name, "open", &command).value().await;
        Self { client: Arc::new(Open { name, driver: Arc::clone(&driver) }), driver }
    }

    pub(crate) fn thread(&self, name: &str) -> Thread {
        Thread { java: self.clone(), name: name.to_owned() }
    }
}

/// One thread of a Redisson client.
#[derive(Clone, Debug)]
pub(crate) struct Thread {
    java: Java,
    name: String,
}

impl Thread {
    /// Sends a command.
    pub(crate) fn tell(&self, command: impl AsRef<str>) -> Told {
        self.java.driver.tell(&self.java.client.name, &self.name, command.as_ref())
    }

    /// Sends a command and waits for its answer, which is no exception.
    pub(crate) async fn ask(&self, command: impl AsRef<str>) -> Value {
        self.tell(command).value().await
    }

    /// Its owner, as the wire has it.
    pub(crate) async fn owner(&self) -> String {
        self.ask("client owner").await.as_str().expect("a string").to_owned()
    }
}
