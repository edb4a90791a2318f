//! Users that SASL makes known, on a server that knows one.

use lockkeeper::{Client, ErrorKind};
use lockkeeper_testkit::zookeeper::ZooKeeper;

use crate::site;

const USERS: &str =
    r#"Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_ann="apple" user_bob="pear"; };"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_of_sasl_has_its_locks_to_itself_and_a_wrong_password_is_denied() {
    if ZooKeeper::missing().is_some() {
        let _ = site::server("sasl");
        return;
    }
    let users = std::env::temp_dir().join(format!("lockkeeper-jaas-{}.conf", std::process::id()));
    std::fs::write(&users, USERS).unwrap();
    let lines = "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n";
    let server = ZooKeeper::start_with(lines, &[&format!("-Djava.security.auth.login.config={}", users.display())]);
    let folder = site::fresh_folder(&server).await;
    let url = |user: &str| format!("zookeeper://{user}@{}/{folder}?session=4s&auth=sasl&acl=creator", server.hosts());
    let ann = site::client(&url("ann:apple")).await;
    let guard = ann.mutex("m").lock().await.unwrap();
    // Another session of the same user waits, another user may not even look.
    assert!(site::client(&url("ann:apple")).await.mutex("m").try_lock().await.unwrap().is_none());
    let error = match Client::connect(url("bob:pear")).await {
        Ok(bob) => bob.mutex("m").lock().await.unwrap_err(),
        Err(error) => error,
    };
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    guard.release().await.unwrap();
    let error = Client::connect(url("ann:pear")).await.unwrap_err();
    println!("a wrong password: {error}");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(!error.to_string().contains("pear"), "{error}");
    std::fs::remove_file(&users).unwrap();
}
