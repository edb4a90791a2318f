//! Beside Go and `etcdctl`, with kills: no update is lost while programs of both sides are killed and started again.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper::Client;
use lockkeeper_testkit::etcd::Etcd;

use crate::bench::{LONG, client, fresh, shared};
use crate::beside::{driver, keys};
use crate::counting::{Program, Tally, add, number};

const ROUNDS: usize = 40;

/// After so many of its rounds a program is killed, and started again for the rest.
const KILLS: [usize; 3] = [3, 7, 5];

/// One round of ours with a lock, or without one. The number that was written, or seen by a reader.
async fn step(client: &Client, verb: &str, name: &str, file: &Path) -> u64 {
    match verb {
        "count" => {
            let guard = client.mutex(name).lock().await.unwrap();
            let new = add(file);
            println!("value {new}");
            guard.release().await.unwrap();
            new
        }
        "write" => {
            let guard = client.rwlock(name).write().await.unwrap();
            let new = add(file);
            println!("value {new}");
            guard.release().await.unwrap();
            new
        }
        "read" => {
            let guard = client.rwlock(name).read().await.unwrap();
            let seen = looks(file).expect("a writer wrote beside a reader");
            println!("value {seen}");
            guard.release().await.unwrap();
            seen
        }
        other => panic!("no verb {other}"),
    }
}

/// The number, if it stays the same for a moment.
fn looks(file: &Path) -> Option<u64> {
    let before = number(file);
    std::thread::sleep(Duration::from_millis(1));
    (number(file) == before).then_some(before)
}

/// What a program says, if it is an addition.
fn hears(tally: &Tally, verb: &str) -> impl FnMut(&str) + Send + 'static {
    let (tally, adds) = (tally.clone(), verb != "read");
    move |said| {
        let number = said.trim().parse().expect("a number");
        if adds {
            tally.tell(number);
        }
    }
}

/// A Go program on the lock.
fn go(driver: &Path, server: &Etcd, verb: &str, name: &str, tally: &Tally, rounds: usize) -> Program {
    let file = tally.file().display().to_string();
    Program::start(Command::new(driver).args([&server.hosts(), verb, name, &file, &rounds.to_string()]), hears(tally, verb))
}

/// A client of ours on the lock, in a process of its own.
fn ours(server: &Etcd, verb: &str, name: &str, tally: &Tally, rounds: usize) -> Program {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "killed::child_that_takes_part", "--ignored", "--nocapture"]);
    let order = format!("{verb} {name} {rounds} {}", tally.file().display());
    Program::start(command.env("LOCKKEEPER_TEST_URL", server.url()).env("LOCKKEEPER_TEST_ORDER", order), hears(tally, verb))
}

#[tokio::test]
#[ignore = "a part of the tests with kills"]
async fn child_that_takes_part() {
    let order = std::env::var("LOCKKEEPER_TEST_ORDER").unwrap();
    let words: Vec<&str> = order.splitn(4, ' ').collect();
    let client = client(&std::env::var("LOCKKEEPER_TEST_URL").unwrap()).await;
    for _ in 0..words[2].parse().unwrap() {
        step(&client, words[0], words[1], words[3].as_ref()).await;
    }
    client.close().await.unwrap();
}

/// Does so many rounds with a program that is killed after so many steps, each time, and started again for the rest.
fn killed_again_and_again(rounds: usize, kills: &[usize], start: impl Fn(usize) -> Program) {
    let mut left = rounds;
    for after in kills {
        let mut program = start(left);
        program.wait_for(*after);
        assert!(!program.has_ended(), "it has ended before it could be killed");
        left = left.saturating_sub(program.kill());
    }
    start(left).end();
}

/// Two programs of Go and two clients of ours; one of each is killed again and again, with what it holds or waits for.
async fn beside(of_go: &'static str, of_ours: &'static str) {
    let test = "Go on the same locks, with kills";
    let (Some(server), Some(driver)) = (shared(test), driver(test)) else { return };
    let name = fresh(&format!("{of_go}-{of_ours}"));
    let tally = Tally::new(server.directory().join(&name));
    let client = client(&server.url()).await;
    let began = Instant::now();
    let mut threads = Vec::new();
    for killed in [true, false] {
        let kills = if killed { &KILLS[..] } else { &[] };
        let (server, driver, name, tally) = (Arc::clone(&server), driver.clone(), name.clone(), tally.clone());
        threads.push(tokio::task::spawn_blocking(move || {
            killed_again_and_again(ROUNDS, kills, |rounds| go(&driver, &server, of_go, &name, &tally, rounds));
        }));
    }
    threads.push(tokio::task::spawn_blocking({
        let (server, name, tally) = (Arc::clone(&server), name.clone(), tally.clone());
        move || killed_again_and_again(ROUNDS, &KILLS, |rounds| ours(&server, of_ours, &name, &tally, rounds))
    }));
    for _ in 0..ROUNDS {
        let number = step(&client, of_ours, &name, tally.file()).await;
        if of_ours != "read" {
            tally.tell(number);
        }
    }
    for thread in threads {
        thread.await.expect("all rounds are done");
    }
    let kills = 2 * KILLS.len();
    let last = tally.judge(kills).unwrap_or_else(|why| panic!("Go {of_go}, ours {of_ours}: {why}"));
    println!("Go {of_go}, ours {of_ours}: {last} additions, {kills} kills, {:?}", began.elapsed());
    let adding = [of_go, of_ours].iter().filter(|verb| **verb != "read").count();
    assert!(last >= (adding * 2 * ROUNDS) as u64, "{last} additions");
    keys(&server, &name, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mutex_of_go_and_ours_loses_no_update() {
    beside("count", "count").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_of_go_and_ours_lose_no_update() {
    beside("write", "write").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_of_go_see_no_writer_of_ours() {
    beside("read", "write").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_of_ours_see_no_writer_of_go() {
    beside("write", "read").await;
}

/// The negative control: we add, and look, without the lock while Go adds with it.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_lock_lost_updates_and_torn_looks_are_noticed() {
    let test = "Go without our lock";
    let (Some(server), Some(driver)) = (shared(test), driver(test)) else { return };
    let name = fresh("bare");
    let tally = Tally::new(server.directory().join(&name));
    let mut program = go(&driver, &server, "write", &name, &tally, 200);
    let (mut torn, mut looked) = (0, 0);
    while !program.has_ended() {
        torn += u32::from(looks(tally.file()).is_none());
        looked += 1;
    }
    println!("{torn} of {looked} looks were torn");
    assert!(torn > 0, "none of {looked} looks without a lock saw a writer");
    let mut program = go(&driver, &server, "count", &name, &tally, 200);
    while !program.has_ended() {
        tally.add();
    }
    program.kill();
    let noticed = tally.judge(0).unwrap_err();
    assert!(noticed.contains("lost"), "{noticed}");
}

/// Each round is a program of its own; some are killed while their command runs, some while they wait.
#[tokio::test(flavor = "multi_thread")]
async fn etcdctl_that_is_killed_and_ours_lose_no_update() {
    let Some(server) = shared("etcdctl lock, with kills") else { return };
    let name = fresh("ctl-killed");
    let tally = Tally::new(server.directory().join(&name));
    let script = server.directory().join(format!("{name}.sh"));
    let file = tally.file().display();
    let text = format!(
        "new=$(($(cat {file}) + 1)); sleep 0.001; echo $new > {file}.$$; mv {file}.$$ {file}; echo value $new; sleep 0.05\n"
    );
    std::fs::write(&script, text).unwrap();
    let script = script.display().to_string();
    const RUNS: usize = 16;
    let (client, holder) = (client(&server.url()).await, client(&server.url()).await);
    let executor = tokio::runtime::Handle::current();
    let killed = tokio::task::spawn_blocking({
        let (server, name, tally) = (Arc::clone(&server), name.clone(), tally.clone());
        move || {
            let mut killed = [0, 0];
            for run in 0..RUNS {
                let held = (run % 4 == 3).then(|| executor.block_on(holder.mutex(&name).lock()).unwrap());
                let mut command = server.ctl_command(&["lock", "--ttl", "2", &name, "sh", &script]);
                let mut program = Program::start(&mut command, hears(&tally, "count"));
                match run % 4 {
                    1 => {
                        program.wait_for(1);
                        program.kill();
                        killed[0] += 1;
                    }
                    3 => {
                        // We hold the lock, so whatever etcdctl made before is gone: a key without our mark is that of the new waiter.
                        let prefix = format!("{name}/");
                        let is_theirs = |key: &String| !key[prefix.len()..].contains('.');
                        let began = Instant::now();
                        while !server.keys(&prefix).iter().any(is_theirs) {
                            assert!(began.elapsed() < LONG, "etcdctl does not wait");
                        }
                        assert_eq!(program.kill(), 0, "etcdctl ran its command beside us");
                        killed[1] += 1;
                    }
                    _ => program.end(),
                }
                if let Some(held) = held {
                    executor.block_on(held.release()).unwrap();
                }
            }
            killed
        }
    });
    let mut rounds = 0;
    while !killed.is_finished() {
        tally.tell(step(&client, "count", &name, tally.file()).await);
        rounds += 1;
    }
    let killed = killed.await.unwrap();
    let last = tally.judge(RUNS / 2).unwrap_or_else(|why| panic!("{why}"));
    println!("{last} additions, {rounds} of them ours; {} killed with the lock, {} before", killed[0], killed[1]);
    assert!(rounds > 0 && last as usize > rounds && killed == [RUNS / 4; 2]);
    keys(&server, &name, 0).await;
}
