//! Beside the real thing: `etcdctl lock` and programs with etcd's Go client, on the same locks.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use lockkeeper::Client;
use lockkeeper_testkit::etcd::Etcd;
use lockkeeper_testkit::poll::async_until_within;

use super::RELEASE;
use crate::bench::{LONG, client, fresh, shared_of};
use crate::counting::{Program, Tally, number};

/// Ends a program when dropped.
pub(crate) struct Ends(pub(crate) Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until a name has so many keys.
pub(crate) async fn keys(server: &Etcd, name: &str, number: usize) {
    let prefix = format!("{name}/");
    async_until_within(LONG, "so many keys are there", || async { server.keys(&prefix).len() == number }).await;
}

/// The driver, if it was built.
pub(crate) fn driver(test: &str) -> Option<PathBuf> {
    let found = std::env::var_os("LOCKKEEPER_ETCD_GO").map(PathBuf::from).filter(|file| file.is_file());
    if found.is_none() {
        lockkeeper::conformance::skip(test, "etcd-go: LOCKKEEPER_ETCD_GO names no driver; `cargo xtask setup` builds it");
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn etcdctl_and_we_wait_for_each_other_in_order() {
    let Some(server) = shared_of(RELEASE, "etcdctl lock") else { return };
    let name = fresh("ctl");
    let ours = client(&server.url()).await;
    // It holds: we wait; it is killed with its command: we have it when its lease ends.
    let mut ctl = Ends(server.ctl_command(&["lock", "--ttl", "2", &name, "sleep", "30"]).stdout(Stdio::null()).spawn().unwrap());
    keys(&server, &name, 1).await;
    assert!(ours.mutex(&name).try_lock().await.unwrap().is_none());
    let seen = ours.inspect(&name).await.unwrap().expect("held");
    assert!(seen.holders[0].owner.starts_with("etcd lease"), "{seen:?}");
    let waiting = tokio::spawn({
        let mutex = ours.mutex(&name);
        async move { mutex.lock().await.unwrap() }
    });
    keys(&server, &name, 2).await;
    ctl.0.kill().unwrap();
    let guard = tokio::time::timeout(LONG, waiting).await.expect("its lease ends").unwrap();
    // We hold: it waits behind us, and another one of ours behind it.
    let order = server.directory().join(&name);
    let script = server.directory().join(format!("{name}.sh"));
    std::fs::write(&script, format!("echo ctl >> {}", order.display())).unwrap();
    let script = script.display().to_string();
    let mut ctl = Ends(server.ctl_command(&["lock", "--ttl", "2", &name, "sh", &script]).stdout(Stdio::null()).spawn().unwrap());
    keys(&server, &name, 2).await;
    let behind = tokio::spawn({
        let (mutex, order) = (ours.mutex(&name), order.clone());
        async move {
            let guard = mutex.lock().await.unwrap();
            let said = std::fs::read_to_string(&order).unwrap_or_default();
            guard.release().await.unwrap();
            said
        }
    });
    keys(&server, &name, 3).await;
    guard.release().await.unwrap();
    assert_eq!(tokio::time::timeout(LONG, behind).await.expect("woken").unwrap(), "ctl\n", "it came before its turn");
    assert!(ctl.0.wait().unwrap().success());
    keys(&server, &name, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_longer_name_of_etcdctl_does_not_hold_up_ours() {
    let Some(server) = shared_of(RELEASE, "etcdctl lock of a longer name") else { return };
    let name = fresh("long");
    let longer = format!("{name}/more");
    let _ctl = Ends(server.ctl_command(&["lock", "--ttl", "2", &longer, "sleep", "30"]).stdout(Stdio::null()).spawn().unwrap());
    keys(&server, &longer, 1).await;
    let ours = client(&server.url()).await;
    ours.mutex(&name).try_lock().await.unwrap().expect("free").release().await.unwrap();
    ours.mutex(&name).lock().await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_go_program_that_is_killed_frees_its_mutex_with_its_lease() {
    let (Some(server), Some(driver)) = (shared_of(RELEASE, "Go that dies"), driver("Go that dies")) else { return };
    let (name, ours) = (fresh("dies"), client(&server.url()).await);
    for _ in 0..3 {
        let mut program =
            Command::new(&driver).args([&server.hosts(), "hold", &name, "60000"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(program.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let mut program = Ends(program);
        assert!(said.starts_with("held"), "{said}");
        assert!(ours.mutex(&name).try_lock().await.unwrap().is_none());
        program.0.kill().unwrap();
        let guard = ours.mutex(&name).lock().timeout(LONG).await.unwrap();
        guard.release().await.unwrap();
    }
    keys(&server, &name, 0).await;
    // And a client of ours that goes away without a release frees it for Go.
    let gone = Arc::new(client(&server.url()).await);
    std::mem::drop(gone.mutex(&name).lock().await.unwrap());
    let ended = Command::new(&driver).args([&server.hosts(), "hold", &name, "1"]).stdout(Stdio::null()).status().unwrap();
    assert!(ended.success());
}

/// Mutexes and writers: of Go, and ours.
#[tokio::test(flavor = "multi_thread")]
async fn waiters_of_go_and_ours_are_served_in_the_order_in_which_they_came() {
    let (Some(server), Some(driver)) = (shared_of(RELEASE, "order beside Go"), driver("order beside Go")) else { return };
    for verb in ["note", "note-write"] {
        let (name, ours) = (fresh(verb), client(&server.url()).await);
        let file = server.directory().join(&name);
        std::fs::write(&file, "").unwrap();
        let guard = Held::acquire(&ours, &name, verb).await;
        let (mut tasks, mut programs) = (Vec::new(), Vec::new());
        for number in 0..8_usize {
            if number % 2 == 0 {
                // A client each: the waiters of one process have a queue of their own.
                let (ours, file, name) = (client(&server.url()).await, file.clone(), name.clone());
                tasks.push(tokio::spawn(async move {
                    let guard = Held::acquire(&ours, &name, verb).await;
                    let served = std::fs::read_to_string(&file).unwrap();
                    std::fs::write(&file, format!("{served}{number} ")).unwrap();
                    guard.release().await;
                }));
            } else {
                programs.push(notes(&server, &driver, verb, &name, &file, &format!("{number} ")));
            }
            keys(&server, &name, number + 2).await;
        }
        guard.release().await;
        for task in tasks {
            tokio::time::timeout(LONG, task).await.expect("served").unwrap();
        }
        for mut program in programs {
            assert!(tokio::task::block_in_place(|| program.0.wait().unwrap()).success());
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "0 1 2 3 4 5 6 7 ", "{verb}");
        keys(&server, &name, 0).await;
    }
}

/// A guard of ours that was entered again is one key, and keeps Go waiting until both are released.
#[tokio::test(flavor = "multi_thread")]
async fn a_guard_of_ours_that_was_entered_again_keeps_go_waiting() {
    let (Some(server), Some(driver)) = (shared_of(RELEASE, "re-entry beside Go"), driver("re-entry beside Go")) else { return };
    let (ours, rival) = (client(&server.url()).await, client(&server.url()).await);
    for verb in ["note", "note-write"] {
        let name = fresh(verb);
        let file = server.directory().join(&name);
        std::fs::write(&file, "").unwrap();
        let first = Held::acquire(&ours, &name, verb).await;
        let second = first.reenter();
        keys(&server, &name, 1).await;
        let mut go = notes(&server, &driver, verb, &name, &file, "Go");
        keys(&server, &name, 2).await;
        first.release().await;
        // Long enough for Go to come in if it could: it needs one round trip after the change of a key.
        for _ in 0..100 {
            assert!(Held::is_busy(&rival, &name, verb).await && second.is_valid());
            assert_eq!(std::fs::read_to_string(&file).unwrap(), "", "Go was let in beside the second guard");
        }
        assert_eq!(server.keys(&format!("{name}/")).len(), 2, "{verb}: ours, and Go's");
        second.release().await;
        // The control: the same look sees Go when it is let in.
        assert!(tokio::task::block_in_place(|| go.0.wait().unwrap()).success());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "Go");
        keys(&server, &name, 0).await;
    }
}

/// A Go program that appends the text to the file when it has the lock.
fn notes(server: &Etcd, driver: &Path, verb: &str, name: &str, file: &Path, text: &str) -> Ends {
    let mut go = Command::new(driver);
    Ends(go.args([&server.hosts(), verb, name, &file.display().to_string(), text]).spawn().unwrap())
}

/// A hold of ours beside a Go program that notes with this verb: `note` is for mutexes, `note-write` for writers.
enum Held {
    Mutex(lockkeeper::MutexGuard),
    Write(lockkeeper::RwLockWriteGuard),
}

impl Held {
    async fn acquire(client: &Client, name: &str, verb: &str) -> Self {
        match verb {
            "note" => Self::Mutex(client.mutex(name).lock().await.unwrap()),
            _ => Self::Write(client.rwlock(name).write().await.unwrap()),
        }
    }

    /// Whether it is refused to another client now.
    async fn is_busy(rival: &Client, name: &str, verb: &str) -> bool {
        match verb {
            "note" => rival.mutex(name).try_lock().await.unwrap().is_none(),
            _ => rival.rwlock(name).try_write().await.unwrap().is_none(),
        }
    }

    /// Another guard of the same hold.
    fn reenter(&self) -> Self {
        match self {
            Self::Mutex(guard) => Self::Mutex(guard.reenter().unwrap()),
            Self::Write(guard) => Self::Write(guard.reenter().unwrap()),
        }
    }

    fn is_valid(&self) -> bool {
        match self {
            Self::Mutex(guard) => guard.is_valid(),
            Self::Write(guard) => guard.is_valid(),
        }
    }

    async fn release(self) {
        match self {
            Self::Mutex(guard) => guard.release().await.unwrap(),
            Self::Write(guard) => guard.release().await.unwrap(),
        }
    }
}

/// Go goes by the age of keys alone, so the key of the writer stays until its reader is released.
#[tokio::test(flavor = "multi_thread")]
async fn a_downgrade_lets_no_waiting_writer_of_go_in() {
    let (Some(server), Some(driver)) = (shared_of(RELEASE, "a downgrade beside Go"), driver("a downgrade beside Go")) else {
        return;
    };
    let (name, ours, rival) = (fresh("down"), client(&server.url()).await, client(&server.url()).await);
    let tally = Tally::new(server.directory().join(&name));
    let writer = ours.rwlock(&name).write().await.unwrap();
    let mut go = Command::new(&driver);
    go.args([&server.hosts(), "write", &name, &tally.file().display().to_string(), "1"]);
    let told = tally.clone();
    let mut go = Program::start(&mut go, move |said| told.tell(said.parse().unwrap()));
    keys(&server, &name, 2).await;
    let reader = writer.downgrade().await.unwrap();
    // Long enough for Go to come in if it could: it is woken by the change of keys, and needs one round trip.
    for _ in 0..200 {
        assert!(rival.rwlock(&name).try_write().await.unwrap().is_none());
        assert!(reader.is_valid() && !go.has_ended());
        assert_eq!((number(tally.file()), go.steps()), (0, 0), "Go wrote beside a reader");
    }
    reader.release().await.unwrap();
    // The control: the same look sees Go's writer when it is let in.
    tokio::task::block_in_place(|| go.end());
    assert_eq!(tally.judge(0), Ok(1));
    keys(&server, &name, 0).await;
}
