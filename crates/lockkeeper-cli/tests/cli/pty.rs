//! A pseudo-terminal with somebody at it: a session whose controlling terminal it is, what was typed, what was drawn.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::util::until;

/// A terminal, and the program that leads its session.
pub(crate) struct Pty {
    keyboard: File,
    pub(crate) leader: Child,
    drawn: Arc<Mutex<Vec<u8>>>,
}

impl Pty {
    /// Starts `command` as the leader of a session on a new terminal, which does not tell its size.
    pub(crate) fn start(command: &Command) -> Self {
        Self::start_with(command, 0)
    }

    /// The same on a terminal of so many columns.
    pub(crate) fn start_with(command: &Command, columns: u16) -> Self {
        let outer = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a pseudo-terminal");
        grantpt(&outer).expect("a pseudo-terminal");
        unlockpt(&outer).expect("a pseudo-terminal");
        let name = ptsname(&outer, Vec::new()).expect("a name");
        let name = std::ffi::OsStr::from_bytes(name.as_bytes());
        let inner: File = open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).expect("a terminal").into();
        let rows = if columns > 0 { 24 } else { 0 };
        tcsetwinsize(&inner, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).expect("a terminal");
        let side = || Stdio::from(inner.try_clone().expect("a descriptor"));
        // A program of the system that makes it the controlling terminal: that has to happen between fork and exec.
        let mut session = Command::new("setsid");
        session.args(["--ctty", "env", "--default-signal"]).arg(command.get_program()).args(command.get_args());
        for (variable, value) in command.get_envs() {
            match value {
                Some(value) => session.env(variable, value),
                None => session.env_remove(variable),
            };
        }
        session.env("TERM", "xterm");
        let leader = session.stdin(side()).stdout(side()).stderr(side()).spawn().expect("setsid starts");
        let keyboard = File::from(outer);
        let mut screen = keyboard.try_clone().expect("a descriptor");
        let drawn = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&drawn);
        std::thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(read @ 1..) = screen.read(&mut some) {
                shared.lock().expect("nobody panics with it").extend_from_slice(&some[..read]);
            }
        });
        Self { keyboard, leader, drawn }
    }

    pub(crate) fn type_in(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("the terminal is there");
    }

    /// All that was drawn until now.
    pub(crate) fn drawn(&self) -> String {
        String::from_utf8_lossy(&self.drawn.lock().expect("nobody panics with it")).into_owned()
    }

    #[track_caller]
    pub(crate) fn expect(&self, text: &str) {
        self.expect_times(text, 1);
    }

    #[track_caller]
    pub(crate) fn expect_times(&self, text: &str, times: usize) {
        let began = std::time::Instant::now();
        while self.drawn().matches(text).count() < times {
            assert!(began.elapsed().as_secs() < 30, "{text:?} was not drawn {times} times within 30 s: {:?}", self.drawn());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    #[track_caller]
    pub(crate) fn end(&mut self) -> ExitStatus {
        let mut status = None;
        until("the program on the terminal ends", || {
            status = self.leader.try_wait().expect("a child");
            status.is_some()
        });
        status.expect("it ended")
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.leader.kill();
        let _ = self.leader.wait();
    }
}
