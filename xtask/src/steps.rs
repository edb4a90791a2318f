//! Running commands so that a reader of the log sees what was run, how long it took, and how to run it again.

use std::fmt;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What came of a step that did not fail.
#[derive(Debug)]
pub(crate) enum Outcome {
    Done,
    /// Why it was not done.
    Skipped(String),
}

/// One command of a step, at the root of the project, without input.
#[derive(Debug)]
pub(crate) struct Run {
    program: String,
    arguments: Vec<String>,
    variables: Vec<(&'static str, String)>,
    removed: Vec<&'static str>,
    limit: Option<Duration>,
    folder: Option<PathBuf>,
}

impl Run {
    pub(crate) fn new(program: &str, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|&word| word.to_owned()).collect();
        Self { program: program.to_owned(), arguments, variables: Vec::new(), removed: Vec::new(), limit: None, folder: None }
    }

    /// The cargo that runs us.
    pub(crate) fn cargo(arguments: &[&str]) -> Self {
        Self::new("cargo", arguments)
    }

    pub(crate) fn with(mut self, variable: &'static str, value: impl Into<String>) -> Self {
        self.variables.push((variable, value.into()));
        self
    }

    /// One more argument.
    pub(crate) fn and(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    pub(crate) fn without(mut self, variable: &'static str) -> Self {
        self.removed.push(variable);
        self
    }

    /// It is ended, with all that it started, when it takes longer: a test that hangs is a failure, not a wait.
    pub(crate) fn within(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// In this folder instead of the project's root.
    pub(crate) fn inside(mut self, folder: &Path) -> Self {
        self.folder = Some(folder.to_owned());
        self
    }

    /// Starts it with all its output in a file.
    pub(crate) fn spawn_into(&self, file: std::fs::File) -> Result<std::process::Child, String> {
        let errors = file.try_clone().map_err(|error| self.not_started(&error))?;
        self.command().stdout(file).stderr(errors).spawn().map_err(|error| self.not_started(&error))
    }

    /// Runs it; its output goes to ours.
    pub(crate) fn stream(&self) -> Result<(), String> {
        println!("    {self}");
        let mut child = self.command().spawn().map_err(|error| self.not_started(&error))?;
        let began = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().map_err(|error| self.not_started(&error))? {
                break status;
            }
            if let Some(limit) = self.limit.filter(|&limit| began.elapsed() > limit) {
                end(child.id());
                // It was killed; only its status is left to collect.
                let _ = child.wait();
                return Err(format!("it did not end within {limit:?}; what hangs stands above; repeat it with: {self}"));
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        if status.success() { Ok(()) } else { Err(format!("it ended with {status}; repeat it with: {self}")) }
    }

    /// Runs it and gives what it printed; its errors go to ours.
    pub(crate) fn capture(&self) -> Result<String, String> {
        println!("    {self}");
        let output = self.command().stderr(Stdio::inherit()).output().map_err(|error| self.not_started(&error))?;
        if !output.status.success() {
            return Err(format!("it ended with {}; repeat it with: {self}", output.status));
        }
        String::from_utf8(output.stdout).map_err(|_| format!("its output is not UTF-8; repeat it with: {self}"))
    }

    /// What it printed, and whether it succeeded; its errors go to ours.
    pub(crate) fn capture_whole(&self) -> Result<(String, bool), String> {
        println!("    {self}");
        let output = self.command().stderr(Stdio::inherit()).output().map_err(|error| self.not_started(&error))?;
        let said = String::from_utf8(output.stdout).map_err(|_| format!("its output is not UTF-8; repeat it with: {self}"))?;
        Ok((said, output.status.success()))
    }

    /// Whether it runs and succeeds, in silence.
    pub(crate) fn succeeds(&self) -> bool {
        self.command().stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }

    fn command(&self) -> Command {
        let program = if self.program == "cargo" { std::env::var_os("CARGO") } else { None };
        let mut command = Command::new(program.unwrap_or_else(|| self.program.clone().into()));
        command
            .args(&self.arguments)
            .current_dir(self.folder.as_deref().unwrap_or(root()))
            .stdin(Stdio::null())
            .envs(self.variables.iter().map(|(variable, value)| (variable, value)));
        if std::env::var_os("CI").is_some() && std::env::var_os("CARGO_INCREMENTAL").is_none() {
            // Nothing is built twice there, so nothing is written for a second build. For test programs too: some call cargo.
            command.env("CARGO_INCREMENTAL", "0");
        }
        for variable in &self.removed {
            command.env_remove(variable);
        }
        command
    }

    fn not_started(&self, error: &std::io::Error) -> String {
        format!("{} cannot be started: {error}; install it, or put it on the PATH", self.program)
    }
}

/// Kills a process and all its descendants. They share our process group, so that a terminal's Ctrl-C reaches them.
pub(crate) fn end(pid: u32) {
    let mut all = vec![pid.to_string()];
    let mut seen = 0;
    while let Some(parent) = all.get(seen).cloned() {
        let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
        all.extend(children.split_whitespace().map(str::to_owned));
        seen += 1;
    }
    let words: Vec<&str> = ["-KILL"].into_iter().chain(all.iter().map(String::as_str)).collect();
    Run::new("kill", &words).succeeds();
}

/// As it can be pasted into a shell.
impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(folder) = &self.folder {
            write!(f, "cd {} && ", quoted(&folder.display().to_string()))?;
        }
        for (variable, value) in &self.variables {
            write!(f, "{variable}={} ", quoted(value))?;
        }
        f.write_str(&self.program)?;
        self.arguments.iter().try_for_each(|word| write!(f, " {}", quoted(word)))
    }
}

fn quoted(word: &str) -> String {
    let plain = |char: char| char.is_ascii_alphanumeric() || "-_=./:,+@%".contains(char);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// Runs one step: says what it is, and how long it took.
pub(crate) fn step(
    name: &str,
    what: &str,
    work: impl FnOnce() -> Result<Outcome, String>,
) -> Result<(Outcome, Duration), String> {
    println!("==> {name}: {what}");
    let began = Instant::now();
    let outcome = work().map_err(|message| format!("step {name} failed: {message}"))?;
    let took = began.elapsed();
    match &outcome {
        Outcome::Done => println!("    ok, {:.1} s", took.as_secs_f64()),
        Outcome::Skipped(why) => println!("    skipped: {why}"),
    }
    Ok((outcome, took))
}

/// The root of the project.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the project")
}

/// Where cargo puts what it builds; absolute.
pub(crate) fn target() -> PathBuf {
    let told = std::env::var_os("CARGO_TARGET_DIR").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    told.and_then(|folder| std::path::absolute(folder).ok()).unwrap_or_else(|| root().join("target"))
}

/// Where a program is, if it is on the PATH.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let executable = |file: &PathBuf| file.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0);
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(executable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_a_shell_takes_it() {
        let run = Run::cargo(&["run", "--", "echo", "it's one"]).with("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(run.to_string(), r"RUSTDOCFLAGS='-D warnings' cargo run -- echo 'it'\''s one'");
    }

    #[test]
    fn a_failure_names_the_step_and_the_command() {
        let failed = step("fmt", "always fails", || Run::new("sh", &["-c", "exit 3"]).stream().map(|()| Outcome::Done));
        let message = failed.unwrap_err();
        assert!(message.contains("step fmt failed") && message.contains("repeat it with: sh -c 'exit 3'"), "{message}");
    }

    #[test]
    fn what_hangs_is_ended_with_all_that_it_started() {
        let began = Instant::now();
        let hanging = Run::new("sh", &["-c", "sleep 60 & echo $! >\"$PLACE\"; wait"]);
        let place = std::env::temp_dir().join(format!("xtask-hanging-{}", std::process::id()));
        let message = hanging.with("PLACE", place.display().to_string()).within(Duration::from_secs(1)).stream().unwrap_err();
        assert!(message.contains("did not end within 1s"), "{message}");
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
        let sleeper = std::fs::read_to_string(&place).unwrap();
        std::fs::remove_file(&place).unwrap();
        // A signal to a group returns before each member has ended.
        let runs = format!("kill -0 {} && ! grep -q ^State:.Z /proc/{0}/status", sleeper.trim());
        while Run::new("sh", &["-c", &runs]).succeeds() {
            assert!(began.elapsed() < Duration::from_secs(30), "{} still runs", sleeper.trim());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn commands_have_no_input() {
        assert_eq!(Run::new("cat", &[]).capture().unwrap(), "");
    }
}
