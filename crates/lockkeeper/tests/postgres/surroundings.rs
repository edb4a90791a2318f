//! What stands around a server: a pooler, certificates, a standby that takes over, a host that says nothing.

use std::time::Duration;

use lockkeeper::backend::Verdict;
use lockkeeper::{Client, ErrorKind};
use lockkeeper_testkit::pgbouncer::PgBouncer;
use lockkeeper_testkit::poll::async_until_within;
use lockkeeper_testkit::postgres::{Postgres, give};

use crate::bench::{Bench, plain};
use crate::certificates;

const LONG: Duration = Duration::from_secs(20);

async fn client(url: &str, lease: Duration) -> Client {
    Client::builder().lease(lease).connect(url).await.expect("a running server")
}

/// PgBouncer in transaction mode: each transaction may run on another connection of the server.
#[tokio::test]
async fn behind_a_pooler_in_transaction_mode_everything_works_by_polling() {
    let Some(bench) = Bench::open("a pooler").await else { return };
    if let Some(why) = PgBouncer::missing() {
        return lockkeeper::conformance::skip("a pooler", &why);
    }
    let pooler = PgBouncer::start(bench.server.port);
    let url = bench.url.replace(&format!(":{}/", bench.server.port), &format!(":{}/", pooler.port));
    let polling = format!("{url}&push=off");
    let mut clients = Vec::new();
    for _ in 0..6 {
        clients.push(client(&polling, LONG).await);
    }
    // More clients than connections: nothing may depend on the session.
    let mut tasks = tokio::task::JoinSet::new();
    for (number, client) in (0_usize..).zip(clients.clone()) {
        tasks.spawn(async move {
            for turn in 0..5 {
                client.mutex("shared").lock().timeout(LONG).await.unwrap().release().await.unwrap();
                let fair = client.fair_mutex("queue").lock().timeout(LONG).await.unwrap();
                fair.release().await.unwrap();
                let own = client.mutex(format!("own {number} {turn}")).lock().await.unwrap();
                own.extend(LONG * 2).await.unwrap();
                own.release().await.unwrap();
            }
        });
    }
    tokio::time::timeout(Duration::from_secs(120), tasks.join_all()).await.expect("everybody gets a turn");
    // A release is learned of by a look, long before a waiter would ask by itself.
    let guard = clients[0].mutex("m").lock().await.unwrap();
    let waiter = tokio::spawn({
        let mutex = clients[1].mutex("m");
        async move { mutex.lock().timeout(LONG).await.unwrap().release().await.unwrap() }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    guard.release().await.unwrap();
    tokio::time::timeout(LONG, waiter).await.expect("woken").unwrap();
    let found = Client::examine(&polling).await.unwrap().findings;
    let told = found.iter().find(|found| found.about == "notifications").expect("doctor speaks of it");
    assert!(told.says.contains("100 ms late"), "{told:?}");
}

#[tokio::test]
async fn certificates_are_checked_as_the_mode_says() {
    if let Some(why) = Postgres::missing() {
        return lockkeeper::conformance::skip("TLS", &why);
    }
    let folder = std::env::temp_dir().join(format!("lockkeeper-postgres-tls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    certificates::create(&folder);
    give(&folder);
    let file = |name: &str| folder.join(name).display().to_string();
    let (certificate, key) = (format!("ssl_cert_file={}", file("server.pem")), format!("ssl_key_file={}", file("server.key")));
    let server = Postgres::start(&["ssl=on", &certificate, &key]);
    let to = |host: &str, mode: &str| format!("postgres://postgres@{host}:{}/postgres?{mode}&schema=tls", server.port);
    for (url, fits) in [
        (to("localhost", "sslmode=require"), true),
        (to("localhost", &format!("sslmode=verify-full&sslrootcert={}", file("ca.pem"))), true),
        (to("127.0.0.1", &format!("sslmode=verify-ca&sslrootcert={}", file("ca.pem"))), true),
        (to("127.0.0.1", &format!("sslmode=verify-full&sslrootcert={}", file("ca.pem"))), false),
        (to("localhost", &format!("sslmode=verify-ca&sslrootcert={}", file("other.pem"))), false),
        (to("localhost", &format!("sslmode=require&sslrootcert={}", file("other.pem"))), false),
        (to("localhost", &format!("sslmode=verify-ca&sslrootcert={}", file("absent.pem"))), false),
    ] {
        let connected = Client::connect(&url).await;
        assert_eq!(connected.is_ok(), fits, "{url}: {connected:?}");
        if let Ok(client) = connected {
            // With a second connection, which listens.
            let guard = client.mutex("m").lock().await.unwrap();
            assert!(client.mutex("m").lock().timeout(Duration::from_millis(200)).await.is_err());
            guard.release().await.unwrap();
        }
    }
    let _ = std::fs::remove_dir_all(folder);
}

/// A host that accepts connections and says nothing does not hide the next one.
#[tokio::test]
async fn a_silent_host_does_not_hide_a_good_one() {
    let Some(bench) = Bench::open("a silent host").await else { return };
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let url = bench.url.replace("@127.0.0.1", &format!("@127.0.0.1:{port},127.0.0.1"));
    let client = client(&format!("{url}&connect_timeout=1"), LONG).await;
    let guard = client.mutex("m").lock().await.unwrap();
    // The connection that listens finds the good one as well.
    let waiter = tokio::spawn({
        let mutex = client.mutex("m");
        async move { mutex.lock().timeout(LONG).await.unwrap().release().await.unwrap() }
    });
    guard.release().await.unwrap();
    waiter.await.unwrap();
    drop(silent);
}

/// A standby that stands first in the URL is passed by. Alone it is refused in words.
#[tokio::test]
async fn a_standby_is_passed_by_or_refused() {
    if let Some(why) = Postgres::missing() {
        return lockkeeper::conformance::skip("a standby first", &why);
    }
    let primary = Postgres::start(&[]);
    let standby = Postgres::standby_of(&primary);
    let to = |hosts: &str| format!("postgres://postgres@{hosts}/postgres?sslmode=disable&schema=first");
    let (first, second) = (format!("127.0.0.1:{}", standby.port), format!("127.0.0.1:{}", primary.port));
    let ours = client(&to(&format!("{first},{second}")), LONG).await;
    let guard = ours.mutex("m").lock().await.unwrap();
    // The connection that listens passes it by as well.
    let waiter = tokio::spawn({
        let mutex = ours.mutex("m");
        async move { mutex.lock().timeout(LONG).await.unwrap().release().await.unwrap() }
    });
    guard.release().await.unwrap();
    waiter.await.unwrap();
    let error = Client::connect(&to(&first)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.to_string().contains("is a standby, which only reads; name the primary"), "{error}");
    // Doctor says the same of it, and nothing of the others. Behind both hosts it finds the primary.
    let found = Client::examine(&to(&first)).await.unwrap().findings;
    let [told] = &found[..] else { panic!("one finding: {found:?}") };
    assert_eq!((told.about, told.verdict), ("server", Verdict::Unfit(ErrorKind::Unavailable)), "{told:?}");
    let words =
        "/postgres?schema=first is a standby, which only reads; name the primary, or all servers: postgres://a,b/database";
    let words = format!("{first}{words}");
    assert!(told.says.contains(&words), "{told:?}");
    let found = Client::examine(&to(&format!("{first},{second}"))).await.unwrap().findings;
    let primary = found.iter().any(|told| told.about == "version" && told.says.ends_with(", the primary"));
    assert!(primary, "{found:?}");
}

/// A standby is promoted that did not get the last commits: holders of what it does not know are told, and tokens still grow.
#[tokio::test]
async fn a_standby_promoted_without_its_tail_tells_holders_and_tokens_grow() {
    if let Some(why) = Postgres::missing() {
        return lockkeeper::conformance::skip("a promoted standby", &why);
    }
    let lease = Duration::from_secs(3);
    let mut primary = Postgres::start(&[]);
    let mut standby = Postgres::standby_of(&primary);
    let ports = (primary.port, standby.port);
    let url = format!("postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres?sslmode=disable&schema=failover", ports.0, ports.1);
    let (ours, theirs) = (client(&url, lease).await, client(&url, lease).await);
    let kept = ours.mutex("kept").lock().await.unwrap();
    let first = ours.mutex("m").lock().await.unwrap();
    let eyes = plain(ports.1).await;
    async_until_within(LONG, "the standby has it", || async {
        let held = "SELECT count(*) FROM failover.lockkeeper_head WHERE body IS NOT NULL";
        eyes.query_one(held, &[]).await.is_ok_and(|row| row.get::<_, i64>(0) == 2)
    })
    .await;
    drop(eyes);
    standby.kill();
    // The tail, which the standby does not get: another holder of m.
    first.release().await.unwrap();
    let second = theirs.mutex("m").lock().await.unwrap();
    let token = second.token().unwrap();
    primary.kill();
    standby.start_again();
    let admin = plain(ports.1).await;
    admin.execute("SELECT pg_promote()", &[]).await.unwrap();
    // The new primary believes that the first one holds m: the second one is told at its next renewal, or when its lease is over.
    tokio::time::timeout(LONG, second.lost()).await.expect("the holder is told");
    assert!(!second.is_valid());
    let next = theirs.mutex("m").lock().timeout(LONG).await.unwrap();
    assert!(next.token().unwrap() > token, "{:?} after {token}", next.token());
    next.release().await.unwrap();
    drop(kept);
}
