//! Beside the real Curator, in a Java process: exclusion, order, re-entrancy and crashes, both ways. All of it with each version.

use std::sync::Arc;
use std::time::Duration;

use crate::java::{Curator, Version};
use crate::killed::no_update_is_lost_when_processes_of_both_sides_are_killed;
use crate::site::{self, until};
use lockkeeper_testkit::zookeeper::ZooKeeper;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(60);

/// Sessions that a test needs to the end: no pause of a busy machine is as long.
const LONG: Duration = Duration::from_secs(30);

/// The session of a Curator that crashes: longer than a pause, and short enough to wait for its end.
pub(crate) const SHORT: Duration = Duration::from_secs(8);

/// A client of ours, Curator, the path of their folder, a driver to look with, and the server, which lives as long as this does.
pub(crate) type Both = (lockkeeper::Client, Curator, String, zookeeper_client::Client, Arc<ZooKeeper>);

/// Ours and Curator on one folder.
pub(crate) async fn both(version: Version) -> Option<Both> {
    if let Some(why) = version.missing() {
        lockkeeper::conformance::skip("curator", &why);
        return None;
    }
    let server = ZooKeeper::shared_of(version.server());
    let folder = site::fresh_folder(&server).await;
    let ours = site::client(&format!("zookeeper://{}/{folder}?session={}s", server.hosts(), LONG.as_secs())).await;
    let curator = Curator::start(version, &server.hosts(), LONG).await;
    let raw = site::raw(&server).await;
    Some((ours, curator, format!("/{folder}"), raw, server))
}

pub(crate) async fn nothing_is_left(raw: &zookeeper_client::Client, path: &str) {
    until("nothing is left", async || {
        let mut left = site::nodes(raw, path).await;
        for part in ["leases", "locks"] {
            left.extend(site::nodes(raw, &format!("{path}/{part}")).await);
        }
        left.iter().all(|node| matches!(node.as_str(), "leases" | "locks" | "_lockkeeper"))
    })
    .await;
}

async fn a_mutex_excludes_curator_and_the_other_way_round(version: Version) {
    let Some((ours, mut curator, folder, raw, _server)) = both(version).await else { return };
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

/// A guard of ours that was entered again is one node, and keeps Curator waiting until both are released.
async fn a_guard_of_ours_that_was_entered_again_keeps_curator_waiting(version: Version) {
    let Some((ours, mut curator, folder, raw, _server)) = both(version).await else { return };
    for kind in ["mutex", "write"] {
        let path = format!("{folder}/{kind}");
        let first = Held::acquire(&ours, kind).await;
        let second = first.reenter();
        assert_eq!(site::nodes(&raw, &path).await.len(), 1, "{kind}: a node for each guard");
        let mut waits = curator.send(&format!("a acquire {kind} {path} 30000"));
        until("Curator waits", async || site::nodes(&raw, &path).await.len() == 2).await;
        first.release().await;
        // Both nodes are there when the release has been answered, so nothing has woken Curator.
        assert_eq!(site::nodes(&raw, &path).await.len(), 2, "{kind}");
        assert_eq!(curator.ask(&format!("b acquire {kind} {path} 50")).await, "busy", "{kind}");
        assert!(waits.try_recv().is_err(), "{kind}: Curator was let in beside the second guard");
        second.release().await;
        assert_eq!(timeout(SOON, waits).await.unwrap().unwrap(), "granted");
        assert_eq!(curator.ask(&format!("a release {kind} {path}")).await, "released");
        nothing_is_left(&raw, &path).await;
    }
}

/// Reads the file, then writes it: two at once lose an update.
async fn count(file: &std::path::Path) {
    let number: u64 = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
    tokio::task::yield_now().await;
    std::fs::write(file, (number + 1).to_string()).unwrap();
}

/// Waits for the end of work that counts. Its rounds may take long on a busy machine, but never may none of them end.
pub(crate) async fn while_it_counts<T>(file: &std::path::Path, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        let before = std::fs::read_to_string(file).unwrap();
        if let Ok(done) = timeout(SOON, &mut work).await {
            return done;
        }
        assert_ne!(std::fs::read_to_string(file).unwrap(), before, "nobody was granted the lock for {SOON:?}");
    }
}

async fn no_update_is_lost_between_curator_and_us(version: Version) {
    let Some((ours, mut curator, folder, raw, _server)) = both(version).await else { return };
    for (name, kind, rounds) in [("m", "mutex", 50), ("w", "write", 30), ("s", "semaphore-1", 20)] {
        let file = std::env::temp_dir().join(format!("lockkeeper-curator-count-{}-{version:?}-{name}", std::process::id()));
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

/// Mutexes, writers and holders of the only permit.
async fn waiters_of_both_are_served_in_the_order_in_which_they_came(version: Version) {
    let Some((ours, mut curator, folder, raw, server)) = both(version).await else { return };
    for kind in ["mutex", "write", "semaphore-1"] {
        let path = format!("{folder}/{kind}");
        // Held by a node in the same folder, or by a permit in another one.
        let (queue, held) = if kind == "semaphore-1" { (format!("{path}/locks"), 0) } else { (path.clone(), 1) };
        let guard = Held::acquire(&ours, kind).await;
        // Each writes its number while it holds the lock.
        let file = std::env::temp_dir().join(format!("lockkeeper-curator-order-{}-{version:?}-{kind}", std::process::id()));
        std::fs::write(&file, "").unwrap();
        let mut tasks = Vec::new();
        for number in 0..8 {
            if number % 2 == 0 {
                // A client each: the waiters of one process have a queue of their own.
                let ours = site::client(&format!("zookeeper://{}{folder}?session={}s", server.hosts(), LONG.as_secs())).await;
                let file = file.clone();
                tasks.push(tokio::spawn(async move {
                    let guard = Held::acquire(&ours, kind).await;
                    let served = std::fs::read_to_string(&file).unwrap();
                    std::fs::write(&file, format!("{served}{number} ")).unwrap();
                    guard.release().await;
                }));
            } else {
                let noted = curator.send(&format!("h{number} note {kind} {path} {number} {}", file.display()));
                tasks.push(tokio::spawn(async move { assert_eq!(noted.await.unwrap(), "noted") }));
            }
            until("it stands in the queue", async || site::nodes(&raw, &queue).await.len() == number + 1 + held).await;
        }
        guard.release().await;
        for task in tasks {
            timeout(SOON, task).await.expect("served").unwrap();
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "0 1 2 3 4 5 6 7 ", "{kind}");
        std::fs::remove_file(&file).unwrap();
        nothing_is_left(&raw, &path).await;
    }
}

/// A hold of ours of one of three kinds.
enum Held {
    Mutex(lockkeeper::MutexGuard),
    Write(lockkeeper::RwLockWriteGuard),
    Permit(lockkeeper::Permit),
}

impl Held {
    /// Of the lock that is named like its kind.
    async fn acquire(client: &lockkeeper::Client, kind: &str) -> Self {
        match kind {
            "mutex" => Self::Mutex(client.mutex(kind).lock().await.unwrap()),
            "write" => Self::Write(client.rwlock(kind).write().await.unwrap()),
            _ => Self::Permit(client.semaphore(kind, 1).acquire().await.unwrap()),
        }
    }

    /// Another guard of the same hold.
    fn reenter(&self) -> Self {
        match self {
            Self::Mutex(guard) => Self::Mutex(guard.reenter().unwrap()),
            Self::Write(guard) => Self::Write(guard.reenter().unwrap()),
            Self::Permit(_) => panic!("a permit is not entered again"),
        }
    }

    async fn release(self) {
        match self {
            Self::Mutex(guard) => guard.release().await.unwrap(),
            Self::Write(guard) => guard.release().await.unwrap(),
            Self::Permit(permit) => permit.release().await.unwrap(),
        }
    }
}

async fn readers_and_writers_keep_the_rules_between_curator_and_us(version: Version) {
    let Some((ours, mut curator, folder, raw, _server)) = both(version).await else { return };
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

async fn permits_are_counted_together_with_curators(version: Version) {
    let Some((ours, mut curator, folder, raw, _server)) = both(version).await else { return };
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

/// What one side holds when it crashes, and what the other side waits for: name, held kind, awaited kind.
const HELD: [(&str, &str, &str); 4] =
    [("m", "mutex", "mutex"), ("w", "write", "read"), ("r", "read", "write"), ("s", "semaphore-1", "semaphore-1")];

/// Acquires a lock of ours, says so, and ends when the hold is lost.
async fn hold_until_lost(ours: lockkeeper::Client, name: &str, kind: &str, held: tokio::sync::mpsc::UnboundedSender<()>) {
    macro_rules! hold {
        ($acquired:expr) => {{
            let guard = $acquired.await.unwrap();
            held.send(()).unwrap();
            guard.lost().await;
            assert!(!guard.is_valid());
        }};
    }
    match kind {
        "mutex" => hold!(ours.mutex(name).lock()),
        "read" => hold!(ours.rwlock(name).read()),
        "write" => hold!(ours.rwlock(name).write()),
        _ => hold!(ours.semaphore(name, 1).acquire()),
    }
}

/// Waits until somebody waits for each of the locks.
async fn all_are_awaited(raw: &zookeeper_client::Client, folder: &str) {
    until("somebody waits for each", async || {
        for (name, ..) in HELD {
            // Who waits for a semaphore stands in a queue of its own.
            let (part, nodes) = if name == "s" { ("/locks", 1) } else { ("", 2) };
            if site::nodes(raw, &format!("{folder}/{name}{part}")).await.len() != nodes {
                return false;
            }
        }
        true
    })
    .await;
}

async fn a_crash_of_either_side_frees_what_it_held(version: Version) {
    let Some((ours, mut curator, folder, raw, server)) = both(version).await else { return };
    let mut crashing = Curator::start(version, &server.hosts(), SHORT).await;
    for (name, kind, _) in HELD {
        assert_eq!(crashing.ask(&format!("{name} acquire {kind} {folder}/{name} 5000")).await, "granted");
    }
    let (held, mut holds) = tokio::sync::mpsc::unbounded_channel();
    let ours: Vec<_> =
        HELD.map(|(name, _, kind)| tokio::spawn(hold_until_lost(ours.clone(), name, kind, held.clone()))).into_iter().collect();
    all_are_awaited(&raw, &folder).await;
    assert!(holds.is_empty(), "granted beside Curator");
    crashing.kill();
    for _ in HELD {
        timeout(SOON, holds.recv()).await.expect("free when its session ends").expect("held");
    }
    let waits = HELD.map(|(name, kind, _)| curator.send(&format!("{name} acquire {kind} {folder}/{name} 30000")));
    all_are_awaited(&raw, &folder).await;
    // Our session ends, as in a crash.
    let nodes = site::nodes(&raw, &format!("{folder}/m")).await;
    let node = nodes.into_iter().min_by_key(|node| node[node.len() - 10..].to_owned()).unwrap();
    let session = raw.check_stat(&format!("{folder}/m/{node}")).await.unwrap().expect("there").ephemeral_owner;
    let port = server.ports()[0];
    tokio::task::spawn_blocking(move || site::close_session(port, session)).await.unwrap();
    for granted in waits {
        assert_eq!(timeout(SOON, granted).await.unwrap().unwrap(), "granted");
    }
    for lost in ours {
        timeout(SOON, lost).await.expect("the loss is told").unwrap();
    }
    for (name, kind, _) in HELD {
        assert_eq!(curator.ask(&format!("{name} release {kind} {folder}/{name}")).await, "released");
        nothing_is_left(&raw, &format!("{folder}/{name}")).await;
    }
}

macro_rules! beside {
    ($($module:ident: $version:ident)*) => {$(
        mod $module {
            beside!(in $version:
                a_mutex_excludes_curator_and_the_other_way_round
                a_guard_of_ours_that_was_entered_again_keeps_curator_waiting
                no_update_is_lost_between_curator_and_us
                waiters_of_both_are_served_in_the_order_in_which_they_came
                readers_and_writers_keep_the_rules_between_curator_and_us
                permits_are_counted_together_with_curators
                a_crash_of_either_side_frees_what_it_held
                no_update_is_lost_when_processes_of_both_sides_are_killed
            );
        }
    )*};
    (in $version:ident: $($test:ident)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            super::$test(crate::java::Version::$version).await;
        }
    )*};
}

beside!(v5_4: Debian v5_9: V5_9_0);
