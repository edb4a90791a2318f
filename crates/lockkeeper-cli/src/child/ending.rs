//! Ending all that the command started: its group, and the processes that left the group.

use std::collections::HashSet;
use std::time::Duration;

use lockkeeper::runtime::Instant as LeaseInstant;
use rustix::process::{Pid, Signal, getpid, kill_process};
use tokio::time::{Instant, sleep};

use super::Child;
use super::processes::{self, Process};
use crate::exit::say;
use crate::signals::Signals;

/// How often it is checked whether the processes have ended.
const CHECK: Duration = Duration::from_millis(10);

/// How long a killed process may take to end. One that takes longer cannot be ended by us.
const KILLED: Duration = Duration::from_secs(2);

impl Child {
    /// Ends the whole group: TERM, and KILL to those that are left after `grace`. Then the same to processes that left the group. Signals are passed on
    /// meanwhile. `deadline` is the time until which the command may run if this process is stopped.
    pub(crate) async fn end(mut self, grace: Duration, signals: &mut Signals, deadline: impl Fn() -> LeaseInstant) {
        let until = Instant::now() + grace;
        self.keep_until(deadline());
        if !self.has_ended || self.is_group_running() {
            self.send(Signal::TERM);
            // A stopped process gets TERM only when it continues.
            self.send(Signal::CONT);
        }
        if !self.wait_for_group(until, signals, &deadline).await {
            self.send(Signal::KILL);
            if let Some(terminal) = &self.terminal {
                // The command had no time to leave it as it was.
                terminal.restore();
            }
            if !self.wait_for_group(Instant::now() + KILLED, signals, &deadline).await {
                cannot_end(&processes::of_group(self.pid));
            }
        }
        self.end_outside_group(until, signals, &deadline).await;
    }

    /// Whether the command and its group have ended by then.
    async fn wait_for_group(&mut self, until: Instant, signals: &mut Signals, deadline: &impl Fn() -> LeaseInstant) -> bool {
        loop {
            self.reap_all();
            if self.has_ended && !self.is_group_running() {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            self.keep_until(deadline());
            tokio::select! {
                _ = self.changes.recv() => {}
                signal = signals.next() => self.send(signal),
                () = sleep(CHECK.min(until - Instant::now())) => {}
            }
        }
    }

    /// TERM to each process once, KILL after the deadline of the grace.
    async fn end_outside_group(&mut self, until: Instant, signals: &mut Signals, deadline: &impl Fn() -> LeaseInstant) {
        let give_up = until.max(Instant::now()) + KILLED;
        let mut asked: HashSet<Pid> = HashSet::new();
        loop {
            self.reap_all();
            let left = processes::outside_group(getpid(), self.pid);
            if left.is_empty() {
                return;
            }
            if Instant::now() >= give_up {
                return cannot_end(&left);
            }
            let over = Instant::now() >= until;
            for process in &left {
                if over {
                    let _ = kill_process(process.pid, Signal::KILL);
                } else if asked.insert(process.pid) {
                    let _ = kill_process(process.pid, Signal::TERM);
                    let _ = kill_process(process.pid, Signal::CONT);
                }
            }
            self.keep_until(deadline());
            tokio::select! {
                _ = self.changes.recv() => {}
                _ = signals.next() => {}
                () = sleep(CHECK) => {}
            }
        }
    }

    fn reap_all(&mut self) {
        // A stop is passed over: the process is continued with the next signal, or killed.
        while let Ok(Some(_)) = self.reap() {}
    }
}

fn cannot_end(left: &[Process]) {
    if !left.is_empty() {
        say(&format!(
            "cannot end {}: the kernel does not let this user signal it, or it does not react; it runs on without the lock",
            processes::named(left)
        ));
    }
}
