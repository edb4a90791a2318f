//! Several names in one script, on real servers.

use std::time::Duration;

use lockkeeper::{Client, ErrorKind, MultiLock};
use redis::Commands;

use crate::cost::own;
use crate::server::{Flavour, Server};
use crate::site::scripts_run;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_names_are_one_request() {
    let Some((_server, client, mut eyes)) = own("a thousand names").await else { return };
    let names: Vec<String> = (0..1_000).map(|number| format!("n{number}")).collect();
    let all = client.multi_lock(&names);
    let before = scripts_run(&mut eyes);
    let began = std::time::Instant::now();
    let guard = all.lock().await.unwrap();
    let took = began.elapsed();
    assert_eq!(scripts_run(&mut eyes) - before, 1);
    println!("1,000 names in {took:?}");
    let mut tokens: Vec<u64> = guard.tokens().map(|(_, token)| token.number()).collect();
    assert_eq!(tokens.len(), 1_000);
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 1_000, "one token per lock");
    assert!(names.iter().all(|name| eyes.exists::<_, bool>(name).unwrap()));
    guard.release().await.unwrap();
    assert!(!names.iter().any(|name| eyes.exists::<_, bool>(name).unwrap()));
}

/// One that is busy, at any place: nothing is taken, of any kind, not even a token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_kinds_or_nothing_on_every_server() {
    for flavour in Flavour::ALL {
        if let Some(why) = Server::missing(flavour) {
            lockkeeper::conformance::skip("all kinds or nothing", &why);
            continue;
        }
        let server = Server::shared(flavour);
        let url = server.fresh_url();
        let (ours, theirs) = (Client::connect(&url).await.unwrap(), Client::connect(&url).await.unwrap());
        let mut eyes = redis::Client::open(url).unwrap().get_connection().unwrap();
        let (mutex, fair, readers) = (ours.mutex("m"), ours.fair_mutex("f"), ours.rwlock("r"));
        let (writer, permits) = (ours.rwlock("w"), ours.semaphore("s", 2));
        let all = MultiLock::new()
            .and(mutex.lock())
            .and(fair.lock())
            .and(readers.read())
            .and(writer.write())
            .and(permits.acquire_many(2));
        let dump = |eyes: &mut redis::Connection| {
            let mut keys: Vec<String> = eyes.keys("*").unwrap();
            keys.retain(|key| !key.starts_with("lockkeeper:client:"));
            keys.sort();
            let token: Option<u64> = eyes.get("lockkeeper:token").unwrap();
            (keys, token)
        };
        let guard = all.lock().await.unwrap();
        assert_eq!(guard.tokens().count(), 4);
        let beside = theirs.rwlock("r").try_read().await.unwrap().expect("a reader beside a reader");
        for name in ["m", "f", "r", "w", "s"] {
            assert!(theirs.inspect(name).await.unwrap().is_some(), "{flavour:?}: {name}");
        }
        beside.release().await.unwrap();
        guard.release().await.unwrap();
        for busy in ["m", "f", "r", "w", "s"] {
            let holder = match busy {
                "m" | "f" => MultiLock::new().and(theirs.mutex(busy).lock()),
                "r" | "w" => MultiLock::new().and(theirs.rwlock(busy).write()),
                _ => MultiLock::new().and(theirs.semaphore(busy, 2).acquire()),
            };
            let holder = holder.lock().await.unwrap();
            let before = dump(&mut eyes);
            assert!(all.try_lock().await.unwrap().is_none(), "{flavour:?}: {busy} is busy");
            assert_eq!(dump(&mut eyes), before, "{flavour:?}: {busy} was busy, and something was taken");
            holder.release().await.unwrap();
        }
        // Nor if one is of another kind.
        let reader = theirs.rwlock("m").read().await.unwrap();
        let before = dump(&mut eyes);
        assert_eq!(all.try_lock().await.unwrap_err().kind(), ErrorKind::WrongKind);
        assert_eq!(dump(&mut eyes), before);
        reader.release().await.unwrap();
        all.lock().timeout(Duration::from_secs(10)).await.unwrap().release().await.unwrap();
    }
}

/// Two ways to one server are known to be that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_host_names_of_one_server_are_one_store() {
    if let Some(why) = Server::missing(Flavour::Redis) {
        lockkeeper::conformance::skip("host names", &why);
        return;
    }
    let server = Server::shared(Flavour::Redis);
    let url = server.fresh_url();
    let ours = Client::connect(&url).await.unwrap();
    let theirs = Client::connect(url.replace("127.0.0.1", "localhost")).await.unwrap();
    let (one, same, other) = (ours.mutex("a"), theirs.mutex("a"), theirs.mutex("b"));
    let twice = MultiLock::new().and(one.lock()).and(same.lock());
    let error = twice.lock().await.unwrap_err();
    assert!(error.to_string().contains("named twice"), "{error}");
    MultiLock::new().and(one.lock()).and(other.lock()).lock().await.unwrap().release().await.unwrap();
}
