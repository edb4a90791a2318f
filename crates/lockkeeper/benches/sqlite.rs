//! How fast locks in a file are, alone and between two processes: printed, never asserted.
//!
//! A hand-over is measured from before the release in one process to after the grant in the other, on the boot clock that both share, with a
//! hold of a millisecond, so that the other one waits.
#![allow(clippy::disallowed_methods, missing_docs, reason = "a benchmark reads the clock")]

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper::Client;
use lockkeeper::backend::{Acquire, Attempt, Backend, Bell, Claim, Kind, Release, Watch};
use lockkeeper::name::Name;
use lockkeeper::owner::WireOwner;
use lockkeeper::runtime::Runtime;
use lockkeeper::store::sqlite::{Config, SqliteStore};

const ROLE: &str = "LOCKKEEPER_BENCH_ROLE";
const TURNS: usize = 300;

fn main() {
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("an executor");
    if let Ok(role) = std::env::var(ROLE) {
        let (role, file) = role.split_once(' ').expect("a role and a file");
        let turns = if role == "store" { executor.block_on(store_turns(file)) } else { executor.block_on(library_turns(file)) };
        for (granted, released) in turns {
            println!("{granted} {released}");
        }
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("locks.db");
    println!("sqlite in {}", folder.display());
    executor.block_on(alone(&file));
    for role in ["store", "library"] {
        handed_over(role, &folder.join(format!("{role}.db")));
    }
    let _ = std::fs::remove_dir_all(folder);
}

/// One process: cycles on an open store, and everything from opening to closing.
async fn alone(file: &Path) {
    let url = format!("sqlite:{}", file.display());
    let client = Client::connect(&url).await.expect("a store");
    let mutex = client.mutex("m");
    let mut cycles: Vec<Duration> = Vec::new();
    for _ in 0..5_000 {
        let began = Instant::now();
        mutex.lock().await.expect("free").release().await.expect("held");
        cycles.push(began.elapsed());
    }
    println!("lock and release, one process, open store:       {}", told(cycles));
    drop((mutex, client));
    let mut whole = Vec::new();
    for _ in 0..200 {
        let began = Instant::now();
        let client = Client::connect(&url).await.expect("a store");
        client.mutex("m").lock().await.expect("free").release().await.expect("held");
        client.close().await.expect("closed");
        whole.push(began.elapsed());
    }
    println!("open, lock, release, close:                      {}", told(whole));
}

fn handed_over(role: &str, file: &Path) {
    let program = std::env::current_exe().expect("this program");
    let start = || {
        let mut command = Command::new(&program);
        command.env(ROLE, format!("{role} {}", file.display())).stdout(Stdio::piped()).spawn().expect("a process")
    };
    let mut children = [start(), start()];
    let read = |child: &mut Child| {
        let mut text = String::new();
        child.stdout.take().expect("piped").read_to_string(&mut text).expect("text");
        child.wait().expect("its status");
        text
    };
    let texts = [read(&mut children[0]), read(&mut children[1])];
    let mut turns: Vec<(u64, u64, usize)> = Vec::new();
    for (who, text) in texts.iter().enumerate() {
        turns.extend(text.lines().filter_map(|line| {
            let (granted, released) = line.split_once(' ')?;
            Some((granted.parse().ok()?, released.parse().ok()?, who))
        }));
    }
    turns.sort_unstable();
    let passed = turns.windows(2).filter(|pair| pair[0].2 != pair[1].2);
    let times: Vec<Duration> = passed.map(|pair| Duration::from_nanos(pair[1].0.saturating_sub(pair[0].1))).collect();
    println!("hand-over between two processes, {role:<8} ({:>3}):  {}", times.len(), told(times));
}

async fn library_turns(file: &str) -> Vec<(u64, u64)> {
    let client = Client::connect(format!("sqlite:{file}")).await.expect("a store");
    let clock = Runtime::system();
    let mutex = client.fair_mutex("m");
    let mut turns = Vec::new();
    for _ in 0..TURNS {
        let guard = mutex.lock().await.expect("in time");
        let granted = clock.now().as_nanos();
        tokio::time::sleep(Duration::from_millis(1)).await;
        turns.push((granted, clock.now().as_nanos()));
        guard.release().await.expect("held");
    }
    turns
}

/// The store without a session over it: ask, listen, ask again when the bell rings.
async fn store_turns(file: &str) -> Vec<(u64, u64)> {
    let clock = Runtime::system();
    let store: Arc<dyn Backend> = SqliteStore::connect(Config::file(file), &clock).await.expect("a store");
    let name = Name::new("m").expect("a name");
    let client = clock.client_id();
    let mut turns = Vec::new();
    for number in 0..TURNS as u64 {
        let owner = WireOwner { client, number };
        let mut bell: Option<Bell> = None;
        let granted = loop {
            let now = clock.now();
            let request = Acquire {
                name: name.clone(),
                claim: Claim::Fair,
                owner,
                lease: Duration::from_secs(30),
                not_after: now.plus(Duration::from_secs(3)),
                since: now,
                beside: None,
                place: Some(Duration::from_secs(5)),
                floor: 0,
            };
            if let Attempt::Granted(_) = store.acquire(request).await.expect("an answer") {
                break clock.now().as_nanos();
            }
            match &bell {
                // The poll is there as it always is; it should not be needed.
                Some(bell) => drop(tokio::time::timeout(Duration::from_secs(1), bell.rung()).await),
                None => {
                    let watch = Watch { name: name.clone(), kind: Kind::Mutex, owner: Some(owner) };
                    bell = Some(store.watch(watch).await.expect("a bell"));
                }
            }
        };
        tokio::time::sleep(Duration::from_millis(1)).await;
        turns.push((granted, clock.now().as_nanos()));
        store.release(Release { name: name.clone(), claim: Claim::Fair, owner, then: None }).await.expect("an answer");
    }
    turns
}

fn told(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |share: f64| times.get(((times.len() as f64 - 1.0) * share) as usize).copied().unwrap_or_default();
    format!("p50 {:>9.1?}  p99 {:>9.1?}", at(0.5), at(0.99))
}
