//! Beside the real thing: `etcdctl lock` and programs with etcd's Go client, on the same locks.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_testkit::etcd::Etcd;
use lockkeeper_testkit::poll::async_until_within;

use crate::bench::{LONG, client, fresh, shared};

/// Ends a program when dropped.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How many keys of a name there are.
async fn keys(server: &Etcd, name: &str, number: usize) {
    let prefix = format!("{name}/");
    async_until_within(LONG, "so many keys are there", || async { server.keys(&prefix).len() == number }).await;
}

/// The driver, if it was built.
fn driver(test: &str) -> Option<PathBuf> {
    let found = std::env::var_os("LOCKKEEPER_ETCD_GO").map(PathBuf::from).filter(|file| file.is_file());
    if found.is_none() {
        lockkeeper::conformance::skip(test, "etcd-go: LOCKKEEPER_ETCD_GO names no driver; `cargo xtask setup` builds it");
    }
    found
}

/// Adds one to the number in a file, not atomically on purpose.
fn add(file: &std::path::Path) {
    let number: u64 = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
    std::thread::sleep(Duration::from_millis(1));
    std::fs::write(file, (number + 1).to_string()).unwrap();
}

fn number(file: &std::path::Path) -> u64 {
    std::fs::read_to_string(file).unwrap().trim().parse().unwrap()
}

fn counter(server: &Etcd, name: &str) -> PathBuf {
    let file = server.directory().join(name);
    std::fs::write(&file, "0").unwrap();
    file
}

#[tokio::test(flavor = "multi_thread")]
async fn etcdctl_and_we_wait_for_each_other_in_order() {
    let Some(server) = shared("etcdctl lock") else { return };
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
    let Some(server) = shared("etcdctl lock of a longer name") else { return };
    let name = fresh("long");
    let longer = format!("{name}/more");
    let _ctl = Ends(server.ctl_command(&["lock", "--ttl", "2", &longer, "sleep", "30"]).stdout(Stdio::null()).spawn().unwrap());
    keys(&server, &longer, 1).await;
    let ours = client(&server.url()).await;
    ours.mutex(&name).try_lock().await.unwrap().expect("free").release().await.unwrap();
    ours.mutex(&name).lock().await.unwrap().release().await.unwrap();
}

/// Rust tasks and Go programs add to one number; one of the programs is killed again and again.
async fn count_beside(side: &str, ours: impl AsyncFn(&lockkeeper::Client, &str, &std::path::Path)) {
    let (Some(server), Some(driver)) = (shared("Go on the same locks"), driver("Go on the same locks")) else { return };
    let name = fresh(side);
    let file = counter(&server, &name);
    const ROUNDS: u64 = 60;
    let start = |rounds: u64| {
        let (endpoint, rounds) = (server.hosts(), rounds.to_string());
        Command::new(&driver).args([&endpoint, side, &name, &file.display().to_string(), &rounds]).spawn().unwrap()
    };
    let mut programs: Vec<Ends> = (0..2).map(|_| Ends(start(ROUNDS))).collect();
    let client = client(&server.url()).await;
    for _ in 0..ROUNDS {
        ours(&client, &name, &file).await;
    }
    for program in &mut programs {
        let ended = tokio::task::block_in_place(|| program.0.wait().unwrap());
        assert!(ended.success(), "{ended}");
    }
    let expected = if side == "read" { ROUNDS } else { 3 * ROUNDS };
    assert_eq!(number(&file), expected, "updates were lost");
    keys(&server, &name, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mutex_of_go_and_ours_lose_no_update() {
    count_beside("count", async |client, name, file| {
        let guard = client.mutex(name).lock().await.unwrap();
        add(file);
        guard.release().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_of_go_and_ours_lose_no_update() {
    count_beside("write", async |client, name, file| {
        let guard = client.rwlock(name).write().await.unwrap();
        add(file);
        guard.release().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_of_go_see_no_writer_of_ours() {
    count_beside("read", async |client, name, file| {
        let guard = client.rwlock(name).write().await.unwrap();
        add(file);
        guard.release().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_go_program_that_is_killed_frees_its_mutex_with_its_lease() {
    let (Some(server), Some(driver)) = (shared("Go that dies"), driver("Go that dies")) else { return };
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
