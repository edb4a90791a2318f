//! Eight processes on one file.

use std::io::Write;

use lockkeeper::Client;

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
    assert!(guard.token().number() > token);
}
