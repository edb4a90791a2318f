//! Two network namespaces with servers in them and a link between them that can be cut. The test itself reaches both, as clients on either side do.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The two sides; their processes, links and files go with them.
#[derive(Debug)]
pub struct Sides {
    /// The first three parts of all addresses.
    net: String,
    /// The first of the last parts.
    first: u32,
    names: [String; 2],
    processes: Vec<Child>,
    directories: Vec<PathBuf>,
}

fn ip(words: &str) -> bool {
    let done = Command::new("ip").args(words.split(' ')).stdout(Stdio::null()).stderr(Stdio::null()).status();
    done.is_ok_and(|status| status.success())
}

impl Sides {
    /// Two namespaces, linked with each other and with us; or why there can be none.
    pub fn make() -> Result<Self, String> {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), LAST.fetch_add(1, Ordering::Relaxed) % 16);
        let net = format!("10.{}.{}", 100 + process / 250 % 150, process % 250);
        let names = ["a", "b"].map(|side| format!("lk{process}{number:x}{side}"));
        let sides = Self { net, first: number * 16, names, processes: Vec::new(), directories: Vec::new() };
        let [a, b] = &sides.names;
        let mut steps = vec![
            format!("netns add {a}"),
            format!("netns add {b}"),
            format!("-n {a} link add between type veth peer name between netns {b}"),
            format!("-n {a} addr add {}/30 dev between", sides.host(0)),
            format!("-n {b} addr add {}/30 dev between", sides.host(1)),
        ];
        for (side, ours, theirs, host) in [(a, 9, 10, sides.host(0)), (b, 13, 14, sides.host(1))] {
            let (ours, theirs) = (sides.address(ours), sides.address(theirs));
            steps.extend([
                format!("link add {side} type veth peer name outside netns {side}"),
                format!("addr add {ours}/30 dev {side}"),
                format!("link set {side} up"),
                format!("-n {side} addr add {theirs}/30 dev outside"),
                format!("-n {side} link set outside up"),
                format!("-n {side} link set lo up"),
                format!("-n {side} link set between up"),
                format!("route add {host}/32 via {theirs}"),
            ]);
        }
        for step in steps {
            if !ip(&step) {
                return Err(format!("netns: \"ip {step}\" fails; it needs root and network namespaces"));
            }
        }
        Ok(sides)
    }

    fn address(&self, last: u32) -> String {
        format!("{}.{}", self.net, self.first + last)
    }

    /// The address by which the servers of a side are known, to each other and to us.
    pub fn host(&self, side: usize) -> String {
        self.address(if side == 0 { 1 } else { 2 })
    }

    /// A command that runs on a side.
    pub fn command(&self, side: usize, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[side], program]).stdin(Stdio::null());
        command
    }

    /// Starts a server on a side, which ends with this; what it writes goes to the file.
    pub fn run(&mut self, side: usize, program: &str, words: &[&str], log: Option<File>) {
        let output = || log.as_ref().map_or_else(Stdio::null, |log| log.try_clone().expect("a log file").into());
        let process = self.command(side, program).args(words).stdout(output()).stderr(output()).spawn().expect("a server starts");
        self.processes.push(process);
    }

    /// A folder that goes with this.
    pub fn directory(&mut self, name: &str) -> String {
        let part = format!("lockkeeper-part-{}-{}-{name}", std::process::id(), self.first);
        let directory = std::env::temp_dir().join(part);
        std::fs::create_dir_all(&directory).expect("a folder");
        let shown = directory.display().to_string();
        self.directories.push(directory);
        shown
    }

    /// Cuts the link between the sides.
    pub fn part(&self) {
        assert!(ip(&format!("-n {} link set between down", self.names[0])));
    }

    /// Restores it.
    pub fn join(&self) {
        assert!(ip(&format!("-n {} link set between up", self.names[0])));
    }
}

impl Drop for Sides {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
        for name in &self.names {
            ip(&format!("netns del {name}"));
        }
        // The links go with the namespaces, a moment later; the next ones may have the same names.
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(10) && self.names.iter().any(|name| ip(&format!("link show {name}"))) {
            std::thread::sleep(Duration::from_millis(20));
        }
        for directory in &self.directories {
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}
