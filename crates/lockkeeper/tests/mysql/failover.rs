//! A replica of MariaDB takes over: both servers are in the URL, and clients find the one that can be written to.

use std::time::Duration;

use lockkeeper::{Client, ErrorKind};
use lockkeeper_testkit::mysql::Mysql;
use lockkeeper_testkit::poll::async_until_within;

use super::FLAVOUR;

const LONG: Duration = Duration::from_secs(20);

const DATABASE: &str = "failover";

/// A primary and a replica that only reads.
struct Pair {
    primary: Mysql,
    replica: Mysql,
}

impl Pair {
    /// `None`: there is no server, and that was said.
    fn start(test: &str) -> Option<Self> {
        if let Some(why) = Mysql::missing(FLAVOUR) {
            lockkeeper::conformance::skip(test, &why);
            return None;
        }
        let primary = Mysql::start(FLAVOUR, &["--log-bin=changes", "--server-id=1"]);
        let replica = Mysql::start(FLAVOUR, &["--server-id=2", "--read-only=ON"]);
        let from = format!("MASTER_HOST='127.0.0.1', MASTER_PORT={}, MASTER_USER='root'", primary.port);
        let place = "MASTER_LOG_FILE='changes.000001', MASTER_LOG_POS=4";
        replica.run(&format!("CHANGE MASTER TO {from}, {place}; START REPLICA"));
        // A user of ours, not the superuser, who may write to a server that only reads.
        primary.run(&format!("CREATE DATABASE {DATABASE}; CREATE USER locks@'%'; GRANT ALL ON {DATABASE}.* TO locks@'%'"));
        Some(Self { primary, replica })
    }

    fn url(&self, ports: &[u16]) -> String {
        let hosts: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("mysql://locks@{}/{DATABASE}?ssl-mode=disabled", hosts.join(","))
    }

    async fn client(&self) -> Client {
        let url = self.url(&[self.replica.port, self.primary.port]);
        Client::builder().lease(LONG).connect(&url).await.expect("a primary")
    }

    /// Waits until the replica knows who holds a name.
    async fn until_followed(&self, name: &str) {
        let held = format!("SELECT count(*) FROM {DATABASE}.lockkeeper_head WHERE name = '{name}' AND body IS NOT NULL");
        async_until_within(LONG, "the replica has it", async || self.replica.ask(&held).trim() == "1").await;
    }

    fn promote(&self) {
        self.replica.run("STOP REPLICA; RESET REPLICA ALL; SET GLOBAL read_only = OFF");
    }

    /// After the replica took over: the lock is held, and goes on from one to the other.
    async fn check(&self, guard: lockkeeper::MutexGuard, theirs: &Client) {
        let found = async || theirs.mutex("other").try_lock().await.is_ok();
        async_until_within(LONG, "the new primary is found", found).await;
        assert!(theirs.mutex("m").try_lock().await.unwrap().is_none(), "the grant survived");
        let kept = async || guard.extend(LONG * 2).await.is_ok();
        async_until_within(LONG, "renewed at the new primary", kept).await;
        let token = guard.token();
        guard.release().await.unwrap();
        let next = theirs.mutex("m").lock().timeout(LONG).await.unwrap();
        assert!(next.token() > token, "{:?} after {token:?}", next.token());
        let seen = self.replica.ask(&format!("SELECT token FROM {DATABASE}.lockkeeper_fence WHERE name = 'm'"));
        assert_eq!(next.token().map(|token| token.number().to_string()).as_deref(), Some(seen.trim()), "granted there");
        next.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_replica_that_takes_over_from_a_crashed_primary_is_found() {
    let Some(mut pair) = Pair::start("a crashed primary") else { return };
    let (ours, theirs) = (pair.client().await, pair.client().await);
    let error = Client::connect(&pair.url(&[pair.replica.port])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.to_string().contains("only reads (read_only=ON), a replica perhaps; name the primary"), "{error}");
    let guard = ours.mutex("m").lock().await.unwrap();
    pair.until_followed("m").await;
    pair.primary.kill();
    pair.promote();
    pair.check(guard, &theirs).await;
}

/// The connections to the old primary stay open. It refuses to write, and that is a reason to look for another one.
#[tokio::test]
async fn a_primary_that_becomes_a_replica_is_left() {
    let Some(pair) = Pair::start("a primary that becomes a replica") else { return };
    let (ours, theirs) = (pair.client().await, pair.client().await);
    let guard = ours.mutex("m").lock().await.unwrap();
    pair.primary.run("SET GLOBAL read_only = ON");
    pair.until_followed("m").await;
    pair.promote();
    pair.check(guard, &theirs).await;
}
