//! What `doctor` says of a cluster in trouble. The control is the same cluster without it.

use lockkeeper::backend::{Finding, Verdict};
use lockkeeper::{Client, ErrorKind};
use lockkeeper_testkit::poll::async_until_within;

use crate::bench::{LONG, own};

async fn findings(url: &str) -> Vec<Finding> {
    Client::examine(url).await.expect("a good URL").findings
}

async fn finding(url: &str, about: &str) -> Finding {
    let found = findings(url).await;
    found.iter().find(|found| found.about == about).cloned().unwrap_or_else(|| panic!("nothing about {about}: {found:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_full_is_told_with_what_to_do() {
    let Some(server) = own("a full database", 1, &["--quota-backend-bytes", "2000000"]) else { return };
    assert_eq!(finding(&server.url(), "alarms").await.verdict, Verdict::Fine);
    let value = "x".repeat(100_000);
    let full = async || !server.ctl(&["put", "filler", &value]).status.success();
    async_until_within(LONG, "the database is full", full).await;
    let alarms = finding(&server.url(), "alarms").await;
    assert_eq!(alarms.verdict, Verdict::Unfit(ErrorKind::Unavailable), "{alarms:?}");
    assert!(alarms.says.contains("NOSPACE") && alarms.says.contains("etcdctl alarm disarm"), "{alarms:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_a_majority_is_told() {
    let Some(mut server) = own("doctor without a majority", 3, &[]) else { return };
    let url = server.url();
    let quorum = finding(&url, "quorum").await;
    assert!(quorum.verdict == Verdict::Fine && quorum.says.starts_with("3 of 3 members reached"), "{quorum:?}");
    // A member less is no reason to refuse, and is named.
    let leader = server.leader();
    let [first, second] = [(leader + 1) % 3, (leader + 2) % 3];
    server.kill(first);
    let gone = format!("127.0.0.1:{}", server.port(first));
    let named = async || {
        let found = findings(&url).await;
        let member =
            found.iter().any(|found| found.about == "member" && found.verdict == Verdict::Doubtful && found.says.contains(&gone));
        let quorum = found.iter().find(|found| found.about == "quorum");
        member
            && quorum.is_some_and(|quorum| quorum.verdict == Verdict::Fine && quorum.says.starts_with("2 of 3 members reached"))
    };
    async_until_within(LONG, "one member is missed, and the others serve", named).await;
    server.kill(second);
    let told = async || {
        let found = findings(&url).await;
        let server = found.iter().find(|found| found.about == "server");
        server.is_some_and(|server| {
            server.verdict == Verdict::Unfit(ErrorKind::Unavailable) && server.says.contains("has no leader: a majority")
        })
    };
    // The last member knows its leader until its election time is over.
    async_until_within(LONG, "the last member has no leader", told).await;
}
