//! Many processes in the queue of one fair lock on a sqlite file: all are served, in the order in which they came, and rest while they wait.

use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use lockkeeper::blocking::Client;
use lockkeeper_testkit::poll::until_within;

use crate::config::Directory;
use crate::util::{lockkeeper, run};

/// How long the queue may take to form and to be served, on a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(300);

/// So much of one processor each waiting process may use. A poll each second takes about 1 ms in a program that is not optimized.
const SHARE: f64 = 0.005;

/// The clock of `/proc/PID/stat`.
const TICKS: f64 = 100.0;

/// The processor time of this process and its children, in seconds.
fn used(child: &Child) -> f64 {
    let id = child.id();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    let all = children.split_whitespace().map(str::to_owned).chain([id.to_string()]);
    let ticks = |id: String| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split_whitespace().collect();
        fields.get(11..13).unwrap_or_default().iter().filter_map(|field| field.parse::<f64>().ok()).sum::<f64>()
    };
    all.map(ticks).sum::<f64>() / TICKS
}

fn queue_of(count: usize, test: &str) {
    let directory = Directory::new(test);
    let (url, log) = (format!("sqlite:{}/locks.db", directory.0.display()), directory.0.join("log"));
    let client = Client::connect(&url).expect("a file");
    let mut holder = lockkeeper(["hold", "-S", &url, "--fair", "job"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let queue = || client.inspect("job").expect("the file can be read").map_or(0, |seen| seen.queue.len());
    until_within(PATIENCE, "it is held", || {
        client.inspect("job").expect("readable").is_some_and(|seen| !seen.holders.is_empty())
    });
    let line = format!("echo $0 >>{}", log.display());
    let waiters: Vec<Child> = (0..count)
        .map(|number| {
            let words = ["-S", &url, "--fair", "-q", "-w", "600", "job", "sh", "-c", &line, &number.to_string()];
            let waiter = run(words).stderr(Stdio::piped()).spawn().expect("the binary starts");
            until_within(PATIENCE, "it waits", || queue() > number);
            waiter
        })
        .collect();
    // A card is written by each when it begins to wait; after that they rest.
    std::thread::sleep(Duration::from_secs(1));
    let (before, began) = (waiters.iter().map(used).sum::<f64>(), Instant::now());
    std::thread::sleep(Duration::from_secs(4));
    let share = (waiters.iter().map(used).sum::<f64>() - before) / began.elapsed().as_secs_f64() / count as f64;
    assert_eq!(queue(), count, "all wait");
    let began = Instant::now();
    drop(holder.stdin.take());
    for (number, waiter) in waiters.into_iter().enumerate() {
        let ended = crate::util::ended(waiter.wait_with_output().expect("it ends"));
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "waiter {number}");
    }
    println!("{count} waiters: {:.3} % of a processor each at rest; served in {:?}", share * 100.0, began.elapsed());
    let served = fs::read_to_string(&log).expect("they wrote");
    assert_eq!(served.lines().map(|line| line.parse().unwrap()).collect::<Vec<usize>>(), (0..count).collect::<Vec<_>>());
    let holder = crate::util::ended(holder.wait_with_output().expect("it ends"));
    assert_eq!((holder.code, holder.stderr.as_str()), (Some(0), ""), "the holder lost nothing");
    assert!(share < SHARE, "each uses {:.2} % of a processor while it waits", share * 100.0);
}

#[test]
fn sixty_processes_are_served_in_order_and_rest_while_they_wait() {
    queue_of(60, "sixty_processes_are_served_in_order_and_rest_while_they_wait");
}

#[test]
#[ignore = "starts 600 processes and takes a minute: cargo xtask faults"]
fn three_hundred_processes_are_served_in_order_and_rest_while_they_wait() {
    queue_of(300, "three_hundred_processes_are_served_in_order_and_rest_while_they_wait");
}
