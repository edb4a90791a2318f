//! The contract on etcd 3.5 or later: the groups of cases whose requests are the server's to answer. The other groups are about the client's own
//! queues, retries and keeper, which are the same on each release. And the
//! programs beside us there: its own `etcdctl`, and Go.

#[path = "beside.rs"]
mod beside;
#[path = "harness.rs"]
mod harness;

use harness::OnEtcd;
use lockkeeper_testkit::etcd::Release;

const RELEASE: Release = Release::New;

macro_rules! groups {
    ($($group:ident)*) => {$(
        #[test]
        fn $group() {
            crate::groups::run(stringify!($group), OnEtcd::new);
        }
    )*};
}

groups!(mutex fairness rwlock semaphore counting latch session fencing contract inspect names);
