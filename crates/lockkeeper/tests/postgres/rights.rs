//! The rights that are printed are enough for everything, and each of them is checked when connecting.

use std::time::Duration;

use lockkeeper::{Client, ErrorKind};
use lockkeeper_testkit::poll::async_until_within;

use crate::bench::{Bench, plain};

const LEASE: Duration = Duration::from_secs(20);

async fn client(url: &str) -> Client {
    Client::builder().lease(LEASE).connect(url).await.expect("a running server")
}

/// The statements that `lockkeeper init --print` prints for a user who does not own the tables.
fn printed_grants(url: &str) -> String {
    let all = Client::setup_sql(url).unwrap().expect("a store with tables");
    all.lines().filter(|line| line.starts_with("GRANT")).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn a_user_with_exactly_the_printed_rights_does_everything() {
    let Some(bench) = Bench::open("least rights").await else { return };
    let owner = plain(bench.server.port).await;
    owner.batch_execute("CREATE ROLE least LOGIN").await.unwrap();
    let url = bench.url.replace("postgres@", "least@");
    let error = Client::connect(&url).await.expect_err("no rights yet");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("GRANT SELECT, INSERT, UPDATE, DELETE ON"), "{error}");
    owner.batch_execute(&printed_grants(&url)).await.unwrap();

    let (ours, theirs) = (client(&url).await, client(&url).await);
    let guard = ours.mutex("m").lock().await.unwrap();
    let waiter = tokio::spawn({
        let mutex = theirs.mutex("m");
        async move { mutex.lock().timeout(LEASE).await.unwrap().release().await.unwrap() }
    });
    // The waiter has marked the row.
    async_until_within(LEASE, "the waiter waits", || async {
        let marked = format!("SELECT count(*) FROM {}.lockkeeper_head WHERE watched > 0", bench.schema);
        owner.query_one(&marked, &[]).await.unwrap().get::<_, i64>(0) == 1
    })
    .await;
    guard.extend(LEASE * 2).await.unwrap();
    guard.release().await.unwrap();
    waiter.await.unwrap();
    ours.fair_mutex("f").lock().await.unwrap().release().await.unwrap();
    let reader = ours.rwlock("rw").read().await.unwrap();
    assert!(theirs.rwlock("rw").try_write().await.unwrap().is_none());
    reader.release().await.unwrap();
    ours.rwlock("rw").write().await.unwrap().release().await.unwrap();
    ours.semaphore("s", 2).acquire().await.unwrap().release().await.unwrap();
    let number = ours.counting_semaphore("n");
    number.release(2).await.unwrap();
    number.acquire(1).await.unwrap();
    let latch = ours.latch("l");
    assert!(latch.try_set(1).await.unwrap());
    latch.count_down().await.unwrap();
    ours.multi_lock(["a", "b"]).lock().await.unwrap().release().await.unwrap();
    let kept = ours.mutex("listed").lock().await.unwrap();
    assert_eq!(ours.list("listed").await.unwrap().len(), 1);
    ours.force_release("listed").await.unwrap();
    drop(kept);
    let found = Client::examine(&url).await.unwrap().findings;
    let rights = found.iter().find(|found| found.about == "rights").expect("doctor speaks of rights");
    assert!(rights.says.contains("UPDATE (floor) on lockkeeper_store"), "{rights:?}");

    // Idle rows are removed with these rights too.
    let idle = format!("UPDATE {}.lockkeeper_head SET touched = 0, watched = 0, token = 1 WHERE name = 'f'", bench.schema);
    owner.batch_execute(&idle).await.unwrap();
    let sweeper = client(&url).await;
    let guard = sweeper.mutex("held").lock().await.unwrap();
    async_until_within(LEASE, "the idle row is removed", || async {
        let left = format!("SELECT count(*) FROM {}.lockkeeper_head WHERE name = 'f'", bench.schema);
        owner.query_one(&left, &[]).await.unwrap().get::<_, i64>(0) == 0
    })
    .await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn each_missing_right_is_named_when_connecting() {
    let Some(bench) = Bench::open("missing rights").await else { return };
    let owner = plain(bench.server.port).await;
    owner.batch_execute("CREATE ROLE lacks LOGIN").await.unwrap();
    let url = bench.url.replace("postgres@", "lacks@");
    owner.batch_execute(&printed_grants(&url)).await.unwrap();
    let schema = &bench.schema;
    let all = ["head", "part", "client"]
        .into_iter()
        .flat_map(|table| ["SELECT", "INSERT", "UPDATE", "DELETE"].map(|right| (right, table)));
    for (right, table) in all.chain([("UPDATE (floor)", "store")]) {
        owner.batch_execute(&format!("REVOKE {right} ON {schema}.lockkeeper_{table} FROM lacks")).await.unwrap();
        let error = Client::connect(&url).await.expect_err(right);
        let named = format!("{right} on lockkeeper_{table}");
        assert!(error.kind() == ErrorKind::Denied && error.to_string().contains(&named), "{right} on {table}: {error}");
        owner.batch_execute(&format!("GRANT {right} ON {schema}.lockkeeper_{table} TO lacks")).await.unwrap();
    }
    drop(client(&url).await);
}

/// What is printed creates everything that a user needs who may create nothing.
#[tokio::test]
async fn the_printed_sql_is_all_that_an_administrator_runs() {
    let Some(bench) = Bench::open("the printed SQL").await else { return };
    let owner = plain(bench.server.port).await;
    owner.batch_execute("CREATE ROLE told LOGIN").await.unwrap();
    let url = format!("postgres://told@127.0.0.1:{}/postgres?sslmode=disable&schema=printed%20'one", bench.server.port);
    let sql = Client::setup_sql(&url).unwrap().expect("a store with tables");
    let error = Client::connect(&url).await.expect_err("nothing is there");
    assert!(error.kind() == ErrorKind::Denied && error.to_string().contains(&sql), "{error}");
    // Twice does no harm.
    owner.batch_execute(&sql).await.unwrap();
    owner.batch_execute(&sql).await.unwrap();
    client(&url).await.mutex("m").lock().await.unwrap().release().await.unwrap();
}
