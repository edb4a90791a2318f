//! Processes that add to a balance under a lock, and are stopped for longer than their lease in the middle of it: with the fence no update is lost, and
//! without it some are. The example `sql_fence_bank` shows it on PostgreSQL.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lockkeeper::Client;
use lockkeeper_testkit::signal;

use super::bench::Bench;
use super::fence::Teller;

/// The lease of the bank's workers. They are paused for longer.
const LEASE: Duration = Duration::from_millis(300);
const PAUSE: Duration = Duration::from_millis(500);

const LONG: Duration = Duration::from_secs(30);

/// Set for a worker: `fenced` or `plain`, and the URL; and a file that is there as long as the bank is open.
const ROLE: &str = "LOCKKEEPER_TEST_BANK";
const OPEN: &str = "LOCKKEEPER_TEST_BANK_OPEN";

/// No test by itself: a process that adds to a balance under a lock, stops itself between reading and writing now and then, and says how
/// many additions were acknowledged.
#[tokio::test]
async fn worker() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (fenced, url) = role.split_once(' ').map(|(kind, url)| (kind == "fenced", url)).expect("a role and a URL");
    let client = Client::builder().lease(LEASE).connect(url).await.unwrap();
    let mut teller = Teller::open(url).await;
    let (mut acknowledged, mut turn) = (0_u32, 0_u32);
    while std::fs::exists(std::env::var(OPEN).unwrap()).unwrap() {
        turn += 1;
        let Ok(guard) = client.mutex("bank").lock().timeout(LONG).await else { continue };
        let fence = client.sql_fence(&guard).unwrap();
        let pause = || {
            if turn.is_multiple_of(3) {
                signal::send(std::process::id(), "-STOP");
            }
        };
        acknowledged += u32::from(teller.add(fenced.then_some(&fence), pause).await);
        // The lock may be lost by now; that is what the fence is for.
        let _ = guard.release().await;
    }
    println!("acknowledged {acknowledged}");
}

/// The name of the test [`worker`], of which there is one per server.
fn worker_test() -> String {
    let module = module_path!().split_once("::").expect("in a crate").1;
    format!("{module}::worker")
}

/// Lets processes add to a balance while they are stopped past their leases; gives how many acknowledged additions are missing.
async fn lost_updates(url: &str, role: &str, pauses: u32) -> i64 {
    let mut teller = Teller::open(url).await;
    teller.found().await;
    let open =
        std::env::temp_dir().join(format!("lockkeeper-{}-{}-{role}", worker_test().replace("::", "-"), std::process::id()));
    std::fs::write(&open, "").unwrap();
    let mut workers: Vec<Child> = (0..3)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", &worker_test(), "--nocapture"])
                .env(ROLE, format!("{role} {url}"))
                .env(OPEN, &open)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let stopped = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    };
    let (mut seen, mut since) = (0, vec![None::<Instant>; workers.len()]);
    let deadline = Instant::now() + Duration::from_secs(120) + PAUSE * pauses * 2;
    while seen < pauses || since.iter().any(Option::is_some) {
        assert!(Instant::now() < deadline, "{seen} pauses of {pauses}");
        for (worker, since) in workers.iter().zip(&mut since) {
            match *since {
                None if stopped(worker.id()) => *since = Some(Instant::now()),
                Some(then) if then.elapsed() >= PAUSE => {
                    signal::resume(worker.id());
                    *since = None;
                    seen += 1;
                    if seen == pauses {
                        // Workers end after the addition that they are at.
                        std::fs::remove_file(&open).unwrap();
                    }
                }
                _ => {}
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for worker in &mut workers {
        // One that stopped itself a last time goes on.
        while worker.try_wait().unwrap().is_none() {
            signal::resume(worker.id());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    let mut acknowledged = 0;
    for worker in workers {
        let said = worker.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let number =
            said.split("acknowledged ").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("a worker says it");
        acknowledged += number.parse::<i64>().unwrap();
    }
    let balance = teller.balance().await;
    println!("{role}: {pauses} pauses, {acknowledged} acknowledged, {balance} in the bank");
    assert!(acknowledged > 0);
    acknowledged - balance
}

/// `LOCKKEEPER_PAUSES` makes more of them.
#[tokio::test]
async fn with_the_fence_paused_processes_lose_no_update_and_without_it_they_do() {
    let Some(bench) = Bench::open("the bank").await else { return };
    let pauses = std::env::var("LOCKKEEPER_PAUSES").map_or(6, |text| text.parse().expect("a number"));
    assert_eq!(lost_updates(&bench.url, "fenced", pauses).await, 0);
    // The control.
    assert!(lost_updates(&bench.url, "plain", pauses).await > 0, "without the fence updates are lost");
}
