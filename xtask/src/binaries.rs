//! Runs the test binaries of the workspace, several at a time. Most of them wait for servers and clocks, so one after the other
//! would leave the cores idle for half of the time.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use crate::steps::{Run, end, target};
use crate::times::Times;

/// How many run at a time. More make tests with real time limits fail for want of CPU.
const WORKERS: usize = 2;

/// About how many seconds the long ones take, for a first run that has no times of its own.
pub(crate) const LONG: [(&str, u64); 12] = [
    ("lockkeeper-cli/real", 100),
    ("lockkeeper/zookeeper", 150),
    ("lockkeeper/etcd", 200),
    ("lockkeeper/redis", 300),
    ("lockkeeper/topology", 290),
    ("lockkeeper/interop", 220),
    ("lockkeeper/postgres", 110),
    ("lockkeeper/mysql", 260),
    ("lockkeeper/sqlite", 120),
    ("lockkeeper-cli/cli", 100),
    ("lockkeeper/quorum", 90),
    ("lockkeeper/model", 60),
];

/// How many tests run at a time in programs whose tests mostly wait for the leases of a server. Others run one per core.
const THREADS: [(&str, &str); 5] = [
    ("lockkeeper-cli/real", "3"),
    ("lockkeeper/etcd", "6"),
    ("lockkeeper/mysql", "5"),
    ("lockkeeper/postgres", "5"),
    ("lockkeeper/zookeeper", "6"),
];

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
    // `--doc` takes no notice of `doctest = false`.
    let doc = &["test", "--workspace", "--exclude", "lockkeeper-schedules", "--all-features", "--doc"];
    let doc = prepare(Run::cargo(doc));
    run_chosen(&[], |_, command| Some(prepare(command)), vec![("doc tests".to_owned(), doc)], limit)
}

/// Builds the tests that `words` choose, or all, and runs them side by side with `more`; `prepare` may leave one out. `limit` is for running them: a
/// slow build is no hanging test.
pub(crate) fn run_chosen(
    words: &[&str],
    prepare: impl Fn(&str, Run) -> Option<Run>,
    more: Vec<(String, Run)>,
    limit: Duration,
) -> Result<(), String> {
    let began = Instant::now();
    let build = ["test", "--workspace", "--all-features", "--no-run", "--message-format=json-render-diagnostics"];
    let built = Run::cargo(&[&build[..], words].concat()).capture()?;
    let mut times = Times::load();
    let mut waiting: Vec<(String, Run)> = parse(&built)?
        .into_iter()
        .filter_map(|binary| {
            let command = Run::new(&binary.program.display().to_string(), &[]).inside(&binary.folder);
            let command = match THREADS.iter().find(|(name, _)| *name == binary.name) {
                Some((_, threads)) => command.with("RUST_TEST_THREADS", *threads),
                None => command,
            };
            prepare(&binary.name, command).map(|command| (binary.name, command))
        })
        .chain(more)
        .collect();
    println!("    built in {:.0} s; {} programs, {WORKERS} at a time", began.elapsed().as_secs_f64(), waiting.len());
    // The longest first, so that none of them runs alone at the end.
    waiting.sort_by_key(|(name, _)| times.get(name).unwrap_or_default());
    let done = schedule(waiting, &mut times, limit);
    times.save();
    done
}

/// Runs them, the last of `waiting` first; goes on after a failure so that all failures are seen.
fn schedule(mut waiting: Vec<(String, Run)>, times: &mut Times, limit: Duration) -> Result<(), String> {
    let began = Instant::now();
    let mut running: Vec<Running> = Vec::new();
    let mut failed: Vec<Running> = Vec::new();
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
                failed.push(one);
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    // Once more at the end, where a reader of a long log looks first.
    for one in &failed {
        println!("---- why {} failed\n{}", one.name, failures(&one.text()));
    }
    let told: Vec<_> = failed.iter().map(Running::told).collect();
    if told.is_empty() { Ok(()) } else { Err(format!("failed: {}", told.join("; "))) }
}

/// What a test program says of its failed tests, or the end of its output if it ended before it said that.
fn failures(output: &str) -> &str {
    const END: usize = 4_000;
    let start = output.find("\nfailures:\n").or_else(|| Some(output.char_indices().rev().nth(END)?.0));
    output[start.unwrap_or_default()..].trim()
}

/// The tests that a test program names as failed.
fn failed_tests(output: &str) -> Vec<&str> {
    output.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED")).collect()
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

    fn text(&self) -> String {
        match std::fs::read(&self.output) {
            Ok(text) => String::from_utf8_lossy(&text).into_owned(),
            Err(error) => format!("(its output is gone: {error})"),
        }
    }

    fn show(&self) {
        println!("---- {}\n{}", self.name, self.text().trim());
    }

    /// Which tests of it failed, and how to repeat it.
    fn told(&self) -> String {
        let text = self.text();
        let tests = match failed_tests(&text) {
            tests if tests.is_empty() => String::new(),
            tests => format!(": {}", tests.join(", ")),
        };
        format!("{}{tests} (repeat it with: {})", self.name, self.command)
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
    fn what_failed_is_told_at_the_end() {
        let output = "test a::b ... ok\ntest c::d ... FAILED\n\nfailures:\n\n---- c::d stdout ----\nwhy\n\nfailures:\n    c::d\n";
        assert_eq!(failed_tests(output), ["c::d"]);
        assert!(failures(output).starts_with("failures:") && failures(output).contains("why"));
        assert_eq!(failures("killed"), "killed");
        assert!(failures(&"é".repeat(9_000)).len() < 9_000);
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
