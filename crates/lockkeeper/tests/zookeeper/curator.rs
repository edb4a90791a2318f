//! Beside the real Curator, in a Java process: exclusion, order, re-entrancy and crashes, both ways.

use std::sync::Arc;
use std::time::Duration;

use crate::java::{self, Curator};
use crate::site::{self, until};
use lockkeeper_testkit::zookeeper::ZooKeeper;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(60);

/// Sessions that a test needs to the end: no pause of a busy machine is as long.
const LONG: Duration = Duration::from_secs(30);

/// The session of a Curator that crashes: longer than a pause, and short enough to wait for its end.
const SHORT: Duration = Duration::from_secs(8);

/// A client of ours, Curator, the path of their folder, a driver to look with, and the server, which lives as long as this does.
type Both = (lockkeeper::Client, Curator, String, zookeeper_client::Client, Arc<ZooKeeper>);

/// Ours and Curator on one folder.
async fn both(test: &str) -> Option<Both> {
    let server = site::server(test)?;
    if let Some(why) = java::missing() {
        lockkeeper::conformance::skip(test, &why);
        return None;
    }
    let folder = site::fresh_folder(&server).await;
    let ours = site::client(&format!("zookeeper://{}/{folder}?session={}s", server.hosts(), LONG.as_secs())).await;
    let curator = Curator::start(&server.hosts(), LONG).await;
    let raw = site::raw(&server).await;
    Some((ours, curator, format!("/{folder}"), raw, server))
}

async fn nothing_is_left(raw: &zookeeper_client::Client, path: &str) {
    until("nothing is left", async || {
        let mut left = site::nodes(raw, path).await;
        for part in ["leases", "locks"] {
            left.extend(site::nodes(raw, &format!("{path}/{part}")).await);
        }
        left.iter().all(|node| matches!(node.as_str(), "leases" | "locks" | "_lockkeeper"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mutex_excludes_curator_and_the_other_way_round() {
    let Some((ours, mut curator, folder, raw, _server)) = both("curator").await else { return };
    let path = format!("{folder}/m");
    for _ in 0..5 {
        let guard = ours.mutex("m").lock().await.unwrap();
        assert_eq!(curator.ask(&format!("a acquire mutex {path} 50")).await, "busy");
        let waits = curator.send(&format!("a acquire mutex {path} 30000"));
        until("Curator waits", async || site::nodes(&raw, &path).await.len() == 2).await;
        guard.release().await.unwrap();
        assert_eq!(timeout(SOON, waits).await.unwrap().unwrap(), "granted");
        // Taken again by the same thread: no second node.
        assert_eq!(curator.ask(&format!("a acquire mutex {path} 50")).await, "granted");
        assert!(ours.mutex("m").try_lock().await.unwrap().is_none());
        let seen = ours.inspect("m").await.unwrap().expect("held");
        assert!(seen.holders[0].owner.starts_with("Curator at "), "{seen:?}");
        let waits = tokio::spawn({
            let ours = ours.clone();
            async move { ours.mutex("m").lock().await }
        });
        until("we wait", async || site::nodes(&raw, &path).await.len() == 2).await;
        assert_eq!(curator.ask(&format!("a release mutex {path}")).await, "released");
        assert!(!waits.is_finished());
        assert_eq!(curator.ask(&format!("a release mutex {path}")).await, "released");
        timeout(SOON, waits).await.unwrap().unwrap().unwrap().release().await.unwrap();
    }
    nothing_is_left(&raw, &path).await;
}

/// Reads the file, then writes it: two at once lose an update.
async fn count(file: &std::path::Path) {
    let number: u64 = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
    tokio::task::yield_now().await;
    std::fs::write(file, (number + 1).to_string()).unwrap();
}

/// Waits for the end of work that counts. Its rounds may take long on a busy machine, but never may none of them end.
async fn while_it_counts<T>(file: &std::path::Path, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        let before = std::fs::read_to_string(file).unwrap();
        if let Ok(done) = timeout(SOON, &mut work).await {
            return done;
        }
        assert_ne!(std::fs::read_to_string(file).unwrap(), before, "nobody was granted the lock for {SOON:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_update_is_lost_between_curator_and_us() {
    let Some((ours, mut curator, folder, raw, _server)) = both("curator").await else { return };
    for (name, kind, rounds) in [("m", "mutex", 50), ("w", "write", 30), ("s", "semaphore-1", 20)] {
        let file = std::env::temp_dir().join(format!("lockkeeper-curator-count-{}-{name}", std::process::id()));
        std::fs::write(&file, "0").unwrap();
        let path = format!("{folder}/{name}");
        let theirs: Vec<_> =
            ["a", "b"].map(|hand| curator.send(&format!("{hand} count {kind} {path} {rounds} {}", file.display()))).into();
        let mut tasks = Vec::new();
        for _ in 0..2 {
            let (ours, file) = (ours.clone(), file.clone());
            tasks.push(tokio::spawn(async move {
                for _ in 0..rounds {
                    match kind {
                        "mutex" => {
                            let guard = ours.mutex("m").lock().await.unwrap();
                            count(&file).await;
                            guard.release().await.unwrap();
                        }
                        "write" => {
                            let guard = ours.rwlock("w").write().await.unwrap();
                            count(&file).await;
                            guard.release().await.unwrap();
                        }
                        _ => {
                            let permit = ours.semaphore("s", 1).acquire().await.unwrap();
                            count(&file).await;
                            permit.release().await.unwrap();
                        }
                    }
                }
            }));
        }
        for answer in theirs {
            assert_eq!(while_it_counts(&file, answer).await.unwrap(), "counted");
        }
        for task in tasks {
            while_it_counts(&file, task).await.unwrap();
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), (4 * rounds).to_string(), "{kind}");
        std::fs::remove_file(&file).unwrap();
        nothing_is_left(&raw, &path).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_of_both_are_served_in_the_order_in_which_they_came() {
    let Some((ours, mut curator, folder, raw, server)) = both("curator").await else { return };
    let path = format!("{folder}/m");
    let guard = ours.mutex("m").lock().await.unwrap();
    // Each writes its number while it holds the lock.
    let file = std::env::temp_dir().join(format!("lockkeeper-curator-order-{}", std::process::id()));
    std::fs::write(&file, "").unwrap();
    let mut tasks = Vec::new();
    for number in 0..8 {
        if number % 2 == 0 {
            // A client each: the waiters of one process have a queue of their own.
            let ours = site::client(&format!("zookeeper://{}{folder}?session={}s", server.hosts(), LONG.as_secs())).await;
            let file = file.clone();
            tasks.push(tokio::spawn(async move {
                let guard = ours.mutex("m").lock().await.unwrap();
                let served = std::fs::read_to_string(&file).unwrap();
                std::fs::write(&file, format!("{served}{number} ")).unwrap();
                guard.release().await.unwrap();
            }));
        } else {
            let noted = curator.send(&format!("h{number} note mutex {path} {number} {}", file.display()));
            tasks.push(tokio::spawn(async move { assert_eq!(noted.await.unwrap(), "noted") }));
        }
        until("it stands in the queue", async || site::nodes(&raw, &path).await.len() == number + 2).await;
    }
    guard.release().await.unwrap();
    for task in tasks {
        timeout(SOON, task).await.expect("served").unwrap();
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "0 1 2 3 4 5 6 7 ");
    std::fs::remove_file(&file).unwrap();
    nothing_is_left(&raw, &path).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_writers_keep_the_rules_between_curator_and_us() {
    let Some((ours, mut curator, folder, raw, _server)) = both("curator").await else { return };
    let (lock, path) = (ours.rwlock("r"), format!("{folder}/r"));
    // Readers share.
    let reader = lock.read().await.unwrap();
    assert_eq!(curator.ask(&format!("a acquire read {path} 5000")).await, "granted");
    assert_eq!(curator.ask(&format!("b acquire write {path} 50")).await, "busy");
    reader.release().await.unwrap();
    assert!(lock.try_write().await.unwrap().is_none(), "Curator reads");
    assert_eq!(curator.ask(&format!("a release read {path}")).await, "released");
    // A writer of ours, and what becomes of it when it is downgraded.
    let writer = lock.write().await.unwrap();
    assert_eq!(curator.ask(&format!("a acquire read {path} 50")).await, "busy");
    let reader = writer.downgrade().await.unwrap();
    assert_eq!(curator.ask(&format!("a acquire write {path} 50")).await, "busy");
    assert_eq!(curator.ask(&format!("a acquire read {path} 5000")).await, "granted");
    reader.release().await.unwrap();
    assert_eq!(curator.ask(&format!("a release read {path}")).await, "released");
    // A writer of Curator's that reads beside itself.
    assert_eq!(curator.ask(&format!("a acquire write {path} 5000")).await, "granted");
    assert!(lock.try_read().await.unwrap().is_none());
    assert_eq!(curator.ask(&format!("a acquire read {path} 5000")).await, "granted");
    assert_eq!(curator.ask(&format!("a release write {path}")).await, "released");
    assert!(lock.try_write().await.unwrap().is_none(), "Curator still reads");
    lock.try_read().await.unwrap().expect("shared").release().await.unwrap();
    assert_eq!(curator.ask(&format!("a release read {path}")).await, "released");
    lock.try_write().await.unwrap().expect("free").release().await.unwrap();
    nothing_is_left(&raw, &path).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_are_counted_together_with_curators() {
    let Some((ours, mut curator, folder, raw, _server)) = both("curator").await else { return };
    let (semaphore, path) = (ours.semaphore("s", 3), format!("{folder}/s"));
    let two = semaphore.acquire_many(2).await.unwrap();
    assert_eq!(curator.ask(&format!("a acquire semaphore-3 {path} 5000")).await, "granted");
    assert_eq!(curator.ask(&format!("b acquire semaphore-3 {path} 50")).await, "busy");
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    assert_eq!(semaphore.available().await.unwrap(), 0);
    let waits = curator.send(&format!("b acquire semaphore-3 {path} 30000"));
    two.release().await.unwrap();
    assert_eq!(timeout(SOON, waits).await.unwrap().unwrap(), "granted");
    let one = semaphore.acquire().await.unwrap();
    let waits = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await }
    });
    assert_eq!(curator.ask(&format!("a release semaphore-3 {path}")).await, "released");
    timeout(SOON, waits).await.unwrap().unwrap().unwrap().release().await.unwrap();
    assert_eq!(curator.ask(&format!("b release semaphore-3 {path}")).await, "released");
    one.release().await.unwrap();
    nothing_is_left(&raw, &path).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_of_either_side_frees_what_it_held() {
    let Some((ours, mut curator, folder, raw, server)) = both("curator").await else { return };
    let path = format!("{folder}/m");
    let mut crashing = Curator::start(&server.hosts(), SHORT).await;
    assert_eq!(crashing.ask(&format!("a acquire mutex {path} 5000")).await, "granted");
    let waits = tokio::spawn({
        let ours = ours.clone();
        async move { ours.mutex("m").lock().await }
    });
    until("we wait", async || site::nodes(&raw, &path).await.len() == 2).await;
    crashing.kill();
    let guard = timeout(SOON, waits).await.expect("free when its session ends").unwrap().unwrap();
    let waits = curator.send(&format!("a acquire mutex {path} 30000"));
    until("Curator waits", async || site::nodes(&raw, &path).await.len() == 2).await;
    // Our session ends, as in a crash.
    let node = site::nodes(&raw, &path).await.into_iter().min_by_key(|node| node[node.len() - 10..].to_owned()).unwrap();
    let session = raw.check_stat(&format!("{path}/{node}")).await.unwrap().expect("there").ephemeral_owner;
    let port = server.ports()[0];
    tokio::task::spawn_blocking(move || site::close_session(port, session)).await.unwrap();
    assert_eq!(timeout(SOON, waits).await.unwrap().unwrap(), "granted");
    assert!(timeout(SOON, guard.lost()).await.is_ok() && !guard.is_valid());
    assert_eq!(curator.ask(&format!("a release mutex {path}")).await, "released");
    nothing_is_left(&raw, &path).await;
}
