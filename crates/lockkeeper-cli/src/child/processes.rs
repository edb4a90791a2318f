//! Other processes, as `/proc` shows them: who is in a process group, and who descends from whom.

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt as _;

use rustix::process::{Pid, geteuid};

use super::watchdog;

/// One process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: Pid,
    pub(super) parent: i32,
    pub(super) group: i32,
    name: String,
    state: char,
}

impl Process {
    /// The process with this number, if there is one.
    pub(super) fn find(pid: Pid) -> Option<Self> {
        parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// A zombie has ended: only its status is left.
    pub(super) fn is_running(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }

    /// Stopped by a signal, or by a debugger.
    pub(super) fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }

    /// The user it runs as, if that is not ours: then signals may not reach it.
    fn other_user(&self) -> Option<u32> {
        let user = fs::metadata(format!("/proc/{}", self.pid)).ok()?.uid();
        (user != geteuid().as_raw()).then_some(user)
    }

    /// Watchdogs end by themselves, after those they watch.
    fn is_watchdog(&self) -> bool {
        let line = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(watchdog::WATCHDOG.as_bytes())
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {}", self.name, self.pid)?;
        if let Some(user) = self.other_user() {
            write!(f, ", user {user}")?;
        }
        write!(f, ")")
    }
}

/// Names for a message, at most a few.
pub(super) fn named(processes: &[Process]) -> String {
    const MOST: usize = 5;
    let mut names: Vec<_> = processes.iter().take(MOST).map(ToString::to_string).collect();
    if processes.len() > MOST {
        names.push(format!("{} more", processes.len() - MOST));
    }
    names.join(", ")
}

/// The processes of a group that have not ended.
pub(super) fn of_group(group: Pid) -> Vec<Process> {
    all().into_iter().filter(|process| process.group == group.as_raw_pid() && process.is_running()).collect()
}

/// The running descendants of a process that are not in `group`, without watchdogs.
pub(super) fn outside_group(of: Pid, group: Pid) -> Vec<Process> {
    let all = all();
    let mut family = HashSet::from([of.as_raw_pid()]);
    // Numbers wrap around, so a child may come before its parent: repeat until nobody is added.
    loop {
        let before = family.len();
        family.extend(
            all.iter()
                .filter(|process| family.contains(&process.parent))
                .map(|process| process.pid.as_raw_pid())
                .collect::<Vec<_>>(),
        );
        if family.len() == before {
            break;
        }
    }
    let is_outside = |process: &Process| {
        process.pid != of && process.group != group.as_raw_pid() && family.contains(&process.pid.as_raw_pid())
    };
    all.into_iter().filter(|process| is_outside(process) && process.is_running() && !process.is_watchdog()).collect()
}

fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).filter_map(Pid::from_raw);
    numbers.filter_map(Process::find).collect()
}

/// One line of `/proc/PID/stat`. The name may hold spaces and parentheses.
fn parse(stat: &str) -> Option<Process> {
    let (head, tail) = stat.rsplit_once(") ")?;
    let (pid, name) = head.split_once(" (")?;
    let mut fields = tail.split(' ');
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    Some(Process { pid: Pid::from_raw(pid.parse().ok()?)?, parent, group, name: name.to_owned(), state })
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;

    use super::*;

    #[test]
    fn a_line_of_stat_is_understood_whatever_the_name_is() {
        let odd = parse("42 (a) R (b) S 7 9 1 0").unwrap();
        assert_eq!((odd.pid.as_raw_pid(), odd.parent, odd.group, odd.name.as_str(), odd.state), (42, 7, 9, "a) R (b", 'S'));
        assert_eq!(parse("42 (a"), None);
    }

    #[test]
    fn this_process_and_the_group_of_a_child_are_found() {
        let found = Process::find(rustix::process::getpid()).unwrap();
        assert!(found.is_running() && !found.is_stopped());
        let mut child = std::process::Command::new("sleep").arg("300").process_group(0).spawn().unwrap();
        let group = Process::find(Pid::from_child(&child)).unwrap().group;
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(group.unsigned_abs(), child.id());
    }
}
