//! Histories of real servers that are disturbed while processes use them, judged by the referee and by a second judge: a short one on each topology.
//! `cargo xtask evidence real` records longer ones, and those of servers behind a network that loses connections.

use std::path::Path;
use std::time::Duration;

use lockkeeper_verify::real::{Recorded, missing, record};

/// Here the control is not asked for: in three rounds on ZooKeeper the referee found nothing when it was not told. The likely reason is that the store
/// tells a holder at once that its lock was released by force, so that it stops before another one begins. That was not shown.
const TOLD_AT_ONCE: [&str; 2] = ["zookeeper", "etcd"];

/// Here neither: the servers are those of other rounds.
const AS_OTHERS: [&str; 4] = ["redis-clock", "redis-proxy", "postgres-proxy", "etcd-proxy"];

/// What is done at the end of a history, for the control. After slow disturbances there may be no time left for it.
const CONTROL: [&str; 2] = ["release by force", "votes deleted"];

fn recorded(topology: &str, seconds: u64) -> Recorded {
    let program = Path::new(env!("CARGO_BIN_EXE_lockkeeper"));
    let recorded = record(topology, program, Duration::from_secs(seconds)).expect("a history");
    println!("{} untold: {:?}", recorded.row(), recorded.untold);
    assert!(recorded.is_sound(), "{recorded:#?}");
    // RedLock has no latches.
    assert!(recorded.order.latch_calls > 0 || topology.starts_with("redlock"), "{recorded:#?}");
    assert!(recorded.granted > 0 && recorded.order.holds > 0 && recorded.pauses > 0, "{recorded:#?}");
    let disturbed = recorded.faults.keys().any(|what| !CONTROL.contains(what));
    assert!(disturbed || topology == "sqlite", "the servers were not disturbed: {recorded:#?}");
    recorded
}

/// Where the servers are missing the test says so, and fails if they are required.
fn round(topology: &str, seconds: u64) {
    let built = match topology {
        "postgres" | "postgres-proxy" => cfg!(feature = "postgres"),
        "mariadb" => cfg!(feature = "mysql"),
        "zookeeper" => cfg!(feature = "zookeeper"),
        "etcd" | "etcd-proxy" => cfg!(feature = "etcd"),
        _ => true,
    };
    let left_out = (!built).then(|| format!("{topology}: this lockkeeper is built without it; use --features all"));
    if let Some(why) = left_out.or_else(|| missing(topology)) {
        return lockkeeper::conformance::skip(topology, &why);
    }
    if TOLD_AT_ONCE.contains(&topology) || AS_OTHERS.contains(&topology) {
        recorded(topology, seconds);
        return;
    }
    // The negative control: judges that do not know what happened to the store find two holders at a time. It may take some rounds: a lock that is
    // released by force may have been about to be released.
    let found = (0..8).map(|_| recorded(topology, seconds)).find(|recorded| recorded.untold.0 > 0 && recorded.untold.1 > 0);
    assert!(found.is_some(), "{topology}: a judge did not notice that the store gave up locks that were held");
}

#[test]
fn sqlite() {
    round("sqlite", 10);
}

#[test]
fn a_redis_that_restarts_without_its_data() {
    round("redis", 12);
}

#[test]
fn a_redis_that_restarts_with_its_data() {
    round("redis-aof", 12);
}

#[test]
fn a_replica_that_takes_over() {
    round("sentinel", 22);
}

#[test]
fn a_redis_cluster_whose_primaries_end_and_whose_slots_move() {
    round("cluster", 24);
}

#[test]
fn a_majority_of_three_with_one_that_forgets() {
    round("redlock-3", 14);
}

#[test]
fn a_majority_of_five_with_two_that_forget() {
    round("redlock-5", 14);
}

#[test]
fn a_postgres_that_crashes() {
    round("postgres", 12);
}

#[test]
fn a_mariadb_that_crashes() {
    round("mariadb", 12);
}

#[test]
fn a_zookeeper_that_crashes() {
    round("zookeeper", 14);
}

#[test]
fn an_etcd_that_crashes() {
    round("etcd", 12);
}

#[test]
fn a_redis_whose_clock_is_set() {
    round("redis-clock", 10);
}
