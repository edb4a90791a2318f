//! What a failover may forget: with a synchronous standby no grant that was answered, without one the last of them.

use std::time::Duration;

use lockkeeper::backend::{Finding, Verdict};
use lockkeeper::name::Name;
use lockkeeper::runtime::Runtime;
use lockkeeper::{Client, ErrorKind};
use lockkeeper_testkit::poll::async_until_within;
use lockkeeper_testkit::postgres::Postgres;

use crate::bench::{self, ask, is_granted, owner, plain, release};

const LONG: Duration = Duration::from_secs(20);

/// A primary and its standby, and the URL that names both.
struct Pair {
    primary: Postgres,
    standby: Postgres,
    url: String,
}

impl Pair {
    /// `None`: there is no server, and that was said.
    async fn start(test: &str) -> Option<Self> {
        if let Some(why) = Postgres::missing() {
            lockkeeper::conformance::skip(test, &why);
            return None;
        }
        let primary = Postgres::start(&[]);
        let standby = Postgres::standby_of(&primary);
        let hosts = format!("127.0.0.1:{},127.0.0.1:{}", primary.port, standby.port);
        Some(Self { primary, standby, url: format!("postgres://postgres@{hosts}/postgres?sslmode=disable&schema=failover") })
    }

    async fn client(&self) -> Client {
        Client::builder().lease(LONG).connect(&self.url).await.expect("a primary")
    }

    /// Waits until the standby has all that the primary has.
    async fn until_followed(&self) {
        let admin = plain(self.primary.port).await;
        // A release is answered before it is on disk, and only what is there is sent: the position of what was written, not of what is on disk.
        let follows = "SELECT 1 FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_insert_lsn()";
        let followed = async || admin.query_opt(follows, &[]).await.unwrap().is_some();
        async_until_within(LONG, "the standby has everything", followed).await;
    }

    /// Makes commits wait for the standby.
    async fn synchronize(&self) {
        let admin = plain(self.primary.port).await;
        admin.batch_execute("ALTER SYSTEM SET synchronous_standby_names = '*'").await.unwrap();
        admin.batch_execute("SELECT pg_reload_conf()").await.unwrap();
        let synchronous = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'";
        async_until_within(LONG, "the standby is synchronous", async || {
            admin.query_opt(synchronous, &[]).await.unwrap().is_some()
        })
        .await;
    }

    /// What `doctor` says of the primary.
    async fn doctor(&self, about: &str) -> Option<Finding> {
        let found = Client::examine(&self.url).await.expect("a good URL").findings;
        found.into_iter().find(|found| found.about == about)
    }

    /// The standby takes over.
    async fn promote(&self) {
        plain(self.standby.port).await.execute("SELECT pg_promote()", &[]).await.unwrap();
    }
}

#[tokio::test]
async fn with_a_synchronous_standby_a_failover_forgets_no_grant() {
    let Some(mut pair) = Pair::start("a synchronous standby").await else { return };
    let (ours, theirs) = (pair.client().await, pair.client().await);
    let told = pair.doctor("failover").await.expect("doctor speaks of it");
    assert!(told.verdict == Verdict::Doubtful && told.says.contains("set synchronous_standby_names"), "{told:?}");
    pair.synchronize().await;
    let told = pair.doctor("failover").await.expect("doctor speaks of it");
    assert!(told.verdict == Verdict::Fine && told.says.contains("synchronous_standby_names=*"), "{told:?}");
    // A grant that the standby does not have is not answered.
    pair.standby.kill();
    let error = ours.mutex("m").lock().timeout(Duration::from_millis(1_500)).await.expect_err("the standby is away");
    assert!(error.is_busy() || error.is_outage(), "{error:?}");
    pair.standby.start_again();
    let guard = ours.mutex("m").lock().timeout(LONG * 2).await.expect("the standby is back");
    let token = guard.token();
    pair.primary.kill();
    pair.promote().await;
    let found = async || theirs.mutex("other").try_lock().await.is_ok();
    async_until_within(LONG, "the new primary is found", found).await;
    assert!(theirs.mutex("m").try_lock().await.unwrap().is_none(), "the grant survived");
    guard.extend(LONG * 2).await.expect("never lost");
    guard.release().await.unwrap();
    let next = theirs.mutex("m").lock().timeout(LONG).await.unwrap();
    assert!(next.token() > token, "{:?} after {token:?}", next.token());
    next.release().await.unwrap();
}

/// The control: the same without the setting. There are two holders for a while; the token of the second one is larger, and the fence on the new primary
/// refuses the first one.
#[tokio::test]
async fn without_a_synchronous_standby_a_failover_may_forget_a_grant() {
    let Some(mut pair) = Pair::start("an asynchronous standby").await else { return };
    let (ours, theirs) = (pair.client().await, pair.client().await);
    ours.mutex("m").lock().await.unwrap().release().await.unwrap();
    pair.until_followed().await;
    pair.standby.kill();
    let guard = ours.mutex("m").lock().timeout(LONG).await.expect("answered without the standby");
    let fence = ours.sql_fence(&guard).unwrap();
    pair.primary.kill();
    pair.standby.start_again();
    pair.promote().await;
    let second = theirs.mutex("m").lock().timeout(LONG / 2).await.expect("the new primary knows of no holder");
    assert!(guard.is_valid(), "the first holder has not been told yet: two holders");
    assert!(second.token() > guard.token(), "{:?} after {:?}", second.token(), guard.token());
    let refused = plain(pair.standby.port).await.batch_execute(fence.literal()).await.expect_err("an old token");
    let says = refused.as_db_error().map(|error| error.message().to_owned());
    assert!(says.is_some_and(|says| says.contains("lockkeeper: the lock was lost")), "{refused:?}");
    let error = guard.extend(LONG).await.expect_err("told at the next renewal");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error:?}");
    second.release().await.unwrap();
}

/// A client remembers the row of a grant that the new primary does not have, and releases that grant while another client holds the lock. The control: versions
/// that are counted would come again on the new primary, and the release frees the hold of the other client.
#[tokio::test]
async fn a_release_of_a_forgotten_grant_frees_no_other_hold() {
    let Some(mut pair) = Pair::start("a release of a forgotten grant").await else { return };
    let runtime = Runtime::system();
    let (ours, theirs) = (bench::connect(&pair.url, &runtime).await, bench::connect(&pair.url, &runtime).await);
    let names = [("random", false), ("counted", true)];
    for (name, _) in names {
        assert!(is_granted(ours.acquire(ask(&runtime, name, 1)).await.unwrap()));
        assert!(ours.release(release(name, 1)).await.unwrap().held);
    }
    pair.until_followed().await;
    pair.standby.kill();
    // The tail, which the standby does not get.
    for (name, _) in names {
        assert!(is_granted(ours.acquire(ask(&runtime, name, 2)).await.unwrap()));
    }
    let version = "SELECT version FROM failover.lockkeeper_head WHERE name = $1";
    let before = plain(pair.primary.port).await;
    let mut remembered = Vec::new();
    for (name, _) in names {
        remembered.push(before.query_one(version, &[&name.as_bytes()]).await.unwrap().get::<_, i64>(0));
    }
    drop(before);
    pair.primary.kill();
    pair.standby.start_again();
    pair.promote().await;
    // A request that fails makes its client forget the row. So the new primary is found with another name.
    for (number, store) in [(1, &ours), (2, &theirs)] {
        let found = async || store.acquire(ask(&runtime, "other", number)).await.is_ok();
        async_until_within(LONG, "the new primary is found", found).await;
    }
    let after = plain(pair.standby.port).await;
    for ((name, counted), remembered) in names.into_iter().zip(remembered) {
        assert!(is_granted(theirs.acquire(ask(&runtime, name, 3)).await.unwrap()), "the new primary knows of no holder");
        assert_ne!(after.query_one(version, &[&name.as_bytes()]).await.unwrap().get::<_, i64>(0), remembered);
        if counted {
            let write = "UPDATE failover.lockkeeper_head SET version = $2 WHERE name = $1";
            after.execute(write, &[&name.as_bytes(), &remembered]).await.unwrap();
        }
        let released = ours.release(release(name, 2)).await.unwrap();
        assert_eq!(released.held, counted, "{name}: {released:?}");
        let seen = theirs.inspect(Name::new(name).unwrap()).await.unwrap();
        let held = seen.is_some_and(|seen| seen.holders.iter().any(|holder| holder.owner == owner(3).to_string()));
        assert_eq!(held, !counted, "{name}: versions that are counted: {counted}");
    }
}
