//! Lends the terminal to the command's process group, and takes it back: what a shell does for its jobs.
//!
//! If stdin and stdout are a terminal, the command gets it before it runs, so that its first read succeeds and the first ^C reaches it.
//! In a pipeline a pager after us may need the terminal. There the command gets it when the kernel stops it for reading
//! from the terminal, or for changing its settings, in the background.

use std::fs::{File, OpenOptions};
use std::io::IsTerminal as _;

use nix::sys::signal::{SigSet, Signal as Blocked};
use rustix::process::{Pid, Signal, kill_current_process_group};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

/// The controlling terminal, before the command exists.
#[derive(Debug)]
pub(super) struct Lender {
    device: File,
    group: Pid,
    /// The settings to restore.
    settings: Option<Termios>,
}

impl Lender {
    /// Opens the terminal of this process, if it has one. The process group `group` lends it.
    pub(super) fn open(group: Pid) -> Option<Self> {
        let device = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        let settings = tcgetattr(&device).ok();
        Some(Self { device, group, settings })
    }

    /// The borrower is the process group `to`.
    pub(super) fn to(self, to: Pid) -> Terminal {
        let Self { device, group, settings } = self;
        Terminal { device, ours: group, to, settings, wanted: false }
    }
}

/// Whether a command gets the terminal before it runs.
pub(super) fn is_lent_at_once() -> bool {
    let interactive = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    // In a command substitution the shell makes us ignore this signal, so the command would never be stopped.
    interactive || crate::signals::is_ignored(Signal::TTIN)
}

/// The controlling terminal, and the group that may borrow it.
#[derive(Debug)]
pub(super) struct Terminal {
    device: File,
    ours: Pid,
    to: Pid,
    settings: Option<Termios>,
    /// Lent at least once: after a stop it is lent again.
    wanted: bool,
}

impl Terminal {
    /// Lends it if our group has it. Returns whether the command has it now.
    pub(super) fn lend_on_demand(&mut self) -> bool {
        let lent = self.is_lent() || (self.has(self.ours) && self.give(self.to));
        self.wanted |= lent;
        lent
    }

    /// Lends it again after a stop, if the shell put us into the foreground.
    pub(super) fn lend_again(&mut self) {
        if self.wanted {
            self.lend_on_demand();
        }
    }

    pub(super) fn is_lent(&self) -> bool {
        self.has(self.to)
    }

    /// Takes it back, with the settings that the command left.
    pub(super) fn take_back(&self) {
        if self.is_lent() {
            self.give(self.ours);
        }
    }

    /// Takes it back from a killed command, and restores the settings.
    pub(super) fn restore(&self) {
        if self.is_lent() {
            self.take_back();
            if let Some(settings) = &self.settings {
                let _ = tcsetattr(&self.device, OptionalActions::Now, settings);
            }
        }
    }

    fn has(&self, group: Pid) -> bool {
        tcgetpgrp(&self.device).is_ok_and(|foreground| foreground == group)
    }

    /// From the background this would stop us, so the signal is blocked meanwhile.
    fn give(&self, group: Pid) -> bool {
        let mut blocked = SigSet::empty();
        blocked.add(Blocked::SIGTTOU);
        let was = blocked.thread_block();
        let given = tcsetpgrp(&self.device, group).is_ok();
        if was.is_ok() {
            let _ = blocked.thread_unblock();
        }
        given
    }
}

/// Sends a signal to our own process group, as the terminal does.
pub(super) fn signal_own_group(signal: Signal) {
    let _ = kill_current_process_group(signal);
}
