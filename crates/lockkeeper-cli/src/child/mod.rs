//! The command as a process: in a process group of its own, started through this program, ended with all that it started.

mod ending;
mod foreground;
mod processes;
mod shim;
mod watchdog;

pub(crate) use shim::shim;

use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lockkeeper::runtime::Instant;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, kill_process_group, set_child_subreaper, test_kill_process_group,
    wait,
};
use tokio::signal::unix::{self, SignalKind};
use tokio::time::sleep;

use foreground::{Lender, Terminal};
use processes::Process;
use watchdog::Watchdog;

use crate::signals::Signals;

/// How often a runner in the background checks whether it got the terminal that its command waits for. A shell's `fg` does not tell a job that it
/// believes to be running.
const TERMINAL_CHECK: Duration = Duration::from_millis(100);

/// How often the group is checked, first and later. The kernel tells of most ends (see `Child::start`), not of all.
const GROUP_CHECK: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// A command and its process group.
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
    changes: unix::Signal,
    terminal: Option<Terminal>,
    watchdog: Watchdog,
    /// The command itself has ended; others of its group may run.
    has_ended: bool,
    /// A stop was passed on, so the command's stop is meant for the runner too.
    stopping: bool,
    /// The command is stopped because it wants the terminal while the runner is in the background.
    wants_terminal: bool,
    group_check: Duration,
}

/// What became of the command.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// The command ended; others of its group may run.
    Ended(WaitStatus),
    /// After that: nobody of its group is left.
    GroupEnded,
    Stopped(i32),
}

impl Child {
    /// Starts the command that `command` describes, in a process group of its own that holds `alive` open. The lock is held until `deadline`.
    pub(crate) fn start(mut command: Command, alive: Option<OwnedFd>, deadline: Instant) -> io::Result<Self> {
        let changes = unix::signal(SignalKind::child())?;
        // Processes whose parent ended become children of this process: it is told of their end, and finds those that left the group.
        set_child_subreaper(Some(getpid()))?;
        let mut watchdog = Watchdog::start(deadline)?;
        // In a process namespace the number of our group may be 0: then its leader is outside, and there is no terminal to lend.
        let group = Process::find(getpid()).and_then(|this| Pid::from_raw(this.group));
        let lender = group.and_then(Lender::open);
        let at_once = lender.is_some() && foreground::is_lent_at_once();
        let mut shim = shim::around(&mut command, at_once, watchdog.pipe());
        // For this child only: the flag is set again by closing this copy.
        if let Some(alive) = &alive {
            rustix::io::fcntl_setfd(alive, rustix::io::FdFlags::empty())?;
        }
        let started = shim.process_group(0).spawn();
        drop(alive);
        let pid = Pid::from_child(&started?);
        watchdog.watch(pid);
        let mut terminal = lender.map(|lender| lender.to(pid));
        if let Some(terminal) = terminal.as_mut().filter(|_| at_once) {
            terminal.lend_on_demand();
        }
        Ok(Self {
            pid,
            changes,
            terminal,
            watchdog,
            has_ended: false,
            stopping: false,
            wants_terminal: false,
            group_check: GROUP_CHECK.0,
        })
    }

    /// The command may run until then even if this process is stopped; the watchdog ends it afterwards.
    pub(crate) fn keep_until(&mut self, deadline: Instant) {
        self.watchdog.keep_until(deadline);
    }

    /// Waits until the command ends or stops; after its end, until its group has ended.
    ///
    /// Cancel safe: a call that is dropped loses no event.
    pub(crate) async fn changed(&mut self) -> io::Result<Change> {
        loop {
            if let Some(change) = self.reap()? {
                return Ok(change);
            }
            if self.has_ended && !self.is_group_running() {
                return Ok(Change::GroupEnded);
            }
            let pause = match (self.has_ended, self.wants_terminal) {
                (true, _) => Some(self.group_check),
                (false, true) => Some(TERMINAL_CHECK),
                (false, false) => None,
            };
            tokio::select! {
                _ = self.changes.recv() => {}
                () = sleep(pause.unwrap_or_default()), if pause.is_some() => {
                    self.group_check = (self.group_check * 2).min(GROUP_CHECK.1);
                    self.lend_if_wanted();
                }
            }
        }
    }

    /// Collects the status of every child that has changed: the command, the watchdog, and orphans that became ours.
    fn reap(&mut self) -> io::Result<Option<Change>> {
        loop {
            let (pid, status) = match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some(found)) => found,
                Ok(None) => return Ok(None),
                Err(rustix::io::Errno::CHILD) if self.has_ended => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            match status.stopping_signal() {
                Some(signal) if pid == self.pid => return Ok(Some(Change::Stopped(signal))),
                None if pid == self.pid && !status.continued() => {
                    self.ended(status);
                    return Ok(Some(Change::Ended(status)));
                }
                None if pid == self.watchdog.pid() => self.watchdog.replace(),
                _ => {}
            }
        }
    }

    fn ended(&mut self, status: WaitStatus) {
        self.has_ended = true;
        let Some(terminal) = self.terminal.take() else { return };
        let lent = terminal.is_lent();
        terminal.take_back();
        // The terminal sent it to the command's group only; a script around this process expects it as if there were one group.
        if lent && let Some(signal @ (Signal::INT | Signal::QUIT)) = status.terminating_signal().and_then(Signal::from_named_raw)
        {
            foreground::signal_own_group(signal);
        }
    }

    /// Whether a process of the group has not ended.
    fn is_group_running(&self) -> bool {
        // The kernel also counts zombies, whose parents may never collect them.
        let is_gone = test_kill_process_group(self.pid) == Err(rustix::io::Errno::SRCH);
        !is_gone && !processes::of_group(self.pid).is_empty()
    }

    /// Names of the processes of the group that run.
    pub(crate) fn group(&self) -> String {
        processes::named(&processes::of_group(self.pid))
    }

    /// Names of the processes that the command started and that left its group; `None` if there are none.
    pub(crate) fn outside_group(&self) -> Option<String> {
        let left = processes::outside_group(getpid(), self.pid);
        (!left.is_empty()).then(|| processes::named(&left))
    }

    /// Passes a signal on to the whole group.
    pub(crate) fn pass_on(&mut self, signal: Signal) {
        match signal {
            Signal::TSTP => self.stopping = true,
            Signal::CONT => {
                self.stopping = false;
                if let Some(terminal) = &mut self.terminal {
                    terminal.lend_again();
                }
            }
            _ => {}
        }
        self.send(signal);
        // A stopped process gets these only when it continues.
        if matches!(signal, Signal::INT | Signal::TERM | Signal::HUP | Signal::QUIT) {
            self.send(Signal::CONT);
        }
        // Nobody tells of a stop when the command itself has ended.
        if signal == Signal::TSTP && self.has_ended {
            stop_this_process();
        }
    }

    /// The kernel keeps the number of a group as long as a process is in it. We send only while the command has not been waited for, or
    /// a process of the group was there a moment ago.
    fn send(&self, signal: Signal) {
        let _ = kill_process_group(self.pid, signal);
    }

    /// Handles a stop of the command. If it wants the terminal and the terminal is ours, it gets it. If the user stopped it, this process stops too,
    /// so that the shell sees it.
    pub(crate) async fn stopped(&mut self, signal: i32, signals: &mut Signals) {
        self.wants_terminal = [Signal::TTIN, Signal::TTOU].iter().any(|wants| wants.as_raw() == signal);
        if self.lend_if_wanted() {
            return;
        }
        let lent = self.terminal.as_ref().is_some_and(Terminal::is_lent);
        // Stopped by somebody else, who will continue it, or in the background: the lock is kept meanwhile.
        if !lent && !self.stopping {
            return;
        }
        if let Some(terminal) = self.terminal.as_ref().filter(|_| lent) {
            terminal.take_back();
            foreground::signal_own_group(Signal::TSTP);
            // This process is in that group. If the signal came after our own stop, the command would be stopped again as soon as we continue.
            signals.came(Signal::TSTP).await;
        }
        stop_this_process();
    }

    /// Gives the terminal to a command that is stopped for it, if it is ours now; whether it did.
    fn lend_if_wanted(&mut self) -> bool {
        if self.wants_terminal && self.terminal.as_mut().is_some_and(Terminal::lend_on_demand) {
            self.wants_terminal = false;
            self.send(Signal::CONT);
            return true;
        }
        false
    }
}

/// Collects the status of orphans for ever: as process 1, and as a subreaper, this process is the parent of all of them.
pub(crate) async fn reap_orphans() -> Infallible {
    let Ok(mut changes) = unix::signal(SignalKind::child()) else { return std::future::pending().await };
    loop {
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        let _ = changes.recv().await;
    }
}

/// Stops this process until somebody continues it.
pub(crate) fn stop_this_process() {
    let _ = kill_process(getpid(), Signal::STOP);
}

/// This program, to be started again.
fn this_program() -> Command {
    Command::new(Path::new("/proc/self/exe"))
}
