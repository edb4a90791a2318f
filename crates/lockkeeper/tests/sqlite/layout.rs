//! Head rows and part rows: what a step writes, how many waiters share a name, listing by pages, and the upgrade of an older file.

use std::time::{Duration, Instant};

use lockkeeper::{Client, ErrorKind};
use rusqlite::Connection;
use rustix::fs::{CWD, FileType, Mode, OFlags};

use crate::folder::{Folder, queued};

/// A file as the layout before wrote it: a latch with two to go, a semaphore of five, and a mutex that a dead client held.
fn file_of_the_layout_before(folder: &Folder) {
    let file = Connection::open(folder.file()).unwrap();
    let uuid = "00000000-0000-0000-0000-000000000007";
    file.execute_batch(&format!(
        r#"
        PRAGMA application_id = {}; PRAGMA user_version = 1;
        CREATE TABLE store (one INTEGER PRIMARY KEY CHECK (one = 1), token INTEGER NOT NULL, machine TEXT NOT NULL, boot TEXT NOT NULL);
        INSERT INTO store VALUES (1, 0, '', '');
        CREATE TABLE lock (name TEXT PRIMARY KEY, version INTEGER NOT NULL, body TEXT NOT NULL) WITHOUT ROWID;
        CREATE TABLE listener (name TEXT NOT NULL, instance TEXT NOT NULL, PRIMARY KEY (name, instance)) WITHOUT ROWID;
        CREATE TABLE client (id TEXT PRIMARY KEY, ends INTEGER NOT NULL, card TEXT NOT NULL) WITHOUT ROWID;
        INSERT INTO lock VALUES
            ('l', 3, '{{"record":{{"body":{{"Latch":{{"to_go":2}}}},"seen":[]}},"lives":[],"last_token":0}}'),
            ('s', 1, '{{"record":{{"body":{{"Semaphore":{{"total":5,"held":[]}}}},"seen":[]}},"lives":[],"last_token":0}}'),
            ('m', 9, '{{"record":{{"body":{{"Mutex":{{"holder":[{{"client":"{uuid}","number":4}},
                {{"since":1,"expires":9000000000000000000,"token":9000000000000000}}],"queue":[]}}}},"seen":[]}},
                "lives":[[{{"client":"{uuid}","number":4}},"00000000000000000000000000000007.1"]],"last_token":9000000000000000}}');
        PRAGMA journal_mode = wal;
        "#,
        0x4c4b_5052,
    ))
    .unwrap();
}

#[tokio::test]
async fn a_file_of_the_layout_before_is_upgraded_when_nobody_uses_it() {
    let folder = Folder::new();
    file_of_the_layout_before(&folder);
    let client = Client::connect(folder.url()).await.unwrap();
    assert_eq!(client.latch("l").count().await.unwrap(), 2);
    assert_eq!(client.semaphore("s", 5).available().await.unwrap(), 5);
    let guard = client.mutex("m").try_lock().await.unwrap().expect("its holder is dead");
    assert_eq!(guard.token().unwrap().number(), 9_000_000_000_000_001, "tokens grow over the upgrade");
    // An older version reads the number in the header of the file itself.
    assert_eq!(std::fs::read(folder.file()).unwrap()[60..64], 2_u32.to_be_bytes());
    let eyes = Connection::open(folder.file()).unwrap();
    assert!(eyes.prepare("SELECT * FROM lock").is_err(), "an older process that is still connected finds no table");
}

#[tokio::test]
async fn a_file_that_an_older_version_uses_is_refused_in_words_and_not_changed() {
    let folder = Folder::new();
    file_of_the_layout_before(&folder);
    let live = folder.path().join("locks.db-live");
    std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700).create(&live).unwrap();
    let pipe = live.join("00000000000000000000000000000007.1");
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let alive = rustix::fs::open(&pipe, OFlags::RDWR | OFlags::NONBLOCK, Mode::empty()).unwrap();
    let error = Client::connect(folder.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.to_string().contains("an older lockkeeper uses it now"), "{error}");
    let rows = |sql: &str| Connection::open(folder.file()).unwrap().query_row(sql, [], |row| row.get::<_, u32>(0)).unwrap();
    assert_eq!((rows("SELECT count(*) FROM lock"), rows("PRAGMA user_version")), (3, 1));
    drop(alive);
    Client::connect(folder.url()).await.expect("nobody uses it any more");
}

/// Many waiters: each has a row of its own, which nobody else writes, and they are served in their order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_waiter_has_its_own_row_and_many_are_served_in_order() {
    const WAITERS: usize = 60;
    let folder = Folder::new();
    let client = Client::connect(folder.url()).await.unwrap();
    let held = client.fair_mutex("m").lock().await.unwrap();
    let (done, mut order) = tokio::sync::mpsc::unbounded_channel();
    let mut waiting = Vec::new();
    for number in 0..WAITERS {
        let (other, done) = (Client::connect(folder.url()).await.unwrap(), done.clone());
        waiting.push(tokio::spawn(async move {
            let guard = other.fair_mutex("m").lock().await.unwrap();
            done.send(number).unwrap();
            guard.release().await.unwrap();
        }));
        queued(&client, number + 1).await;
    }
    let eyes = Connection::open(folder.file()).unwrap();
    let parts = || eyes.query_row("SELECT count(*) FROM part WHERE name = 'm'", [], |row| row.get::<_, u32>(0)).unwrap();
    assert_eq!(parts() as usize, WAITERS);
    held.release().await.unwrap();
    for handle in waiting {
        tokio::time::timeout(Duration::from_secs(60), handle).await.expect("in time").unwrap();
    }
    drop(done);
    let mut served = Vec::new();
    while let Some(number) = order.recv().await {
        served.push(number);
    }
    assert_eq!(served, (0..WAITERS).collect::<Vec<_>>());
    assert_eq!(parts(), 0, "nothing is left");
}

/// A store with 100,000 latches, and a connection of its own to its file.
async fn with_many_names() -> (Folder, Client, Connection) {
    let folder = Folder::new();
    let client = Client::connect(folder.url()).await.unwrap();
    let eyes = Connection::open(folder.file()).unwrap();
    eyes.execute_batch(
        r#"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
        INSERT INTO head SELECT printf('n:%06d', i), 1, '{"head":{"Latch":{"to_go":1}},"last_token":0}' FROM n"#,
    )
    .unwrap();
    (folder, client, eyes)
}

#[tokio::test]
async fn a_page_of_a_long_list_reads_only_that_page() {
    let (_folder, client, _eyes) = with_many_names().await;
    client.latch("z").try_set(1).await.unwrap();
    let began = Instant::now();
    assert_eq!(client.list("z*").await.unwrap().len(), 1);
    assert_eq!(client.list("n:09999?").await.unwrap().len(), 10);
    // All names would take seconds in a test build.
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(client.list("n:0001*").await.unwrap().len(), 100);
}

/// A file that was long once does not stay so: each checkpoint returns some of the free pages to the file system.
#[tokio::test]
async fn a_file_shrinks_when_what_lay_in_it_is_gone() {
    let (_folder, client, eyes) = with_many_names().await;
    eyes.execute_batch("DELETE FROM head WHERE name LIKE 'n:%'").unwrap();
    let free = || eyes.query_row("PRAGMA freelist_count", [], |row| row.get::<_, u32>(0)).unwrap();
    let before = free();
    assert!(before > 1_000, "{before}");
    // A log of a thousand pages is written back, and a turn takes a few of them.
    let (mutex, mut turns) = (client.mutex("m"), 0);
    while free() + 256 > before {
        turns += 1;
        assert!(turns < 10_000, "{} of {before} pages are still free", free());
        mutex.lock().await.unwrap().release().await.unwrap();
    }
}
