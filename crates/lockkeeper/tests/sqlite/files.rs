//! What can be wrong with a file is told, and the file left as it is.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use lockkeeper::{Client, ErrorKind};
use rusqlite::Connection;

use crate::folder::{Folder, queued};

async fn refused(folder: &Folder, says: &str) -> ErrorKind {
    let error = Client::connect(folder.url()).await.map(drop).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(says) && text.contains(&folder.file().display().to_string()), "{text}");
    error.kind()
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("it is there").permissions().mode() & 0o7777
}

#[tokio::test]
async fn a_foreign_file_is_refused_and_not_touched() {
    let foreign_database = {
        let folder = Folder::new();
        let path = folder.path().join("other.db");
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1)").unwrap();
        std::fs::read(&path).unwrap()
    };
    for bytes in [b"my diary\n".to_vec(), Vec::new(), vec![0; 4096], foreign_database] {
        let folder = Folder::new();
        std::fs::write(folder.file(), &bytes).unwrap();
        assert_eq!(refused(&folder, "is no store of lockkeeper").await, ErrorKind::Config);
        assert_eq!(std::fs::read(folder.file()).unwrap(), bytes, "left as it was");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing put beside it");
    }
}

#[tokio::test]
async fn a_damaged_file_is_refused_and_not_replaced() {
    let folder = Folder::new();
    Client::connect(folder.url()).await.unwrap().mutex("m").lock().await.unwrap().release().await.unwrap();
    let _ = std::fs::remove_file(folder.path().join("locks.db-wal"));
    let mut bytes = std::fs::read(folder.file()).unwrap();
    bytes[100..].fill(0x5a);
    std::fs::write(folder.file(), &bytes).unwrap();
    assert_eq!(refused(&folder, "is damaged").await, ErrorKind::Config);
    assert_eq!(std::fs::read(folder.file()).unwrap(), bytes, "left as it was");
}

#[tokio::test]
async fn another_layout_is_refused() {
    let folder = Folder::new();
    drop(Client::connect(folder.url()).await.unwrap());
    let mut bytes = std::fs::read(folder.file()).unwrap();
    bytes[60..64].copy_from_slice(&7_u32.to_be_bytes());
    std::fs::write(folder.file(), &bytes).unwrap();
    assert_eq!(refused(&folder, "has layout 7").await, ErrorKind::Config);
}

#[tokio::test]
async fn a_directory_and_a_missing_directory_are_refused() {
    let folder = Folder::new();
    std::fs::create_dir(folder.file()).unwrap();
    assert_eq!(refused(&folder, "is a directory").await, ErrorKind::Config);
    let error = Client::connect("sqlite:/nowhere/at/all/locks.db").await.unwrap_err();
    assert!(error.kind() == ErrorKind::Config && error.to_string().contains("/nowhere/at/all"), "{error}");
}

#[tokio::test]
async fn what_cannot_be_written_is_refused() {
    // The kernel's own directory: also root cannot write there.
    let error = Client::connect("sqlite:/sys/kernel/locks.db").await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Denied | ErrorKind::Unavailable), "{error:?}");
    assert!(error.to_string().contains("/sys/kernel/locks.db"), "{error}");
}

#[tokio::test]
async fn files_are_private_unless_the_directory_is_a_groups() {
    for (directory, file, living) in
        [(0o700, 0o600, 0o700), (0o755, 0o600, 0o700), (0o1777, 0o600, 0o700), (0o2770, 0o660, 0o2770)]
    {
        let folder = Folder::new();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(directory)).unwrap();
        let client = Client::connect(folder.url()).await.unwrap();
        let _guard = client.mutex("m").lock().await.unwrap();
        for name in ["locks.db", "locks.db-wal", "locks.db-shm"] {
            assert_eq!(mode(&folder.path().join(name)), file, "{name} in {directory:o}");
        }
        let live = folder.path().join("locks.db-live");
        assert_eq!(mode(&live), living, "in {directory:o}");
        for entry in std::fs::read_dir(&live).unwrap() {
            assert_eq!(mode(&entry.unwrap().path()), file, "in {directory:o}");
        }
    }
}

#[tokio::test]
async fn after_a_reboot_holds_are_over_numbers_stay_and_tokens_grow() {
    let folder = Folder::new();
    let client = Client::connect(folder.url()).await.unwrap();
    let guard = client.mutex("m").lock().await.unwrap();
    client.latch("l").try_set(3).await.unwrap();
    let token = guard.token().unwrap().number();
    let eyes = Connection::open(folder.file()).unwrap();
    // The clock of another boot, with a token from the future: the wall clock was set back meanwhile.
    eyes.execute("UPDATE store SET boot = 'the boot before', token = ?1", [token as i64 + 1_000_000_000_000]).unwrap();
    let after = Client::connect(folder.url()).await.unwrap();
    let next = after.mutex("m").try_lock().await.unwrap().expect("the holder is over, with its boot");
    assert_eq!(next.token().unwrap().number(), token + 1_000_000_000_001);
    assert_eq!(after.latch("l").count().await.unwrap(), 3);
}

/// The wall clock was set back after `token` was given out for the name, which is still known in the name's row.
fn set_back(eyes: &Connection, token: u64) -> u64 {
    let before = token + 1_000_000_000_000;
    let changed = eyes.execute("UPDATE head SET body = json_set(body, '$.last_token', ?1) WHERE name = 'm'", [before as i64]);
    assert_eq!(changed.unwrap(), 1);
    before
}

#[tokio::test]
async fn tokens_grow_while_the_clock_is_behind() {
    let folder = Folder::new();
    let client = Client::connect(folder.url()).await.unwrap();
    let mutex = client.fair_mutex("m");
    let eyes = Connection::open(folder.file()).unwrap();
    // Over a release that leaves nothing behind.
    let guard = mutex.lock().await.unwrap();
    let before = set_back(&eyes, guard.token().unwrap().number());
    guard.release().await.unwrap();
    let guard = mutex.lock().await.unwrap();
    assert_eq!(guard.token().unwrap().number(), before + 1);
    // To one who waited.
    let before = set_back(&eyes, guard.token().unwrap().number());
    let other = Client::connect(folder.url()).await.unwrap();
    let waiting = tokio::spawn(async move { other.fair_mutex("m").lock().await });
    let queued = || eyes.query_row("SELECT count(*) FROM part WHERE name = 'm'", [], |row| row.get::<_, u32>(0)).unwrap();
    let since = std::time::Instant::now();
    while queued() == 0 {
        assert!(since.elapsed() < Duration::from_secs(10), "nobody waits");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    guard.release().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    assert_eq!(guard.token().unwrap().number(), before + 1);
    // Over a reboot.
    let before = set_back(&eyes, guard.token().unwrap().number());
    eyes.execute("UPDATE store SET boot = 'the boot before'", []).unwrap();
    let after = Client::connect(folder.url()).await.unwrap();
    let next = after.fair_mutex("m").try_lock().await.unwrap().expect("the holder is over, with its boot");
    assert_eq!(next.token().unwrap().number(), before + 1);
}

#[tokio::test]
async fn a_file_in_use_by_another_machine_is_refused_and_one_that_is_idle_adopted() {
    let folder = Folder::new();
    let client = Client::connect(folder.url()).await.unwrap();
    let guard = client.mutex("m").lock().await.unwrap();
    let eyes = Connection::open(folder.file()).unwrap();
    let move_away = || eyes.execute("UPDATE store SET boot = 'its boot', machine = 'another'", []).unwrap();
    move_away();
    if std::fs::read_to_string("/etc/machine-id").unwrap_or_default().trim().is_empty() {
        return lockkeeper::conformance::skip("a file of another machine", "this machine has no machine-id");
    }
    assert_eq!(refused(&folder, "was last used by another machine").await, ErrorKind::Config);
    let error = guard.release().await.unwrap_err();
    assert!(error.to_string().contains("another machine"), "the one who used it before is told too: {error}");
    eyes.execute("DELETE FROM head", []).unwrap();
    move_away();
    let adopted = Client::connect(folder.url()).await.unwrap();
    assert!(adopted.mutex("m").try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn a_removed_file_is_noticed_and_the_holder_told() {
    let folder = Folder::new();
    let client = Client::builder().lease(Duration::from_secs(3)).connect(folder.url()).await.unwrap();
    let guard = client.mutex("m").lock().await.unwrap();
    std::fs::remove_file(folder.file()).unwrap();
    let other = Client::connect(folder.url()).await.unwrap();
    let next = other.mutex("m").try_lock().await.unwrap().expect("an empty store");
    assert!(next.token().unwrap().number() > guard.token().unwrap().number(), "tokens grow by the clock");
    tokio::time::timeout(Duration::from_secs(20), guard.lost()).await.expect("told at the next renewal");
    drop(next);
}

#[tokio::test]
async fn two_names_of_one_file_are_one_store() {
    let folder = Folder::new();
    let client = Client::connect(folder.url()).await.unwrap();
    let link = folder.path().join("link.db");
    std::os::unix::fs::symlink(folder.file(), &link).unwrap();
    let other = Client::connect(format!("sqlite:{}", link.display())).await.unwrap();
    let guard = client.mutex("m").lock().await.unwrap();
    assert!(other.mutex("m").try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
    assert!(!folder.path().join("link.db-live").exists());
}

#[tokio::test]
async fn a_long_path_is_as_good_as_a_short_one() {
    let folder = Folder::new();
    let deep = folder.path().join("d".repeat(120)).join("e".repeat(120));
    std::fs::create_dir_all(&deep).unwrap();
    let url = format!("sqlite:{}", deep.join("locks.db").display());
    let (one, two) = (Client::connect(&url).await.unwrap(), Client::connect(&url).await.unwrap());
    let guard = one.fair_mutex("m").lock().await.unwrap();
    let mutex = two.fair_mutex("m");
    let waiting = tokio::spawn(async move { mutex.lock().await.map(drop) });
    queued(&one, 1).await;
    guard.release().await.unwrap();
    tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("woken").unwrap().unwrap();
}
