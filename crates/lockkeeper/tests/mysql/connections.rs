//! Connections that break, servers that restart, and what is wrong told in words.

use std::time::Duration;

use lockkeeper::{Client, ErrorKind};
use lockkeeper_testkit::mysql::Mysql;
use lockkeeper_testkit::poll::async_until_within;

use super::FLAVOUR;
use super::bench::{Bench, plain};
use super::certificates;

const LEASE: Duration = Duration::from_secs(20);

async fn client(url: &str) -> Client {
    Client::builder().lease(LEASE).connect(url).await.expect("a running server")
}

#[tokio::test]
async fn connections_that_are_killed_cost_no_lock() {
    let Some(bench) = Bench::open("killed connections").await else { return };
    let owner = bench.plain().await;
    owner.run("CREATE USER killed@'%'").await;
    owner.run(format!("GRANT ALL ON {}.* TO killed@'%'", bench.database)).await;
    let url = bench.url.replace("root@", "killed@");
    let (ours, theirs) = (client(&url).await, client(&url).await);
    let guard = ours.mutex("m").lock().await.unwrap();
    let waiter = tokio::spawn({
        let theirs = theirs.clone();
        async move { theirs.mutex("m").lock().await.unwrap() }
    });
    bench.until_waited_for("m").await;
    let all = "SELECT id FROM information_schema.processlist WHERE user = 'killed' AND command <> 'Killed'";
    for kind in ["CONNECTION", "QUERY", "HARD CONNECTION"] {
        // A waiter that lost its connection looks again after a pause, and then connects.
        let connected = || async { !owner.all::<u64>(all).await.is_empty() };
        async_until_within(LEASE, "the waiter is connected", connected).await;
        for id in owner.all::<u64>(all).await {
            // It may have ended by itself.
            let _ = owner.try_run(&format!("KILL {kind} {id}")).await;
        }
    }
    assert!(guard.is_valid());
    guard.release().await.expect("never lost");
    let guard = tokio::time::timeout(Duration::from_secs(20), waiter).await.expect("it gets its turn").unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_server_that_crashes_and_restarts_knows_its_locks() {
    if let Some(why) = Mysql::missing(FLAVOUR) {
        return lockkeeper::conformance::skip("a restart", &why);
    }
    let mut server = Mysql::start(FLAVOUR, &[]);
    let url = server.url(&server.fresh_database());
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
    let (port, database) = (bench.server.port, bench.database.as_str());
    let owner = plain(port, database).await;
    owner.run("CREATE USER poor@'%' IDENTIFIED BY 'right'").await;
    owner.run("CREATE USER single@'%' WITH MAX_USER_CONNECTIONS 1").await;
    owner.run(format!("GRANT ALL ON {database}.* TO single@'%'")).await;
    let to = |user: &str, database: &str, table: &str| {
        format!("mysql://{user}@127.0.0.1:{port}/{database}?ssl-mode=disabled&table={table}")
    };
    drop(client(&to("root", database, "newer")).await);
    owner.run("UPDATE newer_store SET layout = 99").await;
    drop(client(&to("root", database, "odd")).await);
    owner.run("ALTER TABLE odd_head DROP COLUMN touched").await;
    drop(client(&to("root", database, "half")).await);
    owner.run("DROP TABLE half_part").await;
    drop(client(&to("root", database, "sorted")).await);
    owner.run("ALTER TABLE sorted_client ENGINE=MyISAM").await;
    let _only = client(&to("single", database, "lockkeeper")).await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = taken.local_addr().unwrap().port();
    drop(taken);
    for (url, kind, says) in [
        (to("poor:wrong", database, "t"), ErrorKind::Denied, "refuses this user or password"),
        (to("poor:right", database, "t"), ErrorKind::Denied, "poor"),
        (to("root", "nowhere", "t"), ErrorKind::Config, "nowhere"),
        (to("root", database, "newer"), ErrorKind::Config, "layout 99"),
        (to("root", database, "odd"), ErrorKind::Config, "has another shape"),
        (to("root", database, "half"), ErrorKind::Config, "lacks others"),
        (to("single", database, "lockkeeper"), ErrorKind::Unavailable, "max_user_connections"),
        (format!("mysql://u@127.0.0.1:{nobody}/d"), ErrorKind::Unavailable, "is the server running there?"),
        (to("root", database, "t").replace("disabled", "required"), ErrorKind::Config, "does not speak TLS"),
    ] {
        let error = Client::connect(&url).await.expect_err(&url);
        assert_eq!(error.kind(), kind, "{url}: {error:?}");
        assert!(error.to_string().contains(says), "{url}: {error}");
        assert!(!format!("{error:?}").contains("wrong@"), "{error:?}");
    }
    let found = Client::examine(&to("root", database, "sorted")).await.unwrap().findings;
    assert!(found.iter().any(|found| found.about == "tables" && found.says.contains("no InnoDB table")), "{found:?}");
    let found = Client::examine(&bench.url).await.unwrap().findings;
    for about in
        ["version", "rights", "durability", "failover", "clock", "isolation", "row locks", "connections", "notifications"]
    {
        assert!(found.iter().any(|found| found.about == about), "{about}: {found:?}");
    }
}

/// A server of another kind, and one that says nothing.
#[tokio::test]
async fn a_foreign_or_silent_server_is_told_from_a_good_one() {
    use tokio::io::AsyncWriteExt as _;
    let Some(bench) = Bench::open("a foreign server").await else { return };
    let foreign = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (foreign_port, silent_port) = (foreign.local_addr().unwrap().port(), silent.local_addr().unwrap().port());
    tokio::spawn(async move {
        loop {
            let (mut caller, _) = foreign.accept().await.unwrap();
            let _ = caller.write_all(b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n").await;
        }
    });
    let url = format!("mysql://u@127.0.0.1:{foreign_port}/d?ssl-mode=disabled&connect-timeout=2");
    let error = Client::connect(&url).await.expect_err("no database");
    assert!(matches!(error.kind(), ErrorKind::Config | ErrorKind::Unavailable), "{error:?}");
    // One that accepts and says nothing does not hide a good one behind it.
    let both = bench.url.replace("@127", &format!("@127.0.0.1:{silent_port},127"));
    let client = client(&format!("{both}&connect-timeout=1")).await;
    client.mutex("m").lock().await.unwrap().release().await.unwrap();
    drop(silent);
}

/// Two servers in a URL: the one that only reads is passed by.
#[tokio::test]
async fn a_server_that_only_reads_is_refused_or_passed_by() {
    if let Some(why) = Mysql::missing(FLAVOUR) {
        return lockkeeper::conformance::skip("a read-only server", &why);
    }
    let (reads, writes) = (Mysql::start(FLAVOUR, &["--read-only=ON"]), Mysql::shared(FLAVOUR));
    reads.run("CREATE DATABASE IF NOT EXISTS both_of_them");
    writes.run("CREATE DATABASE IF NOT EXISTS both_of_them");
    let error = Client::connect(&reads.url("both_of_them")).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unavailable && error.to_string().contains("only reads"), "{error}");
    let both = format!("mysql://root@127.0.0.1:{},127.0.0.1:{}/both_of_them?ssl-mode=disabled", reads.port, writes.port);
    let client = client(&both).await;
    let guard = client.mutex("m").lock().await.unwrap();
    // A primary that becomes a replica: the next request looks for another one.
    let alone = format!("mysql://root@127.0.0.1:{},127.0.0.1:{}/both_of_them?ssl-mode=disabled", writes.port, reads.port);
    let other = Client::builder().lease(LEASE).connect(&alone).await.unwrap();
    assert!(other.mutex("m").try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn a_unix_socket_is_as_good_as_a_port() {
    let Some(bench) = Bench::open("a Unix socket").await else { return };
    let url = format!("mysql://root@/{}?socket={}", bench.database, bench.server.socket().display());
    client(&url).await.mutex("m").lock().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn certificates_are_checked_as_the_mode_says() {
    if let Some(why) = Mysql::missing(FLAVOUR) {
        return lockkeeper::conformance::skip("TLS", &why);
    }
    let folder = std::env::temp_dir().join(format!("lockkeeper-{}-tls-{}", FLAVOUR.name(), std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    certificates::create(&folder);
    let file = |name: &str| folder.join(name).display().to_string();
    let options = [format!("--ssl-cert={}", file("server.pem")), format!("--ssl-key={}", file("server.key"))];
    let server = Mysql::start(FLAVOUR, &[&options[0], &options[1], "--require-secure-transport=ON"]);
    let database = server.fresh_database();
    let to = |host: &str, mode: &str| format!("mysql://root@{host}:{}/{database}?{mode}", server.port);
    for (url, fits) in [
        (to("localhost", "ssl-mode=required"), true),
        (to("localhost", "ssl-mode=preferred"), true),
        (to("localhost", &format!("ssl-ca={}", file("ca.pem"))), true),
        (to("127.0.0.1", &format!("ssl-mode=verify-identity&ssl-ca={}", file("ca.pem"))), false),
        (to("localhost", &format!("ssl-mode=verify-identity&ssl-ca={}", file("other.pem"))), false),
        (to("localhost", &format!("ssl-mode=verify-identity&ssl-ca={}", file("absent.pem"))), false),
        (to("localhost", "ssl-mode=disabled"), false),
    ] {
        let connected = Client::connect(&url).await;
        assert_eq!(connected.is_ok(), fits, "{url}: {connected:?}");
        if let Ok(client) = connected {
            client.mutex("m").lock().await.unwrap().release().await.unwrap();
        }
    }
    let _ = std::fs::remove_dir_all(folder);
}
