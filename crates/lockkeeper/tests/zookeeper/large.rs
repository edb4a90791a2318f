//! Packets that are larger than a server or ZooKeeper's usual limit of 1 MB allows: told in words, or read; never a loop of broken connections.

use std::time::Duration;

use lockkeeper::ErrorKind;
use lockkeeper_testkit::zookeeper::ZooKeeper;
use tokio::time::timeout;
use zookeeper_client::{Acls, CreateMode};

use crate::site;

const SOON: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_the_server_does_not_take_is_refused_in_words_and_costs_no_hold() {
    if site::server("a large record").is_none() {
        return;
    }
    let server = ZooKeeper::start_with("", &["-Djute.maxbuffer=6000"]);
    let client = site::client(&site::fresh_url(&server, "6s").await).await;
    let guard = client.mutex("m").lock().await.unwrap();
    let counter = client.counting_semaphore("n");
    let counting = async {
        // Each is remembered for a while.
        for added in 0..500_i64 {
            if let Err(error) = counter.add(1).await {
                return (added, error);
            }
        }
        panic!("500 requests fit into 6000 bytes");
    };
    let (added, error) = timeout(SOON, counting).await.expect("an answer");
    println!("after {added} requests: {error}");
    assert!(error.kind() == ErrorKind::Config && error.to_string().contains("jute.maxbuffer"), "{error:?}");
    assert!(error.to_string().contains("\"n\""), "{error}");
    // Nothing was done, and the session with its holds is as it was.
    assert_eq!(counter.available().await.unwrap(), added);
    assert!(guard.is_valid());
    assert!(client.mutex("m").try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
    client.mutex("other").lock().await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_whose_list_is_larger_than_a_packet_may_be_is_read() {
    if site::server("a large folder").is_none() {
        return;
    }
    // The server checks what it is sent, not what it sends; Java's clients refuse such a list, ours reads it.
    let server = ZooKeeper::start_with("", &["-Djute.maxbuffer=6000"]);
    let folder = site::fresh_folder(&server).await;
    let client = site::client(&format!("zookeeper://{}/{folder}?session=6s", server.hosts())).await;
    let raw = site::raw(&server).await;
    let made = CreateMode::Persistent.with_acls(Acls::anyone_all());
    raw.create(&format!("/{folder}/m"), &[], &made).await.unwrap();
    let paths: Vec<String> = (0..300).map(|number| format!("/{folder}/m/{}-{number}", "x".repeat(60))).collect();
    let making: Vec<_> = paths.iter().map(|path| raw.create(path, &[], &made)).collect();
    for making in making {
        making.await.unwrap();
    }
    let guard = timeout(SOON, client.mutex("m").lock()).await.expect("an answer").unwrap();
    let seen = client.inspect("m").await.unwrap().expect("held");
    assert_eq!(seen.holders.len(), 1);
    guard.release().await.unwrap();
}
