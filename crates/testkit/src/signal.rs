//! Signals to servers and to processes of tests.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Sends a signal, by its name as `kill` takes it. Nothing happens if the process has ended.
pub fn send(pid: u32, name: &str) {
    let ended = || !Path::new(&format!("/proc/{pid}")).exists();
    assert!(sent(&pid.to_string(), name) || ended(), "kill {name} {pid}");
}

/// Sends a signal to a process that leads a group, and to all in that group. Nothing happens if they have ended.
pub fn send_group(leader: u32, name: &str) {
    assert!(sent(&format!("-{leader}"), name) || group(leader).is_empty(), "kill {name} -- -{leader}");
}

fn sent(to: &str, name: &str) -> bool {
    let sent = Command::new("kill").args([name, "--", to]).stderr(Stdio::null()).status();
    sent.is_ok_and(|status| status.success())
}

/// The processes of a group.
fn group(leader: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let of = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // After the name in parentheses: the state, the parent, the group.
        stat.rsplit_once(')')?.1.split_whitespace().nth(2)?.parse::<u32>().ok()
    };
    pids.filter(|pid| of(pid) == Some(leader)).collect()
}

/// Stops a process, and returns when none of its threads runs any more.
///
/// `kill -STOP` returns earlier: one thread takes the signal when it runs next, and the others go on until then. On a busy machine that is
/// long enough for an answer that a stopped server cannot give.
pub fn stop(pid: u32) {
    send(pid, "-STOP");
    wait_until_stopped(pid);
}

/// Stops a process that leads a group, and all in that group.
pub fn stop_group(leader: u32) {
    send_group(leader, "-STOP");
    group(leader).into_iter().for_each(wait_until_stopped);
}

fn wait_until_stopped(pid: u32) {
    let began = Instant::now();
    while !is_stopped(pid) {
        assert!(began.elapsed() < Duration::from_secs(10), "process {pid} does not stop");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Lets a stopped process go on.
pub fn resume(pid: u32) {
    send(pid, "-CONT");
}

/// Lets a stopped group go on.
pub fn resume_group(leader: u32) {
    send_group(leader, "-CONT");
}

/// Whether no thread of a process runs. A process that has ended runs none.
fn is_stopped(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok()).all(|stat| {
        // The name before the state is in parentheses, and may contain any character.
        let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
        matches!(state, Some('T' | 't' | 'Z' | 'X'))
    })
}
