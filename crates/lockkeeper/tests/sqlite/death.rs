//! Who dies lets go at once, by the word of the kernel, and nobody who lives does.

use std::process::Command;
use std::time::{Duration, Instant};

use lockkeeper::{Client, MutexGuard};
use tokio::task::JoinHandle;

use crate::folder::{Folder, queued};
use crate::worker::Worker;

/// Somebody who waits in the queue for what the worker holds.
async fn waiter(client: &Client) -> JoinHandle<(MutexGuard, Instant)> {
    let mutex = client.fair_mutex("m");
    let waiting = tokio::spawn(async move {
        let guard = mutex.lock().timeout(Duration::from_secs(50)).await.expect("in time");
        (guard, Instant::now())
    });
    queued(client, 1).await;
    waiting
}

#[tokio::test]
async fn a_killed_holder_is_followed_at_once() {
    let folder = Folder::new();
    let client = Client::connect(folder.url()).await.unwrap();
    let mut took = Vec::new();
    for _ in 0..5 {
        let mut holder = Worker::start("hold", &folder.url());
        let token: u64 = holder.says().parse().expect("a token");
        let waiting = waiter(&client).await;
        let killed = Instant::now();
        holder.kill();
        let (guard, taken) = waiting.await.unwrap();
        assert!(guard.token().unwrap().number() > token, "tokens grow over a death");
        took.push(taken - killed);
        guard.release().await.unwrap();
    }
    println!("from kill -9 to the next holder: {took:?}");
    // The lease is 60 s and the poll 600 ms: less than a tenth of a second is the kernel's word. On a busy machine at least once.
    assert!(*took.iter().min().expect("five") < Duration::from_millis(100), "{took:?}");
    assert!(*took.iter().max().expect("five") < Duration::from_secs(5), "{took:?}");
}

#[tokio::test]
async fn a_holder_lives_as_long_as_the_command_that_inherited_its_life() {
    let folder = Folder::new();
    let client = Client::connect(folder.url()).await.unwrap();
    let mut runner = Worker::start("run", &folder.url());
    let command = runner.says();
    let waiting = waiter(&client).await;
    runner.kill();
    // Two polls and more: it is not given away while the command lives.
    tokio::time::sleep(Duration::from_millis(2_000)).await;
    assert!(!waiting.is_finished(), "taken from a command that runs");
    assert_eq!(client.inspect("m").await.unwrap().expect("held").holders.len(), 1);
    assert!(Command::new("kill").args(["-KILL", &command]).status().unwrap().success());
    let killed = Instant::now();
    let (guard, taken) = waiting.await.unwrap();
    println!("from the end of the command to the next holder: {:?}", taken - killed);
    assert!(taken - killed < Duration::from_secs(5), "{:?}", taken - killed);
    drop(guard);
}

#[tokio::test]
async fn a_dead_waiter_passes_its_turn_on() {
    let folder = Folder::new();
    let client = Client::connect(folder.url()).await.unwrap();
    let held = client.fair_mutex("m").lock().await.unwrap();
    let mut dead = Worker::start("hold", &folder.url());
    queued(&client, 1).await;
    let other = Client::connect(folder.url()).await.unwrap();
    let mutex = other.fair_mutex("m");
    let waiting = tokio::spawn(async move { mutex.lock().timeout(Duration::from_secs(50)).await });
    queued(&client, 2).await;
    dead.kill();
    assert_eq!(client.inspect("m").await.unwrap().expect("held").queue.len(), 1, "the dead are not shown");
    let began = Instant::now();
    held.release().await.unwrap();
    let taken = waiting.await.unwrap().expect("in time");
    println!("over a dead waiter: {:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(4), "its place was kept for 5 s");
    drop(taken);
}

/// Runs a worker with a file system of its own on `folder`; `None` if this machine does not let us, and why.
fn in_a_mount(folder: &Folder, options: &str, role: &str) -> Result<Worker, String> {
    let can = Command::new("unshare").args(["-rm", "mount", "-t", "tmpfs", "none", "/mnt"]).output();
    if !can.is_ok_and(|ran| ran.status.success()) {
        return Err("unshare: this user may not mount a file system of its own".to_owned());
    }
    let mut command = Command::new("unshare");
    let script = "mount -t tmpfs -o \"$0\" none \"$1\" && shift && exec \"$@\"";
    command.args(["-rm", "sh", "-c", script, options]).arg(folder.path()).arg(std::env::current_exe().expect("this program"));
    Ok(Worker::start_by(command, role, &folder.url()))
}

#[test]
fn a_release_on_a_full_disk_frees_it() {
    let folder = Folder::new();
    let role = format!("full {}", folder.path().display());
    let mut worker = match in_a_mount(&folder, "size=1m", &role) {
        Ok(worker) => worker,
        Err(why) => return lockkeeper::conformance::skip("a release on a full disk", &why),
    };
    assert_eq!(worker.says(), "released Ok(()) 1 0", "the sign of life is the only thing that could be written, by ending it");
    let taken = worker.says();
    println!("after it: {taken}");
    assert!(taken.starts_with("taken true"), "{taken}");
}
