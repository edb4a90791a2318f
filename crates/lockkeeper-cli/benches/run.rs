//! What `lockkeeper run` adds to a command, beside `flock`: `cargo bench -p lockkeeper-cli`. The three take turns, so that a loaded machine is
//! loaded for all of them.
#![allow(clippy::disallowed_methods, reason = "it measures by the machine's clock")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ROUNDS: usize = 300;

fn main() {
    let directory = std::env::temp_dir().join(format!("lockkeeper-bench-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let mut rows = vec![("true", command("true", &[]), Vec::new())];
    if Path::new("/usr/bin/flock").exists() {
        let file = directory.join("flock").display().to_string();
        rows.push(("flock FILE true", command("flock", &[&file, "true"]), Vec::new()));
    }
    let url = format!("sqlite:{}", directory.join("locks.db").display());
    let run = command(env!("CARGO_BIN_EXE_lockkeeper"), &["run", "-S", &url, "bench", "true"]);
    rows.push(("lockkeeper run", run, Vec::new()));
    for _ in 0..ROUNDS {
        for (_, command, took) in &mut rows {
            let began = Instant::now();
            assert!(command.status().expect("it starts").success());
            took.push(began.elapsed());
        }
    }
    println!("{:<18}{:>10}{:>10}{:>14}", "ms", "p50", "p95", "p50 added");
    let floor = quantile(&mut rows[0].2, 0.5);
    for (what, _, took) in &mut rows {
        let (half, most) = (quantile(took, 0.5), quantile(took, 0.95));
        println!("{what:<18}{:>10.2}{:>10.2}{:>14.2}", millis(half), millis(most), millis(half.saturating_sub(floor)));
    }
    let _ = std::fs::remove_dir_all(&directory);
}

fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    command
}

fn quantile(took: &mut [Duration], part: f64) -> Duration {
    took.sort();
    took[((took.len() - 1) as f64 * part) as usize]
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
