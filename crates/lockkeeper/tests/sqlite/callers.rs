//! Requests are carried out on the thread of whoever asks, which must not wait there for others.

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use lockkeeper::Client;
use rusqlite::Connection;

use crate::folder::Folder;

/// On one thread: if the request waited there for the other writer, nobody would be left to end that one's transaction.
#[tokio::test]
async fn another_writer_does_not_stop_the_executor() {
    let folder = Folder::new();
    let client = Client::connect(folder.url()).await.unwrap();
    let mutex = client.mutex("m");
    mutex.lock().await.unwrap().release().await.unwrap();
    let writer = Connection::open(folder.file()).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    let began = Instant::now();
    let mut locking = std::pin::pin!(mutex.lock().into_future());
    tokio::select! {
        biased;
        locked = &mut locking => panic!("in the midst of a transaction: {locked:?}"),
        () = std::future::ready(()) => {}
    }
    // To wait for a writer until that is an error takes two seconds.
    assert!(began.elapsed() < Duration::from_secs(1), "it waited {:?}", began.elapsed());
    writer.execute_batch("COMMIT").unwrap();
    let guard = tokio::time::timeout(Duration::from_secs(10), locking).await.expect("the writer has ended").unwrap();
    guard.release().await.unwrap();
}

/// Always answered at once, it still lets the others of its executor go on.
#[tokio::test]
async fn a_loop_of_requests_leaves_the_executor_to_others() {
    let folder = Folder::new();
    let client = Client::connect(folder.url()).await.unwrap();
    let other = tokio::spawn(async {});
    let mutex = client.mutex("m");
    for _ in 0..10_000 {
        mutex.lock().await.unwrap().release().await.unwrap();
        if other.is_finished() {
            return;
        }
    }
    panic!("ten thousand cycles, and the other task never had its turn");
}

/// SQLite itself no longer does it: a commit would sync on the caller's thread.
#[tokio::test]
async fn the_log_is_written_back() {
    let folder = Folder::new();
    let client = Client::connect(folder.url()).await.unwrap();
    let mutex = client.mutex("m");
    // Some three pages each, so that a log that is never written back has twenty megabytes.
    for _ in 0..2_000 {
        mutex.lock().await.unwrap().release().await.unwrap();
    }
    let log = std::fs::metadata(folder.path().join("locks.db-wal")).unwrap().len();
    assert!(log < 10 << 20, "the log has {log} bytes");
}
