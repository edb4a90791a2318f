//! What `doctor` says of a real server: each finding that warns, beside a server or a setting that gives no reason to.

use lockkeeper::Client;
use lockkeeper::backend::{Finding, Verdict};
use lockkeeper_testkit::pgbouncer::PgBouncer;

use crate::bench::Bench;

async fn findings(url: &str) -> Vec<Finding> {
    Client::examine(url).await.expect("a good URL").findings
}

async fn finding(url: &str, about: &str) -> Option<Finding> {
    findings(url).await.into_iter().find(|found| found.about == about)
}

/// The same URL with settings of the session.
fn with_setting(url: &str, name: &str, value: &str) -> String {
    format!("{url}&options=-c%20{name}%3D{value}")
}

#[tokio::test]
async fn a_usual_server_gives_no_reason_to_warn() {
    let Some(bench) = Bench::open("doctor").await else { return };
    let found = findings(&bench.url).await;
    for about in ["version", "rights", "clock", "isolation", "time limits", "notifications"] {
        let fine = found.iter().any(|found| found.about == about && found.verdict == Verdict::Fine);
        assert!(fine, "{about}: {found:?}");
    }
    assert!(found.iter().all(|found| found.about != "tables"), "{found:?}");
}

#[tokio::test]
async fn tables_that_are_not_logged_are_named() {
    let Some(bench) = Bench::open("unlogged tables").await else { return };
    let plain = bench.plain().await;
    plain.batch_execute("ALTER TABLE lockkeeper_part SET UNLOGGED").await.unwrap();
    let told = finding(&bench.url, "tables").await.expect("doctor speaks of it");
    assert_eq!(told.verdict, Verdict::Doubtful);
    assert!(told.says.contains("not logged: lockkeeper_part;") && told.says.contains("SET LOGGED"), "{told:?}");
    plain.batch_execute("ALTER TABLE lockkeeper_part SET LOGGED").await.unwrap();
    assert_eq!(finding(&bench.url, "tables").await, None);
}

/// The server's clock is more than an hour ahead: a function of the same name stands before that of the server.
#[tokio::test]
async fn a_clock_that_differs_is_told() {
    let Some(bench) = Bench::open("a clock that differs").await else { return };
    let ahead = "CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql
        AS 'SELECT pg_catalog.clock_timestamp() + interval ''1 hour 30 seconds'''";
    bench.plain().await.batch_execute(ahead).await.unwrap();
    let url = with_setting(&bench.url, "search_path", &format!("{}%2Cpg_catalog", bench.schema));
    let told = finding(&url, "clock").await.expect("doctor speaks of it");
    assert!(told.verdict == Verdict::Doubtful && told.says.contains("differ by 36"), "{told:?}");
    assert!(told.says.contains("time service"), "{told:?}");
}

/// A function of the same name stands before that of the server: nobody makes a million transactions for a test.
#[tokio::test]
async fn an_old_transaction_is_told() {
    let Some(bench) = Bench::open("an old transaction").await else { return };
    let old = bench.plain().await;
    old.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await.unwrap();
    assert_eq!(finding(&bench.url, "old transactions").await, None);
    let aged = "CREATE FUNCTION age(xid) RETURNS integer LANGUAGE sql STRICT AS 'SELECT pg_catalog.age($1) + 1234567'";
    bench.plain().await.batch_execute(aged).await.unwrap();
    let url = with_setting(&bench.url, "search_path", &format!("{}%2Cpg_catalog", bench.schema));
    let told = finding(&url, "old transactions").await.expect("doctor speaks of it");
    assert!(told.verdict == Verdict::Doubtful && told.says.contains("transactions old"), "{told:?}");
    old.batch_execute("ROLLBACK").await.unwrap();
}

#[tokio::test]
async fn settings_that_hold_up_statements_are_told() {
    let Some(bench) = Bench::open("settings").await else { return };
    for (name, value, about, verdict, says) in [
        ("statement_timeout", "200", "time limits", Verdict::Doubtful, "SET statement_timeout = '5s'"),
        ("statement_timeout", "5000", "time limits", Verdict::Fine, "statement_timeout=5s"),
        ("lock_timeout", "7", "time limits", Verdict::Fine, "lock_timeout=7ms is not used"),
        ("default_transaction_isolation", "serializable", "isolation", Verdict::Doubtful, "read committed is faster"),
        ("synchronous_commit", "off", "durability", Verdict::Doubtful, "set both to on"),
    ] {
        let told = finding(&with_setting(&bench.url, name, value), about).await.expect("doctor speaks of it");
        assert!(told.verdict == verdict && told.says.contains(says), "{name}={value}: {told:?}");
    }
}

/// A pooler in transaction mode loses notifications. The control is the same server without it.
#[tokio::test]
async fn a_pooler_that_loses_notifications_is_noticed() {
    let Some(bench) = Bench::open("doctor behind a pooler").await else { return };
    if let Some(why) = PgBouncer::missing() {
        return lockkeeper::conformance::skip("doctor behind a pooler", &why);
    }
    let pooler = PgBouncer::start(bench.server.port);
    let behind = bench.url.replace(&format!(":{}/", bench.server.port), &format!(":{}/", pooler.port));
    let told = finding(&behind, "notifications").await.expect("doctor speaks of it");
    assert!(told.verdict == Verdict::Doubtful && told.says.contains("?push=off"), "{told:?}");
    let told = finding(&bench.url, "notifications").await.expect("doctor speaks of it");
    assert!(told.verdict == Verdict::Fine && told.says.contains("arrived"), "{told:?}");
}
