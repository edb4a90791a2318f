//! The command as a process: its own group, started through ourselves, ended with all that it started.

mod foreground;
mod guard;
mod shim;

pub(crate) use shim::shim;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpgrp, getpid, kill_process, kill_process_group, test_kill_process_group, waitpid,
};
use tokio::signal::unix::{self, SignalKind};
use tokio::time::{Instant, sleep_until};

use foreground::{Lender, Terminal};
use guard::Guard;

use crate::signals::Signals;

/// How often it is looked whether a group that was told to end has ended.
const LOOK: Duration = Duration::from_millis(10);

/// A running command and its process group.
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
    changes: unix::Signal,
    terminal: Option<Terminal>,
    _guard: Guard,
    /// A stop was passed on, so that the command's stop is meant for us too.
    stopping: bool,
}

/// What became of the command.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    Ended(WaitStatus),
    Stopped(i32),
}

impl Child {
    /// Starts the command that `command` describes, in a process group of its own that holds `alive` open.
    pub(crate) fn start(mut command: Command, alive: Option<OwnedFd>) -> io::Result<Self> {
        let changes = unix::signal(SignalKind::child())?;
        let guard = Guard::start()?;
        let lender = Lender::open(getpgrp());
        let at_once = lender.is_some() && foreground::is_lent_at_once();
        let mut shim = shim::around(&mut command, at_once);
        // For this child only: the flag is set again by closing our copy.
        if let Some(alive) = &alive {
            rustix::io::fcntl_setfd(alive, rustix::io::FdFlags::empty())?;
        }
        let started = shim.process_group(0).spawn();
        drop(alive);
        let pid = Pid::from_child(&started?);
        guard.watch(pid);
        let mut terminal = lender.map(|lender| lender.to(pid));
        if let Some(terminal) = terminal.as_mut().filter(|_| at_once) {
            terminal.lend_on_demand();
        }
        Ok(Self { pid, changes, terminal, _guard: guard, stopping: false })
    }

    /// Waits until the command ends or stops.
    ///
    /// Nothing is missed when it is dropped.
    pub(crate) async fn changed(&mut self) -> io::Result<Change> {
        loop {
            if let Some((_, status)) = waitpid(Some(self.pid), WaitOptions::NOHANG | WaitOptions::UNTRACED)? {
                match status.stopping_signal() {
                    Some(signal) => return Ok(Change::Stopped(signal)),
                    None if !status.continued() => {
                        self.ended(status);
                        return Ok(Change::Ended(status));
                    }
                    None => continue,
                }
            }
            let _ = self.changes.recv().await;
        }
    }

    fn ended(&mut self, status: WaitStatus) {
        let Some(terminal) = self.terminal.take() else { return };
        let lent = terminal.is_lent();
        terminal.take_back();
        // The terminal sent it to the command's group only; a script around us expects it as if there were one group.
        if lent && let Some(signal @ (Signal::INT | Signal::QUIT)) = status.terminating_signal().and_then(Signal::from_named_raw)
        {
            foreground::tell_our_group(signal);
        }
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
    }

    /// A group that has ended keeps nobody's number for long, but we ask only while its leader is not waited for, or it was there a
    /// moment ago.
    fn send(&self, signal: Signal) {
        let _ = kill_process_group(self.pid, signal);
    }

    /// The command stopped. If it wants the terminal that is ours, it gets it; if the user stopped it, we stop too, so that the shell sees
    /// it.
    pub(crate) async fn stopped(&mut self, signal: i32, signals: &mut Signals) {
        let wants_terminal = [Signal::TTIN, Signal::TTOU].iter().any(|wants| wants.as_raw() == signal);
        if wants_terminal && self.terminal.as_mut().is_some_and(Terminal::lend_on_demand) {
            self.send(Signal::CONT);
            return;
        }
        let lent = self.terminal.as_ref().is_some_and(Terminal::is_lent);
        // Stopped by somebody else, who will wake it again: we keep the lock meanwhile.
        if !lent && !self.stopping {
            return;
        }
        if let Some(terminal) = self.terminal.as_ref().filter(|_| lent) {
            terminal.take_back();
            foreground::tell_our_group(Signal::TSTP);
            // We are of that group. If it came after our own stop, we would stop the command again as soon as we go on.
            signals.came(Signal::TSTP).await;
        }
        stop_ourselves();
    }

    /// Ends the whole group: TERM, and KILL to what is there after `grace`. Signals are passed on meanwhile.
    pub(crate) async fn end(mut self, grace: Duration, signals: &mut Signals) {
        self.send(Signal::TERM);
        // What is stopped cannot heed it.
        self.send(Signal::CONT);
        let deadline = Instant::now() + grace;
        let mut leader_is_there = true;
        while Instant::now() < deadline {
            if !leader_is_there && test_kill_process_group(self.pid).is_err() {
                return;
            }
            // Nobody tells us of grandchildren.
            let next = if leader_is_there { deadline } else { deadline.min(Instant::now() + LOOK) };
            tokio::select! {
                change = self.changed(), if leader_is_there => leader_is_there = matches!(change, Ok(Change::Stopped(_))),
                signal = signals.next() => self.send(signal),
                () = sleep_until(next) => {}
            }
        }
        self.send(Signal::KILL);
        if let Some(terminal) = &self.terminal {
            // It had no time to leave it as it was.
            terminal.restore();
        }
        while leader_is_there {
            leader_is_there = matches!(self.changed().await, Ok(Change::Stopped(_)));
        }
    }
}

/// Stops this process until somebody continues it.
pub(crate) fn stop_ourselves() {
    let _ = kill_process(getpid(), Signal::STOP);
}

/// This program, to be started again.
fn ourselves() -> Command {
    Command::new(Path::new("/proc/self/exe"))
}
