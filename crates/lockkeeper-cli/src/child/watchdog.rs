//! A process beside the command that ends the command's group when the runner cannot: because the runner was killed, or because it is
//! stopped and its lock has expired.
//!
//! The parent-death signal reaches only the command itself, not the processes that it started. The watchdog reads from a pipe that only
//! the runner holds open. When the pipe closes without the word `done`, the runner is dead. While the runner lives, it writes the deadline of the lock after
//! each renewal; when the deadline passes without a new one, the runner does not run.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{self, PipeWriter, Write as _};
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use lockkeeper::runtime::{Instant, Runtime};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, getpid, getppid, kill_process, kill_process_group};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime};

use super::processes::{self, Process};
use super::this_program;

/// The first argument that starts a watchdog instead of a verb.
pub(super) const WATCHDOG: &str = "__watchdog";

/// The clock of the leases, which runs while the machine sleeps.
const CLOCK: Runtime = Runtime::system();

/// A runner that is not stopped learns of the deadline at the same moment as the watchdog. It gets this long to end the command itself, with TERM first.
const RUNNER_FIRST: Duration = Duration::from_millis(300);

/// The command of a stopped runner is killed a tenth of the lease before the deadline, at most this long before: on a busy machine the watchdog may be late, and
/// the store grants the lock to the next one soon after the deadline.
const EARLY: Duration = Duration::from_secs(1);

/// How often the watchdog looks meanwhile whether the runner was stopped.
const LOOK: Duration = Duration::from_millis(5);

/// Deadlines that differ by less are the same: they are computed from a remaining time.
const SAME: Duration = Duration::from_millis(1);

/// The runner's side.
#[derive(Debug)]
pub(super) struct Watchdog {
    pid: Pid,
    pipe: PipeWriter,
    group: Option<Pid>,
    until: Instant,
}

impl Watchdog {
    /// Starts it, in a process group of its own: signals from the terminal are not meant for it.
    ///
    /// It knows the deadline from its start: the runner may be stopped right after it started the command.
    pub(super) fn start(until: Instant) -> io::Result<Self> {
        let (pid, pipe) = spawn(None, until)?;
        Ok(Self { pid, pipe, group: None, until })
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// The number of our end of the pipe.
    pub(super) fn pipe(&self) -> RawFd {
        self.pipe.as_raw_fd()
    }

    /// Names the group to end with the runner.
    pub(super) fn watch(&mut self, group: Pid) {
        self.group = Some(group);
        self.write(&format!("group {group}"));
    }

    /// The group may run until then, unless a later deadline is told before.
    pub(super) fn keep_until(&mut self, until: Instant) {
        let differs = until.since(self.until).max(self.until.since(until)) >= SAME;
        if differs {
            self.until = until;
            self.write(&format!("until {}", until.as_nanos()));
        }
        // One that is stopped would not notice the deadline.
        if Process::find(self.pid).is_none_or(|process| process.is_stopped()) {
            self.replace();
        }
    }

    /// Starts another one after this one died. If that fails the next deadline tries again.
    pub(super) fn replace(&mut self) {
        let _ = kill_process(self.pid, Signal::KILL);
        // Group and deadline are arguments, so that the new one knows them even if the runner is killed right now.
        if let Ok((pid, pipe)) = spawn(self.group, self.until) {
            (self.pid, self.pipe) = (pid, pipe);
        }
    }

    /// A line is shorter than what a pipe takes at once: it is written whole or not at all.
    fn write(&mut self, line: &str) {
        if writeln!(&self.pipe, "{line}").is_err() {
            self.replace();
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let _ = writeln!(&self.pipe, "done");
    }
}

/// Names the own group to the watchdog, before the command starts: if the runner is killed right after it started us, it has not named the group yet. Where
/// `/proc` does not allow it, the runner does it a moment later.
pub(super) fn announce_group(runner: Pid, pipe: &OsStr) {
    let path = Path::new("/proc").join(runner.to_string()).join("fd").join(pipe);
    if let Ok(mut pipe) = OpenOptions::new().write(true).open(path) {
        let _ = pipe.write_all(format!("group {}\n", getpid()).as_bytes());
    }
}

fn spawn(group: Option<Pid>, until: Instant) -> io::Result<(Pid, PipeWriter)> {
    let (reader, pipe) = io::pipe()?;
    // A watchdog that does not read must not block the runner.
    fcntl_setfl(&pipe, fcntl_getfl(&pipe)? | OFlags::NONBLOCK)?;
    let mut watchdog = this_program();
    watchdog.arg0("lockkeeper").arg(WATCHDOG);
    watchdog.arg(getpid().to_string());
    watchdog.arg(group.map_or(0, Pid::as_raw_pid).to_string()).arg(until.as_nanos().to_string());
    watchdog.stdin(reader).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    // It is reaped with the other children.
    Ok((Pid::from_child(&watchdog.spawn()?), pipe))
}

/// The watchdog process itself, with the runner, the group and the deadline that it starts with.
///
/// The runner is an argument: if it dies before we ask for our parent, our parent is the parent of half the machine.
pub(super) fn run(runner: Option<Pid>, group: Option<Pid>, until: u64) -> u8 {
    let mut watch = Watch { runner, group, until: Instant::NEVER, longest: Duration::ZERO, text: Vec::new() };
    watch.keep_until(until);
    match watch.run() {
        Ok(()) => 0,
        // Without a clock or a pipe nobody watches any more: the runner sees that we ended, and starts another one.
        Err(_) => 1,
    }
}

struct Watch {
    runner: Option<Pid>,
    group: Option<Pid>,
    until: Instant,
    /// The longest time to a deadline that was told: about the lease.
    longest: Duration,
    /// What was read and is not yet a line.
    text: Vec<u8>,
}

impl Watch {
    fn run(&mut self) -> io::Result<()> {
        // This clock also runs while the machine sleeps.
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let stdin = io::stdin();
        loop {
            set(&timer, self.wake_at())?;
            let mut ready = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(&timer, PollFlags::IN)];
            match poll(&mut ready, None) {
                Err(rustix::io::Errno::INTR) => continue,
                polled => polled?,
            };
            if !ready[0].revents().is_empty() {
                let mut some = [0; 4096];
                match rustix::io::read(&stdin, &mut some)? {
                    0 => {
                        self.end_group();
                        return Ok(());
                    }
                    read => self.text.extend_from_slice(&some[..read]),
                }
                if self.understand() {
                    return Ok(());
                }
                // What was just read may be a later deadline.
                continue;
            }
            self.check();
        }
    }

    fn keep_until(&mut self, nanos: u64) {
        self.until = Instant::from_nanos(nanos);
        if self.until != Instant::NEVER {
            self.longest = self.longest.max(self.until.since(CLOCK.now()));
        }
    }

    /// From when on a stopped runner is not waited for.
    fn check_from(&self) -> Instant {
        let early = (self.longest / 10).min(EARLY).as_nanos();
        if self.until == Instant::NEVER {
            return Instant::NEVER;
        }
        Instant::from_nanos(self.until.as_nanos().saturating_sub(u64::try_from(early).unwrap_or(0)))
    }

    /// A little before the deadline; from then on, often.
    fn wake_at(&self) -> Instant {
        let now = CLOCK.now();
        if self.check_from() <= now { now.plus(LOOK) } else { self.check_from() }
    }

    /// Whether the runner said that it is done.
    fn understand(&mut self) -> bool {
        while let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.text.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let mut words = line.split_whitespace();
            match (words.next(), words.next()) {
                (Some("done"), _) => return true,
                (Some("group"), Some(group)) => {
                    self.group = group.parse().ok().and_then(Pid::from_raw).filter(|group| !group.is_init());
                }
                (Some("until"), Some(until)) => self.keep_until(until.parse().unwrap_or(u64::MAX)),
                _ => {}
            }
        }
        false
    }

    /// Ends the command if its deadline has passed and the runner is stopped, or does not react.
    fn check(&mut self) {
        let late = CLOCK.now().since(self.until);
        if CLOCK.now() < self.check_from() {
            return;
        }
        let stopped = self.runner.and_then(Process::find).is_none_or(|runner| runner.is_stopped());
        // Without a group the command is just being started: it is ended as soon as its group is known.
        if self.group.is_some() && (stopped || late >= RUNNER_FIRST) {
            self.end_group();
            self.until = Instant::NEVER;
        }
    }

    /// Kills the group, and the processes that left it as long as they descend from the runner.
    fn end_group(&self) {
        let Some(group) = self.group else { return };
        let _ = kill_process_group(group, Signal::KILL);
        // Only below a runner that lives and is our parent. Never below process 1, which is the ancestor of everything.
        let Some(runner) = self.runner.filter(|runner| getppid() == Some(*runner) && !runner.is_init()) else { return };
        // A process that is being started while we look is found the next time.
        for _ in 0..10 {
            let left = processes::outside_group(runner, group);
            if left.is_empty() {
                return;
            }
            for process in left {
                let _ = kill_process(process.pid, Signal::KILL);
            }
            std::thread::sleep(LOOK);
        }
    }
}

fn set(timer: &impl std::os::fd::AsFd, when: Instant) -> io::Result<()> {
    let nanos = when.as_nanos();
    // Zero would turn the timer off; so does the end of time.
    let value = if when == Instant::NEVER {
        Timespec { tv_sec: 0, tv_nsec: 0 }
    } else {
        Timespec {
            tv_sec: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(nanos % 1_000_000_000).unwrap_or(0).max(1),
        }
    };
    let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
    timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &once)?;
    Ok(())
}
