//! Servers that forget, restart, stall or cut connections: holders are told, waiters go on, nothing is left behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lockkeeper::backend::LossReason;
use lockkeeper::{Client, ErrorKind};
use redis::{Commands, Connection};

use crate::server::{Flavour, Server};

const LEASE: Duration = Duration::from_millis(900);

/// A server of the test's own, a client with a short lease, and a plain connection. `None`: skipped, and said so.
async fn own(test: &str) -> Option<(Server, Client, Connection)> {
    if let Some(why) = Server::missing(Flavour::Redis) {
        lockkeeper::conformance::skip(test, &why);
        return None;
    }
    let server = Server::start(Flavour::Redis);
    let client = Client::builder().lease(LEASE).connect(server.url(0)).await.unwrap();
    let eyes = redis::Client::open(server.url(0)).unwrap().get_connection().unwrap();
    Some((server, client, eyes))
}

/// P4: told within a third of the lease and a round trip; the bound leaves room for a busy machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_is_told_to_every_holder_at_its_next_renewal() {
    let Some((_server, client, mut eyes)) = own("flush").await else { return };
    let (mutex, reader) = (client.mutex("m").lock().await.unwrap(), client.rwlock("r").read().await.unwrap());
    let permit = client.semaphore("s", 1).acquire().await.unwrap();
    redis::cmd("FLUSHALL").exec(&mut eyes).unwrap();
    let began = Instant::now();
    for guard in [&*mutex, &*reader, &*permit] {
        let told = tokio::time::timeout(LEASE * 3, guard.lost()).await.unwrap();
        assert_eq!(told, LossReason::Gone);
        assert!(!guard.is_valid());
    }
    assert!(began.elapsed() < LEASE, "{:?}", began.elapsed());
    assert_eq!(mutex.release().await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_comes_back_empty_tells_the_holder_and_serves_again() {
    let Some((mut server, client, _eyes)) = own("restart").await else { return };
    let guard = client.mutex("m").lock().await.unwrap();
    let before = guard.token().number();
    server.restart_empty();
    let reason = tokio::time::timeout(LEASE * 3, guard.lost()).await.unwrap();
    assert!(matches!(reason, LossReason::Gone | LossReason::Expired), "{reason:?}");
    let again = client.mutex("m").lock().wait(Duration::from_secs(10)).await.unwrap();
    assert!(again.token().number() > before);
    again.release().await.unwrap();
}

/// A server that stalls may carry out later what was given up: it is refused as late, or undone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_server_costs_the_wait_limit_and_keeps_nothing() {
    let Some((server, client, mut eyes)) = own("stall").await else { return };
    client.mutex("warm").lock().await.unwrap().release().await.unwrap();
    for stall in ["CLIENT PAUSE 1500 ALL", "CLIENT PAUSE 1500 WRITE", "DEBUG SLEEP 1.5"] {
        let mut words = stall.split(' ');
        let mut command = redis::cmd(words.next().unwrap());
        words.for_each(|word| {
            command.arg(word);
        });
        // Both connections stand before the stall: one that is opened during it would see only its end.
        let mut probe = redis::Client::open(server.url(1)).unwrap().get_connection().unwrap();
        probe.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let mut stalled = redis::Client::open(server.url(0)).unwrap().get_connection().unwrap();
        let stalling = std::thread::spawn(move || command.exec(&mut stalled));
        // Until the server has fallen silent there is nothing to test.
        let began = Instant::now();
        while probe.set::<_, _, ()>("probe", 1).is_ok() {
            assert!(began.elapsed() < Duration::from_secs(10), "{stall}: the server never fell silent");
            tokio::task::yield_now().await;
        }
        let began = Instant::now();
        let error = client.mutex("m").lock().wait(Duration::from_millis(200)).await.unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(1), "{stall}: told after {:?}", began.elapsed());
        assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate), "{stall}: {error:?}");
        stalling.join().unwrap().unwrap();
        let guard = client.mutex("m").lock().wait(Duration::from_secs(10)).await.unwrap();
        guard.release().await.unwrap();
        let began = Instant::now();
        while eyes.exists::<_, bool>("m").unwrap() {
            assert!(began.elapsed() < LEASE * 3, "{stall}: somebody who gave up holds it");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_that_does_not_end_is_borne() {
    let Some((server, client, mut eyes)) = own("busy").await else { return };
    redis::cmd("CONFIG").arg("SET").arg("busy-reply-threshold").arg(50).exec(&mut eyes).unwrap();
    client.mutex("warm").lock().await.unwrap().release().await.unwrap();
    let endless = redis::Client::open(server.url(0)).unwrap();
    let running = std::thread::spawn(move || {
        redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut endless.get_connection().unwrap())
    });
    let waiting = tokio::spawn({
        let mutex = client.mutex("m");
        async move { mutex.lock().wait(Duration::from_secs(10)).await }
    });
    // Refused until the script is known to run too long.
    let began = Instant::now();
    while redis::cmd("SCRIPT").arg("KILL").exec(&mut eyes).is_err() {
        assert!(began.elapsed() < Duration::from_secs(10), "the script cannot be killed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(running.join().unwrap().is_err());
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

/// Connections are cut all the time while eight tasks count under a lock: no increment is lost, nobody hangs, nothing is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_resets_loses_no_update() {
    let Some((server, client, mut eyes)) = own("resets").await else { return };
    let (counter, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let nemesis = std::thread::spawn({
        let (over, url) = (Arc::clone(&over), server.url(0));
        move || {
            let mut knife = redis::Client::open(url).unwrap().get_connection().unwrap();
            let mut cuts = 0;
            while !over.load(Ordering::SeqCst) {
                for kind in ["normal", "pubsub"] {
                    cuts += redis::cmd("CLIENT")
                        .arg("KILL")
                        .arg("TYPE")
                        .arg(kind)
                        .arg("SKIPME")
                        .arg("yes")
                        .query::<u64>(&mut knife)
                        .unwrap();
                }
                std::thread::sleep(Duration::from_millis(25));
            }
            cuts
        }
    });
    let other = loop {
        // Connecting is not spared either.
        if let Ok(other) = Client::builder().lease(LEASE).connect(server.url(0)).await {
            break other;
        }
    };
    let workers: Vec<_> = (0..8)
        .map(|worker| {
            let (client, counter) = (if worker % 2 == 0 { client.clone() } else { other.clone() }, Arc::clone(&counter));
            tokio::spawn(async move {
                let mut counted = 0;
                for _ in 0..25 {
                    let Ok(guard) = client.mutex("m").lock().wait(Duration::from_secs(20)).await else { continue };
                    let read = counter.load(Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    // As an honest user without a fence does: look before the write.
                    if guard.is_valid() {
                        counter.store(read + 1, Ordering::SeqCst);
                        counted += 1;
                    }
                    let _ = guard.release().await;
                }
                counted
            })
        })
        .collect();
    let mut counted = 0;
    for worker in workers {
        counted += worker.await.unwrap();
    }
    over.store(true, Ordering::SeqCst);
    let cuts = nemesis.join().unwrap();
    assert!(cuts > 5, "only {cuts} cuts: nothing was tested");
    assert_eq!(counter.load(Ordering::SeqCst), counted);
    assert!(counted >= 100, "only {counted} of 200 got their turn");
    let mut eyes_again = move || {
        eyes.exists::<_, bool>("m").or_else(|_| {
            eyes = redis::Client::open(server.url(0)).unwrap().get_connection().unwrap();
            eyes.exists::<_, bool>("m")
        })
    };
    let began = Instant::now();
    while eyes_again().unwrap() {
        assert!(began.elapsed() < LEASE * 4, "left behind");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
