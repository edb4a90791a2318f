//! Connections that break, servers that restart, and what remains.

use std::time::Duration;

use lockkeeper::{Client, ErrorKind};
use lockkeeper_testkit::poll::async_until_within;
use lockkeeper_testkit::postgres::Postgres;

use crate::bench::{Bench, plain};

const LEASE: Duration = Duration::from_secs(20);

async fn client(url: &str) -> Client {
    Client::builder().lease(LEASE).connect(url).await.expect("a running server")
}

/// Ends every connection of the store; gives how many there were.
async fn end_connections(plain: &tokio_postgres::Client) -> i64 {
    let ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1";
    plain.query_one(ended, &[&"broken"]).await.expect("a superuser").get(0)
}

#[tokio::test]
async fn a_connection_that_was_ended_costs_no_lock() {
    let Some(bench) = Bench::open("ended connections").await else { return };
    let url = format!("{}&application_name=broken", bench.url);
    let (ours, theirs) = (client(&url).await, client(&url).await);
    let eyes = bench.plain().await;
    let guard = ours.mutex("m").lock().await.unwrap();
    let waiter = tokio::spawn({
        let theirs = theirs.clone();
        async move { theirs.mutex("m").lock().await.unwrap() }
    });
    // The waiter listens: both stores have a connection, one keeps, one is told.
    async_until_within(Duration::from_secs(20), "everybody is connected", || async {
        let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1";
        eyes.query_one(count, &[&"broken"]).await.unwrap().get::<_, i64>(0) >= 4
    })
    .await;
    for _ in 0..3 {
        assert!(end_connections(&eyes).await >= 1);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(guard.is_valid());
    guard.release().await.expect("never lost");
    let guard = tokio::time::timeout(Duration::from_secs(20), waiter).await.expect("it gets its turn").unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_server_that_crashes_and_restarts_knows_its_locks() {
    if let Some(why) = Postgres::missing() {
        return lockkeeper::conformance::skip("a restart", &why);
    }
    let mut server = Postgres::start(&[]);
    let url = server.fresh_url();
    let ours = client(&url).await;
    let guard = ours.mutex("m").lock().await.unwrap();
    let token = guard.token().unwrap();
    server.kill();
    let error = ours.mutex("other").lock().timeout(Duration::from_millis(300)).await.unwrap_err();
    assert!(error.is_outage(), "{error:?}");
    server.start_again();
    let theirs = client(&url).await;
    assert!(theirs.mutex("m").try_lock().await.unwrap().is_none(), "the server remembers who holds it");
    assert!(guard.is_valid());
    guard.release().await.expect("never lost");
    let next = theirs.mutex("m").lock().timeout(Duration::from_secs(20)).await.unwrap();
    assert!(next.token().unwrap() > token);
    next.release().await.unwrap();
}

#[tokio::test]
async fn what_is_wrong_is_told_in_words() {
    let Some(bench) = Bench::open("what is wrong").await else { return };
    let port = bench.server.port;
    let plain = plain(port).await;
    plain.batch_execute("CREATE ROLE poor LOGIN; CREATE SCHEMA closed; CREATE SCHEMA newer").await.unwrap();
    let to = |user: &str, database: &str, schema: &str| {
        format!("postgres://{user}@127.0.0.1:{port}/{database}?sslmode=disable&schema={schema}")
    };
    drop(client(&to("postgres", "postgres", "newer")).await);
    plain.batch_execute("UPDATE newer.lockkeeper_store SET layout = 99").await.unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = taken.local_addr().unwrap().port();
    drop(taken);
    for (url, kind, says) in [
        (to("poor", "postgres", "closed"), ErrorKind::Denied, "CREATE TABLE IF NOT EXISTS \"closed\".lockkeeper_head"),
        (to("postgres", "nowhere", "s"), ErrorKind::Config, "does not exist"),
        (to("nobody-known", "postgres", "s"), ErrorKind::Denied, "nobody-known"),
        (to("postgres", "postgres", "newer"), ErrorKind::Config, "layout 99"),
        (format!("postgres://u@127.0.0.1:{nobody}/d"), ErrorKind::Unavailable, "is the server running there?"),
        (format!("{}&sslmode=require", bench.server.url()), ErrorKind::Config, "does not speak TLS"),
    ] {
        let error = Client::connect(&url).await.expect_err(&url);
        assert_eq!(error.kind(), kind, "{url}: {error:?}");
        assert!(error.to_string().contains(says), "{url}: {error}");
    }
    // Rights on the tables are enough.
    drop(client(&to("postgres", "postgres", "closed")).await);
    let rights =
        "GRANT USAGE ON SCHEMA closed TO poor; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA closed TO poor";
    plain.batch_execute(rights).await.unwrap();
    let poor = client(&to("poor", "postgres", "closed")).await;
    let guard = poor.rwlock("m").write().await.unwrap();
    guard.release().await.unwrap();
}

/// Two servers in a URL: the one that only reads is passed by.
#[tokio::test]
async fn a_server_that_only_reads_is_refused_or_passed_by() {
    if let Some(why) = Postgres::missing() {
        return lockkeeper::conformance::skip("a read-only server", &why);
    }
    let (reads, writes) = (Postgres::start(&["default_transaction_read_only=on"]), Postgres::shared());
    let error = Client::connect(&reads.url()).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unavailable && error.to_string().contains("only reads"), "{error}");
    let both =
        format!("postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres?sslmode=disable&schema=both", reads.port, writes.port);
    let client = client(&both).await;
    client.mutex("m").lock().await.unwrap().release().await.unwrap();
}

/// A pooler in transaction mode gives a connection to another process after each transaction: nothing may be kept in the session.
#[tokio::test]
async fn without_push_nothing_is_kept_in_the_session() {
    if let Some(why) = Postgres::missing() {
        return lockkeeper::conformance::skip("nothing in the session", &why);
    }
    let server = Postgres::start(&["log_statement=all"]);
    let log = || std::fs::read_to_string(server.directory().join("log")).expect("a log");
    for push in ["off", "on"] {
        let client = client(&format!("{}&push={push}", server.fresh_url())).await;
        for _ in 0..3 {
            client.mutex("m").lock().await.unwrap().release().await.unwrap();
        }
        // With push it is as the words are looked for: a statement by name, and a setting.
        let kept = ["execute s", "SET jit"].map(|words| log().contains(words));
        assert_eq!(kept, [push == "on"; 2], "push={push}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_unix_socket_is_as_good_as_a_port() {
    if let Some(why) = Postgres::missing() {
        return lockkeeper::conformance::skip("a Unix socket", &why);
    }
    let server = Postgres::start(&["unix_socket_directories=/tmp"]);
    for mode in ["", "&sslmode=disable"] {
        let url = format!("postgres://postgres@/postgres?host=/tmp&port={}&schema=socket{mode}", server.port);
        client(&url).await.mutex("m").lock().await.unwrap().release().await.unwrap();
    }
    let url = format!("postgres://postgres@/postgres?host=/tmp&port={}&sslmode=require", server.port);
    assert!(Client::connect(&url).await.is_err(), "TLS needs the name of a server");
}
