//! Beside Curator, with kills: no update is lost while processes of both sides are killed and started again.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use lockkeeper::Client;

use crate::counting::{Program, Tally, add};
use crate::curator::{SHORT, both, nothing_is_left, while_it_counts};
use crate::java::{Curator, Told, Version};
use crate::site;

/// Names and kinds of the locks, as the driver of Curator calls them.
const LOCKS: [(&str, &str); 3] = [("m", "mutex"), ("w", "write"), ("s", "semaphore-1")];

/// The additions of each process to each number.
const ROUNDS: usize = 12;

/// Those of a process that is killed: it never ends by itself, so that the kill hits the middle of the counting of every lock.
const ENDLESS: usize = 1_000_000;

const SOON: Duration = Duration::from_secs(60);

/// How often a process of each side is killed.
const KILLS: usize = 2;

/// Adds under a lock of ours, and says so before the release.
async fn step(client: &Client, name: &str, kind: &str, file: &Path) -> u64 {
    macro_rules! counted {
        ($acquired:expr) => {{
            let guard = $acquired.await.unwrap();
            let new = add(file);
            println!("value {kind} {new}");
            guard.release().await.unwrap();
            new
        }};
    }
    match kind {
        "mutex" => counted!(client.mutex(name).lock()),
        "write" => counted!(client.rwlock(name).write()),
        _ => counted!(client.semaphore(name, 1).acquire()),
    }
}

/// The number of each lock.
type Tallies = [Tally; LOCKS.len()];

fn tell(tallies: &Tallies, kind: &str, value: u64) {
    let lock = LOCKS.iter().position(|(_, known)| *known == kind).expect("a known kind");
    tallies[lock].tell(value);
}

fn file(base: &Path, name: &str) -> PathBuf {
    base.join(name)
}

/// A process of ours that adds to all numbers, so often to each.
fn ours(url: &str, base: &Path, rounds: usize, tallies: &Tallies) -> Program {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "killed::child_that_takes_part", "--ignored", "--nocapture"]);
    command.env("LOCKKEEPER_TEST_URL", url).env("LOCKKEEPER_TEST_BASE", base);
    command.env("LOCKKEEPER_TEST_ROUNDS", rounds.to_string());
    let tallies = tallies.clone();
    Program::start(&mut command, move |said| {
        let (kind, value) = said.trim().split_once(' ').expect("kind and number");
        tell(&tallies, kind, value.parse().expect("a number"));
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a part of the tests with kills"]
async fn child_that_takes_part() {
    let client = site::client(&std::env::var("LOCKKEEPER_TEST_URL").unwrap()).await;
    let base = PathBuf::from(std::env::var_os("LOCKKEEPER_TEST_BASE").unwrap());
    let rounds: usize = std::env::var("LOCKKEEPER_TEST_ROUNDS").unwrap().parse().unwrap();
    let mut tasks = Vec::new();
    for (name, kind) in LOCKS {
        let (client, file) = (client.clone(), file(&base, name));
        tasks.push(tokio::spawn(async move {
            for _ in 0..rounds {
                step(&client, name, kind, &file).await;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    client.close().await.unwrap();
}

fn of_kind(told: &Told, kind: &str) -> usize {
    told.iter().filter(|(of, _)| of == kind).count()
}

/// A process of Curator that adds to all numbers; killed in the middle, and started again.
async fn curators(version: Version, hosts: String, folder: String, base: PathBuf, tallies: Tallies) {
    for kill in 0..=KILLS {
        let mut curator = Curator::start(version, &hosts, SHORT).await;
        let rounds = if kill < KILLS { ENDLESS } else { ROUNDS };
        let mut counting = Vec::new();
        for (name, kind) in LOCKS {
            counting.push(curator.send(&format!("{name} count {kind} {folder}/{name} {rounds} {}", file(&base, name).display())));
        }
        if kill < KILLS {
            let began = Instant::now();
            while !LOCKS.iter().all(|(_, kind)| of_kind(&curator.told(), kind) >= 2) {
                assert!(began.elapsed() < SOON, "not within {SOON:?}: it adds to each number");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert!(counting.iter_mut().all(|ended| ended.try_recv().is_err()), "it has ended before it could be killed");
        } else {
            for (counted, tally) in counting.into_iter().zip(&tallies) {
                assert_eq!(while_it_counts(tally.file(), counted).await.unwrap(), "counted");
            }
        }
        curator.kill();
        let told = curator.told();
        told.iter().for_each(|(kind, value)| tell(&tallies, kind, *value));
        println!("{version:?}: Curator told {:?} additions in life {kill}", LOCKS.map(|(_, kind)| of_kind(&told, kind)));
    }
}

pub(crate) async fn no_update_is_lost_when_processes_of_both_sides_are_killed(version: Version) {
    let Some((client, mut curator, folder, raw, server)) = both(version).await else { return };
    let base = std::env::temp_dir().join(format!("lockkeeper-curator-killed-{}-{version:?}", std::process::id()));
    std::fs::create_dir_all(&base).unwrap();
    let tallies: Tallies = LOCKS.map(|(name, _)| Tally::new(file(&base, name)));
    let began = Instant::now();
    // Those that are killed: a Curator, and a client of ours.
    let crashing = tokio::spawn(curators(version, server.hosts(), folder.clone(), base.clone(), tallies.clone()));
    let ours = tokio::task::spawn_blocking({
        let url = format!("zookeeper://{}{folder}?session={}s", server.hosts(), SHORT.as_secs());
        let (base, tallies) = (base.clone(), tallies.clone());
        move || {
            for _ in 0..KILLS {
                let mut program = ours(&url, &base, ENDLESS, &tallies);
                program.wait_for(6);
                assert!(!program.has_ended(), "it has ended before it could be killed");
                program.kill();
            }
            ours(&url, &base, ROUNDS, &tallies).end();
        }
    });
    // Those that live on.
    let mut counting = Vec::new();
    for (name, kind) in LOCKS {
        let path = file(&base, name);
        counting.push(curator.send(&format!("{name} count {kind} {folder}/{name} {ROUNDS} {}", path.display())));
    }
    let mut tasks = Vec::new();
    for ((name, kind), tally) in LOCKS.into_iter().zip(tallies.clone()) {
        let client = client.clone();
        tasks.push(tokio::spawn(async move {
            for _ in 0..ROUNDS {
                tally.tell(step(&client, name, kind, tally.file()).await);
            }
        }));
    }
    for ((counted, task), tally) in counting.into_iter().zip(tasks).zip(&tallies) {
        assert_eq!(while_it_counts(tally.file(), counted).await.unwrap(), "counted");
        while_it_counts(tally.file(), task).await.unwrap();
    }
    curator.told().iter().for_each(|(kind, value)| tell(&tallies, kind, *value));
    crashing.await.unwrap();
    ours.await.unwrap();
    for ((name, kind), tally) in LOCKS.into_iter().zip(&tallies) {
        let last = tally.judge(2 * KILLS).unwrap_or_else(|why| panic!("{kind}: {why}"));
        println!("{version:?} {kind}: {last} additions, {} kills, {:?}", 2 * KILLS, began.elapsed());
        assert!(last >= 4 * ROUNDS as u64, "{kind}: {last} additions");
        nothing_is_left(&raw, &format!("{folder}/{name}")).await;
    }
    // With what those left that were killed while they wrote.
    std::fs::remove_dir_all(&base).unwrap();
}
