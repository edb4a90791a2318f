//! The negative control of every history: an operator takes locks away from their holders. A judge who is not told must find two holders.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use lockkeeper_testkit::server::ask;
use serde_json::Value;

use super::topology::{Fault, Forgot, now};

const FORCED: &str = "release by force";
const VOTES: &str = "votes deleted";

/// What is done as a negative control.
pub(super) const ALL: [&str; 2] = [FORCED, VOTES];

/// Releases by force what is held, again and again for so long.
pub(super) fn force(program: &Path, url: &str, time: Duration) -> Vec<Fault> {
    let (began, mut faults) = (Instant::now(), Vec::new());
    while began.elapsed() < time {
        for name in held(program, url) {
            let from = now();
            let done = run(program, url, &["release", "--yes", &name]).is_some_and(|done| done.status.success());
            if done {
                let to = now();
                // The holder is told at its next renewal; until then the store alone knows.
                let forgot = Some(Forgot { from, to, all: false });
                faults.push(Fault { what: FORCED, from, to, outage: false, forgot });
            }
        }
    }
    faults
}

/// Deletes all votes of a majority, again and again for so long. (`lockkeeper release` refuses a `max-lease` shorter than its own lease of 30 s.)
pub(super) fn delete_votes(ports: &[u16], time: Duration) -> Vec<Fault> {
    const DELETE: &str = "for _, key in ipairs(redis.call('keys', 'lockkeeper-torture:*')) do redis.call('del', key) end";
    let (began, mut faults) = (Instant::now(), Vec::new());
    while began.elapsed() < time {
        let from = now();
        for port in ports {
            ask(*port, &["EVAL", DELETE, "0"]);
        }
        let to = now();
        faults.push(Fault { what: VOTES, from, to, outage: false, forgot: Some(Forgot { from, to, all: false }) });
        // Others get in, and are inside when it happens again.
        std::thread::sleep(Duration::from_millis(50));
    }
    faults
}

/// The locks that are held now. Permits are left alone: several may hold them.
fn held(program: &Path, url: &str) -> Vec<String> {
    let listed = run(program, url, &["list", "-o", "json"]).map(|done| done.stdout).unwrap_or_default();
    let listed: Vec<Value> = serde_json::from_slice(&listed).unwrap_or_default();
    let names = listed.iter().filter(|found| found["holders"].as_array().is_some_and(|holders| !holders.is_empty()));
    let names = names.filter_map(|found| found["name"].as_str());
    names.filter(|name| ["mutex", "fair", "rw"].iter().any(|kind| name.ends_with(kind))).map(str::to_owned).collect()
}

fn run(program: &Path, url: &str, words: &[&str]) -> Option<Output> {
    Command::new(program).args(words).env("LOCKKEEPER_STORE", url).stdin(Stdio::null()).output().ok()
}
