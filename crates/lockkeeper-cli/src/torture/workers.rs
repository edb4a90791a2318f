//! The processes: they are started, paused, continued, killed and stopped here, each by its pid.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::message::{Orders, Said, Told};
use super::worker::WORD;

#[derive(Debug)]
struct Member {
    child: Child,
    input: ChildStdin,
    ready: bool,
    /// Paused until then.
    paused_until: Option<Instant>,
}

/// A line of a process, or its end.
pub(super) type Line = (u32, Option<Said>);

#[derive(Debug)]
pub(super) struct Workers {
    orders: Orders,
    url: String,
    members: BTreeMap<u32, Member>,
    said: UnboundedSender<Line>,
}

impl Workers {
    /// `orders` are those of all of them; each gets a number of its own.
    pub(super) fn new(orders: Orders, url: &str) -> (Self, UnboundedReceiver<Line>) {
        let (said, lines) = unbounded_channel();
        (Self { orders, url: url.to_owned(), members: BTreeMap::new(), said }, lines)
    }

    /// Starts one more. In a group of its own, so that ^C on the terminal reaches the parent alone.
    pub(super) fn start(&mut self) -> std::io::Result<()> {
        self.orders.client += 1;
        self.orders.seed = self.orders.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let client = self.orders.client;
        let mut child = Command::new("/proc/self/exe")
            .arg0("lockkeeper")
            .args([WORD, &serde_json::to_string(&self.orders)?])
            .env("LOCKKEEPER_STORE", &self.url)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(std::io::Error::other("a pipe is missing"));
        };
        let said = self.said.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // The last line of a process that was killed may be half a line.
                if let Ok(line) = serde_json::from_str(&line) {
                    let _ = said.send((client, Some(line)));
                }
            }
            let _ = said.send((client, None));
        });
        self.members.insert(client, Member { child, input, ready: false, paused_until: None });
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    pub(super) fn clients(&self) -> impl Iterator<Item = u32> + '_ {
        self.members.keys().copied()
    }

    pub(super) fn is_ready(&mut self, client: u32) {
        if let Some(member) = self.members.get_mut(&client) {
            member.ready = true;
        }
    }

    /// The processes that are at work and not paused.
    pub(super) fn at_work(&self) -> Vec<u32> {
        let at_work = self.members.iter().filter(|(_, member)| member.ready && member.paused_until.is_none());
        at_work.map(|(client, _)| *client).collect()
    }

    pub(super) fn tell(&mut self, client: u32, told: &Told) {
        if let (Some(member), Ok(mut line)) = (self.members.get_mut(&client), serde_json::to_vec(told)) {
            line.push(b'\n');
            // It may have ended.
            let _ = member.input.write_all(&line);
        }
    }

    /// Pauses it, and returns when all its threads stand still: what it records has happened before.
    pub(super) fn pause(&mut self, client: u32, time: Duration) {
        if let Some(member) = self.members.get_mut(&client) {
            let pid = Pid::from_child(&member.child);
            if kill_process(pid, Signal::STOP).is_ok() {
                let _ = waitpid(Some(pid), WaitOptions::UNTRACED);
            }
            member.paused_until = Some(Instant::now() + time);
        }
    }

    /// Those whose pause is over, or all that are paused.
    pub(super) fn paused(&self, all: bool) -> Vec<u32> {
        let now = Instant::now();
        let over = |member: &Member| member.paused_until.is_some_and(|until| all || until <= now);
        self.members.iter().filter(|(_, member)| over(member)).map(|(client, _)| *client).collect()
    }

    pub(super) fn resume(&mut self, client: u32) {
        if let Some(member) = self.members.get_mut(&client) {
            member.paused_until = None;
            let _ = kill_process(Pid::from_child(&member.child), Signal::CONT);
        }
    }

    /// Kills it, and returns when it is dead.
    pub(super) fn kill(&mut self, client: u32) {
        if let Some(mut member) = self.members.remove(&client) {
            let _ = member.child.kill();
            let _ = member.child.wait();
        }
    }

    /// The output of a process has ended: it is over, if it was not killed from here. Whether it had begun to work and failed.
    pub(super) fn ended(&mut self, client: u32) -> Option<Ended> {
        let mut member = self.members.remove(&client)?;
        let success = member.child.wait().is_ok_and(|status| status.success());
        Some(Ended { ready: member.ready, success })
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) ready: bool,
    pub(super) success: bool,
}

impl Drop for Workers {
    fn drop(&mut self) {
        for client in self.clients().collect::<Vec<_>>() {
            self.kill(client);
        }
    }
}
