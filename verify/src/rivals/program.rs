//! The programs of the control group: each acquires, asks and releases as it is told, in a process of its own.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use lockkeeper_testkit::signal;
use serde_json::Value;

/// How a library is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speech {
    /// `lock`, `ask`, `unlock`: the lines of `verify/src/command/held.rs`.
    Lines,
    /// Those of `interop/redisson`, about this object.
    Driver { object: &'static str, lock: &'static str },
}

/// Where a library keeps its locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// On Redis.
    Redis,
    /// On etcd.
    Etcd,
}

/// A library of the control group.
#[derive(Clone, Debug)]
pub struct Rival {
    /// As the page calls it.
    pub label: String,
    /// How its program is started, before the arguments that all have.
    pub command: Vec<String>,
    /// Where its locks are.
    pub store: Store,
    speech: Speech,
}

impl Rival {
    /// One whose program speaks the lines of `verify/src/command/held.rs`.
    #[must_use]
    pub fn new(label: &str, command: Vec<String>) -> Self {
        Self { label: label.to_owned(), command, store: Store::Redis, speech: Speech::Lines }
    }

    /// `etcdctl lock`, which holds a lock while a command runs.
    #[must_use]
    pub fn etcdctl() -> Self {
        let command = ["sh", "-c", include_str!("etcdctl.sh")].map(str::to_owned).to_vec();
        Self { store: Store::Etcd, ..Self::new("`etcdctl lock`", command) }
    }

    /// Redisson's `RLock`, by the driver that the tests use.
    #[must_use]
    pub fn redisson(command: Vec<String>) -> Self {
        let speech = Speech::Driver { object: "lock", lock: "lock lock NAME -1" };
        Self { speech, ..Self::new("Redisson `RLock`", command) }
    }

    /// Its `RFencedLock`.
    #[must_use]
    pub fn redisson_fenced(command: Vec<String>) -> Self {
        let speech = Speech::Driver { object: "fenced", lock: "fenced lockAndGetToken NAME" };
        Self { speech, ..Self::new("Redisson `RFencedLock`", command) }
    }
}

/// What a program may be told.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    Lock,
    Ask,
    Unlock,
}

/// What it answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Locked {
        token: Option<u64>,
    },
    /// `None`: the library cannot say.
    Held(Option<bool>),
    Unlocked(Option<bool>),
    /// The server could not be asked, or the library refused.
    Failed,
}

/// A program that runs.
#[derive(Debug)]
pub(super) struct Program {
    child: Child,
    input: ChildStdin,
    lines: Receiver<Value>,
    speech: Speech,
    last: u64,
    /// It was told of a loss, and when.
    pub(super) told: Option<Instant>,
}

/// The name that all lock.
const NAME: &str = "control";

impl Program {
    /// Starts it; returns when it is connected.
    pub(super) fn start(rival: &Rival, url: &str, lease: Duration) -> Result<Self, String> {
        let lease = lease.as_millis().to_string();
        let (first, rest) = rival.command.split_first().ok_or("a rival without a program")?;
        let mut command = Command::new(first);
        command.args(rest);
        if rival.speech == Speech::Lines {
            command.args([url, NAME, &lease]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // It may start others, which stand still when it does.
        command.process_group(0);
        let mut child = command.spawn().map_err(|error| format!("cannot start {first}: {error}"))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else { return Err("no pipes".to_owned()) };
        let (tell, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Ok(value) = serde_json::from_str::<Value>(&line)
                    && tell.send(value).is_err()
                {
                    break;
                }
            }
        });
        let mut program = Self { child, input, lines, speech: rival.speech, last: 0, told: None };
        if matches!(rival.speech, Speech::Driver { .. }) {
            program.say(&format!("1 c t client open {url} 0 {lease} 10000"))?;
        }
        let ready = program.lines.recv_timeout(Duration::from_secs(30)).map_err(|_| format!("{first} does not begin"))?;
        match &ready["error"] {
            Value::Null => Ok(program),
            error => Err(format!("{first}: {error}")),
        }
    }

    /// The process, which leads a group.
    pub(super) fn leader(&self) -> u32 {
        self.child.id()
    }

    fn say(&mut self, line: &str) -> Result<(), String> {
        writeln!(self.input, "{line}").and_then(|()| self.input.flush()).map_err(|error| format!("it has ended: {error}"))
    }

    /// Tells it to do something.
    pub(super) fn tell(&mut self, order: Order) -> Result<(), String> {
        self.last += 1;
        let line = match (self.speech, order) {
            (Speech::Lines, Order::Lock) => "lock".to_owned(),
            (Speech::Lines, Order::Ask) => "ask".to_owned(),
            (Speech::Lines, Order::Unlock) => "unlock".to_owned(),
            (Speech::Driver { lock, .. }, Order::Lock) => format!("{} c t {}", self.last, lock.replace("NAME", NAME)),
            (Speech::Driver { object, .. }, Order::Ask) => format!("{} c t {object} isHeld {NAME}", self.last),
            (Speech::Driver { object, .. }, Order::Unlock) => format!("{} c t {object} unlock {NAME}", self.last),
        };
        self.say(&line)
    }

    /// Its next answer, if it comes within a time. A loss that it is told of meanwhile is remembered.
    pub(super) fn answer(&mut self, order: Order, within: Duration) -> Result<Option<Answer>, String> {
        let until = Instant::now() + within;
        loop {
            let said = match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(said) => said,
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => return Err("it has ended".to_owned()),
            };
            if said["lost"].as_bool() == Some(true) {
                self.told.get_or_insert_with(Instant::now);
                continue;
            }
            return Ok(Some(self.understand(order, &said)));
        }
    }

    fn understand(&self, order: Order, said: &Value) -> Answer {
        let failed = !said["error"].is_null();
        let value = match (self.speech, order) {
            (Speech::Driver { .. }, _) => &said["value"],
            (Speech::Lines, Order::Lock) => &said["token"],
            (Speech::Lines, Order::Ask) => &said["held"],
            (Speech::Lines, Order::Unlock) => &said["unlocked"],
        };
        match order {
            // Redisson throws if the lock is not held any more; other libraries answer.
            Order::Unlock if failed => Answer::Unlocked(Some(false)),
            _ if failed => Answer::Failed,
            Order::Lock => Answer::Locked { token: value.as_u64().filter(|token| *token > 0) },
            Order::Ask => Answer::Held(value.as_bool()),
            Order::Unlock => Answer::Unlocked(value.as_bool()),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        signal::send_group(self.child.id(), "-KILL");
        let _ = self.child.wait();
    }
}
