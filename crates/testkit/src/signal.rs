//! Signals to servers and to processes of tests.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Sends a signal, by its name as `kill` takes it. Nothing happens if the process has ended.
pub fn send(pid: u32, name: &str) {
    let sent = Command::new("kill").args([name, &pid.to_string()]).stderr(Stdio::null()).status();
    let ended = || !Path::new(&format!("/proc/{pid}")).exists();
    assert!(sent.is_ok_and(|status| status.success()) || ended(), "kill {name} {pid}");
}

/// Stops a process, and returns when none of its threads runs any more.
///
/// `kill -STOP` returns earlier: one thread takes the signal when it runs next, and the others go on until then. On a busy machine that is
/// long enough for an answer that a stopped server cannot give.
pub fn stop(pid: u32) {
    send(pid, "-STOP");
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

/// Whether no thread of a process runs. A process that has ended runs none.
fn is_stopped(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok()).all(|stat| {
        // The name before the state is in parentheses, and may contain any character.
        let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
        matches!(state, Some('T' | 't' | 'Z' | 'X'))
    })
}
