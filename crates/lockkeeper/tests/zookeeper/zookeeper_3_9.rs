//! The contract on ZooKeeper 3.9: the groups of cases whose requests are the server's to answer. The other groups are about the client's own
//! queues, retries and keeper, which are the same on each release.

#[path = "harness.rs"]
mod harness;

use harness::OnZooKeeper;
use lockkeeper_testkit::zookeeper::Release;

const RELEASE: Release = Release::Maven;

macro_rules! groups {
    ($($group:ident)*) => {$(
        #[test]
        fn $group() {
            crate::groups::run(stringify!($group), OnZooKeeper::new);
        }
    )*};
}

groups!(mutex fairness rwlock semaphore counting latch session fencing contract inspect names);
