//! `lockkeeper torture` finds nothing on sound stores, finds what is broken on one that forgets, and leaves nothing behind.

use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockkeeper::blocking::Client;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::redis::store;
use crate::stores::{fresh, on_each_store};
use crate::util::{Ended, assert_refused, end, is_running, lockkeeper, until};

fn report(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

/// How often a promise was checked, and how often it was broken.
fn row(report: &Value, promise: &str) -> (u64, u64) {
    let rows = report["promises"].as_array().expect("rows");
    let row = rows.iter().find(|row| row["promise"] == promise).unwrap_or_else(|| panic!("no {promise} in {report}"));
    (row["checks"].as_u64().expect("a number"), row["broken"].as_u64().expect("a number"))
}

#[test]
fn a_sound_store_breaks_no_promise_and_keeps_the_locks_of_others() {
    on_each_store("a_sound_store_breaks_no_promise_and_keeps_the_locks_of_others", |url| {
        let client = Client::connect(url).expect("a store");
        let theirs = client.mutex("theirs").lock().expect("free");
        let ended = end(&mut lockkeeper(["torture", "-S", url, "--minutes", "0.12", "-l", "1s", "-o", "json", "--yes"]));
        let report = report(&ended);
        assert_eq!((ended.code, &report["sound"]), (Some(0), &Value::Bool(true)), "{report:#}");
        for promise in ["P1", "P2", "P3", "P5", "P7", "count"] {
            let (checks, broken) = row(&report, promise);
            assert!(checks > 0 && broken == 0, "{promise}: {report:#}");
        }
        assert!(report["faults"]["pauses"].as_u64() > Some(0), "{report:#}");
        assert_eq!(report["synchronizers"].as_array().map(Vec::len), Some(9), "{report:#}");
        let left: Vec<_> = client.list("*").expect("a store").into_iter().map(|found| found.name.to_string()).collect();
        assert_eq!(left, ["theirs"]);
        assert!(theirs.is_valid());
    });
}

/// The negative control: a server that forgets what it holds, as one does that is restarted without a disk.
#[test]
fn a_store_that_forgets_its_locks_is_found_out() {
    let Some((server, url)) = store("a_store_that_forgets_its_locks_is_found_out") else { return };
    let database = url.rsplit('/').next().expect("a database");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(300));
                let port = server.port.to_string();
                let flushed = std::process::Command::new("redis-cli").args(["-p", &port, "-n", database, "FLUSHDB"]).output();
                assert!(flushed.is_ok_and(|flushed| flushed.status.success()));
            }
        });
        let ended = end(&mut lockkeeper(["torture", "-S", &url, "--minutes", "0.2", "-l", "2s"]));
        over.store(true, Ordering::Relaxed);
        assert_eq!(ended.code, Some(81), "{ended:?}");
        assert!(ended.stdout.contains("BROKEN P1") && ended.stdout.contains("was granted while"), "{}", ended.stdout);
        assert!(ended.stdout.contains("process ") && ended.stdout.contains("NOT SOUND"), "{}", ended.stdout);
    });
}

#[test]
fn locks_of_others_are_asked_about() {
    on_each_store("locks_of_others_are_asked_about", |url| {
        let client = Client::connect(url).expect("a store");
        let _theirs = client.mutex("theirs").lock().expect("free");
        assert_refused(&mut lockkeeper(["torture", "-S", url]), 64, "holds 1 locks, such as \"theirs\"");
        assert_eq!(client.list("*").expect("a store").len(), 1);
    });
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (words, says) in [
        (&["--minutes", "0"][..], "out of range"),
        (&["--minutes", "long"], "not a number of minutes"),
        (&["--processes", "1"], "nobody to exclude"),
        (&["-S", "memory:"], "inside one process"),
        (&["--history", "/no/such/directory/file", "--minutes", "0.01"], "cannot write the history"),
    ] {
        let code = if says.starts_with("cannot write") { 70 } else { 64 };
        assert_refused(&mut lockkeeper(["torture"].iter().chain(words)), code, says);
    }
}

/// Starts it, and waits until its processes are there.
fn started(url: &str) -> (Child, Vec<Pid>) {
    let child = lockkeeper(["torture", "-S", url, "--minutes", "5", "-l", "1s", "--processes", "2"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut workers = Vec::new();
    until("two processes are at work", || {
        let list = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap_or_default();
        workers = list.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect();
        workers.len() == 2
    });
    (child, workers)
}

#[test]
fn a_signal_ends_it_with_a_report_and_leaves_nothing() {
    let url = fresh();
    let (child, workers) = started(&url);
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(143), "{said}");
    assert!(said.contains("no promise was broken"), "{said}");
    assert!(workers.into_iter().all(|worker| !is_running(worker)));
    assert!(Client::connect(&url).expect("a store").list("*").expect("a store").is_empty());
}

#[test]
fn its_processes_do_not_outlive_it() {
    let (mut child, workers) = started(&fresh());
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    until("its processes are gone", || workers.iter().all(|worker| !is_running(*worker)));
}
