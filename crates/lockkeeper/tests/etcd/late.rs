//! What comes late or fails half-way leaves no key behind: requests that a member kept back, releases during an outage, refusals after the key
//! was made, a full database, a member that hangs.

use std::time::Duration;

use lockkeeper_testkit::etcd::Etcd;
use lockkeeper_testkit::poll::async_until_within;
use lockkeeper_testkit::proxy::{Fault, Proxy};

use crate::bench::{LONG, client, fresh, shared};

/// So many ways to the same server, as to the members of a cluster.
async fn members(server: &Etcd, number: usize) -> (Vec<Proxy>, String) {
    let mut proxies = Vec::new();
    for _ in 0..number {
        proxies.push(Proxy::start(server.port(0)).await);
    }
    let hosts: Vec<String> = proxies.iter().map(|proxy| format!("127.0.0.1:{}", proxy.port)).collect();
    (proxies, hosts.join(","))
}

async fn until_no_key_is_left(server: &Etcd, name: &str) {
    async_until_within(LONG, "no key is left", || async { server.keys(&format!("{name}/")).is_empty() }).await;
}

/// The first request sits in a member that hangs, the second one is granted by another member. The member goes on after the release.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_arrives_after_the_release_leaves_no_key() {
    let Some(server) = shared("a request kept back") else { return };
    for dropped in [false, true] {
        let (members, hosts) = members(&server, 2).await;
        let client = client(&format!("etcd://{hosts}?session=4s")).await;
        client.mutex(fresh("warm")).lock().await.unwrap().release().await.unwrap();
        let name = fresh("kept-back");
        members[0].next(format!("{name}/"), Fault::Hold);
        let guard = client.mutex(&name).lock().await.unwrap();
        assert!(members[0].met());
        if dropped {
            drop(guard);
        } else {
            guard.release().await.unwrap();
        }
        until_no_key_is_left(&server, &name).await;
        members[0].let_go();
        // Absence cannot be waited for: a late request that counts makes its key within milliseconds.
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert_eq!(server.keys(&format!("{name}/")), Vec::<String>::new(), "dropped {dropped}: held for nobody");
        }
    }
}
