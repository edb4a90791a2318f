//! Eight processes on one file.

use std::io::Write;
use std::process::{Command, Stdio};

use lockkeeper::Client;

use crate::contract::SHARED;
use crate::folder::Folder;
use crate::worker::{Worker, number, set_number};

const PROCESSES: u64 = 8;

fn start_together(workers: &mut [Worker]) {
    for worker in workers.iter_mut() {
        assert_eq!(worker.says(), "ready");
    }
    for worker in workers.iter_mut() {
        worker.child.stdin.as_mut().expect("piped").write_all(b"\n").expect("it listens");
    }
}

/// What eight processes that each add one `times` times make of nothing.
fn count(kind: &str, times: u64) -> u64 {
    let folder = Folder::new();
    let file = folder.path().join("number");
    set_number(&file, 0);
    let role = format!("count {kind} {times} {}", file.display());
    let mut workers: Vec<Worker> = (0..PROCESSES).map(|_| Worker::start(&role, &folder.url())).collect();
    start_together(&mut workers);
    for worker in &mut workers {
        assert_eq!(worker.says(), "done");
    }
    number(&file)
}

#[test]
fn a_mutex_loses_no_update() {
    assert_eq!(count("mutex", 100), PROCESSES * 100);
}

#[test]
fn a_fair_mutex_loses_no_update() {
    assert_eq!(count("fair", 100), PROCESSES * 100);
}

#[test]
fn writers_lose_no_update() {
    assert_eq!(count("write", 50), PROCESSES * 50);
}

#[test]
fn the_holders_of_a_single_permit_lose_no_update() {
    assert_eq!(count("permit", 50), PROCESSES * 50);
}

/// Eight processes run the contract at once, on one file. Without three cases: two whose names are as long as a name can be (here they have a
/// prefix), and one whose client has always the same id.
#[test]
fn the_contract_holds_among_eight_processes() {
    let folder = Folder::new();
    let processes: Vec<_> = (0..PROCESSES)
        .map(|_| {
            Command::new("timeout")
                .args(["--kill-after=5", "240"])
                .arg(std::env::current_exe().expect("this program"))
                .args(["contract::", "--test-threads=6"])
                .args(["--skip", "any_text_is_a_name", "--skip", "shows_who_is_behind_an_owner"])
                .env(SHARED, folder.file())
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .expect("a process")
        })
        .collect();
    let mut passed = Vec::new();
    for process in processes {
        let said = process.wait_with_output().expect("its status");
        let text = String::from_utf8_lossy(&said.stdout);
        assert!(said.status.success(), "{text}");
        let count = text.split("test result: ok. ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<u32>().ok());
        passed.push(count.unwrap_or_else(|| panic!("{text}")));
    }
    println!("cases that passed, by process: {passed:?}");
    assert!(passed.iter().all(|count| *count > 190), "{passed:?}");
}

/// The negative control: what the tests above count is lost without a lock.
#[test]
fn without_a_lock_updates_are_lost() {
    // The bad addition loses nearly always; ten rounds without a loss would be a broken test.
    let lost = (0..10).any(|_| count("nothing", 500) < PROCESSES * 500);
    assert!(lost, "the additions are too good to show a lost one");
}

/// The same for a store that looks and writes in two steps: the count catches it.
#[test]
fn a_store_that_looks_before_it_writes_loses_updates() {
    let lost = (0..10).any(|_| count("naive", 100) < PROCESSES * 100);
    assert!(lost, "the broken store was not caught");
}

#[test]
fn eight_contenders_share_a_fair_mutex_within_a_tenth() {
    let folder = Folder::new();
    let mut workers: Vec<Worker> = (0..PROCESSES).map(|_| Worker::start("share 3000", &folder.url())).collect();
    start_together(&mut workers);
    let turns: Vec<u32> = workers.iter_mut().map(|worker| worker.says().parse().expect("a number")).collect();
    println!("turns of eight processes in 3 s: {turns:?}");
    let (least, most) = (turns.iter().min().expect("eight"), turns.iter().max().expect("eight"));
    // One turn more or less is the edge of the time, not unfairness.
    assert!(*most <= least + least / 10 + 2, "{turns:?}");
    assert!(*least > 0, "{turns:?}");
}

#[tokio::test]
async fn one_process_sees_what_another_holds_and_may_take_it_away() {
    let folder = Folder::new();
    let mut holder = Worker::start("hold", &folder.url());
    let token: u64 = holder.says().parse().expect("a token");
    let client = Client::connect(folder.url()).await.unwrap();
    let mut seen = client.inspect("m").await.unwrap().expect("it is held");
    // Its name is told a moment after the hold.
    for _ in 0..200 {
        if seen.holders[0].client.is_some() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        seen = client.inspect("m").await.unwrap().expect("it is held");
    }
    assert_eq!(seen.holders[0].token, Some(token));
    assert_eq!(seen.holders[0].client.as_ref().expect("told").pid, holder.child.id());
    assert_eq!(client.list("*").await.unwrap().len(), 1);
    assert_eq!(client.force_release("m").await.unwrap().from.len(), 1);
    let guard = client.fair_mutex("m").try_lock().await.unwrap().expect("free");
    assert!(guard.token().unwrap().number() > token);
}
