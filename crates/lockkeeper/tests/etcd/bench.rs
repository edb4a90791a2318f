//! What the tests share: a server, clients of it, and names that no other test uses.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lockkeeper::Client;
use lockkeeper_testkit::etcd::{Etcd, Release};

/// The server that the tests share, or `None` with a word on why there is none.
pub(crate) fn shared(test: &str) -> Option<Arc<Etcd>> {
    shared_of(Release::Path, test)
}

/// The same with a release.
pub(crate) fn shared_of(release: Release, test: &str) -> Option<Arc<Etcd>> {
    match release.missing() {
        Some(why) => {
            lockkeeper::conformance::skip(test, &why);
            None
        }
        None => Some(Etcd::shared_of(release)),
    }
}

/// A server of the test's own.
pub(crate) fn own(test: &str, members: usize, options: &[&str]) -> Option<Etcd> {
    match Etcd::missing() {
        Some(why) => {
            lockkeeper::conformance::skip(test, &why);
            None
        }
        None => Some(Etcd::start(members, options)),
    }
}

/// A name that no other test uses.
pub(crate) fn fresh(name: &str) -> String {
    static LAST: AtomicU32 = AtomicU32::new(0);
    format!("{name}-{}", LAST.fetch_add(1, Ordering::Relaxed))
}

pub(crate) async fn client(url: &str) -> Client {
    Client::connect(url).await.expect("a running server")
}

/// Long enough for anything on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(30);
