//! The rights that are printed are enough for everything, and each of them is checked when connecting.

use std::time::Duration;

use lockkeeper::{Client, ErrorKind};
use lockkeeper_testkit::poll::async_until_within;

use super::bench::{Bench, plain};

const LEASE: Duration = Duration::from_secs(20);

async fn client(url: &str) -> Client {
    Client::builder().lease(LEASE).connect(url).await.expect("a running server")
}

/// The statements that `lockkeeper init --print` prints for a user who may not create tables.
fn printed_grants(url: &str) -> Vec<String> {
    let all = Client::setup_sql(url).unwrap().expect("a store with tables");
    all.lines().filter(|line| line.starts_with("GRANT")).map(|line| line.trim_end_matches(';').to_owned()).collect()
}

#[tokio::test]
async fn a_user_with_exactly_the_printed_rights_does_everything() {
    let Some(bench) = Bench::open("least rights").await else { return };
    let owner = bench.plain().await;
    owner.run("CREATE USER least@'%'").await;
    let url = bench.url.replace("root@", "least@");
    let error = Client::connect(&url).await.expect_err("no rights yet");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    for grant in printed_grants(&url) {
        owner.run(grant).await;
    }

    let (ours, theirs) = (client(&url).await, client(&url).await);
    let guard = ours.mutex("m").lock().await.unwrap();
    let waiter = tokio::spawn({
        let mutex = theirs.mutex("m");
        async move { mutex.lock().timeout(LEASE).await.unwrap().release().await.unwrap() }
    });
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
    // The fence runs with the same rights.
    let fence = ours.sql_fence(&kept).unwrap();
    let fenced = mysql_async::Conn::from_url(format!(
        "mysql://least@127.0.0.1:{}/{}?prefer_socket=false",
        bench.server.port, bench.database
    ));
    mysql_async::prelude::Queryable::query_drop(&mut fenced.await.unwrap(), fence.literal()).await.expect("the holder passes");
    ours.force_release("listed").await.unwrap();
    drop(kept);
    let found = Client::examine(&url).await.unwrap().findings;
    let rights = found.iter().find(|found| found.about == "rights").expect("doctor speaks of rights");
    assert!(rights.says.contains("UPDATE (floor) on lockkeeper_store"), "{rights:?}");

    // Idle rows are removed with these rights too, and tokens are remembered.
    owner.run("UPDATE lockkeeper_head SET touched = 0, token = 77 WHERE name = 'f'").await;
    let sweeper = client(&url).await;
    let guard = sweeper.mutex("held").lock().await.unwrap();
    async_until_within(LEASE, "the idle row is removed", || async {
        owner.first::<i64>("SELECT COUNT(*) FROM lockkeeper_head WHERE name = 'f'").await == Some(0)
    })
    .await;
    assert_eq!(owner.first::<i64>("SELECT COUNT(*) FROM lockkeeper_fence WHERE name = 'f'").await, Some(0));
    assert_eq!(owner.first::<i64>("SELECT floor FROM lockkeeper_store").await, Some(77));
    guard.release().await.unwrap();
}

#[tokio::test]
async fn each_missing_right_is_named_when_connecting() {
    let Some(bench) = Bench::open("missing rights").await else { return };
    let owner = bench.plain().await;
    owner.run("CREATE USER lacks@'%'").await;
    let url = bench.url.replace("root@", "lacks@");
    for grant in printed_grants(&url) {
        owner.run(grant).await;
    }
    let all = ["head", "part", "fence", "client"]
        .into_iter()
        .flat_map(|table| ["SELECT", "INSERT", "UPDATE", "DELETE"].map(|right| (right, table)));
    for (right, table) in all.chain([("UPDATE (floor)", "store")]) {
        owner.run(format!("REVOKE {right} ON {}.lockkeeper_{table} FROM lacks@'%'", bench.database)).await;
        let error = Client::connect(&url).await.expect_err(right);
        let named = format!("{right} on lockkeeper_{table}");
        assert!(error.kind() == ErrorKind::Denied && error.to_string().contains(&named), "{right} on {table}: {error}");
        owner.run(format!("GRANT {right} ON {}.lockkeeper_{table} TO lacks@'%'", bench.database)).await;
    }
    drop(client(&url).await);
}

/// What is printed creates everything that a user needs who may create nothing.
#[tokio::test]
async fn the_printed_sql_is_all_that_an_administrator_runs() {
    let Some(bench) = Bench::open("the printed SQL").await else { return };
    let owner = plain(bench.server.port, &bench.database).await;
    owner.run("CREATE USER told@'%'").await;
    owner.run(format!("GRANT CREATE TEMPORARY TABLES ON {}.* TO told@'%'", bench.database)).await;
    let url = format!("{}&table=printed", bench.url.replace("root@", "told@"));
    let sql = Client::setup_sql(&url).unwrap().expect("a store with tables");
    let error = Client::connect(&url).await.expect_err("nothing is there");
    assert!(error.kind() == ErrorKind::Denied && error.to_string().contains(&sql), "{error}");
    // Twice does no harm.
    for _ in 0..2 {
        for statement in sql.lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join("\n").split(';') {
            if !statement.trim().is_empty() {
                owner.run(statement).await;
            }
        }
    }
    client(&url).await.mutex("m").lock().await.unwrap().release().await.unwrap();
}
