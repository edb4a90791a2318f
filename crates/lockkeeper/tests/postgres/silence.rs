//! Networks that stall: what was answered stays true, and nothing waits for ever.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::ErrorKind;
use lockkeeper::backend::Backend;
use lockkeeper::name::Name;
use lockkeeper_testkit::poll::async_until_within;
use lockkeeper_testkit::proxy::{Fault, Proxy};

use crate::bench::{Bench, connect, is_granted, release};

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
    let asking = tokio::spawn({
        let (store, asked) = (Arc::clone(&store), bench.ask("other", 2));
        async move { store.acquire(asked).await }
    });
    tokio::time::sleep(Duration::from_millis(5_400)).await;
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
