//! Networks that stall: what was answered stays true, and nothing waits for ever.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::ErrorKind;
use lockkeeper::backend::{Backend, Watch};
use lockkeeper::name::Name;
use lockkeeper::store::postgres::{Config, PostgresStore};
use lockkeeper_testkit::poll::async_until_within;
use lockkeeper_testkit::proxy::{Fault, Proxy};

use crate::bench::{Bench, connect, is_granted, release, since};

/// A store of the bench's tables behind a proxy.
async fn behind(bench: &Bench) -> (Proxy, String, Arc<dyn Backend>) {
    let proxy = Proxy::start(bench.server.port).await;
    let url = bench.url.replace(&format!(":{}/", bench.server.port), &format!(":{}/", proxy.port));
    let store = connect(&url, &bench.runtime).await;
    (proxy, url, store)
}

/// A transaction stalls and is given up. A request that waited for its end must not be answered inside it.
#[tokio::test]
async fn a_request_behind_a_transaction_that_was_given_up_is_not_granted_in_it() {
    let Some(bench) = Bench::open("a transaction that stalls").await else { return };
    let (proxy, _, store) = behind(&bench).await;
    assert!(is_granted(store.acquire(bench.ask("m", 1)).await.unwrap()));
    // A row that others have locked makes the release lock it first.
    let plain = bench.plain().await;
    plain.batch_execute("BEGIN; SELECT * FROM lockkeeper_head FOR UPDATE").await.unwrap();
    proxy.next("BEGIN ISOLATION", Fault::Hold);
    let releasing = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.release(release("m", 1)).await }
    });
    async_until_within(Duration::from_secs(20), "the transaction began", || async { proxy.met() }).await;
    plain.batch_execute("ROLLBACK").await.unwrap();
    // Late enough that the statement would still be in time.
    tokio::time::sleep(Duration::from_millis(4_600)).await;
    let asking = tokio::spawn({
        let (store, asked) = (Arc::clone(&store), bench.ask("other", 2));
        async move { store.acquire(asked).await }
    });
    tokio::time::sleep(Duration::from_millis(700)).await;
    proxy.let_go();
    let error = releasing.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error:?}");
    let answered = asking.await.unwrap();
    // Whatever is undone is undone when the connection ends.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let held = bench.store.inspect(Name::new("other").unwrap()).await.unwrap().is_some();
    match answered {
        Ok(attempt) => assert_eq!(is_granted(attempt), held, "{attempt:?}, held: {held}"),
        Err(error) => assert!(error.kind() == ErrorKind::Unavailable && !held, "{error:?}, held: {held}"),
    }
    // The next request has a connection of its own, and no row stays locked.
    assert!(is_granted(store.acquire(bench.ask("third", 3)).await.unwrap()));
    assert!(bench.store.release(release("m", 1)).await.is_ok());
}

/// A server that accepts connections and says nothing, as behind a proxy whose server is gone.
#[tokio::test]
async fn connecting_to_a_server_that_says_nothing_ends() {
    let Some(bench) = Bench::open("a silent server").await else { return };
    let (proxy, url, _store) = behind(&bench).await;
    proxy.fall_silent(true);
    let began = bench.runtime.now();
    let config = Config::parse(&format!("{url}&connect_timeout=1")).unwrap();
    let error = tokio::time::timeout(Duration::from_secs(20), PostgresStore::connect(config, &bench.runtime));
    let error = error.await.expect("connecting ends").expect_err("nobody answers");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(since(&bench.runtime, began) < Duration::from_secs(10));
}

/// Releases share statements. Those that hang must not keep later ones from being sent.
#[tokio::test]
async fn releases_that_hang_do_not_hold_up_later_ones() {
    let Some(bench) = Bench::open("releases that hang").await else { return };
    let (proxy, _, store) = behind(&bench).await;
    let names: Vec<String> = (0..6).map(|number| format!("m{number}")).collect();
    for (number, name) in (0..).zip(&names) {
        assert!(is_granted(store.acquire(bench.ask(name, number)).await.unwrap()));
    }
    proxy.kill_present_connections_silently();
    let mut releases = tokio::task::JoinSet::new();
    for (number, name) in (0..).zip(&names) {
        let (store, asked) = (Arc::clone(&store), release(name, number));
        releases.spawn(async move { store.release(asked).await });
    }
    let answers = tokio::time::timeout(Duration::from_secs(30), releases.join_all()).await.expect("each is answered");
    assert!(answers.iter().any(Result::is_err), "{answers:?}");
    for (number, name) in (0..).zip(&names) {
        store.release(release(name, number)).await.expect("a new connection");
        assert_eq!(bench.store.inspect(Name::new(name.as_str()).unwrap()).await.unwrap(), None);
    }
}

/// A listening connection only reads: that the other end is gone is noticed by asking.
#[tokio::test]
async fn a_listening_connection_that_died_silently_is_made_anew() {
    let Some(bench) = Bench::open("a dead listening connection").await else { return };
    let (proxy, _, store) = behind(&bench).await;
    let watch = |name: &str| {
        let asked = bench.ask(name, 2);
        Watch::new(asked.name, asked.claim, asked.owner)
    };
    let waits = store.watch(watch("m")).await.expect("it listens");
    // Whoever begins to listen is told to look once.
    let _ = tokio::time::timeout(Duration::from_millis(500), waits.notified()).await;
    let before = proxy.connections();
    proxy.kill_present_connections_silently();
    let told = tokio::time::timeout(Duration::from_secs(15), waits.notified()).await;
    assert!(told.is_ok(), "nobody noticed that the connection is dead");
    async_until_within(Duration::from_secs(10), "there is another connection", || async { proxy.connections() > before }).await;
}

/// A row that is locked when somebody begins to wait for it is marked when it is free, and others are marked meanwhile.
#[tokio::test]
async fn a_row_that_was_locked_is_marked_later() {
    let Some(bench) = Bench::open("a mark that comes later").await else { return };
    for name in ["a", "m"] {
        assert!(is_granted(bench.store.acquire(bench.ask(name, 1)).await.unwrap()));
    }
    let plain = bench.plain().await;
    plain.batch_execute("BEGIN; SELECT * FROM lockkeeper_head FOR UPDATE").await.unwrap();
    let watch = |name: &str| {
        let asked = bench.ask(name, 2);
        Watch::new(asked.name, asked.claim, asked.owner)
    };
    let other = bench.another().await;
    let (a, m) = tokio::join!(other.watch(watch("a")), other.watch(watch("m")));
    let _waiting = (a.expect("it listens, and marks later"), m.expect("it listens, and marks later"));
    // Now only one of the two is locked.
    plain.batch_execute("ROLLBACK; BEGIN; SELECT * FROM lockkeeper_head WHERE name = 'm' FOR UPDATE").await.unwrap();
    let eyes = bench.plain().await;
    let marked = async |name: &[u8]| {
        let marked = "SELECT watched > 0 FROM lockkeeper_head WHERE name = $1";
        eyes.query_one(marked, &[&name]).await.unwrap().get::<_, bool>(0)
    };
    async_until_within(Duration::from_secs(10), "the free row is marked", || marked(b"a")).await;
    assert!(!marked(b"m").await);
    plain.batch_execute("ROLLBACK").await.unwrap();
    async_until_within(Duration::from_secs(10), "the other row is marked", || marked(b"m")).await;
}
