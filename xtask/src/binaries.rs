//! Runs the test binaries of the workspace, several at a time. Most of them wait for servers and clocks, so one after the other
//! would leave the cores idle for half of the time.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use crate::steps::{Run, end, target};

/// How many run at a time. More make tests with real time limits fail for want of CPU.
const WORKERS: usize = 2;

/// About how many seconds the long ones take, for a first run that has no times of its own.
const LONG: [(&str, u64); 8] = [
    ("lockkeeper/redis", 300),
    ("lockkeeper/topology", 290),
    ("lockkeeper/interop", 220),
    ("lockkeeper/postgres", 110),
    ("lockkeeper/sqlite", 120),
    ("lockkeeper-cli/cli", 100),
    ("lockkeeper/quorum", 90),
    ("lockkeeper/model", 60),
];

/// How many tests run at a time in programs whose tests mostly wait for the leases of a server. Others run one per core.
const THREADS: [(&str, &str); 1] = [("lockkeeper/postgres", "5")];

/// One program to run, and the folder to run it in.
#[derive(Debug, PartialEq, Eq)]
struct Binary {
    name: String,
    program: PathBuf,
    folder: PathBuf,
}

/// One that is running, with its output in a file so that outputs do not mix.
struct Running {
    name: String,
    command: Run,
    child: Child,
    began: Instant,
    output: PathBuf,
}

/// Builds all tests and runs them side by side, the doc tests among them; `prepare` adds what the tests have to be told.
pub(crate) fn run(prepare: impl Fn(Run) -> Run, limit: Duration) -> Result<(), String> {
    let began = Instant::now();
    let build = ["test", "--workspace", "--all-features", "--no-run", "--message-format=json-render-diagnostics"];
    let built = Run::cargo(&build).capture()?;
    let mut times = Times::load();
    let mut waiting: Vec<(String, Run)> = parse(&built)?
        .into_iter()
        .map(|binary| {
            let command = Run::new(&binary.program.display().to_string(), &[]).inside(&binary.folder);
            let command = match THREADS.iter().find(|(name, _)| *name == binary.name) {
                Some((_, threads)) => command.with("RUST_TEST_THREADS", *threads),
                None => command,
            };
            (binary.name, prepare(command))
        })
        .collect();
    let doc = Run::cargo(&["test", "--workspace", "--all-features", "--doc"]);
    waiting.push(("doc tests".to_owned(), prepare(doc)));
    println!("    built in {:.0} s; {} programs, {WORKERS} at a time", began.elapsed().as_secs_f64(), waiting.len());
    // The longest first, so that none of them runs alone at the end.
    waiting.sort_by_key(|(name, _)| times.get(name).unwrap_or_default());
    let done = schedule(waiting, &mut times, limit.saturating_sub(began.elapsed()));
    times.save();
    done
}

/// Runs them, the last of `waiting` first; goes on after a failure so that all failures are seen.
fn schedule(mut waiting: Vec<(String, Run)>, times: &mut Times, limit: Duration) -> Result<(), String> {
    let began = Instant::now();
    let mut running: Vec<Running> = Vec::new();
    let mut failed = Vec::new();
    while !waiting.is_empty() || !running.is_empty() {
        while running.len() < WORKERS
            && let Some((name, command)) = waiting.pop()
        {
            let last = times.get(&name).map_or_else(String::new, |last| format!(" (about {:.0} s)", last.as_secs_f64()));
            println!("    started: {name}{last}");
            running.push(Running::start(name, command)?);
        }
        if began.elapsed() > limit {
            let names: Vec<_> = running.iter().map(|one| one.name.clone()).collect();
            for one in &mut running {
                one.kill();
            }
            return Err(format!("the tests did not end within the time allowed; still running: {}", names.join(", ")));
        }
        let mut index = 0;
        while index < running.len() {
            let Some(passed) = running[index].ended()? else {
                index += 1;
                continue;
            };
            let one = running.remove(index);
            one.show();
            let took = one.began.elapsed();
            let others: Vec<_> = running.iter().map(|other| other.name.as_str()).collect();
            println!(
                "    {}: {} in {:.1} s; running: {}; to come: {}",
                if passed { "passed" } else { "FAILED" },
                one.name,
                took.as_secs_f64(),
                if others.is_empty() { "none".to_owned() } else { others.join(", ") },
                waiting.len()
            );
            if passed {
                times.set(&one.name, took);
            } else {
                failed.push(format!("{} (repeat it with: {})", one.name, one.command));
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join("; "))) }
}

impl Running {
    fn start(name: String, command: Run) -> Result<Self, String> {
        let folder = target().join("xtask");
        let output = folder.join(format!("{}.log", name.replace([' ', '/'], "-")));
        let file = std::fs::create_dir_all(&folder).and_then(|()| File::create(&output));
        let file = file.map_err(|error| format!("cannot write {}: {error}", output.display()))?;
        let child = command.spawn_into(file)?;
        Ok(Self { name, command, child, began: Instant::now(), output })
    }

    /// Whether it passed, once it has ended.
    fn ended(&mut self) -> Result<Option<bool>, String> {
        let status = self.child.try_wait().map_err(|error| format!("cannot wait for {}: {error}", self.name))?;
        Ok(status.map(|status| status.success()))
    }

    fn kill(&mut self) {
        end(self.child.id());
        // It was killed; only its status is left to collect.
        let _ = self.child.wait();
        self.show();
    }

    fn show(&self) {
        println!("---- {}", self.name);
        match std::fs::read(&self.output) {
            Ok(text) => println!("{}", String::from_utf8_lossy(&text).trim()),
            Err(error) => println!("(its output is gone: {error})"),
        }
    }
}

/// The test programs in cargo's messages. The name is the crate's and the target's.
fn parse(messages: &str) -> Result<Vec<Binary>, String> {
    let mut found = Vec::new();
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let message: serde_json::Value =
            serde_json::from_str(line).map_err(|error| format!("cargo wrote a message that is no JSON: {error}"))?;
        let test = message["profile"]["test"].as_bool().unwrap_or(false);
        let (Some(program), true) = (message["executable"].as_str(), test) else { continue };
        let (Some(manifest), Some(name)) = (message["manifest_path"].as_str(), message["target"]["name"].as_str()) else {
            return Err(format!("cargo does not say where {program} belongs"));
        };
        let folder = Path::new(manifest).parent().unwrap_or(Path::new("/")).to_owned();
        let krate = folder.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let kind = message["target"]["kind"][0].as_str().unwrap_or("test");
        let name = if kind == "test" { format!("{krate}/{name}") } else { format!("{krate} ({kind})") };
        found.push(Binary { name, program: program.into(), folder });
    }
    if found.is_empty() { Err("cargo built no test at all".to_owned()) } else { Ok(found) }
}

/// How long each took when it last passed; a hint for the order and for the reader, so losing it is no error.
#[derive(Default)]
struct Times(BTreeMap<String, Duration>);

impl Times {
    fn file() -> PathBuf {
        target().join("xtask").join("times.txt")
    }

    fn load() -> Self {
        let mut times = Self(LONG.into_iter().map(|(name, seconds)| (name.to_owned(), Duration::from_secs(seconds))).collect());
        times.0.extend(Self::read(&std::fs::read_to_string(Self::file()).unwrap_or_default()).0);
        times
    }

    fn read(text: &str) -> Self {
        let pair = |line: &str| {
            let (seconds, name) = line.split_once(' ')?;
            Some((name.to_owned(), Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?))
        };
        Self(text.lines().filter_map(pair).collect())
    }

    fn get(&self, name: &str) -> Option<Duration> {
        self.0.get(name).copied()
    }

    fn set(&mut self, name: &str, took: Duration) {
        self.0.insert(name.to_owned(), took);
    }

    fn save(&self) {
        let text: String = self.0.iter().map(|(name, took)| format!("{:.1} {name}\n", took.as_secs_f64())).collect();
        // Only a hint.
        let _ = std::fs::write(Self::file(), text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_are_found_with_the_folder_they_run_in() {
        let built = concat!(
            r#"{"reason":"compiler-artifact","manifest_path":"/p/crates/a/Cargo.toml","target":{"kind":["test"],"name":"redis"},"#,
            r#""profile":{"test":true},"executable":"/p/target/debug/deps/redis-1"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","manifest_path":"/p/crates/a/Cargo.toml","target":{"kind":["bin"],"name":"a"},"#,
            r#""profile":{"test":false},"executable":"/p/target/debug/a"}"#,
            "\nnot a message\n",
            r#"{"reason":"build-finished","success":true}"#,
        );
        let found = parse(built).unwrap();
        let expected =
            Binary { name: "a/redis".into(), program: "/p/target/debug/deps/redis-1".into(), folder: "/p/crates/a".into() };
        assert_eq!(found, [expected]);
        assert!(parse("").is_err());
    }

    #[test]
    fn times_survive_a_round_and_nonsense_is_ignored() {
        let times = Times::read("12.5 a/redis\nnonsense\n-1 b\n3 doc tests\n");
        assert_eq!(times.get("a/redis"), Some(Duration::from_millis(12_500)));
        assert_eq!(times.get("doc tests"), Some(Duration::from_secs(3)));
        assert_eq!(times.0.len(), 2);
    }

    #[test]
    fn all_failures_are_told_and_nothing_outlives_the_limit() {
        let job = |name: &str, script: &str| (name.to_owned(), Run::new("sh", &["-c", script]));
        let jobs = vec![job("good", "exit 0"), job("bad", "exit 1"), job("worse", "exit 2")];
        let message = schedule(jobs, &mut Times::default(), Duration::from_secs(30)).unwrap_err();
        assert!(message.contains("bad (repeat it with: sh -c 'exit 1')") && message.contains("worse"), "{message}");
        assert!(!message.contains("good"), "{message}");
        let began = Instant::now();
        let message = schedule(vec![job("slow", "sleep 60")], &mut Times::default(), Duration::from_secs(1)).unwrap_err();
        assert!(message.contains("still running: slow") && began.elapsed() < Duration::from_secs(30), "{message}");
    }
}
