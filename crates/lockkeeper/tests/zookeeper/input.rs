//! Bad input and strange surroundings: typed, in words, with nothing lost.

use lockkeeper::{Client, ErrorKind};
use zookeeper_client::{Acl, Acls, AuthId, CreateMode, Permission};

use crate::site;

#[tokio::test]
async fn a_folder_that_is_not_there_is_named() {
    let Some(server) = site::server("input") else { return };
    let error = Client::connect(&format!("zookeeper://{}/no/such/folder?session=2s", server.hosts())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.to_string().contains("/no/such/folder"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_not_there_or_of_another_kind_is_an_error() {
    let Some(_) = site::server("input") else { return };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        // A server that talks first, and something else.
        use tokio::io::AsyncWriteExt as _;
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"220 mail.example ESMTP ready, and a good day to you too\r\n").await;
        }
    });
    for port in [1, port] {
        let error = Client::connect(&format!("zookeeper://127.0.0.1:{port}?session=2s")).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Protocol), "{error:?}");
        assert!(error.to_string().contains(&port.to_string()), "{error}");
    }
}

#[tokio::test]
async fn a_folder_without_rights_and_a_wrong_password_are_denied() {
    let Some(server) = site::server("input") else { return };
    let raw = site::raw(&server).await;
    let folder = format!("/{}", server.fresh_folder());
    let read_only = [Acl::new(Permission::READ, AuthId::anyone())];
    raw.create(&folder, &[], &CreateMode::Persistent.with_acls(Acls::new(&read_only))).await.unwrap();
    let error = Client::connect(&format!("zookeeper://{}{folder}", server.hosts())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    // Nodes that one user made with ?acl=creator are closed to another.
    let folder = site::fresh_folder(&server).await;
    let of = |user: &str| format!("zookeeper://{user}:secret-{user}@{}/{folder}?acl=creator&session=4s", server.hosts());
    let (ours, theirs) = (site::client(&of("us")).await, site::client(&of("them")).await);
    let guard = ours.mutex("m").lock().await.unwrap();
    let error = theirs.mutex("m").try_lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
    assert!(guard.is_valid());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn foreign_children_in_the_folder_of_a_lock_do_no_harm() {
    let Some(server) = site::server("input") else { return };
    let folder = site::fresh_folder(&server).await;
    let raw = site::raw(&server).await;
    let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
    for node in ["m", "m/config", "m/lock-abc", "settings", "settings/a"] {
        raw.create(&format!("/{folder}/{node}"), b"\xff\xfe", &persistent).await.unwrap();
    }
    let client = site::client(&format!("zookeeper://{}/{folder}?session=4s", server.hosts())).await;
    let guard = client.mutex("m").lock().await.unwrap();
    assert!(client.mutex("m").try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
    assert!(client.inspect("settings").await.unwrap().is_none());
    // A record that nobody of ours wrote.
    raw.create(&format!("/{folder}/m/_lockkeeper"), b"hello", &persistent).await.unwrap();
    let error = client.latch("m").count().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ForeignKey, "{error}");
}

/// ZooKeeper's own tools show whose a node is.
#[tokio::test]
async fn the_data_of_a_node_says_who_made_it() {
    let Some(server) = site::server("input") else { return };
    let folder = site::fresh_folder(&server).await;
    let client = site::client(&format!("zookeeper://{}/{folder}?session=4s", server.hosts())).await;
    let raw = site::raw(&server).await;
    let (mutex, writer) = (client.mutex("m").lock().await.unwrap(), client.rwlock("w").write().await.unwrap());
    let permit = client.semaphore("s", 2).acquire().await.unwrap();
    let program = std::env::current_exe().unwrap().file_name().unwrap().to_string_lossy().into_owned();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let mut owners = std::collections::BTreeSet::new();
    for part in ["m", "w", "s/leases"] {
        let path = format!("/{folder}/{part}");
        let node = site::nodes(&raw, &path).await.pop().expect("a node");
        let (data, _) = raw.get_data(&format!("{path}/{node}")).await.unwrap();
        let data: serde_json::Value = serde_json::from_slice(&data).expect("JSON");
        println!("{part}: {data}");
        assert_eq!(data["pid"], std::process::id(), "{data}");
        assert_eq!(data["program"], program, "{data}");
        assert_eq!(data["host"], host.trim(), "{data}");
        owners.insert(data["owner"].as_str().expect("an owner").to_owned());
    }
    // Each acquisition is an owner of its own, and `inspect` names the same one.
    assert_eq!(owners.len(), 3, "{owners:?}");
    let seen = client.inspect("m").await.unwrap().expect("held");
    assert!(owners.contains(&seen.holders[0].owner), "{seen:?} {owners:?}");
    mutex.release().await.unwrap();
    writer.release().await.unwrap();
    permit.release().await.unwrap();
}

#[tokio::test]
async fn a_name_with_slashes_is_one_lock() {
    let Some(server) = site::server("input") else { return };
    let folder = site::fresh_folder(&server).await;
    let client = site::client(&format!("zookeeper://{}/{folder}?session=4s", server.hosts())).await;
    let raw = site::raw(&server).await;
    let guard = client.mutex("a/b/../c").lock().await.unwrap();
    assert_eq!(site::nodes(&raw, &format!("/{folder}/a%2Fb%2F..%2Fc")).await.len(), 1);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn the_folder_that_the_server_removed_is_made_again() {
    let Some(server) = site::server("input") else { return };
    let folder = site::fresh_folder(&server).await;
    let client = site::client(&format!("zookeeper://{}/{folder}?session=4s", server.hosts())).await;
    let raw = site::raw(&server).await;
    for _ in 0..3 {
        client.mutex("m").lock().await.unwrap().release().await.unwrap();
        client.semaphore("s", 2).acquire().await.unwrap().release().await.unwrap();
        // What the server does with containers that have been empty for a while.
        raw.delete(&format!("/{folder}/m"), None).await.unwrap();
        for part in ["locks", "leases"] {
            raw.delete(&format!("/{folder}/s/{part}"), None).await.unwrap();
        }
    }
}
