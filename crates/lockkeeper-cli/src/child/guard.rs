//! A process beside the command that outlives a killed runner by a moment, and ends what the command has started.
//!
//! The parent-death signal reaches the command alone; a shell's children would run on without a lock. The guard reads from a pipe that
//! only the runner holds open: when it closes without a word, the runner is dead, and the command's group is killed.

use std::io::{self, BufRead as _, PipeWriter, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

use super::ourselves;

/// The first argument that asks for this, and not for a verb.
pub(super) const GUARD: &str = "__guard";

/// The runner's end.
#[derive(Debug)]
pub(super) struct Guard {
    /// Not waited for: it ends after us, or with us.
    _process: Child,
    pipe: PipeWriter,
}

impl Guard {
    /// Starts it, in a group of its own: what the terminal sends is not for it.
    pub(super) fn start() -> io::Result<Self> {
        let (heard, pipe) = io::pipe()?;
        let mut guard = ourselves();
        guard.arg0("lockkeeper").arg(GUARD).stdin(heard).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        Ok(Self { _process: guard.spawn()?, pipe })
    }

    /// Names the group that is to end with us.
    pub(super) fn watch(&self, group: Pid) {
        let _ = writeln!(&self.pipe, "{group}");
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = writeln!(&self.pipe, "done");
    }
}

/// The guard itself.
pub(super) fn run() -> u8 {
    let mut lines = io::stdin().lock().lines();
    let group = lines.next().and_then(|line| line.ok()?.parse().ok()).and_then(Pid::from_raw);
    if let (Some(group), None) = (group, lines.next()) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    0
}
