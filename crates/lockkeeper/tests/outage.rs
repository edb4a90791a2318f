//! A store that is down: a call ends in time, later ones at once, and the return of the store is noticed.
#![allow(clippy::disallowed_methods, reason = "tests use the machine's clock")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockkeeper::backend::{Acquire, Attempt, Backend, Reply};
use lockkeeper::layer::{Chaos, Fault, Faulty, Layer};
use lockkeeper::runtime::Runtime;
use lockkeeper::store::memory::MemoryStore;
use lockkeeper::{Client, Error, ErrorKind, Result};
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

fn client() -> (Client, Chaos) {
    let runtime = Runtime::simulated();
    let chaos = Chaos::new(Arc::new(MemoryStore::new(runtime.clone())));
    let store: Arc<dyn Backend> = Arc::new(chaos.clone());
    (Client::builder().runtime(runtime).with_backend(store).unwrap(), chaos)
}

/// A call that waits ten seconds for others and one for the store; how it ended, and after how long.
async fn call(client: &Client) -> (Result<()>, Duration) {
    let began = Instant::now();
    let acquired = client.mutex("m").lock().timeout(10 * SECOND).outage_timeout(SECOND).await;
    let ended = match acquired {
        Ok(guard) => guard.release().await,
        Err(error) => Err(error),
    };
    (ended, began.elapsed())
}

/// With refused connections, and with requests that are lost on their way, as on a server that hangs.
#[tokio::test(start_paused = true)]
async fn once_the_store_is_away_calls_fail_at_once_until_it_is_back() {
    for fault in [Fault::Refuse, Fault::LoseRequest] {
        let (client, chaos) = client();
        // An answer to the undo of a lost request would be a sign of life.
        for which in [Faulty::Acquire, Faulty::Release] {
            chaos.always(which, fault);
        }
        let (first, took) = call(&client).await;
        assert!(first.unwrap_err().is_outage());
        assert!(took >= SECOND * 9 / 10 && took < SECOND * 3 / 2, "{fault:?}: {took:?}");
        assert!(!client.is_connected());
        let mut slow = 0;
        let began = Instant::now();
        for _ in 0..100 {
            let (ended, took) = call(&client).await;
            let error = ended.unwrap_err();
            assert!(error.is_outage(), "{error:?}");
            assert!(took < SECOND, "{fault:?}: {took:?}");
            if took > Duration::ZERO {
                slow += 1;
            } else if error.to_string().contains("not asked again") {
                assert!(std::error::Error::source(&error).is_some(), "the cause is lost: {error:?}");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // One call in 250 ms asks.
        assert!(slow <= began.elapsed().as_millis() / 250 + 1, "{fault:?}: {slow} of 100 in {:?}", began.elapsed());
        chaos.calm();
        tokio::time::sleep(Duration::from_millis(250)).await;
        assert!(call(&client).await.0.is_ok(), "{fault:?}");
        // The keeper may have met the outage as well, and answers for its own connection: what it suffered is believed for ten seconds.
        let back = Instant::now();
        while !client.is_connected() {
            assert!(back.elapsed() < 15 * SECOND, "{fault:?}");
            tokio::time::sleep(Duration::from_millis(250)).await;
            assert!(call(&client).await.0.is_ok(), "{fault:?}");
        }
    }
}

/// A call that bears more than the outage has lasted waits for the store as before.
#[tokio::test(start_paused = true)]
async fn a_call_that_bears_more_waits_for_the_store() {
    let (client, chaos) = client();
    chaos.always(Faulty::Acquire, Fault::Refuse);
    assert!(call(&client).await.0.is_err());
    let waiting = tokio::spawn({
        let mutex = client.mutex("m");
        async move { mutex.lock().timeout(10 * SECOND).await.map(drop) }
    });
    tokio::time::sleep(3 * SECOND).await;
    chaos.calm();
    waiting.await.unwrap().expect("the store is back within ten seconds of the outage");
}

/// A client that was idle does not know whether the store is back: it does not fail without asking, and bears trouble anew.
#[tokio::test(start_paused = true)]
async fn an_idle_client_starts_anew() {
    let (client, chaos) = client();
    chaos.always(Faulty::Acquire, Fault::Refuse);
    assert!(call(&client).await.0.is_err());
    assert!(call(&client).await.0.is_err());
    tokio::time::sleep(60 * SECOND).await;
    let (ended, took) = call(&client).await;
    assert!(ended.is_err() && took >= SECOND * 9 / 10, "{took:?}");
    chaos.calm();
    tokio::time::sleep(60 * SECOND).await;
    assert!(call(&client).await.0.is_ok());
}

/// Others hold it: that is no outage, however long it takes.
#[tokio::test(start_paused = true)]
async fn contention_is_no_outage() {
    let (client, _chaos) = client();
    let guard = client.mutex("m").lock().await.unwrap();
    for _ in 0..3 {
        let (ended, took) = call(&client).await;
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::Timeout);
        assert!(took >= 10 * SECOND, "{took:?}");
        assert!(client.is_connected());
    }
    guard.release().await.unwrap();
}

/// The keeper's connection works, and that of the callers does not.
#[derive(Debug)]
struct OneWay {
    inner: Arc<dyn Backend>,
    is_keeper: bool,
    broken: Arc<AtomicBool>,
}

impl Layer for OneWay {
    fn inner(&self) -> &Arc<dyn Backend> {
        &self.inner
    }

    fn over(&self, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(Self { inner, is_keeper: true, broken: Arc::clone(&self.broken) })
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        if !self.is_keeper && self.broken.load(Ordering::SeqCst) {
            return Box::pin(async { Err(Error::new(ErrorKind::Unavailable, "the callers' connection is down")) });
        }
        self.inner.acquire(request)
    }
}

/// An answer on the keeper's connection does not end an outage of the callers' one; it ends when a caller is answered, or has not asked for long.
#[tokio::test(start_paused = true)]
async fn an_outage_of_one_connection_is_not_ended_by_the_other() {
    let (runtime, broken) = (Runtime::simulated(), Arc::new(AtomicBool::new(false)));
    let inner: Arc<dyn Backend> = Arc::new(MemoryStore::new(runtime.clone()));
    let store = Arc::new(OneWay { inner, is_keeper: false, broken: Arc::clone(&broken) });
    let client = Client::builder().lease(3 * SECOND).runtime(runtime).with_backend(store).unwrap();
    let guard = client.mutex("held").lock().await.unwrap();
    broken.store(true, Ordering::SeqCst);
    assert!(call(&client).await.0.unwrap_err().is_outage());
    for _ in 0..8 {
        // The keeper renews every second.
        tokio::time::sleep(SECOND).await;
        assert!(!client.is_connected(), "told as over by the keeper's connection");
        let (ended, took) = call(&client).await;
        assert!(ended.unwrap_err().is_outage());
        assert!(took < SECOND / 2, "the outage is known, and it took {took:?}");
    }
    assert!(guard.is_valid());
    tokio::time::sleep(15 * SECOND).await;
    assert!(client.is_connected(), "nobody but the keeper has asked for long, and it is answered");
    broken.store(false, Ordering::SeqCst);
    assert!(call(&client).await.0.is_ok());
    assert!(client.is_connected());
    guard.release().await.unwrap();
}

/// An outage of the keeper's connection, however long it lasts, refuses no call: those go another way.
#[tokio::test(start_paused = true)]
async fn an_outage_of_the_keepers_connection_refuses_no_call() {
    let (client, chaos) = client();
    // Renewals are sent by the keeper alone.
    chaos.always(Faulty::Renew, Fault::Refuse);
    let guard = client.mutex("held").lock().await.unwrap();
    for _ in 0..20 {
        tokio::time::sleep(SECOND).await;
        let (ended, took) = call(&client).await;
        assert!(ended.is_ok() && took < SECOND, "{ended:?} after {took:?}");
    }
    assert!(!client.is_connected(), "the keeper's connection fails: nothing was tested");
    drop(guard);
}

/// The same with a real server that is killed and started again.
#[cfg(feature = "redis")]
#[tokio::test]
async fn calls_fail_at_once_while_a_real_server_is_down() {
    use lockkeeper_testkit::server::{Flavour, Server};
    if let Some(why) = Server::missing(Flavour::Redis) {
        return lockkeeper::conformance::skip("calls_fail_at_once_while_a_real_server_is_down", &why);
    }
    let mut server = Server::start(Flavour::Redis);
    let client = Client::connect(server.url(0)).await.unwrap();
    assert!(call(&client).await.0.is_ok());
    server.kill();
    let (first, took) = call(&client).await;
    assert!(first.unwrap_err().is_outage() && took < 8 * SECOND, "{took:?}");
    // Without failing at once: 40 seconds.
    let began = Instant::now();
    for _ in 0..40 {
        assert!(call(&client).await.0.unwrap_err().is_outage());
    }
    assert!(began.elapsed() < 20 * SECOND, "{:?}", began.elapsed());
    server.start_again();
    let began = Instant::now();
    while let Err(error) = call(&client).await.0 {
        assert!(error.is_outage() && began.elapsed() < 30 * SECOND, "{error:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
