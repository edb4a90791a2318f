//! What `doctor` says of a real server: each finding that warns, beside a setting that gives no reason to.

use lockkeeper::backend::{Finding, Verdict};
use lockkeeper::runtime::Runtime;
use lockkeeper::store::mysql::{Config, MysqlStore};
use lockkeeper::{Client, ErrorKind};
use lockkeeper_testkit::mysql::Mysql;

use super::FLAVOUR;
use super::bench::Bench;

async fn finding(url: &str, about: &str) -> Finding {
    let found = Client::examine(url).await.expect("a good URL").findings;
    found.iter().find(|found| found.about == about).cloned().unwrap_or_else(|| panic!("nothing about {about}: {found:?}"))
}

/// A server with a log of changes, as a primary has.
#[tokio::test]
async fn settings_of_a_primary_that_lose_grants_are_told() {
    if let Some(why) = Mysql::missing(FLAVOUR) {
        return lockkeeper::conformance::skip("doctor", &why);
    }
    let options = ["--log-bin=changes", "--server-id=1", "--sync-binlog=1", "--innodb-flush-log-at-trx-commit=1"];
    let server = Mysql::start(FLAVOUR, &[&options[..], &["--rpl-semi-sync-master-timeout=100"]].concat());
    let url = server.url(&server.fresh_database());
    for (settings, about, verdict, says) in [
        ("", "durability", Verdict::Fine, "innodb_flush_log_at_trx_commit=1, sync_binlog=1"),
        ("innodb_flush_log_at_trx_commit = 2", "durability", Verdict::Doubtful, "may forget the last grants; set both to 1"),
        ("innodb_flush_log_at_trx_commit = 1, GLOBAL sync_binlog = 0", "durability", Verdict::Doubtful, "sync_binlog=0"),
        ("", "failover", Verdict::Doubtful, "turn on semi-synchronous replication"),
        ("rpl_semi_sync_master_enabled = ON", "failover", Verdict::Fine, "semi-synchronous replication is on"),
        ("binlog_format = MIXED", "binary log", Verdict::Fine, "binlog_format=MIXED"),
        ("innodb_lock_wait_timeout = 77", "row locks", Verdict::Fine, "innodb_lock_wait_timeout=77 is not used"),
        ("binlog_format = STATEMENT", "server", Verdict::Unfit(ErrorKind::Config), "set binlog_format to ROW or MIXED"),
    ] {
        if !settings.is_empty() {
            server.run(&format!("SET GLOBAL {settings}"));
        }
        let told = finding(&url, about).await;
        assert!(told.verdict == verdict && told.says.contains(says), "{settings}: {told:?}");
    }
}

#[tokio::test]
async fn a_server_that_only_reads_is_told() {
    if let Some(why) = Mysql::missing(FLAVOUR) {
        return lockkeeper::conformance::skip("doctor of a replica", &why);
    }
    let server = Mysql::start(FLAVOUR, &[]);
    let database = server.fresh_database();
    // A superuser may write to a server that only reads.
    server.run(&format!("CREATE USER locks@'%'; GRANT ALL ON {database}.* TO locks@'%'"));
    let url = server.url(&database).replace("root@", "locks@");
    let version = finding(&url, "version").await;
    assert!(version.verdict == Verdict::Fine && version.says.contains("can be written to"), "{version:?}");
    server.run("SET GLOBAL read_only = ON");
    let told = finding(&url, "server").await;
    assert!(
        told.verdict == Verdict::Unfit(ErrorKind::Unavailable) && told.says.contains("only reads (read_only=ON)"),
        "{told:?}"
    );
}

/// This machine's clock is off, as far as the store can tell: it is years behind the server's.
#[tokio::test]
async fn a_clock_that_differs_is_told() {
    let Some(bench) = Bench::open("doctor and a clock").await else { return };
    let clock = async |runtime: Runtime| {
        let found = MysqlStore::examine(Config::parse(&bench.url).expect("a good URL"), &runtime).await;
        found.iter().find(|found| found.about == "clock").cloned().unwrap_or_else(|| panic!("nothing about the clock: {found:?}"))
    };
    assert_eq!(clock(Runtime::system()).await.verdict, Verdict::Fine);
    let told = clock(Runtime::simulated()).await;
    assert!(told.verdict == Verdict::Doubtful && told.says.contains("clocks differ by "), "{told:?}");
    assert!(told.says.contains("time service"), "{told:?}");
}
