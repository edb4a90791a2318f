//! Lending the terminal to the command's process group, and taking it back: what a shell does for its jobs.
//!
//! A command on a terminal (stdin and stdout are one) gets it at once, and before it runs: its first read must not find somebody else's
//! terminal, and its first ^C must not miss it. In a pipeline a pager behind us may want it more, so there the
//! command gets it when it asks: when the kernel stops it for reading, or for changing the terminal's settings, in the background.

use std::fs::{File, OpenOptions};
use std::io::IsTerminal as _;

use nix::sys::signal::{SigSet, Signal as Blocked};
use rustix::process::{Pid, Signal, kill_current_process_group};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

/// The controlling terminal, before there is a command to lend it to.
#[derive(Debug)]
pub(super) struct Lender {
    device: File,
    group: Pid,
    /// The settings to come back to.
    settings: Option<Termios>,
}

impl Lender {
    /// The terminal of this process, if it has one, as what the process group `group` may lend.
    pub(super) fn open(group: Pid) -> Option<Self> {
        let device = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        let settings = tcgetattr(&device).ok();
        Some(Self { device, group, settings })
    }

    /// To be lent to the group `to`.
    pub(super) fn to(self, to: Pid) -> Terminal {
        let Self { device, group, settings } = self;
        Terminal { device, ours: group, to, settings, wanted: false }
    }
}

/// Whether a command gets the terminal before it runs.
pub(super) fn is_lent_at_once() -> bool {
    let for_people = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    // In a command substitution a shell has us ignore that signal: the command would never ask.
    for_people || crate::signals::is_ignored(Signal::TTIN)
}

/// The controlling terminal, and to whom it may be lent.
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
    /// Lends it if it is ours to lend; whether the command has it now.
    pub(super) fn lend_on_demand(&mut self) -> bool {
        let lent = self.is_lent() || (self.has(self.ours) && self.give(self.to));
        self.wanted |= lent;
        lent
    }

    /// After a stop, if the shell put us into the foreground again.
    pub(super) fn lend_again(&mut self) {
        if self.wanted {
            self.lend_on_demand();
        }
    }

    pub(super) fn is_lent(&self) -> bool {
        self.has(self.to)
    }

    /// Takes it from the command, with the settings that the command gave it.
    pub(super) fn take_back(&self) {
        if self.is_lent() {
            self.give(self.ours);
        }
    }

    /// Takes it from a command that was killed, with the settings from before.
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

    /// In the background this would stop us, unless the signal for it is blocked.
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

/// A signal to all of our own group, as the terminal sends it.
pub(super) fn tell_our_group(signal: Signal) {
    let _ = kill_current_process_group(signal);
}
