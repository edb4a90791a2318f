//! Kills and stops in every order: of the command, the runner and the watchdog. No command runs beside the next one.
//!
//! Each command and a child of it append their number to a log, again and again, until they are ended. Commands acquire the lock in the order of their
//! numbers. So two commands ran at the same time exactly if a smaller number follows a larger one.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::config::Directory;
use crate::redis::store;
use crate::util::{is_running, run, until};

/// One kill or stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Command,
    Runner,
    Watchdog,
    /// Stopped until the next command runs.
    StopRunner,
}

use Act::{Command, Runner, StopRunner, Watchdog};

const ORDERS: &[&[Act]] = &[
    &[Command],
    &[Runner],
    &[Watchdog, Command],
    &[Watchdog, Runner],
    &[Command, Runner],
    &[Command, Watchdog],
    &[Runner, Command],
    &[Runner, Watchdog],
    &[Command, Runner, Watchdog],
    &[Command, Watchdog, Runner],
    &[Runner, Command, Watchdog],
    &[Runner, Watchdog, Command],
    &[Watchdog, Command, Runner],
    &[Watchdog, Runner, Command],
    &[StopRunner],
    &[Watchdog, StopRunner],
    &[Command, StopRunner],
    &[Watchdog, Watchdog, Runner],
];

/// A runner whose command and grandchild have written to the log.
pub(crate) struct Running {
    pub(crate) runner: Child,
    pub(crate) command: Pid,
    pub(crate) grandchild: Pid,
}

/// `$0` is the number, `$1` the log. The grandchild ignores TERM, as some programs do.
const SCRIPT: &str = r#"
sh -c "trap '' TERM; while echo $0 >>$1; do sleep 0.02; done" &
echo $0 >>$1
echo $$ $!
while echo $0 >>$1; do sleep 0.02; done
"#;

impl Running {
    /// Starts it and waits until it holds the lock.
    pub(crate) fn start(url: &str, name: &str, number: usize, log: &str, lease: &str) -> Self {
        Self::waiting(url, name, number, log, lease).started()
    }

    fn waiting(url: &str, name: &str, number: usize, log: &str, lease: &str) -> Waiting {
        let number = number.to_string();
        let words = ["-S", url, "-w", "120", "-l", lease, "--grace", "200ms", name, "sh", "-c", SCRIPT, &number, log];
        Waiting(run(words).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the binary starts"))
    }

    pub(crate) fn watchdog(&self) -> Option<Pid> {
        watchdog_of(&self.runner)
    }
}

/// The watchdog of this runner.
pub(crate) fn watchdog_of(runner: &Child) -> Option<Pid> {
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", runner.id())).ok()?;
    children.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).find(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        is_running(*pid) && line.split(|byte| *byte == 0).nth(1) == Some(b"__watchdog")
    })
}

/// A runner that waits for the lock.
struct Waiting(Child);

impl Waiting {
    fn started(self) -> Running {
        let mut runner = self.0;
        let mut line = String::new();
        BufReader::new(runner.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
        let mut pids = line.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?));
        let (Some(command), Some(grandchild)) = (pids.next(), pids.next()) else {
            panic!("no pids in {line:?}: {:?}", runner.wait());
        };
        Running { runner, command, grandchild }
    }
}

/// Two commands that ran at the same time, and how many lines were written.
fn overlaps(log: &Path) -> (usize, usize) {
    let text = fs::read_to_string(log).expect("the log");
    let numbers: Vec<usize> = text.lines().map(|line| line.parse().expect("a number")).collect();
    (numbers.windows(2).filter(|pair| pair[1] < pair[0]).count(), numbers.len())
}

fn act(act: Act, running: &mut Running, watchdog: Option<Pid>) {
    match act {
        Command => drop(kill_process(running.command, Signal::KILL)),
        Runner => {
            let _ = running.runner.kill();
        }
        StopRunner => drop(kill_process(Pid::from_child(&running.runner), Signal::STOP)),
        Watchdog => drop(watchdog.map(|watchdog| kill_process(watchdog, Signal::KILL))),
    }
}

/// One of each order, `rounds` times; each order is the end of one command, and the next one waits for the lock meanwhile.
fn rounds(url: &str, name: &str, log: &Path, rounds: usize) -> usize {
    // Long enough that a busy machine loses no lock, which would end the next command too.
    let lease = "3s";
    let path = log.to_str().expect("UTF-8");
    let mut number = 1;
    let mut running = Running::start(url, name, number, path, lease);
    for round in 0..rounds {
        for order in ORDERS {
            number += 1;
            let waiting = Running::waiting(url, name, number, path, lease);
            let mut killed_watchdog = None;
            for (at, step) in order.iter().enumerate() {
                // If runner and watchdog are killed in the same moment nobody is left to end the grandchild: docs/cli.md says so. Here the
                // second of them is killed when the kill of the first had its effect.
                match step {
                    Runner | StopRunner | Watchdog if killed_watchdog.is_some() => until("another watchdog is there", || {
                        let now = running.watchdog();
                        (now.is_some() && now != killed_watchdog) || !is_running(Pid::from_child(&running.runner))
                    }),
                    Watchdog if order[..at].contains(&Runner) => {
                        until("the group has ended", || !is_running(running.grandchild));
                    }
                    _ => {}
                }
                if *step == Watchdog {
                    // Seen once: the list of children may lack one for a moment. A watchdog that is killed although it was not seen is not waited for,
                    // and then the runner would be killed in the same moment.
                    until("its watchdog is seen, or it has ended", || {
                        killed_watchdog = running.watchdog();
                        killed_watchdog.is_some() || !is_running(Pid::from_child(&running.runner))
                    });
                }
                act(*step, &mut running, killed_watchdog);
                // Sometimes at once, sometimes after the others could react.
                std::thread::sleep(Duration::from_millis([0, 3, 15][(round + at + number) % 3]));
            }
            let next = waiting.started();
            let mut before = std::mem::replace(&mut running, next);
            if order.contains(&StopRunner) {
                kill_process(Pid::from_child(&before.runner), Signal::CONT).expect("it is stopped");
            }
            before.runner.wait().expect("it ends");
            // The kernel closes the files of a process a moment before it counts as ended.
            until("both have ended", || !is_running(before.command) && !is_running(before.grandchild));
        }
    }
    running.runner.kill().expect("it runs");
    running.runner.wait().expect("it is killed");
    until("the last one is gone", || !is_running(running.command) && !is_running(running.grandchild));
    rounds * ORDERS.len()
}

/// Several locks side by side, because most of the time is spent waiting for leases. `LOCKKEEPER_KILL_ROUNDS` sets how often each order is tried per lock.
fn kills(test: &str, url: &str) {
    const SIDE_BY_SIDE: usize = 2;
    let times = std::env::var("LOCKKEEPER_KILL_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1);
    let directory = Directory::new(&format!("{test}-log"));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for lane in 0..SIDE_BY_SIDE {
            let (log, name) = (directory.0.join(format!("log-{lane}")), format!("job-{lane}"));
            scope.spawn(move || {
                let rounds = rounds(url, &name, &log, times);
                let (overlaps, lines) = overlaps(&log);
                println!("{url} {name}: {rounds} rounds, {lines} lines, {overlaps} overlaps, {:?}", began.elapsed());
                assert_eq!(overlaps, 0, "in {lines} lines of {}", log.display());
                assert!(lines > 2 * rounds, "the log shows little: {lines} lines");
            });
        }
    });
}

#[test]
fn kills_in_every_order_let_no_two_commands_run_on_sqlite() {
    const TEST: &str = "kills_in_every_order_let_no_two_commands_run_on_sqlite";
    let directory = Directory::new(TEST);
    kills(TEST, &format!("sqlite:{}/locks.db", directory.0.display()));
}

#[test]
fn kills_in_every_order_let_no_two_commands_run_on_redis() {
    const TEST: &str = "kills_in_every_order_let_no_two_commands_run_on_redis";
    let Some((_server, url)) = store(TEST) else { return };
    kills(TEST, &url);
}

/// The negative control: without a lock the log shows overlaps.
#[test]
fn without_a_common_lock_the_log_shows_overlaps() {
    let directory = Directory::new("without_a_common_lock_the_log_shows_overlaps");
    let (log, url) = (directory.0.join("log"), crate::stores::fresh());
    let running: Vec<_> = (1..=2)
        .map(|number| Running::start(&url, &format!("job-{number}"), number, log.to_str().expect("UTF-8"), "30s"))
        .collect();
    until("an overlap is seen", || overlaps(&log).0 > 0);
    for mut running in running {
        running.runner.kill().expect("it runs");
        running.runner.wait().expect("it is killed");
        until("it is gone", || !is_running(running.command) && !is_running(running.grandchild));
    }
}

/// The runner may be stopped between the start of the command and its first word to the watchdog.
#[test]
fn the_watchdog_knows_the_deadline_from_its_start() {
    let directory = Directory::new("the_watchdog_knows_the_deadline_from_its_start");
    let log = directory.0.join("log");
    let mut running = Running::start(&crate::stores::fresh(), "job", 1, log.to_str().expect("UTF-8"), "30s");
    let line = fs::read_to_string(format!("/proc/{}/cmdline", running.watchdog().expect("it has one"))).expect("it runs");
    let deadline: u64 = line.split('\0').nth(4).expect("runner, group and deadline").parse().expect("a number");
    assert!(deadline < u64::MAX, "{line:?}");
    running.runner.kill().expect("it runs");
    running.runner.wait().expect("it is killed");
    until("it is gone", || !is_running(running.command) && !is_running(running.grandchild));
}

/// The command may name its group after the deadline: then it is ended at once.
#[test]
fn a_command_that_starts_after_the_deadline_is_ended() {
    use std::io::Write as _;
    use std::os::unix::process::CommandExt as _;
    let mut sleeper = std::process::Command::new("sleep");
    let [mut runner, mut command] = [(); 2].map(|()| sleeper.arg("300").process_group(0).spawn().expect("it starts"));
    kill_process(Pid::from_child(&runner), Signal::STOP).expect("it runs");
    let mut watchdog = std::process::Command::new(env!("CARGO_BIN_EXE_lockkeeper"))
        .args(["__watchdog", &runner.id().to_string(), "0", "1"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // Enough for it to see that the deadline has passed.
    std::thread::sleep(Duration::from_millis(300));
    let mut words = watchdog.stdin.take().expect("piped");
    writeln!(words, "group {}", command.id()).expect("it reads");
    until("the command is ended", || !is_running(Pid::from_child(&command)));
    writeln!(words, "done").expect("it reads");
    watchdog.wait().expect("it ends");
    command.wait().expect("it is ended");
    runner.kill().expect("it runs");
    runner.wait().expect("it is killed");
}
