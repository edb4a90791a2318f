//! The blocking face: the thread is the owner, and nothing panics where it is used.
#![allow(clippy::disallowed_methods, reason = "threads are what it is about")]

use std::time::Duration;

use lockkeeper::ErrorKind;
use lockkeeper::blocking::Client;

#[test]
fn the_thread_is_the_owner() {
    let client = Client::connect("memory:").unwrap();
    let mutex = client.mutex("m");
    let outer = mutex.lock().unwrap();
    let inner = mutex.try_lock().unwrap().expect("the same thread");
    assert_eq!(outer.token(), inner.token());
    let elsewhere = std::thread::scope(|scope| scope.spawn(|| mutex.try_lock().unwrap().is_some()).join().unwrap());
    assert!(!elsewhere, "another thread is another owner");
    outer.release().unwrap();
    assert!(inner.is_valid(), "held until the last guard is gone");
    inner.release().unwrap();
    assert!(std::thread::scope(|scope| scope.spawn(|| mutex.try_lock().unwrap().is_some()).join().unwrap()));
}

#[test]
fn a_thread_waits_for_another() {
    let client = Client::connect("memory:").unwrap();
    let guard = client.fair_mutex("m").lock().unwrap();
    let waiter = {
        let client = client.clone();
        std::thread::spawn(move || client.fair_mutex("m").lock_with(|taking| taking.wait(Duration::from_secs(10))).map(drop))
    };
    while client.inspect("m").unwrap().unwrap().queue.is_empty() {
        std::thread::yield_now();
    }
    guard.release().unwrap();
    waiter.join().unwrap().unwrap();
}

#[test]
fn a_thread_reads_while_it_writes_and_is_told_when_it_would_wait_for_itself() {
    let client = Client::connect("memory:").unwrap();
    let lock = client.rwlock("rw");
    let writer = lock.write().unwrap();
    let reader = lock.read().unwrap();
    writer.release().unwrap();
    assert_eq!(lock.write().unwrap_err().kind(), ErrorKind::Deadlock);
    reader.release().unwrap();
    assert!(lock.try_write().unwrap().is_some());
}

#[test]
fn permits_counters_and_latches_work_alike() {
    let client = Client::connect("memory:").unwrap();
    let permits = client.semaphore("s", 2);
    let (one, two) = (permits.acquire().unwrap(), permits.acquire().unwrap());
    assert!(permits.try_acquire().unwrap().is_none(), "a thread's permits add up");
    one.release().unwrap();
    two.release().unwrap();
    assert_eq!(permits.available().unwrap(), 2);

    let jobs = client.counting_semaphore("c");
    jobs.release(2).unwrap();
    jobs.acquire(2, None).unwrap();
    assert_eq!(jobs.acquire(1, Some(Duration::from_millis(20))).unwrap_err().kind(), ErrorKind::Timeout);

    let latch = client.latch("l");
    assert!(latch.try_set(1).unwrap());
    let waiter = {
        let latch = latch.clone();
        std::thread::spawn(move || latch.wait(Some(Duration::from_secs(10))))
    };
    latch.count_down().unwrap();
    waiter.join().unwrap().unwrap();
}

#[tokio::test]
async fn inside_an_executor_it_blocks_but_does_not_panic() {
    let client = Client::connect("memory:").unwrap();
    let guard = client.mutex("m").lock().unwrap();
    guard.extend(Duration::from_secs(60)).unwrap();
    guard.release().unwrap();
    client.close().unwrap();
}

#[test]
fn several_are_taken_together() {
    let client = Client::connect("memory:").unwrap();
    let both = client.multi_lock(["a", "b"]);
    let guard = both.lock_with(|taking| taking.wait(Duration::from_secs(3))).unwrap();
    assert!(guard.is_valid() && guard.tokens().count() == 2);
    assert!(both.try_lock().unwrap().is_none());
    guard.release().unwrap();
    both.lock().unwrap().release().unwrap();
}

/// More than a task may do before tokio makes it yield.
const MANY: usize = 1_000;

fn lock_many(client: &Client) {
    for _ in 0..MANY {
        client.mutex("m").lock().unwrap().release().unwrap();
    }
}

#[tokio::test]
async fn a_thousand_calls_pass_in_a_task_of_one_thread() {
    lock_many(&Client::connect("memory:").unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_calls_pass_in_tasks_of_many_threads_and_beside_them() {
    let client = Client::connect("memory:").unwrap();
    let of = |client: &Client| client.clone();
    let (a, b, c) = (of(&client), of(&client), of(&client));
    tokio::spawn(async move { lock_many(&a) }).await.unwrap();
    tokio::spawn(async move { tokio::task::block_in_place(|| lock_many(&b)) }).await.unwrap();
    tokio::task::spawn_blocking(move || lock_many(&c)).await.unwrap();
}
