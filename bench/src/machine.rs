//! What it ran on, and what the kernel knows about processes.

use std::process::Command;

/// The machine, before anything ran.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    pub(crate) processor: String,
    pub(crate) server: String,
    pub(crate) compiler: String,
    pub(crate) date: String,
    /// Runnable processes on average in the minute before: whatever others did.
    pub(crate) load: f64,
}

impl Machine {
    pub(crate) fn look() -> Self {
        let load = read("/proc/loadavg").split_whitespace().next().and_then(|load| load.parse().ok()).unwrap_or(0.0);
        let processor =
            read("/proc/cpuinfo").lines().find_map(|line| Some(line.strip_prefix("model name")?.split_once(": ")?.1.to_owned()));
        Self {
            cores: cores(),
            kernel: said("uname", &["-sr"]),
            processor: processor.unwrap_or_else(|| "unknown processor".to_owned()),
            server: said("redis-server", &["--version"]).split(" sha").next().unwrap_or_default().to_owned(),
            compiler: said("rustc", &["--version"]),
            date: said("date", &["-u", "+%Y-%m-%d %H:%M UTC"]),
            load,
        }
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.load > 0.3 * self.cores as f64
    }
}

pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Seconds of CPU that a process has used, all its threads together; counted in hundredths.
pub(crate) fn cpu_of(pid: u32) -> f64 {
    let text = read(&format!("/proc/{pid}/stat"));
    // The name of the program, in brackets, may hold anything.
    let numbers: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let hundredths = |at: usize| numbers.get(at).and_then(|number| number.parse::<f64>().ok()).unwrap_or(0.0);
    (hundredths(11) + hundredths(12)) / 100.0
}

/// With four cores and more the server gets one of its own, so that contestants do not push it about. Says whether it did.
pub(crate) fn pin(server: u32) -> bool {
    let last = cores() - 1;
    cores() >= 4
        && Command::new("taskset")
            .args(["-cp", &last.to_string(), &server.to_string()])
            .output()
            .is_ok_and(|done| done.status.success())
}

fn read(file: &str) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

fn said(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output();
    output.map_or_else(|_| format!("{program} unknown"), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
