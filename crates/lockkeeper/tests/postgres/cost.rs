//! What an uncontended lock costs: statements, as the server's log counts them.

use std::time::Duration;

use lockkeeper::Client;
use lockkeeper_testkit::postgres::Postgres;

/// Statements that the server has carried out, as its log says.
fn carried_out(server: &Postgres) -> Vec<String> {
    let log = std::fs::read_to_string(server.directory().join("log")).expect("a log");
    log.lines().filter(|line| line.contains("LOG:  execute")).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_lock_and_its_release_are_one_statement_each() {
    if let Some(why) = Postgres::missing() {
        return lockkeeper::conformance::skip("the cost of a lock", &why);
    }
    let server = Postgres::start(&["log_statement=all"]);
    let client = Client::builder().lease(Duration::from_secs(600)).connect(&server.fresh_url()).await.unwrap();
    let mutex = client.mutex("known");
    // Connected, and the keeper has told who it is.
    mutex.lock().await.unwrap().release().await.unwrap();
    let guard = mutex.lock().await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    guard.release().await.unwrap();
    for name in ["known", "fresh"] {
        let mutex = client.mutex(name);
        let before = carried_out(&server).len();
        let guard = mutex.lock().await.unwrap();
        let locked = carried_out(&server);
        assert_eq!(locked.len() - before, 1, "{name}: lock: {:?}", &locked[before..]);
        guard.release().await.unwrap();
        let released = carried_out(&server);
        assert_eq!(released.len() - locked.len(), 1, "{name}: release: {:?}", &released[locked.len()..]);
    }
}
