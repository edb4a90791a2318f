//! The running processes of one contestant on one course: started, warmed up, told to run a heat, ended by their ids.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde::Deserialize;

/// What a process tells of a heat.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Report {
    pub(crate) seconds: f64,
    pub(crate) counts: Vec<u64>,
    pub(crate) nanos: Vec<u64>,
    pub(crate) turns: Vec<[u64; 4]>,
    pub(crate) facts: std::collections::BTreeMap<String, f64>,
}

struct Member {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

/// The processes of one contestant.
pub(crate) struct Team(Vec<Member>);

impl Team {
    /// Starts them and waits until all are ready. What they complain of goes to `log`.
    pub(crate) fn start(
        command: &[String],
        words: &[String],
        processes: usize,
        log: &Path,
        limit: Duration,
    ) -> Result<Self, String> {
        let mut team = Self(Vec::new());
        for _ in 0..processes {
            let complaints =
                File::options().create(true).append(true).open(log).map_err(|error| format!("{}: {error}", log.display()))?;
            let mut child = Command::new(&command[0])
                .args(&command[1..])
                .args(words)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(complaints)
                .spawn()
                .map_err(|error| format!("{}: {error}", command[0]))?;
            let (input, output) = (child.stdin.take(), child.stdout.take().expect("piped"));
            let (tell, lines) = channel();
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if tell.send(line).is_err() {
                        return;
                    }
                }
            });
            team.0.push(Member { child, input, lines });
        }
        team.hear(limit).map(|_| team)
    }

    /// Runs a heat in all of them at once.
    pub(crate) fn run(&mut self, limit: Duration) -> Result<Vec<Report>, String> {
        for member in &mut self.0 {
            let input = member.input.as_mut().expect("open until the end");
            input.write_all(b"go\n").and_then(|()| input.flush()).map_err(|error| format!("it ended: {error}"))?;
        }
        let lines = self.hear(limit)?;
        lines
            .iter()
            .map(|line| serde_json::from_str(line).map_err(|error| format!("it does not speak as agreed: {error}")))
            .collect()
    }

    /// A line of each.
    fn hear(&self, limit: Duration) -> Result<Vec<String>, String> {
        let end = Instant::now() + limit;
        let next = |member: &Member| member.lines.recv_timeout(end.saturating_duration_since(Instant::now()));
        self.0
            .iter()
            .map(|member| {
                next(member).map_err(|error| match error {
                    std::sync::mpsc::RecvTimeoutError::Timeout => format!("it did not come to an end within {limit:.0?}"),
                    std::sync::mpsc::RecvTimeoutError::Disconnected => "it ended early".to_owned(),
                })
            })
            .collect()
    }

    /// Seconds of CPU that they have used so far, as the kernel counts them.
    pub(crate) fn cpu(&self) -> f64 {
        self.0.iter().map(|member| crate::machine::cpu_of(member.child.id())).sum()
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        for member in &mut self.0 {
            member.input = None;
        }
        let end = Instant::now() + Duration::from_secs(2);
        for member in &mut self.0 {
            while Instant::now() < end && matches!(member.child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(5));
            }
            // Ours by its id; if it has ended there is nothing to kill.
            let _ = member.child.kill();
            let _ = member.child.wait();
        }
    }
}
